r"""What a state emits: five families with conjugate priors, each at once a prior, a potential and a distribution.

Every emission offers the same parts. ``prior(num_states)`` gives its conjugate blocks by name;
``expected_log_likelihood(expected, observations)`` is :math:`E_q \ln p(x \mid \phi_k)`, linear in the expected
statistics of the blocks (Gaussian mixtures: a logsumexp of such terms), so that its gradient are the
statistics of the data; ``distribution(parameters)`` is the numpyro distribution at given parameters, states on
its last batch axis; ``read(data)`` takes the observations out of :class:`~ethogram.models.trajectories.Trajectories`
and refuses what does not fit.

Formulas: Le, Yue, Carr, Lucey (2017), supplement, whose count in eq. 4 must be the state's own count; Murphy
(2007) for the normal-inverse-Wishart.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln

from ethogram.models.conjugate_block import is_concrete, read_reals, require, require_covariance
from ethogram.models.exponential_family import (
    Beta,
    ConjugateBlock,
    Dirichlet,
    Known,
    Normal,
    NormalInverseWishart,
    PartlyKnown,
)
from ethogram.models.forward_backward import logsumexp
from ethogram.models.model_object import model_object, static_field
from ethogram.models.trajectories import Trajectories

__all__ = [
    "BinomialEmission",
    "CategoricalEmission",
    "GaussianEmission",
    "GaussianMixtureEmission",
    "KnownCovarianceEmission",
]


class Emission:
    """What emissions share: how frames look to a start."""

    event_dim: ClassVar[int] = 1

    def start_features(self, observations: Array, observed: Array) -> Array:
        """Frames (frame, feature) as points, for clustering."""
        return observations.reshape(-1, observations.shape[-1]).astype(jnp.result_type(float))

    def unlike_parts(self, key: Array, expected: dict[str, Any]) -> dict[str, Any]:
        """Neutral expected statistics, made unlike where a state has parts that would else stay equal."""
        return expected


@model_object
class GaussianEmission(Emission):
    r"""One Gaussian a state, with unknown mean and full covariance.

    .. math:: \Sigma_k \sim IW(\Psi, \nu), \quad \mu_k \mid \Sigma_k \sim N(m, \Sigma_k / \kappa), \quad
              x_t \mid z_t = k \sim N(\mu_k, \Sigma_k)

    Parameters
    ----------
    num_features : D.
    mean : m, in the units of the data; a number or (feature,).
    strength : kappa > 0, how many observations the prior mean is worth.
    dof : nu > D - 1; None takes D + 2, the least whole number at which the covariance has a mean.
    scale : Psi, in squared units; a number (times the identity) or (feature, feature).
    known : ``Known((mean (state, feature), covariance (state, feature, feature)))``, NaN where not known.
    """

    num_features: int = static_field()
    mean: Any = 0.0
    strength: Any = 0.01
    dof: Any = None
    scale: Any = 1.0
    known: Known | None = None

    def __post_init__(self):
        mean, strength, dof, scale = _niw_parameters(self)
        for name, value in {"mean": mean, "strength": strength, "dof": dof, "scale": scale}.items():
            object.__setattr__(self, name, value)
        self._block()

    def _block(self) -> NormalInverseWishart:
        return NormalInverseWishart.from_standard(
            self.mean, self.strength, self.dof, self.scale, origin=self.mean
        )

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One normal-inverse-Wishart block, ``mean_covariance``, a row a state."""
        return {"mean_covariance": _rows(self._block(), num_states, self.known)}

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        """Expected log density (..., state) of observations (..., feature)."""
        return _expected_gaussian(expected["mean_covariance"], observations - self.mean)

    def distribution(self, parameters: dict[str, Array]) -> dist.Distribution:
        """Gaussians at parameters ``mean (state, feature)`` and ``covariance (state, feature, feature)``."""
        return dist.MultivariateNormal(parameters["mean"], parameters["covariance"])

    def read(self, data: Trajectories) -> Array:
        """Observations (sequence, time, feature)."""
        return _real_observations(data, self.num_features)


