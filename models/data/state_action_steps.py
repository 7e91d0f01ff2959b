"""Checked state-action traces, with evidence on whether a hidden state stayed, step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import is_concrete, require
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.printing import short_repr

__all__ = ["AgentSteps", "earlier", "known_actions", "log_prob_of_actions", "read_steps"]


@short_repr
class AgentSteps(NamedTuple):
    """Checked traces, step by step: arrays (sequence, time).

    Attributes
    ----------
    state : integers.
    action : integers, -1 where missing or beyond the length.
    pair : integers, state * (num_actions + 1) + action, a missing action being the last one.
    stay : 1 stayed, 0 changed, -1 unknown.
    inside : booleans, whether the step lies within the sequence.
    leaving : booleans, steps that a transition leaves: all but the last.
    """

    state: np.ndarray
    action: np.ndarray
    pair: np.ndarray
    stay: np.ndarray
    inside: np.ndarray
    leaving: np.ndarray


def read_steps(
    data: Trajectories, num_states: int, num_actions: int, use_stay_labels: bool = False
) -> AgentSteps:
    """Traces step by step, whose states and actions (sequence, time) are below `num_states` and `num_actions`.

    The evidence of ``data.stay`` is part of them if `use_stay_labels`, else unknown.
    """
    for name in ("states", "actions"):
        if getattr(data, name) is None:
            episodes = ", in Trajectories.from_episodes by as_states=True" if name == "states" else ""
            raise ValueError(f"data.{name} is None: give {name} (sequence, time){episodes}")
        if not is_concrete(getattr(data, name), data.lengths):
            raise TypeError(f"data.{name} is traced: rows are counted before jit; use arrange")
    states, actions = (np.asarray(x).astype(np.int64) for x in (data.states, data.actions))
    inside = np.arange(states.shape[1]) < np.asarray(data.lengths)[:, None]
    actions = np.where(inside & np.asarray(data.observed), actions, -1)
    rule = f", outside 0..{num_states - 1}; where one is missing (-1), make the steps before and after it two sequences"
    require(~inside | ((states >= 0) & (states < num_states)), "data.states", states, rule)
    rule = f", outside -1..{num_actions - 1} (-1 is missing)"
    require(~inside | ((actions >= -1) & (actions < num_actions)), "data.actions", actions, rule)
    leaving = np.pad(inside[:, 1:], ((0, 0), (0, 1)))
    stay = _evidence(data, inside, leaving) if use_stay_labels else np.full(inside.shape, -1)
    pair = np.where(inside, states * (num_actions + 1), 0)
    pair = pair + np.where(inside, np.where(actions < 0, num_actions, actions), 0)
    return AgentSteps(states, actions, pair, stay, inside, leaving)


def known_actions(xp: Any, actions: Any, lengths: Any, observed: Any) -> Any:
    """Actions (sequence, time), -1 where missing and beyond a length; in NumPy or jax.numpy."""
    return xp.where((xp.arange(actions.shape[1]) < lengths[:, None]) & observed, actions, -1)


def earlier(values: np.ndarray, lag: int) -> np.ndarray:
    """Values (sequence, time) of `lag` steps before; -1 before the first step."""
    return np.pad(values, ((0, 0), (lag, 0)), constant_values=-1)[:, : values.shape[1]]


def log_prob_of_actions(policy: np.ndarray, data: Trajectories) -> np.ndarray:
    """Log probability (sequence,) of the known actions under a policy (state, action), in nats.

    States and actions are checked as by `read_steps`.
    """
    num_states, num_actions = policy.shape
    steps = read_steps(data, num_states, num_actions)
    with np.errstate(divide="ignore"):
        each = np.log(policy)[np.where(steps.inside, steps.state, 0), np.maximum(steps.action, 0)]
    return np.where(steps.action >= 0, each, 0).sum(1)


def _evidence(data: Trajectories, inside: np.ndarray, leaving: np.ndarray) -> np.ndarray:
    """Whether the hidden state stayed after each step: 1, 0, or -1."""
    if data.stay is None:
        raise ValueError(
            "data.stay is None: stay_accuracy needs stay labels (sequence, time): 1 stayed, 0 changed, -1 unknown"
        )
    stay = np.where(inside, np.asarray(data.stay), -1)
    require((stay >= -1) & (stay <= 1), "data.stay", stay, ": pass 1 (stayed), 0 (changed) or -1 (unknown)")
    late = (stay >= 0) & ~leaving
    for at in np.argwhere(late)[:1].tolist():
        raise ValueError(
            f"data.stay{at} is given for the last step: the trace has {data.lengths[at[0]]} steps, and a stay label "
            "concerns the change to the next one; set it to -1"
        )
    return np.where(leaving, stay, -1)
