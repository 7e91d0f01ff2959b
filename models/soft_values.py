r"""Values of an agent that is soft about its discounted return, their policy, and derivatives of both.

.. math:: Q(s, a) = r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s'), \quad
          V(s) = \ln \sum_a \exp Q(s, a), \quad \pi(a \mid s) = \exp(Q(s, a) - V(s))

Newton's method for the residual T V - V of one backup evaluates the policy of V:
:math:`V \leftarrow V + (I - \gamma P_\pi)^{-1} (T V - V)`. T is convex and monotone, so that it converges from
everywhere, and from below after one step (soft policy iteration). Derivatives are those of the fixed point,
:math:`dV = (I - \gamma P_\pi)^{-1} \sum_a \pi(a \mid \cdot)\, dQ(\cdot, a)` with V held in dQ. With a horizon, the
backup is repeated so often from V = 0.
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

from ethogram.models.blocks.conjugate_block import Reals, common_batch, is_concrete, read_reals
from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP, read_reward, require_room
from ethogram.models.policy_chain import add_up
from ethogram.models.policy_values import (
    DIRECT_AT_MOST,
    evaluate,
    of_type,
    read_interest,
    read_world,
    require_tolerance,
)
from ethogram.models.soft_newton import Controls, action_values, climb, soft_max

__all__ = ["SoftSolution", "soft_policy", "soft_values"]

METHODS = {"newton": 100, "direct": 100, "value_iteration": 1_000_000}
"""Ways to solve, and the most steps each takes unless told."""


class SoftSolution(NamedTuple):
    """A soft-optimal agent, without a horizon or in the first of its steps.

    Attributes
    ----------
    values : V(s), (..., state), the reward of the state included.
    action_values : Q(s, a), (..., state, action); -inf where an action is not available.
    log_policy : ln pi(a | s), (..., state, action); -inf where an action is not available.
    residual : largest |T V - V| of what the last step began with, (...); with a horizon, how much its last step still
        changes.
    steps : Newton steps or sweeps that were taken, (...); the horizon where there is one.
    converged : whether the values are as near to the fixed point as was asked, or as rounding lets them, (...); with
        a horizon, whether they are finite.
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
    method: str = "newton",
    tol: float | int = 1e-12,
    max_steps: int | None = None,
    initial: Reals | None = None,
    horizon: int | None = None,
) -> SoftSolution:
    r"""Soft-optimal values and policy of a world without end, or of the first step before a horizon.

    Steps end where :math:`|T V - V| \gamma / (1 - \gamma)`, which bounds the error of V, is at most `tol` times the
    largest |V| (or one, if that is more), or at what rounding lets be known. Values that are not there after
    `max_steps`, or are NaN, have ``converged`` False.

    The result can be differentiated with respect to `reward`, the discount and the probabilities of `mdp`, forward
    and in reverse, again and again, and mapped by `jax.vmap`.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1), or in [0, 1] with a horizon.
    reward : r (..., state), or (..., state, action): one of the latter where the last two axes are (S, A), be S = A
        or not. (..., state, 1) is a reward of states always.
    method : ``"newton"``, whose linear systems are factored up to 128 states, and above that solved by BiCGSTAB, more
        and more closely, with plain sweeps where it stalls; ``"direct"``, which factors always; or
        ``"value_iteration"``, backups that are each shifted to the middle of MacQueen's bounds.
    tol : relative error of the values, and relative residual of the linear systems behind derivatives; above 0.
    max_steps : most Newton steps (100) or sweeps (a million).
    initial : values (..., state) to start from; without them a constant. It has no derivative.
    horizon : H >= 1 steps to go, this one included, with nothing after the last; None for no end. H backups then take
        the place of the method, and what comes back is of the first step;
        :func:`~ethogram.models.soft_policy_by_step.soft_policy_by_step` has the other ones too.

    Raises
    ------
    TypeError, ValueError
        `mdp` is no MDP, or its discount is 1, which takes a horizon; `reward` or `initial` is not of finite floats or
        does not fit; `method` is none, `tol` no number above 0, `max_steps` or `horizon` no integer above 0; there is
        a horizon, and a method, `max_steps` or `initial` too.

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
    """
    reward, batch = read_reward(mdp, reward)
    reward = jnp.swapaxes(reward, -2, -1)
    if horizon is not None:
        whole_number("horizon", horizon, 1)
        if method != "newton" or max_steps is not None or initial is not None:
            raise ValueError(f"horizon is {horizon}: it leaves nothing to method, max_steps and initial")
        world, dtype = read_world(mdp, reward)
        return _to_the_end(world, reward.astype(dtype), int(horizon), batch)
    interest = read_interest(mdp)
    if method not in METHODS:
        raise ValueError(f"method must be one of {tuple(METHODS)}, not {method!r}")
    require_tolerance(tol)
    max_steps = METHODS[method] if max_steps is None else max_steps
    whole_number("max_steps", max_steps, 1)
    if initial is not None:
        (initial,) = read_reals(initial=initial)
        mdp._fits("initial", initial, (mdp.num_states,))
        came = f"reward has batch axes {batch}, initial {initial.shape[:-1]}"
        batch = common_batch(came, batch, initial.shape[:-1])
    world, dtype = read_world(mdp, reward, initial)
    if method == "direct":
        cure = 'method="newton" solves worlds of any size'
        require_room("method is 'direct': its system", (*batch, mdp.num_states, mdp.num_states), dtype, cure)
    controls = Controls(interest, initial, tol, max_steps)
    return _solve(world, reward.astype(dtype), controls, method, batch)


