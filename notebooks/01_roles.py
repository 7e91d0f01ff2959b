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
# # Which role does each player have, and when do players swap?
#
# Tracking data of the ten outfield players of one team while it defends, at five frames per second. The line-up gives
# the *nominal* position of each player. Can a model that never sees the line-up recover the roles, assign them to
# players, detect when two players swap, and quantify its uncertainty?
#
# The model is a Bayesian hidden Markov model: in each frame every player has one of ten roles, the emission of a role
# is a Gaussian over positions relative to the team's centroid, and roles follow a Markov chain. The posterior of all
# parameters is approximated by variational inference.

# %%
import warnings

import jax
import matplotlib.pyplot as plt
import numpy as np
import optax

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor")
    import arviz as az

import ethogram
from ethogram import plots
from ethogram.domains import football
from ethogram.inference.roles import consistency, duplicate_share, lineup_agreement

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart

# %% tags=["parameters"]
STEPS = 300
RESTARTS = 8
FEW_STEPS = 200
FEW_RESTARTS = 4
SIZES = [1, 2, 4, 6, 8, 10, 12]
DRAWS = 1000
TREE_DEPTH = 10

# %% [markdown]
# ## The data
#
# A sequence is one player during one defensive play; the ten sequences of a play form a group. Positions are in metres
# relative to the team's centroid, and both teams attack to the right.

# %%
plays = football.load("away")
data = plays.data
print(f"{len(np.unique(data.group))} defensive plays, {data.num_sequences} player sequences,")
print(
    f"{int(data.lengths.sum())} player-frames, sequences of {data.lengths.min()} to {data.lengths.max()} frames"
)

# %% [markdown]
# ## The fit
#
# Ten roles, with a weak normal-inverse-Wishart prior (worth 0.01 observations, centred on the team, scale about five
# metres). The ELBO has many local optima, so CAVI runs from several initialisations, vectorised in one compiled
# program, and the restart with the highest ELBO is selected. The line-up is not used.

# %%
model = ethogram.RoleHMM(10, ethogram.GaussianEmission(2, strength=0.01, dof=4.0, scale=25.0))
fit = ethogram.fit(jax.random.key(0), model, data, num_steps=STEPS, restarts=RESTARTS, progress_bar=False)
elbos, converged = fit.result.restart_elbos, fit.result.converged
print(f"{fit}: ELBO of each restart {np.round(elbos)} nats; converged: {converged}")

fig, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
plots.elbo_traces(fit.result, ax)
plt.show()

# %% [markdown]
# ## The inferred roles
#
# One covariance ellipse per role: the thick one at the posterior mean, thin ones for posterior draws. The back line of
# four, the midfield and the forwards of a 4-2-3-1 are visible.

# %% tags=["picture"]
fig, ax = plt.subplots(figsize=(8, 5.2), layout="constrained")
plots.role_ellipses(fit.result.posterior, plots.pitch(ax), data=data)
ax.set(xlim=(-36, 36), ylim=(-30, 30))
plt.show()

# %% [markdown]
# To give the ten players of a play distinct roles, we solve an optimal assignment problem with expected negative log
# likelihoods as costs. How well do the roles agree with the line-up, which has not been used so far?

# %%
assigned, inferred = ethogram.assign_roles(fit.result, data), fit.states()
one_each = np.where(inferred.path >= 0, assigned.role[:, None], -1)
for name, roles in {"most likely path": inferred.path, "one role per player": one_each}.items():
    print(
        f"{name:19s} frames with duplicate roles {duplicate_share(roles, data.group, data.lengths):.2f}, "
        f"role consistency of players {consistency(roles, data.agent):.2f}, "
        f"agreement with the line-up {lineup_agreement(roles, data.agent, plays.formation_place):.2f}"
    )

# %% [markdown]
# ## When do players swap roles?
#
# One row per player, one colour per role; opacity is the marginal probability of the role, and black ticks mark
# changes.

# %%
fig, ax = plt.subplots(figsize=(11, 4), layout="constrained")
plots.role_timelines(inferred.path, inferred.probability, data, ax=ax)
plt.show()

# %% [markdown]
# The margin of an assignment is the cost difference to the second-best one, in nats: near zero, two players are
# exchangeable.

# %%
closest = np.argsort(assigned.margin)[:3]
frames = np.array([data.lengths[data.group == g].max() for g in np.unique(data.group)])
for play in closest:
    print(f"play {play}: {frames[play]} frames, margin {assigned.margin[play]:.1f} nats")

# %% [markdown]
# ## Roles that are distinct in every frame
#
# In the most likely paths of independent chains, two players often share a role; the assignment gives each player one
# role for a whole play. With `exclusive="per_frame"` players may swap, but no two share a role in any frame, and the
# posterior is conditioned on that. For the back line of four, all one-to-one maps are summed exactly.

