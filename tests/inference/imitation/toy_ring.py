"""A ring of six cells, two agents, and policies that are tables: small enough to know what must come out."""

from __future__ import annotations

import dataclasses

import numpy as np

from ethogram.inference.imitation import Demonstrations, sequences_of_games
from ethogram.models.data.trajectories import Trajectories

CELLS, MOVES = 6, np.array([0, -1, 1])
TARGETS = np.array([0, 3])
NUM_SYMBOLS = CELLS * len(MOVES)


def expert_move(role, cell):
    """The move to the target of a role, the short way round; to the left where both are as long."""
    away = (TARGETS[role] - cell) % CELLS
    return np.where(away == 0, 0, np.where(away >= CELLS // 2, 1, 2))


@dataclasses.dataclass(frozen=True)
class Ring:
    """Agents may share a cell; the goal is that both targets are held. State: cells (game, agent)."""

    num_agents = 2
    num_actions = 3

    def reset(self, rng, num_games):
        return rng.integers(CELLS, size=(num_games, 2))

    def step(self, rng, state, actions):
        after = (state + MOVES[actions]) % CELLS
        return after, held(after)

    def observe(self, roles, state):
        return np.stack([state, state[:, ::-1]], axis=-1)

    def role_features(self, state, actions):
        return (len(MOVES) * state + actions)[..., None]

    def demonstrations(self, data):
        sequences = sequences_of_games(data, 2)
        states, actions = (np.asarray(x)[sequences].swapaxes(1, 2) for x in (data.states, data.actions))
        return Demonstrations(np.maximum(states, 0), actions, np.asarray(data.lengths)[sequences[:, 0]])


def held(cells):
    """Whether both targets are held in each game."""
    return np.array([set(row) == set(TARGETS) for row in np.asarray(cells).tolist()])


def trajectories(states, actions, lengths):
    """One sequence an agent, symbols of cell and move as observations."""
    rows = [
        (states[game, :length, agent], actions[game, :length, agent])
        for game, length in enumerate(lengths)
        for agent in range(2)
    ]
    num_games = len(lengths)
    return Trajectories.from_list(
        [len(MOVES) * cell + move for cell, move in rows],
        states=[cell for cell, _ in rows],
        actions=[move for _, move in rows],
        agent=np.tile([0, 1], num_games),
        group=np.repeat(np.arange(num_games), 2),
    )


def play_experts(start, roles, horizon=8):
    """Cells, moves and lengths of the experts' games, one game after another."""
    num_games = len(start)
    states, actions = np.zeros((num_games, horizon, 2), int), np.zeros((num_games, horizon, 2), int)
    lengths = np.zeros(num_games, int)
    for game in range(num_games):
        cells = start[game].copy()
        for time in range(horizon):
            moves = expert_move(roles[game], cells)
            states[game, time], actions[game, time] = cells, moves
            cells = (cells + MOVES[moves]) % CELLS
            lengths[game] = time + 1
            if set(cells.tolist()) == set(TARGETS.tolist()):
                break
    return states, actions, lengths


def demonstrations(num_games=40, seed=0, horizon=8):
    """Experts' games from random cells with random roles: trajectories, roles (game, agent), and the games."""
    rng = np.random.default_rng(seed)
    start = rng.integers(CELLS, size=(num_games, 2))
    roles = rng.permuted(np.broadcast_to([0, 1], (num_games, 2)), axis=1)
    games = play_experts(start, roles, horizon)
    return trajectories(*games), roles, games


class RingExperts:
    """The demonstrators of the games, who remember where they were asked."""

    def __init__(self, roles):
        self.roles, self.asked = roles, []

    def __call__(self, state, game):
        self.asked.append((state, game))
        return expert_move(self.roles[game], state)


class Majority:
    """Weighted majority of the moves seen at each value of the first `num_features` features; 0 where none."""

    def __init__(self, num_features=1):
        self.num_features = num_features

    def fit(self, X, y, sample_weight):
        self.X, self.y, self.weight, self.table = X, y, sample_weight, {}
        for features, move, weight in zip(X[:, : self.num_features].tolist(), y, sample_weight, strict=True):
            self.table.setdefault(tuple(features), np.zeros(3))[move] += weight

    def predict(self, X):
        nothing = np.array([1.0, 0, 0])
        rows = X[:, : self.num_features].tolist()
        return np.array([self.table.get(tuple(features), nothing).argmax() for features in rows])
