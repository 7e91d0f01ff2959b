r"""Gradient and Hessian of the log likelihood of demonstrations in the reward, in closed form.

With :math:`M = (I - \gamma P_\pi)^{-1}`, state visitation :math:`\rho = M^\top c`, and :math:`c = t - \gamma \sum_{s,a}
n(s, a) P(\cdot \mid s, a)` of the counts t(s) and n(s, a) of the demonstrations,

.. math:: \ln p(D \mid r) = n \cdot r - c \cdot V, \qquad
          \nabla = n - \rho\,\pi, \qquad
          \nabla^2 = -\sum_s \rho_s\, \mathrm{Cov}_{a \sim \pi(\cdot \mid s)} \big[ \partial Q(s, a) / \partial r \big]

c is signed, and so is :math:`\rho`: where it is negative the log likelihood is not concave. The gradient sums to zero,
since a constant added to the reward leaves the policy unchanged.

The gradient is that of Ziebart, Bagnell and Dey (2010), "Modeling interaction via the principle of maximum causal
entropy", section 3; the Hessian follows by differentiating it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.mdps.demonstrations import count_log_likelihood
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.policy_system import PolicySystem
from ethogram.models.mdps.tabular import tabular
from ethogram.models.mdps.transitions import SparseTransitions
from ethogram.models.mdps.values import soft_values
from ethogram.models.quick_jit import quick_jit

__all__ = ["Curvature", "likelihood_curvature"]


DENSE_AT_MOST = 1000
"""States up to which the linear systems of a policy are factored at once for all columns."""

TOL = 1e-9
"""Relative residual of the systems of more states."""

SLOTS_AT_MOST = 16
"""Next states of a state up to which the covariances of values over actions are summed before they meet the columns."""


class Curvature(NamedTuple):
    """Log likelihood of demonstrations, in nats, and its derivatives in the rewards of all points.

    A point is a state, or a pair state * A + action, depending on the shape of the reward. With a basis derivatives are
    in its coordinates.
    """

    log_likelihood: Float[Array, ""]
    gradient: Float[Array, "point"]
    hessian: Float[Array, "point point"]


def _matrices_of_states(mdp: MDP, reward: Array, counts: Array, **_: Any) -> int:
    """Work per number of the arguments: about twenty passes over a matrix (state, state)."""
    return 20 * len(counts)


@quick_jit(calls=_matrices_of_states, static_argnames="pairs")
def likelihood_curvature(
    mdp: MDP, reward: Array, counts: Array, *, basis: Array | None = None, pairs: bool = False
) -> Curvature:
    """Log likelihood, gradient and Hessian of counts (state, action) at a reward (state,); `pairs`: (state, action).

    With a `basis` (point, w) derivatives are in the coordinates w of rewards ``basis @ w``, for one linear system per
    column: time linear in the number of states, and memory for a few matrices (state, w). Above 1000 states systems are
    solved by BiCGSTAB, one after the other. The discount is below 1.
    """
    solution = soft_values(mdp, reward, pairs=pairs)
    policy = solution.policy
    if basis is None:
        basis = jnp.eye(policy.size if pairs else len(policy), dtype=policy.dtype)
    # (1 or A, state, w), the derivatives in w of the rewards of each action.
    moved = jnp.moveaxis(basis.reshape(len(policy), -1, basis.shape[-1]), 1, 0)
    table, policy = tabular(mdp).cast(policy)
    system, direct = PolicySystem.of(table, policy.T), len(policy) <= DENSE_AT_MOST
    signed = jnp.sum(counts, 1) - mdp.discount * mdp.push(counts)
    visits = system.solve_transposed(signed, TOL, direct)
    shares = policy.T[..., None]
    of_values = system.solve(jnp.sum(shares * moved, 0) if pairs else moved[0], TOL, direct)
    of_points = (counts - visits[:, None] * policy).ravel() if pairs else jnp.sum(counts, 1) - visits
    gradient = jnp.matmul(of_points, basis, precision="highest")
    log_likelihood = count_log_likelihood(solution.log_policy, counts)
    slots = None if pairs or len(policy) > DENSE_AT_MOST else _next_states(mdp.transitions)
    if slots is not None:
        # Values of all actions share the reward of a state, so that the next values alone differ.
        of_values = of_values - jnp.mean(of_values, 0, keepdims=True)
        spread = _spread_of_next_states(*slots, policy, mdp.discount**2 * visits)
        hessian = -jnp.matmul(
            of_values.T, jnp.matmul(spread, of_values, precision="highest"), precision="highest"
        )
        return Curvature(log_likelihood, gradient, 0.5 * (hessian + hessian.T))

    def add(action, hessian):
        own = moved[action if pairs else 0]
        apart = own + mdp.discount * mdp.transitions.expected_next_columns(action, of_values) - of_values
        weighted = (visits * policy[:, action])[:, None] * apart
        return hessian - jnp.matmul(weighted.T, apart, precision="highest")

    nothing = jnp.zeros((basis.shape[-1],) * 2, policy.dtype)
    hessian = jax.lax.fori_loop(0, policy.shape[1], add, nothing)
    return Curvature(log_likelihood, gradient, 0.5 * (hessian + hessian.T))


def _next_states(transitions: Any) -> tuple[Array, Array] | None:
    """Next states (slot, state), and their probabilities (action, slot, state); None where they are many."""
    if not isinstance(transitions, SparseTransitions):
        return None
    neighbours, probs = transitions.neighbours, transitions.probabilities
    if np.prod(np.shape(neighbours)[:-1]) > SLOTS_AT_MOST:
        return None
    if np.ndim(neighbours) == 3:  # every action has slots of its own
        num_actions, width, num_states = probs.shape
        own = jnp.eye(num_actions, dtype=probs.dtype)[:, :, None, None]
        probs = (own * probs[None]).reshape(num_actions, num_actions * width, num_states)
    return jnp.asarray(neighbours).reshape(-1, probs.shape[-1]), probs


def _spread_of_next_states(neighbours: Array, probs: Array, policy: Array, weights: Array) -> Array:
    r"""The matrix :math:`\sum_s w_s\, \mathrm{Cov}_{a \sim \pi(\cdot \mid s)} [P(\cdot \mid s, a)]` (state, state)."""
    apart = probs - jnp.einsum("sa,acs->cs", policy, probs)[None]
    covariance = jnp.einsum("s,sa,acs,ads->cds", weights, policy, apart, apart, precision="highest")
    spread = jnp.zeros((len(policy),) * 2, policy.dtype)
    return spread.at[neighbours[:, None], neighbours[None]].add(covariance)
