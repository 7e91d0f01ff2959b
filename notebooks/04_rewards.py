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
# # What does it want, and what can we not know?
#
# We see somebody move through a world whose rules we know, and ask which reward would make those moves sensible. Many
# rewards would. A Gaussian process says which of them are plausible, and how far apart they still are after the moves
# were seen; soft values stand between a reward and the moves that it leads to.

# %%
import os
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message=r"\s*ArviZ is undergoing a major refactor")
    import arviz as az

from numpyro.infer import MCMC, NUTS

import ethogram
from ethogram import plots_rewards
from ethogram.domains import objectworld, rust_bus, toy_mdps
from ethogram.inference.linear_reward import fit_linear_reward
from ethogram.inference.reward_predictions import difference_coverage, policies, predict_reward, transfer
from ethogram.models.soft_values import soft_values
from ethogram.models.value_difference import expected_value_difference

QUICK = os.environ.get("ETHOGRAM_QUICK") == "1"

# %% [markdown]
# ## Three states, two moves: what a posterior is
#
# A world small enough to know the answer: three states, each leading to the two others. Somebody went from the first to
# the second, and from the third to the second. With known hyper-parameters the posterior of the three rewards is an
# integral that a grid can do; natural-gradient variational inference and NUTS should agree with it.

# %%
world = toy_mdps.three_state()
moves = toy_mdps.three_state_demonstrations(1, 1)
small = ethogram.GPIRL(world, [[1.0], [2.0], [3.0]], scale_prior=5.0, relevance_prior=1.0)

fit = ethogram.fit_reward(jax.random.key(0), small, moves, progress_bar=False)
variational = np.asarray(fit.posterior.sample(jax.random.key(1), 4000)["reward"])

mcmc = MCMC(
    NUTS(small),
    num_warmup=300 if QUICK else 1000,
    num_samples=500 if QUICK else 2000,
    num_chains=4,
    chain_method="vectorized",
    progress_bar=False,
)
mcmc.run(jax.random.key(2), moves)
sampled = np.asarray(mcmc.get_samples()["reward"])

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
print(f"bound {fit.elbo:.4f} +- {fit.elbo_se:.4f}; log evidence by quadrature -1.3577")

# %% [markdown]
# Two moves do not say much: each reward alone is about as open as before. What they say is in a *difference*, of the
# second state over the first. The level is not learned at all, since adding a number to all rewards changes no move.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
for panel, take, title in (
    (axes[0], lambda r: r[:, 1], "reward of the second state"),
    (axes[1], lambda r: r[:, 1] - r[:, 0], "reward of the second less that of the first"),
):
    edges = np.arange(-8.85, 9, 0.6)  # two places of the grid a bin
    weight = np.histogram(take(grid), edges, weights=mass, density=True)[0]
    panel.stairs(weight, edges, color="black", label="grid")
    for number, (name, drawn) in enumerate((("variational", variational), ("NUTS", sampled))):
        panel.hist(take(drawn), edges, density=True, histtype="step", color=f"C{number}", label=name)
    panel.set(title=title, xlabel="reward")
axes[0].legend(frameon=False)
plt.show()

# %% [markdown]
# ## An objectworld: a map of what it wants
#
# A square of cells with coloured objects. Being within three cells of an object of outer colour 1 costs ten, unless one
# of outer colour 2 is within two: then it pays five. The model is told distances, as bits `distance < k`, and not the
# rule.

# %%
size, paths = (8, 32) if QUICK else (12, 64)
keys = jax.random.split(jax.random.key(7), 3)
home, away = (objectworld.objectworld(key, size, density=0.1) for key in keys[:2])
data = objectworld.simulate(keys[2], home, paths)

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "[0-9]+ features are the same everywhere")
    model = ethogram.GPIRL(home.mdp, home.features)
fit = ethogram.fit_reward(jax.random.key(3), model, data, num_steps=20 if QUICK else 60, progress_bar=False)
draws = {name: np.asarray(x) for name, x in fit.posterior.sample(jax.random.key(4), 200).items()}
mean = draws["reward"].mean(0)
visited = np.bincount(np.asarray(data.states).ravel(), minlength=size**2)
print(f"bound {fit.elbo:.1f} +- {fit.elbo_se:.1f}, Laplace's {fit.laplace_elbo:.1f}, {fit.steps} steps")

figure, axes = plt.subplots(1, 3, figsize=(15, 4.4), layout="constrained")
objectworld.draw(home, axes[0])
axes[0].set_title("the true reward", pad=22)
plots_rewards.reward_map(mean - mean.mean(), size, axes[1], label="posterior mean, less its mean")
objectworld.draw_policy(home, draws["policy"].mean(0), axes[1])
axes[1].set_title("what was learned, and moves")
plots_rewards.reward_map(
    draws["centred_reward"].std(0), size, axes[2], visited=visited, label="standard deviation", cmap="magma"
)
axes[2].set_title("how unsure; rings: demonstrations")
plt.show()

