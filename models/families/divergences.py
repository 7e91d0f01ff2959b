"""Parts of the KL divergences between exponential-family blocks, in forms that do not cancel.

With counts of 1e6 the usual forms (Penny 2001; Bishop 2006, appendix B) are differences of terms as large; here they
are simplified analytically, so that float32 is accurate and equal blocks have divergence 0.

Stirling's series of ln Gamma and of its derivative: Abramowitz and Stegun (1964), 6.1.41 and 6.3.18.
"""

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax.scipy.special import xlogy
from jaxtyping import Array, Float

from ethogram.models.families.array_modules import modules_of
from ethogram.models.families.cholesky_factors import solve

__all__ = [
    "BERNOULLI",
    "Divergence",
    "cholesky_divergence",
    "dirichlet_divergence",
    "excess",
    "gamma_remainder_divergence",
    "half_dofs",
    "stirling_remainder",
    "stirling_slope",
    "wishart_dof_divergence",
]


class Divergence(NamedTuple):
    """A KL divergence as ``rest + sum(weight * gamma_remainder_divergence(p, q), -1)``.

    So that many blocks can share one evaluation of the Gamma functions, which are slow to compile.
    """

    rest: Any  # (*batch,)
    weight: Any  # (*batch, term)
    p: Any  # (*batch, term)
    q: Any  # (*batch, term)

    def total(self) -> Array:
        """The divergence (*batch,), in nats."""
        return self.rest + jnp.sum(self.weight * gamma_remainder_divergence(self.p, self.q), axis=-1)


