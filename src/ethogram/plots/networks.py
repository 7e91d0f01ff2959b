"""Figures of marginal MAP: incumbents over time, and the cost of single changes to an assignment.

As in `ethogram.plots`, every function draws into Matplotlib axes and returns them; without axes it makes a new figure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ethogram.plots.axes import axes_or_new, default_title
from ethogram.plots.colours import SERIES, series_colour

__all__ = ["anytime_curves", "gap_bars", "incumbent_curves"]

NOTE_WIDTH = 50
"""Characters of a line below the time axis."""

FIRST = 1e-2
"""Seconds at which the time axis starts."""


def anytime_curves(
    traces: Mapping[str, Sequence[Any]],
    ax: Any = None,
    *,
    until: float | int,
    best: float | None = None,
) -> Any:
    """Anytime curves: log probability of the incumbent over time, one curve per method.

    Curves are of exact log probabilities, which only rise; estimates are circles.

    Parameters
    ----------
    traces : by method, as in a result of `solve_mmap`; those without a possible assignment are named below the axis.
    ax : axes to draw into.
    until : seconds at which the curves end.
    best : reference value, such as the optimum, drawn as a dashed line.
    """
    if not traces:
        raise ValueError("traces is empty: give the trace of at least one method")
    if not until > 0:
        raise ValueError(f"until must be positive seconds, not {until}")
    axes = axes_or_new(ax, (5, 3.6))
    if best is not None:
        axes.axhline(best, color="0.6", linestyle="--", linewidth=1, zorder=0)
    none = []
    for number, (name, trace) in enumerate(traces.items()):
        found = [point for point in trace if point.log_probability > -np.inf]
        if not found:
            none.append(name)
            continue
        label: str | None = name
        for kind in ("exact", "estimate"):
            times = [max(point.wall_s, FIRST) for point in found if point.kind == kind]
            values = [point.log_probability for point in found if point.kind == kind]
            wide = 1.4 + 0.6 * (len(traces) - 1 - number)  # curves that coincide show beside each other
            look: dict[str, Any] = {"color": series_colour(number), "label": label, "linewidth": wide}
            if not times:
                continue
            if kind == "exact":
                axes.step([*times, max(until, times[-1])], [*values, values[-1]], where="post", **look)
                axes.plot(times[0], values[0], ".", color=look["color"])
            else:
                axes.plot(times, values, "o", fillstyle="none", **look | {"linewidth": 0})
            label = None
    axes.set(xscale="log", xlabel="wall-clock time (s)", ylabel="log probability of the incumbent")
    axes.set_xlim(0.8 * FIRST, None)
    axes.xaxis.set_minor_formatter("")  # labels of a short axis would overlap
    if none:
        note = textwrap.wrap(f"no possible assignment: {', '.join(none)}", NOTE_WIDTH)
        axes.set_xlabel("\n".join([axes.get_xlabel(), *note]))
    default_title(axes, "incumbents over time")
    return axes


def incumbent_curves(results: Mapping[str, Any], ax: Any = None) -> Any:
    """Anytime curves of results of `solve_mmap` by method, with their smallest upper bound.

    Parameters
    ----------
    results : of one query, by method.
    ax : axes to draw into.
    """
    axes = axes_or_new(ax, (5, 3.6))
    until = max(1e-3, *(found.seconds for found in results.values()))
    anytime_curves({name: found.trace for name, found in results.items()}, axes, until=until)
    bound = min(found.upper_bound for found in results.values())
    if np.isfinite(bound):
        axes.axhline(bound, color="0.3", linestyle=":", label="upper bound")
    axes.legend(loc="best")
    proved = any(found.proved_optimal for found in results.values())
    axes.set_title("incumbents" + (", proved optimal" if proved else ""))
    return axes


def gap_bars(flips: Mapping[str, np.ndarray], states: Sequence[int], ax: Any = None) -> Any:
    """Bars of the loss, in nats, of the best single change to each variable of an assignment.

    Parameters
    ----------
    flips : by variable, log probabilities with each of its states, as `single_flips` returns them.
    states : (map,) the assignment.
    ax : axes to draw into.
    """
    if len(flips) != len(states) or not flips:
        raise ValueError(f"flips has {len(flips)} variables and states {len(states)}: give the same to both")
    axes = axes_or_new(ax, (5, 0.35 * len(flips) + 1))
    costs = []
    for values, state in zip(flips.values(), states, strict=True):
        second = np.delete(values, state).max(initial=-np.inf)
        costs.append(float(values[state] - second) if second > -np.inf else np.nan)
    places = np.arange(len(costs))
    axes.barh(places, np.nan_to_num(costs), color=[SERIES[0] if cost > 0 else SERIES[2] for cost in costs])
    axes.set_yticks(places, list(flips))
    axes.invert_yaxis()
    axes.set_xlabel("loss of the best single change (nats)")
    default_title(axes, "single changes of the assignment")
    return axes
