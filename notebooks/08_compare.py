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
# # Does the answer depend on the algorithm?
#
# A posterior is what a model and data imply; what an algorithm returns is an approximation. Here every system is fitted
# by two algorithms: the same numbers are reassuring, and different ones say which of them to believe.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import ethogram
from ethogram.domains import diagnosis, objectworld

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart
plt.rcParams["figure.dpi"] = 90

# %% tags=["parameters"]
WARMUP = 500
SAMPLES = 1000
TREE_DEPTH = 10
TRUNCATIONS = (1, 2, 4)
PX_DA_SAMPLES = 4000
REWARD_SETTINGS = {}
SECONDS = 2.0

# %%
SAMPLING = {
    "num_warmup": WARMUP,
    "num_samples": SAMPLES,
    "num_chains": 2,
    "progress_bar": False,
}

# %% [markdown]
# ## Roles: coordinate ascent and NUTS
#
# Two roles that overlap. Coordinate ascent takes roles and parameters as independent, so that its intervals are too
# narrow where roles are uncertain; NUTS sums the roles out.

# %% tags=["picture"]
random = np.random.default_rng(3)
speeds = []
for _ in range(12):
    role = np.cumsum(random.random(25) < 0.15) % 2  # foraging, or resting
    speeds.append(np.where(role == 0, random.normal(1.0, 1.4, 25), random.normal(0.0, 0.4, 25)))
recorded = ethogram.Trajectories.from_list(
    speeds, metadata=ethogram.Metadata(feature_names=["speed"], feature_units=["m/s"])
)
train, new = recorded.split(jax.random.key(1), by="sequence", test_fraction=0.25)
model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1, mean=0.0, strength=0.2))
roles = {
    "cavi": ethogram.fit(jax.random.key(2), model, train, progress_bar=False),
    "nuts": ethogram.fit(jax.random.key(2), model, train, "nuts", max_tree_depth=TREE_DEPTH, **SAMPLING),
}
found = ethogram.compare(roles, new)
print(found)
found.plot()
plt.show()

# %% [markdown]
# ## Intents: how many?
#
# Models of different size do not have the same parameters: they compare by the density of data that they have not seen.

# %%
states = [random.integers(0, 4, 40) for _ in range(12)]
preferred = np.array([[0, 0, 1, 1], [1, 1, 0, 0]])  # what each of two intents does in a state
actions = []
for trace in states:
    intent = np.cumsum(random.random(len(trace)) < 0.1) % 2
    actions.append(
        np.where(random.random(len(trace)) < 0.9, preferred[intent, trace], random.integers(0, 2, 40))
    )
traces = ethogram.Trajectories.from_list(states=states, actions=actions)
train, new = traces.split(jax.random.key(4), by="sequence", test_fraction=0.25)
intents = {
    f"up to {count}": ethogram.fit(
        jax.random.key(5), ethogram.AgentMarkov(4, 2, truncation=count), train, progress_bar=False
    )
    for count in TRUNCATIONS
}
found = ethogram.compare(intents, new)
print(found)
found.plot()
plt.show()

# %% [markdown]
# ## Choices: NUTS and data augmentation
#
# Both sample the same posterior. PX-DA draws the utilities of every decision too, which costs little for each draw, but
# leaves them correlated.

# %%
features = random.normal(size=(120, 3, 2)).astype(np.float32)
chosen = (features @ [1.0, -1.0] + random.normal(size=(120, 3))).argmax(1)
decisions = ethogram.Decisions(features, np.ones((120, 3), bool), chosen)
values = ethogram.NoisyMDP(kind="features")
choices = {
    "nuts": ethogram.fit(jax.random.key(6), values, decisions, "nuts", **SAMPLING),
    "px-da": ethogram.fit(
        jax.random.key(6), values, decisions, "px-da", **{**SAMPLING, "num_samples": PX_DA_SAMPLES}
    ),
}
found = ethogram.compare(choices)
print(found)
found.plot()
plt.show()

# %% [markdown]
# ## Rewards: variational inference and Laplace's approximation
#
# Laplace's approximation is a Gaussian at the mode with its curvature, and holds the hyper-parameters. Variational
# inference integrates over them, with a Gaussian at each of a few nodes. They disagree in most estimates: the better
# score on paths that neither has seen decides.

# %%
world = objectworld.objectworld(jax.random.key(7), 4)
paths, fresh = (objectworld.simulate(jax.random.key(seed), world, 16) for seed in (8, 11))
features = world.features[:, world.features.std(axis=0) > 0]  # distances to objects of colours that there are
explained = ethogram.GPIRL(world.mdp, features)
rewards = {
    "natural_gradient": ethogram.fit(
        jax.random.key(9), explained, paths, progress_bar=False, **REWARD_SETTINGS
    ),
    "laplace": ethogram.fit(jax.random.key(9), explained, paths, "laplace", progress_bar=False),
}
found = ethogram.compare(rewards, fresh)
print(found)
found.plot()
plt.show()

# %% [markdown]
# ## Queries: search and greedy choice
#
# A marginal MAP query has one answer, and methods compare by its probability, and by whether a bound proves it.

# %%
query = diagnosis.heating_query()
answers = {
    name: ethogram.fit(jax.random.key(10), query, method=name, time_limit=SECONDS)
    for name in ("hybrid", "ags", "sequential")
}
found = ethogram.compare(answers)
print(found)
found.plot()
plt.show()
