"""Gaussian emissions (Murphy 2007, section 9) and mixtures of Gaussians (Bishop 2006, section 10.2)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from ethogram.models.arguments import (
    host_arrays,
    is_concrete,
    read_reals,
    require_covariance,
    require_integer,
)
from ethogram.models.chains.log_space import logsumexp
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.data_prior import CentredEmission, data_moments, warn_of_far_prior
from ethogram.models.emissions.emission import (
    one_hot,
    read_parameters,
    repeat_rows,
    rows_of,
)
from ethogram.models.emissions.missing_features import (
    Gapped,
    filled_in,
    marginal_of_mean,
    marginal_potentials,
    normals,
)
from ethogram.models.emissions.quadratic_features import products, weights_of_products
from ethogram.models.families.cholesky_factors import half_log_det, inverse
from ethogram.models.families.exponential_family import (
    ConjugateBlock,
    Dirichlet,
    DirichletCoordinates,
    Known,
    PartlyKnown,
)
from ethogram.models.families.normal import Normal, NormalCoordinates
from ethogram.models.families.normal_inverse_wishart import (
    NormalInverseWishart,
    NormalInverseWishartCoordinates,
)
from ethogram.models.memory_bound import require_room
from ethogram.models.model_object import changed, computed_once, model_object, static_field

__all__ = ["GaussianEmission", "GaussianMixtureEmission", "KnownCovarianceEmission"]


class _QuadraticPotentials(CentredEmission):
    """Emissions whose expected log density is that of one Gaussian per state: a quadratic form in the frame."""

    def _gaussians(self, expected: dict[str, Any]) -> NormalInverseWishartCoordinates:
        """Expected statistics (state, ...) of the Gaussians."""
        raise NotImplementedError

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array | Gapped) -> Array:
        """Expected log density (..., state) of observations (..., feature)."""
        return _expected_gaussian(self._gaussians(expected), observations)

    def chain_features(self, observations: Array, observed: Array) -> Array:
        """Features (time, feature, sequence) of observations (sequence, time, feature), zero where missing."""
        x = jnp.transpose(observations, (1, 2, 0))
        observed = observed.T[:, None]
        rows = jnp.concatenate([jnp.where(observed, x, 0), observed.astype(x.dtype)], axis=1)
        return jnp.concatenate(products(rows, 1), axis=1)

    def chain_weights(self, expected: dict[str, Any]) -> Array:
        """Weights (state, feature) of :meth:`chain_features` in the expected log density."""
        return weights_of_products(_quadratic_form(self._gaussians(expected)))


class _NormalInverseWishartEmission(CentredEmission):
    """Emissions of Gaussians with unknown mean and covariance: their prior, and where it comes from."""

    may_differ: ClassVar[bool] = False  # whether priors may differ by state

    def _read_parameters(self: Any) -> None:
        size = self.num_features
        require_integer("num_features", size, 1)
        require_room("scale", (size, size), float, "give fewer features")
        shapes = {"strength": (), "dof": (), "mean": (size,), "scale": (size, size)}
        values = {name: getattr(self, name) for name in shapes}
        values["dof"] = float(size + 2) if self.dof is None else self.dof
        self._set(**read_parameters(shapes, self.prior_from_data, self.may_differ, **values))

    @property
    def differs_by_state(self: Any) -> bool:
        """Whether states have priors of their own."""
        axes = {"mean": 1, "strength": 0, "dof": 0, "scale": 2}
        given = {name: getattr(self, name) for name in axes}
        return any(x is not None and x.ndim > axes[name] for name, x in given.items())

    @computed_once
    def _block(self: Any) -> NormalInverseWishart:
        size, dtype = self.num_features, self.strength.dtype
        mean = np.zeros(size, dtype) if self.mean is None else self.mean
        scale = np.eye(size, dtype=dtype) if self.scale is None else self.scale
        origin = np.zeros(size, dtype) if self.mean is None else self.origin
        of_data = any(isinstance(x, np.ndarray) for x in (self.mean, self.scale))  # others are arrays of JAX
        block = NormalInverseWishart.from_checked if of_data else NormalInverseWishart.from_standard
        return block(mean, self.strength, self.dof, scale, origin)

    def _dof_of_scale(self: Any) -> Any:
        """The factor nu - D - 1 between Psi and the prior mean of the covariance; 1 where there is no mean."""
        return host_arrays(lambda xp, nu: xp.maximum(nu - self.num_features - 1, 1), self.dof)

    def bind(self: Any, data: Trajectories, num_states: int) -> Any:
        """The emission with mean and scale set from `data` where they are None; warns where one given is far off."""
        size, parts = self.num_features, num_states * getattr(self, "num_components", 1)
        factor = self._dof_of_scale()
        mean, scale = self.mean, self.scale
        if mean is None or scale is None:
            found = data_moments(data, self.strength.dtype)
            mean = found.mean if mean is None else mean
            if scale is None:
                shares = (found.covariance, factor)
                scale = host_arrays(lambda xp, v, f: v * (f / parts ** (2 / size))[..., None, None], *shares)
        given = self.mean is not None or self.scale is not None
        if self.known is None and given:
            warn_of_far_prior(data, parts, *_of_mixture(mean, scale, factor, self.strength))
        whole = self.mean is not None and self.scale is not None
        return self if whole else changed(self, mean=mean, scale=scale)


@model_object
class GaussianEmission(_QuadraticPotentials, _NormalInverseWishartEmission):
    r"""One Gaussian per state, with unknown mean and full covariance.

    .. math:: \Sigma_k \sim IW(\Psi, \nu), \quad \mu_k \mid \Sigma_k \sim N(m, \Sigma_k / \kappa), \quad
              x_t \mid z_t = k \sim N(\mu_k, \Sigma_k)

    Parameters
    ----------
    num_features : D.
    mean : m, in the units of the data; a number, (feature,), or (state, feature) for means of their own, such as "role
        0 plays near the goal" with a `strength` in observations. None takes the mean of the data.
    strength : kappa > 0, prior strength of the mean, in observations; a number or (state,).
    dof : nu > D - 1; a number or (state,). None takes D + 2, the least integer at which the covariance has a mean.
    scale : Psi, in squared units; a number (times the identity), (feature, feature) or (state, feature, feature). None
        sets it so that the prior mean of a covariance is that of the data over K^(2/D) (Fraley and Raftery 2007,
        section 3). Without data, `mean` and `scale` are 0 and 1.
    known : ``Known((mean (state, feature), covariance (state, feature, feature)))``, NaN where unknown.
    """

    num_features: int = static_field()
    mean: Any = None
    strength: Any = 0.01
    dof: Any = None
    scale: Any = None
    known: Known | None = None
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "mean": ("state", "feature"),
        "covariance": ("state", "feature", "next_feature"),
    }
    may_differ: ClassVar[bool] = True

    def __post_init__(self):
        self._read_parameters()
        self._block()

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One normal-inverse-Wishart block, ``mean_covariance``, a row per state."""
        block = self._block()
        batch = block.natural.strength.shape
        if batch not in ((), (num_states,)):
            raise ValueError(
                f"the emission has priors of {batch[0]} states, the model {num_states} states: give mean, strength, "
                "dof and scale one entry per state"
            )
        if not batch:
            return {"mean_covariance": rows_of(block, num_states, self.known)}
        return {"mean_covariance": block if self.known is None else PartlyKnown.from_known(block, self.known)}

    def _gaussians(self, expected: dict[str, Any]) -> NormalInverseWishartCoordinates:
        return expected["mean_covariance"]

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Statistics of labelled frames: sums of x and x x' of every state, and how many there are."""
        return {"mean_covariance": _gaussian_statistics(frames, labels, num_states)}

    def statistics_of_labels(self, frames: np.ndarray, labels: np.ndarray, num_states: int) -> dict[str, Any]:
        """Sums of x, 1, 1 and x x' of every state under labels (start, frame), where no feature is missing."""
        member, x = np.swapaxes(one_hot(labels, num_states), -1, -2), frames.astype(float)
        squares = (x[:, :, None] * x[:, None]).reshape(len(x), -1)
        count, scatter = member.sum(axis=-1), (member @ squares).reshape(*member.shape[:2], *x.shape[1:] * 2)
        return {"mean_covariance": NormalInverseWishartCoordinates(member @ x, count, count, scatter)}

    def distribution(self, parameters: dict[str, Any], data: Trajectories | None = None) -> dist.Distribution:
        """Gaussians at parameters ``mean (state, feature)`` and ``covariance (state, feature, feature)``."""
        return normals(parameters["mean"], parameters["covariance"], data)


