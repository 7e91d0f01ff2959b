"""A parallel environment by duck type: two agents on a line, with hidden chance drawn from the seed."""

from __future__ import annotations

import numpy as np


class Discrete:
    def __init__(self, n, start=0):
        self.n, self.start = n, start


class Box:
    def __init__(self, low, high, shape):
        self.low, self.high, self.shape = (
            np.full(shape, low, np.float32),
            np.full(shape, high, np.float32),
            shape,
        )


class Line:
    """Cells 0 to 8; agents step left, stay or right, and slip with a probability; a prey stands still or moves.

    The goal, that the agents hold both neighbour cells of the prey, terminates the game; 20 steps truncate it.
    """

    made = 0

    def __init__(self, slip=0.3, start=0, continuous=False, seeded=True):
        Line.made += 1
        self.slip, self.start, self.continuous, self.seeded = slip, start, continuous, seeded
        self.possible_agents = ["left", "right", "prey"]
        self.agents = []

    def action_space(self, agent):
        return Box(-1.0, 1.0, (1,)) if self.continuous else Discrete(3, self.start)

    def reset(self, seed=None, options=None):
        self.random = np.random.default_rng(seed if self.seeded else None)
        self.cells = self.random.integers(1, 8, size=3)
        self.agents, self.time = list(self.possible_agents), 0
        return self.observations(), {}

    def observations(self):
        return {
            name: np.array([self.cells[i], *np.delete(self.cells, i)], np.float32)
            for i, name in enumerate(self.possible_agents)
        }

    def step(self, actions):
        moves = [float(np.ravel(actions[name])[0]) for name in self.possible_agents]
        moves = np.array(moves if self.continuous else [move - self.start - 1 for move in moves])
        moves[self.random.random(3) < self.slip] = 0
        self.cells = np.clip(self.cells + np.round(moves).astype(int), 0, 8)
        self.time += 1
        done = {self.cells[0], self.cells[1]} == {self.cells[2] - 1, self.cells[2] + 1}
        over = not done and self.time >= 20
        names, self.agents = self.agents, ([] if done or over else self.agents)
        return self.observations(), *({n: v for n in names} for v in (float(done), done, over, {}))


def still(rng, observations):
    return {"prey": 1}


def moving(rng, observations):
    return {"prey": int(rng.integers(3))}


class Experts:
    """Each agent heads for its side of the prey, by roles (game, agent): 0 below, 1 above."""

    def __init__(self, roles):
        self.roles = roles

    def __call__(self, state, game):
        own, prey = state.observations[:, :, 0], state.observations[:, :, 2]
        return np.sign(prey + 2 * self.roles[game] - 1 - own).astype(int) + 1
