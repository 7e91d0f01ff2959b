"""What moves switching and observations: curves along a covariate, and log odds of changes by subject."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ethogram.plots.colours import series_colour

__all__ = ["covariate_curves", "subject_forest"]

TAIL = 0.05
"""Below and above the band of a curve."""


def covariate_curves(
    figure: Any,
    values: Any,
    switching: Sequence[np.ndarray] | None,
    means: Float[np.ndarray, "draw point state shown"] | None,
    titles: Sequence[str],
    names: Sequence[str],
    label: str,
    observed: Any,
) -> None:
    """Panels of means by state, of the probabilities of the next state for each, and of the shares of the long run.

    Parameters
    ----------
    figure : an empty one.
    values : of the covariate, numbers or levels.
    switching : probabilities (draw, point, state, next_state) of transitions, and shares (draw, point, state) of time;
        None for no such panels.
    means : of observations; None for no such panels.
    titles : of their panels, one each.
    observed : of the data, drawn as ticks where they are numbers.
    """
    count, numeric = len(names), not isinstance(values, list)
    places = np.asarray(values, float) if numeric else np.arange(len(values), dtype=float)
    number = len(titles) + (0 if switching is None else count + 1)
    panels = figure.subplots(1, number, sharex=True, squeeze=False)[0]
    for shown, (axes, title) in enumerate(zip(panels, titles, strict=False)):
        for state in range(count):
            _band(axes, places, means[..., state, shown], state, names[state], numeric)  # type: ignore[index]
        axes.set_title(title, fontsize="medium")
        if title.startswith("P("):
            axes.set_ylim(0, 1)
    if switching is not None:
        matrices, shares = switching
        rest = panels[len(titles) :]
        for state, axes in enumerate(rest[:-1]):
            for following in range(count):
                if following != state:
                    _band(
                        axes, places, matrices[:, :, state, following], following, names[following], numeric
                    )
            axes.set_title(f"from {names[state]}", fontsize="medium")
            axes.set_ylim(bottom=0)
        rest[0].set_ylabel("probability of the next state, per step")
        for state in range(count):
            _band(rest[-1], places, shares[:, :, state], state, names[state], numeric)
        rest[-1].set_title("time in the long run", fontsize="medium")
        rest[-1].set(ylabel="share", ylim=(0, 1))
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


def subject_forest(figure: Any, tables: Mapping[tuple[str, str], Any], population: str, columns: int) -> None:
    """A panel for each change of state, with the log odds and the interval of every subject, the largest on top.

    Parameters
    ----------
    figure : an empty one.
    tables : by state and next state, a DataFrame with ``mean``, ``lower`` and ``upper``, one row per subject.
    population : the row of the population, drawn as a line and a band.
    columns : panels side by side.
    """
    panels = figure.subplots(-(-len(tables) // columns), columns, squeeze=False).ravel()
    for axes, ((state, following), table) in zip(panels, tables.items(), strict=False):
        mean = table.loc[population]
        axes.axvspan(mean["lower"], mean["upper"], color="0.9", linewidth=0)
        axes.axvline(mean["mean"], color="0.5", linewidth=1)
        own = table.drop(population).sort_values("mean")
        places = np.arange(len(own))
        sides = [own["mean"] - own["lower"], own["upper"] - own["mean"]]
        axes.errorbar(own["mean"], places, xerr=sides, fmt="o", markersize=4, color=series_colour(0))
        axes.set_title(f"{state} to {following}", fontsize="medium")
        axes.set_yticks(places, own.index, fontsize="small")
        axes.set(xlabel="log odds of the change, per step", ylim=(-0.7, len(own) - 0.3))
    for axes in panels[len(tables) :]:
        axes.remove()
