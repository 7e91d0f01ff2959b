r"""Student t noise with one scale per decision, its probabilities by a quadrature of that scale.

.. math:: \epsilon_t = z_t / \sqrt{\lambda_t}, \quad z_t \sim N(0, I), \quad \lambda_t \sim \Gamma(\nu/2, \nu/2),
          \qquad P_\nu(a \mid \mu) = \int \Gamma(\lambda; \nu/2, \nu/2)\, P_N(a \mid \sqrt\lambda \mu)\, d\lambda

Errors of a decision are a multivariate t, uncorrelated and not independent: the decision as a whole was a noisy one.
With :math:`\eta = \ln \lambda` and D the squared distance of the mean utilities from those that lead to the choice,
:math:`\ln P_N \approx -\lambda D / 2` far out: the integrand has its mode near :math:`\ln\{\nu / (\nu + D)\}`, where
its curvature is :math:`\nu/2`. The trapezoid rule about it converges geometrically, in the far tails too, where fixed
nodes miss the mode. To the left, where :math:`P_N` is constant, its terms are a geometric series, which is summed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import gammaln, logsumexp
from jaxtyping import Array
from numpyro.distributions import Distribution

from ethogram.models.choices.choice_distribution import ChoiceNoise
from ethogram.models.choices.probit_choice import NODES, NormalNoise, log_probability, option_probabilities
from ethogram.models.model_object import model_object

__all__ = ["StudentNoise"]


class Rule(NamedTuple):
    """Nodes of the log scale between two ends, in standard deviations about the mode; and of the normal inside."""

    left: float
    right: float
    scales: int
    inner: int


COARSE, FINE = Rule(-9.0, 5.5, 20, 12), Rule(-12.0, 7.0, 42, 32)
"""Rules of single and double precision.

Errors of ln P are below 5e-11 (nu = 8), 3e-9 (4), 5e-8 (2) and 1e-6 (1) by the second, of gaps up to 90.
"""

DISTANCE_STEPS = 8
"""Of Newton's method for the distance D, which need not be exact."""


@model_object
class StudentNoise(ChoiceNoise):
    """Multivariate t errors with `nu` degrees of freedom and one scale per decision."""

    nu: Any

    log_concave = False

    def log_probability(self, gaps: Array, others: Array, num_nodes: int | None = None) -> Array:
        """Log probability (...): 0 where the decision has one option."""
        if len(gaps) == 0:
            return jnp.zeros(gaps.shape[1:], gaps.dtype)
        rule = _rule(num_nodes or NODES[gaps.dtype])

        def at(node):
            eta, log_weight = node
            return log_probability(jnp.exp(eta / 2) * gaps, others, rule.inner) + log_weight

        each = lax.map(at, self._scales(_distance(lax.stop_gradient(gaps), others), rule))
        return jnp.where(jnp.any(others, axis=0), logsumexp(each, axis=0), 0)

    def placed(self, gaps: Any, others: Any, num_nodes: int) -> Any:
        """Nodes of the scale, and at each those of the normal noise."""
        scales = self._scales(_distance(gaps, others), _rule(num_nodes))
        inside = lax.map(
            lambda eta: NormalNoise().placed(jnp.exp(eta / 2) * gaps, others, num_nodes), scales[0]
        )
        return scales, inside

    def on_nodes(self, gaps: Array, others: Array, nodes: Any, near: bool) -> Array:
        """Log probability (...) by these nodes."""

        def at(node):
            (eta, log_weight), inside = node
            return NormalNoise().on_nodes(jnp.exp(eta / 2) * gaps, others, inside, near) + log_weight

        return logsumexp(lax.map(at, nodes), axis=0)

    def probabilities(self, utilities: Any, legal: Any) -> Array:
        """Probability of every option (..., option)."""
        eta, log_weights = self._scales(jnp.zeros((), utilities.dtype), _rule(NODES[utilities.dtype]))

        def add(total, node):
            scale, log_weight = node
            return total + jnp.exp(log_weight) * option_probabilities(
                jnp.exp(scale / 2) * utilities, legal
            ), None

        total = lax.scan(add, jnp.zeros_like(utilities), (eta, log_weights))[0]
        return total / jnp.sum(total, axis=-1, keepdims=True)

    def perturbed(self, key: Array, utilities: Array) -> Array:
        """Utilities with errors of one scale per decision."""
        key_scale, key_error = jax.random.split(key)
        shape, dtype = (*utilities.shape[:-1], 1), utilities.dtype
        scale = jax.random.gamma(key_scale, jnp.asarray(self.nu / 2, dtype), shape, dtype) / (self.nu / 2)
        return utilities + jax.random.normal(key_error, utilities.shape, dtype) / jnp.sqrt(scale).astype(
            dtype
        )

    def in_words(self) -> str:
        """What a summary calls it."""
        known = "" if isinstance(self.nu, Distribution) else f", nu = {float(self.nu):.3g}"
        return f"Student t noise (one scale per decision{known})"

    def concave(self) -> ChoiceNoise:
        """The normal, of infinite nu."""
        return NormalNoise()

    def _scales(self, distance: Array, rule: Rule) -> tuple[Array, Array]:
        """Nodes of log scales (node, ...) of a squared distance (...), and logs of their weights."""
        nu = jnp.asarray(self.nu, distance.dtype)
        offsets = np.linspace(rule.left, rule.right, rule.scales)
        step = jnp.sqrt(2 / nu) * (offsets[1] - offsets[0])
        place = jnp.sqrt(2 / nu) * jnp.asarray(offsets.reshape(-1, *[1] * distance.ndim), distance.dtype)
        eta = jnp.log(nu / (nu + distance)) + place
        log_weights = nu / 2 * (eta + jnp.log(nu / 2) - jnp.exp(eta)) - gammaln(nu / 2) + jnp.log(step)
        return eta, log_weights.at[0].add(-jnp.log(-jnp.expm1(-nu / 2 * step)))


def _rule(num_nodes: int) -> Rule:
    """The rule where a normal has so many nodes."""
    return FINE if num_nodes >= FINE.inner else COARSE


def _distance(gaps: Array, others: Array) -> Array:
    r"""Squared distance D (...): twice the least of :math:`x^2/2 + \sum_j \min(0, x + d_j)^2/2`.

    By Newton's method from zero, which never overshoots, as the derivative is concave and increasing.
    """

    def step(_, x):
        below = jnp.where(others, jnp.minimum(x + gaps, 0), 0)
        return x - (x + jnp.sum(below, axis=0)) / (1 + jnp.sum(below < 0, axis=0))

    x = lax.fori_loop(0, DISTANCE_STEPS, step, jnp.zeros(gaps.shape[1:], gaps.dtype))
    return x**2 + jnp.sum(jnp.where(others, jnp.minimum(x + gaps, 0), 0) ** 2, axis=0)