def soft_policy(
    mdp: MDP, reward: Reals, *, horizon: int | None = None
) -> Float[Array, "*batch state action"]:
    """Probabilities pi(a | s) of the soft-optimal policy, (..., state, action): those of :func:`soft_values`.

    Raises
    ------
    TypeError, ValueError : as :func:`soft_values`.
    RuntimeError : values did not converge. What is being traced is not checked.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> print((100 * soft_policy(corridor, [0.0, 0.0, 1.0])[:, 1]).round())
    [67. 85. 74.]
    """
    found = soft_values(mdp, reward, horizon=horizon)
    if is_concrete(found.converged) and not np.all(found.converged):
        raise RuntimeError(
            f"soft values have not converged after {np.max(found.steps)} steps, to a residual of "
            f"{np.max(found.residual):.3g}: soft_values returns them as they are"
        )
    return found.policy


@functools.partial(jax.jit, static_argnames=("horizon", "batch"))
def _to_the_end(world, reward, horizon, batch):
    world = of_type(world, reward.dtype)

    def solve(reward):
        def backup(values, _):
            return soft_max(action_values(world, reward, 0, values)[1])[0], None

        values = lax.scan(backup, jnp.zeros_like(reward[0]), None, length=horizon - 1)[0]
        whole = action_values(world, reward, 0, values)[1]
        first, _, log_policy = soft_max(whole)
        residual = jnp.max(jnp.abs(first - values))
        return SoftSolution(
            first, whole.T, log_policy.T, residual, jnp.asarray(horizon), jnp.all(jnp.isfinite(first))
        )

    for _ in batch:
        solve = jax.vmap(solve)
    return solve(reward)


@functools.partial(jax.jit, static_argnames=("method", "batch"))
def _solve(world, reward, controls, method, batch):
    dtype = reward.dtype
    world = of_type(world, dtype)
    if method == "newton" and reward.shape[-1] <= DIRECT_AT_MOST:
        method = "direct"

    def solve(reward, initial):
        of_this = controls._replace(interest=jnp.asarray(controls.interest, dtype), initial=initial)
        return _agent(world, reward, _fixed_point(method, world, reward, of_this))

    if not batch:
        return solve(reward, controls.initial)
    rows = jnp.broadcast_to(reward, (*batch, *reward.shape[-2:])).reshape(-1, *reward.shape[-2:])
    start = controls.initial
    if start is not None:
        start = jnp.broadcast_to(start, (*batch, start.shape[-1])).reshape(-1, start.shape[-1])
    found = jax.vmap(solve)(rows, start)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), found)


def _agent(world, reward, solved):
    relative, whole = action_values(world, reward, solved.level, solved.relative)
    values, log_policy = solved.level + solved.relative, soft_max(relative)[2]
    return SoftSolution(values, whole.T, log_policy.T, solved.residual, solved.steps, solved.converged)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _fixed_point(method, world, reward, controls):
    """Values of one agent: rewards (action or 1, state)."""
    return climb(method, world, reward, controls)


@functools.partial(_fixed_point.defjvp, symbolic_zeros=True)
def _fixed_point_jvp(method, primals, tangents):
    world, reward, controls = primals
    solved = _fixed_point(method, world, reward, controls)
    leaves, shape = jax.tree.flatten((world, reward))
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
    values = evaluate(world, policy, change, controls.interest, controls.tol, method == "direct")
    still = jax.tree.map(_no_tangent, solved)
    return solved, still._replace(relative=values)


def _no_tangent(x):
    real = jnp.issubdtype(x.dtype, jnp.floating)
    return jnp.zeros_like(x) if real else np.zeros(x.shape, jax.dtypes.float0)
