"""Emission of a Gaussian vector autoregression in every state: a switching autoregression, as in MoSeq."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from ethogram.models.arguments import (
    concretely,
    is_concrete,
    require,
    require_covariance,
    require_integer,
)
from ethogram.models.data.gaps import require_complete
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.autoregressive_gaussian import AutoregressiveGaussian, with_lags
from ethogram.models.emissions.data_prior import CentredEmission
from ethogram.models.emissions.emission import read_parameters, rows_of
from ethogram.models.emissions.local_regressions import local_regressions
from ethogram.models.emissions.pooled_autoregression import pooled_autoregression
from ethogram.models.emissions.quadratic_features import products, weights_of_products
from ethogram.models.families.exponential_family import ConjugateBlock, Known
from ethogram.models.families.matrix_normal_inverse_wishart import (
    MatrixNormalInverseWishart,
    MatrixNormalInverseWishartCoordinates,
)
from ethogram.models.model_object import model_object, static_field

__all__ = ["AutoregressiveGaussianEmission"]


@model_object
class AutoregressiveGaussianEmission(CentredEmission):
    r"""A Gaussian vector autoregression per state, with unknown coefficients and full covariance.

    .. math:: \Sigma_k \sim IW(\Psi, \nu), \quad A_k \mid \Sigma_k \sim MN(M, \Sigma_k, V / \kappa), \quad
              y_t \mid z_t = k \sim N(m + A_k h_t, \Sigma_k)

    with regressors :math:`h_t = (y_{t-1} - m, \ldots, y_{t-L} - m, 1)`. States differ in how frames follow one another:
    in speed, direction, rhythm, damping and noise, where a `GaussianEmission` looks at where they are. A frame of which
    one of the L frames before is missing, or would be before the first, is N(m, S) in every state: that favours no
    state, and makes densities proper, and comparable with those of other emissions.

    What is None is taken from the data: m and S are the mean and the covariance of the frames, M and Psi the
    coefficients and the residual covariance of one autoregression of all of them, and V is the inverse of the mean of
    h h'. So the prior is worth `strength` frames for the coefficients, and does not depend on the origin and the units.

    Parameters
    ----------
    num_features, order : D and L >= 1.
    coefficients : M; a number times the identity at lag 1, or (feature, regressor), of L D + 1 regressors: all features
        at lag 1, then at lag 2, ..., and 1 for the intercept.
    strength : kappa > 0, in frames.
    dof : nu > D - 1. None takes D + 2, the least integer at which the covariance has a mean.
    scale : Psi, in squared units; a number (times the identity) or (feature, feature).
    mean, covariance : m and S, of frames without their past; a number (times the identity), or (feature,) and (feature,
        feature). The intercept of A_k is relative to m: frames whose past is at m have the mean m + intercept.
    whitening : (regressor, regressor), lower triangular T with V = T'T.
    known : ``Known((coefficients (state, feature, regressor), covariance (state, feature, feature)))``, NaN where
        unknown.

    Notes
    -----
    Without data, what is None is that of data with mean 0, covariance 1 and no correlation over time. A NUTS run takes
    m and S from its data: to score others with its draws, bind the model first, ``model.bind(data)``.

    References
    ----------
    Fox, Sudderth, Jordan, Willsky (2011), "Bayesian nonparametric inference of switching dynamic linear models", sec.
    III.A. Wiltschko et al. (2015), "Mapping sub-second structure in mouse behavior".
    """

    num_features: int = static_field()
    order: int = static_field(default=1)
    coefficients: Any = None
    strength: Any = 1.0
    dof: Any = None
    scale: Any = None
    mean: Any = None
    covariance: Any = None
    whitening: Any = None
    known: Known | None = None
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "coefficients": ("state", "feature", "regressor"),
        "covariance": ("state", "feature", "next_feature"),
    }
    prior_from_data: ClassVar[tuple[str, ...]] = ("coefficients", "scale", "mean", "covariance", "whitening")
    observation_needs_data: ClassVar[bool] = True

    def __post_init__(self):
        size = self.num_features
        require_integer("num_features", size, 1)
        require_integer("order", self.order, 1)
        shapes = {
            "strength": (),
            "dof": (),
            "scale": (size, size),
            "mean": (size,),
            "covariance": (size, size),
        }
        count = self.num_regressors
        shapes |= {"coefficients": (size, count), "whitening": (count, count)}
        values = {name: getattr(self, name) for name in shapes}
        values["dof"] = float(size + 2) if self.dof is None else self.dof
        given = read_parameters(shapes, self.prior_from_data, **values)
        strength = given["strength"]
        if is_concrete(strength):
            require(np.asarray(strength) > 0, "strength", strength, "is not positive", "give a positive one")
        if "covariance" in given and is_concrete(given["covariance"]):
            require_covariance("covariance", given["covariance"])
        self._set(**given)
        self._block()

    @property
    def num_regressors(self) -> int:
        """L D + 1."""
        return self.order * self.num_features + 1

    def site_coords(self, feature_names: Any) -> dict[str, Any]:
        """Names of the regressors, from those of the features (or None)."""
        names = range(self.num_features) if feature_names is None else feature_names
        lags = [f"{name} lag {lag}" for lag in range(1, self.order + 1) for name in names]
        return {"regressor": [*lags, "intercept"]}

    def bind(self, data: Trajectories, num_states: int) -> AutoregressiveGaussianEmission:
        """The emission with what is None set from `data`."""
        if all(getattr(self, name) is not None for name in self.prior_from_data):
            return self
        found = pooled_autoregression(data, self.order, self.mean, self.strength.dtype)
        factor = concretely(lambda xp, nu: xp.maximum(nu - self.num_features - 1, 1), self.dof)
        return self._filled(
            coefficients=found.coefficients,
            scale=found.residual_covariance * factor,
            mean=found.mean,
            covariance=found.covariance,
            whitening=found.whitening,
        )

    def _block(self) -> MatrixNormalInverseWishart:
        size, count, dtype = self.num_features, self.num_regressors, self.strength.dtype
        mean = np.zeros((size, count), dtype) if self.coefficients is None else self.coefficients
        scale = np.eye(size, dtype=dtype) if self.scale is None else self.scale
        precision = concretely(lambda xp, kappa: kappa * xp.eye(count, dtype=kappa.dtype), self.strength)
        return MatrixNormalInverseWishart.from_standard(
            mean, precision, self.dof, scale, basis=self.whitening
        )

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One matrix-normal inverse-Wishart block, ``coefficients_covariance``, a row per state."""
        return {"coefficients_covariance": rows_of(self._block(), num_states, self.known)}

    def _start(self) -> tuple[Any, Any]:
        """Mean and covariance of frames without their past."""
        size, dtype = self.num_features, self.strength.dtype
        mean = np.zeros(size, dtype) if self.mean is None else self.mean
        return mean, np.eye(size, dtype=dtype) if self.covariance is None else self.covariance

    def arrange(self, data: Trajectories) -> Array | np.ndarray:
        """Frames (sequence, time, ...) as rows (e, u, 1, 0), or (0, 0, 0, ln N(y | m, S)) without their past.

        e is the residual of the prior mean of the coefficients, and u the whitened regressors.
        """
        dtype, block = self.read(data).dtype, self._block()

        def rows(xp, x, observed, mean, covariance, coefficients, whitening):
            wide = np.float64 if xp is np else dtype
            mean, covariance, coefficients, whitening = (
                part.astype(wide) for part in (mean, covariance, coefficients, whitening)
            )
            x = xp.where(observed[..., None], x.astype(wide) - mean, 0)
            regressors, complete = with_lags(xp, x, observed, self.order)
            root = xp.linalg.cholesky(covariance)
            constant = xp.sum(xp.log(xp.diagonal(root))) + 0.5 * x.shape[-1] * math.log(2 * math.pi)
            start = -0.5 * xp.sum((x @ xp.linalg.inv(root).T) ** 2, axis=-1) - constant
            regression = xp.concatenate([x - regressors @ coefficients.T, regressors @ whitening.T], axis=-1)
            kept = complete[..., None]
            parts = [xp.where(kept, regression, 0), kept, xp.where(complete, 0, start)[..., None]]
            return xp.concatenate(parts, axis=-1).astype(dtype)

        with jax.default_matmul_precision("highest"):
            return concretely(
                rows, data.observations, data.observed, *self._start(), block.origin, block.basis
            )

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        """Expected log density (..., state) of arranged frames."""
        features = self._features(observations, -1)
        return jnp.matmul(features, self.chain_weights(expected).T, precision="highest")

    def chain_features(self, observations: Array, observed: Array) -> Array:
        """Features (time, feature, sequence) of arranged frames (sequence, time, ...), zero where missing."""
        rows = jnp.transpose(observations, (1, 2, 0))
        return self._features(jnp.where(observed.T[:, None], rows, 0), 1)

    def _features(self, rows: Array, axis: int) -> Array:
        """Those without their past, one for each other frame, and the products of residuals and regressors."""
        regression, ends = jnp.split(rows, [self.num_features + self.num_regressors], axis=axis)
        return jnp.concatenate([ends, *products(regression, axis)], axis=axis)

    def chain_weights(self, expected: dict[str, Any]) -> Array:
        """Weights (state, feature) of :meth:`chain_features` in the expected log density."""
        location, precision, dof, scatter = expected["coefficients_covariance"]
        constant = dof - 0.5 * self.num_features * math.log(2 * math.pi)
        above = jnp.concatenate([scatter, 0.5 * location], axis=-1)
        below = jnp.concatenate([0.5 * location.mT, precision], axis=-1)
        form = jnp.concatenate([above, below], axis=-2)
        ends = jnp.stack([constant, jnp.ones_like(constant)], axis=-1)
        return jnp.concatenate([ends, weights_of_products(form)], axis=-1)

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Statistics of labelled frames that have their past: sums of e u', u u' and e e', and how many there are."""
        size, count = self.num_features, self.num_regressors
        square, held = np.zeros((num_states, size + count, size + count)), np.asarray(frames, float)
        for state in np.unique(labels):
            own = held[labels == state, : size + count]
            square[state] = own.T @ own
        number = np.bincount(labels, held[:, size + count], num_states)
        return {
            "coefficients_covariance": MatrixNormalInverseWishartCoordinates(
                square[:, :size, size:], square[:, size:, size:], number, square[:, :size, :size]
            )
        }

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Coefficients and log noise of regressions in short windows."""
        ends = [self.num_features, self.num_features + self.num_regressors]
        held = np.where(observed[..., None], np.asarray(observations, float), 0)
        targets, regressors, _ = np.split(held, ends, axis=-1)
        return local_regressions(targets, regressors, observed)

    def distribution(self, parameters: dict[str, Any], data: Trajectories | None = None) -> dist.Distribution:
        """Autoregressions at parameters ``coefficients (state, feature, regressor)`` and ``covariance``."""
        return AutoregressiveGaussian(parameters["coefficients"], parameters["covariance"], *self._start())

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Observations (sequence, time, feature), of complete frames."""
        require_complete(data, f"a {type(self).__name__} needs")
        return super().read(data)
