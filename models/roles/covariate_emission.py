r"""Base of emissions whose mean depends on covariates of the step, on the scale of a link, with slopes for each state.

Le, Yue, Carr and Lucey (2017) have none of it; a hidden Markov model whose observations are generalised linear models
is that of Bengio and Frasconi (1996), "Input-output HMMs for sequence processing". The states are summed out by
:class:`~ethogram.models.roles.covariate_roles.CovariateRoleHMM`: slopes have no conjugate prior.
"""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Bool, Float, Int
from numpyro.distributions import constraints

from ethogram.models.chains.emitted_steps import DependentSteps, Past
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.emission import Emission
from ethogram.models.model_object import changed
from ethogram.models.roles.covariates import Covariates

__all__ = ["CovariateEmission", "CovariateSteps"]


class CovariateEmission(Emission):
    """Emissions with a formula of covariates; `RoleHMM` alone takes them, fitted by ``"laplace"`` or ``"nuts"``.

    A subclass is a `model_object` with the static fields `formula`, `scale` and `lag`, and `encoding`; it defines
    `rows`, `log_density`, `draw`, `response` and `without_covariates`.

    Attributes
    ----------
    row_dim : name of the axis of slopes after the states, of features or options.
    has_intercept : whether intercepts of their own have the prior of slopes.
    """

    formula: str
    scale: float
    lag: int
    encoding: Any
    num_features: int
    row_dim: ClassVar[str] = "feature"
    has_intercept: ClassVar[bool] = False

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """Number of linear predictors of a state."""

    @abc.abstractmethod
    def without_covariates(self) -> Emission:
        """The emission of the same observations without slopes."""

    @abc.abstractmethod
    def log_density(self, parameters: Any, eta: Array, value: Array, known: Array, base: Any) -> Array:
        """Log density (..., time, state) of values (..., time, feature); arbitrary where not `known` (..., time)."""

    @abc.abstractmethod
    def draw(self, key: Array, parameters: Any, eta: Array, base: Any) -> Array:
        """Frames (..., time, state, feature) of every state, at predictors (..., time, state, row)."""

    @abc.abstractmethod
    def response(self, parameters: Any, eta: Array) -> Array:
        """Means (..., state, shown) at linear predictors (..., state, row), such as probabilities of options."""

    def response_names(self, feature_names: Any) -> tuple[str, ...]:
        """Names of the means of `response`. Default: those of the features."""
        return tuple(feature_names or (f"feature {number}" for number in range(self.rows)))

    def row_names(self, feature_names: Any) -> tuple[str, ...]:
        """Names of linear predictors. Default: those of the features."""
        return tuple(map(str, feature_names or range(self.rows)))

    @property
    def is_logit(self) -> bool:
        """Whether slopes are changes of log odds."""
        return False

    @property
    def is_log(self) -> bool:
        """Whether slopes are changes of the logarithm of a mean."""
        return False

    @property
    def covariates(self) -> Any:
        """The formula with what it took from data."""
        if isinstance(self.formula, str) and not self.formula.strip():
            raise ValueError("formula is empty: name a covariate, such as 'stimulus'")
        return Covariates(self.formula, scale=self.scale, lag=self.lag, encoding=self.encoding)

    def role_model(self) -> type:
        """The class of role HMMs with such an emission."""
        return self.covariates.role_model()

    def constant_transitions(self) -> Covariates:
        """Transitions that have no covariates, with the priors of those that have."""
        return Covariates()

    @property
    def observation_needs_data(self) -> bool:  # type: ignore[override]
        """Whether the columns of the formula are still to be taken from data."""
        return self.encoding is None

    @property
    def site_dims(self) -> dict[str, tuple[str, ...]]:  # type: ignore[override]
        """Dims of intercepts and slopes."""
        own = {"intercept": ("state", self.row_dim)} if self.has_intercept else {}
        return {**own, "weight": ("state", self.row_dim, "emission_covariate")}

    def site_coords(self, feature_names: Any) -> dict[str, Any]:
        """Names of the columns of the formula."""
        return {} if self.encoding is None else {"emission_covariate": self.encoding.names}

    def prior(self, num_states: int) -> Any:
        """Raise TypeError: slopes have no conjugate prior."""
        raise TypeError(
            f"a {type(self).__name__} has covariates, and no conjugate prior: give it to RoleHMM itself, and fit it by "
            "ethogram.fit(key, model, data), by Laplace's approximation or by NUTS"
        )

    def expected_log_likelihood(self, expected: Any, observations: Any) -> Array:
        """Raise TypeError, as `prior`."""
        return self.prior(0)

    def conjugate_blocks(self, num_states: int) -> dict[str, Any]:
        """Blocks of those parameters that have a conjugate prior. Default: none."""
        return {}

    def encoded(self, data: Trajectories) -> Any:
        """The emission with what its formula takes from data; itself if it has that."""
        return (
            self if self.encoding is not None else changed(self, encoding=self.covariates.bind(data).encoding)
        )

    def bind(self, data: Trajectories, num_states: int) -> Any:
        """The emission with what formula and prior take from data."""
        return self.encoded(data)

    def with_prior_of(self, earlier: Any) -> Any:
        """The emission with the encoding of an earlier one, whose fit this one continues."""
        return self if self.encoding is not None else changed(self, encoding=earlier.encoding)

    def locations(self, draws: Any) -> np.ndarray | None:
        """Minus the size of the slopes (state,): states that follow the covariates most come first."""
        size = draws["weight"].mean(0) * np.asarray(self.encoding.spread)
        return -np.sqrt((size**2).sum((1, 2)))

    def weight_scale(self) -> Any:
        """Prior standard deviations (row, column) of slopes, in the units of the covariates."""
        return jnp.broadcast_to(
            self.scale / jnp.asarray(self.encoding.spread), (self.rows, len(self.encoding.names))
        )

    def sampled(self, num_states: int) -> dict[str, Array]:
        """Slopes and intercepts sampled inside a numpyro model, whose latent sites are standardised."""
        shape = [num_states, self.rows]
        white = dist.Normal(0, 1).expand([*shape, len(self.encoding.names)]).to_event(3)
        sites = {"weight": numpyro.sample("weight_free", white) * self.weight_scale()}
        if self.has_intercept:
            free = numpyro.sample("intercept_free", dist.Normal(0, 1).expand(shape).to_event(2))
            sites["intercept"] = free * self.scale
        return {name: numpyro.deterministic(name, site) for name, site in sites.items()}

    def latent(self, sites: dict[str, Any]) -> dict[str, Array]:
        """The latent sites of `sampled` behind slopes and intercepts; those that `sites` has."""
        scales = {"weight": self.weight_scale(), "intercept": self.scale}
        return {f"{name}_free": jnp.asarray(sites[name]) / scales[name] for name in scales if name in sites}

    def predictor(self, parameters: Any, columns: Array) -> Array:
        """Linear predictors (..., state, row) at columns (..., column), less intercepts of the base of a regression."""
        eta = jnp.einsum("krc,...c->...kr", parameters["weight"], columns, precision="highest")
        return eta + parameters["intercept"] if self.has_intercept else eta

    def distribution(self, parameters: dict[str, Any], data: Trajectories | None = None) -> CovariateSteps:
        """Distribution of the frames of data whose last covariates are the columns of the formula."""
        if data is None:
            raise TypeError(
                f"a {type(self).__name__} needs the covariates of the frames: it has no marginals"
            )
        columns = jnp.asarray(data.covariates)[..., -jnp.shape(parameters["weight"])[-1] :]
        return CovariateSteps(self, parameters, columns, self.base(parameters, data))

    def base(self, parameters: Any, data: Trajectories) -> Any:
        """The distribution that `log_density` and `draw` move. Default: none."""
        return None


