r"""An emission of one's own: exponential waiting times, independent over features.

.. math:: \lambda_{kd} \sim Gamma(a, b), \qquad x_{td} \mid z_t = k \sim Exp(\lambda_{kd})

Source: CONTRIBUTING.md, "Add an emission".
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpyro.distributions as dist
from jax import Array

from ethogram.models.data import Trajectories
from ethogram.models.emissions import (
    FeatureEmission,
    linear_in_features,
    read_observations,
    recorded,
    require_values,
)
from ethogram.models.families import Gamma
from ethogram.models.model_object import model_object, static_field


@model_object
class ExponentialEmission(FeatureEmission):
    """Waiting times: `num_features` D, and the prior of their rates, `shape` a and `rate` b, numbers above 0."""

    num_features: int = static_field(default=1)
    shape: Any = 1.0
    rate: Any = 1.0
    block_name: ClassVar[str] = "rate"
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"rate": ("state", "feature")}

    def block(self) -> Gamma:
        """The prior of one state, one rate per feature; it checks `shape` and `rate`."""
        ones = np.ones(self.num_features)  # fields may be traced
        return Gamma.from_standard(self.shape * ones, self.rate * ones)

    def read(self, data: Trajectories) -> Array:
        """Waiting times (sequence, time, feature), NaN where missing."""
        x, fix = read_observations(data, self.num_features), "use numbers above 0, or NaN where missing"
        return require_values(data, x, lambda x: x > 0, "is no waiting time", fix)

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log density (..., state): :math:`\sum_d E \ln \lambda_{kd} - x_d E \lambda_{kd}`."""
        log_rate, minus_rate = expected["rate"]  # each (state, feature)
        x, seen = recorded(observations, log_rate.dtype)  # 0 and 0 where a feature is missing
        return linear_in_features((seen, log_rate), (x, minus_rate))

    def feature_distribution(self, *parameters: Any) -> dist.Distribution:
        """Of each feature, at the values of the block."""
        return dist.Exponential(*parameters)
