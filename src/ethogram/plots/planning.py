"""Figures of plans and of the episodes of a planner."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ethogram.models.arguments import require_integer
from ethogram.plots.axes import axes_or_new
from ethogram.plots.colours import SERIES

__all__ = ["episode_timeline", "plan_marginals"]

SMALL, SMALLEST = 8.5, 6.0
"""Font sizes of the names of rows."""
LONGEST = 34
"""Letters of a name that are drawn."""


def plan_marginals(plan: Any, actions: Sequence[str], *, most: int = 12, ax: Any = None) -> Any:
    """A heat map of the probabilities of actions, by steps ahead.

    Parameters
    ----------
    plan : of :func:`ethogram.plan`; its first column is the action taken.
    actions : names of all actions.
    most : rows; the actions that are most probable at some step are shown.
    ax : axes to draw into; new ones by default.
    """
    count = plan.marginals.shape[1]
    if len(actions) != count:
        raise ValueError(f"actions has {len(actions)} names: expected those of the plan's {count} actions")
    if not count:
        raise ValueError("plan is of a problem without actions: there is nothing to draw")
    require_integer("most", most, 1)
    shown = np.sort(np.argsort(-plan.marginals.max(0), kind="stable")[:most])
    ax = axes_or_new(ax, (6, _height(len(shown))))
    image = ax.imshow(plan.marginals[:, shown].T, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="probability")
    _name_rows(ax, [_short(actions[i]) for i in shown])
    _count_steps(ax, "steps ahead")
    ax.set_title(f"plan, value {plan.value:.1f}")
    return ax


def episode_timeline(episodes: Any, number: int = 0, *, ax: Any = None) -> Any:
    """The fluents that are true at each step of an episode, with the actions taken as crosses.

    An action is marked in the row of the fluent of the same objects, or in a row of its own.

    Parameters
    ----------
    episodes : of :func:`ethogram.planning.play_episodes`.
    number : which episode.
    ax : axes to draw into; new ones by default.
    """
    if not -len(episodes.states) <= number < len(episodes.states):
        raise IndexError(f"number = {number}: there are {len(episodes.states)} episodes")
    states, actions = episodes.states[number], episodes.actions[number]
    fluents = sorted({name for state in states for name in state}, key=_natural)
    places = {_objects(name): row for row, name in reversed(list(enumerate(fluents)))}
    extra = sorted(
        {name for step in actions for name in step if not (_objects(name) and _objects(name) in places)},
        key=_natural,
    )
    rows = {name: len(fluents) + i for i, name in enumerate(extra)}
    true = np.zeros((len(fluents) + len(extra), len(states)))
    for time, state in enumerate(states):
        for name in state:
            true[fluents.index(name), time] = 1
    ax = axes_or_new(ax, (7, _height(len(true))))
    ax.imshow(true, cmap="Blues", vmin=0, vmax=2, aspect="auto", interpolation="nearest")
    room = _name_rows(ax, [_short(name) for name in [*fluents, *extra]])
    _count_steps(ax, "step")
    at = [
        (time, rows.get(name, places.get(_objects(name), 0)))
        for time, step in enumerate(actions)
        for name in step
    ]
    if at:
        kinds = sorted({name.partition("___")[0] for step in actions for name in step})
        label = kinds[0] if len(kinds) == 1 else "action"
        ax.plot(*np.array(at).T, "x", color=SERIES[2], markersize=min(6, max(0.8 * room, 2)), label=label)
        below = {"loc": "upper right", "bbox_to_anchor": (1.0, 0.0), "borderaxespad": 1.8, "borderpad": 0.0}
        ax.legend(**below, frameon=False, handletextpad=0.2)
    ax.set_title(f"what happened, return {episodes.returns[number]:.1f}")
    return ax


def _height(rows: int) -> float:
    """Inches of a new figure with so many rows of names."""
    return float(np.clip(1.2 + 0.17 * rows, 4, 14))


def _name_rows(ax: Any, names: Sequence[str]) -> float:
    """Name the rows of a heat map, not all of them where they are many; returns the height of a row in points."""
    room = ax.get_window_extent().height / ax.figure.dpi * 72 / max(len(names), 1)
    apart = max(math.ceil(SMALLEST / room), 1)
    size = min(SMALL, max(0.9 * room * apart, SMALLEST))
    rows = range(0, len(names), apart)
    ax.set_yticks(rows, [_cut(names[row]) for row in rows], fontsize=size)
    return room


def _count_steps(ax: Any, label: str) -> None:
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True, min_n_ticks=1))
    ax.set_xlabel(label)


def _cut(name: str) -> str:
    """A name without its middle if it is long."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2 - 1]}…{name[-LONGEST // 2 :]}"


def _objects(name: str) -> str:
    return name.partition("=")[0].partition("___")[2]


def _short(name: str) -> str:
    """A name as people write it: running(c1)."""
    base, value, rest = name.partition("=")
    fluent, objects, places = base.partition("___")
    return (f"{fluent}({', '.join(places.split('__'))})" if objects else fluent) + (
        f" = {rest}" if value else ""
    )


def _natural(name: str) -> list[Any]:
    """Key that sorts c2 before c10."""
    digits = "".join(each if each.isdigit() else " " for each in name).split()
    return ["".join(each for each in name if not each.isdigit()), *map(int, digits)]
