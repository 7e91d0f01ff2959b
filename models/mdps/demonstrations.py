"""Demonstrations of actions in an MDP: checked step by step, counted by state and action, and their log likelihood."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.arguments import concretely, is_concrete, require, require_kind
from ethogram.models.data.state_action_steps import AgentSteps, read_steps
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.mdp import MDP

__all__ = [
    "count_log_likelihood",
    "demonstration_counts",
    "demonstration_value",
    "num_experts",
    "read_demonstrations",
    "require_possible",
]


def demonstration_counts(
    mdp: MDP, data: Any, *, check_transitions: bool = True, num_agents: int | None = None
) -> Float[np.ndarray, "*agent state action"]:
    """Counts n(s, a) of state-action pairs; per `data.subject` where `num_agents` is given.

    Parameters
    ----------
    mdp : S states, A actions.
    data : `Trajectories` with states and actions, or counts (state, action), which are checked.

    Raises
    ------
    ValueError : an action is not available, a step has probability zero (unless `check_transitions` is False), or every
        action is missing.
    """
    if isinstance(data, list | tuple) and not isinstance(data, Trajectories):
        raise TypeError(
            "demonstrations is a list, of pairs or of counts: pass Trajectories.from_list(states=[[...]], "
            "actions=[[...]]), Trajectories.from_episodes for episode objects, or counts (state, action) as a NumPy "
            "array"
        )
    if hasattr(data, "columns"):
        raise TypeError(
            f"demonstrations is a table ({type(data).__name__}), of steps or of counts: pass "
            "Trajectories.from_table(table, sequence=, time=, ...), or counts (state, action) as a NumPy array"
        )
    if hasattr(data, "ndim"):
        return _read_counts(mdp, np.asarray(data))
    steps = read_demonstrations(mdp, data, check_transitions)
    lead = () if num_agents is None else (num_agents,)
    counts = np.zeros((*lead, mdp.num_states, mdp.num_actions))
    known = steps.inside & (steps.action >= 0)
    at: tuple[np.ndarray, ...] = (steps.state[known], steps.action[known])
    if num_agents is not None:
        at = (np.broadcast_to(np.asarray(data.subject)[:, None], known.shape)[known], *at)
    np.add.at(counts, at, 1)
    return counts


def _read_counts(mdp: MDP, counts: np.ndarray) -> np.ndarray:
    require_kind("demonstrations", counts, "iu", "give integer counts (state, action)")
    if counts.shape != (mdp.num_states, mdp.num_actions):
        raise ValueError(
            f"demonstrations has shape {counts.shape}: give counts (state, action), here "
            f"({mdp.num_states}, {mdp.num_actions})"
        )
    require(counts >= 0, "demonstrations", counts, ": a count is 0 or more")
    if not counts.any():
        raise ValueError("demonstrations is all 0: give counts with at least one action")
    if mdp.action_mask is not None:
        fix = ", but this action is not available in this state: correct the counts, or the MDP's action_mask"
        require((counts == 0) | np.asarray(mdp.action_mask), "demonstrations", counts, fix)
    return counts.astype(float)


def read_demonstrations(mdp: MDP, data: Any, check_transitions: bool = True) -> AgentSteps:
    """Checked demonstrations, step by step; refused as by :func:`demonstration_counts`."""
    if not isinstance(data, Trajectories):
        raise TypeError(
            f"demonstrations is {type(data).__name__}: give Trajectories with states and actions, by from_list, "
            "from_table or from_episodes, or counts (state, action) as an array of integers"
        )
    mdp.require_names_of(data)
    steps = read_steps(data, mdp.num_states, mdp.num_actions)
    known = steps.inside & (steps.action >= 0)
    if not known.any():
        raise ValueError(
            "demonstrations have no observed action: give Trajectories with actions of 0 or more"
        )
    if mdp.action_mask is not None:
        available = np.asarray(mdp.action_mask)[*np.where(known, (steps.state, steps.action), 0)]
        fix = ", which is not available in its state: correct the trace, or the MDP's action_mask"
        require(~known | available, "demonstrations.actions", steps.action, fix)
    if check_transitions:
        require_possible(mdp, steps)
    return steps


def require_possible(mdp: MDP, steps: AgentSteps) -> None:
    """Raise ValueError at the first transition of probability zero."""
    sequence, time = np.nonzero(steps.leaving)
    state, action = steps.state[sequence, time], steps.action[sequence, time]
    after, every = steps.state[sequence, time + 1], np.arange(mdp.num_actions)
    likely = np.asarray(mdp.probability(state[:, None], every, after[:, None])) > 0
    taken = (action[:, None] < 0) | (action[:, None] == every)
    wrong = np.flatnonzero(~(likely & taken).any(1))
    if wrong.size:
        i = wrong[0]
        by = "no action" if action[i] < 0 else f"action {action[i]} never"
        raise ValueError(
            f"data.states[{sequence[i]}, {time[i] + 1}] is {after[i]}: {by} leads there from {state[i]}; "
            "correct the trace, or the transitions of the MDP"
        )


def num_experts(demonstrations: Any) -> int | None:
    """Number of experts in the demonstrations; None where they are pooled."""
    if not isinstance(demonstrations, Trajectories) or demonstrations.subject is None:
        return None
    subject = demonstrations.subject
    if not is_concrete(subject):
        raise TypeError(
            "demonstrations.subject is traced: the number of experts is a shape; give concrete data"
        )
    subject = np.asarray(subject)
    rule = ": number the expert of every demonstration from 0, or leave subject out to pool them"
    require(subject >= 0, "demonstrations.subject", subject, rule)
    return int(np.max(subject, initial=-1)) + 1


def demonstration_value(data: Trajectories) -> Array:
    """Integers (sequence, time, 2), a state and an action per step; -1 where missing, and in padding."""

    def value(xp, states, actions, lengths, observed):
        inside = (xp.arange(states.shape[1]) < lengths[:, None]) & observed
        return xp.where(inside[..., None], xp.stack([states, actions], -1), -1)

    return concretely(value, data.states, data.actions, data.lengths, data.observed)


def count_log_likelihood(log_policy: Array, counts: Array, axis: Any = None) -> Array:
    """Log likelihood of counts n(s, a), summed over axes: an action that was never taken may have probability zero."""
    taken = counts > 0
    return jnp.sum(jnp.where(taken, counts * jnp.where(taken, log_policy, 0), 0), axis=axis)
