r"""Values of an agent that is soft about a discounted return without end, their policy, and derivatives of both.

.. math:: Q(s, a) = r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s'), \quad
          V(s) = \ln \sum_a \exp Q(s, a), \quad \pi(a \mid s) = \exp(Q(s, a) - V(s))

Newton's method for the residual T V - V of one backup evaluates the policy of V:
:math:`V \leftarrow V + (I - \gamma P_\pi)^{-1} (T V - V)`. T is convex and monotone, so that it converges from
everywhere, and from below after one step (soft policy iteration). Derivatives are those of the fixed point,
:math:`dV = (I - \gamma P_\pi)^{-1} \sum_a \pi(a \mid \cdot)\, dQ(\cdot, a)` with V held in dQ.
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
from ethogram.models.mdp import MDP
from ethogram.models.policy_chain import PolicySystem, add_up
from ethogram.models.soft_newton import Controls, World, action_values, climb, soft_max

__all__ = ["SoftSolution", "soft_values"]

METHODS = {"newton": 100, "direct": 100, "value_iteration": 1_000_000}
"""Ways to solve, and the most steps each takes unless told."""

DIRECT_AT_MOST = 128
"""States up to which Newton's linear systems are factored unasked."""


class SoftSolution(NamedTuple):
    """A soft-optimal agent without a horizon.

    Attributes
    ----------
    values : V(s), (..., state), the reward of the state included.
    action_values : Q(s, a), (..., state, action); -inf where an action is not available.
    log_policy : ln pi(a | s), (..., state, action); -inf where an action is not available.
    residual : largest |T V - V| of what the last step began with, (...).
    steps : Newton steps or sweeps that were taken, (...).
    converged : whether the values are as near to the fixed point as was asked, or as rounding lets them, (...).
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
) -> SoftSolution:
    r"""Soft-optimal values and policy of a world without end.

    Steps end where :math:`|T V - V| \gamma / (1 - \gamma)`, which bounds the error of V, is at most `tol` times the
    largest |V| (or one, if that is more), or at what rounding lets be known. Values that are not there after
    `max_steps`, or are NaN, have ``converged`` False.

    The result can be differentiated with respect to `reward`, the discount and the probabilities of `mdp`, forward
    and in reverse, again and again, and mapped by `jax.vmap`.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1).
    reward : r (..., state), or (..., state, action): one of the latter where the last two axes are (S, A), be S = A
        or not. (..., state, 1) is a reward of states always.
    method : ``"newton"``, whose linear systems are factored up to 128 states, and above that solved by BiCGSTAB, more
        and more closely, with plain sweeps where it stalls; ``"direct"``, which factors always; or
        ``"value_iteration"``, backups that are each shifted to the middle of MacQueen's bounds.
    tol : relative error of the values, and relative residual of the linear systems behind derivatives; above 0.
    max_steps : most Newton steps (100) or sweeps (a million).
    initial : values (..., state) to start from; without them a constant. It has no derivative.

    Raises
    ------
    TypeError, ValueError
        `mdp` is no MDP, or its discount is 1, which takes a horizon; `reward` or `initial` is not of finite floats or
        does not fit; `method` is none, `tol` no number above 0, `max_steps` no integer above 0.

    References
    ----------
    Ziebart, Bagnell, Dey (2010), "Modeling interaction via the principle of maximum causal entropy"; Rust (1987),
    "Optimal replacement of GMC bus engines", whose polyalgorithm is Newton's method for the same equation; MacQueen
    (1966), "A modified dynamic programming method for Markovian decision problems".

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> solution = soft_values(corridor, [0.0, 0.0, 1.0])
    >>> print(solution.policy[:, 1].round(2), bool(solution.converged))
    [0.71 0.76 0.78] True
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    if is_concrete(mdp.discount) and not mdp.discount < 1:
        raise ValueError(
            f"mdp.discount is {mdp.discount}: without a horizon it must be below 1; soft_policy_by_step has a horizon"
        )
    if method not in METHODS:
        raise ValueError(f"method must be one of {tuple(METHODS)}, not {method!r}")
    if isinstance(tol, bool) or not isinstance(tol, float | int | np.floating):
        raise TypeError(f"tol must be a number, not {tol!r}")
    if not 0 < tol < np.inf:
        raise ValueError(f"tol must be a number above 0, not {tol!r}")
    max_steps = METHODS[method] if max_steps is None else max_steps
    whole_number("max_steps", max_steps, 1)
    (reward,) = read_reals(reward=reward)
    reward, batch = _with_state_last(mdp, reward)
    if initial is not None:
        (initial,) = read_reals(initial=initial)
        mdp._fits("initial", initial, (mdp.num_states,))
        came = f"reward has batch axes {batch}, initial {initial.shape[:-1]}"
        batch = common_batch(came, batch, initial.shape[:-1])
    transitions = mdp.transitions.for_solvers()
    dtype = jnp.result_type(reward.dtype, *(x for x in [transitions.probabilities, initial] if x is not None))
    world = World(transitions, mdp.discount, mdp.action_mask)
    # Of the discount as it was given: 1 - 0.9999 in single precision has three digits.
    interest = 1 - (float(mdp.discount) if is_concrete(mdp.discount) else mdp.discount)
    controls = Controls(interest, initial, tol, max_steps)
    return _solve(world, reward.astype(dtype), controls, method, batch)


def _with_state_last(mdp: MDP, reward: Array) -> tuple[Array, tuple[int, ...]]:
    """Rewards (..., action or 1, state) and their batch axes."""
    count, num_actions = mdp.num_states, mdp.num_actions
    if reward.shape[-2:] in ((count, num_actions), (count, 1)):
        return jnp.swapaxes(reward, -2, -1), reward.shape[:-2]
    if reward.shape[-1:] == (count,):
        return reward[..., None, :], reward.shape[:-1]
    raise ValueError(
        f"reward has shape {reward.shape}: the last axis must be the states of the world, ({count},), "
        f"or the last two its states and actions, ({count}, {num_actions})"
    )


@functools.partial(jax.jit, static_argnames=("method", "batch"))
def _solve(world, reward, controls, method, batch):
    dtype = reward.dtype
    world = world._replace(
        discount=jnp.asarray(world.discount, dtype),
        mask=None if world.mask is None else world.mask.T,
        transitions=jax.tree.map(
            lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, world.transitions
        ),
    )
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
    values = _evaluate(method, world, controls, policy, change)
    still = jax.tree.map(_no_tangent, solved)
    return solved, still._replace(relative=values)


def _evaluate(method, world, controls, policy, gain):
    r"""Discounted sums (state,) of what a policy gains at each state, :math:`(I - \gamma P_\pi)^{-1} g`."""
    chain = world.transitions.chain(policy)
    times = chain.forward()
    still = jax.tree.map(lax.stop_gradient, (chain, world.discount, world.transitions.excess(), policy))
    fixed, discount, excess, weight = still
    along = add_up(lambda a: weight[a] * excess[a], len(excess))
    system, direct = PolicySystem(fixed, discount, controls.interest, along), method == "direct"

    return lax.custom_linear_solve(
        lambda x: x - world.discount * times(x),
        gain,
        lambda _, b: system.solve(b, controls.tol, direct),
        lambda _, b: system.solve_transposed(b, controls.tol, direct),
    )


def _no_tangent(x):
    real = jnp.issubdtype(x.dtype, jnp.floating)
    return jnp.zeros_like(x) if real else np.zeros(x.shape, jax.dtypes.float0)