@model_object
class KnownCovarianceEmission(Emission):
    r"""One Gaussian a state, with unknown mean and known covariance R.

    .. math:: \mu_k \sim N(m, V), \qquad x_t \mid z_t = k \sim N(\mu_k, R)

    Parameters
    ----------
    covariance : R (feature, feature), in squared units of the data.
    mean : m; a number or (feature,).
    mean_covariance : V; a number (times the identity) or (feature, feature).
    known : ``Known(mean (state, feature))``, NaN where not known.
    """

    covariance: Any
    mean: Any = 0.0
    mean_covariance: Any = 1.0
    known: Known | None = None

    def __post_init__(self):
        covariance, mean, spread = read_reals(
            covariance=self.covariance, mean=self.mean, mean_covariance=self.mean_covariance
        )
        if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
            raise ValueError(
                f"covariance must be a (feature, feature) matrix, not of shape {covariance.shape}"
            )
        if is_concrete(covariance):
            require_covariance("covariance", covariance)
        size = covariance.shape[0]
        object.__setattr__(self, "covariance", covariance)
        object.__setattr__(self, "mean", jnp.broadcast_to(mean, (size,)))
        object.__setattr__(self, "mean_covariance", _matrix(spread, size))
        self._block()

    def _block(self) -> Normal:
        return Normal.from_standard(self.mean, self.mean_covariance)

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One block of means, ``mean``, a row a state."""
        return {"mean": _rows(self._block(), num_states, self.known)}

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log density (..., state): :math:`\ln N(x \mid m, R) - \frac12 tr(R^{-1} V)`."""
        mean, half_square = expected["mean"]
        factor = jnp.linalg.cholesky(self.covariance)
        precision = jax.scipy.linalg.cho_solve((factor, True), jnp.eye(factor.shape[0], dtype=factor.dtype))
        own = -0.5 * jnp.einsum("...d,de,...e->...", observations, precision, observations)
        log_det = jnp.sum(jnp.log(jnp.diagonal(factor)))
        constant = jnp.einsum("de,ked->k", precision, half_square) - log_det
        cross = jnp.einsum("...d,kd->...k", observations, mean @ precision)
        return _plus_row(cross + own[..., None], constant - 0.5 * factor.shape[0] * math.log(2 * math.pi))

    def distribution(self, parameters: dict[str, Array]) -> dist.Distribution:
        """Gaussians at parameters ``mean (state, feature)``."""
        return dist.MultivariateNormal(parameters["mean"], self.covariance)

    def read(self, data: Trajectories) -> Array:
        """Observations (sequence, time, feature)."""
        return _real_observations(data, self.mean.shape[0])


@model_object
class CategoricalEmission(Emission):
    r"""One distribution over symbols a state: :math:`p_k \sim Dir(c)`, :math:`x_t \mid z_t = k \sim p_k`.

    Parameters
    ----------
    num_categories : V; observations are integers 0..V-1, one feature.
    concentration : c; a number or (category,).
    known : ``Known(probability (state, category))``, NaN rows where not known.
    """

    num_categories: int = static_field()
    concentration: Any = 1.0
    known: Known | None = None
    event_dim: ClassVar[int] = 0

    def __post_init__(self):
        _whole_number("num_categories", self.num_categories, 1)
        (concentration,) = read_reals(concentration=self.concentration)
        concentration = jnp.broadcast_to(concentration, (self.num_categories,))
        object.__setattr__(self, "concentration", concentration)
        Dirichlet.from_standard(concentration)

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One Dirichlet block, ``probability``, a row a state."""
        return {"probability": _rows(Dirichlet.from_standard(self.concentration), num_states, self.known)}

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state): :math:`\psi(c_{kv}) - \psi(\sum_v c_{kv})`."""
        return expected["probability"].concentration.T[observations]

    def start_features(self, observations: Array, observed: Array) -> Array:
        """How often each symbol occurs in the frame's sequence: single symbols are all equally far apart."""
        counts = jnp.sum(jax.nn.one_hot(observations, self.num_categories) * observed[..., None], axis=1)
        share = counts / jnp.maximum(jnp.sum(observed, axis=1), 1)[:, None]
        return jnp.repeat(share, observed.shape[1], axis=0)

    def distribution(self, parameters: dict[str, Array]) -> dist.Distribution:
        """Categorical distributions at ``probability (state, category)``."""
        return dist.CategoricalProbs(parameters["probability"])

    def read(self, data: Trajectories) -> Array:
        """Symbols (sequence, time)."""
        x = _integer_observations(data, 1, "CategoricalEmission")[..., 0]
        _in_range(data, x, 0, self.num_categories - 1, f"the {self.num_categories} categories")
        return x


