"""Figures of marginal MAP: incumbents over time."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

import numpy as np

from ethogram.plots.axes import axes_or_new, default_title
from ethogram.plots.colours import series_colour

__all__ = ["anytime_curves"]

NOTE_WIDTH = 50
"""Characters of a line below the time axis."""

FIRST = 1e-2
"""Seconds at which the time axis starts."""


def anytime_curves(results: Mapping[str, Any], ax: Any = None, *, best: float | None = None) -> Any:
    """Anytime curves: log probability of the incumbent over time, one curve per method, and the upper bound.

    Curves are of exact log probabilities, which only rise; estimates are circles. All end with the slowest method.

    Parameters
    ----------
    results : of `solve_mmap`, by method; those without a possible assignment are named below the axis.
    ax : axes to draw into.
    best : reference value, such as the optimum, drawn as a dashed line.
    """
    if not results:
        raise ValueError("results is empty: give that of at least one method")
    axes = axes_or_new(ax, (5, 3.6))
    if best is not None:
        axes.axhline(best, color="0.6", linestyle="--", linewidth=1, zorder=0)
    until, none = max(found.seconds for found in results.values()), []
    for number, (name, result) in enumerate(results.items()):
        found = [point for point in result.trace if point.log_probability > -np.inf]
        if not found:
            none.append(name)
            continue
        label: str | None = name
        for kind in ("exact", "estimate"):
            times = [max(point.wall_s, FIRST) for point in found if point.kind == kind]
            values = [point.log_probability for point in found if point.kind == kind]
            wide = 1.4 + 0.6 * (len(results) - 1 - number)  # curves that coincide show beside each other
            look: dict[str, Any] = {"color": series_colour(number), "label": label, "linewidth": wide}
            if not times:
                continue
            if kind == "exact":
                axes.step([*times, max(until, times[-1])], [*values, values[-1]], where="post", **look)
                axes.plot(times[0], values[0], ".", color=look["color"])
            else:
                axes.plot(times, values, "o", fillstyle="none", **look | {"linewidth": 0})
            label = None
    bound = min(found.upper_bound for found in results.values())
    if np.isfinite(bound):
        axes.axhline(bound, color="0.3", linestyle=":", label="upper bound")
    axes.set(xscale="log", xlabel="wall-clock time (s)", ylabel="log probability of the incumbent")
    axes.set_xlim(0.8 * FIRST, None)
    axes.xaxis.set_minor_formatter("")  # labels of a short axis would overlap
    if none:
        note = textwrap.wrap(f"no possible assignment: {', '.join(none)}", NOTE_WIDTH)
        axes.set_xlabel("\n".join([axes.get_xlabel(), *note]))
    proved = any(found.proved_optimal for found in results.values())
    default_title(axes, f"incumbents over time{', proved optimal' if proved else ''}")
    return axes
