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
# # Who plays where, and when do they swap?
#
# Ten outfield players of one team, six minutes of defending, positions five times a second. A line-up sheet says
# where each of them is *meant* to be. The tracking data say where they are. Can a model that has never seen the
# sheet find the roles, say who holds which, notice when two players swap, and say how sure it is?
#
# The model is a hidden Markov model of roles: every player is in one of ten roles at every moment, a role is a
# Gaussian place relative to the team's centre, and players sometimes change role. All parameters have priors,
# and all are learned together by variational inference.

# %%
import os
import warnings

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax
from numpyro.infer import MCMC, NUTS

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor")
    import arviz as az

import ethogram
from ethogram import plots
from ethogram.domains import football
from ethogram.inference.alignment import consistency, duplicate_share, lineup_agreement

QUICK = os.environ.get("ETHOGRAM_QUICK") == "1"

# %% [markdown]
# ## The data
#
# One sequence is one player in one spell of defending; the ten sequences of a spell form a group. Positions are
# metres from the team's centre, and both teams attack to the right.

# %%
plays = football.load("away")
data = plays.data
print(f"{len(np.unique(data.group))} spells of defending, {data.num_sequences} player sequences,")
print(
    f"{int(data.lengths.sum())} player-frames, sequences of {data.lengths.min()} to {data.lengths.max()} frames"
)

# %% [markdown]
# ## The fit
#
# Ten roles; a weak prior on each place (worth a hundredth of an observation, at the team's centre) with a spread
# of about five metres. Such a fit has many local optima, so several starts run side by side in one compiled
# program, and the best bound wins. No restart is chosen by looking at the line-up.

# %%
model = ethogram.RoleHMM(10, ethogram.GaussianEmission(2, strength=0.01, dof=4.0, scale=25.0))
engine = ethogram.ConjugateSVI(model)
fit = engine.run(
    jax.random.key(0), data, 40 if QUICK else 300, restarts=3 if QUICK else 8, progress_bar=False
)
print(f"bound of each restart, nats: {np.round(fit.restart_elbos)}; converged: {fit.converged}")

fig, ax = plt.subplots(figsize=(6, 3.2))
plots.elbo_traces(fit, ax)
plt.show()

# %% [markdown]
# ## Who plays where
#
# Each role is drawn with its posterior uncertainty: thin ellipses are draws from the posterior, the thick one is
# its mean. The back line, the holding midfielders and the forwards of a 4-2-3-1 are where a coach would draw them.

# %%
fig, ax = plt.subplots(figsize=(8, 5.2))
plots.role_ellipses(fit.posterior, plots.pitch(ax))
ax.set(xlim=(-36, 36), ylim=(-30, 30))
plt.show()

# %% [markdown]
# One role a player and spell, no two players alike, is an assignment problem on the posterior's own costs. How
# well does it agree with the line-up sheet, which played no part so far?

# %%
assigned = ethogram.assign_roles(fit.posterior, data)
inferred = ethogram.infer_roles(fit.posterior, data)
one_each = np.where(inferred.path >= 0, assigned.role[:, None], -1)
for name, roles in {"most likely path": inferred.path, "one role each": one_each}.items():
    print(
        f"{name:17s} frames with a role held twice {duplicate_share(roles, data.group, data.lengths):.2f}, "
        f"a player in his usual role {consistency(roles, data.agent):.2f}, "
        f"agreement with the line-up {lineup_agreement(roles, data.agent, plays.formation_place):.2f}"
    )

# %% [markdown]
# ## When do they swap?
#
# One row a player, one colour a role, paler where the model is less sure. Marks are changes of role.

# %%
fig, ax = plt.subplots(figsize=(11, 4))
plots.role_timelines(inferred.path, inferred.probability, data, ax=ax)
plt.show()

# %% [markdown]
# The decision for a spell can be close. Its margin is what the second-best assignment costs more, in nats: near
# zero, two players might as well be exchanged.

# %%
closest = np.argsort(assigned.margin)[:3]
frames = np.array([data.lengths[data.group == g].max() for g in np.unique(data.group)])
for play in closest:
    print(f"spell {play}: {frames[play]} frames, margin {assigned.margin[play]:.1f} nats")

# %% [markdown]
# ## How many roles do the data support?
#
# The bound on the spells that were fitted, and the log likelihood of spells held out, over the number of roles.

