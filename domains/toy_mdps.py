"""Two small deterministic MDPs, in which every state leads to every other: three states, and a clique of ten.

Action a of a state leads to the a-th of the other states, in their order. The only feature of a state is
its number: 1, 2, 3 in the three-state MDP, and 0 to 9 in the clique. The discount is 0.9.

In the three-state MDP a demonstration is a single decision, from an outer state to the middle one; with equal numbers
of both, the outer states have equal posteriors. In the clique decisions are either random or all lead to state 0.

Dilkas (2019), "Variational inference for inverse reinforcement learning with Gaussian processes". Erratum: its
transition table prints T(s1, a2, s3) and T(s1, a2, s2) for T(s2, a2, s3) and T(s3, a2, s2).
"""

from __future__ import annotations

import jax
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.arguments import require_integer, require_one_of
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.mdps.mdp import MDP

__all__ = [
    "STATE_NAMES", "clique", "clique_demonstrations", "clique_features", "three_state",
    "three_state_demonstrations", "three_state_features",
]  # fmt: skip

STATE_NAMES = ("s1", "s2", "s3")
DISCOUNT = 0.9
KINDS = ("random", "to_first")


def three_state(discount: float | int = DISCOUNT) -> MDP:
    """The MDP of three states and two actions, with its features.

    Parameters
    ----------
    discount : gamma in [0, 1].

    Raises
    ------
    TypeError, ValueError : `discount` is not a number in [0, 1].

    Examples
    --------
    >>> three_state().transitions.next_state.tolist()
    [[1, 2], [0, 2], [0, 1]]
    """
    return _each_to_every_other(three_state_features(), discount, state_names=STATE_NAMES)


def three_state_features() -> Float[np.ndarray, "state 1"]:
    """Features of the three states: 1, 2 and 3."""
    return np.arange(1.0, 4.0)[:, None]


def three_state_demonstrations(first: int = 1, second: int = 1) -> Trajectories:
    """Single decisions that lead to the middle state, those from state s1 before those from s3.

    Parameters
    ----------
    first : number of decisions from s1 to s2, by action 0.
    second : number of decisions from s3 to s2, by action 1.

    Raises
    ------
    TypeError, ValueError : a number is not an integer from 0, or both are 0.

    Examples
    --------
    >>> data = three_state_demonstrations(2, 1)
    >>> data.states.tolist(), data.actions.tolist()
    ([[0], [0], [2]], [[0], [0], [1]])
    """
    for name, value in (("first", first), ("second", second)):
        require_integer(name, value, 0)
    if first + second == 0:
        raise ValueError("first and second are both 0: give at least one demonstration")
    states = np.repeat([0, 2], [first, second])
    metadata = Metadata(name="three states", state_names=STATE_NAMES, time_unit="step")
    return _single_steps(states, np.where(states == 0, 0, 1), metadata)


def clique(num_states: int = 10, discount: float | int = DISCOUNT) -> MDP:
    """An MDP in which every state leads to every other, by one action for each, with its features.

    Parameters
    ----------
    num_states : S, at least 2; there are S - 1 actions.
    discount : gamma in [0, 1].

    Raises
    ------
    TypeError, ValueError : `num_states` is not an integer from 2, or `discount` not a number in [0, 1].
    """
    return _each_to_every_other(clique_features(num_states), discount)


def clique_features(num_states: int = 10) -> Float[np.ndarray, "state 1"]:
    """Features of the states of a clique: 0, 1, 2 and so on.

    Raises
    ------
    TypeError, ValueError : `num_states` is not an integer from 2.
    """
    require_integer("num_states", num_states, 2)
    return np.arange(float(num_states))[:, None]


def clique_demonstrations(
    key: Array, kind: str = "random", num: int = 100, *, num_states: int = 10
) -> Trajectories:
    """Single decisions in a clique, each a sequence of its own.

    Parameters
    ----------
    key : a typed key, ``jax.random.key(seed)``.
    kind : ``"random"``, states and actions uniform; or ``"to_first"``, every action leads to state 0, from states
        that are uniform on the rest.
    num : number of decisions.
    num_states : of the clique.

    Raises
    ------
    TypeError, ValueError : `kind` is unknown, `num` is not an integer from 1, or `num_states` not one from 2.

    Examples
    --------
    >>> data = clique_demonstrations(jax.random.key(0), "to_first", 5)
    >>> data.actions.ravel().tolist(), bool((data.states > 0).all())
    ([0, 0, 0, 0, 0], True)
    """
    require_one_of("kind", kind, KINDS)
    require_integer("num", num, 1)
    require_integer("num_states", num_states, 2)
    key_states, key_actions = jax.random.split(key)
    least = 0 if kind == "random" else 1
    states = np.asarray(jax.random.randint(key_states, (num,), least, num_states))
    # Action 0 leads to state 0 from every other state.
    actions = np.zeros(num, int)
    if kind == "random":
        actions = np.asarray(jax.random.randint(key_actions, (num,), 0, num_states - 1))
    return _single_steps(states, actions, Metadata(name=f"clique, {kind}", time_unit="step"))


def _each_to_every_other(features: np.ndarray, discount: float | int, **names: tuple[str, ...]) -> MDP:
    state, action = np.arange(len(features))[:, None], np.arange(len(features) - 1)[None]
    return MDP.deterministic(action + (action >= state), discount=discount, features=features, **names)


def _single_steps(states: np.ndarray, actions: np.ndarray, metadata: Metadata) -> Trajectories:
    """Sequences of one step."""
    return Trajectories.from_list(
        states=states[:, None], actions=actions[:, None], metadata=metadata, codes=True
    )
