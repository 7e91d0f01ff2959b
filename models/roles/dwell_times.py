r"""The role HMM whose dwell times are negative binomials, made by ``RoleHMM(dwell="negative-binomial")``.

.. math:: d - 1 \sim \mathrm{NB}(r_k, \mu_k - 1), \quad \ln(\mu_k - 1) \sim N(\ln(e - 1), 1.5^2), \quad
          \ln r_k \sim N(0, 1.5^2)

with mean :math:`\mu_k`, size :math:`r_k` and e the `expected_dwell` (10). Size 1 is the geometric distribution of a
hidden Markov model; above it dwell times are more regular, below it less. Where a left state goes to is a row of its
own, :math:`P(z' = j \mid i) \propto e^{\eta_{ij}}` over the other states, with :math:`b_{ij} \sim N(0, 1.5^2)` in
:math:`\eta_{ij} = b_{ij} + w_{ij}' u_t`, which covariates may move. The chain is that of
:mod:`ethogram.models.chains.phases`: Langrock and Zucchini (2011).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array, lax
from jaxtyping import Float

from ethogram.models.arguments import is_concrete, require_integer, warn_user
from ethogram.models.chains import phases
from ethogram.models.chains.log_space import logsumexp
from ethogram.models.chains.phases import DwellMarkov, Phases
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.model_object import changed, model_object, static_field
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.covariate_roles import CovariateRoleHMM, by_states, log_transitions
from ethogram.models.roles.covariates import Covariates
from ethogram.models.roles.role_hmm import OF_DWELL

__all__ = ["DwellRoleHMM", "phases_needed", "phases_of", "tail_error"]

FEW_PHASES = 16
"""Phases at least."""
MOST_PHASES = 400
"""Phases at most."""
SPREAD = 1.5
"""Prior standard deviation of the logarithms of mean and size."""
TAIL_ERROR = 2e-3
"""Largest `tail_error` of a tail that counts as that of the negative binomial."""
POOR_TAIL = 0.05
"""`tail_error` from which on a fit says that its tail is geometric."""
BEYOND = 64
"""Steps, beside twice the phases, after which hazards are taken to be constant."""
FIRST_SIZE = 2.0
"""Size at which a search starts."""


@quick_jit(inline=True, static_argnames="count")
def phases_of(mean: Any, size: Any, count: int) -> Phases:
    r"""Log potentials of `count` phases; those of the first step are of a bout that has gone on for long.

    Hazards solve :math:`1 / c(d) = 1 + q(d) / c(d + 1)` with q(d) = p(d + 1) / p(d), from a far tail that is
    geometric. A recording begins anywhere in a bout, whose phase r then has the probability P(dwell >= r) / mean.

    Parameters
    ----------
    mean, size : (state,), mean above 1.
    """
    mean, size = jnp.asarray(mean), jnp.asarray(size)
    steps = jnp.arange(1, 2 * count + BEYOND, dtype=mean.dtype)
    log_ratio = jnp.log1p((size[..., None] - 1) / steps) - jnp.log1p(size / (mean - 1))[..., None]

    def before(after: Array, log_ratio: Array) -> tuple[Array, Array]:
        here = jnp.logaddexp(0, log_ratio + after)
        return here, here

    tail = jnp.log1p((mean - 1) / size)
    _, waits = lax.scan(before, tail, jnp.moveaxis(log_ratio, -1, 0), reverse=True)
    waits = jnp.moveaxis(waits, 0, -1)[..., : count + 1]  # -log c(d)
    stay = log_ratio[..., :count] + waits[..., 1:] - waits[..., :-1]
    leave = -waits[..., :-1]
    age = stay @ jnp.triu(jnp.ones((count, count), stay.dtype), 1)
    age = age.at[..., -1].add(-leave[..., -1])  # the last phase is its own successor
    return Phases(age - logsumexp(age, -1)[..., None], leave, stay)


def tail_error(mean: Any, size: Any, count: Any) -> np.ndarray:
    """How far off the geometric tail beyond `count` phases is (...), about 20 times the distance in total variation.

    The probability of lasting longer times the relative distance of the last hazard from that of the far tail.
    """
    from scipy.stats import nbinom

    mean, size = np.asarray(mean, float), np.asarray(size, float)
    ends = size / (size + mean - 1)
    left = nbinom.sf(count - 1, size, ends)
    hazard = nbinom.pmf(count - 1, size, ends) / np.maximum(nbinom.sf(count - 2, size, ends), 1e-300)
    return left * np.minimum(np.abs(1 - hazard / ends), 1)


def phases_needed(mean: Any, size: Any) -> int:
    """Phases, the same for all states, whose dwell times are within 1e-4 of these in total variation, up to 400.

    A number of a coarse grid, so that fits share their compiled programs.
    """
    grid = [FEW_PHASES * 2**power * part // 4 for power in range(5) for part in (4, 5, 6, 7)]
    counts = [count for count in grid if count < MOST_PHASES]
    errors = np.array([np.max(tail_error(mean, size, count)) for count in counts])
    enough = np.flatnonzero(errors < TAIL_ERROR)
    return counts[enough[0]] if len(enough) else MOST_PHASES


@model_object
class DwellRoleHMM(CovariateRoleHMM):
    """A `RoleHMM` whose `dwell` is not geometric; fitted by ``"laplace"`` and ``"nuts"``.

    Its sites are those of a `CovariateRoleHMM`, and ``dwell_mean`` (state,), in steps, and ``dwell_size`` (state,).
    ``log_odds`` and ``effect`` are of where a state is left to: they sum to 0 over the other states.

    Parameters
    ----------
    num_phases : of every state, beyond which dwell times have a geometric tail; 0 takes as many as a fit needs.
    """

    num_phases: int = static_field(default=0)
    kernels: ClassVar[Any] = phases

    def __post_init__(self) -> None:
        require_integer("num_phases", self.num_phases, 0)
        if self.dwell == "geometric":
            raise ValueError("dwell is 'geometric', which a RoleHMM made anew has, not this one")
        said = f"dwell is {self.dwell!r}, and"
        if self.exclusive is not None:
            raise ValueError(f"{said} exclusive={self.exclusive!r}: roles are not exclusive then")
        if self.sticky is not None:
            raise ValueError(f"{said} sticky would set how long states last: leave it out")
        if self.transition is not None and not isinstance(self.transition, Covariates):
            raise ValueError(
                f"{said} transition has concentrations, which count stays: leave it out, or give Covariates"
            )
        if isinstance(self.transition, Covariates) and self.transition.vary:
            raise ValueError(
                f'{said} vary="subject": dwell times are the same for all subjects, leave one of both out'
            )
        if require_integer("num_roles", self.num_roles, 1) < 2 + bool(
            self.transition and self.transition.formula
        ):
            more = "covariates move where a state is left to, which takes 3" if self.transition else "give 2"
            raise ValueError(f"{said} num_roles={self.num_roles}: {more} or more")
        if self.transition is None:
            object.__setattr__(self, "transition", Covariates())
        super().__post_init__()

    @property
    def expected_log_odds(self) -> float:
        """The prior mean of the log odds of where a state is left to."""
        return 0.0

    def by_change(self, changes: Any) -> Any:
        """Values (..., change) as (..., state, next_state), less their mean over the next states."""
        square = by_states(changes, self.num_roles)
        off = ~np.eye(self.num_roles, dtype=bool)
        return (square - square.sum(-1, keepdims=True) / (self.num_roles - 1)) * off

    def bind(self, data: Trajectories, like: Any = None) -> DwellRoleHMM:
        """The model with what formula and emission take from these data, or with that of the model `like`."""
        model: Any = super().bind(data, like)
        return model.with_phases() if not model.num_phases else model

    def with_phases(self, sites: dict[str, Any] | None = None) -> DwellRoleHMM:
        """The model with as many phases as dwell times of these sites, or those that are expected, need at least."""
        mean: Any = self.transition.expected_dwell
        size: Any = FIRST_SIZE
        if sites is not None and is_concrete(*sites.values()):
            mean, size = sites["dwell_mean"], sites["dwell_size"]
        count = max(phases_needed(mean, size), self.num_phases)
        if count == self.num_phases:
            return self
        if count >= MOST_PHASES and np.max(tail_error(mean, size, count)) > POOR_TAIL:
            warn_user(
                f"states last {np.max(mean):.0f} steps on average, and dwell times of over {count} steps are taken as "
                "geometric: keep every tenth frame, say, so that bouts are of fewer steps"
            )
        return changed(self, ("_chain_prior", "_prior"), num_phases=count)

    @property
    def work_per_number(self) -> int:
        """Numbers handled for each of the data, as `quick_jit` counts them."""
        return max(self.num_phases // 4, 1)

    def start(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """Parameters of a fit with geometric dwell times, with those of this model."""
        leaves = np.maximum(1 - np.diagonal(np.asarray(parameters["transition"], float)), 1e-4)
        mean = np.maximum(1 / leaves, 1.05)
        return {
            **parameters,
            "dwell_mean": mean,
            "dwell_excess": mean - 1,
            "dwell_size": np.full_like(mean, FIRST_SIZE),
        }

    def site_dims(self) -> dict[str, tuple[str, ...]]:
        """Dims of every parameter site."""
        return {"dwell_mean": ("state",), "dwell_size": ("state",), **super().site_dims()}

    def conjugate_part(self) -> dict[str, Any]:
        """Parameters of initial state, dwell times and emission, sampled inside a numpyro model."""
        shape, centre = [self.num_roles], math.log(self.transition.expected_dwell - 1)
        excess = numpyro.sample("dwell_excess", dist.LogNormal(centre, SPREAD).expand(shape).to_event(1))
        size = numpyro.sample("dwell_size", dist.LogNormal(0, SPREAD).expand(shape).to_event(1))
        mean = numpyro.deterministic("dwell_mean", 1 + excess)
        return {"dwell_mean": mean, "dwell_size": size, **super().conjugate_part()}

    def latent_transitions(self, sites: dict[str, Any]) -> dict[str, Array]:
        """The latent sites behind log odds, effects and mean dwell times, without bounds."""
        excess = jnp.log(jnp.asarray(sites["dwell_mean"]) - 1)
        return {**super().latent_transitions(sites), "dwell_excess": excess}

    def chain(self, parameters: dict[str, Any], batch: Any, **options: Any) -> DwellMarkov:
        """Distribution of the observations of a batch."""
        model = self if self.num_phases else self.with_phases(parameters)
        log_next = log_transitions(
            parameters["log_odds"], parameters["effect"], jnp.asarray(batch.covariates), -jnp.inf
        )
        of = phases_of(parameters["dwell_mean"], parameters["dwell_size"], model.num_phases)
        emission = self.emission.distribution(parameters, batch)
        known = (batch.lengths, batch.observed, batch.states)
        return DwellMarkov(parameters["initial"], log_next, of, emission, *known, **options)

    def per_step(
        self, eta: Float[np.ndarray, "draw point state next_state"], draws: dict[str, Any]
    ) -> Float[np.ndarray, "draw point state next_state"]:
        """Transition probabilities per step, averaged over how long the state has lasted."""
        off = ~np.eye(self.num_roles, dtype=bool)
        weights = np.where(off, np.exp(eta - eta.max(-1, keepdims=True)), 0)
        leaves = 1 / np.asarray(draws["dwell_mean"], float)[:, None, :, None]
        return leaves * weights / weights.sum(-1, keepdims=True) + (1 - leaves) * ~off


OF_DWELL["negative-binomial"] = DwellRoleHMM
