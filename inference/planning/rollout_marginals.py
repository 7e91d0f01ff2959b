r"""Value of actions by forward marginals: the sum of rewards of a plan whose fluents are taken as independent.

.. math:: Q(a_0, \ldots, a_{d-1}) = \sum_{t < d} \gamma^t\, \hat r_t\, \prod_{0 < u \le t} (1 - \hat e_u), \qquad
          \hat s_{t + 1} = F(\hat s_t, a_t)

with the probabilities of the fluents in place of the fluents, in F, in the reward, and in the probability e that a
state which is reached ends the episode. Actions may be probabilities too.

Cui, Khardon (2016), "Online symbolic gradient-based optimization for factored action MDPs", section 3; Lemma 1 of Cui,
Marinescu, Khardon (2018), "From stochastic planning to marginal MAP".
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.models.planning.fluent_program import FluentProgram, step

__all__ = ["rollout"]


@jax.jit
def rollout(
    program: FluentProgram,
    state: Float[Array | np.ndarray, " fluent"],
    actions: Float[Array | np.ndarray, "time action restart"],
    *,
    discount: float | Array = 1.0,
    steps_left: int | Array | None = None,
    limits: tuple[Array | np.ndarray, Array | np.ndarray, FluentProgram] | None = None,
) -> Float[Array, " restart"]:
    """Value of the plan of every restart, differentiable by state and actions.

    Parameters
    ----------
    program : of a problem.
    state : probabilities of the fluents at the start.
    actions : probabilities of the actions, one row per step.
    discount : of rewards.
    steps_left : rewards after so many steps do not count; all count where None.
    limits : of the steps after the first, as :class:`Lookahead` has them: `weights`, `members` and `limits`. Where a
        group is required and none of its members is taken, one of them is, each with equal probability. Actions of a
        sum above its expected bound are scaled down to it.
    """
    state, actions = jnp.asarray(state), jnp.asarray(actions)
    count = actions.shape[0]
    steps_left = count if steps_left is None else steps_left
    weights = jnp.asarray(discount, actions.dtype) ** jnp.arange(count) * (jnp.arange(count) < steps_left)
    start = jnp.broadcast_to(state.astype(actions.dtype)[:, None], (len(state), actions.shape[-1]))
    going = jnp.ones(actions.shape[-1], actions.dtype)
    reached = jnp.arange(count) > 0

    def onward(carry: Any, given: Any) -> tuple[tuple[Array, Array], Array]:
        state, going = carry
        action, weight, reached = given
        if limits is not None:
            action = jnp.where(reached, _limited(*limits, state, action), action)
        following, reward, end = step(program, state, action)
        going = jnp.where(reached, going * (1 - end), going)
        return (following, going), weight * going * reward

    return lax.scan(onward, (start, going), (actions, weights.astype(actions.dtype), reached))[1].sum(0)


def _limited(
    weights: Array | np.ndarray,
    members: Array | np.ndarray,
    program: FluentProgram,
    state: Array,
    action: Array,
) -> Array:
    """Actions (action, restart) within the expected limits of a state."""
    weights, members = (jnp.asarray(each, action.dtype) for each in (weights, members))
    bounds, required = jnp.split(step(program, state, action)[0], [len(weights)])
    if len(members):
        action = lax.scan(_completed, action, (members[..., None], required))[0]
    if len(weights):
        total = jnp.einsum("sa,ac->sc", weights, action)
        over = total > bounds
        share = jnp.where(over, jnp.maximum(bounds, 0) / jnp.where(over, total, 1), 1)
        action = action * jnp.where(weights[..., None] > 0, share[:, None], 1).prod(0)
    return action


def _completed(action: Array, group: tuple[Array, Array]) -> tuple[Array, None]:
    """Actions (action, restart); where a group (action, 1) requires one and none is taken, its members share one."""
    members, required = group
    none = jnp.where(members > 0, 1 - action, 1).prod(0)
    return action + members * (required * none / members.sum()), None
