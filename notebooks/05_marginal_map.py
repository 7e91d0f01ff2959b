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
# A house calls: one radiator is cold, so are all rooms now and then, the boiler starts and stops, gas is used as never
# before; upstairs is no colder than the rest, there is no wet patch and no soot. Nine faults are possible, several may
# be there at once, and between faults and symptoms stand things that nobody sees: how fast the water moves, whether the
# pressure is low. Which **joint** setting of the faults is most probable, whatever goes on in between? That is marginal
# MAP: a maximum over some variables of a sum over others.

# %%
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram import plots_mmap
from ethogram.domains import diagnosis, uai_networks
from ethogram.inference.ags import ascend
from ethogram.inference.best_assignments import best_assignments, single_flips
from ethogram.inference.elimination import exact_log_probability
from ethogram.inference.variable_posteriors import variable_posteriors

QUICK = os.environ.get("ETHOGRAM_QUICK") == "1"
SECONDS = 2.0 if QUICK else 5.0

# %% [markdown]
# ## A network by noisy-or
#
# Each cause brings an effect about by itself, with some strength. Effects with several causes are chains of small
# tables, so that ten causes do not take a table of a thousand rows.

# %%
query = diagnosis.question()
network = query.network
print(
    f"{network.num_variables} variables, the largest table has {max(t.size for t in network.tables)} numbers"
)
for name, state in diagnosis.COMPLAINTS.items():
    print(f"  {name}: {state}")

# %% [markdown]
# ## Three ways to answer, and what two of them miss
#
# The most probable faults **together**; the same read off the most probable explanation of *everything*, hidden
# variables included; and each fault's own most probable state. Only the first answers the question.


# %%
def faults(assignment):
    """Faults that are there, as text."""
    return ", ".join(name for name, state in assignment.items() if state == "yes") or "none"


for method, words in (
    ("hybrid", "marginal MAP"),
    ("mpe", "explanation of everything"),
    ("marginal", "one by one"),
):
    found = ethogram.solve_mmap(jax.random.key(0), query, method)
    print(
        f"{words:26s} {found.log_probability:8.3f}  {faults(found.assignment)}"
        + "  (proved)" * found.proved_optimal
    )

# %% [markdown]
# Why is the explanation of everything not the answer? It must commit itself to one state of every hidden variable. A
# set of faults under which the symptoms can come about in many ways shares its probability among them, and each single
# way looks poor beside the one way of a set of faults that explains less. Marginal MAP adds the ways up.
#
# And the most probable state of each fault alone leaves out a fault that is needed. The thermostat is off with a
# probability below one half, since other faults could take its place; but with the valve stuck, the thermostat off as
# well is more probable than the valve alone.

# %%
posterior = variable_posteriors(query).probabilities
for name in diagnosis.FAULTS:
    print(f"{name:24s} {posterior[name][1]:.3f}")

# %% [markdown]
# ## How sure is it?
#
# The next best answers, with their gaps in nats, say what else to look for; what a single change would cost says which
# part of the answer is firm.

# %%
for each in best_assignments(query, 6):
    print(f"{each.gap:6.3f} nats below the best: {faults(each.assignment)}")

best = ethogram.solve_mmap(jax.random.key(0), query)
flips = single_flips(query, best.assignment)
figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4), layout="constrained")
chances = [posterior[name][1] for name in diagnosis.FAULTS]
left.barh(list(diagnosis.FAULTS), chances, color="0.6")
left.invert_yaxis()
left.set(xlabel="posterior probability of each fault by itself", xlim=(0, 1))
plots_mmap.gap_bars(flips, query.states(best.assignment), right)
right.set_title(f"answer: {faults(best.assignment)}", fontsize=10)
plt.show()

# %% [markdown]
# A plumber who looks at one thing more asks again, with one more piece of evidence; nothing is compiled anew. Somebody
# who is not sure says so, with likelihoods in place of a state: "I think I heard gurgling" is three to one.

# %%
for more in ({"humming": "yes"}, {"gurgling": [1.0, 3.0]}):
    asked = ethogram.MarginalMAP(network, diagnosis.COMPLAINTS | more, tuple(diagnosis.FAULTS))
    found = ethogram.solve_mmap(jax.random.key(0), asked)
    print(more, "->", faults(found.assignment))

# %% [markdown]
# ## What gradient ascent on forward marginals sees
#
# The paper this comes from turns the question into planning: weights q of the faults' states, and forward marginals
# that treat parents as independent. The surrogate is smooth, cheap and differentiable, and it is not the probability.
# Here are both, at the answers that an ascent passes.

# %%
passed = ascend(jax.random.key(1), query, num_restarts=64, max_steps=100)
exact = np.array([exact_log_probability(query, states) for states in passed.states[:200]])
figure, axes = plt.subplots(figsize=(5.5, 4.5), layout="constrained")
shown = slice(0, 200)
axes.plot(passed.log_values[shown], exact, ".", alpha=0.6)
ends = [min(axes.get_xlim()[0], axes.get_ylim()[0]), max(axes.get_xlim()[1], axes.get_ylim()[1])]
axes.plot(ends, ends, color="0.7", zorder=0)
axes.set(xlabel="surrogate", ylabel="exact log probability", title="answers that the ascent passed")
plt.show()
top = passed.states[0]
print(f"largest surrogate: {faults(query.named(top))}, exact {exact[0]:.3f}; best passed: {exact.max():.3f}")

# %% [markdown]
# Evidence below a hidden variable never reaches it forwards: two symptoms of one hidden cause are multiplied as if they
# were independent. Here most of what matters is asked for, so that the two nearly agree, but for answers that are off
# by a nat or two; with fewer variables asked for they part. What an ascent passes is worth more than what it likes
# best: `hybrid` uses it as one source of starts among others, and scores exactly.

# %% [markdown]
# ## Where nothing is small
#
# Three networks of the competitions: a grid, a medical diagnosis, a pedigree. Elimination in the order that the
# question forces would take tables of gigabytes; the hybrid method searches neighbourhoods exactly and shows, at any
# time, the best it has.

# %%
names = list(uai_networks.KNOWN)[: 2 if QUICK else 3]
methods = ("hybrid", "mpe", "sequential") if QUICK else ("hybrid", "ags", "mpe", "sequential", "mpbp")
figure, panels = plt.subplots(1, len(names), figsize=(5 * len(names), 4.6), layout="constrained")
for axes, name in zip(panels, names, strict=True):
    question, known = uai_networks.load(name), uai_networks.KNOWN[name]
    answers = {m: ethogram.solve_mmap(jax.random.key(0), question, m, time_limit=SECONDS) for m in methods}
    plots_mmap.anytime_curves(
        {m: found.trace for m, found in answers.items()}, axes, until=SECONDS, best=known.log_probability
    )
    axes.set_title(f"{name}, {known.about}")
    axes.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    for method, found in answers.items():
        print(f"{name:22s} {method:12s} {found.log_probability:9.3f} of {known.log_probability:.3f}")
plt.show()

# %% [markdown]
# The dashed line is the best answer known, proved for the first two. A line that is missing belongs to a method whose
# answers are all impossible: deterministic tables leave few settings of positive probability, and a method that does
# not see that finds none of them.
