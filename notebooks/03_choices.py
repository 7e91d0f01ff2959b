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
# # How does she play?
#
# We watch somebody play Tetris. At every piece there are some twenty places where it could go, other ones each time,
# and she takes one. What does she value: a low stack, no holes, a flat surface? And what will she do next?
#
# The model is the noisy Markov decision process: a placement has a value, the sum of what its features are worth to
# her, and standard normal noise of its own; she takes the best. That is a multinomial probit with a set of options that
# changes with every decision. Its likelihood is one integral, so NUTS can sample it; with one latent utility an option
# it is a linear regression, so data augmentation can, and its parameter-expanded form PX-DA.

# %%
import os
import warnings

import jax
import matplotlib.pyplot as plt
import numpy as np

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor")
    import arviz as az

from numpyro.infer import MCMC, NUTS

import ethogram
from ethogram import plots_choices
from ethogram.domains import tetris, toy_chain
from ethogram.inference import choice_predictions, choice_summary

QUICK = os.environ.get("ETHOGRAM_QUICK") == "1"
CHAINS = 4

# %% [markdown]
# ## Three samplers on a small world
#
# First a world small enough to see how samplers differ: seven states, three actions, fifty decisions. The agent's
# values of the states are known to us and sum to zero, since adding a constant to all of them changes no choice. (Her
# board is for the end.) Decisions are simulated until the choices overlap: where some direction of the values is
# contradicted by no choice, the posterior out there is the prior.

# %%
model = ethogram.NoisyMDP(kappa=16.0)
for seed in range(20):
    toy = toy_chain.simulate(jax.random.key(seed), 50)
    if model.separation(toy.decisions) is None:
        break
print(f"seed {seed}: values {np.round(toy.values, 1)}")

