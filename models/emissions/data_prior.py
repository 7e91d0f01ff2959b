r"""Gaussian emissions centred at their prior mean; location and scale of priors taken from the data, or compared.

A weakly informative empirical prior of K components of D features has the mean of the data, and as its guess of a
component's covariance that of the data over :math:`K^{2/D}`: K components that share the volume of the data.

Fraley and Raftery (2007), "Bayesian regularization for normal mixture estimation and model-based clustering".
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float

from ethogram.models.arguments import host_arrays, is_concrete, warn_user
from ethogram.models.data.angles import refuse_angles
from ethogram.models.data.parts import drop_pages
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.emission import Emission, read_observations
from ethogram.models.emissions.missing_features import gapped

__all__ = ["CentredEmission", "Moments", "data_moments", "parts_of", "warn_of_far_prior"]

SHRINKAGE = 1e-3
"""Share by which correlations are shrunk, so that features that depend on one another leave a proper prior."""

PART = 2**17
"""Frames whose moments are summed together on the host."""

FAR = 5.0
"""Standard deviations of the prior from which on its mean is far from that of the data."""

WIDE, OUTWEIGHS = 10.0, 0.1
"""A scale outweighs the data where it exceeds ten variances, and a tenth of the squares of a state's frames."""


ANGLE = "which wraps around, and a Gaussian emission takes it for a number on a line"
OF_ANGLES = (
    "give it a VonMisesEmission, in radians, as in ProductEmission({'step': GammaEmission(), 'turn': "
    "VonMisesEmission()}); an angle that never wraps can have another unit, or none"
)


class CentredEmission(Emission):
    """Emissions of Gaussians, in coordinates relative to the prior mean."""

    prior_from_data: ClassVar[tuple[str, ...]] = ("mean", "scale")

    def read(self: Any, data: Trajectories) -> Array | np.ndarray:
        """Observations (sequence, time, feature); a ValueError where one is an angle by its unit."""
        x = read_observations(data, self.num_features)
        refuse_angles(data, ANGLE, OF_ANGLES)
        return x

    @property
    def origin(self: Any) -> Any:
        """Prior mean (feature,), of which observations are taken relative; averaged where it differs by state."""
        if self.mean is None:
            return 0.0
        return self.mean if self.mean.ndim == 1 else host_arrays(lambda xp, m: xp.mean(m, axis=0), self.mean)

    def arrange(self: Any, data: Trajectories) -> Any:
        """Observations relative to the origin, subtracted in the precision of the data; `Gapped` where some are NaN."""
        dtype = self.read(data).dtype

        def relative(xp: Any, x: Any, centre: Any) -> Any:
            if xp is jnp:
                return (x - centre).astype(dtype)
            return np.subtract(x, centre, out=np.empty(x.shape, dtype), casting="same_kind")

        return gapped(host_arrays(relative, data.observations, self.origin), data.observed)


class Moments(NamedTuple):
    """Mean (feature,) and covariance (feature, feature) of what is observed."""

    mean: Float[Array, "feature"]
    covariance: Float[Array, "feature feature"]


def data_moments(data: Trajectories, dtype: Any) -> Moments:
    """Mean and covariance of the observed frames, computed in double precision unless they are traced.

    Correlations are shrunk by a thousandth. A feature that never varies gets variance 1; without any observed frame
    the mean is 0 and the covariance the identity. Where features are NaN, means and variances are those of what is
    there, and covariances those of frames that have both features; eigenvalues of the correlations below a thousandth
    are raised to it. A ValueError where a feature is an angle by its unit.
    """
    refuse_angles(data, ANGLE, OF_ANGLES)

    def moments(xp, x, observed):
        kind = x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else xp.result_type(float)

        def parts():
            return [(x.astype(kind), observed)] if xp is jnp else parts_of(x, observed)

        sums = [_sums(xp, *part) for part in parts()]
        count, total, frames = (sum(each[1:], each[0]) for each in list(zip(*sums, strict=True))[:3])
        largest = functools.reduce(xp.maximum, [each[3] for each in sums])
        count = xp.maximum(count, 1)
        mean = total / count
        complete = xp.all(count == frames) | (frames == 0)
        products = [_products(xp, *part, mean) for part in parts()]
        squares, pairs = (sum(each[1:], each[0]) for each in zip(*products, strict=True))
        pairs = xp.where(complete, count, xp.maximum(pairs, 1))
        covariance = squares / pairs
        rounding = 4 * xp.finfo(kind).eps * largest
        variance = xp.diagonal(covariance)
        constant = variance <= rounding**2
        apart = ~xp.eye(len(mean), dtype=bool)
        covariance = xp.where(apart, (1 - SHRINKAGE) * covariance, covariance)
        covariance = xp.where(apart & (constant[:, None] | constant), 0, covariance)
        covariance = xp.where(~apart & constant, 1, covariance)
        covariance = xp.where(complete, covariance, _definite(xp, covariance))
        return Moments(mean.astype(dtype), covariance.astype(dtype))

    with jax.default_matmul_precision("highest"):
        return host_arrays(moments, data.observations, data.observed)