# %%
back_line = data.take(
    np.isin(np.asarray(data.agent), np.flatnonzero(np.isin(plays.formation_place, [2, 3, 5, 6])))
)
for exclusive in (None, "per_frame"):
    four = ethogram.RoleHMM(4, model.emission, exclusive=exclusive)
    four_fit = ethogram.fit(
        jax.random.key(5), four, back_line, num_steps=FEW_STEPS, restarts=FEW_RESTARTS, progress_bar=False
    )
    found = four_fit.states()
    print(
        f"exclusive={exclusive!r:12}: frames with duplicate roles "
        f"{duplicate_share(found.path, back_line.group, back_line.lengths):.2f}, "
        f"role consistency of players {consistency(found.path, back_line.agent):.2f}"
    )

fig, ax = plt.subplots(figsize=(11, 2.6), layout="constrained")
plots.role_timelines(found.path, found.probability, back_line, ax=ax)
plt.show()

# %% [markdown]
# ## How many roles do the data support?
#
# The ELBO on the training plays and the log likelihood of held-out plays, by number of roles. Bars are standard errors
# of the difference to the best number; the smallest number within one standard error is selected.

# %%
curve = ethogram.heldout_score_curve(
    jax.random.key(1),
    lambda size: ethogram.RoleHMM(size, model.emission),
    SIZES,
    data,
    num_steps=FEW_STEPS,
    restarts=FEW_RESTARTS,
    progress_bar=False,
)
fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
plots.score_curve(curve, ax)
plt.show()
print(f"selected: {curve.selected_size} roles")

# %% [markdown]
# ## How good is the variational approximation?
#
# On a small problem we compare three algorithms on the same model: CAVI, SVI with natural gradients, and NUTS, which
# samples the posterior of the parameters with the roles summed out. All three are a `method` of `ethogram.fit`. State
# labels are not identified, so every draw is aligned to one reference.

# %%
small = ethogram.RoleHMM(2, ethogram.GaussianEmission(1, strength=0.1, dof=4.0, scale=2.0), transition=2.0)
truth = {
    "initial": np.array([0.5, 0.5]),
    "transition": np.array([[0.9, 0.1], [0.2, 0.8]]),
    "mean": np.array([[-1.5], [1.5]]),
    "covariance": np.array([[[0.7]], [[1.0]]]),
}
small_data = small.simulate(jax.random.key(2), num_groups=12, lengths=25, parameters=truth).data

schedule = optax.polynomial_schedule(0.5, 0.02, 1.0, 150)
settings = {
    "cavi": {"num_steps": 200, "restarts": 2},
    "svi": {"num_steps": 160, "restarts": 2, "batch_size": 3, "step_size": schedule},
    "nuts": {
        "num_warmup": DRAWS // 2,
        "num_samples": DRAWS,
        "num_chains": 2,
        "max_tree_depth": TREE_DEPTH,
    },
}
small_fits = {
    method: ethogram.fit(jax.random.key(3), small, small_data, method, progress_bar=False, **given)
    for method, given in settings.items()
}

# %%
reference = small_fits["cavi"].result.posterior
trees = {
    method.upper(): each.to_arviz(num_draws=DRAWS, align=reference, progress_bar=False)
    for method, each in small_fits.items()
}
for name, tree in trees.items():
    print(f"\n{name}")
    print(az.summary(tree, var_names=["mean", "transition"], kind="stats"))

# %% [markdown]
# The three posteriors agree on emissions and transitions. The mean-field q ignores correlations between blocks and is
# slightly too narrow, as the histograms show.

# %%
fig, axes = plt.subplots(1, 3, figsize=(11, 3), layout="constrained")
panels = {
    "mean of state 0": ("mean", {"state": 0, "feature": 0}),
    "mean of state 1": ("mean", {"state": 1, "feature": 0}),
    "self-transition probability of state 0": ("transition", {"state": 0, "next_state": 0}),
}
values = {"mean of state 0": -1.5, "mean of state 1": 1.5, "self-transition probability of state 0": 0.9}
swapped = float(np.ravel(reference.mean()["mean"])[0]) > 0
if swapped:
    values = {"mean of state 0": 1.5, "mean of state 1": -1.5, "self-transition probability of state 0": 0.8}
for ax, (title, (site, place)) in zip(axes, panels.items(), strict=True):
    for name, tree in trees.items():
        x = np.ravel(tree["posterior"][site].isel(place))
        ax.plot(*plots.density_of(x), label=name)
    ax.axvline(values[title], color="black", linestyle=":", label="truth")
    ax.set_xlabel(title)
    ax.set_yticks([])
axes[0].legend(fontsize="small")
plt.show()

# %% [markdown]
# ## Conclusions
#
# Without labels the model recovers the formation, and assigns a role to each player in each play, with uncertainty.
# In the most likely paths of independent chains some two players share a role in nearly every frame; one role per
# player and play, or chains that are distinct in every frame, exclude that.

# %%
fig, ax = plt.subplots(figsize=(5, 4.4), layout="constrained")
plots.transition_intervals(fit.transitions(per="frame", num_draws=min(DRAWS, 100)), ax)
plt.show()
