r"""Choices between options, and features that are 0 or 1, by a regression for each state: the GLM-HMM.

.. math:: \eta_{ko}(t) = b_{ko} + w_{ko}'(x_t - \bar x), \qquad \eta_{k0} = 0, \qquad
          P(y_t = o \mid z_t = k) = \frac{e^{\eta_{ko}(t)}}{\sum_m e^{\eta_{km}(t)}}

Ashwood, Roy, Stone, IBL, Urai, Churchland, Pouget, Pillow (2022), "Mice alternate between discrete strategies during
perceptual decision-making", whose prior of weights has the standard deviation 2.
"""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.stats import norm

from ethogram.models.arguments import require_integer, require_one_of
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.categorical import CategoricalEmission
from ethogram.models.emissions.counts import BernoulliEmission
from ethogram.models.emissions.emission import Emission, read_observations, require_values, whole_up_to
from ethogram.models.model_object import model_object, static_field
from ethogram.models.roles.covariate_emission import CovariateEmission

__all__ = ["ChoiceEmission", "LogitEmission"]


@model_object
class ChoiceEmission(CovariateEmission):
    r"""A choice between options in every step, whose probabilities depend on covariates and on the state.

    .. math:: b_{ko} \sim N(0, s^2), \qquad w_{ko} \sim N(0, s^2 / \mathrm{sd}(x)^2)

    Sites are ``intercept`` (state, option) at the mean of the covariates, and ``weight`` (state, option, covariate),
    per unit of a column of the formula; both of options 1, 2, ... against option 0.

    Parameters
    ----------
    formula : of the covariates of the data, such as ``"stimulus + previous_choice"``, as of `Covariates`. Each state
        has a constant besides.
    num_options : M; observations are options 0..M-1, NaN where no choice was made, one feature.
    link : ``"logit"``, or ``"probit"`` of two options: P(1) is the normal distribution function of eta.
    scale : s, prior standard deviation of the weight of a covariate with standard deviation 1, splines included.
    lag : 0 takes the covariates of the step of the choice, 1 those of the step before.

    Examples
    --------
    >>> import ethogram
    >>> type(ethogram.RoleHMM(3, ChoiceEmission("stimulus"))).__name__
    'CovariateRoleHMM'
    """

    formula: str = static_field()
    num_options: int = static_field(default=2)
    link: Literal["logit", "probit"] = static_field(default="logit")
    scale: float = static_field(default=2.0)
    lag: int = static_field(default=0)
    encoding: Any = None
    num_features: ClassVar[int] = 1  # type: ignore[misc]
    row_dim: ClassVar[str] = "option"
    has_intercept: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_integer("num_options", self.num_options, 2)
        require_one_of("link", self.link, ("logit", "probit"))
        if self.link == "probit" and self.num_options > 2:
            raise ValueError(f'link="probit" is of two options, not {self.num_options}: give link="logit"')
        self.covariates  # noqa: B018  # raises for what is no formula

    @property
    def rows(self) -> int:
        """Options but the first."""
        return self.num_options - 1

    @property
    def is_logit(self) -> bool:
        """Whether slopes are changes of log odds."""
        return self.link == "logit"

    def without_covariates(self) -> Emission:
        """Options by their probability in each state."""
        return CategoricalEmission(self.num_options)

    def site_coords(self, feature_names: Any) -> dict[str, Any]:
        """Options, and names of the columns of the formula."""
        return {**super().site_coords(feature_names), "option": self.row_names(None)}

    def row_names(self, feature_names: Any) -> tuple[str, ...]:
        """Options but the first."""
        return tuple(str(option) for option in range(1, self.num_options))

    def response_names(self, feature_names: Any) -> tuple[str, ...]:
        """All options, or of two the second."""
        return tuple(
            f"P(option {option})" for option in range(self.num_options) if self.num_options > 2 or option
        )

    def _log_probability(self, eta: Array) -> Array:
        """Log probabilities (..., option)."""
        if self.link == "probit":
            return norm.logcdf(jnp.concatenate([-eta, eta], axis=-1))
        return jax.nn.log_softmax(jnp.concatenate([jnp.zeros_like(eta[..., :1]), eta], axis=-1), axis=-1)

    def log_density(self, parameters: Any, eta: Array, value: Array, known: Array, base: Any) -> Array:
        """Log probability (..., time, state) of choices (..., time, 1)."""
        made = ~jnp.isnan(value)
        option = jnp.where(made, value, 0).astype(int)[..., None]  # (..., time, 1, 1)
        each = self._log_probability(eta)
        chosen = jnp.take_along_axis(each, jnp.broadcast_to(option, (*each.shape[:-1], 1)), axis=-1)[..., 0]
        return jnp.where(made, chosen, 0)

    def draw(self, key: Array, parameters: Any, eta: Array, base: Any) -> Array:
        """Choices (..., time, state, 1)."""
        return jax.random.categorical(key, self._log_probability(eta))[..., None].astype(eta.dtype)

    def distribution_function(self, eta: Array, value: Array) -> tuple[Array, Array]:
        """Probabilities (..., time, state, 1) of a smaller option than those chosen (..., time, 1), and of up to it."""
        below = jnp.arange(self.num_options) < value[..., None]
        each = jnp.exp(self._log_probability(eta))
        chosen = jnp.arange(self.num_options) == value[..., None]
        smaller = jnp.sum(jnp.where(below, each, 0), axis=-1, keepdims=True)
        return smaller, smaller + jnp.sum(jnp.where(chosen, each, 0), axis=-1, keepdims=True)

    def response(self, parameters: Any, eta: Array) -> Array:
        """Probabilities of the options, or of two of the second."""
        each = jnp.exp(self._log_probability(eta))
        return each if self.num_options > 2 else each[..., 1:]

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Choices (sequence, time, 1)."""
        x, highest = read_observations(data, 1), self.num_options - 1
        fix = f"use 0..{highest}, or NaN where no choice was made; more options take num_options="
        fault = f"lies outside the {self.num_options} options"
        return require_values(data, x, functools.partial(whole_up_to, highest), fault, fix)


@model_object
class LogitEmission(CovariateEmission):
    r"""Features that are 0 or 1, independent given state and covariates, each by a logistic regression for each state.

    .. math:: P(y_{td} = 1 \mid z_t = k) = 1 / (1 + e^{-b_{kd} - w_{kd}'(x_t - \bar x)})

    Sites and priors are those of `ChoiceEmission`, with features in place of options.

    Parameters
    ----------
    formula, scale, lag : as of `ChoiceEmission`.
    num_features : D; features are 0, 1, or NaN where missing.
    """

    formula: str = static_field()
    num_features: int = static_field(default=1)
    scale: float = static_field(default=2.0)
    lag: int = static_field(default=0)
    encoding: Any = None
    has_intercept: ClassVar[bool] = True
    is_logit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_integer("num_features", self.num_features, 1)
        self.covariates  # noqa: B018  # raises for what is no formula

    @property
    def rows(self) -> int:
        """Features."""
        return self.num_features

    def without_covariates(self) -> Emission:
        """Features by their probability in each state."""
        return BernoulliEmission(self.num_features)

    def log_density(self, parameters: Any, eta: Array, value: Array, known: Array, base: Any) -> Array:
        """Log probability (..., time, state), summed over recorded features."""
        x = value[..., None, :]
        each = jax.nn.log_sigmoid(jnp.where(x > 0, eta, -eta))
        return jnp.sum(jnp.where(jnp.isnan(x), 0, each), axis=-1)

    def draw(self, key: Array, parameters: Any, eta: Array, base: Any) -> Array:
        """Features (..., time, state, feature)."""
        return jax.random.bernoulli(key, jax.nn.sigmoid(eta)).astype(eta.dtype)

    def distribution_function(self, eta: Array, value: Array) -> tuple[Array, Array]:
        """Probabilities (..., time, state, feature) of a smaller value than (..., time, feature), and of up to it."""
        zero, one = jax.nn.sigmoid(-eta), value[..., None, :] > 0
        return jnp.where(one, zero, 0), jnp.where(one, 1, zero)

    def response(self, parameters: Any, eta: Array) -> Array:
        """Probabilities of a 1."""
        return jax.nn.sigmoid(eta)

    def response_names(self, feature_names: Any) -> tuple[str, ...]:
        """Of each feature."""
        return tuple(f"P({name})" for name in super().response_names(feature_names))

    def read(self, data: Trajectories) -> Array | np.ndarray:
        """Features (sequence, time, feature) that are 0 or 1."""
        return self.without_covariates().read(data)
