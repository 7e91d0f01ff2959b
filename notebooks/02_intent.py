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
# # Which intents drive a mouse in a labyrinth?
#
# A water-deprived mouse explores a labyrinth of 127 nodes, with a water port at one of its 64 ends and the home cage
# at the entrance. We observe every node and every turn, but not the goal. Can a model that does not know where water
# and home are infer the mouse's intents, when they change, and how many there are?
#
# The agent Markov model has a latent intent that drives the actions and changes with a probability that depends on
# the intent, the node and the action. Policies, transitions and the initial intent have priors and are learned
# jointly. The number of intents is learned too: the transition rows share weights under a hierarchical Dirichlet
# process, and the truncation is only an upper bound.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram import plots
from ethogram.domains import labyrinth
from ethogram.domains.labyrinth import draw_windows, typical_window, where_moves_lead
from ethogram.plots import intents as plots_agents

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart

# %% tags=["parameters"]
WINDOWS = 60
SIZES = [1, 2, 3, 6]
STEPS = 1000
RESTARTS = 8

# %% [markdown]
# ## The data
#
# Windows of 500 steps, each with a node and an action. Some windows are held out below.

# %%
data, _ = draw_windows(jax.random.key(0), WINDOWS, 1)
print(f"{data.num_sequences} windows of {data.lengths.max()} steps")
print(f"steps at the water: {100 * np.mean(data.states == labyrinth.WATER):.1f} %")

# %% [markdown]
# ## How many intents?
#
# We fit the model with truncations of 1, 2, 3 and 6, where 6 is more than it needs. Each fit is scored on held-out
# windows by the log predictive density per step, at posterior means. The restart with the highest ELBO is selected;
# the held-out score is not used for selection. An intent usually lasts: the model learns how strongly its intents do,
# so that no row of the transitions has to learn it anew (`stickiness=None` is the model without). One size alone is
# `ethogram.fit(key, model, train)`; the curve fits all of them to the same windows, and simpler models beside.

# %%
curve = ethogram.heldout_score_curve(
    jax.random.key(1),
    lambda size: ethogram.AgentMarkov(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, size),
    SIZES,
    data,
    by="sequence",
    test_fraction=0.2,
    num_steps=STEPS,
    restarts=RESTARTS,
    progress_bar=False,
)
# The same split again: the training data of the fits.
train, test = data.split(jax.random.split(jax.random.key(1))[0], test_fraction=0.2)
for size, elbo, heldout in zip(curve.size, curve.elbo, curve.heldout, strict=True):
    print(f"at most {size} intents: ELBO {elbo:9.1f} nats, held-out {heldout:.3f} nats per step")
for name, (heldout, error) in curve.peers.items():
    print(
        f"{name}: held-out {heldout:.3f} nats per step, {error:.3f} standard error of the difference to the best"
    )

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
plots.score_curve(curve, ax, unit="intents")
ax.set_xlabel("truncation (maximum number of intents)")
plt.show()

# %% [markdown]
# With all windows, the gain from one intent to two is large. A larger truncation changes nothing: the search starts
# with few intents, and an intent that no step uses leaves the ELBO as it is. A table of turns by node and last turn
# predicts slightly better; it says nothing of what the mouse is after. Local maxima lie far apart on these data: other
# keys find a third intent, which explores, at an ELBO that is a hundred nats higher.
#
# ## How many intents does the model use?
#
# How many of its possible intents does the largest model use? The weights are the shared base measure of the
# hierarchical Dirichlet process, towards which the transition rows are shrunk; q has a point mass on them. The share
# of steps of each intent is a different quantity, and follows from the posterior of the intents.

# %%
fit = curve.fits[-1]
inferred = ethogram.infer_intents(fit, train)
weights = np.asarray(fit.posterior.mean()["weights"])
share = inferred.visits.sum(-1) / inferred.visits.sum()
for intent in np.argsort(-share):
    print(f"intent {intent}: weight {weights[intent]:.3f}, {100 * share[intent]:5.1f} % of the steps")
print(f"beyond the truncation: weight {weights[-1]:.3f}")
print(f"intents with more than 1 % of the steps: {len(inferred.used)}")

fig, ax = plt.subplots(figsize=(4.6, 3), layout="constrained")
plots_agents.intent_shares(inferred.probability, ax)
plt.show()

# %% [markdown]
# The held-out score above is what ranks models. Leave-one-out estimates of ArviZ (`az.loo`, `az.compare`) do not, here:
# they assume draws from the posterior, while ours come from the variational approximation, which is narrower. They
# favour larger models, and give the overconfident fit the weight. Exported draws say so in their attributes.

# %%
tree = ethogram.to_arviz(curve.fits[0], train, num_draws=50)
print(tree.posterior.attrs["draws_from"], "-", tree.posterior.attrs["caution"])

# %% [markdown]
# ## When does the intent change?
#
# One window, with stacked posterior probabilities: a single colour from top to bottom means certainty. The marks
# above are arrivals at the water and departures for home, which are not given to the model; the strip below is the
# probability of a change of intent at each step.

# %%
window = typical_window(inferred.probability)
nodes, moves = np.asarray(train.states)[window], np.asarray(train.actions)[window]
leaving = (nodes == labyrinth.HOME) & (moves == labyrinth.ACTION_NAMES.index("out right"))
fig, ax = plt.subplots(figsize=(11, 3.2), layout="constrained")
plots_agents.intent_timeline(
    inferred.probability[window],
    ax,
    change=inferred.change[window],
    marks={"home": np.flatnonzero(leaving), "water": np.flatnonzero(nodes == labyrinth.WATER)},
)
plt.show()

# %% [markdown]
# ## Where do the intents lead?
#
# From each node, we follow the most probable actions of an intent: do they end at the water, at home, or in a cycle?

# %%
policy = np.asarray(fit.posterior.model.agent(fit.posterior.mean()).policy)
titles = {}
for intent in inferred.used:
    water, home = where_moves_lead(policy[intent], inferred.visits[intent])
    titles[intent] = f"intent {intent}: {100 * share[intent]:.0f} % of steps,\n" + (
        f"to water from {100 * water:.0f} %, home from {100 * home:.0f} %"
    )
    print(titles[intent].replace("\n", " "))

# %% [markdown]
# Disc area is the share of an intent's steps at a node; arrows are its most probable actions. With all windows, one
# intent leads to the water, from three fifths of its steps, and the other away from it, from two fifths home. The model
# knows neither water nor home. How the time is divided differs between good fits: other keys and windows may give three
# intents instead of two.

# %% tags=["picture"]
shown = inferred.used[:4]
colours = plots.category_colours(len(share))
fig, axes = plt.subplots(1, len(shown), figsize=(4.2 * len(shown), 4.8), layout="constrained", squeeze=False)
for ax, intent in zip(axes[0], shown, strict=True):
    labyrinth.maze_occupancy(inferred.visits[intent], ax, policy=policy[intent], colour=colours[intent])
    ax.set_title(titles[intent], fontsize=10)
plt.show()
