"""The tour of planning: a network of computers kept running by SOGBOFA, beside the best policy, random and no actions.

The planner knows the probabilities of the network and plans anew at every step. The best policy comes from dynamic
programming over all states, which is out of reach for large networks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.optimal_policy import OptimalPolicy
from ethogram.domains.sysadmin import sysadmin
from ethogram.inference.planning import Episodes, Plan, RandomPolicy, SogbofaPolicy, plan, play_episodes
from ethogram.plots.planning import episode_timeline, plan_marginals
from ethogram.tour.guide import Guide, TourReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ethogram.models.planning import PlanningProblem

__all__ = ["FULL", "QUICK", "TourSizes", "tour"]


class TourSizes(NamedTuple):
    """Computers of the network, steps of an episode, and episodes of each policy."""

    computers: int
    horizon: int
    episodes: int


QUICK, FULL = TourSizes(8, 20, 10), TourSizes(10, 40, 30)


class _Nothing:
    """Takes no action."""

    def sample_action(self, state: Any) -> dict[str, bool]:
        return {}


def tour(guide: Guide, sizes: TourSizes) -> TourReport:
    """Rows, notes and files of the tour of planning."""
    problem = sysadmin(sizes.computers, horizon=sizes.horizon)
    key = jax.random.key(guide.seed)
    guide.step(f"the best policy, over {2**sizes.computers} states", quick=1, full=12)
    best = OptimalPolicy(problem)
    guide.step(f"{sizes.episodes} episodes of each policy", quick=9, full=35)
    planner = SogbofaPolicy(key, problem, 100.0, depth=8, num_restarts=16, max_steps=10)
    policies = {
        "nothing": _Nothing(),
        "random": RandomPolicy(key, problem),
        "SOGBOFA": planner,
        "best": best,
    }
    played = {
        name: play_episodes(
            FluentWorld(problem), policy, sizes.episodes, seed=guide.seed, progress_bar=guide.progress_bar
        )
        for name, policy in policies.items()
    }
    state = {name: number > 1 for number, name in enumerate(problem.fluents)}
    now = plan(key, problem, state, 100.0, depth=8, num_restarts=16, max_steps=10)
    with guide.figure(13, 4.5, "SysAdmin: a plan of reboots, and an episode of such plans") as figure:
        _draw(figure, now, problem, played["SOGBOFA"])
    guide.save(_dataset(played))
    rows = [_row(name, episodes, best.value) for name, episodes in played.items()]
    notes = [
        f"The best policy's expected return is {best.value:.1f}, by dynamic programming. Policies play the same",
        "episodes, in which computers fail at random: a mean may be above the expectation.",
        "planning.nc holds the returns by policy (read it with xarray.open_dataset).",
    ]
    return guide.report(rows, notes)


def _row(name: str, episodes: Episodes, best: float) -> dict[str, Any]:
    returns = episodes.returns
    return {
        "policy": name,
        "mean return": f"{returns.mean():.1f}",
        "standard error": f"{returns.std(ddof=1) / np.sqrt(len(returns)):.1f}",
        "share of the best": f"{returns.mean() / best:.2f}",
        "ms a decision": f"{1e3 * episodes.seconds.mean():.1f}",
    }


def _draw(figure: Figure, now: Plan, problem: PlanningProblem, episodes: Episodes) -> None:
    left, right = figure.subplots(1, 2)
    plan_marginals(now, problem.actions, ax=left)
    left.set_title(f"two computers down: the plan, value {now.value:.1f}")
    episode_timeline(episodes, ax=right)


def _dataset(played: dict[str, Episodes]) -> Any:
    """A dataset of returns (policy, episode)."""
    import xarray

    returns = np.stack([episodes.returns for episodes in played.values()])
    return xarray.Dataset({"return": (("policy", "episode"), returns)}, coords={"policy": list(played)})
