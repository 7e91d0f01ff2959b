"""Figures of values and of predicted choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ethogram.inference.convergence import pooled_draws
from ethogram.plots.axes import (
    axes_or_new,
    default_title,
    density_of,
    draw_intervals,
    legend_beside,
    read_names,
)
from ethogram.plots.colours import SERIES, series_colour

__all__ = ["class_profiles", "reliability", "shrinkage_panels", "value_marginals"]


def value_marginals(
    draws: ArrayLike,
    ax: Any = None,
    *,
    names: Sequence[str] | None = None,
    truth: ArrayLike | Sequence[float] | None = None,
    legend: bool = True,
) -> Any:
    """Axes with the marginal posterior of each value: density, mean, central 90 % interval, and the truth if known.

    Parameters
    ----------
    draws : (draw, value), or (chain, draw, value), as in ``mcmc.get_samples(group_by_chain=True)``.
    ax : axes to draw into.
    names : of the values; None numbers them.
    truth : (value,), shown as crosses.
    legend : whether to draw one, above the first value.

    Warns
    -----
    UserWarning
        If the draws have fewer than 100 effective samples, or chains an r_hat above 1.01.
    """
    given = np.asarray(draws, float)
    if given.ndim not in (2, 3) or np.prod(given.shape[:-1]) < 2:
        raise ValueError(
            f"draws has shape {given.shape}: give two or more, (draw, value) or (chain, draw, value)"
        )
    labels = read_names(names, count := given.shape[-1])
    if truth is not None and np.shape(truth) != (count,):
        raise ValueError(f"truth has shape {np.shape(truth)}: give ({count},), one per value")
    samples = pooled_draws("values", given)
    axes = axes_or_new(ax, (5, 0.8 * count + 1))
    rows = np.arange(count)[::-1]
    for row, values in zip(rows, samples.T, strict=True):
        if np.ptp(values) > 0:
            places, density = density_of(values)
            half = 0.4 * density / density.max()
            axes.fill_between(places, row - half, row + half, color=SERIES[0], alpha=0.45, linewidth=0)
    draw_intervals(axes, rows, samples, SERIES[0], labels, label="posterior mean, 90 % interval")
    if truth is not None:
        axes.plot(
            np.asarray(truth, float), rows, "x", color="black", markersize=9, markeredgewidth=2, label="truth"
        )
    axes.axvline(0, color="0.8", linewidth=1, zorder=0)
    axes.set_ylim(-0.6, count - 0.4 * (not legend))  # room for the legend above the first row
    axes.set_xlabel("value")
    if legend:
        axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=2)
    default_title(axes, "posterior of the values")
    return axes


def shrinkage_panels(
    figure: Any, own: np.ndarray, fitted: np.ndarray, mean: np.ndarray, names: Sequence[str]
) -> None:
    """A panel per value: estimates (subject, value) of subjects by themselves and in the fit, and the mean (value,).

    On the diagonal nothing is borrowed from others; on the horizontal line everything is.
    """
    columns = max(min(len(names), 3), 1)
    panels = figure.subplots(-(-len(names) // columns) or 1, columns, squeeze=False).ravel()
    for panel in panels[len(names) :]:
        panel.set_axis_off()
    for at, (panel, name) in enumerate(zip(panels, names, strict=False)):
        ends = np.quantile(
            own[:, at], [0.02, 0.98]
        )  # of subjects whose choices are separated some are far out
        low, high = (min(ends[0], fitted[:, at].min()), max(ends[1], fitted[:, at].max()))
        room = 0.05 * (high - low) or 1.0
        panel.axline((low, low), slope=1, color="0.7", linewidth=1, zorder=0, label="own estimate")
        panel.axhline(mean[at], color=SERIES[1], linewidth=1, label="population")
        panel.plot(own[:, at], fitted[:, at], "o", color=SERIES[0], markersize=4, alpha=0.6, label="subject")
        panel.set(xlim=(low - room, high + room), xlabel="by its own decisions", title=name)
    panels[0].set_ylabel("in the fit")
    panels[0].legend(frameon=False, fontsize=8)


def class_profiles(
    figure: Any, shares: np.ndarray, values: np.ndarray, classes: Sequence[str], names: Sequence[str]
) -> None:
    """Shares (draw, class) of classes, and beside them values (draw, class, value) of each: means, 90 % intervals."""
    left, right = figure.subplots(1, 2, width_ratios=(1, 2))
    rows = np.arange(len(classes))[::-1]
    for number in range(len(classes)):
        draw_intervals(left, rows[[number]], shares[:, [number]], series_colour(number))
    left.set_yticks(rows, classes)
    left.set(xlim=(0, 1), ylim=(-0.6, len(classes) - 0.4), xlabel="share of the subjects")
    rows, many = np.arange(len(names))[::-1].astype(float), len(classes)
    for number, name in enumerate(classes):
        at = rows + 0.6 * ((many - 1) / 2 - number) / many
        draw_intervals(right, at, values[:, number], series_colour(number), label=name)
    right.set_yticks(rows, names)
    right.axvline(0, color="0.8", linewidth=1, zorder=0)
    right.set(ylim=(-0.6, len(names) - 0.4), xlabel="utility per unit")
    default_title(right, "values by class, means and 90 % intervals")


def reliability(table: Any, ax: Any = None) -> Any:
    """Axes with a reliability diagram: observed shares of chosen options against predicted probabilities.

    Small numbers are the counts of options in each bin, over all decisions.

    Parameters
    ----------
    table : `Calibration`; error bars are two standard errors.
    ax : axes to draw into.
    """
    axes = axes_or_new(ax, (6, 4))
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, zorder=0, label="perfect calibration")
    axes.errorbar(
        table.predicted,
        table.chosen,
        2 * table.error,
        fmt="o",
        color=SERIES[0],
        capsize=3,
        label="observed, two standard errors",
    )
    for place, share, count in zip(table.predicted, table.chosen, table.options, strict=True):
        # Below and to the right, but inside the axes.
        offset = (6 if place < 0.93 else -6, -10 if share > 0.1 else 0)
        text = axes.annotate(f"{count:.0f}", (place, share), offset, textcoords="offset points")
        text.set(ha="left" if place < 0.93 else "right", fontsize=8, color="0.4")
    axes.set(xlabel="predicted probability", ylabel="share chosen", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_aspect("equal")
    legend_beside(axes, "numbers: options in the bin")
    default_title(axes, "calibration of predictions")
    return axes
