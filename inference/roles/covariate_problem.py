"""The posterior of a role HMM with covariates as compiled programs in double precision, and its expansions.

The states are summed out. Parameters are rows, one per subject: what all subjects share, which is the same in all rows,
and what each subject differs by.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
from jax import Array, lax
from numpyro.distributions import biject_to
from numpyro.infer.util import constrain_fn, potential_energy

from ethogram.models.chains import markov_chain
from ethogram.models.chains.logit_chains import log_evidence
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions.missing_features import count_patterns
from ethogram.models.families.numpyro_sites import start_of_site
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.covariate_emission import CovariateEmission
from ethogram.models.roles.covariate_roles import CovariateRoleHMM

__all__ = [
    "Expansion",
    "Layout",
    "Problem",
    "latent_starts",
    "log_joints",
    "unconstrained",
    "with_latent",
]

LEAST_PROBABILITY = 1e-3
"""Of a first state, where the search starts."""
MOST_LOG_ODDS = 8.0
"""Size of the log odds of a change at which Newton's method starts."""
TOGETHER, NUMBERS = 8, 2**20
"""Places at most at which one call of a compiled program takes value and slope: of steps that are halved, and of draws;
and transition probabilities of one call, whose memory is then used again by the next."""
STEP = 1e-5
"""Of differences of gradients; the error of second derivatives is about as large, relative to the third."""


class Sequences(NamedTuple):
    """The data in double precision, and the row of subjects of each sequence."""

    value: Any  # (sequence, time, feature)
    batch: Trajectories  # with standardised columns as covariates
    row: Any  # (sequence,)


class Layout(NamedTuple):
    """Sizes of the parts of a row of parameters."""

    conjugate: int  # unconstrained coordinates of initial state and emission
    edges: int  # changes of state
    columns: int
    varies: bool

    @property
    def shared(self) -> int:
        """Coordinates that all subjects share."""
        return self.conjugate + self.edges * (1 + self.columns)

    @property
    def size(self) -> int:
        return self.shared + self.edges * self.varies


def rows_of(phi: np.ndarray, d: np.ndarray) -> np.ndarray:
    """Rows (..., row, size) of phi (..., shared), which all of them share, and d (..., row, edge)."""
    shared = np.broadcast_to(phi[..., None, :], (*d.shape[:-1], phi.shape[-1]))
    return np.concatenate([shared, d], axis=-1)


