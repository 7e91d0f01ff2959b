r"""A Metropolis move of the scale of all values, with the latent utilities marginalised out.

.. math:: \theta' = c\,\theta, \qquad
          \alpha = \frac{p(d \mid c\,\theta)\,p(c\,\theta)\,c^p}{p(d \mid \theta)\,p(\theta)}

Where the scale of the values is poorly identified, a sweep of data augmentation changes it by about
:math:`1 / \sqrt{2 n}`, with n latent utilities; this move crosses the posterior. It is not in Singh, Chopin and
Whiteley: a Metropolis step on the marginal likelihood (eq. 7) within partially collapsed Gibbs (van Dyk and Park 2008).
The latent utilities are stale after it, and the next sweep has to draw them exactly given the values.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ethogram.inference.choices.gibbs_sweep import ProbitProblem, fitted
from ethogram.models.choices.probit_choice import ProbitChoice

__all__ = ["move_scale"]

SMALLEST, LARGEST = 0.03, 1.0
"""The standard deviation of ln c is log-uniform between these, so that some steps suit any width of the posterior."""


def move_scale(key: Array, problem: ProbitProblem, theta: Array) -> tuple[Array, Array]:
    """Theta (parameter, chain) after one such move, and whether it was accepted (chain,).

    Both have a leading axis where there are subjects, each with a scale of its own.
    """
    key_size, key_step, key_take = jax.random.split(key, 3)
    shape, dtype = (*theta.shape[:-2], theta.shape[-1]), theta.dtype
    sizes = jnp.exp(jax.random.uniform(key_size, shape, dtype, jnp.log(SMALLEST), jnp.log(LARGEST)))
    step = sizes * jax.random.normal(key_step, shape, dtype)
    new = jnp.exp(step)[..., None, :] * theta
    rise = _log_posterior(problem, new) - _log_posterior(problem, theta) + theta.shape[-2] * step
    take = jnp.log(jax.random.uniform(key_take, shape, dtype)) < rise
    return jnp.where(take[..., None, :], new, theta), take


def _log_posterior(problem: ProbitProblem, theta: Array) -> Array:
    """Unnormalised log posterior (chain,), or (subject, chain)."""
    options, decisions = problem.legal.shape[-3:-1]
    utilities = jnp.reshape(fitted(problem, theta), (*theta.shape[:-2], options, decisions, theta.shape[-1]))
    legal = jnp.moveaxis(problem.legal, -3, -1)
    each = ProbitChoice(jnp.moveaxis(utilities, -3, -1), legal).log_prob(0)  # the chosen option stands first
    likelihood = jnp.sum(jnp.where(jnp.any(legal, axis=-1), each, 0), axis=-2)
    size = theta.shape[-2]
    pull, precision = (x[..., :size, None] for x in (problem.pull, problem.precision))
    return likelihood + jnp.sum(pull * theta - 0.5 * precision * theta**2, axis=-2)
