"""Highway: a police car and two civilian cars; the police patrols until the others race, then pursues.

There are four lanes: left shoulder 0, driving lanes 1 and 2, right shoulder 3. In each driving lane one civilian car is
ahead by a gap of 0 to 4 cells, where 0 is level and 4 is far. The state is (lane of the police, gap_1, gap_2, racing
flag), 200 in all; the flag is 1 if the gaps differed by at most 1 one step before. The actions are left, stay and
right; moves beyond a shoulder have no effect.

Each gap closes by one cell with probability `p_fast`, independently of the other and of the action. A car that is level
is passed at the next step and replaced by one 3 or 4 cells ahead, with equal probability.

The cars are racing if the flag is 1, the gaps differ by at most 1 and both lie in 1..3. Intent 0 is patrol, intent 1
is pursuit. Patrol switches to pursuit at the step taken while the cars are racing; pursuit switches to patrol at the
step taken level with the car of the own lane; the action does not matter. In 48 states one of the two intents
switches, in the other 152 neither does.

On patrol the police keeps its lane while it is free, that is, the car in it is at least two cells ahead. Otherwise it
takes the other lane if that is free, else the shoulder beside its own lane; from a shoulder it returns to the lane
beside it once that is free. In pursuit it moves, one lane per step, to the lane of the car with the smaller gap and
stays there; with equal gaps it moves to, or stays in, the nearest driving lane. With probability `eps` it takes one of
the two other actions, with equal probability. A trace begins on patrol in lane 1 or 2, with uniform gaps and flag 0.

The number of states, the two intents and the faster police car are the paper's; it gives neither the state encoding nor
the tables, which are choices made here. With `eps` 0.01, ln 3 minus the entropy of the policy is 1.04, the paper's
value for a maximum-entropy policy.

References
----------
Unhelkar and Shah (2019), Learning Models of Sequential Decision-Making with Partial Specification of Agent Behavior.
"""

from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.arguments import (
    read_array,
    require,
    require_integer,
    require_key,
    require_kind,
    require_number,
)
from ethogram.models.data.trajectories import Metadata
from ethogram.models.intents import IntentAgent, Rollout, roll_out

__all__ = [
    "ACTION_NAMES", "NUM_ACTIONS", "NUM_STATES", "SHAPE", "HighwayState", "random_region", "simulate",
    "state_parts", "transitions", "true_agent",
]  # fmt: skip

NUM_LANES, NUM_GAPS = 4, 5
SHAPE = (NUM_LANES, NUM_GAPS, NUM_GAPS, 2)
"""Values of each part of a state; the number of a state is ``np.ravel_multi_index(parts, SHAPE)``."""
NUM_STATES = 200
ACTION_NAMES = ("left", "stay", "right")
NUM_ACTIONS = 3


class HighwayState(NamedTuple):
    """The parts of a state, integers of one shape.

    Attributes
    ----------
    lane : of the police: 0 left shoulder, 1, 2, 3 right shoulder.
    gap_1, gap_2 : cells to the next car ahead in lane 1 and in lane 2, 0..4.
    racing_flag : 1 if the gaps differed by at most 1 one step before.
    """

    lane: Int[np.ndarray, "..."]
    gap_1: Int[np.ndarray, "..."]
    gap_2: Int[np.ndarray, "..."]
    racing_flag: Int[np.ndarray, "..."]


def state_parts(state: Any) -> HighwayState:
    """Lane, gaps and flag of state numbers.

    Examples
    --------
    >>> [int(part) for part in state_parts(91)]
    [1, 4, 0, 1]
    """
    numbers = read_array("state", state)
    require_kind("state", numbers, "iu", f"give integers from 0 to {NUM_STATES - 1}")
    require((numbers >= 0) & (numbers < NUM_STATES), "state", numbers, f": give 0 to {NUM_STATES - 1}")
    return HighwayState(*map(np.asarray, np.unravel_index(numbers, SHAPE)))


def transitions(p_fast: float | int = 0.9) -> Float[np.ndarray, "state action next"]:
    """Transition probabilities of the environment.

    Parameters
    ----------
    p_fast : probability that a gap closes by one cell.
    """
    p_fast = require_number("p_fast", p_fast, 0, 1)
    lane, gap_1, gap_2, _ = state_parts(np.arange(NUM_STATES))
    closing = p_fast * np.eye(NUM_GAPS, k=-1) + (1 - p_fast) * np.eye(NUM_GAPS)
    closing[0] = [0, 0, 0, 0.5, 0.5]
    lanes = np.eye(NUM_LANES)[np.clip(lane[:, None] + [-1, 0, 1], 0, NUM_LANES - 1)]
    flags = np.eye(2)[(abs(gap_1 - gap_2) <= 1).astype(int)]
    table = np.einsum("sal,sg,sh,sf->salghf", lanes, closing[gap_1], closing[gap_2], flags)
    return table.reshape(NUM_STATES, NUM_ACTIONS, NUM_STATES)


