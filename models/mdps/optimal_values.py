r"""Optimal values and actions of a discounted MDP, by modified policy iteration.

.. math:: Q(s, a) = r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s'), \quad V(s) = \max_a Q(s, a)

The Bellman optimality equation: Puterman (1994), "Markov decision processes", eq. 6.2.2.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.arguments import Reals, require_integer, require_number
from ethogram.models.mdps.mdp import MDP, read_reward
from ethogram.models.mdps.policy_iteration import Controls, action_values, iterate
from ethogram.models.mdps.policy_values import DIRECT_AT_MOST, of_type, read_environment, read_interest
from ethogram.models.printing import short_repr

__all__ = ["OptimalSolution", "optimal_values"]


@short_repr
class OptimalSolution(NamedTuple):
    """Optimal values and a greedy policy.

    Attributes
    ----------
    values : V(s), (..., state), the reward of the state included.
    action_values : Q(s, a), (..., state, action); -inf where an action is not available.
    actions : (..., state) integers, the first of the best.
    residual : largest Bellman residual |T V - V| before the last step, (...).
    steps : policies that were evaluated, (...).
    converged : whether the values are within `tol` of the fixed point, or at the limit of rounding, (...).
    """

    values: Float[Array, "*batch state"]
    action_values: Float[Array, "*batch state action"]
    actions: Int[Array, "*batch state"]
    residual: Float[Array, "*batch"]
    steps: Int[Array, "*batch"]
    converged: Bool[Array, "*batch"]

    @property
    def policy(self) -> Float[Array, "*batch state action"]:
        """The deterministic policy (..., state, action), as probabilities."""
        return _one_hot(self.actions, self.action_values.shape[-1], dtype=self.values.dtype)


def optimal_values(
    mdp: MDP, reward: Reals, *, pairs: bool | None = None, tol: float | int = 1e-12, max_steps: int = 1000
) -> OptimalSolution:
    r"""Optimal values of a discounted MDP over an infinite horizon, and the first of the best actions in every state.

    Iterations stop when :math:`|T V - V| \gamma / (1 - \gamma)`, which bounds the error of V, is at most `tol` times
    the largest |V|, or at the limit of rounding. Values that need more than `max_steps`, or are NaN, have ``converged``
    False. Multiplying the rewards by a positive number multiplies the values, and changes no action.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1).
    reward : r (..., state), or (..., state, action) where the last two axes are (S, A): of one that depends on the next
        state, its mean. Batches are solved one after the other above 128 states.
    pairs : whether rewards are of pairs (state, action). None reads it from the shape, where S and A differ.
    tol : relative error of the values, > 0. Actions whose values are within that, or within rounding, of the best
        count as equal to it.
    max_steps : largest number of policy evaluations; they use factored systems up to 128 states, BiCGSTAB above.

    References
    ----------
    Howard (1960), "Dynamic programming and Markov processes"; Puterman and Shin (1978), "Modified policy iteration
    algorithms for discounted Markov decision problems"; Puterman (1994), "Markov decision processes", section 6.4.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> best = optimal_values(corridor, [0.0, 0.0, 1.0])
    >>> print(best.values, best.actions)
    [0.5 1.  2. ] [1 1 1]
    """
    reward, batch = read_reward(mdp, reward, pairs=pairs)
    interest = read_interest(mdp)
    require_number("tol", tol, above=0)
    require_integer("max_steps", max_steps, 1)
    environment, dtype = read_environment(mdp, reward)
    controls = Controls(interest, None, tol, max_steps)
    return _solve(environment, reward, dtype, controls, batch)


_one_hot = jax.jit(jax.nn.one_hot, static_argnums=(1,), static_argnames="dtype")


@functools.partial(jax.jit, static_argnames=("dtype", "batch"))
def _solve(environment, reward, dtype, controls, batch):
    environment, reward = of_type(environment, dtype), jnp.swapaxes(reward, -2, -1).astype(dtype)
    method = "direct" if reward.shape[-1] <= DIRECT_AT_MOST else "newton"
    typed = controls._replace(interest=jnp.asarray(controls.interest, reward.dtype))

    def solve(reward):
        solved = iterate(method, environment, reward, typed, temperature=0)
        after, whole = action_values(environment, reward, solved.level, solved.relative)
        rewarded = jnp.max(jnp.where(jnp.isfinite(after), jnp.abs(reward), 0))
        size = jnp.max(jnp.abs(solved.relative)) + rewarded
        slack = jnp.maximum(controls.tol, 64 * jnp.finfo(after.dtype).eps) * size
        actions = jnp.argmax(after >= (jnp.max(after, axis=0) - slack)[None], axis=0)
        return OptimalSolution(jnp.max(whole, axis=0), whole.T, actions, *solved[2:])

    for _ in batch:
        solve = jax.vmap(solve)
    return solve(reward)