@model_object
class KnownCovarianceEmission(_QuadraticPotentials):
    r"""One Gaussian per state, with unknown mean and known covariance R.

    .. math:: \mu_k \sim N(m, V), \qquad x_t \mid z_t = k \sim N(\mu_k, R)

    Parameters
    ----------
    covariance : R (feature, feature), in squared units of the data.
    mean : m; a number or (feature,). None takes the mean of the data.
    mean_covariance : V; a number (times the identity) or (feature, feature). None takes the covariance of the data.
        Without data, `mean` and `mean_covariance` are 0 and 1.
    known : ``Known(mean (state, feature))``, NaN where unknown.
    """

    covariance: Any
    mean: Any = None
    mean_covariance: Any = None
    known: Known | None = None
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {"mean": ("state", "feature")}
    prior_from_data: ClassVar[tuple[str, ...]] = ("mean", "mean_covariance")

    def __post_init__(self):
        (covariance,) = read_reals(covariance=self.covariance)
        if covariance.ndim != 2 or covariance.shape[0] != covariance.shape[1]:
            raise ValueError(
                f"covariance must be a (feature, feature) matrix, not of shape {covariance.shape}"
            )
        size = len(covariance)
        shapes = {"covariance": (size, size), "mean": (size,), "mean_covariance": (size, size)}
        given = read_parameters(
            shapes, self.prior_from_data, **{name: getattr(self, name) for name in shapes}
        )
        for name, value in given.items():
            if name != "mean" and is_concrete(value):
                require_covariance(name, value)
        self._set(**given)
        self._block()

    @property
    def num_features(self) -> int:
        """D."""
        return self.covariance.shape[0]

    def bind(self, data: Trajectories, num_states: int) -> KnownCovarianceEmission:
        """The emission with its prior set from `data` where it is None; warns where a mean given is far off."""
        mean, spread = self.mean, self.mean_covariance
        if mean is None or spread is None:
            found = data_moments(data, self.covariance.dtype)
            mean = found.mean if mean is None else mean
            spread = found.covariance if spread is None else spread
        if self.known is None and self.mean is not None:
            warn_of_far_prior(data, num_states, mean, spread)
        return self._filled(mean=mean, mean_covariance=spread)

    @computed_once
    def _block(self) -> Normal:
        size, dtype = self.num_features, self.covariance.dtype
        mean = np.zeros(size, dtype) if self.mean is None else self.mean
        spread = np.eye(size, dtype=dtype) if self.mean_covariance is None else self.mean_covariance
        return Normal.from_standard(mean, spread, origin=mean)

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """One block of means, ``mean``, a row per state."""
        return {"mean": rows_of(self._block(), num_states, self.known)}

    def _gaussians(self, expected: dict[str, Any]) -> NormalInverseWishartCoordinates:
        """The expected statistics of a Gaussian whose covariance is R."""
        mean, half_square = expected["mean"]
        factor = jnp.linalg.cholesky(self.covariance)
        precision = inverse(factor)
        square = jnp.einsum("de,ked->k", precision, half_square, precision="highest")
        return NormalInverseWishartCoordinates(
            jnp.matmul(mean, precision, precision="highest"),
            square,
            jnp.broadcast_to(-half_log_det(factor), square.shape),
            jnp.broadcast_to(-0.5 * precision, half_square.shape),
        )

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array | Gapped) -> Array:
        r"""Expected log density (..., state): :math:`\ln N(x \mid m, R) - \frac12 tr(R^{-1} V)`.

        Where features are missing, that of the others, since their mean is conjugate too.
        """
        if isinstance(observations, Gapped):
            mean, half_square = expected["mean"]
            return marginal_of_mean(mean, half_square, self.covariance, observations)
        return super().expected_log_likelihood(expected, observations)

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Statistics of labelled frames: R^-1 times the sum of x, and the count times R^-1, of every state."""
        member, frames = one_hot(labels, num_states), filled_in(frames, labels)
        precision = np.linalg.inv(np.asarray(self.covariance, dtype=float))
        return {
            "mean": NormalCoordinates(
                member.T @ frames @ precision, member.sum(axis=0)[:, None, None] * precision
            )
        }

    def distribution(self, parameters: dict[str, Any], data: Trajectories | None = None) -> dist.Distribution:
        """Gaussians at parameters ``mean (state, feature)``."""
        return normals(parameters["mean"], self.covariance, data)


@model_object
class GaussianMixtureEmission(_NormalInverseWishartEmission):
    r"""A mixture of Gaussians per state: weights :math:`w_k \sim Dir(c)`, components as in `GaussianEmission`.

    The component indicators are marginalised under q: the step potential of a state is :math:`\ln \sum_m \exp(E
    \ln w_{km} + E \ln N_{km})`, whose gradient is the responsibilities of its components.

    Parameters
    ----------
    num_features, num_components : D and M.
    concentration : c; a number or (component,).
    mean, strength, dof, scale : as in `GaussianEmission`.
    known : ``Known((weight (state, component), mean (state, component, feature), covariance (state, component,
        feature, feature)))``, NaN rows where unknown.
    """

    num_features: int = static_field()
    num_components: int = static_field()
    concentration: Any = 1.0
    mean: Any = None
    strength: Any = 0.01
    dof: Any = None
    scale: Any = None
    known: Known | None = None
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {
        "weight": ("state", "component"),
        "mean": ("state", "component", "feature"),
        "covariance": ("state", "component", "feature", "next_feature"),
    }

    def __post_init__(self):
        require_integer("num_components", self.num_components, 1)
        self._read_parameters()
        given = read_parameters({"concentration": (self.num_components,)}, concentration=self.concentration)
        self._set(concentration=given["concentration"].astype(self.strength.dtype))
        self._block()

    def prior(self, num_states: int) -> dict[str, ConjugateBlock]:
        """Blocks ``weight`` (state, component) and ``mean_covariance``, a row per state and component."""
        known_weight = known_components = None
        if self.known is not None:
            if not isinstance(self.known.value, tuple) or len(self.known.value) != 3:
                raise ValueError(
                    "known must be Known((weight, mean, covariance)), with NaN rows where unknown"
                )
            known_weight, known_components = Known(self.known.value[0]), Known(self.known.value[1:])
        components = repeat_rows(self._block(), self.num_components)
        return {
            "weight": rows_of(Dirichlet.from_standard(self.concentration), num_states, known_weight),
            "mean_covariance": rows_of(components, num_states, known_components),
        }

    def expected_log_likelihood(self, expected: dict[str, Any], observations: Array | Gapped) -> Array:
        """Log of summed expected component weights (..., state) of observations (..., feature)."""
        log_weight = expected["weight"].concentration
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), expected["mean_covariance"])
        parts = _expected_gaussian(flat, observations)
        parts = parts.reshape(*parts.shape[:-1], *log_weight.shape)
        return logsumexp(parts + log_weight.reshape((1,) * (parts.ndim - 2) + log_weight.shape), -1)

    def label_statistics(
        self, rng: np.random.Generator, frames: np.ndarray, labels: np.ndarray, num_states: int
    ) -> dict[str, Any]:
        """Statistics of labelled frames, each assigned to the component of its state with the nearest random centre."""
        count, frames = self.num_components, filled_in(frames, labels)
        part = rng.integers(count, size=len(frames))
        for state in range(num_states):
            members = np.flatnonzero(labels == state)
            if len(members) > count:
                centres = frames[rng.choice(members, count, replace=False)]
                part[members] = np.argmin(((frames[members, None] - centres) ** 2).sum(-1), axis=1)
        both = _gaussian_statistics(frames, labels * count + part, num_states * count)
        components = type(both)(*(x.reshape(num_states, count, *x.shape[1:]) for x in both))
        return {"weight": DirichletCoordinates(components.strength), "mean_covariance": components}

    def locations(self, draws: dict[str, np.ndarray]) -> np.ndarray:
        """Mean (state,) of the first feature."""
        return (draws["weight"] * draws["mean"][..., 0]).sum(-1).mean(0)

    def distribution(self, parameters: dict[str, Any], data: Trajectories | None = None) -> dist.Distribution:
        """Mixtures at ``weight (state, component)``, ``mean`` and ``covariance`` (state, component, ...)."""
        components = normals(parameters["mean"], parameters["covariance"], data)
        weights = dist.CategoricalProbs(parameters["weight"])
        return dist.MixtureSameFamily(weights, components, validate_args=False)  # NaN is outside the support


def _gaussian_statistics(
    x: np.ndarray, labels: np.ndarray, num_states: int
) -> NormalInverseWishartCoordinates:
    """Sums of x, 1, 1 and x x' over the frames of every state, x relative to the origin."""
    count, x = np.bincount(labels, minlength=num_states).astype(float), filled_in(x, labels)
    total, scatter = np.zeros((num_states, x.shape[1])), np.zeros((num_states, x.shape[1], x.shape[1]))
    for state in np.flatnonzero(count):
        members = x[labels == state].astype(float)
        total[state], scatter[state] = members.sum(axis=0), members.T @ members
    return NormalInverseWishartCoordinates(total, count, count, scatter)