@model_object
class BinomialEmission(Emission):
    r"""Counts out of n, independent over features: :math:`p_{kd} \sim Beta(a, b)`, :math:`x_{td} \sim Bin(n_d, p_{kd})`.

    Parameters
    ----------
    total_count : n; an integer or (feature,) integers.
    successes, failures : a and b; numbers or (feature,).
    num_features : D.
    known : ``Known(probability (state, feature))``, NaN rows where not known.
    """

    total_count: Any
    successes: Any = 1.0
    failures: Any = 1.0
    num_features: int = static_field(default=1)
    known: Known | None = None

    def __post_init__(self):
        total = np.asarray(self.total_count)
        if not np.issubdtype(total.dtype, np.integer) or (total < 1).any():
            raise ValueError(f"total_count must hold integers of at least 1, not {self.total_count!r}")
        a, b = read_reals(successes=self.successes, failures=self.failures)
        shape = (self.num_features,)
        object.__setattr__(self, "total_count", jnp.broadcast_to(jnp.asarray(total), shape))
        object.__setattr__(self, "successes", jnp.broadcast_to(a, shape))
        object.__setattr__(self, "failures", jnp.broadcast_to(b, shape))
        Beta.from_standard(self.successes, self.failures)

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One block, ``probability``, of Beta distributions (state, feature)."""
        return {
            "probability": _rows(Beta.from_standard(self.successes, self.failures), num_states, self.known)
        }

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        r"""Expected log probability (..., state): :math:`\ln\binom{n}{x} + x E \ln p + (n - x) E \ln(1 - p)`."""
        log_p, log_not = expected["probability"]
        x = observations.astype(log_p.dtype)
        n = jnp.broadcast_to(self.total_count.astype(log_p.dtype), x.shape)
        choose = jnp.sum(gammaln(n + 1) - gammaln(x + 1) - gammaln(n - x + 1), axis=-1)
        return (
            jnp.einsum("...d,kd->...k", x, log_p)
            + jnp.einsum("...d,kd->...k", n - x, log_not)
            + choose[..., None]
        )

    def distribution(self, parameters: dict[str, Array]) -> dist.Distribution:
        """Binomial distributions at ``probability (state, feature)``."""
        probability = parameters["probability"]
        return dist.BinomialProbs(
            probability, jnp.broadcast_to(self.total_count, probability.shape)
        ).to_event(1)

    def read(self, data: Trajectories) -> Array:
        """Counts (sequence, time, feature)."""
        x = _integer_observations(data, self.num_features, "BinomialEmission")
        _in_range(data, x, 0, self.total_count, "total_count")
        return x


@model_object
class GaussianMixtureEmission(Emission):
    r"""A mixture of Gaussians a state: weights :math:`w_k \sim Dir(c)`, components as in `GaussianEmission`.

    The component indicator has its own factor in q: the chain runs on :math:`\ln \sum_m \exp(E \ln w_{km} +
    E \ln N_{km})`, whose gradient splits a state's frames by responsibilities.

    Parameters
    ----------
    num_features, num_components : D and M.
    concentration : c; a number or (component,).
    mean, strength, dof, scale : as in `GaussianEmission`.
    """

    num_features: int = static_field()
    num_components: int = static_field()
    concentration: Any = 1.0
    mean: Any = 0.0
    strength: Any = 0.01
    dof: Any = None
    scale: Any = 1.0

    def __post_init__(self):
        _whole_number("num_components", self.num_components, 1)
        mean, strength, dof, scale = _niw_parameters(self)
        (concentration,) = read_reals(concentration=self.concentration)
        concentration = jnp.broadcast_to(concentration, (self.num_components,)).astype(mean.dtype)
        parameters = {
            "mean": mean,
            "strength": strength,
            "dof": dof,
            "scale": scale,
            "concentration": concentration,
        }
        for name, value in parameters.items():
            object.__setattr__(self, name, value)
        self.prior(1)

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """Blocks ``weight`` (state, component) and ``mean_covariance``, a row a state and component."""
        block = NormalInverseWishart.from_standard(
            self.mean, self.strength, self.dof, self.scale, origin=self.mean
        )
        components = _repeat(_repeat(block, self.num_components), num_states)
        return {
            "weight": _rows(Dirichlet.from_standard(self.concentration), num_states, None),
            "mean_covariance": components,
        }

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array) -> Array:
        """Log of summed expected component weights (..., state) of observations (..., feature)."""
        log_weight = expected["weight"].concentration
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), expected["mean_covariance"])
        parts = _expected_gaussian(flat, observations - self.mean)
        parts = parts.reshape(*parts.shape[:-1], *log_weight.shape)
        return logsumexp(parts + log_weight.reshape((1,) * (parts.ndim - 2) + log_weight.shape), -1)

    def unlike_parts(self, key: Array, expected: dict[str, Any]) -> dict[str, Any]:
        """Components that each lean in a direction of their own, drawn at random."""
        parts = expected["mean_covariance"]
        spread = jnp.sqrt(jnp.diagonal(self.scale))
        lean = jax.random.normal(key, parts.location.shape, parts.location.dtype) / spread
        return {**expected, "mean_covariance": parts._replace(location=lean)}

    def distribution(self, parameters: dict[str, Array]) -> dist.Distribution:
        """Mixtures at ``weight (state, component)``, ``mean`` and ``covariance`` (state, component, ...)."""
        components = dist.MultivariateNormal(parameters["mean"], parameters["covariance"])
        return dist.MixtureSameFamily(dist.CategoricalProbs(parameters["weight"]), components)

    def read(self, data: Trajectories) -> Array:
        """Observations (sequence, time, feature)."""
        return _real_observations(data, self.num_features)


def _expected_gaussian(expected: Any, x: Array) -> Array:
    """E ln N(x) (..., state) from expected normal-inverse-Wishart statistics: one matrix product of features."""
    size = x.shape[-1]
    rows, columns = np.triu_indices(size)
    products = x[..., rows] * x[..., columns]
    twice = expected.scatter + jnp.swapaxes(expected.scatter, -1, -2)
    halved = np.where(rows == columns, 0.5, 1.0).astype(x.dtype)
    weights = jnp.concatenate([expected.location, twice[..., rows, columns] * halved[None]], -1)
    features = jnp.concatenate([x, products], -1)
    constant = expected.strength + expected.dof - 0.5 * size * math.log(2 * math.pi)
    return _plus_row(features @ weights.T, constant)


def _plus_row(x: Array, row: Array) -> Array:
    return x + row.reshape((1,) * (x.ndim - 1) + row.shape)


def _matrix(value: Array, size: int) -> Array:
    """A number times the identity, or the matrix that was given."""
    return value * jnp.eye(size, dtype=value.dtype) if value.ndim == 0 else value


def _niw_parameters(emission: Any) -> tuple[Array, Array, Array, Array]:
    size = emission.num_features
    _whole_number("num_features", size, 1)
    dof = float(size + 2) if emission.dof is None else emission.dof
    mean, strength, dof, scale = read_reals(
        mean=emission.mean, strength=emission.strength, dof=dof, scale=emission.scale
    )
    if mean.ndim > 1 or (mean.ndim == 1 and mean.shape[0] != size):
        raise ValueError(
            f"mean must be a number or have the {size} features of num_features, not shape {mean.shape}"
        )
    return jnp.broadcast_to(mean, (size,)), strength, dof, _matrix(scale, size)


def _repeat(block: Any, count: int) -> Any:
    """The block with a new leading batch axis of `count` equal rows."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x[None], (count, *x.shape)), block)


