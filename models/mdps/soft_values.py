r"""Values and policy of a soft-optimal (maximum-entropy) agent.

.. math:: Q(s, a) = r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s'), \quad
          V(s) = \ln \sum_a \exp Q(s, a), \quad \pi(a \mid s) = \exp(Q(s, a) - V(s))

Over an infinite horizon the fixed point of this backup T is found by Newton's method (soft policy iteration). T is
convex and monotone, so that Newton converges from everywhere, and from below after one step. Derivatives are those of
the fixed point, :math:`dV = (I - \gamma P_\pi)^{-1} \sum_a \pi(a \mid \cdot)\, dQ(\cdot, a)` with V held fixed in dQ.
With a finite horizon the backup is iterated from V = 0: Ziebart, Maas, Bagnell and Dey (2008), Algorithm 1, in log
space and with a policy at each step.

Ziebart, Bagnell and Dey (2010), "Modeling interaction via the principle of maximum causal entropy".
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.arguments import (
    Reals,
    common_batch,
    read_reals,
    require_integer,
    require_number,
    require_one_of,
    require_room,
)
from ethogram.models.mdps.mdp import MDP, read_reward
from ethogram.models.mdps.policy_iteration import Controls, action_values, iterate, soft_max
from ethogram.models.mdps.policy_system import add_up
from ethogram.models.mdps.policy_values import (
    DIRECT_AT_MOST,
    evaluate,
    of_type,
    read_environment,
    read_interest,
    require_converged,
)
from ethogram.models.printing import short_repr

__all__ = ["SoftSolution", "soft_policy", "soft_values"]

METHODS = {"newton": 100, "direct": 100, "value_iteration": 1_000_000}
"""Methods, and the default of `max_steps` for each."""


@short_repr
class SoftSolution(NamedTuple):
    """Values and policy of a soft-optimal agent; with ``all_steps=True`` they have an axis ``time`` before ``state``.

    Attributes
    ----------
    values : V(s), (..., state), the reward of the state included.
    action_values : Q(s, a), (..., state, action); -inf where an action is not available.
    log_policy : ln pi(a | s), (..., state, action); -inf where an action is not available.
    residual : largest |T V - V| before the last iteration, (...); with a horizon, the largest difference between the
        values of its first two steps.
    steps : Newton steps or sweeps, (...); the horizon where there is one.
    converged : whether the values are within `tol` of the fixed point, or at the limit of rounding, (...), where
        rounding changes log policies by no more than a few thousandths: in single precision not where values differ by
        over 2e4, as they may with absorbing states and a discount near one. With a horizon, whether they are finite.
    """

    values: Float[Array, "*batch state"]
    action_values: Float[Array, "*batch state action"]
    log_policy: Float[Array, "*batch state action"]
    residual: Float[Array, "*batch"]
    steps: Int[Array, "*batch"]
    converged: Bool[Array, "*batch"]

    @property
    def policy(self) -> Float[Array, "*batch state action"]:
        """Probabilities pi(a | s), (..., state, action)."""
        return jnp.exp(self.log_policy)


def soft_values(
    mdp: MDP,
    reward: Reals,
    *,
    pairs: bool | None = None,
    method: str = "newton",
    tol: float | int = 1e-12,
    max_steps: int | None = None,
    initial: Reals | None = None,
    horizon: int | None = None,
    all_steps: bool = False,
) -> SoftSolution:
    r"""Soft-optimal values and policy, over an infinite horizon or a finite one.

    Iterations stop when :math:`|T V - V| \gamma / (1 - \gamma)`, which bounds the error of V, is at most `tol` times
    the largest |V| (or one, if that is more), or at the limit of rounding. Values that need more than `max_steps`, or
    are NaN, have ``converged`` False.

    The result is differentiable with respect to `reward`, and the discount and the probabilities of `mdp`, in forward
    and reverse mode and to any order, and can be mapped by `jax.vmap`.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1), or in [0, 1] with a horizon.
    reward : r (..., state), or (..., state, action) where the last two axes are (S, A). (state,) and (..., state, 1)
        are always rewards of states.
    pairs : whether rewards are of pairs (state, action). None reads it from the shape, where S and A differ.
    method : ``"newton"``, linear systems factored up to 128 states, and above that solved by BiCGSTAB to tightening
        tolerances, with sweeps where it stalls; ``"direct"``, always factored; or ``"value_iteration"``, sweeps that
        are each shifted to the middle of MacQueen's bounds.
    tol : relative error of the values, and relative residual of the linear systems behind derivatives; > 0.
    max_steps : largest number of Newton steps (default 100) or sweeps (a million).
    initial : values (..., state) to start from; a constant by default. It has no derivative.
    horizon : H >= 1 steps to go, this one included, with value zero after the last; None for an infinite horizon. It
        replaces `method`, `max_steps` and `initial` by H backups.
    all_steps : with a horizon, whether to return every step, (..., time, state), instead of the first one. Policies
        depend on the steps to go only: for a shorter horizon take the last entries.

    Raises
    ------
    TypeError, ValueError
        If `mdp` is not an MDP, or its discount is 1 without a horizon; `reward` or `initial` is not of finite floats,
        has the wrong shape, or one of two readings without `pairs`; `method` is unknown, `tol` not a number above 0,
        `max_steps` or `horizon` not an integer above 0; a horizon is combined with a method, `max_steps` or `initial`,
        or `all_steps` has no horizon.

    References
    ----------
    Ziebart, Bagnell, Dey (2010), "Modeling interaction via the principle of maximum causal entropy"; Rust (1987),
    "Optimal replacement of GMC bus engines", whose polyalgorithm is Newton's method for the same equation; MacQueen
    (1966), "A modified dynamic programming method for Markovian decision problems".

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> solution = soft_values(corridor, [0.0, 0.0, 1.0])
    >>> print((100 * solution.policy[:, 1]).round(), bool(solution.converged))
    [67. 85. 74.] True
    >>> ahead = soft_values(MDP.deterministic([[0, 1], [0, 2], [1, 2]]), [0.0, 0.0, 1.0], horizon=3, all_steps=True)
    >>> print((100 * ahead.policy[:, 1, 1]).round())
    [83. 73. 50.]
    """
    reward, batch = read_reward(mdp, reward, pairs=pairs)
    if horizon is not None:
        require_integer("horizon", horizon, 1)
        if method != "newton" or max_steps is not None or initial is not None:
            raise ValueError(
                f"horizon is {horizon}, which replaces method, max_steps and initial: leave those out, or horizon"
            )
        environment, dtype = read_environment(mdp, reward)
        return _backward(environment, reward, dtype, int(horizon), batch, all_steps)
    if all_steps:
        raise ValueError("all_steps is True without a horizon: pass horizon=, the number of steps")
    interest = read_interest(mdp)
    require_one_of("method", method, tuple(METHODS))
    require_number("tol", tol, above=0)
    max_steps = METHODS[method] if max_steps is None else max_steps
    require_integer("max_steps", max_steps, 1)
    if initial is not None:
        (initial,) = read_reals(initial=initial)
        mdp._fits("initial", initial, (mdp.num_states,))
        came = f"reward has batch axes {batch}, initial {initial.shape[:-1]}"
        batch = common_batch(came, batch, initial.shape[:-1])
    environment, dtype = read_environment(mdp, reward, initial)
    if method == "direct":
        fix = 'pass method="newton", which works for any number of states'
        require_room(
            "the linear system of method 'direct'", (*batch, mdp.num_states, mdp.num_states), dtype, fix
        )
    controls = Controls(interest, initial, tol, max_steps)
    return _solve(environment, reward, dtype, controls, method, batch)


def soft_policy(
    mdp: MDP, reward: Reals, *, horizon: int | None = None, pairs: bool | None = None
) -> Float[Array, "*batch state action"]:
    """``soft_values(...).policy`` with the same arguments; RuntimeError where the values have not converged."""
    return require_converged("soft_values", soft_values(mdp, reward, horizon=horizon, pairs=pairs)).policy


@functools.partial(jax.jit, static_argnames=("dtype", "horizon", "batch", "all_steps"))
def _backward(environment, reward, dtype, horizon, batch, all_steps):
    environment, reward = of_type(environment, dtype), jnp.swapaxes(reward, -2, -1).astype(dtype)

    def backup(reward, later):
        whole = action_values(environment, reward, 0, later)[1]
        values, _, log_policy = soft_max(whole)
        return values, whole.T, log_policy.T

    def solve(reward):
        def step(later, _):
            found = backup(reward, later)
            return found[0], found if all_steps else None

        second, later = lax.scan(step, jnp.zeros_like(reward[0]), None, length=horizon - 1, reverse=True)
        first = backup(reward, second)
        residual = jnp.max(jnp.abs(first[0] - second))
        done = (residual, jnp.asarray(horizon), jnp.all(jnp.isfinite(first[0])))
        if all_steps:
            first = jax.tree.map(lambda now, after: jnp.concatenate([now[None], after]), first, later)
        return SoftSolution(*first, *done)

    for _ in batch:
        solve = jax.vmap(solve)
    return solve(reward)


@functools.partial(jax.jit, static_argnames=("dtype", "method", "batch"))
def _solve(environment, reward, dtype, controls, method, batch):
    environment, reward = of_type(environment, dtype), jnp.swapaxes(reward, -2, -1).astype(dtype)
    if method == "newton" and reward.shape[-1] <= DIRECT_AT_MOST:
        method = "direct"

    def solve(reward, initial):
        of_this = controls._replace(interest=jnp.asarray(controls.interest, dtype), initial=initial)
        solved = _fixed_point(method, environment, reward, of_this)
        relative, whole = action_values(environment, reward, solved.level, solved.relative)
        return SoftSolution(solved.level + solved.relative, whole.T, soft_max(relative)[2].T, *solved[2:])

    if not batch:
        return solve(reward, controls.initial)
    rows = jnp.broadcast_to(reward, (*batch, *reward.shape[-2:])).reshape(-1, *reward.shape[-2:])
    start = controls.initial
    if start is not None:
        start = jnp.broadcast_to(start, (*batch, start.shape[-1])).reshape(-1, start.shape[-1])
    found = jax.vmap(solve)(rows, start)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), found)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _fixed_point(method, environment, reward, controls):
    """Values of one agent for rewards (action or 1, state)."""
    return iterate(method, environment, reward, controls)


@functools.partial(_fixed_point.defjvp, symbolic_zeros=True)
def _fixed_point_jvp(method, primals, tangents):
    environment, reward, controls = primals
    solved = _fixed_point(method, environment, reward, controls)
    leaves, shape = jax.tree.flatten((environment, reward))
    along = jax.tree.leaves(tangents[:2], is_leaf=lambda x: isinstance(x, SymbolicZero))
    moving = [i for i, tangent in enumerate(along) if not isinstance(tangent, SymbolicZero)]

    def at_these_values(*moved):
        filled = list(leaves)
        for i, leaf in zip(moving, moved, strict=True):
            filled[i] = leaf
        return action_values(*jax.tree.unflatten(shape, filled), solved.level, solved.relative)

    (relative, _), (_, moved) = jax.jvp(
        at_these_values, [leaves[i] for i in moving], [along[i] for i in moving]
    )
    policy = soft_max(relative)[1]
    change = add_up(lambda a: policy[a] * moved[a], len(policy))
    values = evaluate(environment, policy, change, controls.interest, controls.tol, method == "direct")
    still = jax.tree.map(_no_tangent, solved)
    return solved, still._replace(relative=values)


def _no_tangent(x):
    real = jnp.issubdtype(x.dtype, jnp.floating)
    return jnp.zeros_like(x) if real else np.zeros(x.shape, jax.dtypes.float0)
