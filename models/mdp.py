"""Worlds of states and actions: what follows what, how the future counts, and where an episode begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.blocks.conjugate_block import Reals, is_concrete, read_reals, require, require_reals
from ethogram.models.model_object import model_object, static_field
from ethogram.models.transitions import DenseTransitions, DeterministicTransitions, SparseTransitions

__all__ = ["MDP", "DenseTransitions", "DeterministicTransitions", "read_reward", "require_room"]

MOST_BYTES = 2**31
"""Tables above this size are refused where they would be made of something smaller."""


@model_object
class MDP:
    """A Markov decision process without its reward: what follows a state and action, and how the future counts.

    Parameters
    ----------
    transitions : what :meth:`dense`, :meth:`sparse` or :meth:`deterministic` make of a table.
    discount : gamma in [0, 1]; 1 where a horizon ends everything.
    action_mask : (state, action) booleans, which actions are available; None for all. A state where an episode ends
        needs one: with several, an agent that is soft about its return is paid for their number for ever.
    start : (state,) probabilities of the state that an episode begins in, which sum to one; None where they are not
        known, and all states count alike.
    features : (state, feature) floats that a reward may depend on; None for none.
    state_names, action_names : distinct strings, one for each state and action; None for none. They are structure:
        what is compiled for a world serves those of the same names.

    Raises
    ------
    TypeError, ValueError : a part is of another type or shape, or out of order; the message has the place.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], action_names=("left", "right"))
    >>> corridor.expect(jnp.array([0.0, 1.0, 5.0])).tolist()
    [[0.0, 1.0], [0.0, 5.0], [1.0, 5.0]]
    """

    transitions: Any
    discount: Any = 1.0
    action_mask: Any = None
    start: Any = None
    features: Any = None
    state_names: Any = static_field(default=None)
    action_names: Any = static_field(default=None)

    def __post_init__(self):
        if not isinstance(self.transitions, DenseTransitions | SparseTransitions | DeterministicTransitions):
            raise TypeError(
                f"transitions is {type(self.transitions).__name__}: use MDP.dense(probabilities), "
                "MDP.sparse(successors, probabilities) or MDP.deterministic(next_state)"
            )
        require_reals("discount", self.discount)
        if np.ndim(self.discount) or (is_concrete(self.discount) and not 0 <= self.discount <= 1):
            raise ValueError(f"discount must be a number in [0, 1], not {self.discount!r}")
        num_states, num_actions = self.transitions.shape
        read = {}
        if self.action_mask is not None:
            read["action_mask"] = _read_mask(self.action_mask, self.transitions.shape)
        if self.start is not None:
            read["start"] = _read_start(self.start, num_states)
        if self.features is not None:
            (features,) = read_reals(features=self.features)
            if features.ndim != 2 or len(features) != num_states:
                raise ValueError(
                    f"features has shape {features.shape}, not (state, feature) of {num_states} states"
                )
            read["features"] = features
        for name, names, count in (
            ("state_names", self.state_names, num_states),
            ("action_names", self.action_names, num_actions),
        ):
            if names is not None:
                read[name] = _read_names(name, names, count)
        for name, value in read.items():
            object.__setattr__(self, name, value)

    @classmethod
    def dense(cls, probabilities: Any, *, discount: Any = 1.0, action_mask: Any = None, **parts: Any) -> MDP:
        """World of probabilities (state, action, next state), rows summing to one (within 1e-6, float32 1e-4).

        Parameters
        ----------
        parts : `start`, `features`, `state_names` and `action_names`, as they are in a world.

        Raises
        ------
        TypeError, ValueError : table or discount is not of floats, or out of order; the message has the place.
            `action_mask` is not of booleans (state, action), or leaves a state without an action.
        """
        return cls(DenseTransitions(probabilities), discount, action_mask, **parts)

    @classmethod
    def sparse(
        cls,
        successors: Any,
        probabilities: Any,
        *,
        discount: Any = 1.0,
        action_mask: Any = None,
        **parts: Any,
    ) -> MDP:
        """World of next states (state, action, slot), integers, and their probabilities, of the same shape.

        Probabilities sum to one over the slots; those of a next state that is listed twice are added. Where there
        are fewer next states than slots, repeat one with probability zero. Nothing of the size (state, action,
        state) is ever made.

        Raises
        ------
        TypeError, ValueError : an entry is no state, the shapes are not one, or as for :meth:`dense`.
        """
        return cls(SparseTransitions.of(successors, probabilities), discount, action_mask, **parts)

    @classmethod
    def deterministic(
        cls, next_state: Any, *, discount: Any = 1.0, action_mask: Any = None, **parts: Any
    ) -> MDP:
        """World whose next state (state, action), an integer, is certain.

        Raises
        ------
        TypeError, ValueError : the table is not of integers, an entry is no state, or as for :meth:`dense`.
        """
        return cls(DeterministicTransitions(next_state), discount, action_mask, **parts)

    @property
    def num_states(self) -> int:
        return self.transitions.shape[0]

    @property
    def num_actions(self) -> int:
        return self.transitions.shape[1]

    def expect(self, values: Reals) -> Float[Array, "*batch state action"]:
        r"""Mean one step ahead of values v (..., state), :math:`\sum_{s'} P(s' \mid s, a) v(s')`: no discount."""
        (values,) = read_reals(values=values)
        self._fits("values", values, (self.num_states,))
        return self.transitions.expect(values)

    def push(self, weights: Reals) -> Float[Array, "*batch state"]:
        r"""What w (..., state, action) weighs one step later, :math:`\sum_{s,a} w(s, a) P(s' \mid s, a)`.

        The transpose of :meth:`expect`.
        """
        (weights,) = read_reals(weights=weights)
        self._fits("weights", weights, (self.num_states, self.num_actions))
        return self.transitions.push(weights)

    def policy_matrix(self, policy: Reals) -> Float[Array, "state next_state"]:
        r"""The chain of a policy (state, action), :math:`\sum_a \pi(a \mid s) P(s' \mid s, a)`, as a table.

        Raises
        ------
        TypeError, ValueError : `policy` is not of floats (state, action), or the table would take more than 2 GiB.
        """
        (policy,) = read_reals(policy=policy)
        if policy.shape != self.transitions.shape:
            raise ValueError(
                f"policy has shape {policy.shape}, not (state, action), which is {self.transitions.shape}"
            )
        cure = "use expect and push, which need no table"
        require_room("policy_matrix", (self.num_states, self.num_states), policy.dtype, cure)
        return self.transitions.for_solvers().chain(policy.T).matrix()

    def probability(self, states: Any, actions: Any, next_states: Any) -> Float[Array, "..."]:
        """P(next state | state, action) of single transitions: integers that broadcast, which are not checked."""
        return self.transitions.probability(*(jnp.asarray(index) for index in (states, actions, next_states)))

    def _fits(self, name: str, values: Array, shape: tuple[int, ...]) -> None:
        if values.shape[-len(shape) :] != shape:
            raise ValueError(
                f"{name} has shape {values.shape}: the last axes must be {shape}, those of the world"
            )


def read_reward(mdp: Any, reward: Reals, name: str = "reward") -> tuple[Array, tuple[int, ...]]:
    """Rewards (..., state, action or 1) of a world, and their batch axes, once both are found in order.

    Parameters
    ----------
    reward : r (..., state), or (..., state, action): one of the latter where the last two axes are (S, A), be S = A
        or not. (..., state, 1) is a reward of states always.

    Raises
    ------
    TypeError, ValueError : `mdp` is no MDP; the reward is not of finite floats, or fits neither.
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    (reward,) = read_reals(**{name: reward})
    count, num_actions = mdp.num_states, mdp.num_actions
    if reward.shape[-2:] in ((count, num_actions), (count, 1)):
        return reward, reward.shape[:-2]
    if reward.shape[-1:] == (count,):
        return reward[..., None], reward.shape[:-1]
    raise ValueError(
        f"{name} has shape {reward.shape}: the last axis must be the states of the world, ({count},), "
        f"or the last two its states and actions, ({count}, {num_actions})"
    )


