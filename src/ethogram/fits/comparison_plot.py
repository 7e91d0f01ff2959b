"""Figures of comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np

from ethogram.fits.plain_texts import show_plainly
from ethogram.plots.axes import density_of, figure_or_new
from ethogram.plots.colours import SERIES, series_colour
from ethogram.plots.networks import anytime_curves

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
    axes = figure.subplots()
    results = {name: fit.result for name, fit in found.fits.items()}
    until = max(result.seconds for result in results.values())
    anytime_curves({name: result.trace for name, result in results.items()}, axes, until=until)
    bound = min(result.upper_bound for result in results.values())
    if np.isfinite(bound):
        axes.axhline(bound, color="0.3", linestyle=":", label="upper bound")
    axes.legend(loc="lower right")
    axes.set_title("incumbents")


def _models(found: Any, figure: Any) -> None:
    axes, table = figure.subplots(), found.scores
    rows = np.arange(len(table))[::-1]
    axes.errorbar(
        table["difference"],
        rows,
        xerr=table["se of difference"].fillna(0),
        fmt="o",
        color=SERIES[0],
        capsize=3,
    )
    axes.axvline(0, color="0.6", linestyle="--", linewidth=1)
    axes.set_yticks(rows, table.index)
    axes.set(xlabel=f"{table.columns[0]}, difference to the best (nats)", title="scores")
    axes.set_ylim(-0.5, len(table) - 0.5)


def _algorithms(found: Any, figure: Any) -> None:
    names, draws = found.entries
    shown = _largest(found, names)
    left, right = figure.subfigures(1, 2, width_ratios=(1, 1.1))
    axes, many = left.subplots(), len(draws)
    rows = np.arange(len(shown))[::-1].astype(float)
    for number, (fit, values) in enumerate(draws.items()):
        flat = values.reshape(-1, values.shape[-1])[:, shown]
        lower, middle, upper = np.quantile(flat, [0.05, 0.5, 0.95], axis=0)
        centre, scale = _scale(draws, shown)  # entries have units of their own
        at = rows + 0.15 * ((many - 1) / 2 - number)
        axes.hlines(
            at, (lower - centre) / scale, (upper - centre) / scale, color=series_colour(number), linewidth=2
        )
        axes.plot((middle - centre) / scale, at, "o", color=series_colour(number), markersize=4, label=fit)
    axes.set_yticks(rows, [names[i] for i in shown], fontsize="small")
    axes.set_ylim(-0.6, len(shown) - 0.4)
    first = next(iter(draws))
    axes.set(
        xlabel=f"distance to the median of {first}, in widest intervals", title="medians and 90 % intervals"
    )
    axes.legend(loc="upper left", bbox_to_anchor=(0, -0.1), ncols=many, frameon=False)
    panels = right.subplots(3, 2).ravel()
    for panel, place in zip(panels, shown, strict=False):
        for number, values in enumerate(draws.values()):
            _density(panel, values[..., place].ravel(), series_colour(number))
        panel.set_title(names[place], fontsize="small")
        panel.set_yticks([])
    for panel in panels[len(shown) :]:
        panel.set_axis_off()
    right.suptitle("marginal densities, the largest disagreements first", fontsize="medium")


def _largest(found: Any, names: list[str]) -> list[int]:
    """Places of the estimates that disagree most, then of those whose means are furthest apart."""
    _, draws = found.entries
    flat = [values.reshape(-1, values.shape[-1]) for values in draws.values()]
    spread = np.max([each.std(0) for each in flat], axis=0)
    means = np.stack([each.mean(0) for each in flat])
    apart = np.where(spread > 0, np.ptp(means, axis=0) / np.where(spread > 0, spread, 1), -1)
    place = {name: at for at, name in enumerate(names)}
    told = [place[name] for name in dict.fromkeys(found.disagreements.get("estimate", ()))]
    rest = [at for at in np.argsort(-apart, kind="stable").tolist() if apart[at] >= 0 and at not in told]
    return (told + rest)[:MOST_ROWS]


def _scale(draws: dict[str, np.ndarray], shown: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Medians (shown,) of the first fit, and widths of the widest 90 % intervals."""
    flat = [values.reshape(-1, values.shape[-1])[:, shown] for values in draws.values()]
    width = np.max([np.ptp(np.quantile(each, [0.05, 0.95], axis=0), axis=0) for each in flat], axis=0)
    return np.median(flat[0], axis=0), np.where(width > 0, width, 1.0)


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