# %% [markdown]
# ### What is lost by acting on it
#
# Rewards are compared by what they are good for: the value of the best policy, less that of the policy that is best for
# what was learned; here, and in another world with other objects. A linear reward learned by maximum entropy is what
# one would do without the Gaussian process. Of its posterior we take the mean as a function of features, at home as
# elsewhere: what a cell has of its own, the noise of the kernel, is learned from the few moves made there.

# %%
linear = fit_linear_reward(home.mdp, home.features, data)
there = transfer(jax.random.key(5), model, draws, away.mdp, away.features)
of_features = predict_reward(jax.random.key(5), model, draws, home.features).mean
print("lost (standard)      at home   in another world")
for name, here, other in (
    ("maximum entropy", linear.reward, np.asarray(away.features) @ linear.weights),
    ("Gaussian process", of_features, there.reward.mean),
    ("nothing learned", np.zeros(size**2), np.zeros(size**2)),
):
    lost = [
        float(expected_value_difference(place.mdp, place.reward, reward))
        for place, reward in ((home, here), (away, other))
    ]
    print(f"{name:18s} {lost[0]:9.2f} {lost[1]:18.2f}")

figure, axes = plt.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
plots_rewards.relevance_forest(draws["relevance"], axes[0], names=objectworld.feature_names(size))
plots_rewards.learning_curve(fit.trace, axes[1])
plots_rewards.coverage_curve(draws["reward"], home.reward, axes[2])
axes[2].set_title("differences of rewards", fontsize=10)
plt.show()

# %% [markdown]
# On the right: how many of the differences between cells lie in intervals that should hold that many. The promise is
# for rewards drawn from the prior. This one was made by hand, with steps of ten and fifteen, so a curve off the
# diagonal is no broken sampler but a prior that did not expect such a world.

# %%
coverage = float(difference_coverage(draws["reward"], home.reward))
print(f"90 % intervals of differences hold {coverage:.0%}")
three = policies(home.mdp, draws["reward"])
for name, policy in three._asdict().items():
    entropy = np.sum(np.where(policy > 0, policy * np.log(1 / np.maximum(policy, 1e-30)), 0), -1).mean()
    print(f"policy {name:15s} mean entropy {entropy:.2f} nats")

# %% [markdown]
# ### In ArviZ
#
# Everything is there under names: rewards by state, log likelihood by trajectory. Leaving one path out is a line, and
# ArviZ says how far to trust it: with a reward a cell and few paths, a path weighs so much that the importance weights
# of many have no finite variance (Pareto k above 0.7). Then the honest way is to hold paths back and fit anew.

# %%
tree = ethogram.to_arviz(fit, data, num_draws=100 if QUICK else 200, key=jax.random.key(6))
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", ".*Pareto.*")
    print(az.loo(tree))

# %% [markdown]
# ## An engine that wears out
#
# Harold Zurcher kept or replaced the engines of his buses, month by month; Rust explained that by a cost of running
# that is a line in mileage and a cost of replacing. With a Gaussian process the cost of running may have any shape.
# The discount is .9999: what matters in a month is some hundred months ahead.

# %%
counts = rust_bus.decision_counts(rust_bus.load(4))
bus = ethogram.fit_reward(
    jax.random.key(8),
    rust_bus.free_costs(),
    counts,
    hyper="point",
    num_steps=8 if QUICK else 100,
    progress_bar=False,
)
reward = np.asarray(bus.posterior.sample(jax.random.key(9), 400)["reward"])
seen = np.flatnonzero(counts.sum(1)).max() + 1
cost = (reward[:, :1, 0] - reward[:, :, 0])[:, :seen]
replacing = reward[:, 0, 0] - reward[:, 0, 1]
print(f"replacing costs {replacing.mean():.1f} +- {replacing.std():.1f} (Rust: 10.1)")

axes = plots_rewards.reward_band(
    5 * np.arange(seen), cost, truth=0.001 * 2.2930 * np.arange(seen), truth_label="Rust's line", colour="C3"
)
axes.set(xlabel="miles since the last engine, 1000", ylabel="cost of a month above a new engine's")
plt.show()

# %% [markdown]
# The line lies within the band, and the band is wide: 33 replacements in 4292 months say that old engines cost more,
# and not much about the shape. What low mileages cost and what replacing costs are told apart by the prior alone,
# since no new engine was ever replaced. That is what a point estimate does not say.
