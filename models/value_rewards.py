r"""Rewards behind the values of a noisy agent, under either of the two readings of its noise.

*Noisy execution*: the agent knows the optimal values of its world, and its hand trembles,

.. math:: r(x) = v(x) - \beta \max_a (R_x v)(a).

*Private reward*: the agent alone sees what an action adds to the reward of the moment, and v is :math:`\beta` times its
expected optimal value,

.. math:: r(x) = v(x) / \beta - E \max_a \{\epsilon(a) + (R_x v)(a)\}.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section 2; Rust (1988) for the
second. Printed there and built otherwise: under the second reading v is :math:`\beta` times a smoothed value function,
which does not solve the optimality equation (3) of the first.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ethogram.models.blocks.conjugate_block import Reals, is_concrete, read_reals, require_reals
from ethogram.models.choice import OFFSETS, winner_density
from ethogram.models.legal_actions import legal_actions
from ethogram.models.mdp import MDP

__all__ = ["expected_maximum", "reward"]

READINGS = ("execution", "private")


def reward(
    values: Reals, mdp: MDP, beta: Any, *, reading: str = "execution", legal: Any = None
) -> Float[Array, "*batch state"]:
    """Reward (..., state) of an agent that values states so; known up to a constant, as the values are.

    Parameters
    ----------
    values : v (..., state), such as draws of the site ``v``.
    mdp : the world; its own discount is not used.
    beta : discount in (0, 1).
    reading : ``"execution"`` or ``"private"``, what the noise is.
    legal : (state, action) booleans, of actions that the world has; None for all of these (`action_mask`).

    Raises
    ------
    TypeError, ValueError
        If there is no such reading, beta is not in (0, 1), values are not one a state, a state has no legal action, or
        a legal one that the world does not have.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]])
    >>> [round(float(r), 3) for r in reward(jnp.array([0.0, 1.0, 5.0]), corridor, 0.5)]
    [-0.5, -1.5, 2.5]
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    if reading not in READINGS:
        raise ValueError(f"reading must be one of {READINGS}, not {reading!r}")
    require_reals("beta", beta)
    if np.ndim(beta) or (is_concrete(beta) and not 0 < beta < 1):
        raise ValueError(f"beta must be a number in (0, 1), not {beta!r}")
    (values,) = read_reals(values=values)
    ahead = mdp.expect(values)
    allowed = jnp.asarray(legal_actions(mdp, legal))
    if is_concrete(allowed) and not np.asarray(allowed).any(-1).all():
        raise ValueError(f"legal[{int((~np.asarray(allowed).any(-1)).argmax())}]: no action is legal there")
    if reading == "execution":
        return values - beta * jnp.max(jnp.where(allowed, ahead, -jnp.inf), axis=-1)
    return values / beta - expected_maximum(ahead, allowed)


@jax.jit
def expected_maximum(utilities: Array, legal: Array) -> Array:
    r""":math:`E \max_j (\mu_j + \epsilon_j)` over the legal options of (..., option), with standard normal noise.

    Notes
    -----
    By the trapezoid rule on the density of the largest utility, the sum of those of all options' being the largest.
    """
    top = jnp.max(jnp.where(legal, utilities, -jnp.inf), axis=-1)
    gaps = jnp.where(legal, top[..., None] - utilities, 0)
    x = jnp.asarray(OFFSETS, utilities.dtype)
    density = jax.lax.map(lambda at: jnp.sum(winner_density(at, gaps, legal), axis=-1), x)
    return top + jnp.tensordot(x, density, axes=1) / jnp.sum(density, axis=0)