class CovariateSteps(DependentSteps):
    """Distribution of the frames of sequences, given the state and the columns of the step.

    Parameters
    ----------
    emission : whose ``log_density`` and ``draw`` it has.
    parameters : by site.
    columns : (..., time, column) of the formula.
    base : a distribution with batch shape (state,), or None.
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.real_vector
    pytree_data_fields = ("emission", "parameters", "columns", "base")
    order = 0

    def __init__(self, emission: Any, parameters: Any, columns: Any, base: Any):
        self.emission, self.parameters, self.columns, self.base = emission, parameters, columns, base
        states = jnp.shape(parameters["weight"])[0]
        super().__init__((states,), (emission.num_features,), validate_args=False)

    def _predictor(self, shape: tuple[int, ...]) -> Array:
        columns = jnp.broadcast_to(self.columns, (*shape, self.columns.shape[-1]))
        return self.emission.predictor(self.parameters, columns)

    def log_prob_of_steps(
        self, value: Float[Array, "*batch time feature"], known: Bool[Array, "*batch time"]
    ) -> Array:
        """Log density (..., time, state)."""
        eta = self._predictor(known.shape)
        return self.emission.log_density(self.parameters, eta, value, known, self.base)

    def sample_steps(
        self, key: Array, states: Int[Array, "*batch time"], known: Array, past: Past | None
    ) -> Array:
        """Frames (..., time, feature) of states (..., time)."""
        every = self.emission.draw(key, self.parameters, self._predictor(states.shape), self.base)
        return jnp.take_along_axis(every, states[..., None, None], axis=-2)[..., 0, :]
