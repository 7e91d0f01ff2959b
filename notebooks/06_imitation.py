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
# # Can a team be learned from demonstrations that do not say who does what?
#
# Four predators surround a prey. Every predator of a demonstration has a role, the side from which it comes, but the
# demonstrations are shuffled: the first predator of one game is any of the four in the next. Whoever trains one policy
# for each index mixes four policies in each of them. Coordinated imitation (Le et al. 2017) learns the roles, and one
# policy for each role, together.
#
# The policies are random forests of scikit-learn: `pip install "ethogram[imitation]"`.

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import RandomForestClassifier

import ethogram
from ethogram import plots
from ethogram.domains import predator_prey
from ethogram.domains.predator_prey import PredatorPreyExperts, PredatorPreyWorld
from ethogram.roles import Demonstrations, relabel

plt.style.use("petroff10")  # colours that readers with a colour vision deficiency tell apart

# %% tags=["parameters"]
GAMES = 200
ROUNDS = 4
EVALUATION_GAMES = 100
SEEDS = 5

# %% [markdown]
# ## The demonstrations
#
# Games of experts on a board whose edges join. Each colour is a role: the predator of that colour heads for the cell of
# that colour beside the prey. `data` holds cells relative to the prey and moves of each predator, and no role;
# `games.roles` is kept for the experts and for the figures.

# %%
data, games = predator_prey.simulate(jax.random.key(0), GAMES)
lengths = games.lengths
print(f"{GAMES} games of {lengths.min()} to {lengths.max()} steps, mean {lengths.mean():.1f};")
print(f"{games.captured.mean():.1%} end with a capture")

