r"""The second and third derivatives of ln Gamma, quickly: steps of a recurrence, then an asymptotic series.

``jax.scipy.special.polygamma`` takes the Hurwitz zeta function for every order, at about eight times the cost; the
steps that constrain rows and move weights spend most of their time here.

Abramowitz and Stegun (1964), section 6.4.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from ethogram.models.families.divergences import BERNOULLI

__all__ = ["trigamma", "trigamma_and_tetragamma"]

_SERIES_FROM = 10  # beyond, the next term of the series is below rounding


def trigamma(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    r""":math:`\psi'(x)` for x > 0."""
    return trigamma_and_tetragamma(x)[0]


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
