"""Emissions of positive features, such as step lengths and speeds, and of angles, such as turning angles.

Both have conjugate priors whose normaliser is a one-dimensional integral. Features are independent given the state; one
that is NaN in an observed frame was not recorded, and adds nothing.

Langrock, King, Matthiopoulos, Thomas, Fortin, Morales (2012), "Flexible and practical modeling of animal telemetry
data": gamma distributed step lengths and von Mises distributed turning angles of a hidden Markov model.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from scipy.special import digamma

from ethogram.models.arguments import concretely, is_concrete, warn_user
from ethogram.models.data.angles import refuse_angles
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.emission import (
    interpolated,
    read_observations,
    read_per_feature,
    require_values,
)
from ethogram.models.emissions.feature_emission import (
    FeatureEmission,
    feature_means,
    linear_in_features,
    recorded,
)
from ethogram.models.families.exponential_family import Known
from ethogram.models.families.gamma_conjugate import GammaConjugate, GammaConjugateCoordinates
from ethogram.models.families.von_mises_conjugate import VonMisesConjugate, VonMisesConjugateCoordinates
from ethogram.models.model_object import model_object, static_field

__all__ = ["GammaEmission", "VonMisesEmission"]

TURN = 2 * math.pi * (1 + 1e-6)

GAP = 1e4
"""How many times the values beside rounding errors are larger, at least."""

NARROW = 5e-5
"""Log of mean over geometric mean, half the squared coefficient of variation, below which float32 is too coarse."""


@model_object
class GammaEmission(FeatureEmission):
    r"""Positive features, independent given the state, with unknown mean and shape.

    .. math:: p(\mu_{kd}, a_{kd}) \text{ of } GammaConjugate, \qquad
              x_{td} \mid z_t = k \sim Gamma(a_{kd}, a_{kd} / \mu_{kd})

    The prior is worth `strength` observations from a gamma distribution of mean `mean` and shape `shape`; ln(shape) has
    a Gaussian factor of standard deviation 2 about ln `shape` besides. The standard deviation of a feature is
    :math:`\mu / \sqrt a`.

    Parameters
    ----------
    num_features : D.
    mean : in the units of the data; a number or (feature,). None takes it from the geometric mean of the data, and is 1
        without data.
    shape : prior guess of a, 1 for an exponential distribution; a number or (feature,). None takes that of all data
        together, and is 1 without data.
    strength : pseudo-observations of the prior, above 0; a number or (feature,).
    known : ``Known((mean (state, feature), shape (state, feature)))``, NaN where unknown.
    """

    num_features: int = static_field(default=1)
    mean: Any = None
    shape: Any = None
    strength: Any = 0.1
    known: Known | None = None
    block_name: ClassVar[str] = "mean_shape"
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "mean": ("state", "feature"),
        "shape": ("state", "feature"),
    }
    prior_from_data: ClassVar[tuple[str, ...]] = ("mean", "shape")

    def __post_init__(self):
        given = {"mean": self.mean, "shape": self.shape, "strength": self.strength}
        self._set(**read_per_feature(self.num_features, self.prior_from_data, **given))
        self.block()

    def bind(self, data: Trajectories, num_states: int) -> GammaEmission:
        """The emission with the shape and the mean of the data, where these are None.

        Warns
        -----
        UserWarning
            Values vary so little that single precision loses their spread, or some are rounding errors of zero.
        """
        _warn_of_rounding(data)
        if self.mean is not None and self.shape is not None:
            return self
        wide = np.float64 if is_concrete(data.observations, data.observed) else self.strength.dtype
        log_mean = feature_means(data, lambda xp, x: xp.log(xp.where(x > 0, x, 1)), wide, positive=False)
        gap = concretely(
            lambda xp, m, logs: xp.log(m) - logs, feature_means(data, lambda xp, x: x, wide), log_mean
        )
        if self.strength.dtype == np.float32 and is_concrete(gap):
            narrow = np.flatnonzero((np.asarray(gap) > 0) & (np.asarray(gap) < NARROW))
            if narrow.size:
                warn_user(
                    f"feature {narrow[0]} varies by less than a hundredth of its size, which single precision cannot "
                    "tell well in a GammaEmission: call jax.config.update('jax_enable_x64', True) first, or take a "
                    "GaussianEmission"
                )
        shape = self.shape
        if shape is None:  # Minka (2002), "Estimating a gamma distribution", eq. 13: within 1.5 %

            def of_gap(xp, s):
                s = xp.maximum(s, 1e-12)
                found = (3 - s + xp.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s)
                return xp.where(s > 1e-11, found, 1).astype(self.strength.dtype)

            shape = concretely(of_gap, gap)

        def mean(xp, logs, a):
            own = digamma(a) if xp is np else jax.scipy.special.digamma(a)
            return (a * xp.exp(logs - own)).astype(self.strength.dtype)

        own = concretely(mean, log_mean, shape) if self.mean is None else self.mean
        return dataclasses.replace(self, mean=own, shape=shape)

    def block(self) -> GammaConjugate:
        ones = np.ones(self.num_features, self.strength.dtype)
        mean, shape = (ones if each is None else each for each in (self.mean, self.shape))
        return GammaConjugate.from_standard(mean, shape, self.strength)

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log density (..., state): :math:`\sum_d E(a \ln b - \ln \Gamma(a)) + E(a - 1) \ln x - E b\, x`."""
        normaliser, shape, minus_rate = expected["mean_shape"]
        x, seen = recorded(observations, shape.dtype)
        seen = jnp.where(x > 0, seen, 0)  # 0 stands where a frame is missing
        log_x = jnp.log(jnp.where(x > 0, x, 1))
        return linear_in_features((seen, normaliser), (log_x, shape - 1), (x, minus_rate))

    def frame_statistics(self, x: np.ndarray) -> GammaConjugateCoordinates:
        """1 for the frame, the logarithm, and the feature itself."""
        return GammaConjugateCoordinates(np.ones_like(x), np.log(x), x)

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Logarithms of the features."""
        x = np.asarray(observations, dtype=float)
        return interpolated(np.log(np.where(x <= 0, np.nan, x)), observed)

    def feature_distribution(self, mean: Any, shape: Any) -> dist.Distribution:
        return dist.Gamma(shape, shape / mean)

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Positive observations (sequence, time, feature)."""
        x = read_observations(data, self.num_features)
        fix = (
            "a gamma distribution has positive values only: replace zeros by half of the smallest step that can be "
            "measured, or by NaN (missing), or give rest a feature of its own (a BernoulliEmission in a "
            "ProductEmission)"
        )
        return require_values(data, x, lambda x: x > 0, "is not positive", fix)


