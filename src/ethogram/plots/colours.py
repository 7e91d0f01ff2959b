"""Colours of series and categories that readers with a colour vision deficiency can tell apart.

Petroff (2021), "Accessible color sequences for data visualization", table 2 (ten colours).
"""

from __future__ import annotations

import numpy as np

__all__ = ["SERIES", "category_colours", "series_colour"]

SERIES = (
    "#3f90da", "#ffa90e", "#bd1f01", "#832db6", "#92dadd",
    "#a96b59", "#e76300", "#b9ac70", "#717581", "#94a4a2",
)  # fmt: skip
"""Colours of the first ten series of a plot, the greys last, since timelines show uncertainty by paleness."""


def series_colour(number: int) -> str:
    """Colour of a series; the eleventh has that of the first."""
    return SERIES[number % len(SERIES)]


def category_colours(count: int) -> list[tuple[float, float, float]]:
    """One colour per category: those of series up to ten, else equally spaced ones of a map of rising lightness."""
    import matplotlib
    from matplotlib.colors import to_rgb

    if count <= len(SERIES):
        return [to_rgb(colour) for colour in SERIES[:count]]
    places = np.linspace(0.0, 0.95, count)
    return [tuple(colour[:3]) for colour in matplotlib.colormaps["viridis"](places)]
