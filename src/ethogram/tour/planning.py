"""The tour of planning: a network of computers kept running by SOGBOFA, beside random actions and the best policy.

The planner knows the probabilities of the network and plans anew at every step; nothing is fitted. The best policy
comes from dynamic programming over all states, which is out of reach for large networks.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.optimal_policy import OptimalPolicy
from ethogram.domains.sysadmin import sysadmin
from ethogram.inference.planning import Episodes, Plan, RandomPolicy, SogbofaPolicy, plan, play_episodes
from ethogram.models.planning import PlanningProblem
from ethogram.plots.planning import episode_timeline, plan_marginals
from ethogram.tour.guide import Example

__all__ = ["EXAMPLE"]

SEARCH: dict[str, Any] = {"depth": 8, "num_restarts": 16, "max_steps": 10}


class Played(NamedTuple):
    """Episodes by policy, the plan where two computers are down, and seconds of wall time."""

    episodes: dict[str, Episodes]
    now: Plan
    seconds: float

    def to_arviz(self, **options: Any) -> Any:
        """A dataset of returns (policy, episode)."""
        import xarray

        returns = np.stack([episodes.returns for episodes in self.episodes.values()])
        coords = {"policy": list(self.episodes)}
        return xarray.Dataset({"return": (("policy", "episode"), returns)}, coords=coords)


def load(key: jax.Array, full: bool) -> tuple[int, PlanningProblem]:
    """Episodes that are played, and the network."""
    return (30, sysadmin(10, horizon=40)) if full else (10, sysadmin(8, horizon=20))


def model(problem: PlanningProblem) -> PlanningProblem:
    """The network is the model."""
    return problem


def play(key: jax.Array, problem: PlanningProblem, episodes: int, method: str) -> Played:
    """The same episodes by each policy."""
    start = time.perf_counter()
    policies = {
        method: SogbofaPolicy(key, problem, 100.0, **SEARCH),
        "random": RandomPolicy(key, problem),
        "best": OptimalPolicy(problem),
    }
    world = FluentWorld(problem)
    played = {
        name: play_episodes(world, policy, episodes, progress_bar=False) for name, policy in policies.items()
    }
    state = {name: number > 1 for number, name in enumerate(problem.fluents)}
    now = plan(key, problem, state, 100.0, **SEARCH)
    return Played(played, now, time.perf_counter() - start)


def truth(found: Played, problem: PlanningProblem) -> list[tuple[str, str, str]]:
    """Mean returns, beside that of the best policy in the same episodes."""
    best = f"{found.episodes['best'].returns.mean():.1f}"
    return [
        (
            f"mean return of {name}, with its standard error",
            f"{each.returns.mean():.1f} +- {each.returns.std(ddof=1) / np.sqrt(len(each.returns)):.1f}",
            best,
        )
        for name, each in found.episodes.items()
        if name != "best"
    ]


def draw(found: Played, problem: PlanningProblem, figure: Any) -> None:
    """The plan, and an episode of such plans."""
    left, right = figure.subplots(1, 2)
    plan_marginals(found.now, problem.actions, ax=left)
    left.set_title(f"two computers down: the plan, value {found.now.value:.1f}")
    episode_timeline(next(iter(found.episodes.values())), ax=right)


EXAMPLE = Example(
    "SysAdmin, a network of computers", load, model, {"method": "SOGBOFA"}, {}, truth, draw, (13, 4.5), play
)