def _expected_gaussian(expected: Any, x: Array | Gapped) -> Array:
    """E ln N(x) (..., state) from expected normal-inverse-Wishart statistics: one matrix product of features.

    Missing features are summed out of its exponential.
    """
    form = _quadratic_form(expected)
    if isinstance(x, Gapped):
        return marginal_potentials(-2 * form, x.values, x.num_patterns)
    features = jnp.concatenate(
        products(jnp.concatenate([x, jnp.ones_like(x[..., :1])], axis=-1), -1), axis=-1
    )
    return jnp.matmul(features, weights_of_products(form).T, precision="highest")


def _quadratic_form(expected: Any) -> Array:
    """H (state, row, row) with E ln N(x) = (x, 1) H (x, 1)'."""
    constant = expected.strength + expected.dof - 0.5 * expected.location.shape[-1] * math.log(2 * math.pi)
    scatter, half = 0.5 * (expected.scatter + expected.scatter.mT), 0.5 * expected.location
    above = jnp.concatenate([scatter, half[..., None]], axis=-1)
    below = jnp.concatenate([half, constant[..., None]], axis=-1)
    return jnp.concatenate([above, below[..., None, :]], axis=-2)


def _of_mixture(mean: Any, scale: Any, factor: Any, strength: Any) -> tuple[Any, Any, Any]:
    """Mean (feature,), covariance of means and average scale, over states where these have priors of their own."""

    def averaged(xp, mean, scale, factor, strength):
        covariance = scale / (factor * strength)[..., None, None]
        if mean.ndim > 1:
            gap = mean - mean.mean(axis=0)
            mean, covariance = mean.mean(axis=0), covariance + gap.T @ gap / len(gap)
        return mean, *(x.mean(axis=0) if x.ndim > 2 else x for x in (covariance, scale))

    return host_arrays(averaged, mean, scale, factor, strength)
