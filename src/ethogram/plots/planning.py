"""Figures of plans and of the episodes of a planner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ethogram.inference.planning import Episodes, Plan
from ethogram.plots.axes import axes_or_new

__all__ = ["episode_timeline", "plan_marginals"]


def plan_marginals(plan: Plan, actions: Sequence[str], *, most: int = 12, ax: Any = None) -> Any:
    """A heat map of the probabilities of actions, by steps ahead.

    Parameters
    ----------
    plan : of :func:`ethogram.plan`; its first column is the action taken.
    actions : names of all actions.
    most : rows; the actions that are most probable at some step are shown.
    ax : axes to draw into; new ones by default.
    """
    ax = axes_or_new(ax, (6, 4))
    shown = np.sort(np.argsort(-plan.marginals.max(0), kind="stable")[:most])
    image = ax.imshow(plan.marginals[:, shown].T, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="probability")
    ax.set_yticks(range(len(shown)), [_short(actions[i]) for i in shown])
    ax.set(xlabel="steps ahead", title=f"plan, value {plan.value:.1f}")
    return ax


def episode_timeline(episodes: Episodes, number: int = 0, *, ax: Any = None) -> Any:
    """The fluents that are true at each step of an episode, with the actions taken as crosses.

    An action is marked in the row of the fluent of the same objects, or in a row of its own.

    Parameters
    ----------
    episodes : of :func:`ethogram.planning.play_episodes`.
    number : which episode.
    ax : axes to draw into; new ones by default.

    Raises
    ------
    IndexError : there is no such episode.
    """
    ax = axes_or_new(ax, (7, 4))
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
    ax.imshow(true, cmap="Blues", vmin=0, vmax=2, aspect="auto", interpolation="nearest")
    at = [
        (time, rows.get(name, places.get(_objects(name), 0)))
        for time, step in enumerate(actions)
        for name in step
    ]
    if at:
        kinds = sorted({name.partition("___")[0] for step in actions for name in step})
        ax.plot(*np.array(at).T, "x", color="tab:red", label=kinds[0] if len(kinds) == 1 else "action")
        ax.legend(loc="lower right")
    ax.set_yticks(range(len(true)), [_short(name) for name in [*fluents, *extra]], fontsize="small")
    ax.set(xlabel="step", title=f"what happened, return {episodes.returns[number]:.1f}")
    return ax


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
