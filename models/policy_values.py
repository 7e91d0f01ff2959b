r"""What a policy is worth in a world without end, :math:`V_\pi = (I - \gamma P_\pi)^{-1} r_\pi`.

Solvers take worlds apart into tables of one float type, with the state axis last: `read_world` and `of_type` do that,
and `evaluate` solves the linear system of one policy with the derivatives that solvers need.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ethogram.models.blocks.conjugate_block import Reals, common_batch, is_concrete, read_reals, require
from ethogram.models.mdp import MDP, read_reward
from ethogram.models.policy_chain import PolicySystem, add_up
from ethogram.models.soft_newton import World

__all__ = [
    "DIRECT_AT_MOST",
    "evaluate",
    "expected_value",
    "of_type",
    "policy_values",
    "read_interest",
    "read_world",
    "require_tolerance",
]

DIRECT_AT_MOST = 128
"""States up to which linear systems are factored unasked."""


def policy_values(
    mdp: MDP, reward: Reals, policy: Reals, *, tol: float | int = 1e-12
) -> Float[Array, "*batch state"]:
    r"""Values (..., state) of a policy: expected discounted sums of the reward, without a bonus for entropy.

    .. math:: V(s) = \sum_a \pi(a \mid s) \Bigl( r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s') \Bigr)

    The result can be differentiated with respect to rewards, policy and world, and mapped by `jax.vmap`.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1).
    reward : r (..., state), or (..., state, action) where the last two axes are (S, A).
    policy : pi (..., state, action), probabilities of actions that are available. Rows sum to one within 1e-6, float32
        1e-4, and are divided by what they sum to. Batch axes broadcast against those of the reward.
    tol : relative residual of the linear system above 128 states, which is factored up to that.

    Raises
    ------
    TypeError, ValueError : `mdp` is no MDP, or its discount is 1; `reward` or `policy` is not of finite floats or does
        not fit; a row of the policy does not sum to one, is negative, or has an action that is not available.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> always_right = jnp.array([[0.0, 1.0]] * 3)
    >>> print(policy_values(corridor, [0.0, 0.0, 1.0], always_right).round(3))
    [0.5 1.  2. ]
    """
    reward, batch = read_reward(mdp, reward)
    interest = read_interest(mdp)
    require_tolerance(tol)
    policy = _read_policy(mdp, policy)
    came = f"reward has batch axes {batch}, policy {policy.shape[:-2]}"
    batch = common_batch(came, batch, policy.shape[:-2])
    world, dtype = read_world(mdp, reward, policy)
    return _values(world, reward.astype(dtype), policy.astype(dtype), interest, tol, batch)


def expected_value(mdp: MDP, reward: Reals, policy: Reals) -> Float[Array, "*batch"]:
    """Values (...) of a policy, as :func:`policy_values` has them, on average over where episodes start.

    Starts are those of the world, or all states alike where it has none.

    Raises
    ------
    TypeError, ValueError : as :func:`policy_values`.
    """
    values = policy_values(mdp, reward, policy)
    return jnp.mean(values, -1) if mdp.start is None else values @ jnp.asarray(mdp.start, values.dtype)


@functools.partial(jax.jit, static_argnames="batch")
def _values(world, reward, policy, interest, tol, batch):
    world = of_type(world, reward.dtype)
    interest = jnp.asarray(interest, reward.dtype)

    def solve(reward, policy):
        share = policy / jnp.sum(policy, axis=-1, keepdims=True)
        gain = jnp.sum(share * reward, axis=-1)
        return evaluate(world, share.T, gain, interest, tol, len(gain) <= DIRECT_AT_MOST)

    rows = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (reward, policy))
    for _ in batch:
        solve = jax.vmap(solve)
    return solve(*rows)


def evaluate(world: World, policy: Array, gain: Array, interest: Any, tol: Any, direct: bool) -> Array:
    r"""Discounted sums (state,) of what a policy (action, state) gains, :math:`(I - \gamma P_\pi)^{-1} g`.

    They have derivatives with respect to everything that is not `interest`, which is one less the discount.
    """
    chain = world.transitions.chain(policy)
    times = chain.forward()
    still = jax.tree.map(lax.stop_gradient, (chain, world.discount, world.transitions.excess(), policy))
    fixed, discount, excess, weight = still
    along = add_up(lambda a: weight[a] * excess[a], len(excess))
    system = PolicySystem(fixed, discount, interest, along)
    return lax.custom_linear_solve(
        lambda x: x - world.discount * times(x),
        gain,
        lambda _, b: system.solve(b, tol, direct),
        lambda _, b: system.solve_transposed(b, tol, direct),
    )


def read_world(mdp: MDP, *values: Any) -> tuple[World, Any]:
    """The world as solvers take it, and the float type of it and of the values that are not None."""
    transitions = mdp.transitions.for_solvers()
    dtype = jnp.result_type(*(x.dtype for x in (transitions.probabilities, *values) if x is not None))
    return World(transitions, mdp.discount, mdp.action_mask), dtype


def of_type(world: World, dtype: Any) -> World:
    """The world in one float type, with the mask (action, state)."""
    return World(
        jax.tree.map(
            lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, world.transitions
        ),
        jnp.asarray(world.discount, dtype),
        None if world.mask is None else world.mask.T,
    )


def read_interest(mdp: MDP) -> Any:
    """One less the discount, of which it keeps the digits: 1 - 0.9999 in single precision has three.

    Raises
    ------
    ValueError : the discount is 1.
    """
    if not is_concrete(mdp.discount):
        return 1 - mdp.discount
    if not mdp.discount < 1:
        raise ValueError(
            f"mdp.discount is {mdp.discount}: without a horizon it must be below 1; soft_values has a horizon"
        )
    return 1 - float(mdp.discount)


def require_tolerance(tol: Any) -> None:
    """Raise TypeError or ValueError unless it is a number above 0."""
    if isinstance(tol, bool) or not isinstance(tol, float | int | np.floating):
        raise TypeError(f"tol must be a number, not {tol!r}")
    if not 0 < tol < np.inf:
        raise ValueError(f"tol must be a number above 0, not {tol!r}")


def _read_policy(mdp: MDP, policy: Any) -> Array:
    """Probabilities (..., state, action), once they are found in order."""
    (policy,) = read_reals(policy=policy)
    lead = (mdp.num_states, mdp.num_actions)
    if policy.shape[-2:] != lead:
        raise ValueError(
            f"policy has shape {policy.shape}: the last two axes must be (state, action), which is {lead}"
        )
    if not is_concrete(policy, mdp.action_mask):
        return policy
    host = np.asarray(policy)
    require(host >= 0, "policy", host, "is negative", "give probabilities")
    if mdp.action_mask is not None:
        allowed = np.asarray(mdp.action_mask) | (host == 0)
        require(allowed, "policy", host, "is of an action that is not available", "give it zero")
    sums = host.sum(-1, dtype=np.float64)
    wrong = np.argwhere(np.abs(sums - 1) > (1e-6 if host.dtype == np.float64 else 1e-4))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise ValueError(f"policy{list(at)} sums to {sums[at]:.6g}, not 1: divide each row by its sum")
    return policy
