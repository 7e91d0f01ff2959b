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

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_values import soft_values

__all__ = ["Curvature", "likelihood_curvature"]


class Curvature(NamedTuple):
    """Log likelihood of demonstrations, in nats, and its derivatives in the rewards of all points.

    A point is a state, or a pair state * A + action, depending on the shape of the reward.
    """

    log_likelihood: Float[Array, ""]
    gradient: Float[Array, "point"]
    hessian: Float[Array, "point point"]


@functools.partial(jax.jit, static_argnames="pairs")
def likelihood_curvature(mdp: MDP, reward: Array, counts: Array, *, pairs: bool = False) -> Curvature:
    """Log likelihood, gradient and Hessian of counts (state, action) at a reward (state,); `pairs`: (state, action).

    The discount is below 1. Memory: matrices (point, point), and the number of actions times as much.
    """
    solution = soft_values(mdp, reward)
    policy = solution.policy
    identity = jnp.eye(mdp.num_states, dtype=policy.dtype)
    chain = mdp.transitions.for_solvers().chain(policy.T)
    resolvent = jnp.linalg.inv(identity - mdp.discount * chain.matrix())
    signed = jnp.sum(counts, 1) - mdp.discount * mdp.push(counts)
    visits = resolvent.T @ signed
    taken = jnp.where(counts > 0, counts * jnp.where(counts > 0, solution.log_policy, 0), 0)
    # Derivatives in r of V, (point, state), and of Q, (point, state, action).
    of_values = resolvent.T
    of_actions = mdp.discount * mdp.expect(of_values)
    if pairs:
        weighted = policy[:, :, None]
        of_actions = weighted[..., None] * of_actions[:, None]
        of_actions += (
            identity[:, None, :, None] * jnp.eye(mdp.num_actions, dtype=policy.dtype)[None, :, None, :]
        )
        of_values = weighted * of_values[:, None]
        of_actions = of_actions.reshape(-1, *policy.shape)
        of_values = of_values.reshape(-1, mdp.num_states)
        gradient = (counts - visits[:, None] * policy).ravel()
    else:
        of_actions = of_actions + identity[..., None]
        gradient = jnp.sum(counts, 1) - visits
    apart = (of_actions - of_values[..., None]).reshape(len(of_values), -1)
    weights = (visits[:, None] * policy).ravel()
    hessian = -jnp.matmul(apart * weights, apart.T, precision="highest")
    return Curvature(jnp.sum(taken), gradient, 0.5 * (hessian + hessian.T))