def true_agent(eps: float | int = 0.01) -> IntentAgent:
    """The true agent: intent 0 is patrol, intent 1 is pursuit.

    Parameters
    ----------
    eps : probability of an action other than the one intended.
    """
    eps = require_number("eps", eps, 0, 1)
    parts = state_parts(np.arange(NUM_STATES))
    intended = np.eye(NUM_ACTIONS)[1 + np.stack([_patrol(parts), _pursuit(parts)])]
    policy = (1 - eps) * intended + eps / (NUM_ACTIONS - 1) * (1 - intended)
    following = np.eye(2)[np.stack([_racing(parts), ~_level(parts)]).astype(int)]
    transition = np.repeat(following[:, :, None], NUM_ACTIONS, axis=2)
    return IntentAgent(np.array([1.0, 0.0]), transition, policy)


def simulate(
    key: Array,
    num_traces: int = 5,
    length: int = 40,
    *,
    p_fast: float | int = 0.9,
    eps: float | int = 0.01,
) -> Rollout:
    """Simulated traces of the police car, with its intents.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    num_traces : number of traces.
    length : steps of a trace, each with its state and action.
    p_fast, eps : as in `transitions` and `true_agent`.
    """
    require_key(key)
    require_integer("num_traces", num_traces, 1)
    require_integer("length", length, 1)
    key_first, key_walk = jax.random.split(key)
    parts = state_parts(np.arange(NUM_STATES))
    starts = np.flatnonzero(np.isin(parts.lane, (1, 2)) & (parts.racing_flag == 0))
    first_states = starts[np.asarray(jax.random.randint(key_first, (num_traces,), 0, len(starts)))]
    rollout = roll_out(key_walk, true_agent(eps), transitions(p_fast), first_states, length)
    metadata = Metadata(name="Highway", action_names=ACTION_NAMES, time_unit="step")
    return rollout._replace(data=rollout.data._replace(metadata=metadata))


def random_region(key: Array) -> Bool[np.ndarray, "state"]:
    """Mask of a random half of the states in which neither intent ever switches.

    Parameters
    ----------
    key : a typed key.
    """
    require_key(key)
    parts = state_parts(np.arange(NUM_STATES))
    quiet = np.flatnonzero(~_racing(parts) & ~_level(parts))
    region = np.zeros(NUM_STATES, bool)
    region[np.asarray(jax.random.permutation(key, quiet))[: len(quiet) // 2]] = True
    return region


def _patrol(parts: HighwayState) -> np.ndarray:
    """Intended change of lane on patrol, -1, 0 or 1."""
    lane, on_the_left = parts.lane, parts.lane <= 1
    own_is_free = np.where(on_the_left, parts.gap_1, parts.gap_2) > 1
    other_is_free = np.where(on_the_left, parts.gap_2, parts.gap_1) > 1
    inwards = np.where(on_the_left, 1, -1)
    on_shoulder = (lane == 0) | (lane == NUM_LANES - 1)
    # On the road a lane that is not free is left, on a shoulder one that is free is taken.
    change = np.where(on_shoulder | other_is_free, inwards, -inwards)
    return np.where(own_is_free == on_shoulder, change, 0)


def _pursuit(parts: HighwayState) -> np.ndarray:
    """Intended change of lane in pursuit, -1, 0 or 1."""
    nearest = np.where(parts.lane <= 1, 1, 2)
    target = np.select([parts.gap_1 < parts.gap_2, parts.gap_2 < parts.gap_1], [1, 2], nearest)
    return np.sign(target - parts.lane)


def _racing(parts: HighwayState) -> np.ndarray:
    """Whether the two civilian cars are racing."""
    near = np.minimum(parts.gap_1, parts.gap_2) >= 1
    not_far = np.maximum(parts.gap_1, parts.gap_2) <= 3
    return near & not_far & (abs(parts.gap_1 - parts.gap_2) <= 1) & (parts.racing_flag == 1)


def _level(parts: HighwayState) -> np.ndarray:
    """Whether the police is level with the car of its own lane."""
    return ((parts.lane == 1) & (parts.gap_1 == 0)) | ((parts.lane == 2) & (parts.gap_2 == 0))
