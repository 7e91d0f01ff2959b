"""Pictures of marginal MAP: what a search had found at each time, and how sure each part of an answer is.

As in `ethogram.plots`, every function draws into Matplotlib axes and returns them; without them a new figure is made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ethogram.inference.incumbent import TracePoint
from ethogram.plots import axes_or_new

__all__ = ["anytime_curves", "gap_bars"]

FIRST = 1e-2
"""Seconds at which the axis of time begins."""


def anytime_curves(
    traces: Mapping[str, Sequence[TracePoint]],
    ax: Any = None,
    *,
    until: float | int,
    best: float | None = None,
) -> Any:
    """Axes with the log probability of the best answer so far, over time, of several methods.

    Parameters
    ----------
    traces : by method, as in a result of `solve_mmap`; a method that found nothing possible is named in the legend.
    ax : axes to draw into.
    until : seconds up to which lines go on.
    best : a level to compare with, such as the optimum, dashed.

    Raises
    ------
    ValueError : there is no method, or `until` is not positive.
    """
    if not traces or not until > 0:
        raise ValueError(
            f"traces are {len(traces)} and until is {until}: give one method at least, and seconds above 0"
        )
    axes = axes_or_new(ax, (5, 3.6))
    if best is not None:
        axes.axhline(best, color="0.6", linestyle="--", linewidth=1, zorder=0)
    for number, (name, trace) in enumerate(traces.items()):
        found = [point for point in trace if point.log_probability > -np.inf]
        colour = f"C{number}"
        if not found:
            axes.plot([], [], color=colour, label=f"{name}: nothing possible")
            continue
        times = [max(point.wall_s, FIRST) for point in found]
        values = [point.log_probability for point in found]
        end = max(until, times[-1])
        axes.step([*times, end], [*values, values[-1]], where="post", color=colour, label=name, alpha=0.85)
        axes.plot(times[0], values[0], ".", color=colour)
    axes.set(xscale="log", xlabel="seconds from the call", ylabel="log probability of the best answer")
    axes.set_xlim(FIRST, None)
    return axes


def gap_bars(flips: Mapping[str, np.ndarray], states: Sequence[int], ax: Any = None) -> Any:
    """Axes with what changing one variable of an answer would cost, all others held, in nats.

    Parameters
    ----------
    flips : by variable, log probabilities of the answer with each of its states, of `single_flips`.
    states : of the answer.
    ax : axes to draw into.

    Raises
    ------
    ValueError : there are not as many states as variables.
    """
    if len(flips) != len(states) or not flips:
        raise ValueError(f"flips are of {len(flips)} variables, states of {len(states)}: give both for each")
    axes = axes_or_new(ax, (5, 0.35 * len(flips) + 1))
    costs = []
    for values, state in zip(flips.values(), states, strict=True):
        others = np.delete(values, state)
        costs.append(
            float(values[state] - others.max()) if len(others) and others.max() > -np.inf else np.nan
        )
    places = np.arange(len(costs))
    axes.barh(places, np.nan_to_num(costs), color=["C0" if cost > 0 else "C3" for cost in costs])
    axes.set_yticks(places, list(flips))
    axes.invert_yaxis()
    axes.set_xlabel("nats lost where it alone is changed")
    return axes
