r"""Policy evaluation over an infinite horizon, :math:`V_\pi = (I - \gamma P_\pi)^{-1} r_\pi`.

Puterman (1994), "Markov decision processes", eq. 6.1.9. Solvers work on tables of one float type with the state axis
last: `read_environment` and `of_type` make them, and `evaluate` solves the linear system of one policy, with the
derivatives that solvers need.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from ethogram.models.arguments import (
    Reals,
    common_batch,
    is_concrete,
    read_reals,
    require,
    require_distributions,
    require_number,
)
from ethogram.models.mdps.mdp import MDP, read_reward
from ethogram.models.mdps.policy_iteration import Environment
from ethogram.models.mdps.policy_system import PolicySystem, add_up

__all__ = [
    "DIRECT_AT_MOST",
    "evaluate",
    "expected_value",
    "of_type",
    "policy_values",
    "read_environment",
    "read_interest",
    "require_converged",
]

DIRECT_AT_MOST = 128
"""Number of states up to which linear systems are factored by default."""


def policy_values(
    mdp: MDP, reward: Reals, policy: Reals, *, pairs: bool | None = None, tol: float | int = 1e-12
) -> Float[Array, "*batch state"]:
    r"""Values (..., state) of a policy: expected discounted returns, without an entropy bonus.

    .. math:: V(s) = \sum_a \pi(a \mid s) \Bigl( r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s') \Bigr)

    The result is differentiable with respect to rewards, policy and MDP, and can be mapped by `jax.vmap`.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1).
    reward : r (..., state), or (..., state, action) where the last two axes are (S, A).
    policy : pi (..., state, action), probabilities of actions that are available. Rows sum to one within 1e-6, float32
        1e-4, and are divided by what they sum to. Batch axes broadcast against those of the reward.
    pairs : whether rewards are of pairs (state, action). None reads it from the shape, where S and A differ.
    tol : relative residual of the linear system above 128 states, which is factored up to that.

    Raises
    ------
    TypeError, ValueError : `mdp` is not an MDP, or its discount is 1; `reward` or `policy` is not of finite floats or
        has the wrong shape; a row of the policy does not sum to one, is negative, or has an unavailable action.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> always_right = jnp.array([[0.0, 1.0]] * 3)
    >>> print(policy_values(corridor, [0.0, 0.0, 1.0], always_right).round(3))
    [0.5 1.  2. ]
    """
    reward, batch = read_reward(mdp, reward, pairs=pairs)
    interest = read_interest(mdp)
    require_number("tol", tol, above=0)
    policy = _read_policy(mdp, policy)
    came = f"reward has batch axes {batch}, policy {policy.shape[:-2]}"
    batch = common_batch(came, batch, policy.shape[:-2])
    environment, dtype = read_environment(mdp, reward, policy)
    return _values(environment, reward, policy, dtype, interest, tol, batch)


def expected_value(
    mdp: MDP, reward: Reals, policy: Reals, *, pairs: bool | None = None
) -> Float[Array, "*batch"]:
    """Expected values (...) of a policy under the start distribution of the MDP, uniform where it has none.

    Parameters
    ----------
    mdp, reward, policy, pairs : as for :func:`policy_values`.

    Raises
    ------
    TypeError, ValueError : as :func:`policy_values`.
    """
    return _mean(policy_values(mdp, reward, policy, pairs=pairs), mdp.start)


@jax.jit
def _mean(values: Array, start: Array | None) -> Array:
    return jnp.mean(values, -1) if start is None else values @ start.astype(values.dtype)


@functools.partial(jax.jit, static_argnames=("dtype", "batch"))
def _values(environment, reward, policy, dtype, interest, tol, batch):
    environment, interest = of_type(environment, dtype), jnp.asarray(interest, dtype)

    def solve(reward, policy):
        share = policy / jnp.sum(policy, axis=-1, keepdims=True)
        gain = jnp.sum(share * reward, axis=-1)
        return evaluate(environment, share.T, gain, interest, tol, len(gain) <= DIRECT_AT_MOST)

    rows = (jnp.broadcast_to(x.astype(dtype), (*batch, *x.shape[-2:])) for x in (reward, policy))
    for _ in batch:
        solve = jax.vmap(solve)
    return solve(*rows)


def evaluate(
    environment: Environment, policy: Array, gain: Array, interest: Any, tol: Any, direct: bool
) -> Array:
    r"""Discounted sums :math:`(I - \gamma P_\pi)^{-1} g` of the gain g, both (state,), under a policy (action, state).

    Differentiable with respect to everything but `interest`, which is one minus the discount.
    """
    chain = environment.transitions.chain(policy)
    times = chain.forward()
    still = jax.tree.map(
        lax.stop_gradient, (chain, environment.discount, environment.transitions.excess(), policy)
    )
    fixed, discount, excess, weight = still
    along = add_up(lambda a: weight[a] * excess[a], len(excess))
    system = PolicySystem(fixed, discount, interest, along)
    return lax.custom_linear_solve(
        lambda x: x - environment.discount * times(x),
        gain,
        lambda _, b: system.solve(b, tol, direct),
        lambda _, b: system.solve_transposed(b, tol, direct),
    )


def read_environment(mdp: MDP, *values: Any) -> tuple[Environment, Any]:
    """The MDP as solvers take it, and the common float type of it and of the values that are not None."""
    transitions = mdp.transitions.for_solvers()
    dtype = jnp.result_type(*(x.dtype for x in (transitions.probabilities, *values) if x is not None))
    return Environment(transitions, mdp.discount, mdp.action_mask), dtype


def of_type(environment: Environment, dtype: Any) -> Environment:
    """The environment in one float type, with the mask (action, state)."""
    return Environment(
        jax.tree.map(
            lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, environment.transitions
        ),
        jnp.asarray(environment.discount, dtype),
        None if environment.mask is None else environment.mask.T,
    )


def read_interest(mdp: MDP) -> Any:
    """One minus a discount below 1, computed in double precision: in single, 1 - 0.9999 has three digits."""
    if not is_concrete(mdp.discount):
        return 1 - mdp.discount
    if not mdp.discount < 1:
        raise ValueError(
            f"mdp.discount is {mdp.discount}: over an infinite horizon it must be below 1; pass a discount below 1 "
            "(soft_values, of soft-optimal agents, takes horizon= too)"
        )
    return 1 - float(mdp.discount)


def require_converged(name: str, solution: Any) -> Any:
    """The solution of `soft_values` or `optimal_values`; RuntimeError unless it has converged, where that is known."""
    if is_concrete(solution.converged) and not np.all(solution.converged):
        raise RuntimeError(
            f"{name} has not converged after {np.max(solution.steps)} steps (residual "
            f"{np.max(solution.residual):.3g}): call {name} with a larger max_steps, check the scale of the reward, or "
            "set jax_enable_x64: single precision does not hold values that differ by over 2e4"
        )
    return solution


def _read_policy(mdp: MDP, policy: Any) -> Array:
    """Checked probabilities (..., state, action)."""
    (policy,) = read_reals(policy=policy)
    lead = (mdp.num_states, mdp.num_actions)
    if policy.shape[-2:] != lead:
        raise ValueError(
            f"policy has shape {policy.shape}: the last two axes must be (state, action), which is {lead}"
        )
    if not is_concrete(policy, mdp.action_mask):
        return policy
    host = np.asarray(policy)
    if mdp.action_mask is not None:
        allowed = np.asarray(mdp.action_mask) | (host == 0)
        require(allowed, "policy", host, "is of an action that is not available", "give it zero")
    require_distributions("policy", host)
    return policy
