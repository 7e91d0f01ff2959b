"""Probabilities of transitions, and shares of time, along a covariate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ethogram.plots.colours import series_colour

__all__ = ["covariate_curves"]

TAIL = 0.05
"""Below and above the band of a curve."""


def covariate_curves(
    figure: Any,
    values: Any,
    matrices: Float[np.ndarray, "draw point state next_state"],
    shares: Float[np.ndarray, "draw point state"],
    names: Sequence[str],
    label: str,
    observed: Any,
) -> None:
    """One panel per state with the probabilities of the next one, and one of the shares of time of the long run.

    Parameters
    ----------
    figure : an empty one.
    values : of the covariate, numbers or levels.
    observed : of the data, drawn as ticks where they are numbers.
    """
    count, numeric = len(names), not isinstance(values, list)
    places = np.asarray(values, float) if numeric else np.arange(len(values), dtype=float)
    panels = figure.subplots(1, count + 1, sharex=True, squeeze=False)[0]
    for state, axes in enumerate(panels[:-1]):
        for following in range(count):
            if following != state:
                _band(axes, places, matrices[:, :, state, following], following, names[following], numeric)
        axes.set_title(f"from {names[state]}", fontsize="medium")
        axes.set_ylim(bottom=0)
    panels[0].set_ylabel("probability of the next state, per step")
    for state in range(count):
        _band(panels[-1], places, shares[:, :, state], state, names[state], numeric)
    panels[-1].set_title("time in the long run", fontsize="medium")
    panels[-1].set(ylabel="share", ylim=(0, 1))
    panels[-1].legend(frameon=False, fontsize="small")
    for axes in panels:
        axes.set_xlabel(label)
        if numeric:
            ticks = np.quantile(np.asarray(observed, float), np.linspace(0, 1, 101))
            axes.plot(ticks, np.zeros(len(ticks)), "|", color="0.4", alpha=0.5, clip_on=False)
        else:
            axes.set_xticks(places, [str(value) for value in values])
            axes.set_xlim(-0.5, len(places) - 0.5)


def _band(axes: Any, places: Any, draws: Any, number: int, name: str, numeric: bool) -> None:
    """A curve of means with its 90 % band, or points with intervals where the covariate has levels."""
    mean = draws.mean(axis=0)
    lower, upper = np.quantile(draws, [TAIL, 1 - TAIL], axis=0)
    colour = series_colour(number)
    if numeric:
        axes.fill_between(places, lower, upper, color=colour, alpha=0.2, linewidth=0)
        axes.plot(places, mean, color=colour, label=name)
    else:
        moved = places + 0.08 * (number - 1)
        axes.errorbar(moved, mean, [mean - lower, upper - mean], fmt="o", color=colour, label=name, capsize=2)
