"""Plots of agents with latent intent: occupancy, posterior over time, and shares of the steps.

As in `ethogram.plots`, every function draws into Matplotlib axes and returns them; a new figure is made by default. An
intent has the same colour in all plots, that of `category_colours`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ethogram.domains import labyrinth
from ethogram.plots.axes import axes_or_new, default_title, legend_beside
from ethogram.plots.colours import SERIES, category_colours

__all__ = ["intent_shares", "intent_timeline", "maze_occupancy"]

LARGEST = 3000
"""Area of a disc, in square points, for a share of 1."""

ARROW = 0.6
"""Length of an arrow in corridor widths."""

STRIP = 0.28
"""Height of the strip of change probabilities, relative to the axis from 0 to 1."""


def maze_occupancy(
    visits: ArrayLike,
    ax: Any = None,
    *,
    policy: ArrayLike | None = None,
    colour: Any = SERIES[0],
    min_visits: float | int = 5.0,
) -> Any:
    """Occupancy of the labyrinth as discs, and the most probable moves as arrows.

    The area of a disc is the share of the steps at its node. At the first fork, an arrow to the left is the move to the
    home cage.

    Parameters
    ----------
    visits : (node,) steps at each node, such as sums of posterior probabilities.
    ax : axes to draw into.
    policy : (node, action) probabilities of the moves; None draws no arrows.
    colour : of the discs.
    min_visits : number of visits from which a node has an arrow; with fewer the policy is close to its prior.

    Raises
    ------
    ValueError
        If the shapes are not those of the labyrinth, or no node is visited.
    """
    steps = np.asarray(visits, float)
    if steps.shape != (labyrinth.NUM_NODES,) or not steps.sum() > 0 or steps.min() < 0:
        raise ValueError(
            f"visits has shape {steps.shape} and sum {steps.sum():g}: give ({labyrinth.NUM_NODES},) non-negative "
            "numbers, not all 0"
        )
    axes = labyrinth.draw_maze(axes_or_new(ax, (5, 5)))
    places = labyrinth.node_positions()
    share = steps / steps.sum()
    axes.scatter(*places.T, s=LARGEST * share, color=[colour], alpha=0.75, linewidth=0, zorder=2)
    if policy is not None:
        moves = np.asarray(policy, float)
        if moves.shape != (labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS):
            raise ValueError(
                f"policy has shape {moves.shape}, not ({labyrinth.NUM_NODES}, {labyrinth.NUM_ACTIONS})"
            )
        _draw_moves(axes, places, moves, np.flatnonzero(steps >= min_visits))
    mark: dict[str, Any] = {"linestyle": "", "markersize": 13, "markeredgecolor": "white", "zorder": 4}
    home = np.array([0, places[labyrinth.HOME, 1]])
    axes.plot(*places[labyrinth.WATER], marker="*", color=SERIES[0], **mark)
    axes.plot(*home, marker="s", color="0.2", **(mark | {"markersize": 8}))
    at_water = places[labyrinth.WATER] + (0.5, 0.4)
    axes.text(*at_water, "water", ha="right", va="bottom", fontsize=9, zorder=5)
    axes.text(home[0] + 0.4, home[1] + 0.05, "home", ha="left", va="bottom", fontsize=9, zorder=5)
    default_title(axes, "occupancy and most probable moves")
    return axes


def _draw_moves(axes: Any, places: np.ndarray, policy: np.ndarray, nodes: np.ndarray) -> None:
    """Arrows from nodes in the direction of their most probable moves."""
    action = policy[nodes].argmax(-1)
    towards = places[labyrinth.next_state()[nodes, action]] - places[nodes]
    leaves = (nodes == labyrinth.HOME) & (action == labyrinth.ACTION_NAMES.index("out right"))
    towards[leaves] = (-1, 0)
    length = np.linalg.norm(towards, axis=-1, keepdims=True)
    towards = ARROW * towards / np.maximum(length, 1)
    axes.quiver(
        *places[nodes].T, *towards.T,
        angles="xy", scale_units="xy", scale=1, width=0.006, headwidth=4, headlength=4, headaxislength=3.6,
        color="0.1", zorder=3,
    )  # fmt: skip


def intent_timeline(
    probability: ArrayLike,
    ax: Any = None,
    *,
    change: ArrayLike | None = None,
    marks: Mapping[str, ArrayLike] | None = None,
    colours: Sequence[Any] | None = None,
    unit: str = "step",
) -> Any:
    """Stacked posterior probabilities of the intents over one trace.

    Parameters
    ----------
    probability : (time, intent); rows sum to one.
    ax : axes to draw into.
    change : (time - 1,) probability that the intent changes after each step, drawn in a strip below.
    marks : events by name, as time steps, drawn as ticks above.
    colours : one per intent; by default those of `category_colours`.
    unit : of the time axis.

    Raises
    ------
    ValueError
        If the shapes disagree, or rows are no probabilities.
    """
    chance = np.asarray(probability, float)
    if chance.ndim != 2 or not len(chance) or np.abs(chance.sum(-1) - 1).max() > 1e-3:
        raise ValueError(
            f"probability has shape {chance.shape}: give (time, intent) with rows that sum to one"
        )
    axes = axes_or_new(ax, (11, 3))
    num_steps, num_intents = chance.shape
    colours = category_colours(num_intents) if colours is None else colours
    edges = np.arange(num_steps + 1) - 0.5
    top = np.cumsum(chance, axis=-1)
    for intent in range(num_intents):
        bounds = [np.append(x, x[-1]) for x in (top[:, intent] - chance[:, intent], top[:, intent])]
        axes.fill_between(edges, *bounds, step="post", color=colours[intent], linewidth=0, label=str(intent))
    ticks, names = [0.0, 0.5, 1.0], ["0", "0.5", "1"]
    if change is not None:
        falls = np.asarray(change, float)
        if falls.shape != (num_steps - 1,):
            raise ValueError(f"change has shape {falls.shape}, not ({num_steps - 1},)")
        axes.vlines(np.arange(num_steps - 1) + 0.5, -0.05, -0.05 - STRIP * falls, color="0.1", linewidth=0.8)
        axes.axhline(-0.05 - STRIP, color="0.85", linewidth=0.6, zorder=0)
        ticks, names = [-0.05 - STRIP / 2, *ticks], ["change", *names]
    for row, (name, steps) in enumerate((marks or {}).items()):
        height = 1.1 + 0.13 * row
        axes.plot(np.asarray(steps), np.full(len(np.asarray(steps)), height), "|", color="0.1", markersize=7)
        ticks, names = [*ticks, height], [*names, name]
    axes.set_yticks(ticks, labels=names)
    bottom = -0.02 if change is None else -0.09 - STRIP
    axes.set(
        xlim=(-0.5, num_steps - 0.5), ylim=(bottom, 1.04 + 0.13 * len(marks or {})), xlabel=f"time ({unit}s)"
    )
    axes.set_ylabel("probability of intent")
    legend_beside(axes, "intent")
    default_title(axes, "posterior of the intents over time")
    return axes


def intent_shares(probability: ArrayLike, ax: Any = None, *, min_share: float | int = 0.01) -> Any:
    """Share of the steps of every intent: a bar for all traces, a dot for each.

    Parameters
    ----------
    probability : (sequence, time, intent), zero beyond a length.
    ax : axes to draw into.
    min_share : share from which an intent counts as used, drawn as a line.
    """
    chance = np.asarray(probability, float)
    if chance.ndim != 3 or not chance.sum() > 0:
        raise ValueError(f"probability has shape {chance.shape}: give (sequence, time, intent), not all 0")
    axes = axes_or_new(ax, (4, 3))
    held = chance.sum(1)
    each = 100 * held / np.maximum(held.sum(-1, keepdims=True), 1)
    intents = np.arange(chance.shape[-1])
    axes.bar(intents, 100 * held.sum(0) / held.sum(), color=category_colours(len(intents)), alpha=0.8)
    beside = np.linspace(-0.3, 0.3, len(each))[:, None]
    axes.plot((intents + beside).ravel(), each.ravel(), ".", color="0.2", markersize=2.5, alpha=0.6)
    axes.axhline(100 * min_share, color="0.4", linewidth=0.8, linestyle=":")
    axes.set_xticks(intents)
    axes.set(xlabel="intent", ylabel="share of steps, %", ylim=(0, None))
    default_title(axes, "share of steps; dots: traces")
    return axes
