"""Data sets with a planted fault, and sound ones, of every posterior system; sizes, units and centres are random.

Each function gives the model that is fitted, and the data, of a kind of fault and a seed.
"""

from __future__ import annotations

import numpy as np

import ethogram
from ethogram.models.mdps import soft_values

__all__ = ["choices", "intents", "rewards", "roles"]


def roles(kind: str, seed: int) -> tuple[ethogram.RoleHMM, ethogram.Trajectories]:
    """Two to four Gaussian roles, one to three features, 3 to 11 sequences of 100 to 600 steps."""
    rng = np.random.default_rng(seed)
    count, features, sequences = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(3, 12))
    steps, stay = int(np.exp(rng.uniform(np.log(100), np.log(600)))), rng.uniform(0.8, 0.97)
    unit = 10 ** rng.uniform(-2, 3)
    origin = rng.normal(size=features) * unit * 10
    mean, sd = rng.normal(size=(count, features)) * 4, np.exp(rng.normal(size=(count, features)) * 0.3)
    each = []
    for _ in range(sequences):
        leaving = np.full(steps, 1 - stay)
        if kind == "a covariate moves switching":
            leaving = leaving * np.exp(1.5 * np.sin(2 * np.pi * np.arange(steps) / 100) - 0.7)
        role = np.cumsum((rng.random(steps) < leaving) * rng.integers(1, count, steps)) % count
        noise = rng.normal(size=(steps, features))
        if kind == "heavy tails":
            noise = rng.standard_t(3, size=noise.shape)
        if kind == "skew":
            noise = rng.standard_exponential(noise.shape) - 1
        values = mean[role] + sd[role] * noise
        if kind == "drift":
            values = values + 2 * np.arange(steps)[:, None] / steps
        if kind == "outliers, 1 %":
            far = rng.random(steps) < 0.01
            values[far] += 25 * rng.normal(size=(far.sum(), features))
        seen = origin + unit * values
        if kind == "a constant feature":
            seen = np.column_stack([seen, np.full(steps, 3.7 * unit)])
        each.append(seen)
    features = each[0].shape[1]
    fitted = {"a role too few": count - 1, "two roles too many": count + 2}.get(kind, count)
    return ethogram.RoleHMM(fitted, ethogram.GaussianEmission(features)), ethogram.Trajectories.from_list(
        each
    )


def choices(kind: str, seed: int) -> tuple[ethogram.NoisyMDP, ethogram.Decisions]:
    """400 to 2000 decisions between two to five options with one to four features, whose utilities vary by 1.3 to 3."""
    rng = np.random.default_rng(seed)
    number = int(np.exp(rng.uniform(np.log(400), np.log(2000))))
    options, features = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    unit, x = 10 ** rng.uniform(-2, 3), rng.normal(size=(number, options, features))
    value = rng.choice([-1, 1], features) * rng.uniform(0.5, 1.0, features)
    value = value / np.linalg.norm(value) * 10 ** rng.uniform(0.1, 0.5)
    utility, noise = x @ value, rng.normal(size=(number, options))
    if kind == "heavy tails":
        noise = rng.standard_cauchy(noise.shape)
    if kind == "drift":
        utility = utility + np.linspace(-1, 1, number)[:, None] * x[..., 0] * value[0]
    if kind == "slots are liked":
        utility = utility + np.linspace(-0.8, 0.8, options)
    if kind == "a missing square":
        utility = utility + 0.5 * x[..., 0] ** 2
    if kind == "features that explain nothing":
        utility = np.zeros_like(utility)
    choice = np.argmax(utility + noise, axis=1)
    if kind == "repeats the last choice":
        for decision in range(1, number):
            again = np.arange(options) == choice[decision - 1]
            choice[decision] = np.argmax(utility[decision] + noise[decision] + again)
    if kind == "lapses":
        lapse = rng.random(number) < 0.1
        choice[lapse] = rng.integers(0, options, lapse.sum())
    if kind == "outliers, 1 %":
        far = rng.random(number) < 0.01
        x[far] += 25 * rng.normal(size=(far.sum(), options, features))
    kappa = (0.01 if kind == "a narrow prior" else 25.0) / unit**2
    seen = unit * (x + 10 * rng.normal(size=features))
    if kind == "a constant feature":  # of the decision, and of no option
        seen = np.concatenate([seen, np.repeat(unit * rng.normal(size=(number, 1, 1)), options, 1)], axis=-1)
    model = ethogram.NoisyMDP(float(kappa), kind="features")
    return model, ethogram.Decisions(seen, np.ones((number, options), bool), choice)