number = int(np.argmin(np.abs(lengths - lengths.mean())))  # a game of mean length
end = int(lengths[number])
true = games.roles.reshape(-1, 4)[number]
fig, axes = plt.subplots(1, 4, figsize=(11, 3.1), layout="constrained")
for ax, step in zip(axes, [0, end // 3, 2 * end // 3, end], strict=True):
    predator_prey.draw(games.positions[number, step], roles=true, ax=ax)
    ax.set_title(f"step {step} of {end}")
plt.show()

# %% [markdown]
# ## Learning roles and policies
#
# The role model has four roles that are distinct in each game, and a categorical emission over 245 symbols, the cell
# relative to the prey and the move. A round of `imitate` assigns the predators to roles, trains a forest for each role,
# lets all four play, half of the games from first states of demonstrations and half from fresh ones, asks the experts
# what they would have done there (DAgger), and fits the role model to these roll-outs. It ends with fresh games, in
# which nobody knows a role: policies are given to predators at random.
#
# `ethogram.fit` calls it as the method `"imitate"` of a role model. The baseline without structure has no role model,
# and calls `imitate` itself with `roles="shuffled"`: the same demonstrations, experts, rounds and forests, with an
# arbitrary map of predators to policies in each demonstration.

# %%
world = PredatorPreyWorld()
settings = {
    "rounds": ROUNDS,
    "horizon": 50,
    "evaluation_games": EVALUATION_GAMES,
    "expert": PredatorPreyExperts(games.roles),
    "progress_bar": False,
}
model = ethogram.RoleHMM(4, ethogram.CategoricalEmission(245), exclusive="per_sequence")
learned, shuffled = [], []
for seed in range(SEEDS):
    key, forest = jax.random.key(seed), RandomForestClassifier(20)
    fit = ethogram.fit(key, model, data, "imitate", policy=forest, world=world, **settings)
    learned.append(fit.result)
    shuffled.append(ethogram.imitate(key, None, forest, world, data, roles="shuffled", **settings))

# %% tags=["picture"]
fig, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
results = {"learned roles": learned, "without structure": shuffled}
plots.failure_curves(results, axes[0])
for name, found in results.items():
    steps = np.array([one.steps for one in found])
    (line,) = axes[1].plot(np.arange(1, steps.shape[1] + 1), steps.mean(0), marker=".", label=name)
    axes[1].fill_between(line.get_xdata(), steps.min(0), steps.max(0), color=line.get_color(), alpha=0.2)
axes[1].set(xlabel="round", ylabel="mean steps", title="length of fresh games; bands: all fits")
fig.suptitle(f"Fresh games by round; fits: {SEEDS}", fontsize=11)
plt.show()
for name, found in results.items():
    print(
        f"{name:17s} last round: {np.mean([one.failure[-1] for one in found]):5.1%} of fresh games failed, "
        f"{np.mean([one.steps[-1] for one in found]):.1f} steps"
    )

# %% [markdown]
# Without structure every policy learns from all four roles, and more rounds do not help: the experts correct it
# towards four different goals at once.
#
# ## Were the roles found?
#
# Labels of roles are arbitrary, so we match them with the true ones.

# %%
one, other = learned[0], shuffled[0]
labels = ethogram.align_states(games.roles, one.role, num_states=4)
print(f"predators in their true role: {1 - labels.hamming:.1%}")
print(f"smallest probability of an assigned role: {one.role_probability.max(axis=1).min():.3f}")

fig, ax = plt.subplots(figsize=(4.6, 3.8), layout="constrained")
plots.policy_roles(one.policy_role[-1], ax)
ax.set_title("roles inferred in the roll-outs of each policy")
plt.show()

# %% [markdown]
# The diagonal says that every policy plays one role. It cannot say that this is a *true* role, since the role model of
# the last round was fitted to what the policies did; the comparison above can.
#
# ## A world of your own
#
# `imitate` needs four methods, each for many games at once. Two foragers on a ring of six cells have to hold cells 0
# and 3, and each of them heads for one of the two:


# %%
class Ring:
    num_agents, num_actions = 2, 3

    def reset(self, rng, num_games):
        return rng.integers(6, size=(num_games, 2))

    def step(self, rng, state, actions):
        after = (state + np.array([0, -1, 1])[actions]) % 6
        return after, (np.sort(after) == [0, 3]).all(axis=1)

    def observe(self, roles, state):  # the own cell, then that of the other forager
        return np.stack([state, state[:, ::-1]], axis=-1)

    def role_features(self, state, actions):  # the role model sees symbols of cell and move
        return (3 * state + actions)[..., None]


# %% [markdown]
# Demonstrations of four steps, with hidden roles, and experts who can be asked anywhere:

# %%
rng, ring = np.random.default_rng(0), Ring()
goals = rng.permuted(np.tile([0, 3], (40, 1)), axis=1)


def expert(state, game):
    away = (goals[game] - state) % 6
    return np.where(away == 0, 0, np.where(away > 2, 1, 2))


state, everyone, states, actions = ring.reset(rng, 40), np.arange(40), [], []
for _ in range(4):
    states.append(state)
    actions.append(expert(state, everyone))
    state, _ = ring.step(rng, state, actions[-1])
foragers = Demonstrations(np.stack(states, axis=1), np.stack(actions, axis=1), np.full(40, 4))
pair = ethogram.RoleHMM(2, ethogram.CategoricalEmission(18), exclusive="per_sequence")
call = {"expert": expert, "rounds": 2, "horizon": 8, "progress_bar": False}
for name, prior in {"learned": pair, "shuffled": None}.items():
    found = ethogram.imitate(
        jax.random.key(0), prior, RandomForestClassifier(20), ring, foragers, roles=name, **call
    )
    print(f"{name:8s} roles: {found.failure[-1]:.0%} of fresh games failed, {found.steps[-1]:.1f} steps")

# %% [markdown]
# ## Worlds and recordings of other libraries
#
# Environments of PettingZoo need none of these methods. `PettingZooWorld` takes a function that makes one:
#
# ```python
# from mpe2 import simple_tag_v3
# from ethogram.roles import PettingZooWorld
#
# world = PettingZooWorld(
#     lambda: simple_tag_v3.parallel_env(max_cycles=25),
#     max_steps=25,
#     agents=["adversary_0", "adversary_1", "adversary_2"],
#     others=lambda rng, observations: {"agent_0": int(rng.integers(5))},
#     goal=lambda observations, rewards: bool(rewards.max() > 0),
# )
# data = world.demonstrate(range(100), expert, horizon=25)  # one demonstration from each seed
# ```
#
# Recordings of the library imitation become demonstrations, and roll-outs become its trajectories:
#
# ```python
# from ethogram.roles import team_from_episodes, team_to_episodes
#
# data = team_from_episodes([{"adversary_0": episode, ...}, ...], group=seeds)
# episodes = team_to_episodes(result.played, last="drop")
# ```
#
# A long run takes `checkpoint="run.npz"`, which is written after every round; the same call resumes.
#
# ## The answer
#
# One start, two teams: the first fresh start from which the team without structure has not caught the prey after 50
# steps, and what the team with learned roles does there. Colours are roles, matched with the true ones; without
# structure there are none.


# %%
def play(policies, held, start, seed):
    """Cells by step, until the prey is caught or for 50 steps; `held` is the policy of each predator."""
    rng, cells, frames, caught = np.random.default_rng(seed), start[None], [start], [False]
    while not caught[0] and len(frames) <= 50:
        seen = world.observe(held[None], cells)[0]
        moves = np.array([policies[role].predict(seen[[agent]])[0] for agent, role in enumerate(held)])
        cells, caught = world.step(rng, cells, moves[None])
        frames.append(cells[0])
    return frames, bool(caught[0])


starts, held = world.reset(np.random.default_rng(7), 30), np.array([2, 0, 3, 1])
for seed, start in enumerate(starts):
    before, caught_before = play(other.policies, held, start, seed)
    if not caught_before:
        break
after, caught_after = play(one.policies, held, start, seed)
colours = relabel(held, labels.permutation)

fig, axes = plt.subplots(2, 4, figsize=(11, 6.2), layout="constrained")
teams = {
    "without structure": (before, caught_before, None),
    "learned roles": (after, caught_after, colours),
}
for row, (name, (frames, caught, roles)) in zip(axes, teams.items(), strict=True):
    last = len(frames) - 1
    for ax, step in zip(row, [0, last // 3, 2 * last // 3, last], strict=True):
        predator_prey.draw(frames[step], roles=roles, ax=ax)
        ax.set_title(f"step {step}" + (", caught" if caught and step == last else ""))
    row[0].set_ylabel(name)
plt.show()
