r"""Worlds of states and actions, and what an agent that is soft about its return does in them.

.. math:: Q_t(s, a) = r(s) + \gamma \sum_{s'} P(s' \mid s, a) V_{t+1}(s'), \quad
          V_t(s) = \ln \sum_a \exp Q_t(s, a), \quad \pi_t(a \mid s) = \exp(Q_t(s, a) - V_t(s))

Ziebart, Maas, Bagnell and Dey (2008), "Maximum entropy inverse reinforcement learning", for a finite horizon; where
the world leaves something to chance, the causal form of Ziebart, Bagnell and Dey (2010).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ethogram.models.blocks.conjugate_block import Reals, is_concrete, read_reals, require_reals
from ethogram.models.emissions.emission import whole_number
from ethogram.models.model_object import model_object
from ethogram.models.transitions import DenseTransitions, DeterministicTransitions, SparseTransitions

__all__ = ["MDP", "DenseTransitions", "DeterministicTransitions", "SoftPolicyByStep", "soft_policy_by_step"]


@model_object
class MDP:
    """A Markov decision process without its reward: what follows a state and action, and how the future counts.

    Parameters
    ----------
    transitions : what :meth:`dense`, :meth:`sparse` or :meth:`deterministic` make of a table.
    discount : gamma in [0, 1]; 1 where a horizon ends everything.
    action_mask : (state, action) booleans, which actions are available; None for all. A state where an episode ends
        needs one: with several, an agent that is soft about its return is paid for their number for ever.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]])
    >>> corridor.expect(jnp.array([0.0, 1.0, 5.0])).tolist()
    [[0.0, 1.0], [0.0, 5.0], [1.0, 5.0]]
    """

    transitions: Any
    discount: Any = 1.0
    action_mask: Any = None

    def __post_init__(self):
        if not isinstance(self.transitions, DenseTransitions | SparseTransitions | DeterministicTransitions):
            raise TypeError(
                f"transitions is {type(self.transitions).__name__}: use MDP.dense(probabilities), "
                "MDP.sparse(successors, probabilities) or MDP.deterministic(next_state)"
            )
        require_reals("discount", self.discount)
        if np.ndim(self.discount) or (is_concrete(self.discount) and not 0 <= self.discount <= 1):
            raise ValueError(f"discount must be a number in [0, 1], not {self.discount!r}")
        if self.action_mask is not None:
            object.__setattr__(self, "action_mask", _read_mask(self.action_mask, self.transitions.shape))

    @classmethod
    def dense(cls, probabilities: Any, *, discount: Any = 1.0, action_mask: Any = None) -> MDP:
        """World of probabilities (state, action, next state), rows summing to one (within 1e-6, float32 1e-4).

        Raises
        ------
        TypeError, ValueError : table or discount is not of floats, or out of order; the message has the place.
            `action_mask` is not of booleans (state, action), or leaves a state without an action.
        """
        return cls(DenseTransitions(probabilities), discount, action_mask)

    @classmethod
    def sparse(
        cls, successors: Any, probabilities: Any, *, discount: Any = 1.0, action_mask: Any = None
    ) -> MDP:
        """World of next states (state, action, slot), integers, and their probabilities, of the same shape.

        Probabilities sum to one over the slots; those of a next state that is listed twice are added. Where there
        are fewer next states than slots, repeat one with probability zero. Nothing of the size (state, action,
        state) is ever made.

        Raises
        ------
        TypeError, ValueError : an entry is no state, the shapes are not one, or as for :meth:`dense`.
        """
        return cls(SparseTransitions.of(successors, probabilities), discount, action_mask)

    @classmethod
    def deterministic(cls, next_state: Any, *, discount: Any = 1.0, action_mask: Any = None) -> MDP:
        """World whose next state (state, action), an integer, is certain.

        Raises
        ------
        TypeError, ValueError : the table is not of integers, an entry is no state, or as for :meth:`dense`.
        """
        return cls(DeterministicTransitions(next_state), discount, action_mask)

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

    def probability(self, states: Any, actions: Any, next_states: Any) -> Float[Array, "..."]:
        """P(next state | state, action) of single transitions: integers that broadcast, which are not checked."""
        return self.transitions.probability(*(jnp.asarray(index) for index in (states, actions, next_states)))

    def _fits(self, name: str, values: Array, shape: tuple[int, ...]) -> None:
        if values.shape[-len(shape) :] != shape:
            raise ValueError(
                f"{name} has shape {values.shape}: the last axes must be {shape}, those of the world"
            )


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


class SoftPolicyByStep(NamedTuple):
    """A soft-optimal agent with a horizon.

    Attributes
    ----------
    log_policy : ln pi_t(a | s), (..., time, state, action); -inf where an action is not available.
    values : V_t(s), (..., time, state): log of the summed weight of what may follow, the reward at t included.
    """

    log_policy: Float[Array, "*batch time state action"]
    values: Float[Array, "*batch time state"]


def soft_policy_by_step(mdp: MDP, reward: Reals, horizon: int) -> SoftPolicyByStep:
    r"""Soft-optimal policy and values at each of `horizon` steps, by one pass backwards.

    With nothing to come after the last step, :math:`V_H = 0`, which therefore has the uniform policy. Both depend on
    the steps to go only: for a shorter horizon take the last entries.

    Parameters
    ----------
    mdp : S states, A actions; its discount may be 1.
    reward : r (..., state).
    horizon : H >= 1, steps with a state and an action.

    Raises
    ------
    TypeError, ValueError : `mdp` is no MDP, `reward` not of finite floats, one a state, `horizon` no integer above 0.

    References
    ----------
    Ziebart, Maas, Bagnell, Dey (2008), Algorithm 1, in log space and with a policy for each step.
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    (reward,) = read_reals(reward=reward)
    mdp._fits("reward", reward, (mdp.num_states,))
    whole_number("horizon", horizon, 1)
    return _backward(mdp, reward, int(horizon))


@functools.partial(jax.jit, static_argnames="horizon")
def _backward(mdp, reward, horizon):
    def step(later, _):
        action_values = reward[..., None] + mdp.discount * mdp.transitions.expect(later)
        if mdp.action_mask is not None:
            available = jnp.broadcast_to(mdp.action_mask, action_values.shape)
            action_values = jnp.where(available, action_values, -jnp.inf)
        values = logsumexp(action_values, axis=-1)
        return values, (action_values - values[..., None], values)

    probe = jax.eval_shape(step, reward, None)[0]
    steps = lax.scan(step, jnp.zeros(probe.shape, probe.dtype), None, length=horizon, reverse=True)[1]
    return SoftPolicyByStep(*(jnp.moveaxis(x, 0, reward.ndim - 1) for x in steps))