def require_room(name: str, shape: tuple[int, ...], dtype: Any, cure: str) -> None:
    """Raise ValueError where an array would take more than 2 GiB."""
    size = int(np.prod(shape, dtype=object)) * jnp.dtype(dtype).itemsize
    if size > MOST_BYTES:
        raise ValueError(f"{name} would be a table {shape} of {size} bytes ({size / 2**30:.3g} GiB): {cure}")


def _read_mask(mask: Any, shape: tuple[int, int]) -> Array:
    """Booleans (state, action), once they are found in order."""
    mask = jnp.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"action_mask has dtype {mask.dtype}: give booleans, pass action_mask.astype(bool)")
    if mask.shape != shape:
        raise ValueError(f"action_mask has shape {mask.shape}, not (state, action), which is {shape}")
    if is_concrete(mask):
        empty = np.flatnonzero(~np.asarray(mask).any(1))
        if len(empty):
            raise ValueError(
                f"action_mask[{empty[0]}] has no available action: every state needs one, if only to stay"
            )
    return mask


def _read_start(start: Any, num_states: int) -> Array:
    """Probabilities (state,), once they are found in order."""
    (start,) = read_reals(start=start)
    if start.shape != (num_states,):
        raise ValueError(f"start has shape {start.shape}, not (state,), which is ({num_states},)")
    if is_concrete(start):
        host = np.asarray(start)
        require(host >= 0, "start", host, "is negative", "give probabilities")
        total = host.sum(dtype=np.float64)
        if abs(total - 1) > (1e-6 if host.dtype == np.float64 else 1e-4):
            raise ValueError(f"start sums to {total:.6g}, not 1: divide it by its sum")
    return start


def _read_names(name: str, names: Any, count: int) -> tuple[str, ...]:
    """A tuple of distinct strings, once it is found to be one."""
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"{name} is {names!r}: give a tuple of strings")
    if len(names) != count:
        raise ValueError(f"{name} has {len(names)} names: give one for each of {count}")
    first: dict[str, int] = {}
    for place, one in enumerate(names):
        if not isinstance(one, str):
            raise TypeError(f"{name}[{place}] is {one!r}, not a string")
        if one in first:
            raise ValueError(f"{name}[{place}] is {one!r}, as is {name}[{first[one]}]: give distinct names")
        first[one] = place
    return tuple(names)