def _warn_of_rounding(data: Trajectories) -> None:
    """Warn of values within the rounding of a feature's largest, far below all others: steps of length zero."""
    if not is_concrete(data.observations, data.observed):
        return
    values = np.asarray(data.observations)
    rounding = 16 * (np.finfo(values.dtype).eps if values.dtype.kind == "f" else 0)
    for feature, x in enumerate(values[np.asarray(data.observed)].T):
        x = x[x > 0]
        tiny = x <= rounding * x.max(initial=0)
        if tiny.any() and not (x[~tiny] < GAP * x[tiny].max()).any():
            warn_user(
                f"feature {feature} has {tiny.sum()} values of {x[tiny].max():.2g} or less beside {x.max():.3g}, which "
                "are rounding errors of zero and determine the shape of a GammaEmission: replace them by half of the "
                "smallest value that can be measured, or by NaN (missing)"
            )


@model_object
class VonMisesEmission(FeatureEmission):
    r"""Angles in radians, independent given the state, with unknown mean direction and concentration.

    .. math:: p(\mu_{kd}, \kappa_{kd}) \text{ of } VonMisesConjugate, \qquad
              x_{td} \mid z_t = k \sim vonMises(\mu_{kd}, \kappa_{kd})

    By default directions are uniform, and ln(concentration) is Gaussian with standard deviation 2 about 0.

    Parameters
    ----------
    num_features : D.
    direction : prior guess of mu, in radians; a number or (feature,). It matters where `strength` is above 0.
    concentration : prior median of kappa where `strength` is 0; a number or (feature,).
    strength : pseudo-observations of the prior, with this direction and concentration; a number or (feature,).
    known : ``Known((direction (state, feature), concentration (state, feature)))``, NaN where unknown.
    """

    num_features: int = static_field(default=1)
    direction: Any = 0.0
    concentration: Any = 1.0
    strength: Any = 0.0
    known: Known | None = None
    block_name: ClassVar[str] = "direction_concentration"
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "direction": ("state", "feature"),
        "concentration": ("state", "feature"),
    }

    def __post_init__(self):
        given = {"direction": self.direction, "concentration": self.concentration, "strength": self.strength}
        self._set(**read_per_feature(self.num_features, **given))
        self.block()

    def block(self) -> VonMisesConjugate:
        return VonMisesConjugate.from_standard(self.direction, self.concentration, self.strength)

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log density (..., state): :math:`\sum_d E \kappa \cos(x - \mu) - E \ln I_0(\kappa) - \ln 2 \pi`."""
        log_bessel, cosine, sine = expected["direction_concentration"]
        x, seen = recorded(observations, cosine.dtype)
        normaliser = log_bessel - math.log(2 * math.pi)
        return linear_in_features((seen, normaliser), (seen * jnp.cos(x), cosine), (seen * jnp.sin(x), sine))

    def frame_statistics(self, x: np.ndarray) -> VonMisesConjugateCoordinates:
        """1 for the frame, cosine and sine."""
        return VonMisesConjugateCoordinates(np.ones_like(x), np.cos(x), np.sin(x))

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Cosines and sines of the angles."""
        x = np.asarray(observations, dtype=float)
        return interpolated(np.concatenate([np.cos(x), np.sin(x)], axis=-1), observed)

    def locations(self, draws: dict[str, np.ndarray]) -> np.ndarray:
        """Direction (state,) of the first feature, in (-pi, pi]."""
        return np.angle(np.exp(1j * draws["direction"][..., 0]).mean(0))

    def feature_distribution(self, direction: Any, concentration: Any) -> dist.Distribution:
        return dist.VonMises(direction, concentration)

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Angles (sequence, time, feature), in radians."""
        x = read_observations(data, self.num_features)
        fix = "give radians: np.deg2rad of degrees"
        refuse_angles(data, "and a VonMisesEmission takes radians", fix, only_degrees=True)
        return require_values(data, x, lambda x: np.abs(x) <= TURN, "is no angle from -2 pi to 2 pi", fix)