def rewards(kind: str, seed: int) -> tuple[ethogram.GPIRL, ethogram.Trajectories]:
    """20 to 60 walks of 20 to 50 steps in a grid of 16 to 36 cells, with a reward of one to three features."""
    rng = np.random.default_rng(seed)
    side, slip, discount = int(rng.integers(4, 7)), rng.uniform(0.05, 0.2), float(rng.uniform(0.8, 0.92))
    world = ethogram.MDP.dense(_grid(side, slip), discount=discount)
    features = rng.normal(size=(side**2, int(rng.integers(1, 4))))
    weights = rng.normal(size=features.shape[1])
    weights = rng.uniform(1, 2) * weights / np.linalg.norm(weights)
    goals = features @ weights, rng.normal(size=features.shape) @ weights
    first, second = (np.exp(np.asarray(soft_values(world, goal).log_policy, float)) for goal in goals)
    count, length = int(rng.integers(20, 60)), int(rng.integers(20, 50))
    moves = _grid(side, min(3 * slip, 0.6)) if kind == "other transitions" else _grid(side, slip)
    states, actions = np.zeros((2, count, length), int)
    for walk in range(count):
        state, last, goal = int(rng.integers(side**2)), -1, rng.random() < 0.5
        for time in range(length):
            goal = goal ^ (kind == "two goals" and rng.random() < 0.1)
            other = (kind == "two goals" and goal) or (kind == "drift" and walk >= count / 2)
            action = int(_drawn(rng, (second if other else first)[state]))
            if kind == "repeats the last action" and last >= 0 and rng.random() < 0.4:
                action = last
            states[walk, time], actions[walk, time], last = state, action, action
            state = int(_drawn(rng, moves[state, action]))
    if kind == "features that explain nothing":
        features = rng.normal(size=features.shape)
    if kind == "a constant feature":
        features = np.column_stack([features, np.ones(side**2)])
    if kind == "a wrong discount":
        world = ethogram.MDP.dense(_grid(side, slip), discount=0.4)
    data = ethogram.Trajectories.from_list(states=list(states), actions=list(actions))
    return ethogram.GPIRL(world, features), data


def _grid(side: int, slip: float) -> np.ndarray:
    """Transitions (state, action, next_state) of four moves, each of which goes another way with probability `slip`."""
    row, column = np.divmod(np.arange(side**2), side)
    ends = [
        np.clip(row + down, 0, side - 1) * side + np.clip(column + right, 0, side - 1)
        for down, right in ((0, 1), (1, 0), (0, -1), (-1, 0))
    ]
    moves = np.eye(side**2)[np.stack(ends, axis=1)]
    return (1 - 4 * slip / 3) * moves + slip / 3 * moves.sum(1, keepdims=True)


def _drawn(rng: np.random.Generator, row: np.ndarray) -> int:
    return int(min(np.searchsorted(np.cumsum(row), rng.random()), len(row) - 1))


def intents(kind: str, seed: int) -> tuple[ethogram.AgentMarkov, ethogram.Trajectories]:
    """Two or three intents in three to six states, 10 to 30 sequences of 60 to 200 steps."""
    rng = np.random.default_rng(seed)
    num_states, num_actions, count = int(rng.integers(3, 7)), int(rng.integers(3, 6)), int(rng.integers(2, 4))
    sequences, stay = int(rng.integers(10, 30)), rng.uniform(0.9, 0.97)
    length = int(np.exp(rng.uniform(np.log(60), np.log(200))))
    policy = rng.dirichlet(np.full(num_actions, 0.15), (count, num_states)) * 0.96 + 0.04 / num_actions
    moves = rng.dirichlet(np.full(num_states, 0.5), (num_states, num_actions))
    states, actions = np.zeros((2, sequences, length), int)
    for sequence in range(sequences):
        state, intent, last = int(rng.integers(num_states)), int(rng.integers(count)), -1
        for time in range(length):
            leaving = 1 - stay
            if kind == "a covariate moves switching":
                leaving *= np.exp(2 * np.sin(2 * np.pi * time / 60) - 1)
            if rng.random() < leaving:
                intent = (intent + int(rng.integers(1, count))) % count
            action = _drawn(rng, policy[intent, state])
            if kind == "a circle of actions" and rng.random() < 0.8:
                action = (last + 1) % num_actions
            if kind == "repeats the last action" and last >= 0 and rng.random() < 0.5:
                action = last
            states[sequence, time], actions[sequence, time], last = state, action, action
            state = _drawn(rng, moves[state, action])
    data = ethogram.Trajectories.from_list(states=list(states), actions=list(actions))
    truncation = count - 1 if kind == "an intent too few" else 6
    return ethogram.AgentMarkov(num_states, num_actions, truncation), data
