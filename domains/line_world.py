"""Line World: five cells in a row, and an agent that goes from one end to the other and back.

The actions are left, right and wait; a step beyond an end leaves the agent where it is, as waiting does. Intent 0
is to be in cell 0, intent 1 to be in cell 4. The agent steps towards its goal and waits there, without noise. The
intent changes with the step taken at the goal, whatever the action, and with no other step; the first intent
and the first cell are uniform.

Cells, actions and goals are those of the paper. It says neither what the agent does at a goal nor when exactly its
intent changes: both are decided here.

References
----------
Unhelkar and Shah (2019), Learning Models of Sequential Decision-Making with Partial Specification of Agent Behavior.
"""

import jax
import numpy as np
from jaxtyping import Array, Bool

from ethogram.models.intent_agent import IntentAgent, Life, roll_out
from ethogram.models.trajectories import Metadata

__all__ = [
    "ACTION_NAMES", "GOALS", "NEXT_STATE", "NUM_ACTIONS", "NUM_CELLS", "random_region", "simulate", "true_agent",
]  # fmt: skip

NUM_CELLS = 5
ACTION_NAMES = ("left", "right", "wait")
NUM_ACTIONS = 3
NEXT_STATE = np.array([[0, 1, 0], [0, 2, 1], [1, 3, 2], [2, 4, 3], [3, 4, 4]])
GOALS = np.array([0, 4])


def true_agent() -> IntentAgent:
    """Tables of the agent: two intents, every entry of policy and transition 0 or 1."""
    intents, wait = np.arange(len(GOALS))[:, None], ACTION_NAMES.index("wait")
    at_goal = np.arange(NUM_CELLS) == GOALS[:, None]
    following = np.eye(len(GOALS))[np.where(at_goal, 1 - intents, intents)]
    return IntentAgent(
        initial=np.full(len(GOALS), 1 / len(GOALS)),
        transition=np.repeat(following[:, :, None], NUM_ACTIONS, axis=2),
        # The action "left" leads to the goal of intent 0, "right" to that of intent 1.
        policy=np.eye(NUM_ACTIONS)[np.where(at_goal, wait, intents)],
    )


def simulate(key: Array, num_traces: int = 5, length: int = 20) -> Life:
    """Traces of the agent of `true_agent`, and its intents.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    num_traces : number of traces.
    length : steps of a trace, each with its cell and action.

    Raises
    ------
    ValueError : a number of traces or a length below 1.

    Examples
    --------
    >>> import jax
    >>> life = simulate(jax.random.key(0))
    >>> life.data.states.shape, life.intents.shape
    ((5, 20), (5, 20))
    """
    for name, value in (("num_traces", num_traces), ("length", length)):
        if value < 1:
            raise ValueError(f"{name} is {value}: give at least 1")
    key_first, key_walk = jax.random.split(key)
    first_cells = jax.random.randint(key_first, (num_traces,), 0, NUM_CELLS)
    life = roll_out(key_walk, true_agent(), NEXT_STATE, first_cells, length)
    metadata = Metadata(name="Line World", action_names=ACTION_NAMES, time_unit="step")
    return life._replace(data=life.data._replace(metadata=metadata))


def random_region(key: Array) -> Bool[np.ndarray, "cell"]:
    """A random run of neighbouring cells that are no goal: there the intent never changes.

    Its first and last cell are two uniform draws from the cells 1, 2 and 3 in ascending order.

    Parameters
    ----------
    key : a typed key.
    """
    first, last = np.sort(np.asarray(jax.random.randint(key, (2,), 1, NUM_CELLS - 1)))
    cells = np.arange(NUM_CELLS)
    return (first <= cells) & (cells <= last)