def excess(ratio: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Excess of a ratio over 1 plus its log, r - 1 - ln r >= 0; the error vanishes as r goes to 1."""
    return ratio - 1 - jnp.log(ratio)


# Bernoulli numbers B_2, B_4, ..., B_14: at x >= 8 the next term of either series is below 2e-15.
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)
_SERIES_FROM = 8


def stirling_remainder(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Remainder of Stirling's formula, ln Gamma(x) - (x - 1/2) ln x + x - ln(2 pi) / 2."""
    xp, special = modules_of(x)
    large = x >= _SERIES_FROM
    far, near = xp.where(large, x, _SERIES_FROM), xp.where(large, _SERIES_FROM, x)
    series = _in_inverse_square(far, [b / (2 * n * (2 * n - 1)) for n, b in enumerate(BERNOULLI, 1)]) / far
    direct = special.gammaln(near) - (near - 0.5) * xp.log(near) + near - 0.5 * math.log(2 * math.pi)
    return xp.where(large, series, direct)


def stirling_slope(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Derivative of `stirling_remainder`, psi(x) - ln x + 1 / (2 x)."""
    xp, special = modules_of(x)
    large = x >= _SERIES_FROM
    far, near = xp.where(large, x, _SERIES_FROM), xp.where(large, _SERIES_FROM, x)
    series = _in_inverse_square(far, [-b / (2 * n) for n, b in enumerate(BERNOULLI, 1)]) / (far * far)
    return xp.where(large, series, special.digamma(near) - xp.log(near) + 0.5 / near)


def _in_inverse_square(x: Float[Array, "*shape"], coefficients: list[float]) -> Float[Array, "*shape"]:
    """Polynomial in x^-2 with these coefficients, lowest first."""
    inverse_square, total = 1 / (x * x), modules_of(x)[0].zeros_like(x)
    for coefficient in reversed(coefficients):
        total = total * inverse_square + coefficient
    return total


def gamma_remainder_divergence(
    p: Float[Array, "*shape"], q: Float[Array, "*shape"]
) -> Float[Array, "*shape"]:
    r"""Remainder of the Bregman divergence of ln Gamma between p and q, without its leading part.

    .. math:: \ln\frac{\Gamma(p)}{\Gamma(q)} - (p - q)\psi(q) - \Bigl[p \ln\frac{p}{q} - (p - q)\Bigr]

    The bracket is left to the caller: between the parts of a KL divergence brackets of the size of the counts
    cancel, and they must cancel analytically, not in the last digits of a float32.
    """
    value_p, value_q = stirling_remainder(jnp.stack([p, q]))
    return 0.5 * excess(p / q) + value_p - value_q - (p - q) * stirling_slope(q)


def dirichlet_divergence(
    q: Float[Array, "*batch category"], p: Float[Array, "*batch category"]
) -> Divergence:
    r"""KL(Dir(q) || Dir(p)) of each row, exactly 0 where the rows are equal.

    .. math:: P\,\mathrm{KL}\Bigl(\frac{p}{P} \Big\| \frac{q}{Q}\Bigr) + \sum_i d(p_i, q_i) - d(P, Q),

    P and Q the row sums and d of `gamma_remainder_divergence`. Entries that are 0 in both rows count for
    nothing; an entry that is 0 in one of them only makes the divergence infinite.
    """
    present = (q > 0) & (p > 0)
    mismatch = jnp.any((q > 0) != (p > 0), axis=-1)
    q_total = jnp.sum(jnp.where(present, q, 0), axis=-1, keepdims=True)
    p_total = jnp.sum(jnp.where(present, p, 0), axis=-1, keepdims=True)
    some = q_total > 0
    q_total, p_total = jnp.where(some, q_total, 1), jnp.where(some, p_total, 1)
    q, p = jnp.where(present, q, 1), jnp.where(present, p, 1)
    q_share, ratio = q / q_total, (p / p_total) / (q / q_total)
    shape_part = p_total * q_share * (xlogy(ratio, ratio) - (ratio - 1))
    rest = jnp.where(mismatch, jnp.inf, jnp.sum(jnp.where(present, shape_part, 0), axis=-1))
    weight = jnp.concatenate([present.astype(p.dtype), -jnp.ones_like(p_total)], axis=-1)
    return Divergence(
        rest, weight, jnp.concatenate([p, p_total], axis=-1), jnp.concatenate([q, q_total], axis=-1)
    )


def cholesky_divergence(
    q: Float[Array, "*batch row column"], p: Float[Array, "*batch row column"], factor: Any = 1
) -> Float[Array, "*batch"]:
    r"""Divergence of two positive definite matrices q q' and p p', given by lower Cholesky factors.

    .. math:: \mathrm{tr}\,T - D - \ln\det T, \qquad T = f\,(q q')^{-1} (p p')

    Rounding of the factors changes it in second order only, so equal matrices give 0.
    """
    ratio = solve(q, p)
    factor = jnp.expand_dims(jnp.broadcast_to(factor, q.shape[:-2]), -1)
    squares = factor * jnp.diagonal(ratio, axis1=-2, axis2=-1) ** 2
    below = factor * jnp.sum(jnp.tril(ratio, -1) ** 2, axis=-1)
    return jnp.sum(excess(squares) + below, axis=-1)


def half_dofs(dof: Float[Array, "*batch"], dimension: int) -> Float[Array, "*batch feature"]:
    """(nu + 1 - d) / 2 for d = 1, ..., D."""
    xp, _ = modules_of(dof)
    offset = xp.broadcast_to(xp.arange(dimension, dtype=dof.dtype), (*dof.shape, dimension))
    return 0.5 * (dof[..., None] - offset)


def _log_shrink(x: Float[Array, "*shape"], shift: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """log(x / (x + c)), sharp both for c much smaller than x and for x much smaller than c."""
    little = shift < x
    inside = jnp.where(little, -shift / (x + shift), 0)
    return jnp.where(little, jnp.log1p(inside), jnp.log(x / (x + shift)))


def wishart_dof_divergence(
    dof: Float[Array, "*batch"], other: Float[Array, "*batch"], dimension: int
) -> Divergence:
    r"""Part of KL(IW(nu Psi, nu) || IW(nu_0 Psi, nu_0)) that depends on the degrees of freedom alone.

    .. math:: \sum_{d=1}^{D} B(p - c_d,\, q - c_d) - b(p, q), \qquad b(p, q) = p \ln\frac{p}{q} - (p - q),

    with q = nu / 2, p = nu_0 / 2, c_d = (d - 1) / 2 and B the Bregman divergence of ln Gamma.
    """
    own, others = half_dofs(dof, dimension), half_dofs(other, dimension)
    shift = 0.5 * jnp.broadcast_to(jnp.arange(dimension, dtype=dof.dtype), own.shape)
    shrink = _log_shrink(others, shift) - _log_shrink(own, shift)
    leading = (others + shift) * shrink - shift * jnp.log(others / own)
    return Divergence(jnp.sum(leading, axis=-1), jnp.ones_like(own), others, own)