def parts_of(x: np.ndarray, observed: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Observations and masks of some sequences each: intermediate results of all would take several times the data.

    In double precision: sums of many frames far from zero lose all digits in single precision.
    """
    size = max(PART // max(observed.shape[1], 1), 1)
    for start in range(0, max(len(x), 1), size):
        yield x[start : start + size].astype(np.float64, copy=False), observed[start : start + size]
        drop_pages(x)


def _sums(xp: Any, x: Any, observed: Any) -> tuple[Any, Any, Any, Any]:
    """Values and their sum by feature, observed frames, and the largest absolute value by feature."""
    seen = observed[..., None] & ~xp.isnan(x)
    x = xp.where(seen, x, 0)
    largest = xp.max(xp.abs(x), axis=(0, 1), initial=0)
    return xp.sum(seen, axis=(0, 1)), xp.sum(x, axis=(0, 1)), xp.sum(observed), largest


def _products(xp: Any, x: Any, observed: Any, mean: Any) -> tuple[Any, Any]:
    """Products of two features' deviations, and the frames that have both, summed (feature, feature)."""
    seen = observed[..., None] & ~xp.isnan(x)
    gap = xp.where(seen, x - mean, 0)
    present = seen.astype(x.dtype)
    return xp.einsum("nti,ntj->ij", gap, gap), xp.einsum("nti,ntj->ij", present, present)


def _definite(xp: Any, covariance: Any) -> Any:
    """The covariance with eigenvalues of its correlations of at least a thousandth."""
    spread = xp.sqrt(xp.diagonal(covariance))
    values, vectors = xp.linalg.eigh(covariance / (spread[:, None] * spread))
    raised = (vectors * xp.maximum(values, SHRINKAGE)) @ vectors.T
    scale = spread / xp.sqrt(xp.diagonal(raised))
    return scale[:, None] * raised * scale


def warn_of_far_prior(
    data: Trajectories, num_states: int, mean: Any, mean_covariance: Any, scale: Any = None
) -> None:
    """Warn where a prior that was given lies far from the data; traced values are not compared.

    Parameters
    ----------
    num_states : how many states (and components) share the data.
    mean, mean_covariance : m (feature,) and V (feature, feature) of the prior of a state's mean.
    scale : Psi (feature, feature) of the prior of a state's covariance; None where that is known.
    """
    if not is_concrete(mean, mean_covariance, scale, data.observations, data.observed):
        return
    # On the host, since where a model is traced an entry of an array that is known is not.
    mean, mean_covariance, scale = (x if x is None else np.asarray(x) for x in (mean, mean_covariance, scale))
    found = data_moments(data, np.float64)
    centre, variance = np.asarray(found.mean), np.diagonal(found.covariance)
    distance = np.abs(centre - mean) / np.sqrt(np.diagonal(mean_covariance))
    at = int(np.argmax(distance))
    if distance[at] > FAR:
        warn_user(
            f"the prior lies far from the data: its mean of feature {at} is {mean[at]:.6g}, "
            f"{distance[at]:.3g} standard deviations of the prior from the mean {centre[at]:.6g} of the data; leave "
            "mean out, and the data set it, or give one near the data",
        )
    if scale is None:
        return
    frames = int(np.asarray(data.observed).sum()) / num_states
    excess = np.diagonal(scale) / variance
    at = int(np.argmax(excess))
    if excess[at] > max(WIDE, OUTWEIGHS * frames):
        warn_user(
            f"the prior outweighs the data: scale of feature {at} is {scale[at, at]:.6g}, and the variance of "
            f"the data {variance[at]:.6g}; leave scale out, and the data set it, or give one in squared units of "
            "the data",
        )