def _rows(block: ConjugateBlock, num_states: int, known: Known | None) -> ConjugateBlock:
    block = _repeat(block, num_states)
    return block if known is None else PartlyKnown.from_known(block, known)


def _whole_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def _features(data: Trajectories, num_features: int) -> Any:
    if data.observations is None:
        raise ValueError(
            "data.observations is None: this emission needs observations (sequence, time, feature)"
        )
    if data.observations.shape[-1] != num_features:
        raise ValueError(
            f"data.observations has {data.observations.shape[-1]} features, the emission num_features={num_features}"
        )
    return data.observations


def _real_observations(data: Trajectories, num_features: int) -> Array:
    x = _features(data, num_features)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"data.observations has dtype {x.dtype}, a Gaussian emission needs floats: "
            "pass data._replace(observations=data.observations.astype(float))"
        )
    return jnp.asarray(x)


def _integer_observations(data: Trajectories, num_features: int, name: str) -> Array:
    x = _features(data, num_features)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"data.observations has dtype {x.dtype}, a {name} needs integers")
    return jnp.asarray(x)


def _in_range(data: Trajectories, x: Any, low: int, high: Any, what: str) -> None:
    if not is_concrete(x, data.observed, high):
        return
    x, observed = np.asarray(x), np.asarray(data.observed)
    good = (x >= low) & (x <= np.asarray(high)) | ~observed.reshape(observed.shape + (1,) * (x.ndim - 2))
    require(
        good,
        "data.observations",
        x,
        f"lies outside {what}",
        f"use {low}..{np.asarray(high).tolist()}, or mark the step as missing",
    )
