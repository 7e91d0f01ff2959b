r"""Normal noise with a covariance of labelled alternatives, and the prior of that covariance.

The errors of utilities less that of the last alternative, the base, are :math:`N(0, \Sigma)` in p = J - 1 dimensions.
Only :math:`\theta / \alpha` and :math:`\Sigma / \alpha^2` are identified: the trace of :math:`\Sigma` is p. Its prior
is that of an inverse Wishart matrix divided by its scale,

.. math:: p(\Sigma) \propto |\Sigma|^{-(\nu + p + 1)/2}\, \{\mathrm{tr}(S \Sigma^{-1})\}^{-\nu p / 2},
          \qquad S = I + 11',

which is symmetric in the alternatives; S is the covariance of differences of independent errors of equal variances.
Burgette and Nordheim (2012), "The trace restriction"; Imai and van Dyk (2005), "A Bayesian analysis of the multinomial
probit model using marginal data augmentation", for the density.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import gammaln, multigammaln
from jaxtyping import Array
from numpyro.distributions import biject_to, constraints
from numpyro.distributions.transforms import ParameterFreeTransform

from ethogram.models.choices.choice_distribution import ChoiceDistribution, ChoiceNoise
from ethogram.models.choices.orthants import BEYOND, MOST_EXACT, POINTS, log_orthant
from ethogram.models.model_object import model_object, static_field

__all__ = [
    "CovarianceNoise",
    "CovariancePrior",
    "independent_covariance",
    "inverse_wishart",
    "scaled_to_trace",
]


def independent_covariance(size: int) -> np.ndarray:
    """Covariance I + 11' of differences from the base, of independent errors of variance one."""
    return np.eye(size) + 1


def scaled_to_trace(covariance: Array) -> tuple[Array, Array]:
    """The matrices (..., p, p) with trace p, and the squared scales (...) that they were divided by."""
    square = jnp.trace(covariance, axis1=-2, axis2=-1) / covariance.shape[-1]
    return covariance / square[..., None, None], square


def inverse_wishart(key: Array, degrees: Any, root: Array) -> Array:
    """Draws (..., p, p) with scale matrices of these lower factors (..., p, p), by Bartlett's decomposition."""
    key_diagonal, key_below = jax.random.split(key)
    size, dtype = root.shape[-1], root.dtype
    shapes = (degrees - jnp.arange(size, dtype=dtype)) / 2
    diagonal = jnp.sqrt(2 * jax.random.gamma(key_diagonal, shapes, root.shape[:-1], dtype))
    below = jnp.tril(jax.random.normal(key_below, root.shape, dtype), -1)
    standard = below + diagonal[..., None] * jnp.eye(size, dtype=dtype)
    factor = solve_triangular(standard, jnp.swapaxes(root, -2, -1), lower=True)
    return jnp.matmul(jnp.swapaxes(factor, -2, -1), factor, precision="highest")


@model_object
class CovarianceNoise(ChoiceNoise):
    """Normal errors whose differences from that of the last alternative have this covariance (p, p)."""

    covariance: Any
    chosen: Any = None  # (...) option, whose gaps a log probability is of
    num_points: int = static_field(default=POINTS)

    log_concave = False

    def given_choice(self, chosen: Array) -> ChoiceNoise:
        """The noise, whose log probabilities are of this option."""
        return CovarianceNoise(self.covariance, chosen, self.num_points)

    def log_probability(self, gaps: Array, others: Array, num_nodes: int | None = None) -> Array:
        """Log probability (...): by quadrature up to four alternatives, simulated beyond."""
        count, dtype = len(gaps) + 1, gaps.dtype
        whole = jnp.pad(jnp.asarray(self.covariance, dtype), (0, 1))  # the error of the base is zero
        each = np.stack([np.delete(np.arange(count), option) for option in range(count)])
        mixed = whole[np.arange(count)[:, None], each]  # (option, other)
        both = whole[each[:, :, None], each[:, None]] - mixed[:, :, None] - mixed[:, None]
        both = both + jnp.diag(whole)[:, None, None]
        deviation = jnp.sqrt(jnp.diagonal(both, axis1=1, axis2=2))
        correlation = both / (deviation[:, :, None] * deviation[:, None])
        # By products: gathers, and the scatters of their gradients, take longer.
        own = (self.chosen == np.arange(count).reshape(-1, *[1] * (gaps.ndim - 1))).astype(dtype)
        exact: Any = {"precision": "highest"}
        deviation = jnp.einsum("aj,a...->j...", deviation, own, **exact)
        correlation = jnp.einsum("ajk,a...->jk...", correlation, own, **exact)
        bounds = jnp.where(others, gaps / deviation, BEYOND)
        apart = jnp.eye(count - 1, dtype=dtype).reshape(count - 1, count - 1, *[1] * (gaps.ndim - 1))
        correlation = jnp.where(others[:, None] & others, correlation, apart)
        return jnp.where(jnp.any(others, axis=0), log_orthant(bounds, correlation, self.num_points), 0)

    def probabilities(self, utilities: Any, legal: Any) -> Array:
        """Probability of every option (..., option)."""
        return jnp.exp(ChoiceDistribution(utilities, legal, self).logits)

    def perturbed(self, key: Array, utilities: Array) -> Array:
        """Utilities with errors of this covariance, and none of the base."""
        root = jnp.linalg.cholesky(jnp.asarray(self.covariance, utilities.dtype))
        noise = jax.random.normal(key, (*utilities.shape[:-1], len(root)), utilities.dtype)
        error = jnp.matmul(noise, root.T, precision="highest")
        return utilities.at[..., :-1].add(error)

    def refined(self, count: int) -> ChoiceNoise | None:
        """The noise with twice the points of GHK, of more than four options."""
        return (
            CovarianceNoise(self.covariance, self.chosen, 2 * self.num_points)
            if count - 1 > MOST_EXACT
            else None
        )

    def in_words(self) -> str:
        """What a summary calls it."""
        return "normal noise with a covariance of alternatives"


