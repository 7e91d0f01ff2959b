r"""Rewards behind the values of a noisy agent, under either reading of its noise.

*Noisy execution*: the agent knows the optimal values of its MDP, and executes its choice with noise,

.. math:: r(x) = v(x) - \beta \max_a (R_x v)(a).

*Private reward*: the noise is a reward of each action that only the agent observes, and v is :math:`\beta` times the
expected optimal value,

.. math:: r(x) = v(x) / \beta - E \max_a \{\epsilon(a) + (R_x v)(a)\}.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", eq. 3 and 6; Rust (1988) for the
second reading. Erratum of eq. 6: under the second reading v is :math:`\beta` times a smoothed value function, which
does not solve the optimality equation (3) of the first.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from ethogram.models.arguments import Reals, is_concrete, read_reals, require, require_one_of, require_reals
from ethogram.models.choices.probit_choice import OFFSETS, winner_density
from ethogram.models.mdps.mdp import MDP

__all__ = ["expected_maximum", "reward"]

READINGS = ("execution", "private")


def reward(
    values: Reals,
    mdp: MDP,
    beta: float | int | Float[Array, ""],
    *,
    reading: str = "execution",
    legal: ArrayLike | None = None,
) -> Float[Array, "*batch state"]:
    """Reward (..., state) of an agent with these values; identified up to a constant, as the values are.

    Parameters
    ----------
    values : v (..., state), such as posterior samples of the site ``v``.
    mdp : the MDP of the agent; its discount is not used.
    beta : discount in (0, 1).
    reading : ``"execution"`` or ``"private"``, what the noise is; private noise is normal here, whatever was fitted.
    legal : (state, action) booleans, a subset of the actions of the MDP; None for all of them (`action_mask`).

    Raises
    ------
    TypeError, ValueError
        If the reading is unknown, beta is not in (0, 1), values are not one per state, a state has no legal action, or
        a legal action is not one of the MDP.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]])
    >>> [round(float(r), 3) for r in reward(jnp.array([0.0, 1.0, 5.0]), corridor, 0.5)]
    [-0.5, -1.5, 2.5]
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: pass an MDP")
    require_one_of("reading", reading, READINGS)
    require_reals("beta", beta)
    if np.ndim(beta) or (is_concrete(beta) and not 0 < np.asarray(beta) < 1):
        raise ValueError(f"beta must be a number in (0, 1), not {beta!r}")
    (values,) = read_reals(values=values)
    allowed = mdp.allowed_actions(legal)
    if is_concrete(allowed):
        fault = "has no legal action"
        require(np.asarray(allowed).any(-1), "legal", allowed, fault, "pass at least one per state")
    return _reward(values, mdp, beta, allowed, reading == "execution")


@functools.partial(jax.jit, static_argnames="executed")
def _reward(values: Array, mdp: MDP, beta: Any, allowed: Array, executed: bool) -> Array:
    ahead = mdp.expect(values)
    if executed:
        return values - beta * jnp.max(jnp.where(allowed, ahead, -jnp.inf), axis=-1)
    return values / beta - expected_maximum(ahead, allowed)


@jax.jit
def expected_maximum(utilities: Array, legal: Array) -> Array:
    r""":math:`E \max_j (\mu_j + \epsilon_j)` over the legal options of (..., option), with standard normal noise.

    By the trapezoid rule on the density of the largest utility, the sum over options of the density of its being the
    winner's.
    """
    top = jnp.max(jnp.where(legal, utilities, -jnp.inf), axis=-1)
    gaps = jnp.moveaxis(jnp.where(legal, top[..., None] - utilities, 0), -1, 0)
    legal = jnp.moveaxis(legal, -1, 0)
    x = jnp.asarray(OFFSETS, utilities.dtype)
    density = jax.lax.map(lambda at: jnp.sum(winner_density(at, gaps, legal), axis=0), x)
    return top + jnp.tensordot(x, density, axes=1) / jnp.sum(density, axis=0)
