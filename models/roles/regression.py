r"""Regressions of features on covariates, one for each state, about an emission with a conjugate prior.

.. math:: g(\mu_{kd}(t)) = g(\mu_{kd}) + w_{kd}'(x_t - \bar x)

with g the identity of Gaussians, the logarithm of means of counts and gamma distributed features, the log odds of 0/1
features, and of angles :math:`\mu + 2 \arctan(w'x)`: Fisher and Lee (1992), "Regression models for an angular
response".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.special import logit

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.counts import BernoulliEmission, PoissonEmission
from ethogram.models.emissions.emission import Emission
from ethogram.models.emissions.gaussian import GaussianEmission
from ethogram.models.emissions.steps import GammaEmission, VonMisesEmission
from ethogram.models.model_object import changed, model_object, static_field
from ethogram.models.roles.covariate_emission import CovariateEmission

__all__ = ["RegressionEmission"]

MOVED: Mapping[type, Callable[[Array, Array], Array]] = {
    GaussianEmission: lambda mean, eta: mean + eta,
    PoissonEmission: lambda mean, eta: mean * jnp.exp(eta),
    GammaEmission: lambda mean, eta: mean * jnp.exp(eta),
    BernoulliEmission: lambda mean, eta: jax.nn.sigmoid(logit(mean) + eta),
    VonMisesEmission: lambda mean, eta: mean + 2 * jnp.arctan(eta),
}
"""The first parameter of an emission at linear predictors: its link."""


@model_object
class RegressionEmission(CovariateEmission):
    r"""An emission whose mean depends on covariates, with slopes for each state.

    Sites are those of the emission, at the mean of the covariates, with their conjugate prior, and ``weight`` (state,
    feature, covariate), per unit of a column of the formula:
    :math:`w_{kd} \sim N(0, s^2 c_d^2 / \mathrm{sd}(x)^2)`, with c the standard deviation of a Gaussian feature in the
    data, and 1 of others, whose slopes are changes of ln mean, of log odds, or of the tangent of half an angle.

    Parameters
    ----------
    emission : a `GaussianEmission`, `PoissonEmission`, `GammaEmission`, `BernoulliEmission` or `VonMisesEmission`.
    formula : of the covariates of the data, such as ``"temperature + sex"``, as of `Covariates`.
    scale : s, prior standard deviation of the effect of a covariate with standard deviation 1, splines included.
    lag : 0 takes the covariates of the frame, 1 those of the frame before.

    Examples
    --------
    >>> import ethogram
    >>> model = ethogram.RoleHMM(2, RegressionEmission(ethogram.PoissonEmission(), "temperature"))
    """

    emission: Any
    formula: str = static_field()
    scale: float = static_field(default=1.0)
    lag: int = static_field(default=0)
    encoding: Any = None
    unit: Any = None

    def __post_init__(self) -> None:
        if type(self.emission) not in MOVED:
            known = ", ".join(kind.__name__ for kind in MOVED)
            raise TypeError(
                f"emission is {self.emission!r}: give one of {known}; categories are a ChoiceEmission with covariates"
            )
        self.covariates  # noqa: B018  # raises for what is no formula

    @property
    def num_features(self) -> int:  # type: ignore[override]
        """D."""
        return self.emission.num_features

    @property
    def rows(self) -> int:
        """Features."""
        return self.num_features

    @property
    def is_logit(self) -> bool:
        """Whether slopes are changes of log odds."""
        return isinstance(self.emission, BernoulliEmission)

    @property
    def is_log(self) -> bool:
        """Whether slopes are changes of the logarithm of a mean."""
        return isinstance(self.emission, PoissonEmission | GammaEmission)

    @property
    def differs_by_state(self) -> bool:
        """Whether states have priors of their own."""
        return self.emission.differs_by_state

    def without_covariates(self) -> Emission:
        """The emission."""
        return self.emission

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:  # type: ignore[override]
        """Dims of the sites of the emission, and of slopes."""
        return {**self.emission.site_dims, **super().site_dims}

    def conjugate_blocks(self, num_states: int) -> dict[str, Any]:
        """Those of the emission."""
        return self.emission.prior(num_states)

    def bind(self, data: Trajectories, num_states: int) -> Any:
        """The emission with what formula and prior take from data, the deviations of Gaussian features among it."""
        if self.encoding is not None and self.unit is not None:
            return self
        unit = np.ones(self.num_features)
        if isinstance(self.emission, GaussianEmission):
            unit = np.nanstd(np.asarray(data.observations, float)[np.asarray(data.observed)], axis=0)
            unit = np.where(unit > 0, unit, 1.0)
        return changed(self.encoded(data), emission=self.emission.bind(data, num_states), unit=unit)

    def with_prior_of(self, earlier: Any) -> Any:
        """The emission with encoding and prior of an earlier one, whose fit this one continues."""
        if type(earlier.emission) is not type(self.emission):
            return self
        own = self.emission.with_prior_of(earlier.emission)
        return changed(super().with_prior_of(earlier), emission=own, unit=earlier.unit)

    def weight_scale(self) -> Any:
        """Prior standard deviations (row, column) of slopes, in the units of features and covariates."""
        unit = 1.0 if self.unit is None else jnp.asarray(self.unit)[:, None]
        return super().weight_scale() * unit

    def locations(self, draws: Any) -> np.ndarray | None:
        """Those of the emission, at the mean of the covariates."""
        return self.emission.locations(draws)

    def base(self, parameters: Any, data: Trajectories) -> Any:
        """Gaussians at the mean of the covariates; none of others."""
        return self.emission.distribution(parameters, data) if self._is_gaussian else None

    @property
    def _is_gaussian(self) -> bool:
        return isinstance(self.emission, GaussianEmission)

    def _features(self, parameters: Any, eta: Array) -> Any:
        """Numpyro distribution (..., state, feature) at linear predictors."""
        first, *others = (parameters[site] for site in self.emission.site_dims)
        moved = self._moved(first, eta)
        return self.emission.feature_distribution(
            moved, *(jnp.broadcast_to(each, moved.shape) for each in others)
        )

    def _moved(self, first: Array, eta: Array) -> Array:
        return MOVED[type(self.emission)](first, eta)

    def log_density(self, parameters: Any, eta: Array, value: Array, known: Array, base: Any) -> Array:
        """Log density (..., time, state), of recorded features."""
        x = value[..., None, :]
        if self._is_gaussian:
            return base.log_prob(x - eta)
        seen = known[..., None, None] & ~jnp.isnan(x)
        each = self._features(parameters, eta).log_prob(jnp.where(seen, x, 1))
        return jnp.sum(jnp.where(seen, each, 0), axis=-1)

    def draw(self, key: Array, parameters: Any, eta: Array, base: Any) -> Array:
        """Frames (..., time, state, feature)."""
        if self._is_gaussian:
            return base.sample(key, eta.shape[:-2]) + eta
        return self._features(parameters, eta).sample(key).astype(eta.dtype)

    def response(self, parameters: Any, eta: Array) -> Array:
        """Means, or directions, of the features."""
        return self._moved(parameters[next(iter(self.emission.site_dims))], eta)

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Observations (sequence, time, feature) of the emission."""
        return self.emission.read(data)
