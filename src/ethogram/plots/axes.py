"""Axes to draw into, and legends beside them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from ethogram.models.data.trajectories import Trajectories

__all__ = [
    "axes_or_new",
    "default_title",
    "density_of",
    "draw_intervals",
    "draw_percentages",
    "feature_label",
    "figure_or_new",
    "legend_below",
    "legend_beside",
    "points_of",
    "read_names",
    "show_plainly",
]


def axes_or_new(ax: Any, size: tuple[float | int, float | int]) -> Any:
    """The given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def figure_or_new(figure: Any, size: tuple[float | int, float | int]) -> Any:
    """The given matplotlib figure, or a new one of this size; texts keep apart, unless it has a layout of its own."""
    if figure is not None:
        if hasattr(figure, "set_layout_engine") and figure.get_layout_engine() is None:
            figure.set_layout_engine("constrained")
        return figure
    import matplotlib.pyplot as plt

    return plt.figure(figsize=size, layout="constrained")


def points_of(axes: Any) -> tuple[float, float]:
    """Width and height of axes in points, before a layout engine has moved them."""
    return axes.bbox.width * 72 / axes.figure.dpi, axes.bbox.height * 72 / axes.figure.dpi


def default_title(axes: Any, title: str) -> None:
    """Give axes a title unless they have one, in lines that are no wider than they."""
    if not axes.get_title():
        axes.set_title(textwrap.fill(title, max(int(points_of(axes)[0] / 5.5), 16)), fontsize="medium")


def read_names(names: Sequence[str] | None, count: int) -> list[str]:
    """One name per value: their numbers where None; a ValueError where they are more or fewer."""
    labels = [str(number) for number in range(count)] if names is None else list(names)
    if len(labels) != count:
        raise ValueError(f"names has {len(labels)} entries: give {count}, one per value")
    return labels


def draw_intervals(
    axes: Any,
    rows: np.ndarray,
    draws: np.ndarray,
    colour: Any,
    names: Sequence[str] | None = None,
    *,
    median: bool = False,
    label: str | None = None,
) -> None:
    """Draw the central 90 % intervals of draws (draw, row), and their means or medians, at heights `rows`.

    Names, where given, stand at the heights; a label is that of the points.
    """
    lower, upper = np.percentile(draws, [5, 95], axis=0)
    middle = np.median(draws, axis=0) if median else draws.mean(0)
    axes.hlines(rows, lower, upper, color=colour, linewidth=2)
    axes.plot(middle, rows, "o", color=colour, markersize=4, label=label)
    if names is not None:
        axes.set_yticks(rows, list(names), fontsize="small" if len(names) > 6 else None)


def draw_percentages(axes: Any, mean: np.ndarray, *interval: np.ndarray) -> Any:
    """A matrix of percentages, each with its interval, if given, below it, none where it is NaN; returns the image."""
    size = 9 if len(mean) < 7 else 7
    for (row, column), share in np.ndenumerate(mean):
        if np.isfinite(share):
            ends = "–".join(f"{100 * end[row, column]:.0f}" for end in interval)
            text = "\n".join(filter(None, [f"{100 * share:.0f}", ends]))
            look = {"color": "white" if share > 0.6 else "black", "fontsize": size}
            axes.text(column, row, text, ha="center", va="center", **look)
    return axes.imshow(100 * mean, cmap="Blues", vmin=0, vmax=100)


def show_plainly(figure: Any) -> None:
    """Show the texts of a figure as they are: as a formula, a column called ``$x^$`` would be an error."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if "$" in text.get_text() and "mathdefault" not in text.get_text():  # as on logarithmic axes
            text.set_parse_math(False)


def legend_beside(axes: Any, title: str) -> None:
    """Draw a legend to the right of the axes."""
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "frameon": False}
    axes.legend(**place, title=title, fontsize=8, title_fontsize=8)


def legend_below(axes: Any, title: str, handles: Any) -> None:
    """Draw a legend below the label of the axes, in as many columns as fit."""
    from matplotlib.transforms import ScaledTranslation

    below = axes.transAxes + ScaledTranslation(0, -0.5, axes.figure.dpi_scale_trans)
    widest = max([len(handle.get_label()) for handle in handles], default=0)
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": below}
    look = {"frameon": False, "fontsize": 8, "title_fontsize": 8, "borderpad": 0, "alignment": "left"}
    columns = max(int(points_of(axes)[0] / (5 * widest + 36)), 1)
    axes.legend(handles=handles, title=title, ncols=columns, borderaxespad=0, **place, **look)


def density_of(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places and Gaussian kernel density of draws (draw,), not all equal, out to where it has fallen to nothing.

    Far draws do not widen the bandwidth, which is Scott's for the smaller of the standard deviation and the scaled
    interquartile range (Silverman 1986, section 3.4.2).
    """
    from scipy.stats import gaussian_kde

    draws = np.asarray(values, float)
    low, high = np.quantile(draws, [0.25, 0.75])
    spread = draws.std(ddof=1)
    narrow = min(spread, (high - low) / 1.349) or spread
    density = gaussian_kde(draws, len(draws) ** -0.2 * narrow / spread)
    beyond = 4 * len(draws) ** -0.2 * narrow
    lowest, highest = np.quantile(draws, [0.005, 0.995])
    places = np.linspace(lowest - beyond, highest + beyond, 200)
    return places, density(places)


def feature_label(data: Trajectories | None, feature: int) -> str:
    """Name and unit of a feature, as the metadata have them."""
    names = None if data is None else data.metadata.feature_names
    units = None if data is None else data.metadata.feature_units
    name = f"feature {feature}" if names is None else names[feature]
    return name if units is None or not units[feature] else f"{name} ({units[feature]})"
