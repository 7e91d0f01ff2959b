# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Which faults explain the symptoms best?
#
# A resident reports a heating failure: one radiator is cold, all rooms are cold now and then, the boiler cycles and
# the gas bill is high; the rooms upstairs are as warm as the others, and there is no wet patch and no soot. Nine
# faults are possible, several may be present at once, and there are hidden variables between faults and symptoms: how
# fast the water flows, whether the pressure is low. Which **joint assignment** of the faults is most probable, with
# the hidden variables summed out? That is a marginal MAP query: a maximum over some variables of a sum over others.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram import networks, plots
from ethogram.domains import diagnosis, uai_networks

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart

# %% tags=["parameters"]
SECONDS = 5.0
NETWORKS = 3
METHODS = ("hybrid", "ags", "mpe", "sequential", "mpbp")

# %% [markdown]
# ## A noisy-or network
#
# Causes act independently, each with its own strength. An effect with several causes is represented by a chain of
# small tables, so that ten causes do not need a table of a thousand rows.

# %%
query = diagnosis.heating_query()
network = query.network
print(
    f"{network.num_variables} variables, the largest table has {max(t.size for t in network.tables)} entries"
)
for name, state in diagnosis.COMPLAINTS.items():
    print(f"  {name}: {state}")

# %% [markdown]
# ## Three estimates, two of which miss the optimum
#
# We compare the optimal **joint** assignment of the faults, the most probable explanation (MPE) of *all* variables
# restricted to the faults, and the posterior mode of each fault. Only the first answers the query.


# %%
def faults(assignment):
    """Faults present, as text."""
    return ", ".join(name for name, state in assignment.items() if state == "yes") or "none"


for method, words in (
    ("hybrid", "marginal MAP"),
    ("mpe", "MPE, restricted"),
    ("marginal", "posterior modes"),
):
    found = ethogram.fit(jax.random.key(0), query, method=method).result
    print(
        f"{words:26s} {found.log_probability:8.3f}  {faults(found.assignment)}"
        + "  (proved)" * found.proved_optimal
    )

# %% [markdown]
# The MPE commits to one state of every hidden variable. Where a set of faults produces the symptoms through many
# configurations of the hidden variables, its probability is spread over them, and each of them can be less probable
# than the only configuration of a less probable set of faults. Marginal MAP sums over them.
#
# The posterior modes miss a fault. The posterior probability that the thermostat is off is below one half, since other
# faults explain the same symptoms; but given that the valve is stuck, the thermostat is more probably off than not.

# %%
posterior = networks.variable_posteriors(query).probabilities
for name in diagnosis.FAULTS:
    print(f"{name:24s} {posterior[name][1]:.3f}")

# %% [markdown]
# ## How certain is the answer?
#
# The next best assignments and their gaps in nats show the alternatives; the loss caused by single changes shows which
# parts of the answer are certain.

# %% tags=["picture"]
for each in networks.best_assignments(query, 6):
    print(f"{each.gap:6.3f} nats below the best: {faults(each.assignment)}")

best = ethogram.fit(jax.random.key(0), query).predict()
flips = networks.single_flips(query, best)
figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4), layout="constrained")
marginals = [posterior[name][1] for name in diagnosis.FAULTS]
left.barh(list(diagnosis.FAULTS), marginals, color="0.6")
left.invert_yaxis()
left.set(xlabel="posterior marginal probability", xlim=(0, 1))
losses = [values.max() - np.sort(values)[-2] for values in flips.values()]
right.barh(list(flips), losses)
right.invert_yaxis()
right.set_xlabel("loss of the best single change (nats)")
right.set_title(f"answer: {faults(best)}", fontsize=10)
plt.show()

# %% [markdown]
# Further observations are added to the evidence; nothing is compiled again. An uncertain observation is soft evidence,
# with likelihoods in place of a state: "I think I heard gurgling" is three to one.

# %%
for more in ({"humming": "yes"}, {"gurgling": [1.0, 3.0]}):
    extended = ethogram.MarginalMAP(network, diagnosis.COMPLAINTS | more, tuple(diagnosis.FAULTS))
    print(more, "->", faults(ethogram.fit(jax.random.key(0), extended).predict()))

# %% [markdown]
# ## The AGS surrogate
#
# Cui, Marinescu and Khardon (2018) reduce marginal MAP to planning: they put weights q on the states of the faults,
# and compute forward marginals that treat parents as independent. The surrogate is smooth, cheap and differentiable,
# but it is not the probability. We plot both at the vertices that gradient ascent visits.

# %%
passed = networks.ascend(jax.random.key(1), query, num_restarts=64, max_steps=50)
exact = np.array([networks.exact_log_probability(query, states) for states in passed.states[:200]])
figure, axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
shown = slice(0, 200)
axes.plot(passed.log_values[shown], exact, ".", alpha=0.6)
ends = [min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])]
axes.plot(ends, ends, color="0.7", zorder=0)
axes.set(xlabel="log surrogate", ylabel="exact log probability", title="vertices visited by gradient ascent")
plt.show()
top = passed.states[0]
print(f"largest surrogate: {faults(query.named(top))}, exact {exact[0]:.3f}; best visited: {exact.max():.3f}")

# %% [markdown]
# Forward marginals carry no evidence from children to parents: two symptoms of one hidden cause count as independent.
# Here most relevant variables are MAP variables, so that surrogate and probability nearly agree, except at a few
# vertices; with fewer MAP variables they differ more. All visited vertices are more useful than the one with the
# largest surrogate. `hybrid` does without it: it searches by exact scores.

# %% [markdown]
# ## Large networks
#
# Three networks of the UAI competitions: a grid, a medical diagnosis, a pedigree. Constrained elimination would need
# tables of gigabytes; here the hybrid method is an anytime large-neighbourhood search.

# %%
names = list(uai_networks.KNOWN)[:NETWORKS]
figure, panels = plt.subplots(1, len(names), figsize=(5 * len(names), 4.6), layout="constrained")
for axes, name in zip(panels, names, strict=True):
    query, known = uai_networks.load(name), uai_networks.KNOWN[name]
    fits = {m: ethogram.fit(jax.random.key(0), query, method=m, time_limit=SECONDS) for m in METHODS}
    answers = {m: fit.result for m, fit in fits.items()}
    plots.anytime_curves(answers, axes, best=known.log_probability)
    axes.set_title(f"{name}, {known.about}")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    for method, found in answers.items():
        print(f"{name:22s} {method:12s} {found.log_probability:9.3f} of {known.log_probability:.3f}")
plt.show()

# %% [markdown]
# The dashed line is the best known log probability, proved optimal for the first two networks. If a curve is missing,
# the method found only impossible assignments: deterministic tables leave few assignments of positive probability,
# and a method that ignores the zeros finds none of them.
