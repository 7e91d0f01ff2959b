"""Line World: a gridworld of five cells in a row, and an agent that shuttles between its ends.

The actions are left, right and wait; the ends are walls. The goal of intent 0 is cell 0, that of intent 1 is cell 4.
The agent steps towards its goal and waits there, deterministically. The intent switches at the step taken at the goal,
whatever the action, and at no other step; the initial intent and cell are uniform.

Cells, actions and goals are those of the paper, which gives neither the action at a goal nor the time of the switch:
both are choices made here.

References
----------
Unhelkar and Shah (2019), Learning Models of Sequential Decision-Making with Partial Specification of Agent Behavior.
"""

import jax
import numpy as np
from jaxtyping import Array, Bool

from ethogram.models.arguments import require_integer, require_key
from ethogram.models.data.trajectories import Metadata
from ethogram.models.intents import IntentAgent, Rollout, roll_out

__all__ = [
    "ACTION_NAMES", "GOALS", "NEXT_STATE", "NUM_ACTIONS", "NUM_CELLS", "random_region", "simulate", "true_agent",
]  # fmt: skip

NUM_CELLS = 5
ACTION_NAMES = ("left", "right", "wait")
NUM_ACTIONS = 3
NEXT_STATE = np.array([[0, 1, 0], [0, 2, 1], [1, 3, 2], [2, 4, 3], [3, 4, 4]])
GOALS = np.array([0, 4])


def true_agent() -> IntentAgent:
    """The true agent: two intents, with deterministic policies and transitions."""
    intents, wait = np.arange(len(GOALS))[:, None], ACTION_NAMES.index("wait")
    at_goal = np.arange(NUM_CELLS) == GOALS[:, None]
    following = np.eye(len(GOALS))[np.where(at_goal, 1 - intents, intents)]
    return IntentAgent(
        initial=np.full(len(GOALS), 1 / len(GOALS)),
        transition=np.repeat(following[:, :, None], NUM_ACTIONS, axis=2),
        # Action "left" moves towards the goal of intent 0, "right" towards that of intent 1.
        policy=np.eye(NUM_ACTIONS)[np.where(at_goal, wait, intents)],
    )


def simulate(key: Array, num_traces: int = 5, length: int = 20) -> Rollout:
    """Simulated traces of `true_agent`, with its intents.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    num_traces : number of traces.
    length : steps of a trace, each with its cell and action.

    Examples
    --------
    >>> import jax
    >>> rollout = simulate(jax.random.key(0))
    >>> rollout.data.states.shape, rollout.intents.shape
    ((5, 20), (5, 20))
    """
    require_key(key)
    require_integer("num_traces", num_traces, 1)
    require_integer("length", length, 1)
    key_first, key_walk = jax.random.split(key)
    first_cells = jax.random.randint(key_first, (num_traces,), 0, NUM_CELLS)
    rollout = roll_out(key_walk, true_agent(), NEXT_STATE, first_cells, length)
    metadata = Metadata(name="Line World", action_names=ACTION_NAMES, time_unit="step")
    return rollout._replace(data=rollout.data._replace(metadata=metadata))


def random_region(key: Array) -> Bool[np.ndarray, "cell"]:
    """Mask of a random run of cells without a goal, in which the intent never changes.

    The first and last cell are two uniform draws from cells 1 to 3, sorted.

    Parameters
    ----------
    key : a typed key.
    """
    require_key(key)
    first, last = np.sort(np.asarray(jax.random.randint(key, (2,), 1, NUM_CELLS - 1)))
    cells = np.arange(NUM_CELLS)
    return (first <= cells) & (cells <= last)