class _TraceCovariance(constraints.ParameterFreeConstraint):
    """Positive definite matrices (p, p) with trace p."""

    event_dim = 2

    def __call__(self, x):
        xp = jnp if isinstance(x, jax.Array) else np
        near = xp.abs(xp.trace(x, axis1=-2, axis2=-1) - x.shape[-1]) < 1e-3 * x.shape[-1]
        symmetric = xp.all(xp.abs(x - xp.swapaxes(x, -2, -1)) < 1e-4, axis=(-2, -1))
        return near & symmetric & (xp.linalg.eigvalsh(x)[..., 0] > 0)

    def feasible_like(self, prototype):
        return jnp.broadcast_to(jnp.eye(prototype.shape[-1]), prototype.shape)


class _TraceTransform(ParameterFreeTransform):
    r"""From rows of a Cholesky factor whose first entry is one, diagonals by their logs, to the matrix of trace p.

    With t the trace of LL' and D = p(p + 1)/2, the Jacobian is :math:`2^{p-1} p^{-1} (t/p)^{-D}
    \prod_i L_{ii}^{p-i+1} \prod_{i>1} L_{ii}`.
    """

    domain = constraints.real_vector
    codomain = _TraceCovariance()

    def __call__(self, x):
        return scaled_to_trace(jnp.matmul(*_factor(x), precision="highest"))[0]

    def _inverse(self, y):
        root = jnp.linalg.cholesky(y)
        root = root / root[..., :1, :1]
        size = y.shape[-1]
        rows, columns = np.tril_indices(size)
        entries = root[..., rows, columns]
        return jnp.where(rows == columns, jnp.log(jnp.where(rows == columns, entries, 1)), entries)[..., 1:]

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        root, size = _factor(x)[0], y.shape[-1]
        logs = jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1))
        square = jnp.sum(root**2, axis=(-2, -1)) / size
        powers = np.arange(size, 0, -1) + (np.arange(size) > 0)
        return (size - 1) * np.log(2) - np.log(size) - size * (size + 1) / 2 * jnp.log(square) + logs @ powers

    def forward_shape(self, shape):
        size = _size(shape[-1])
        return (*shape[:-1], size, size)

    def inverse_shape(self, shape):
        return (*shape[:-2], shape[-1] * (shape[-1] + 1) // 2 - 1)


def _size(count: int) -> int:
    """Dimensions of a matrix with so many free entries."""
    return round((np.sqrt(8 * count + 9) - 1) / 2)


def _factor(x: Array) -> tuple[Array, Array]:
    """The lower factor of unconstrained entries (..., D - 1), and its transpose."""
    rows, columns = np.tril_indices(_size(x.shape[-1]))
    entries = jnp.concatenate([jnp.zeros_like(x[..., :1]), x], axis=-1)
    entries = jnp.where(rows == columns, jnp.exp(jnp.where(rows == columns, entries, 0)), entries)
    root = jnp.zeros((*x.shape[:-1], rows[-1] + 1, rows[-1] + 1), x.dtype).at[..., rows, columns].set(entries)
    return root, jnp.swapaxes(root, -2, -1)


biject_to.register(_TraceCovariance)(lambda constraint: _TraceTransform())


class CovariancePrior(dist.Distribution):
    """The prior of a covariance (size, size) with trace `size`, of `nu` degrees of freedom, size + 2 where None."""

    arg_constraints: ClassVar[dict] = {}
    support = _TraceCovariance()
    pytree_data_fields = ("nu",)
    pytree_aux_fields = ("size",)

    def __init__(self, size: int, nu: Any, *, validate_args: bool | None = None):
        self.size, self.nu = size, size + 2.0 if nu is None else nu
        super().__init__((), (size, size), validate_args=validate_args)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Inverse Wishart matrices, divided by their scale."""
        root: Any = np.linalg.cholesky(independent_covariance(self.size)).astype(jnp.result_type(float))
        root = jnp.broadcast_to(root, (*sample_shape, *root.shape))
        return scaled_to_trace(inverse_wishart(key, self.nu, root))[0]

    def log_prob(self, value: Any) -> Array:
        """Log density (...) in the entries of a triangle without one on the diagonal."""
        size, nu, scale = self.size, self.nu, independent_covariance(self.size)
        root = jnp.linalg.cholesky(value)
        inner = solve_triangular(root, jnp.broadcast_to(np.linalg.cholesky(scale), root.shape), lower=True)
        log_det = 2 * jnp.sum(jnp.log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
        known = nu / 2 * np.linalg.slogdet(scale)[1] - multigammaln(nu / 2, size) + gammaln(nu * size / 2)
        spread = nu * size / 2 * jnp.log(jnp.sum(inner**2, axis=(-2, -1)))
        return known + np.log(size) - (nu + size + 1) / 2 * log_det - spread
