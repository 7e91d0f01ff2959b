"""Checked traces of states, actions and evidence, step by step."""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ethogram.models.blocks.conjugate_block import is_concrete
from ethogram.models.mdp import MDP
from ethogram.models.trajectories import Trajectories

__all__ = ["AgentSteps", "read_steps", "require_possible"]


class AgentSteps(NamedTuple):
    """Checked traces, step by step (sequence, time)."""

    state: np.ndarray
    action: np.ndarray  # -1 where missing or beyond the length
    pair: np.ndarray
    stay: np.ndarray
    inside: np.ndarray
    leaving: np.ndarray  # steps that a transition leaves: all but the last


def read_steps(data: Trajectories, num_states: int, num_actions: int, said: bool) -> AgentSteps:
    """Traces step by step; evidence is looked at where `said`.

    Raises
    ------
    TypeError
        If states, actions or lengths are traced.
    ValueError
        If states or actions are not there or out of range, or evidence is missing, no evidence, or of a step that no
        step follows.
    """
    for name in ("states", "actions"):
        if getattr(data, name) is None:
            raise ValueError(f"data.{name} is None: give {name} (sequence, time)")
        if not is_concrete(getattr(data, name), data.lengths):
            raise TypeError(f"data.{name} is traced: rows are counted before jit; use arrange")
    states, actions = (np.asarray(x).astype(np.int64) for x in (data.states, data.actions))
    inside = np.arange(states.shape[1]) < np.asarray(data.lengths)[:, None]
    actions = np.where(inside & np.asarray(data.observed), actions, -1)
    checks = (("states", states, num_states, 0), ("actions", actions, num_actions, -1))
    for name, values, count, least in checks:
        wrong = inside & ((values < least) | (values >= count))
        if wrong.any():
            at = np.argwhere(wrong)[0].tolist()
            raise ValueError(
                f"data.{name}{at} is {values[tuple(at)]}, outside {least}..{count - 1}"
                + (": a trace cannot miss a state; cut it there" if least == 0 else " (-1 is missing)")
            )
    leaving = np.pad(inside[:, 1:], ((0, 0), (0, 1)))
    stay = _evidence(data, inside, leaving) if said else np.full(inside.shape, -1)
    pair = np.where(inside, states * (num_actions + 1), 0)
    pair = pair + np.where(inside, np.where(actions < 0, num_actions, actions), 0)
    return AgentSteps(states, actions, pair, stay, inside, leaving)


def require_possible(mdp: MDP, steps: AgentSteps) -> None:
    """Raise ValueError at the first step that the world makes with probability zero."""
    sequence, time = np.nonzero(steps.leaving)
    state, action = steps.state[sequence, time], steps.action[sequence, time]
    after, every = steps.state[sequence, time + 1], np.arange(mdp.num_actions)
    with jax.ensure_compile_time_eval():  # inside jit too, where the world and the traces are known
        likely = np.asarray(mdp.probability(state[:, None], every, after[:, None])) > 0
    taken = (action[:, None] < 0) | (action[:, None] == every)
    wrong = np.flatnonzero(~(likely & taken).any(1))
    if wrong.size:
        i = wrong[0]
        by = "no action" if action[i] < 0 else f"action {action[i]} never"
        raise ValueError(
            f"data.states[{sequence[i]}, {time[i] + 1}] is {after[i]}: {by} leads there from {state[i]}; "
            "mend the trace, or the world"
        )


def _evidence(data: Trajectories, inside: np.ndarray, leaving: np.ndarray) -> np.ndarray:
    """What was said of each step that is left: 1, 0, or -1."""
    if data.stay is None:
        raise ValueError(
            "data.stay is None: stay_accuracy needs what was said (sequence, time), -1 for nothing"
        )
    stay = np.where(inside, np.asarray(data.stay), -1)
    wrong = (stay < -1) | (stay > 1)
    if wrong.any():
        at = np.argwhere(wrong)[0].tolist()
        raise ValueError(f"data.stay{at} is {stay[tuple(at)]}: 1 stayed, 0 changed, -1 nothing said")
    late = (stay >= 0) & ~leaving
    if late.any():
        at = np.argwhere(late)[0].tolist()
        raise ValueError(
            f"data.stay{at} says something of a step that is not left: the trace has {data.lengths[at[0]]} "
            "steps, and evidence is of the change to the next one"
        )
    return np.where(leaving, stay, -1)
