r"""What an agent that is soft about its return does at each step before a horizon.

.. math:: Q_t(s, a) = r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V_{t+1}(s'), \quad
          V_t(s) = \ln \sum_a \exp Q_t(s, a), \quad \pi_t(a \mid s) = \exp(Q_t(s, a) - V_t(s))

Ziebart, Maas, Bagnell and Dey (2008), "Maximum entropy inverse reinforcement learning", for a finite horizon; where
the world leaves something to chance, the causal form of Ziebart, Bagnell and Dey (2010).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import logsumexp
from jaxtyping import Float

from ethogram.models.blocks.conjugate_block import Reals
from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP, read_reward

__all__ = ["SoftPolicyByStep", "soft_policy_by_step"]


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

    With nothing to come after the last step, :math:`V_H = 0`, which therefore has the uniform policy where rewards are
    of states. Both depend on the steps to go only: for a shorter horizon take the last entries.

    Parameters
    ----------
    mdp : S states, A actions; its discount may be 1.
    reward : r (..., state), or (..., state, action): one of the latter where the last two axes are (S, A), be S = A
        or not. (..., state, 1) is a reward of states always.
    horizon : H >= 1, steps with a state and an action.

    Raises
    ------
    TypeError, ValueError : `mdp` is no MDP, `reward` not of finite floats, one a state or one a state and action,
        `horizon` no integer above 0.

    References
    ----------
    Ziebart, Maas, Bagnell, Dey (2008), Algorithm 1, in log space and with a policy for each step.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]])
    >>> found = soft_policy_by_step(corridor, [0.0, 0.0, 1.0], 3)
    >>> print((100 * jnp.exp(found.log_policy[:, 1, 1])).round())
    [83. 73. 50.]
    """
    reward, _ = read_reward(mdp, reward)
    whole_number("horizon", horizon, 1)
    return _backward(mdp, reward, int(horizon))


@functools.partial(jax.jit, static_argnames="horizon")
def _backward(mdp, reward, horizon):
    def step(later, _):
        action_values = reward + mdp.discount * mdp.transitions.expect(later)
        if mdp.action_mask is not None:
            available = jnp.broadcast_to(mdp.action_mask, action_values.shape)
            action_values = jnp.where(available, action_values, -jnp.inf)
        values = logsumexp(action_values, axis=-1)
        return values, (action_values - values[..., None], values)

    probe = jax.eval_shape(step, reward[..., 0], None)[0]
    steps = lax.scan(step, jnp.zeros(probe.shape, probe.dtype), None, length=horizon, reverse=True)[1]
    return SoftPolicyByStep(*(jnp.moveaxis(x, 0, reward.ndim - 2) for x in steps))