class Expansion(NamedTuple):
    """Log likelihood with its derivatives by rows, and those of the prior of the conjugate part, at a place."""

    phi: np.ndarray  # (shared,)
    d: np.ndarray  # (row, edge)
    value: float  # log likelihood and log prior of the conjugate part
    gradient: np.ndarray  # (row, size), that of the prior in row 0
    information: np.ndarray  # (row, size, size)

    def rows(self) -> np.ndarray:
        """(row, size) of the place."""
        return rows_of(self.phi, self.d)

    @property
    def linear(self) -> np.ndarray:
        """The factor b (row, size) of the parameters."""
        return self.gradient + np.einsum("rpq,rq->rp", self.information, self.rows())

    @property
    def constant(self) -> float:
        """The sum of the constants c."""
        return self.value - float(np.sum((self.gradient + self.linear) * self.rows())) / 2

    def predicted(self, phi: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Values (draw,) of the expansion at phi (draw, shared) and d (draw, row, edge)."""
        step = rows_of(phi, d) - self.rows()
        curved = np.einsum("nrp,rpq,nrq->n", step, self.information, step)
        return self.value + np.einsum("nrp,rp->n", step, self.gradient) - curved / 2


class Problem(NamedTuple):
    """Model and data as the compiled programs take them, and the prior of all but the conjugate part."""

    model: CovariateRoleHMM
    data: Sequences
    layout: Layout
    centre: np.ndarray  # (shared,), prior means
    precision: np.ndarray  # (shared,), prior precisions where these are no scales; 0 in the conjugate part
    spline: np.ndarray  # (shared,), the number of the spline of each coordinate, -1 where it has none
    num_rows: int

    @classmethod
    def of(cls, model: CovariateRoleHMM, data: Trajectories) -> Problem:
        entries, found = model.entries(data), model.transition.encoding
        columns = np.array(entries.batch.covariates, float)
        columns[..., : len(found.names)] /= found.spread  # others are of the emission
        batch = entries.batch._replace(covariates=columns, subject=None)
        if count_patterns(batch.observations, batch.observed) == 1:
            batch = batch._replace(observations=None)  # traced, they would be taken for frames with gaps
        sequences = Sequences(entries.value, batch, np.asarray(entries.batch.subject))
        model, sequences = jax.device_put(jax.tree.map(_double, (model, sequences)))
        edges, width = model.num_roles * (model.num_roles - 1), len(found.names)
        layout = Layout(_size(model), edges, width, model.transition.vary is not None)
        num_rows = len(found.subjects) if layout.varies else 1
        before = np.zeros(layout.conjugate)
        scale = np.where(found.is_smooth, np.inf, model.transition.scale)
        flat = np.concatenate([np.full(edges, model.transition.log_odds_scale), np.tile(scale, edges)])
        return cls(
            model,
            sequences,
            layout,
            np.concatenate([before, np.full(edges, model.expected_log_odds), np.zeros(edges * width)]),
            np.concatenate([before, flat**-2.0]),
            np.concatenate([before - 1, np.full(edges, -1), np.tile(found.smooth, edges)]).astype(int),
            num_rows,
        )

    @property
    def num_scales(self) -> int:
        return self.layout.edges * self.layout.varies + len(self.model.transition.encoding.terms)

    def prior(self, log_scales: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Precisions (shared,) of phi and (edge,) of d given the logarithms of scales."""
        count = self.layout.edges * self.layout.varies
        each = np.exp(-2 * log_scales)
        smooth = np.append(each[count:], 0.0)[self.spline]
        return np.where(self.spline >= 0, smooth, self.precision), each[:count]

    def expand(self, phi: np.ndarray, d: np.ndarray) -> Expansion:
        """The expansion at a place; second derivatives are differences of gradients in double precision."""
        rows = rows_of(phi, d)
        size = rows.shape[1]
        steps = STEP * np.concatenate([np.zeros((1, size)), np.eye(size)])
        values, gradients = self._in_parts(_slopes, rows + steps[:, None])
        information = -np.moveaxis(gradients[1:] - gradients[0], 0, 2) / STEP
        symmetric = (information + information.swapaxes(1, 2)) / 2
        return Expansion(phi, d, float(values[0]), gradients[0], symmetric)

    def values(self, phi: np.ndarray, d: np.ndarray) -> np.ndarray:
        """Log likelihood and log prior of the conjugate part (draw,), minus infinity where it is not a number."""
        values = self._in_parts(_values, rows_of(phi, d))
        return np.where(np.isnan(values), -np.inf, values)

    def _in_parts(self, program: Any, rows: np.ndarray) -> Any:
        """What a compiled program finds at rows (draw, row, size), few at a time."""
        each = math.prod(self.data.batch.observed.shape) * self.model.num_roles**2
        count = int(np.clip(NUMBERS // each, 1, TOGETHER))
        padded = np.resize(rows, (-(-len(rows) // count) * count, *rows.shape[1:]))
        found = [self.found(program, part) for part in padded.reshape(-1, count, *rows.shape[1:])]
        return jax.tree.map(lambda *each: np.concatenate(each)[: len(rows)], *found)

    def found(self, program: Any, *of: Any, **static: Any) -> Any:
        """What a program of log densities, its first result, finds quickly, or where that is not a number exactly."""
        given = self.model, self.data, self.layout, *of
        if self.model.kernels is markov_chain:
            found = program(*given, quick=True, **static)
            if not np.isnan(jax.tree.leaves(found)[0]).any():
                return found
        return program(*given, quick=False, **static)

    def start(self, parameters: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Phi and d at the parameters of a fit without covariates."""
        own = with_latent(self.model, {k: v for k, v in parameters.items() if k != "transition"})
        transition = np.maximum(np.asarray(parameters["transition"], float), 1e-12)
        off = ~np.eye(len(transition), dtype=bool)
        odds = np.log(transition / np.diagonal(transition)[:, None])[off]
        odds = np.clip(odds, -MOST_LOG_ODDS, MOST_LOG_ODDS)
        z = np.asarray(_unconstrained(self.model, jax.tree.map(_double, own)))
        effects = np.zeros(self.layout.edges * self.layout.columns)
        return np.concatenate([z, odds, effects]), np.zeros(
            (self.num_rows, self.layout.edges * self.layout.varies)
        )

    def at_mode(self, expansion: Expansion) -> dict[str, np.ndarray]:
        """Parameters of initial state, emission and dwell times, by site, at the place of an expansion."""
        return self._constrained(expansion.phi[None, : self.layout.conjugate], 0)

    def _constrained(self, z: np.ndarray, rows: Any = slice(None)) -> dict[str, np.ndarray]:
        """Sites of the conjugate part at rows of coordinates (draw, coordinate)."""
        padded = np.resize(z, (-(-len(z) // TOGETHER) * TOGETHER, self.layout.conjugate))
        return {
            name: np.asarray(x)[: len(z)][rows] for name, x in _constrained_draws(self.model, padded).items()
        }

    def sites(
        self, rng: Any, phi: np.ndarray, d: np.ndarray, log_scales: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Draws (draw, ...) by site, in the units of the covariates."""
        layout, found, count = self.layout, self.model.transition.encoding, len(phi)
        z, odds, effects = np.split(phi, [layout.conjugate, layout.conjugate + layout.edges], axis=1)
        sites = self._constrained(z)
        effects = effects.reshape(count, layout.edges, layout.columns) / np.asarray(found.spread)
        square = self.model.by_change
        sites |= {
            "log_odds": square(odds),
            "effect": np.moveaxis(square(np.moveaxis(effects, 2, 1)), 1, -1),
        }
        scales = np.exp(log_scales)
        if layout.varies:
            scales, splines = np.split(scales, [layout.edges], axis=1)
            new = scales * rng.normal(size=scales.shape)
            sites["subject_scale"] = square(scales)
            sites["subject_log_odds"] = square(np.concatenate([d, new[:, None]], axis=1))
            scales = splines
        if found.terms:
            sites["smooth_scale"] = scales
        return sites


def _double(leaf: Any) -> Any:
    leaf = np.asarray(leaf)
    return leaf.astype(np.float64) if leaf.dtype.kind == "f" else leaf


def _latent(model: CovariateRoleHMM) -> dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]]:
    """Support, shape and unconstrained shape of the latent sites of initial state and emission."""
    found: dict[str, Any] = {}

    def look() -> None:
        seeded = numpyro.handlers.seed(model.conjugate_part, jax.random.key(0))
        for name, site in numpyro.handlers.trace(seeded).get_trace().items():
            if site["type"] == "sample":
                free = jax.eval_shape(biject_to(site["fn"].support).inv, site["value"])
                found[name] = (site["fn"].support, np.shape(site["value"]), free.shape)

    jax.eval_shape(look)
    return dict(sorted(found.items()))


def _size(model: CovariateRoleHMM) -> int:
    return sum(math.prod(free) for _, _, free in _latent(model).values())


def _by_site(model: CovariateRoleHMM, z: Array) -> dict[str, Array]:
    """Unconstrained coordinates by latent site."""
    parts, begin = {}, 0
    for name, (_, _, shape) in _latent(model).items():
        parts[name] = z[begin : begin + math.prod(shape)].reshape(shape)
        begin += math.prod(shape)
    return parts


def _constrained(model: CovariateRoleHMM, z: Array) -> dict[str, Array]:
    """Parameters of initial state and emission, by site."""
    return constrain_fn(model.conjugate_part, (), {}, _by_site(model, z), return_deterministic=True)


def _log_prior(model: CovariateRoleHMM, z: Array) -> Array:
    """Log density of the coordinates of the conjugate part."""
    return -potential_energy(model.conjugate_part, (), {}, _by_site(model, z))


def _of_sequences(
    model: CovariateRoleHMM, data: Sequences, layout: Layout, rows: Array, function: Any
) -> Any:
    """What a function of chain, value, log odds and effects gives at rows (row, size) of parameters."""
    square = model.by_change

    def one(row: Array, value: Any, batch: Trajectories) -> Any:
        z, odds, effects, own = jnp.split(
            row, np.cumsum([layout.conjugate, layout.edges, layout.edges * layout.columns])
        )
        odds, effects = odds + own if layout.varies else odds, effects.reshape(layout.edges, layout.columns)
        effect = jnp.moveaxis(square(effects.T), 0, -1)
        parameters = _constrained(model, z) | {"log_odds": square(odds), "effect": effect}
        return function(model.chain(parameters, batch, validate_args=False), value, odds, effects)

    if layout.varies:
        return jax.vmap(one)(rows[data.row], data.value, data.batch)
    return one(rows[0], data.value, data.batch)


def _log_joint(model: Any, data: Sequences, layout: Layout, rows: Array) -> Array:
    """Log likelihood and log prior of the conjugate part at rows (row, size)."""
    chains = _of_sequences(model, data, layout, rows, lambda chain, value, *_: chain._chain(value))
    return jnp.sum(model.kernels.log_normalizer(*chains)) + _log_prior(model, rows[0, : layout.conjugate])


def _side_by_side(model: Any, data: Sequences, layout: Layout, rows: Array) -> Array:
    """As `_log_joint` at rows (draw, row, size), NaN where `log_evidence` is."""

    def one(row: Array) -> Any:
        return _of_sequences(
            model,
            data,
            layout,
            row,
            lambda chain, value, *odds: (chain._log_initial, chain.step_log_likelihood(value), *odds),
        )

    log_pi, log_lik, odds, effects = jax.vmap(one)(rows)
    own = "s" * layout.varies
    columns = jnp.asarray(data.batch.covariates)[:, :-1, : layout.columns]
    moved = jnp.einsum(f"d{own}ec,stc->teds", effects, columns, precision="highest")
    log_lik = jnp.moveaxis(log_lik, (0, 1), (2, 3))

    def first(x: Array) -> Array:  # (..., draw, sequence or 1)
        return jnp.moveaxis(x if layout.varies else x[:, None], -1, 0)

    each_lane = jnp.broadcast_to(first(log_pi), log_lik.shape[1:]), moved + first(odds), log_lik
    lanes = (x.reshape(*x.shape[:-2], math.prod(x.shape[-2:])) for x in each_lane)
    each = log_evidence(*lanes).reshape(len(rows), -1)
    return each.sum(1) + jax.vmap(functools.partial(_log_prior, model))(rows[:, 0, : layout.conjugate])


def log_joints(model: Any, data: Sequences, layout: Layout, quick: bool) -> Any:
    """The function of rows (draw, row, size) that is `_log_joint` of each; NaN, if `quick`, where `log_evidence` is."""
    if quick:
        return functools.partial(_side_by_side, model, data, layout)
    return functools.partial(lax.map, functools.partial(_log_joint, model, data, layout))


@quick_jit(calls=2**10, static_argnames=("layout", "quick"))
def _values(model: Any, data: Sequences, layout: Layout, rows: Array, quick: bool) -> Array:
    """Log density (draw,) at rows (draw, row, size)."""
    return log_joints(model, data, layout, quick)(rows)


@quick_jit(calls=2**10, static_argnames=("layout", "quick"))
def _slopes(model: Any, data: Sequences, layout: Layout, rows: Array, quick: bool) -> tuple[Array, Array]:
    """Log density (draw,) at rows (draw, row, size), and its gradient (draw, row, size)."""
    values, gradient = jax.vjp(log_joints(model, data, layout, quick), rows)
    return values, gradient(jnp.ones_like(values))[0]


def latent_starts(model: CovariateRoleHMM, draws: dict[str, Any]) -> dict[str, Array]:
    """Unconstrained latent sites (draw, ...) of the numpyro model, at draws by site."""
    return _latent_starts(model, with_latent(model, draws))


def with_latent(model: CovariateRoleHMM, sites: dict[str, Any]) -> dict[str, Any]:
    """Parameters by site, with the latent sites of the emission that they determine, such as vectors of directions."""
    blocks, sites = model.prior(), {name: np.asarray(value) for name, value in sites.items()}
    found = {name: start_of_site(name, sites, blocks) for name in _latent(model) if name != "initial_free"}
    return {**{name: value for name, value in found.items() if value is not None}, **sites}


@quick_jit
def _latent_starts(model: Any, draws: dict[str, Any]) -> dict[str, Array]:
    def one(sites: dict[str, Any]) -> dict[str, Array]:
        return _by_site(model, unconstrained(model, sites)) | model.latent_transitions(sites)

    return jax.vmap(one)(draws)


def unconstrained(model: Any, parameters: dict[str, Any]) -> Array:
    """Coordinates of the latent sites at parameters by site; 0 where these do not determine them."""
    if isinstance(model.emission, CovariateEmission):
        parameters = {**parameters, **model.emission.latent(parameters)}
    parts = []
    for name, (support, shape, free) in _latent(model).items():
        value = parameters.get(name)
        if name == "initial_free":  # of the logits that sum to 0
            logits = jnp.log(jnp.maximum(parameters["initial"], LEAST_PROBABILITY))
            value = logits - jnp.mean(logits)
        known = value is not None and np.shape(value) == shape
        parts.append(biject_to(support).inv(value).ravel() if known else jnp.zeros(math.prod(free)))
    return jnp.concatenate(parts)


_unconstrained = quick_jit(unconstrained)


@quick_jit
def _constrained_draws(model: Any, z: Array) -> dict[str, Array]:
    sites = jax.vmap(lambda one: _constrained(model, one))(z)
    return {name: site for name, site in sites.items() if name in model.site_dims()}
