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
# # What is the mouse after?
#
# A thirsty mouse runs about a labyrinth of 127 nodes. At one of its 64 ends there is water, at the entrance its
# home. We see every node it visits and every turn it takes, and never what it wants. Can a model that is told of
# neither water nor home find out what the mouse is after, when it changes its mind, and how many such intents there
# are?
#
# The model is an agent Markov model: a hidden intent drives the moves, and changes with a probability that depends on
# the intent, the node and the move. Policies, transitions and the first intent have priors and are learned together.
# The number of intents is open: all rows over intents share weights under a hierarchical Dirichlet process, whose
# truncation only limits how many the fit may use.

# %%
import os
import warnings

import jax
import matplotlib.pyplot as plt
import numpy as np

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor")
    import arviz as az

import ethogram
from ethogram import plots, plots_agents
from ethogram.domains import labyrinth
from ethogram.mouse_intents import draw_windows, typical_trace, where_moves_lead

QUICK = os.environ.get("ETHOGRAM_QUICK") == "1"

# %% [markdown]
# ## The data
#
# Windows of 500 steps, each a node and the turn taken there. The last part is held out below.

# %%
data, _ = draw_windows(jax.random.key(0), *((24, 1) if QUICK else (100, 1)))
print(f"{data.num_sequences} windows of {data.lengths.max()} steps")
print(f"steps at the water: {100 * np.mean(data.states == labyrinth.WATER):.1f} %")

# %% [markdown]
# ## How many intents?
#
# The same model with a truncation of 1, 2, 3 and 5, and one of 8, which is more than it needs: there the model chooses.
# Each is fitted to most of the windows, and scored on the others by the log likelihood of a turn at posterior means.
# The best of several starts wins by its bound; no start is chosen by the score.

# %%
SIZES = [1, 5] if QUICK else [1, 2, 3, 5, 8]
curve = ethogram.score_curve(
    jax.random.key(1),
    lambda size: ethogram.AgentMarkov(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, size),
    SIZES,
    data,
    by="sequence",
    test_fraction=0.2,
    num_steps=30 if QUICK else 200,
    restarts=2 if QUICK else 8,
    init="segments",
    progress_bar=False,
)
# The same split once more: what the fits have seen.
train, test = data.split(jax.random.split(jax.random.key(1))[0], test_fraction=0.2)
for size, elbo, heldout in zip(curve.size, curve.elbo, curve.heldout, strict=True):
    print(f"at most {size} intents: bound {elbo:9.1f} nats, held out {heldout:.3f} nats a step")

fig, ax = plt.subplots(figsize=(6, 3.4))
plots.score_curve(curve, ax)
ax.set_xlabel("intents allowed")
plt.show()

# %% [markdown]
# With all the windows, the step from one intent to two is large, that to three smaller, and what is allowed beyond is
# not needed: the score stays, and the bound falls a little. The bound need not rise with the truncation: a larger model
# has more places to get stuck in, and pays for weights that it does not use.
#
# ## What the model chose
#
# Of the intents that it was allowed, how many does the last model use? The weights are the shared ones of the
# hierarchical process: they say where the rows over intents are drawn to, and are a point in q, without a spread. How
# much of the time an intent is held is another question, and answered by the posterior of the steps.

# %%
fit = curve.fits[-1]
inferred = ethogram.infer_intents(fit, train)
weights = np.asarray(fit.posterior.mean()["weights"])
share = inferred.visits.sum(-1) / inferred.visits.sum()
for intent in np.argsort(-share):
    print(f"intent {intent}: weight {weights[intent]:.3f}, {100 * share[intent]:5.1f} % of the steps")
print(f"beyond the truncation: weight {weights[-1]:.3f}")
print(f"intents that hold more than 1 % of the steps: {len(inferred.used)}")

fig, ax = plt.subplots(figsize=(4.6, 3))
plots_agents.intent_shares(inferred.probability, ax)
plt.show()

# %% [markdown]
# ## Another judge
#
# ArviZ compares models by their estimated leave-one-out score. Its draws are taken for draws from the posterior, and
# ours come from q, the variational approximation, which is narrower: the estimate is of the leave-one-out score under
# q, `p` comes out too small, and the Pareto diagnostics look better than they should. What is left out here is a whole
# window of 500 turns, which moves the posterior of rare nodes a good deal, so the diagnostics may complain
# even so, and they are right to. The order of the models is to be believed where the held-out score above, in which no
# window is both learned from and scored, says the same.

# %%
trees = {
    f"at most {size}": ethogram.to_arviz(
        one, train, num_draws=50 if QUICK else 300, log_likelihood="sequence", posterior_predictive=False
    )
    for size, one in zip(curve.size, curve.fits, strict=True)
}
with warnings.catch_warnings(record=True) as complaints:
    warnings.simplefilter("always")
    table = az.compare(trees)
print(table.to_string())
for text in dict.fromkeys(
    " ".join(str(one.message).split()) for one in complaints if issubclass(one.category, UserWarning)
):
    print(f"ArviZ warns: {text[:200]}")

# %% [markdown]
# ## When does it change its mind?
#
# One window, stacked probabilities: one colour from top to bottom is certainty. Above are the arrivals at the water
# and the departures for home, which the model was not told of; below is the probability of a change at each step.

# %%
window = typical_trace(inferred.probability)
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
# ## What is the mouse after?
#
# Follow the most probable moves of an intent from every place where it is held: do they end at the water, at home, or
# nowhere?

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
# Discs are where an intent is held, by their area; arrows are its most probable moves. With all the windows, one intent
# leads to the water from nearly everywhere, and searches the dead ends on its way; one begins at the water and leads
# out, most often home; one explores the far side, and leads to neither. What else is above one step in a hundred is a
# mouse that runs to and fro between two nodes, for which the model opens an intent of its own. Neither water nor home
# was in the model, and how the rest of the time is cut up differs between good fits: other starts and other windows may
# give two large intents in place of three.

# %%
shown = inferred.used[:4]
colours = plots_agents.intent_colours(len(share))
fig, axes = plt.subplots(1, len(shown), figsize=(4.2 * len(shown), 4.8), layout="constrained", squeeze=False)
for ax, intent in zip(axes[0], shown, strict=True):
    plots_agents.maze_occupancy(inferred.visits[intent], ax, policy=policy[intent], colour=colours[intent])
    ax.set_title(titles[intent], fontsize=10)
plt.show()
