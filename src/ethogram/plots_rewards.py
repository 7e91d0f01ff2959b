"""Pictures of a learned reward: where it is high and how sure that is, what it depends on, how it was found.

As in `ethogram.plots`, every function draws into Matplotlib axes and returns them; without them a new figure is made.
Moves of a policy on an objectworld are drawn by :func:`ethogram.domains.objectworld.draw_policy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ethogram.inference.reward_predictions import difference_coverage
from ethogram.plots import axes_or_new
from ethogram.plots_choices import probability_band

__all__ = ["coverage_curve", "learning_curve", "relevance_forest", "reward_band", "reward_map"]

NOMINAL = np.linspace(0.05, 0.95, 19)
MOST_FEATURES = 12


def reward_map(
    values: ArrayLike,
    size: int,
    ax: Any = None,
    *,
    limits: tuple[float | int, float | int] | None = None,
    visited: ArrayLike | None = None,
    label: str | None = "reward",
    cmap: str = "viridis",
) -> Any:
    """Axes with a number a cell of a square world: a reward, its mean, or its standard deviation.

    Parameters
    ----------
    values : (state,), row after row from below.
    size : cells a side.
    ax : axes to draw into.
    limits : of the colours, so that two maps can be compared; those of the values where None.
    visited : (state,) how often demonstrations were in each cell: a ring there, the larger the more often.
    label : of the colour bar; none where None.
    cmap : colours.

    Raises
    ------
    ValueError
        If the values are not finite, one a cell.
    """
    cells = np.asarray(values, float)
    if cells.shape != (size * size,) or not np.isfinite(cells).all():
        raise ValueError(f"values has shape {cells.shape}: give ({size * size},) finite numbers, one a cell")
    axes = axes_or_new(ax, (4.6, 3.8))
    low, high = (None, None) if limits is None else limits
    image = axes.imshow(cells.reshape(size, size), origin="lower", cmap=cmap, vmin=low, vmax=high)
    if label is not None:
        axes.figure.colorbar(image, ax=axes, label=label)
    if visited is not None:
        times = np.asarray(visited, float)
        if times.shape != cells.shape:
            raise ValueError(f"visited has shape {times.shape}: give ({size * size},) numbers, one a cell")
        y, x = np.divmod(np.flatnonzero(times), size)
        area = 60 * times[times > 0] / times.max()
        axes.scatter(x, y, s=area, facecolors="none", edgecolors="white", linewidths=0.9)
    axes.set(xticks=[], yticks=[])
    return axes


def reward_band(
    places: ArrayLike,
    draws: ArrayLike,
    ax: Any = None,
    *,
    truth: ArrayLike | None = None,
    truth_label: str = "truth",
    colour: Any = "C0",
) -> Any:
    """Axes with a reward, or a difference of two, along one feature: its posterior mean and central 90 %.

    Parameters
    ----------
    places : (point,) of the feature.
    draws : (draw, point).
    ax : axes to draw into.
    truth : (point,), a line to compare with.
    truth_label : what the legend calls it.
    colour : of the band.

    Raises
    ------
    ValueError
        If the shapes disagree.
    """
    at = np.asarray(places, float)
    axes = probability_band(at, draws, ax, colour=colour)
    if truth is not None:
        line = np.asarray(truth, float)
        if line.shape != at.shape:
            raise ValueError(f"truth has shape {line.shape}: give ({at.size},), one a place")
        axes.plot(at, line, color="black", linestyle="--", label=truth_label)
    axes.set_ylabel("reward")
    axes.legend(frameon=False)
    return axes


def relevance_forest(
    relevance: ArrayLike, ax: Any = None, *, names: Sequence[str] | None = None, colour: Any = "C0"
) -> Any:
    """Axes with the posterior of how fast rewards change along each feature, the largest on top: median and 90 %.

    Parameters
    ----------
    relevance : (draw, feature). No more than the twelve largest medians are drawn.
    ax : axes to draw into.
    names : of the features; numbers without them.
    colour : of the lines.

    Raises
    ------
    ValueError
        If the numbers are not positive, or names are not one a feature.
    """
    samples = np.asarray(relevance, float)
    if samples.ndim != 2 or not len(samples) or not (samples > 0).all():
        raise ValueError(f"relevance has shape {samples.shape}: give (draw, feature) numbers above 0")
    count = samples.shape[1]
    labels = [str(number) for number in range(count)] if names is None else list(names)
    if len(labels) != count:
        raise ValueError(f"names has {len(labels)} entries, there are {count} features")
    lower, middle, upper = np.percentile(samples, [5, 50, 95], axis=0)
    shown = np.argsort(-middle)[:MOST_FEATURES]
    axes = axes_or_new(ax, (4.6, 0.35 * len(shown) + 1))
    rows = np.arange(len(shown))[::-1]
    axes.hlines(rows, lower[shown], upper[shown], color=colour)
    axes.plot(middle[shown], rows, "o", color=colour)
    axes.set_xscale("log")
    axes.set_yticks(rows, [labels[place] for place in shown])
    axes.set_xlabel("relevance" if len(shown) == count else f"relevance, the largest {len(shown)} of {count}")
    return axes


def learning_curve(trace: ArrayLike, ax: Any = None, *, colour: Any = "C0") -> Any:
    """Axes with the bound on the evidence as a fit went on, and a line at that of Laplace's approximation.

    Parameters
    ----------
    trace : (evaluation,) of a :class:`~ethogram.inference.reward_result.RewardFit`.
    ax : axes to draw into.
    colour : of the curve.

    Raises
    ------
    ValueError
        If there is no evaluation.
    """
    bounds = np.asarray(trace, float)
    if bounds.ndim != 1 or not len(bounds):
        raise ValueError(f"trace has shape {bounds.shape}: give (evaluation,) bounds, one at least")
    axes = axes_or_new(ax, (4.6, 3.2))
    axes.axhline(bounds[0], color="0.5", linestyle=":", label="Laplace")
    axes.plot(bounds, color=colour, marker=".", label="natural gradient")
    axes.set(xlabel="step", ylabel="bound on the log evidence")
    axes.legend(frameon=False)
    return axes


def coverage_curve(draws: ArrayLike, truth: ArrayLike, ax: Any = None, *, colour: Any = "C0") -> Any:
    """Axes with the share of differences of true rewards that central intervals hold, against what they should hold.

    Below the diagonal the posterior is too sure. Only differences are compared: a level is not learned.

    Parameters
    ----------
    draws : (draw, point) of the reward.
    truth : (point,).
    ax : axes to draw into.
    colour : of the curve.

    Raises
    ------
    ValueError
        If the shapes disagree, or there are fewer than two points.
    """
    axes = axes_or_new(ax, (4, 3.6))
    axes.plot([0, 1], [0, 1], color="0.5", linestyle=":")
    axes.plot(NOMINAL, difference_coverage(draws, truth, NOMINAL), color=colour, marker=".")
    axes.set(
        xlabel="probability of the interval", ylabel="share of differences in it", xlim=(0, 1), ylim=(0, 1)
    )
    return axes
