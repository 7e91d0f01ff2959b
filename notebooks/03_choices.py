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
# # What does a Tetris player value?
#
# We observe a Tetris player. Every piece has some twenty legal placements, different ones each time, and she chooses
# one of them. What does she value: a low stack, no holes, a flat surface? And what will she do next?
#
# The model is the noisy Markov decision process: a placement has a utility, linear in its features, plus standard
# normal noise, and she chooses the placement with the largest sum. This is a multinomial probit with varying choice
# sets. Its likelihood is a one-dimensional integral, evaluated by quadrature for NUTS. Given the latent utilities it
# is a linear regression, which data augmentation exploits, and so does its parameter-expanded form, PX-DA.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram.domains import small_mdps, tetris
from ethogram.plots import choices as plots_choices

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart
CHAINS = 4

# %% tags=["parameters"]
TOY_DRAWS = 4000
TOY_WARMUP = 300
PLACEMENTS = (100, 500)
WARMUP = 500
SAMPLES = 1000
TREE_DEPTH = 10
GAMES = 100
MOVES = 250

# %% [markdown]
# ## Three samplers on a small MDP
#
# First an MDP that is small enough to compare samplers: seven states, three actions, fifty decisions. The true values
# of the states are known and sum to zero, since adding a constant to all of them changes no choice. We simulate until
# the choices overlap: if they are separated, only the prior bounds the posterior in some direction.

# %%
model = ethogram.NoisyMDP(kappa=16.0)
for seed in range(20):
    toy = small_mdps.toy_chain(jax.random.key(seed), 50)
    if model.separation(toy.decisions) is None:
        break
print(f"seed {seed}: values {np.round(toy.values, 1)}")

# %%
samplers = {
    "DA": ("px-da", {"moves": "da", "num_samples": TOY_DRAWS}),
    "PX-DA": ("px-da", {"moves": "local+scale", "num_samples": TOY_DRAWS}),
    "NUTS": ("nuts", {"num_samples": TOY_DRAWS // 4}),
}
chains = {"num_warmup": TOY_WARMUP, "num_chains": CHAINS, "progress_bar": False}
trees = {}
for name, (method, settings) in samplers.items():
    fit = ethogram.fit(jax.random.key(1), model, toy.decisions, method, **chains, **settings)
    trees[name] = fit.to_arviz()
    table = fit.summary()
    print(f"{name:6s} largest r_hat {table['r_hat'].max():.3f}, "
          f"smallest ess of a value {table['ess'].min():.0f} of {CHAINS * settings['num_samples']} draws")  # fmt: skip

# %% [markdown]
# The three agree on the posterior but differ in autocorrelation. Plain data augmentation alternates between the
# utilities and the values, and takes small steps. PX-DA also moves the scale of all utilities, and their level in each
# decision; these moves change no choice and so can be large.


# %%
def autocorrelation(x, lags):
    """Autocorrelation of chains (chain, draw) at each lag, around their common mean."""
    x = np.asarray(x, float) - np.mean(x)
    return [np.mean(x[:, : x.shape[1] - lag] * x[:, lag:]) / np.mean(x**2) for lag in lags]


lags = range(31)
figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
for name, tree in trees.items():
    axes[0].plot(lags, autocorrelation(tree.posterior["v"][:, :, 6].values, lags), marker=".", label=name)
axes[0].axhline(0, color="0.8")
axes[0].set(xlabel="lag (draws)", ylabel="autocorrelation of the seventh value")
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
axes[1].set(xlabel="state", ylabel="value (90 % interval)")
axes[1].legend(frameon=False)
plt.show()

# %% [markdown]
# Rank plots: the ranks of each chain's draws among all draws are uniform if the chains have the same distribution.

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
# This player cares most about holes: her values are (-3, -15, -1) for the height of the stack, its holes and its
# bumpiness. We fit her first hundred placements, and predict the next four hundred.

# %%
truth = (-3.0, -15.0, -1.0)
known, moves = PLACEMENTS
game = tetris.simulate(jax.random.key(3), truth, moves)
train, test = game.decisions.take(slice(0, known)), game.decisions.take(slice(known, None))
print(
    f"legal placements of a piece: {train.legal.sum(1).mean():.0f} on average, {train.legal.sum(1).max()} at most"
)

player = ethogram.NoisyMDP(kappa=2500.0, kind="features")
fit = ethogram.fit(
    jax.random.key(4),
    player,
    train,
    num_warmup=WARMUP,
    num_samples=SAMPLES,
    num_chains=2,
    max_tree_depth=TREE_DEPTH,
    progress_bar=False,
)
values = fit.result.sites["v"]  # by chain and draw
print(ethogram.choices.summarize_choices(player, fit.result.sites, train))

# %% [markdown]
# That was NUTS, since the settings are its own; `"px-da"` can be used in its place. With many options and large values
# the scale of the values is poorly identified, and a sweep of PX-DA changes it little. To compare the samplers, run the
# cells above with `player` and `train`.
#
# Predictions are posterior predictive probabilities of each placement: the mean over draws of its exact probability.
# The choice error is the share of placements that are not the most probable one. The oracle knows the true values but
# not the noise; no model has a smaller expected error.

# %%
probabilities = fit.predict(test)
guess = np.asarray(probabilities).argmax(1)
error = ethogram.choices.choice_error(guess, test)
floor = ethogram.choices.noise_floor(test.features @ np.array(truth), test)
chosen = np.take_along_axis(np.asarray(probabilities), test.choice[:, None], 1)
print(f"choice error: {error:.3f}; expected of the oracle: {floor:.3f}")
print(f"held-out log predictive density: {np.log(chosen).mean():.3f} nats per placement")

# %% tags=["picture"]
figure, axes = plt.subplots(1, 2, figsize=(12, 4), layout="constrained")
plots_choices.value_marginals(values, axes[0], names=train.metadata.feature_names, truth=truth)
plots_choices.reliability(ethogram.choices.calibration(probabilities, test, 8), axes[1])
plt.show()

# %% [markdown]
# Left: marginal posteriors of her values, with the true values. Right: a reliability diagram, observed shares of
# options against predicted probabilities.
#
# Finally, two games with the same pieces and the same noise, one played with her values and one with the posterior
# means; the current piece is coloured where it lands.

# %%
figure, axes = plt.subplots(1, 2, figsize=(6, 6), layout="constrained")
moves = 60
learned = np.asarray(values).mean((0, 1))
for ax, held, title in zip(axes, (truth, tuple(learned)), ("true values", "posterior mean"), strict=True):
    played = tetris.simulate(jax.random.key(9), held, moves)
    tetris.draw_placement(played.boards[-1], played.pieces[-1], played.decisions.choice[-1], ax)
    ax.set_title(f"{title}: move {moves}")
plt.show()
survived = tetris.play(jax.random.key(5), learned, GAMES, MOVES)
print(
    f"of {len(survived)} games of the learned player, {np.mean(survived == MOVES):.0%} lasted all {MOVES} moves"
)

# %% [markdown]
# Record your own game with `ethogram play tetris --out mine.csv`; `ethogram.domains.tetris.load_games("mine.csv")`
# reads its decisions for the model above.
