"""Imitation of predators for the tour of role-hmm: one policy for each learned role, and for arbitrary ones.

Both teams have the same demonstrations, experts, rounds and policy, which does what was done at the most similar
position of the whole team. It needs no scikit-learn; forests do better (docs/results.md).
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Int

from ethogram import plots
from ethogram.domains import predator_prey
from ethogram.domains.predator_prey_world import PredatorPreyExperts, PredatorPreyWorld
from ethogram.inference.imitation import ImitationResult, imitate
from ethogram.models.data import Trajectories

__all__ = ["ROUNDS", "Nearest", "Team", "draw_teams", "imitate_predators"]

ROUNDS, HORIZON, STARTS = 2, 50, 30


class Nearest:
    """The action at the nearest of the features, by the sum of absolute differences."""

    def fit(self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray) -> None:
        """Keep the rows of positive weight."""
        from scipy.spatial import cKDTree

        self.tree, self.actions = cKDTree(X[sample_weight > 0]), y[sample_weight > 0]

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Actions at rows of features."""
        return self.actions[self.tree.query(X, p=1)[1]]


class Team(NamedTuple):
    """A team, and one game of it."""

    name: str
    result: ImitationResult
    frames: list[Int[np.ndarray, "agent 2"]]  # cells by step
    caught: bool
    roles: Int[np.ndarray, "predator"] | None  # for colours; None without roles
    seconds: float


def imitate_predators(
    key: jax.Array,
    data: Trajectories,
    learned: Int[np.ndarray, "sequence"],
    true: Int[np.ndarray, "sequence"],
    fresh_games: int,
) -> list[Team]:
    """Teams by arbitrary and by learned roles, each with a game from the first start in which the former fails.

    Parameters
    ----------
    data : demonstrations.
    learned : role of each sequence, numbered to fit the true ones.
    true : by which the experts answer.
    """
    world, experts = PredatorPreyWorld(), PredatorPreyExperts(true)
    arms: dict[str, Any] = {"arbitrary roles": "shuffled", "learned roles": learned}
    found = {}
    for name, roles in arms.items():
        begin = time.perf_counter()
        result = imitate(
            key, None, Nearest, world, data, expert=experts, roles=roles, rounds=ROUNDS, horizon=HORIZON,
            evaluation_games=fresh_games, progress_bar=False,
        )  # fmt: skip
        found[name] = result, time.perf_counter() - begin
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    held = rng.permutation(predator_prey.NUM_PREDATORS)
    arbitrary, by_role = (result for result, _ in found.values())
    for seed, start in enumerate(world.reset(rng, STARTS)):
        before = _play(world, arbitrary.policies, held, start, seed)
        if not before[1]:
            break
    after = _play(world, by_role.policies, held, start, seed)
    games = {"arbitrary roles": (*before, None), "learned roles": (*after, held)}
    return [Team(name, result, *games[name], seconds) for name, (result, seconds) in found.items()]


def _play(
    world: PredatorPreyWorld, policies: Any, held: np.ndarray, start: np.ndarray, seed: int
) -> tuple[list[np.ndarray], bool]:
    """Cells by step, until the prey is caught, and whether it is; `held` is the policy of each predator."""
    rng, cells, frames = np.random.default_rng(seed), start[None], [start]
    while len(frames) <= HORIZON:
        seen = world.observe(held[None], cells)[0]
        moves = [policies[role].predict(seen[[agent]])[0] for agent, role in enumerate(held)]
        cells, caught = world.step(rng, cells, np.array(moves)[None])
        frames.append(cells[0])
        if caught[0]:
            return frames, True
    return frames, False


def draw_teams(figure: Any, teams: list[Team]) -> None:
    """Three boards a team, and the share of fresh games that fail by round."""
    parts = figure.subfigures(1, 1 + len(teams), width_ratios=[3] * len(teams) + [1.25])
    for part, team in zip(parts, teams, strict=False):
        failed = 100 * team.result.failure[-1]
        title = f"predators, one policy for each of four {team.name}: {failed:.0f} % of fresh games fail"
        part.suptitle(title, fontsize=14)
        last = len(team.frames) - 1
        axes = part.subplots(1, 3)
        for ax, step in zip(axes, (0, last // 2, last), strict=True):
            predator_prey.draw(team.frames[step], roles=team.roles, ax=ax)
            ended = ("prey caught" if team.caught else "prey not caught") if step == last else ""
            ax.set_title(f"step {step}" + (f", {ended}" if ended else ""))
    axes = plots.failure_curves({team.name: team.result for team in teams}, parts[-1].subplots())
    axes.set_title("imitation, by round of training")