# %%
draws = 500 if QUICK else 4000
kernels = {
    "DA": ethogram.PXDA(model, "da"),
    "PX-DA": ethogram.PXDA(model, "local+scale"),
    "NUTS": NUTS(model, dense_mass=True),
}
trees, runs = {}, {}
for name, kernel in kernels.items():
    mcmc = MCMC(
        kernel,
        num_warmup=300,
        num_samples=draws // 4 if name == "NUTS" else draws,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.run(jax.random.key(1), toy.decisions)
    runs[name] = mcmc
    trees[name] = ethogram.to_arviz(mcmc, toy.decisions, posterior_predictive=False)
    table = az.summary(trees[name], var_names=["v"])
    sweeps = CHAINS * mcmc.num_samples
    slowest = table["ess_bulk"].astype(float).min()
    print(f"{name:6s} largest r_hat {table['r_hat'].astype(float).max():.3f}, "
          f"effective draws of the slowest value {slowest:.0f} of {sweeps}")  # fmt: skip

# %% [markdown]
# The three agree, as they must: one posterior, three ways to walk about in it. They differ in how fast they forget
# where they were. Plain data augmentation moves the utilities a little, then the values a little. PX-DA moves the scale
# of all utilities and the level of each decision along, which change no choice and so are free to go far.


# %%
def autocorrelation(x, lags):
    """Of chains (chain, draw), at each lag, about their common mean."""
    x = np.asarray(x, float) - np.mean(x)
    return [np.mean(x[:, : x.shape[1] - lag] * x[:, lag:]) / np.mean(x**2) for lag in lags]


lags = range(31)
figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
for name, tree in trees.items():
    axes[0].plot(lags, autocorrelation(tree.posterior["v"][:, :, 6].values, lags), marker=".", label=name)
axes[0].axhline(0, color="0.8")
axes[0].set(xlabel="lag, sweeps or draws", ylabel="autocorrelation of the seventh value")
axes[0].legend(frameon=False)
offset = np.linspace(-0.2, 0.2, len(trees))
for shift, (name, tree) in zip(offset, trees.items(), strict=True):
    values = tree.posterior["v"].values.reshape(-1, 7)
    lower, upper = np.percentile(values, [5, 95], axis=0)
    axes[1].errorbar(
        np.arange(7) + shift,
        values.mean(0),
        (values.mean(0) - lower, upper - values.mean(0)),
        fmt="o",
        label=name,
    )
axes[1].plot(range(7), toy.values, "kx", markersize=9, label="truth")
axes[1].set(xlabel="state", ylabel="value, 90 % of the posterior")
axes[1].legend(frameon=False)
plt.show()

# %% [markdown]
# Ranks of the draws of each chain among those of all chains: flat where the chains have found the same law.

# %%
ranks = plt.figure(figsize=(12, 3), layout="constrained")
for place, (name, tree) in enumerate(trees.items()):
    values = tree.posterior["v"][:, :, 6].values
    order = values.ravel().argsort().argsort().reshape(values.shape)
    ax = ranks.add_subplot(1, 3, place + 1)
    for chain in order:
        ax.hist(chain, bins=20, range=(0, order.size), histtype="step")
    ax.axhline(values.shape[1] / 20, color="0.6", linestyle=":")
    ax.set(title=name, xlabel="rank of the seventh value", yticks=[])
plt.show()

# %% [markdown]
# ## Her game
#
# A player who fears holes more than anything: values of (-3, -15, -1) for the height of the stack, its holes and its
# bumpiness. From her first hundred placements we learn what she values; the next four hundred are to be predicted.

# %%
truth = (-3.0, -15.0, -1.0)
game = tetris.simulate(jax.random.key(3), truth, 500)
train, test = game.decisions.take(slice(0, 100)), game.decisions.take(slice(100, None))
print(f"options a placement: {train.legal.sum(1).mean():.0f} on average, {train.legal.sum(1).max()} at most")

player = ethogram.NoisyMDP(kappa=2500.0, kind="features")
mcmc = MCMC(
    NUTS(player, dense_mass=True),
    num_warmup=100 if QUICK else 500,
    num_samples=100 if QUICK else 1000,
    num_chains=2,
    chain_method="vectorized",
    progress_bar=False,
)
mcmc.run(jax.random.key(4), train)
samples = mcmc.get_samples()
print(choice_summary.summarize_choices(player, samples, train))

# %% [markdown]
# That was NUTS; `PXDA(player)` takes the same decisions. With many options and strong values the latent utilities hold
# the scale of the values tight, so that a sweep moves it little: `PXDA(player, winner="rejection", collapse_scale=2)`
# adds a move of the scale that knows nothing of the utilities. Which of the three forgets fastest here is not shown;
# the cells above, with `player` and `train` in them, would show it.
#
# What she will do next is the posterior predictive probability of each placement: the mean over draws of its exact
# probability. Beside the share of placements that are not the most probable one stands what is to be expected of who
# knows her values, though not the noise: over four hundred placements a model may be luckier, on average it is not.

# %%
probabilities = choice_predictions.predict_probabilities(player, samples, test)
guess = np.asarray(probabilities).argmax(1)
error = choice_predictions.choice_error(guess, test)
floor = choice_predictions.noise_floor(test.features @ np.array(truth), test)
chosen = np.take_along_axis(np.asarray(probabilities), test.choice[:, None], 1)
print(f"predicted wrongly: {error:.3f}; to be expected of who knows her values: {floor:.3f}")
print(f"mean log probability of what she did: {np.log(chosen).mean():.3f} nats")

# %%
figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
plots_choices.value_marginals(samples["v"], axes[0], names=train.metadata.feature_names, truth=truth)
plots_choices.reliability(choice_predictions.calibration(probabilities, test, 8), axes[1])
plt.show()

# %% [markdown]
# Left, what she values, and the truth. Right, options by their predicted probability, and how often they were taken: on
# the diagonal a prediction of 30 % is right in 30 % of the cases.
#
# Last, the same pieces and the same noise, played by her and by who learned from her; in colour, where the piece at
# hand comes to lie.

# %%
figure, axes = plt.subplots(1, 2, figsize=(6, 6), layout="constrained")
moves = 60
for ax, values, title in zip(
    axes, (truth, tuple(np.asarray(samples["v"].mean(0)))), ("she plays", "who learned from her"), strict=True
):
    played = tetris.simulate(jax.random.key(9), values, moves)
    tetris.draw_placement(played.boards[-1], played.pieces[-1], played.decisions.choice[-1], ax)
    ax.set_title(f"{title}: move {moves}")
plt.show()
cap = 100 if QUICK else 250
survived = tetris.play(jax.random.key(5), samples["v"].mean(0), 20 if QUICK else 100, cap)
print(
    f"of {len(survived)} games of the learned player {np.mean(survived == cap):.0%} went on for all of {cap} moves"
)

# %% [markdown]
# To be watched yourself: `ethogram play tetris --out mine.csv` records your game, and
# `ethogram.domains.tetris_records.load_games("mine.csv")` gives the decisions for the model above.
