r"""The role HMM whose switching depends on covariates and on the subject; made by ``RoleHMM(transition=Covariates())``.

.. math:: \pi = \mathrm{softmax}(b_0), \quad b_{0k} \sim N(0, 1.5^2), \quad b_{ij} \sim N(m, 1.5^2), \\
          w_{ij} \sim N(0, s^2 / \mathrm{sd}(u)^2), \\
          d_{ij,s} \sim N(0, \tau_{ij}^2), \quad \tau_{ij} \sim N^+(0, 1)

with :math:`e^m` the odds of a change to each other state where states last `expected_dwell` steps. Coefficients of a
spline are normal about 0, in units of the spread of its columns, with a scale of their own, half-normal(1).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jaxtyping import Float

from ethogram.models.arguments import require_key
from ethogram.models.chains import markov_chain
from ethogram.models.chains.driven_markov import DrivenMarkov
from ethogram.models.conjugate_model import Entries, require_informative, unlabelled
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import ConjugateBlock
from ethogram.models.families.numpyro_sites import sample_parameters, zeros_of
from ethogram.models.model_object import changed, computed_once, model_object
from ethogram.models.roles.role_hmm import RoleHMM, Simulated

__all__ = ["CovariateRoleHMM", "by_states", "log_transitions"]


def log_transitions(
    log_odds: Float[Array, "*batch state state"],
    effect: Float[Array, "state state column"],
    columns: Float[Array, "*batch time column"],
    staying: float = 0.0,
) -> Float[Array, "*batch time_less_one state state"]:
    """Log probabilities of the transitions out of every step but the last, given the log odds of staying.

    Columns beyond those of the effects are of the emission.
    """
    moved = jnp.einsum("ijc,...tc->...tij", effect, columns[..., :-1, : effect.shape[-1]])
    eta = log_odds[..., None, :, :] + moved
    stay = jnp.eye(log_odds.shape[-1], dtype=bool)
    return jax.nn.log_softmax(jnp.where(stay, staying, eta), axis=-1)


def by_states(changes: Any, num_states: int) -> Any:
    """Values (..., change) of every change of state as (..., state, next_state), those of staying 0."""
    xp: Any = np if isinstance(changes, np.ndarray) else jnp
    off = ~np.eye(num_states, dtype=bool)
    place = np.full(off.shape, off.sum())
    place[off] = np.arange(off.sum())
    zero = xp.zeros((*changes.shape[:-1], 1), changes.dtype)
    return xp.concatenate([changes, zero], axis=-1)[..., place]


@model_object
class CovariateRoleHMM(RoleHMM):
    """A `RoleHMM` whose `transition` is `Covariates`; fitted by ``"laplace"`` and ``"nuts"``.

    Its sites are ``initial``, those of the emission, ``log_odds`` (state, next_state) of a change against staying, at
    the mean of the covariates, ``effect`` (state, next_state, covariate), their change per unit of a column of the
    formula, and, where subjects vary, ``subject_scale`` (state, next_state) and ``subject_log_odds`` (subject, state,
    next_state), the difference of each subject to the population, whose last row is a subject that is not in the data.
    """

    kernels: ClassVar[Any] = markov_chain

    def __post_init__(self) -> None:
        given = self.emission.constant_transitions() if self.transition is None else self.transition
        if not hasattr(given, "role_model"):
            raise TypeError(
                "transition has numbers, and the emission covariates: leave it out, or give "
                "Covariates(expected_dwell=) for states that last longer or shorter"
            )
        if not (given.formula.strip() or given.vary or self.regresses or self.dwell != "geometric"):
            raise ValueError("formula is empty and vary is None: name a covariate, or let subjects vary")
        if self.exclusive is not None:
            raise ValueError(
                f"the model has covariates, and exclusive={self.exclusive!r}: roles are not exclusive then"
            )
        if self.sticky is not None:
            raise ValueError(
                "sticky has no effect on a model with covariates: give transition=Covariates(expected_dwell=)"
            )
        if self.initial is not None:
            raise ValueError("initial has a prior of its own in a model with covariates: leave it out")
        object.__setattr__(self, "transition", None)
        super().__post_init__()
        object.__setattr__(self, "transition", given)
        object.__setattr__(self, "sticky", None)
        object.__setattr__(self, "initial", None)
        object.__setattr__(self, "zeros", zeros_of(self.prior()))

    def without_covariates(self) -> RoleHMM:
        """The role HMM with the same states and emission, fixed transitions, and states that last as expected."""
        stay = 1 - 1 / self.transition.expected_dwell
        rows = np.full((self.num_roles, self.num_roles), (1 - stay) / max(self.num_roles - 1, 1))
        np.fill_diagonal(rows, stay)
        weight, emission = 2.0 * self.num_roles, self.emission
        emission = emission.without_covariates() if self.regresses else emission
        return RoleHMM(self.num_roles, emission, transition=weight * rows, known_roles=self.known_roles)

    @computed_once
    def _chain_prior(self) -> dict[str, ConjugateBlock]:
        return {}

    @computed_once
    def _prior(self) -> dict[str, ConjugateBlock]:
        own = self.emission.conjugate_blocks if self.regresses else self.emission.prior
        return own(self.num_roles)

    @property
    def regresses(self) -> bool:
        """Whether the emission has covariates."""
        return hasattr(self.emission, "constant_transitions")

    @property
    def is_bound(self) -> bool:
        """Whether formula and emission have what they take from the data of a fit."""
        return super().is_bound and self.transition.encoding is not None

    def check(self, data: Trajectories) -> None:
        """Raise ValueError or TypeError unless the data fit the model."""
        super().check(data)
        self.transition.check(data)
        if self.regresses:
            self.emission.covariates.check(data)

    def bind(self, data: Trajectories, like: Any = None) -> CovariateRoleHMM:
        """The model with what formula and emission take from these data, or with that of the model `like`."""
        model: Any = super().bind(data, like)
        if self.transition.encoding is not None:
            return model
        encoding = like.transition.encoding if isinstance(like, CovariateRoleHMM) else None
        return changed(model, ("_chain_prior", "_prior"), transition=self.transition.bind(data, encoding))

    def entries(self, data: Any) -> Entries:
        """Sequences, with the columns of the formulas in place of covariates, and rows of subjects, if bound."""
        frames = unlabelled(data)._replace(actions=None, stay=None, states=self._roles(data))
        if self.transition.encoding is not None:
            columns, subject = self._encode(data)
            frames = frames._replace(covariates=columns, subject=subject)
        return Entries(self.emission.read(data), frames)

    def _encode(self, data: Trajectories) -> tuple[np.ndarray, np.ndarray]:
        """Columns (sequence, time, column) of the transition and then of the emission, and rows of subjects."""
        columns, subject = self.transition.encode(data)
        if self.regresses:
            columns = np.concatenate([columns, self.emission.covariates.encode(data).columns], axis=-1)
        return columns, subject

    def likelihood(self, parameters: dict[str, Any], batch: Any) -> DrivenMarkov:
        """Distribution of the observations at given parameters, one batch entry per sequence.

        Parameters
        ----------
        parameters : by site.
        batch : that of :meth:`entries`, or data of a bound model.
        """
        if isinstance(batch, Trajectories) and not _is_encoded(batch):
            batch = self.entries(batch).batch
        self._check_covariances(parameters)
        log_odds = parameters["log_odds"]
        if self.transition.vary:
            log_odds = log_odds + jnp.asarray(parameters["subject_log_odds"])[batch.subject]
        return self.chain({**parameters, "log_odds": log_odds}, batch)

    def chain(self, parameters: dict[str, Any], batch: Any, **options: Any) -> DrivenMarkov:
        """Distribution of the observations of a batch, with the same log odds for all sequences or one matrix each."""
        columns = jnp.asarray(batch.covariates)
        matrices = log_transitions(parameters["log_odds"], parameters["effect"], columns)
        matrices = jnp.broadcast_to(matrices, (*np.shape(batch.lengths), *matrices.shape[-3:]))
        emission = self.emission.distribution(parameters, batch)
        known = (batch.lengths, batch.observed, batch.states)
        return DrivenMarkov(parameters["initial"], matrices, emission, *known, **options)

    def per_step(
        self, eta: Float[np.ndarray, "draw point state next_state"], draws: dict[str, Any]
    ) -> Float[np.ndarray, "draw point state next_state"]:
        """Transition probabilities at log odds of changes against staying."""
        eta = np.where(np.eye(self.num_roles, dtype=bool), 0, eta)
        weights = np.exp(eta - eta.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def by_change(self, changes: Any) -> Any:
        """Values (..., change) of every change of state as (..., state, next_state), those of staying 0."""
        return by_states(changes, self.num_roles)

    def with_phases(self, sites: dict[str, Any] | None = None) -> CovariateRoleHMM:
        """The model with as many phases of its states as these sites need: itself, whose states have none."""
        return self

    def start(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters of a fit without covariates, with those of this model where they say them."""
        return parameters

    def arrange(self, data: Trajectories) -> Any:
        """Raise TypeError: transitions with covariates have no conjugate prior, and no local step."""
        raise TypeError(
            "a RoleHMM with covariates, or with dwell=, has no conjugate prior: fit it by ethogram.fit(key, model, "
            "data), by Laplace's approximation or by NUTS"
        )

    def exchangeable_axes(self) -> dict[str, tuple[int, ...]]:
        """Axes of the roles by block, where all roles have the same prior and no data name them."""
        return self.without_covariates().exchangeable_axes()

    def state_positions(self, draws: Any, data: Trajectories) -> np.ndarray | None:
        """Means of the first feature, increasing; None without one."""
        return self.emission.locations(draws)

    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of every parameter site."""
        dims: dict[str, tuple[str, ...]] = {
            "initial": ("state",),
            "log_odds": ("state", "next_state"),
            "effect": ("state", "next_state", "covariate"),
        }
        if self.transition.vary:
            dims["subject_scale"] = ("state", "next_state")
            dims["subject_log_odds"] = ("subject", "state", "next_state")
        if self.transition.encoding is not None and self.transition.encoding.terms:
            dims["smooth_scale"] = ("spline",)
        return {**dims, **self.emission.site_dims}

    def needed_sites(self) -> tuple[str, ...]:
        """Sites that `likelihood` reads."""
        return tuple(name for name in self.site_dims() if not name.endswith("_scale"))

    def site_layout(self, data: Any) -> tuple[dict[str, tuple[str, ...]], dict[str, Any]]:
        """Dims of every site, with names of columns, splines and subjects."""
        dims, coords = super().site_layout(data)
        if (found := self.transition.encoding) is not None:
            coords = {**coords, "covariate": found.names, "subject": (*found.subjects, "a new subject")}
            coords |= {"spline": found.terms}
            coords = {
                name: each for name, each in coords.items() if name not in ("subject", "spline") or each
            }
        return dims, {
            name: each for name, each in coords.items() if any(name in own for own in dims.values())
        }

    @property
    def expected_log_odds(self) -> float:
        """The prior mean m of the log odds of a change to each other state."""
        others = max(self.num_roles - 1, 1)
        return -math.log((self.transition.expected_dwell - 1) * others)

    def conjugate_part(self) -> dict[str, Any]:
        """Parameters of initial state and emission, sampled inside a numpyro model."""
        free = numpyro.sample(
            "initial_free",
            dist.Normal(0, self.transition.log_odds_scale).expand([self.num_roles]).to_event(1),
        )
        sites = {"initial": numpyro.deterministic("initial", jax.nn.softmax(free))}
        if self.regresses:
            sites |= self.emission.sampled(self.num_roles)
        return {**sites, **sample_parameters(self.prior(), self.zeros)}

    def drawn_emission(self, key: Array) -> dict[str, Any]:
        """Slopes and intercepts drawn from their prior."""
        with numpyro.handlers.seed(rng_seed=key):
            return self.emission.sampled(self.num_roles)

    def __call__(self, data: Any, *, condition: bool = True) -> None:
        """The numpyro model; ``condition=False`` samples the observations, with lengths and covariates of the data.

        A bound model also takes the batch of :meth:`entries`.
        """
        model: CovariateRoleHMM = self
        batch, value = data, None
        if not (self.is_bound and _is_encoded(data)):
            self.check(data)
            require_informative(self, data, condition)
            model = self.bind(data)
            entries = model.entries(data)
            batch, value = entries.batch, entries.value
        else:
            value = model.emission.read(batch)
        parameters = {**model.conjugate_part(), **model._sampled_transitions()}
        with numpyro.plate("sequence", np.shape(batch.lengths)[0]):
            distribution = model.likelihood(parameters, batch)
            numpyro.sample("observations", distribution, obs=value if condition else None)

    def _sampled_transitions(self) -> dict[str, Any]:
        """Log odds, effects and differences of subjects, whose latent sites are standardised."""
        count, found = self.num_roles, self.transition.encoding

        def square(values: Array) -> Array:
            return self.by_change(jnp.moveaxis(values, 0, -1))

        edges, columns = count * (count - 1), len(found.names)
        free = numpyro.sample("log_odds_free", dist.Normal(0, 1).expand([edges]).to_event(1))
        sites = {"log_odds": square(self.expected_log_odds + self.transition.log_odds_scale * free)}
        white = numpyro.sample("effect_free", dist.Normal(0, 1).expand([edges, columns]).to_event(2))
        smooth = None
        if found.terms:
            smooth = numpyro.sample("smooth_scale", dist.HalfNormal(1).expand([len(found.terms)]).to_event(1))
        sites["effect"] = jnp.moveaxis(square(white * self._effect_scale(smooth)), 0, -1)
        if self.transition.vary:
            scales = numpyro.sample("subject_scale_free", dist.HalfNormal(1).expand([edges]).to_event(1))
            shape = [edges, len(found.subjects) + 1]
            each = numpyro.sample("subject_free", dist.Normal(0, 1).expand(shape).to_event(2))
            sites["subject_scale"] = square(scales)
            sites["subject_log_odds"] = square(each * scales[:, None])
        return {name: numpyro.deterministic(name, site) for name, site in sites.items()}

    def _effect_scale(self, smooth: Any) -> Array:
        """Prior standard deviations (column,) of effects, given the scales of splines or None without any."""
        found = self.transition.encoding
        scale = jnp.full(len(found.names), self.transition.scale)
        if smooth is not None:
            scale = jnp.where(found.is_smooth, smooth[np.maximum(found.smooth, 0)], scale)
        return scale / found.spread

    def latent_transitions(self, sites: dict[str, Any]) -> dict[str, Array]:
        """The latent sites behind log odds, effects and differences of subjects, without bounds."""
        found, off = self.transition.encoding, ~np.eye(self.num_roles, dtype=bool)

        def edges(name: str) -> Array:  # (edge, ...)
            site = jnp.asarray(sites[name])
            return jnp.moveaxis(site, (-2, -1), (0, 1))[off]

        smooth = jnp.asarray(sites["smooth_scale"]) if found.terms else None
        latent = {
            "log_odds_free": (edges("log_odds") - self.expected_log_odds) / self.transition.log_odds_scale
        }
        if smooth is not None:
            latent["smooth_scale"] = jnp.log(smooth)
        latent["effect_free"] = jnp.asarray(sites["effect"])[off] / self._effect_scale(smooth)
        if self.transition.vary:
            scales = edges("subject_scale")
            latent["subject_scale_free"] = jnp.log(scales)
            latent["subject_free"] = edges("subject_log_odds") / scales[:, None]
        return latent

    def simulate(  # type: ignore[override]
        self, key: Array, data: Trajectories, *, parameters: dict[str, Any] | None = None
    ) -> Simulated:
        """Simulated observations at the lengths, covariates and subjects of data, with true roles and parameters.

        Parameters
        ----------
        key : a typed key.
        data : trajectories with covariates; their observations are not read.
        parameters : by site; drawn from the prior where None.
        """
        require_key(key)
        self.transition.check(data)
        model = self
        if self.transition.encoding is None:
            model = changed(self, ("_chain_prior", "_prior"), transition=self.transition.bind(data))
        if self.regresses:
            model = changed(model, ("_chain_prior", "_prior"), emission=self.emission.encoded(data))
        key_parameters, key_data = jax.random.split(key)
        if parameters is None:
            parameters = _drawn(key_parameters, model)
        model = model.with_phases(parameters)
        columns, subject = model._encode(data)
        batch = unlabelled(data)._replace(observations=None, states=None, covariates=columns, subject=subject)
        x, states = _simulated(key_data, model, parameters, batch)
        return Simulated(data._replace(observations=np.asarray(x)), states, parameters)


def _is_encoded(batch: Trajectories) -> bool:
    """Whether this is a batch of `CovariateRoleHMM.entries`: its columns have no names, unlike those of data."""
    return batch.covariates is not None and batch.metadata.covariate_names is None


@jax.jit
def _drawn(key: Array, model: CovariateRoleHMM) -> dict[str, Any]:
    with numpyro.handlers.seed(rng_seed=key):
        return {**model.conjugate_part(), **model._sampled_transitions()}


@jax.jit
def _simulated(key: Array, model: CovariateRoleHMM, parameters: Any, batch: Any) -> Any:
    return model.likelihood(parameters, batch).sample_with_states(key)
