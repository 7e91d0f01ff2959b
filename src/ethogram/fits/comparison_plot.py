"""Figures of comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from ethogram.plots.axes import density_of, draw_intervals, figure_or_new, show_plainly
from ethogram.plots.colours import SERIES, series_colour
from ethogram.plots.networks import incumbent_curves

__all__ = ["draw_comparison"]

MOST_ROWS = 16
DECADES = 100
"""Ratio of the ends of an interval above which densities are of logs."""


def draw_comparison(found: Any, figure: Any = None) -> Any:
    """The figure of a `Comparison`, drawn into one that is empty, or into a new one."""
    height = 6 if found.entries is None or len(found.entries[0]) > 4 else 4
    figure = figure_or_new(figure, (12, height) if found.kind == "algorithms" else (8, 3.5))
    {"algorithms": _algorithms, "models": _models, "answers": _answers}[found.kind](found, figure)
    show_plainly(figure)
    return figure


def _answers(found: Any, figure: Any) -> None:
    incumbent_curves({name: fit.result for name, fit in found.fits.items()}, figure.subplots())


def _models(found: Any, figure: Any) -> None:
    axes, table = figure.subplots(), found.scores
    rows = np.arange(len(table))[::-1]
    error = table["se of difference"].fillna(0)
    axes.errorbar(table["difference"], rows, xerr=error, fmt="o", color=SERIES[0], capsize=3)
    axes.axvline(0, color="0.6", linestyle="--", linewidth=1)
    axes.set_yticks(rows, table.index)
    axes.set(xlabel=f"{table.columns[0]}, difference to the best (nats)", title="scores")
    axes.set_ylim(-0.5, len(table) - 0.5)


def _algorithms(found: Any, figure: Any) -> None:
    names, draws = found.entries
    flat = {name: values.reshape(-1, len(names)) for name, values in draws.items()}
    shown = _largest(found, names, list(flat.values()))
    titles = [names[at] for at in shown]
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    axes, many = left.subplots(), len(flat)
    rows = np.arange(len(shown))[::-1].astype(float)
    centre, width = _units([values[:, shown] for values in flat.values()])
    for number, (name, values) in enumerate(flat.items()):
        at = rows + 0.15 * ((many - 1) / 2 - number)
        draw_intervals(
            axes, at, (values[:, shown] - centre) / width, series_colour(number), median=True, label=name
        )
    axes.set_yticks(rows, titles, fontsize="small")
    axes.set_ylim(-0.6, len(shown) - 0.4)
    axes.set_xlabel(f"distance to the median of {next(iter(flat))}, in widest intervals")
    axes.set_title("medians and 90 % intervals")
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=many, frameon=False)
    panels = right.subplots(3, 2).ravel()
    for panel, place, title in zip(panels, shown, titles, strict=False):
        for number, values in enumerate(flat.values()):
            _density(panel, values[:, place], series_colour(number))
        panel.set_title(title, fontsize="small")
        panel.set_yticks([])
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    right.suptitle("marginal densities, the largest disagreements first", fontsize="medium")


def _largest(found: Any, names: list[str], draws: list[np.ndarray]) -> list[int]:
    """Places of the estimates that disagree most, then of those whose means are furthest apart."""
    spread = np.max([each.std(0) for each in draws], axis=0)
    distance = np.ptp([each.mean(0) for each in draws], axis=0) / np.where(spread > 0, spread, 1)
    first = [names.index(name) for name in dict.fromkeys(found.disagreements["estimate"])]
    rest = np.argsort(-distance, kind="stable").tolist()
    return [at for at in dict.fromkeys(first + rest) if spread[at] > 0 or at in first][:MOST_ROWS]


def _units(draws: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Medians (entry,) of the first draws, and widths of the widest 90 % intervals: entries have units of their own."""
    width = np.max([np.ptp(np.quantile(each, [0.05, 0.95], axis=0), axis=0) for each in draws], axis=0)
    return np.median(draws[0], axis=0), np.where(width > 0, width, 1.0)


def _density(axes: Any, values: np.ndarray, colour: str) -> None:
    """A kernel density, of logs where all draws are positive over decades; a line where all are equal."""
    low, high = np.quantile(values, [0.005, 0.995])
    if high - low <= 1e-12 * max(abs(values).max(), 1e-300):
        axes.axvline(values[0], color=colour)
        return
    decades = bool(values.min() > 0 and high > DECADES * low)
    if decades:
        axes.set_xscale("log")
    places, density = density_of(values, log=decades)
    axes.plot(places, density, color=colour)
    axes.fill_between(places, density, color=colour, alpha=0.2, linewidth=0)
