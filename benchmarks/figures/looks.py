"""Colours and the legend that figures of records share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ethogram.plots.colours import series_colour

__all__ = ["BASE", "MISSED", "OURS", "PEER", "SECOND", "THIRD", "Records", "Rows", "legend_below", "titled"]

Rows = Sequence[Mapping[str, Any]]
Records = Mapping[str, Rows]

OURS, PEER, MISSED, SECOND, THIRD, BASE = (series_colour(number) for number in (0, 6, 2, 3, 1, 8))


def titled(axes: Any, title: str) -> None:
    """Give axes a title, and lines behind the data along x."""
    axes.set_title(title, fontsize="medium")
    axes.grid(axis="x", alpha=0.3)


def legend_below(figure: Any, axes: Any, columns: int, title: str | None = None) -> None:
    """Draw the one legend of a figure below it, of the artists of some axes."""
    handles = axes.get_legend_handles_labels()
    figure.legend(
        *handles, loc="outside lower center", ncols=columns, fontsize=8, title=title, title_fontsize=8
    )
