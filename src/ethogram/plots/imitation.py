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

__all__ = ["failure_curves", "policy_roles"]


def failure_curves(results: Mapping[str, Any], ax: Any = None, *, mass: float | int = 0.95) -> Any:
    """Axes with the share of fresh games that failed, in percent, by round, with an interval.

    The interval of one result is Jeffreys' for its games, that of several results (seeds) Student's for their means.

    Parameters
    ----------
    results : by name, an :class:`~ethogram.inference.imitation.ImitationResult` or a list of them.
    ax : axes to draw into.
    mass : probability of the intervals.
    """
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
        middle, low, high = (100 * share for share in _interval(found, float(mass)))
        axes.plot(rounds, middle, color=series_colour(number), marker=".", label=name)
        axes.fill_between(rounds, low, high, color=series_colour(number), alpha=0.2, linewidth=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="round", ylabel="fresh games failed, %", ylim=(-2, 102))
    axes.legend(frameon=False, fontsize=8)
    default_title(axes, "fresh games that failed, by round")
    return axes


def _interval(found: Sequence[Any], mass: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean share of failed games, and ends of its interval, by round."""
    from scipy.stats import beta, t

    tail, count = (1 - mass) / 2, len(found)
    if count == 1:
        reached = np.asarray(found[0].reached)
        failed, games = (~reached).sum(axis=1), reached.shape[1]
        low, high = (beta.ppf(q, failed + 0.5, games - failed + 0.5) for q in (tail, 1 - tail))
        return failed / games, np.where(failed == 0, 0, low), np.where(failed == games, 1, high)
    values = np.stack([np.asarray(one.failure, float) for one in found])
    half = t.ppf(1 - tail, count - 1) * values.std(axis=0, ddof=1) / np.sqrt(count)
    middle = values.mean(axis=0)
    return middle, np.maximum(middle - half, 0), np.minimum(middle + half, 1)


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
