"""Plots of agents with latent intent: posterior over time, and shares of the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ethogram.plots.axes import axes_or_new, default_title, legend_beside, read_names
from ethogram.plots.colours import category_colours

__all__ = ["intent_shares", "intent_timeline"]

STRIP = 0.28
"""Height of the strip of change probabilities, relative to the axis from 0 to 1."""


def intent_timeline(
    probability: ArrayLike,
    ax: Any = None,
    *,
    change: ArrayLike | None = None,
    marks: Mapping[str, ArrayLike] | None = None,
) -> Any:
    """Stacked posterior probabilities of the intents over one trace.

    Parameters
    ----------
    probability : (time, intent); rows sum to one.
    ax : axes to draw into.
    change : (time - 1,) probability that the intent changes after each step, drawn in a strip below.
    marks : events by name, as time steps, drawn as ticks above.
    """
    chance = np.asarray(probability, float)
    if chance.ndim != 2 or not len(chance) or np.abs(chance.sum(-1) - 1).max() > 1e-3:
        raise ValueError(
            f"probability has shape {chance.shape}: give (time, intent) with rows that sum to one"
        )
    axes = axes_or_new(ax, (11, 3))
    num_steps, num_intents = chance.shape
    colours = category_colours(num_intents)
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
        xlim=(-0.5, num_steps - 0.5), ylim=(bottom, 1.04 + 0.13 * len(marks or {})), xlabel="time (steps)"
    )
    axes.set_ylabel("probability of intent")
    legend_beside(axes, "intent")
    default_title(axes, "posterior of the intents over time")
    return axes


def intent_shares(probability: ArrayLike, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Share of the steps of every intent: a bar for all traces, a dot for each; dotted, the 1 % of an intent in use.

    Parameters
    ----------
    probability : (sequence, time, intent), zero beyond a length.
    ax : axes to draw into.
    names : of the intents; their numbers where None.
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
    axes.axhline(1, color="0.4", linewidth=0.8, linestyle=":")
    titles = read_names(names, len(intents))
    turned: dict[str, Any] = {"rotation": 40, "ha": "right"} if max(map(len, titles)) > 2 else {}
    axes.set_xticks(intents, titles, **turned)
    axes.set(xlabel="intent", ylabel="share of steps, %", ylim=(0, None))
    default_title(axes, "share of steps; dots: traces")
    return axes
