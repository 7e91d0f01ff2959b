"""Figures of reward posteriors: maps, intervals and relevances.

Policies on an objectworld are drawn by :func:`ethogram.domains.objectworld.draw_policy`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ethogram.plots.axes import axes_or_new, default_title, draw_intervals, read_names
from ethogram.plots.colours import SERIES, category_colours

__all__ = [
    "grid_cells",
    "relevance_forest",
    "reward_intervals",
    "reward_map",
]

MOST_FEATURES, MOST_REWARDS = 12, 40
"""Intervals of a forest plot."""
UPWARDS = ("up", "north", "n", "+y")
LEAST_CELLS, MOST_MOVES, MOST_BLANK = 6, 0.75, 4
"""Cells of a grid, and share of the moves that must lead to a neighbour, where only the transitions say it is one; and
cells per state where names do."""


def reward_map(
    values: ArrayLike,
    cells: int | np.ndarray,
    ax: Any = None,
    *,
    visited: ArrayLike | None = None,
    limits: tuple[float | int, float | int] | None = None,
    label: str = "reward",
    cmap: str = "viridis",
) -> Any:
    """Heat map of values on a grid: a reward, its mean, or its standard deviation; blank where no state is.

    Parameters
    ----------
    values : (state,).
    cells : (state, 2) rows, 0 above, and columns; or the side length of a square that is numbered from below.
    ax : axes to draw into.
    visited : (state,) visits of the demonstrations, drawn as rings whose area grows with the count.
    limits : of the colour scale, to compare maps; default: those of the values.
    label : of the colour bar.
    cmap : colour map.
    """
    numbers, places, origin = np.asarray(values, float), np.asarray(cells), "upper"
    if isinstance(cells, int):
        places, origin = np.stack(np.divmod(np.arange(cells**2), cells), axis=-1), "lower"
    if numbers.shape != places.shape[:1] or not np.isfinite(numbers).all():
        raise ValueError(
            f"values has shape {numbers.shape}: give ({len(places)},) finite numbers, one per cell"
        )
    axes = axes_or_new(ax, (4.6, 3.8))
    image = np.full(places.max(0) + 1, np.nan)
    image[tuple(places.T)] = numbers
    shown = axes.imshow(image, origin=origin, cmap=cmap, clim=limits)
    axes.figure.colorbar(shown, ax=axes, label=label, fraction=0.046, pad=0.04)
    if visited is not None:
        times = np.asarray(visited, float)
        if times.shape != numbers.shape:
            raise ValueError(f"visited has shape {times.shape}: give ({len(places)},) numbers, one per cell")
        row, column = places[times > 0].T
        area = 60 * times[times > 0] / times.max()
        axes.scatter(column, row, s=area, facecolors="none", edgecolors="white", linewidths=0.9)
    axes.set(xticks=[], yticks=[])
    default_title(axes, label)
    return axes


def grid_cells(mdp: Any, grid: tuple[int, int] | None = None) -> np.ndarray | None:
    """Row and column (state, 2) of the states of a grid world, row 0 above; None where states are no cells of a grid.

    Parameters
    ----------
    mdp : whose states are named by row and column, such as ``"(0, 3)"``; or are numbered row by row, so that most moves
        lead to the next row or column. Rows begin below where the action ``"up"``, ``"north"`` or ``"+y"`` says so.
    grid : numbers of rows and columns, where the MDP does not say it.
    """
    count = mdp.num_states
    if grid is not None:
        if len(grid) != 2 or grid[0] * grid[1] != count:
            raise ValueError(
                f"grid is {grid}: give numbers of rows and columns, whose product is {count} states; where cells are "
                "missing, name the states of the MDP by row and column, such as '0,3'"
            )
        return np.stack(np.divmod(np.arange(count), grid[1]), axis=-1)
    named = [re.fullmatch(r"\D*(\d+)\D+(\d+)\D*", name) for name in mdp.state_names or ()]
    if named and all(named):
        cells = np.array([[int(part) for part in match.groups()] for match in named if match])
        cells = cells - cells.min(0)
        full = np.prod(cells.max(0) + 1.0) <= MOST_BLANK * count
        return cells if full and len(np.unique(cells, axis=0)) == count else None
    state, action, reached = _moves(mdp.transitions)
    shift = reached - state
    far = abs(shift[abs(shift) > 1])
    columns = int(np.bincount(far).argmax()) if len(far) else 0
    beside = abs(shift) == 1
    within = state[beside] // max(columns, 1) == reached[beside] // max(columns, 1)
    if columns < 2 or count % columns or count < LEAST_CELLS or not within.all():
        return None
    if np.isin(abs(shift), (1, columns)).mean() < MOST_MOVES:
        return None
    row, column = np.divmod(np.arange(count), columns)
    up = [at for at, name in enumerate(mdp.action_names or ()) if name.lower() in UPWARDS]
    if up and np.median(shift[(action == up[0]) & ~beside]) > 0:
        row = row.max() - row
    return np.stack([row, column], axis=-1)


def _moves(transitions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """States, actions and other states that follow with the largest probability."""
    successors, probs = transitions.successors()
    reached = np.take_along_axis(successors, probs.argmax(-1)[..., None], -1)[..., 0]
    state, action = np.nonzero(reached != np.arange(len(reached))[:, None])
    return state, action, reached[state, action]


def relevance_forest(relevance: ArrayLike, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Forest plot of relevances (inverse squared lengthscales), the largest on top: median and central 90 %.

    Parameters
    ----------
    relevance : (draw, feature). At most the twelve features of largest median are drawn.
    ax : axes to draw into.
    names : of the features; default: their numbers.
    """
    samples = np.asarray(relevance, float)
    if samples.ndim != 2 or not len(samples) or not (samples > 0).all():
        raise ValueError(f"relevance has shape {samples.shape}: give (draw, feature) numbers above 0")
    labels = read_names(names, count := samples.shape[1])
    shown = np.argsort(-np.median(samples, axis=0))[:MOST_FEATURES]
    axes = axes_or_new(ax, (4.6, 0.35 * len(shown) + 1))
    rows = np.arange(len(shown))[::-1]
    draw_intervals(axes, rows, samples[:, shown], SERIES[0], [labels[at] for at in shown], median=True)
    axes.set_xscale("log")
    axes.xaxis.get_minor_locator().set_params(subs=(2, 5))  # labels of all would overlap
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("{x:g}")
    axes.set_xlabel("relevance" if len(shown) == count else f"relevance, the largest {len(shown)} of {count}")
    default_title(axes, "relevance of the features")
    return axes


def reward_intervals(draws: ArrayLike, ax: Any = None, *, names: Sequence[str]) -> Any:
    """Means and central 90 % intervals of rewards (draw, intent, reward), one colour per intent, the highest on top.

    At most forty intervals, of the rewards that are highest in some intent.
    """
    values = np.asarray(draws, float)
    count = values.shape[1]
    shown = np.argsort(-values.mean(0).max(0), kind="stable")[: max(1, MOST_REWARDS // count)]
    axes = axes_or_new(ax, (5, 0.2 * count * len(shown) + 1))
    rows = np.arange(len(shown))[::-1]
    beside = np.linspace(0.3, -0.3, count) * (count - 1) / count
    for intent, colour in enumerate(category_colours(count)):
        draw_intervals(axes, rows + beside[intent], values[:, intent, shown], colour)
    axes.set_yticks(rows, [names[at] for at in shown], fontsize="small")
    axes.set(xlabel="reward, deviation from its mean", ylim=(-0.6, len(shown) - 0.4))
    default_title(axes, f"rewards{' by intent' * (count > 1)}: mean and 90 % interval")
    return axes