# %%
curve = ethogram.score_curve(
    jax.random.key(1),
    lambda size: ethogram.RoleHMM(size, model.emission),
    [2, 10] if QUICK else [1, 2, 4, 6, 8, 10, 12],
    data,
    num_steps=30 if QUICK else 200,
    restarts=2 if QUICK else 6,
    progress_bar=False,
)
fig, ax = plt.subplots(figsize=(6, 3.4))
plots.score_curve(curve, ax)
plt.show()

# %% [markdown]
# ## Can variational inference be trusted here?
#
# On a small problem three algorithms can be set side by side on the same model object: coordinate ascent,
# stochastic natural gradients, and NUTS, which samples the exact posterior with the roles summed out. State
# labels mean nothing by themselves, so every draw is aligned to one reference before it is compared.

# %%
small = ethogram.RoleHMM(2, ethogram.GaussianEmission(1, strength=0.1, dof=4.0, scale=2.0), transition=2.0)
truth = {
    "initial": np.array([0.5, 0.5]),
    "transition": np.array([[0.9, 0.1], [0.2, 0.8]]),
    "mean": np.array([[-1.5], [1.5]]),
    "covariance": np.array([[[0.7]], [[1.0]]]),
}
small_data = small.simulate(jax.random.key(2), num_groups=12, lengths=25, parameters=truth).data

small_engine = ethogram.ConjugateSVI(small)
options = {"restarts": 2, "progress_bar": False}
cavi = small_engine.run(jax.random.key(3), small_data, 200, **options)
schedule = optax.polynomial_schedule(0.5, 0.02, 1.0, 150)
svi = small_engine.run(jax.random.key(3), small_data, 160, batch_size=3, step_size=schedule, **options)

mcmc = MCMC(
    NUTS(small),
    num_warmup=100 if QUICK else 500,
    num_samples=100 if QUICK else 1000,
    num_chains=2,
    chain_method="vectorized",
    progress_bar=False,
)
mcmc.run(jax.random.key(4), small_data)

# %%
reference = cavi.posterior
draws = 200 if QUICK else 1000
trees = {
    "CAVI": ethogram.to_arviz(cavi, small_data, num_draws=draws, align=reference),
    "SVI": ethogram.to_arviz(svi, small_data, num_draws=draws, align=reference),
    "NUTS": ethogram.to_arviz(mcmc, small_data, align=reference),
}
for name, tree in trees.items():
    print(f"\n{name}")
    print(az.summary(tree, var_names=["mean", "transition"], kind="stats"))

# %% [markdown]
# The three agree on where the states are and how they follow each other. Variational draws come from q, which
# leaves out correlations between blocks and is a little too narrow; the plot shows by how much.

# %%
fig, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
panels = {
    "mean of state 0": ("mean", {"state": 0, "feature": 0}),
    "mean of state 1": ("mean", {"state": 1, "feature": 0}),
    "probability of staying in state 0": ("transition", {"state": 0, "next_state": 0}),
}
values = {"mean of state 0": -1.5, "mean of state 1": 1.5, "probability of staying in state 0": 0.9}
swapped = float(np.ravel(reference.mean()["mean"])[0]) > 0
if swapped:
    values = {"mean of state 0": 1.5, "mean of state 1": -1.5, "probability of staying in state 0": 0.8}
for ax, (title, (site, place)) in zip(axes, panels.items(), strict=True):
    for name, tree in trees.items():
        x = np.ravel(tree["posterior"][site].isel(place))
        ax.hist(x, bins=40, density=True, histtype="step", label=name)
    ax.axvline(values[title], color="black", linestyle=":", label="truth")
    ax.set_xlabel(title)
    ax.set_yticks([])
axes[0].legend(fontsize="small")
plt.show()

# %% [markdown]
# ## What was learned
#
# Without labels the model finds the shape of the team, names each player's role in each spell, and says how
# sure it is. Players do swap: the most likely path often puts two players in one role for a moment, which the
# assignment rules out by giving each spell one role a player. Which description is better is not a matter of
# the likelihood alone, and both stand side by side above.

# %%
fig, ax = plt.subplots(figsize=(5, 4.4))
plots.transition_matrix(fit.posterior, ax)
plt.show()
