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
# # Which reward explains behaviour, and what is not identified?
#
# We observe an agent in an environment with known transitions and ask which reward explains its actions. Many rewards
# do. GP-IRL puts a Gaussian-process prior on the reward, assumes a soft-optimal (maximum-entropy) agent, and computes
# the posterior of the reward.

# %%
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram import plots
from ethogram.domains import objectworld, rust_bus, small_mdps
from ethogram.inference.rewards import (
    difference_coverage,
    feature_rewards,
    transfer_reward,
)
from ethogram.models.mdps import expected_value_difference, soft_values
from ethogram.plots import rewards as plots_rewards

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart

# %% tags=["parameters"]
DRAWS = 2000
SIZE = 12
PATHS = 64
SETTINGS = {}
EXPORTED = 200
BUS_STEPS = 200

# %% [markdown]
# ## Three states, two demonstrations: checking the posterior
#
# An MDP small enough to compute the posterior on a grid: three states, each leading to the other two. The agent went
# from the first to the second state, and from the third to the second. With fixed hyper-parameters, natural-gradient
# variational inference and NUTS should agree with the grid.

# %%
world = small_mdps.three_state()
moves = small_mdps.three_state_demonstrations(1, 1)
small = ethogram.GPIRL(world, [[1.0], [2.0], [3.0]], scale_prior=5.0, relevance_prior=1.0)

fit = ethogram.fit(jax.random.key(0), small, moves, progress_bar=False)
nuts = ethogram.fit(
    jax.random.key(2), small, moves, "nuts", num_warmup=DRAWS // 2, num_samples=DRAWS, progress_bar=False
)
variational, sampled = (np.asarray(each.draws(4000).sites["reward"]).reshape(-1, 3) for each in (fit, nuts))

side = np.linspace(-9, 9, 61)
grid = np.stack(np.meshgrid(side, side, side, indexing="ij"), -1).reshape(-1, 3)
gap = np.subtract.outer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
covariance = 5 * np.exp(-0.5 * gap**2 - 0.005 * (gap != 0))
log_prior = -0.5 * np.einsum("gi,ij,gj->g", grid, np.linalg.inv(covariance), grid)
log_policy = np.asarray(soft_values(world, jnp.asarray(grid)).log_policy)
counts = small.counts(moves)
mass = np.exp(log_prior + (log_policy * counts).sum((1, 2)))
mass /= mass.sum()

for name, drawn in (("variational", variational), ("NUTS", sampled)):
    print(f"{name:12s} mean {drawn.mean(0).round(2)}  sd {drawn.std(0).round(2)}")
mean = mass @ grid
print(f"{'grid':12s} mean {mean.round(2)}  sd {np.sqrt(mass @ (grid - mean) ** 2).round(2)}")
print(f"ELBO {fit.result.elbo:.4f} +- {fit.result.elbo_se:.4f}; log evidence by quadrature -1.3577")

# %% [markdown]
# Two demonstrations carry little information: the marginal posterior of each reward is close to the prior. They are
# informative about a *difference*, the second reward minus the first. The level is not identified, since adding a
# constant to all rewards leaves the policy unchanged.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for panel, take, title in (
    (axes[0], lambda r: r[:, 1], "reward of the second state"),
    (axes[1], lambda r: r[:, 1] - r[:, 0], "second reward minus first"),
):
    edges = np.arange(-8.85, 9, 0.6)  # two grid points per bin
    weight = np.histogram(take(grid), edges, weights=mass, density=True)[0]
    panel.stairs(weight, edges, color="black", label="grid")
    for number, (name, drawn) in enumerate((("variational", variational), ("NUTS", sampled))):
        panel.plot(*plots.density_of(take(drawn)), color=plots.series_colour(number), label=name)
    panel.set(title=title, xlabel="reward", ylabel="density", xlim=(-9, 9))
axes[0].legend(frameon=False)
plt.show()

# %% [markdown]
# ## Objectworld: the reward of every cell
#
# A square grid with coloured objects. The reward is -10 within three cells of outer colour 1, unless outer colour 2
# is within two cells: then it is +5; elsewhere it is 0. The features are indicators `distance < k` of the distance to
# each colour; the model does not know the rule.

# %% tags=["picture"]
keys = jax.random.split(jax.random.key(7), 3)
home, away = (objectworld.objectworld(key, SIZE, density=0.1) for key in keys[:2])
data = objectworld.simulate(keys[2], home, PATHS)

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "[0-9]+ features are constant")
    model = ethogram.GPIRL(home.mdp, home.features)
fit = ethogram.fit(jax.random.key(3), model, data, **SETTINGS, progress_bar=False)
found = fit.result
draws = {name: np.asarray(site)[0] for name, site in fit.draws(200).sites.items()}  # of one chain
rewards = np.asarray(feature_rewards(jax.random.key(4), model, draws))  # without the noise of single cells
mean = rewards.mean(0)
visited = np.bincount(np.asarray(data.states).ravel(), minlength=SIZE**2)
print(f"ELBO {found.elbo:.1f} +- {found.elbo_se:.1f}, Laplace's {found.laplace_elbo:.1f}, {found.steps} steps, "
      f"{'converged' if found.converged else 'not converged: ' + found.reason}")  # fmt: skip

figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
objectworld.draw(home, axes[0])
axes[0].set_title("true reward", pad=22)
plots_rewards.reward_map(mean - mean.mean(), SIZE, axes[1], label="centred posterior mean")
objectworld.draw_policy(home, fit.predict().posterior_mean, axes[1])
axes[1].set_title("posterior mean and policy")
plots_rewards.reward_map(
    (rewards - rewards.mean(1, keepdims=True)).std(0),
    SIZE,
    axes[2],
    visited=visited,
    label="standard deviation",
    cmap="magma",
)
axes[2].set_title("posterior sd; rings: demonstrations")
plt.show()

# %% [markdown]
# ### Expected value differences
#
# The expected value difference (EVD) is the value of the optimal policy minus that of the policy that is optimal for
# the estimated reward. We compute it in the training environment and in another one with other objects. The baseline
# is a linear reward fitted by maximum entropy. For the Gaussian process we use the posterior mean as a function of
# the features in both environments, because the noise of single cells is estimated from few visits to each.

# %%
linear = ethogram.fit(jax.random.key(3), model, data, "max_entropy").result
there = transfer_reward(jax.random.key(5), model, draws, away.mdp, away.features)
print("EVD (standard)        train           transfer")
for name, here, other in (
    ("maximum entropy", linear.reward, np.asarray(away.features) @ linear.weights),
    ("Gaussian process", mean, there.reward.mean),
    ("zero reward", np.zeros(SIZE**2), np.zeros(SIZE**2)),
):
    lost = [
        float(expected_value_difference(place.mdp, place.reward, reward))
        for place, reward in ((home, here), (away, other))
    ]
    print(f"{name:18s} {lost[0]:9.2f} {lost[1]:18.2f}")

figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
plots_rewards.relevance_forest(draws["relevance"], axes[0], names=objectworld.feature_names(SIZE))
axes[1].axhline(found.trace[0], color="0.5", linestyle=":", label="Laplace")
axes[1].plot(found.trace, marker=".", label="natural gradient")
axes[1].set(xlabel="evaluation", ylabel="ELBO (nats)", title="ELBO during the fit")
axes[1].legend(frameon=False)
nominal = np.linspace(0.05, 0.95, 19)
axes[2].axline((0, 0), slope=1, color="0.5", linestyle=":")
axes[2].plot(nominal, difference_coverage(rewards, home.reward, nominal), marker=".")
axes[2].set(xlabel="nominal probability", ylabel="coverage", title="coverage of reward differences")
plt.show()

# %% [markdown]
# On the right: coverage of central credible intervals of the reward differences between cells. Coverage is nominal for
# rewards drawn from the prior. This one is a step function with steps of ten and fifteen, so that a curve off the
# diagonal indicates prior misspecification, not a broken sampler.

# %%
coverage = float(difference_coverage(rewards, home.reward))
print(f"coverage of 90 % intervals for differences: {coverage:.0%}")
for name, policy in fit.predict()._asdict().items():
    entropy = np.sum(np.where(policy > 0, policy * np.log(1 / np.maximum(policy, 1e-30)), 0), -1).mean()
    print(f"policy {name:15s} mean entropy {entropy:.2f} nats")

# %% [markdown]
# ### In ArviZ
#
# The exported data have named dims: rewards by state, log likelihood by trajectory. Draws come from the variational
# approximation, so that `az.loo` of them does not rank models: hold out trajectories and refit instead.

# %%
tree = fit.to_arviz(num_draws=EXPORTED, log_likelihood="sequence")
print(tree.posterior["reward"].dims, tree.log_likelihood.sizes)
print(tree.posterior.attrs["caution"])

# %% [markdown]
# ## Bus engine replacement
#
# Harold Zurcher kept or replaced the engines of his buses, month by month; Rust (1987) explained his decisions by a
# maintenance cost that is linear in mileage and a replacement cost. A Gaussian process makes the maintenance cost
# nonparametric. The discount is .9999 per month.

# %%
counts = rust_bus.decision_counts(rust_bus.load(4))
bus = ethogram.fit(
    jax.random.key(8), rust_bus.free_costs(), counts, hyper="point", num_steps=BUS_STEPS, progress_bar=False
)
reward = np.asarray(bus.draws(400).sites["reward"])[0]
seen = np.flatnonzero(counts.sum(1)).max() + 1
cost = (reward[:, :1, 0] - reward[:, :, 0])[:, :seen]
replacing = reward[:, 0, 0] - reward[:, 0, 1]
print(f"replacement cost {replacing.mean():.1f} +- {replacing.std():.1f} (Rust: 10.1)")

mileage, (lower, upper) = 5 * np.arange(seen), np.quantile(cost, [0.05, 0.95], axis=0)
figure, axes = plt.subplots(figsize=(5, 3.5), layout="constrained")
axes.fill_between(mileage, lower, upper, alpha=0.3, linewidth=0, label="90 % interval")
axes.plot(mileage, cost.mean(0), label="posterior mean")
axes.plot(mileage, 0.001 * 2.2930 * np.arange(seen), color="black", linestyle="--", label="Rust's line")
axes.set(xlabel="mileage since replacement (1000 miles)", ylabel="monthly cost relative to a new engine")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# Rust's line lies within the band, and the band is wide: 33 replacements in 4292 months show that old engines cost
# more, but carry little information about the shape of the cost. Only the prior distinguishes the cost at low mileages
# from the replacement cost, since no new engine was ever replaced. A point estimate does not show this.
