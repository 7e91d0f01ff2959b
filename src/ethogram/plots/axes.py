"""Axes to draw into, and legends beside them."""

from __future__ import annotations

from typing import Any

__all__ = ["axes_or_new", "legend_beside"]


def axes_or_new(ax: Any, size: tuple[float | int, float | int]) -> Any:
    """The given axes, or those of a new figure of this size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=size, layout="constrained")[1]


def legend_beside(axes: Any, title: str, handles: Any = None) -> None:
    """Draw a legend to the right of the axes, of their artists or of the handles."""
    given = {} if handles is None else {"handles": handles}
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "frameon": False}
    axes.legend(**given, **place, title=title, fontsize=8, title_fontsize=8)
