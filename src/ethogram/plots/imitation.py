"""Figures of coordinated imitation: curves over rounds, and which roles each policy plays.

Le, Yue, Carr, Lucey (2017), figures 4 and 8.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ethogram.models.arguments import require_number
from ethogram.plots.axes import axes_or_new, default_title, draw_percentages
from ethogram.plots.colours import series_colour

__all__ = ["failure_curves", "policy_roles", "step_curves"]


def failure_curves(results: Mapping[str, Any], ax: Any = None, *, mass: float | int = 0.95) -> Any:
    """Axes with the share of fresh games that failed, in percent, by round, with an interval.

    The interval of one result is Jeffreys' for its games, that of several results (seeds) Student's for their means.

    Parameters
    ----------
    results : by name, an :class:`~ethogram.inference.imitation.ImitationResult` or a list of them.
    ax : axes to draw into.
    mass : probability of the intervals.
    """
    axes = _curves(results, "failure", ax, mass, scale=100)
    axes.set(ylabel="fresh games failed, %", ylim=(-2, 102))
    default_title(axes, "fresh games that failed, by round")
    return axes


def step_curves(results: Mapping[str, Any], ax: Any = None, *, mass: float | int = 0.95) -> Any:
    """Axes with the mean steps of the fresh games by round, with an interval; failed games count the horizon.

    Intervals are Student's for the mean of the games of one result, or of the means of several. Arguments and errors
    are those of :func:`failure_curves`.
    """
    axes = _curves(results, "steps", ax, mass, scale=1)
    axes.set_ylabel("mean steps")
    default_title(axes, "length of fresh games, by round")
    return axes


def _curves(results: Mapping[str, Any], kind: str, ax: Any, mass: float | int, scale: int) -> Any:
    require_number("mass", mass, above=0, below=1)
    listed = {name: [found] if hasattr(found, "failure") else list(found) for name, found in results.items()}
    if not listed or not all(listed.values()):
        raise ValueError(
            "results has a name without a result, or none at all: give at least one for each name"
        )
    axes = axes_or_new(ax, (4.6, 3.4))
    for number, (name, found) in enumerate(listed.items()):
        counts = {len(one.failure) for one in found}
        if len(counts) > 1:
            raise ValueError(
                f"results of {name!r} have {sorted(counts)} rounds: give results of one number of rounds"
            )
        rounds = np.arange(1, counts.pop() + 1)
        middle, low, high = (scale * x for x in _interval(found, kind, float(mass)))
        axes.plot(rounds, middle, color=series_colour(number), marker=".", label=name)
        axes.fill_between(rounds, low, high, color=series_colour(number), alpha=0.2, linewidth=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_xlabel("round")
    axes.legend(frameon=False, fontsize=8)
    return axes


def _interval(found: Sequence[Any], kind: str, mass: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, and ends of the interval, by round."""
    from scipy.stats import beta, t

    tail, highest = (1 - mass) / 2, 1 if kind == "failure" else np.inf
    if kind == "failure" and len(found) == 1:
        reached = np.asarray(found[0].reached)
        failed, count = (~reached).sum(axis=1), reached.shape[1]
        low, high = (beta.ppf(q, failed + 0.5, count - failed + 0.5) for q in (tail, 1 - tail))
        return failed / count, np.where(failed == 0, 0, low), np.where(failed == count, 1, high)
    each = [getattr(one, kind) for one in found] if len(found) > 1 else np.transpose(found[0].game_steps)
    values = np.asarray(each, float)
    count, middle = len(values), values.mean(axis=0)
    half = t.ppf(1 - tail, count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else 0.0
    return middle, np.maximum(middle - half, 0), np.minimum(middle + half, highest)


def policy_roles(frequency: ArrayLike, ax: Any = None) -> Any:
    """Axes with the share of each inferred role in the roll-outs of each policy, in percent.

    Parameters
    ----------
    frequency : (policy, role), such as ``result.policy_role[-1]``; rows sum to 1, NaN for a policy that did not play.
    ax : axes to draw into.
    """
    shares = np.asarray(frequency, float)
    played = ~np.isnan(shares).all(axis=1) if shares.ndim == 2 else np.zeros(0, bool)
    if shares.ndim != 2 or not played.any() or not np.allclose(shares[played].sum(axis=1), 1, atol=1e-4):
        raise ValueError(
            f"frequency has shape {shares.shape}, or rows that do not sum to 1: give (policy, role) of an imitation "
            "whose roles were learned"
        )
    axes = axes_or_new(ax, (4.4, 3.8))
    picture = draw_percentages(axes, shares)
    axes.set(
        xticks=range(shares.shape[1]), yticks=range(len(shares)), xlabel="inferred role", ylabel="policy"
    )
    axes.figure.colorbar(picture, ax=axes, label="share of the policy's steps, %", shrink=0.8)
    default_title(axes, "roles that each policy plays")
    return axes
