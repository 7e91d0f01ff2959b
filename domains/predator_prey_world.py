"""Predator and prey as a world for `ethogram.imitate`: all games of a step at once, and the experts to be asked.

Rules and cells are those of `ethogram.domains.predator_prey`. A state is the cells (game, agent, 2) of all agents.
Demonstrations have cells relative to the prey only; the board has no edge, so they are read with the prey at
(0, 0).
"""

from __future__ import annotations

import dataclasses

import numpy as np
from jaxtyping import Bool, Float, Int

from ethogram.domains.predator_prey import (
    MOVES,
    NUM_PREDATORS,
    PREY,
    SLOTS,
    check_board,
    expert_policies,
    prey_moves,
)
from ethogram.inference.imitation import Demonstrations, sequences_of_games
from ethogram.models.arguments import read_array
from ethogram.models.data.trajectories import Trajectories

__all__ = ["PredatorPreyExperts", "PredatorPreyWorld"]

Cells = Int[np.ndarray, "game agent 2"]


@dataclasses.dataclass(frozen=True)
class PredatorPreyWorld:
    """Games of four predators, which policies play, and a prey.

    Parameters
    ----------
    size : rows and columns of the board, at least 3.
    prey_stay : probability that the prey stays.
    """

    size: int = 7
    prey_stay: float = 0.2

    num_agents = NUM_PREDATORS
    num_actions = len(MOVES)

    def __post_init__(self):
        check_board(self.size, self.prey_stay)

    def reset(self, rng: np.random.Generator, num_games: int) -> Cells:
        """Distinct uniform cells in each game."""
        cells = np.broadcast_to(np.arange(self.size**2), (num_games, self.size**2))
        chosen = rng.permuted(cells, axis=1)[:, : NUM_PREDATORS + 1]
        return np.stack(np.divmod(chosen, self.size), axis=-1)

    def step(
        self, rng: np.random.Generator, state: Cells, actions: Int[np.ndarray, "game predator"]
    ) -> tuple[Cells, Bool[np.ndarray, "game"]]:
        """Cells after all moves, which are carried out in a random order, and whether the prey is caught."""
        num_games = len(state)
        prey = rng.choice(len(MOVES), (num_games, 1), p=prey_moves(self.prey_stay))
        agents = np.broadcast_to(np.arange(NUM_PREDATORS + 1), (num_games, NUM_PREDATORS + 1))
        order = rng.permuted(agents, axis=1)
        cells = np.array(state)
        targets = (cells + MOVES[np.concatenate([actions, prey], axis=1)]) % self.size
        games = np.arange(num_games)
        for agent in order.T:
            target = targets[games, agent]
            free = ~np.all(cells == target[:, None], axis=-1).any(axis=1)
            cells[games[free], agent[free]] = target[free]
        return cells, self.caught(cells)

    def caught(self, state: Cells) -> Bool[np.ndarray, "game"]:
        """Whether predators hold all four neighbour cells of the prey."""
        offsets = (state[:, :PREY] - state[:, PREY:]) % self.size
        held = np.all(offsets[:, :, None] == SLOTS % self.size, axis=-1)
        return held.any(axis=1).all(axis=1)

    def observe(
        self, roles: Int[np.ndarray, "game predator"], state: Cells
    ) -> Float[np.ndarray, "game predator 8"]:
        """Rows and columns from the prey to the predator itself, then to its team-mates in order of their roles.

        Differences are the short way round the board, between ``-(size // 2)`` and ``(size - 1) // 2``.
        """
        half = self.size // 2
        offsets = (state[:, :PREY] - state[:, PREY:] + half) % self.size - half
        games = np.arange(len(state))[:, None]
        by_role = np.argsort(roles, axis=1)
        features = np.empty((len(state), NUM_PREDATORS, NUM_PREDATORS, 2))
        features[:, :, 0] = offsets
        for place in range(NUM_PREDATORS):
            mates = np.delete(by_role, place, axis=1)
            features[games, by_role[:, place, None], 1:] = offsets[games, mates][:, None]
        return features.reshape(len(state), NUM_PREDATORS, -1)

    def role_features(
        self, state: Cells, actions: Int[np.ndarray, "game predator"]
    ) -> Int[np.ndarray, "game predator 1"]:
        """Symbols of the cell relative to the prey and the move, as of `predator_prey.symbols`."""
        rows, columns = np.moveaxis((state[:, :PREY] - state[:, PREY:]) % self.size, -1, 0)
        return ((rows * self.size + columns) * len(MOVES) + actions)[..., None].astype(np.int32)

    def demonstrations(self, data: Trajectories) -> Demonstrations:
        """Games of trajectories, from the cells relative to the prey that `data.states` has."""
        if data.states is None or data.actions is None:
            raise ValueError("data.states or data.actions is None: give trajectories of predator_prey")
        sequences = sequences_of_games(data, NUM_PREDATORS)
        states, actions = (np.asarray(x)[sequences].swapaxes(1, 2) for x in (data.states, data.actions))
        if states.max() >= self.size**2:
            raise ValueError(
                f"data.states has cell {states.max()}: on a board of size {self.size} cells end before"
            )
        lengths = np.asarray(data.lengths)[sequences[:, 0]].astype(int)
        unknown = (states < 0) & (np.arange(states.shape[1]) < lengths[:, None])[..., None]
        for game, time, predator in np.argwhere(unknown)[:1]:
            raise ValueError(
                f"data.states of sequence {sequences[game, predator]} is -1 at step {time}: demonstrations have no gaps"
            )
        cells = np.zeros((*states.shape[:2], NUM_PREDATORS + 1, 2), int)
        cells[:, :, :PREY] = np.stack(np.divmod(np.maximum(states, 0), self.size), axis=-1)
        return Demonstrations(cells, np.asarray(actions, int), lengths)


class PredatorPreyExperts:
    """The demonstrators of recorded games, to be asked at any state of them: ``expert(state, game)``.

    They know the roles that `imitate` has to find out.

    Parameters
    ----------
    roles : (sequence,) or (game, predator), hidden role of each predator, as `predator_prey.simulate` returns them.
    size, prey_stay : of the board and the prey.

    Raises
    ------
    ValueError, TypeError : roles that are not integers from 0 to 3, four for each game.
    """

    def __init__(self, roles: Int[np.ndarray, "..."], size: int = 7, prey_stay: float = 0.2):
        given = read_array("roles", roles)
        if given.dtype.kind not in "iu" or not given.size or given.size % NUM_PREDATORS:
            raise ValueError(
                f"roles is {given.dtype} of shape {given.shape}: give integers, {NUM_PREDATORS} for each game"
            )
        if given.min() < 0 or given.max() >= NUM_PREDATORS:
            raise ValueError(f"roles is in {given.min()}..{given.max()}: give 0 to {NUM_PREDATORS - 1}")
        self.roles = given.reshape(-1, NUM_PREDATORS)
        self.policies, self.size = expert_policies(size, prey_stay=prey_stay), size

    def __call__(self, state: Cells, game: Int[np.ndarray, "game"]) -> Int[np.ndarray, "game predator"]:
        """Their moves at states (row, agent, 2) of the games (row,)."""
        rows, columns = np.moveaxis((state[:, :PREY] - state[:, PREY:]) % self.size, -1, 0)
        return self.policies[self.roles[game], rows, columns]
