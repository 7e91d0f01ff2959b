r"""ln Gamma and its derivatives for positive numbers, quickly: steps of a recurrence, then an asymptotic series.

``jax.scipy.special.polygamma`` takes the Hurwitz zeta function for every order, at about eight times the cost;
``gammaln`` and ``digamma`` reflect negative numbers, at two to three times the cost of both here. The steps that
constrain rows, and move weights and stickiness, spend most of their time here.

Abramowitz and Stegun (1964), sections 6.1, 6.3 and 6.4.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from ethogram.models.families.divergences import BERNOULLI

__all__ = ["log_gamma_and_digamma", "trigamma_and_tetragamma"]

_SERIES_FROM = 10  # beyond, the next term of the series is below rounding


def log_gamma_and_digamma(
    x: Float[Array, "*shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    r""":math:`\ln\Gamma(x)` and :math:`\psi(x)` for x > 0.

    References
    ----------
    Abramowitz and Stegun (1964), 6.1.15, 6.1.41, 6.3.5 and 6.3.18.
    """
    product, slope = jnp.ones_like(x), jnp.zeros_like(x)  # x (x + 1) ..., and its derivative
    for _ in range(_SERIES_FROM):
        small = x < _SERIES_FROM
        slope = jnp.where(small, slope * x + product, slope)
        product = jnp.where(small, product * x, product)
        x = jnp.where(small, x + 1, x)
    inverse, log = 1 / x, jnp.log(x)
    square = inverse * inverse
    series, of_slope = jnp.zeros_like(x), jnp.zeros_like(x)
    for n, bernoulli in reversed(list(enumerate(BERNOULLI, 1))):
        series = series * square + bernoulli / (2 * n * (2 * n - 1))
        of_slope = (of_slope + bernoulli / (2 * n)) * square
    value = (x - 0.5) * log - x + 0.5 * math.log(2 * math.pi) + series * inverse - jnp.log(product)
    return value, log - 0.5 * inverse - of_slope - slope / product


def trigamma_and_tetragamma(
    x: Float[Array, "*shape"],
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    r""":math:`\psi'(x)` and :math:`\psi''(x)` for x > 0.

    .. math:: \psi'(x) = \psi'(x + 1) + x^{-2}, \qquad
              \psi'(x) \sim \frac{1}{x} + \frac{1}{2 x^2} + \sum_n \frac{B_{2n}}{x^{2n+1}}

    References
    ----------
    Abramowitz and Stegun (1964), 6.4.6, 6.4.12 and 6.4.13.
    """
    first, second = jnp.zeros_like(x), jnp.zeros_like(x)
    for _ in range(_SERIES_FROM):
        small, inverse = x < _SERIES_FROM, 1 / x
        square = inverse * inverse
        first = first + jnp.where(small, square, 0)
        second = second - jnp.where(small, 2 * square * inverse, 0)
        x = jnp.where(small, x + 1, x)
    inverse = 1 / x
    square = inverse * inverse
    series, slope = jnp.zeros_like(x), jnp.zeros_like(x)
    for n, bernoulli in reversed(list(enumerate(BERNOULLI, 1))):
        series = (series + bernoulli) * square
        slope = (slope + (2 * n + 1) * bernoulli) * square
    first = first + inverse * (1 + 0.5 * inverse + series)
    second = second - square * (1 + inverse + slope)
    return first, second
