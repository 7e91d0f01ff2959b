"""Natural-gradient variational inference for the Gaussian posterior of a reward, from Laplace's approximation.

Stochastic gradients of the ELBO leave good starts for worse ones, and do not converge from the prior. Steps with exact
Hessians of the log likelihood, averaged over a dozen draws, are close to the optimum after two. Khan and Nielsen
(2018), "Fast yet simple natural-gradient descent for variational inference", eq. 7 and 8.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import optax
from jax import Array

from ethogram.inference.checkpoint import CURE
from ethogram.inference.rewards.gaussian import (
    Normals,
    RewardGaussian,
    bound,
    free_hypers,
    hyper_priors,
    hyper_values,
    natural_step,
    reward_map_of,
)
from ethogram.inference.rewards.posterior_mode import levine_mode, posterior_mode
from ethogram.inference.rewards.reward_posterior import RewardFit, RewardPosterior
from ethogram.inference.rewards.stopping_rule import (
    FIRST_STEPS,
    MOST_CHUNKS,
    NOISE,
    PRECISE,
    UNTRIED,
    WINDOW,
    chunks_of,
    open_question,
    rises,
    standard_error,
)
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.families.conjugate_block import naming
from ethogram.models.mdps.soft_curvature import likelihood_curvature
from ethogram.models.rewards.gp_irl import FEW_FEATURES, GPIRL
from ethogram.models.rewards.kernel import white_share

__all__ = ["RewardSearch", "SearchState", "levine_fit", "moved_hypers"]

SIZES = (0.5, 0.25)
"""Sizes of the first natural-gradient steps, and of later ones while the ELBO increases."""

SHRINK, SMALLEST_FACTOR = 0.6, 0.05
"""Factor of the step size where a window of steps no longer increases the ELBO; lower limit of their product."""

LOST = "the search for the posterior mode did not end at a maximum"
FLOOR = -8.0
"""Lower limit of the logarithm of an initial hyper-parameter."""

SPREADS = (0.3, 0.1, 0.03, 0.01)
"""Initial standard deviations of the logarithm of a hyper-parameter; the one of the best ELBO is used."""

RULE = optax.adam(0.1)
"""Optimiser of the hyper-parameters' logarithms; its steps shrink with the others."""


class SearchState(NamedTuple):
    """State of a search."""

    laplace: RewardGaussian  # Laplace's approximation
    q: RewardGaussian  # the current one
    best: RewardGaussian  # the best so far
    objective: float  # log posterior density at the mode
    arrived: bool  # whether the search for the mode converged
    trace: list[float]  # ELBOs so far on the draws of `key_fixed`
    moments: list[Any]  # leaves of the optimiser state of `RULE`
    key_fixed: Any
    key: Any  # of later steps
    step: int  # steps done
    shrunk: int  # step of the latest reduction of the step size
    factor: float  # of the step size
    error: float  # standard error of the latest ELBO
    reason: str  # why the search is not converged, empty where it is


def check_saved(path: str, search: RewardSearch, state: SearchState) -> SearchState:
    """The state that a checkpoint holds; a ValueError, which names the file, where its numbers are damaged."""
    try:
        require_integer("step", state.step, 0)
        for name in ("laplace", "q", "best"):
            with naming(f"state.{name}"):
                found = RewardPosterior(search.model, *getattr(state, name))
                if np.shape(found.mean)[:-1] != search.counts.shape[:1]:
                    raise ValueError(f"mean has shape {np.shape(found.mean)}: expected one row per expert")
        like = [np.shape(x) for x in jax.tree.leaves(RULE.init(moved_hypers(state.q)))]
        if [np.shape(x) for x in state.moments] != like:
            raise ValueError(f"state.moments has other shapes than the expected {like}")
        for name in ("objective", "trace", "moments"):
            for leaf in jax.tree.leaves(getattr(state, name)):
                if np.isnan(np.asarray(leaf, float)).any():
                    raise ValueError(f"state.{name} has NaN, expected numbers")
        require_key(state.key, "state.key")
        require_key(state.key_fixed, "state.key_fixed")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}; {CURE}") from error
    return state


class RewardSearch(NamedTuple):
    """Model, data and settings of a search."""

    model: GPIRL
    counts: Array  # (expert, state, action)
    hyper: str  # treatment of the hyper-parameters, one of `HYPERS`
    num_draws: int  # for a step
    num_evaluations: int  # draws for an ELBO
    num_restarts: int  # starts of the search for the mode besides zero

    def first(self, key: Array, start: Any) -> np.ndarray:
        """Initial logarithms (hyper,) of the free hyper-parameters."""
        model, sizes = self.model, free_hypers(self.model)
        if start is not None:
            if not isinstance(start, dict) or set(start) != set(sizes):
                came = sorted(start) if isinstance(start, dict) else type(start).__name__
                raise ValueError(f"start must be a dict of {', '.join(sizes) or 'nothing'}, not {came}")
            given = []
            for name, size in sizes.items():
                value = np.asarray(start[name], float)
                if value.shape not in ((), (size,)) or not (np.isfinite(value) & (value > 0)).all():
                    raise ValueError(
                        f"start[{name!r}] must be a number above 0, or {size} of them, not {start[name]!r}"
                    )
                given.append(np.log(np.broadcast_to(value, (size,))))
            return np.concatenate(given) if given else np.zeros(0)
        priors = hyper_priors(model)
        medians = {name: np.full(size, float(np.log(_median(priors[name])))) for name, size in sizes.items()}
        if "relevance" in sizes and takes_levine(model) and model.num_features > FEW_FEATURES:
            mode = levine_mode(key, model, jnp.sum(self.counts, 0))[0].log_hyper
            medians["relevance"] = np.maximum(mode[1:], FLOOR)
            if "scale" in sizes:
                medians["scale"] = mode[:1]
        return np.concatenate([medians[name] for name in sizes]) if sizes else np.zeros(0)

    def begin(self, key_start: Array, key: Array, start: Any, point: bool) -> SearchState:
        """Laplace's approximation at the initial hyper-parameters."""
        key_fixed, key_steps = jax.random.split(key)
        key_hyper, key_modes = jax.random.split(key_start)
        q, objective, arrived = self.laplace(key_modes, self.first(key_hyper, start), point)
        trace: list[float] = []
        if not point:
            fixed = self.normals(key_fixed, self.num_evaluations)
            starts = [q]
            if self.hyper == "variational" and len(q.log_hyper):
                starts = [q._replace(log_hyper_sd=jnp.full_like(q.log_hyper, sd)) for sd in SPREADS]
            highest = [float(jnp.mean(self.bounds(one, fixed))) for one in starts]
            q, trace = starts[int(np.nanargmax(highest))], [float(np.nanmax(highest))]
        moments = jax.tree.leaves(RULE.init(moved_hypers(q)))
        return SearchState(
            q, q, q, objective, arrived, trace, moments, key_fixed, key_steps, 0, 0, 1.0, np.inf, UNTRIED
        )

    def end(self, key: Array, state: SearchState, method: str) -> RewardFit:
        """Result, with ELBOs on fresh draws."""
        q, elbos = state.laplace, (float("nan"),) * 3
        if method != "map":
            chunks = min(max(4, chunks_of(state.error)), MOST_CHUNKS)
            ours, first = (self.fresh_bounds(key, one, chunks) for one in (state.best, q))
            if ours.mean() < first.mean():
                ours = first
            else:
                q = state.best
            elbos = (float(ours.mean()), standard_error(ours), float(first.mean()))
        reason = state.reason if method == "natural_gradient" else "" if state.arrived else LOST
        single = len(self.counts) == 1
        mean, root = (np.asarray(x[0] if single else x) for x in (q.mean, q.root))
        hyper = (np.asarray(q.log_hyper), np.asarray(q.log_hyper_sd))
        posterior = RewardPosterior(self.model, mean, root, *hyper, method)
        share = float(white_share(hyper_values(self.model, q.log_hyper)["relevance"], self.model.noise))
        trace = np.array(state.trace)
        return RewardFit(
            posterior, *elbos, trace, state.objective, not reason, state.step, share, reason, state.error
        )

    def laplace(self, key: Array, log_hyper: np.ndarray, point: bool) -> tuple[RewardGaussian, float, bool]:
        """Laplace's approximation at fixed hyper-parameters, log posterior density at the mode, and convergence."""
        model, where = self.model, jnp.asarray(log_hyper)
        mapping, times = reward_map_of(model, where)
        means, roots, objective, arrived = [], [], 0.0, True
        starts = np.zeros((len(self.counts), 1 + self.num_restarts, model.num_white))
        starts[:, 1:] = jax.random.normal(key, starts[:, 1:].shape)
        for counts, tried in zip(self.counts, starts, strict=True):
            found = [posterior_mode(model, where, counts, one) for one in tried]
            white, _, there = max(found, key=lambda one: one[1])
            reward = (mapping.weights @ white).reshape(model.features.shape[:-1])
            bent = likelihood_curvature(model.mdp, times * reward, counts, pairs=model.features.ndim == 3)
            precision = np.eye(len(white)) - np.asarray(
                times**2 * mapping.weights.T @ bent.hessian @ mapping.weights
            )
            values, vectors = np.linalg.eigh(precision)
            covariance = (vectors / np.maximum(values, 1e-3)) @ vectors.T
            means.append(white)
            roots.append(np.zeros_like(covariance) if point else np.linalg.cholesky(covariance))
            objective += float(bent.log_likelihood) - 0.5 * float(white @ white)
            arrived &= there
        q = RewardGaussian(
            jnp.asarray(np.stack(means)), jnp.asarray(np.stack(roots)), where, jnp.zeros(len(where))
        )
        return q, objective, arrived

    def normals(self, key: Array, count: int) -> Normals:
        """Antithetic standard normals, draws and their negatives: odd functions have no Monte Carlo error."""
        key_white, key_rest, key_hyper = jax.random.split(key, 3)
        experts, size = len(self.counts), self.model.num_white

        def pairs(key, shape):
            half = jax.random.normal(key, (count // 2, *shape))
            return jnp.concatenate([half, -half])

        rest = None
        if self.model.family == "inducing":
            rest = pairs(key_rest, (experts, self.model.num_points))
        return Normals(
            pairs(key_white, (experts, size)),
            rest,
            pairs(key_hyper, (sum(free_hypers(self.model).values()),)),
        )

    def bounds(self, q: RewardGaussian, normals: Normals) -> Array:
        return bound(self.model, q, self.counts, normals, self.hyper != "variational")

    def fresh_bounds(self, key: Array, q: RewardGaussian, chunks: int) -> np.ndarray:
        """ELBOs at chunks of antithetic draws; the negatives of the first half are the second half."""
        fresh = [self.normals(one, self.num_evaluations) for one in jax.random.split(key, chunks)]
        pairs = [np.asarray(self.bounds(q, one)).reshape(2, -1) for one in fresh]
        return np.concatenate(pairs, axis=1).ravel()

    def _precise(self, state: SearchState) -> SearchState:
        """The state with a standard error of more draws, where that of a settled ELBO is above `PRECISE`."""
        chunks = chunks_of(state.error)
        if state.error <= PRECISE or chunks > MOST_CHUNKS:
            return state
        bounds = self.fresh_bounds(jax.random.fold_in(state.key_fixed, 1), state.q, chunks)
        return state._replace(error=standard_error(bounds))

    def climb(
        self,
        state: SearchState,
        num_steps: int,
        tol: float,
        progress_bar: bool,
        save: Callable[[SearchState], None],
    ) -> SearchState:
        """State after natural-gradient steps, until the ELBO no longer increases; `save` is called after each."""
        from tqdm import tqdm

        moves_hypers = self.hyper != "fixed" and len(state.q.log_hyper) > 0
        fixed = self.normals(state.key_fixed, self.num_evaluations)
        shape = jax.tree.structure(RULE.init(moved_hypers(state.q)))
        with tqdm(
            total=num_steps, initial=state.step, disable=not progress_bar, desc="natural gradient"
        ) as bar:
            while state.step < num_steps and state.reason:
                key, key_step = jax.random.split(state.key)
                normals = self.normals(key_step, self.num_draws)
                size = SIZES[state.step >= FIRST_STEPS] * state.factor
                q = natural_step(self.model, state.q, self.counts, normals, size, self.hyper != "variational")
                moments = state.moments
                if moves_hypers:
                    q, moved = self.hyper_steps(q, normals, jax.tree.unflatten(shape, moments), state.factor)
                    moments = jax.tree.leaves(moved)
                at_draws = np.asarray(self.bounds(q, fixed))
                now = float(at_draws.mean())
                trace = [*state.trace, now]
                state = state._replace(
                    q=q,
                    best=q if now > max(state.trace) else state.best,
                    trace=trace,
                    moments=moments,
                    key=key,
                    step=state.step + 1,
                    error=standard_error(at_draws),
                )
                state = state._replace(
                    reason=open_question(state.trace, state.step, state.factor, state.error, tol)
                )
                if NOISE in state.reason:
                    precise = self._precise(state)
                    state = precise._replace(
                        reason=open_question(trace, precise.step, precise.factor, precise.error, tol)
                    )
                waited = state.step >= 2 * FIRST_STEPS and state.step - state.shrunk >= WINDOW
                if waited and not rises(trace, tol):
                    state = state._replace(
                        shrunk=state.step, factor=max(SHRINK * state.factor, SMALLEST_FACTOR)
                    )
                save(state)
                bar.update()
                bar.set_postfix_str(f"ELBO {now:.2f}", refresh=False)
        return state

    def hyper_steps(
        self, q: RewardGaussian, normals: Normals, moments: Any, factor: float
    ) -> tuple[RewardGaussian, Any]:
        """Approximation after a step of the hyper-parameters, and the state of `RULE`."""
        variational = self.hyper == "variational"
        gradient = hyper_gradient(self.model, q, self.counts, normals, variational)
        if not all(bool(jnp.isfinite(x).all()) for x in gradient):
            return q, moments
        down = jax.tree.map(jnp.negative, gradient)
        moved, moments = RULE.update(down, moments)
        moved = jax.tree.map(lambda x: factor * x, moved)
        log_hyper = q.log_hyper + moved[0]
        sd = jnp.exp(jnp.log(q.log_hyper_sd) + moved[1]) if variational else q.log_hyper_sd
        return q._replace(log_hyper=log_hyper, log_hyper_sd=sd), moments


def takes_levine(model: GPIRL) -> bool:
    """Whether Levine's objective applies to the model."""
    return model.features.ndim == 2 and not isinstance(model.rationality, dist.Distribution)


def moved_hypers(q: RewardGaussian) -> tuple[Array, Array]:
    """Parameters of q(ln hyper-parameters) that are optimised."""
    return q.log_hyper, jnp.log(jnp.maximum(q.log_hyper_sd, 1e-3))


def levine_fit(key: Array, model: GPIRL, counts: Array) -> RewardFit:
    """Levine's MAP estimate, of one expert."""
    if counts.ndim == 3 or not takes_levine(model):
        raise ValueError(
            'prior="levine" needs one expert, a reward of states and a fixed rationality: pass prior="model"'
        )
    found, inducing = levine_mode(key, model, counts)
    posterior = RewardPosterior(
        model,
        found.u,
        np.zeros((len(found.u), len(found.u))),
        found.log_hyper,
        np.zeros_like(found.log_hyper),
        "map",
        inducing,
    )
    share = float(white_share(jnp.exp(found.log_hyper[1:]), model.noise))
    nan = float("nan")
    reason = "" if found.converged else LOST
    return RewardFit(posterior, nan, nan, nan, np.zeros(0), found.objective, not reason, 0, share, reason)


@functools.partial(jax.jit, static_argnames="variational")
def hyper_gradient(
    model: GPIRL, q: RewardGaussian, counts: Array, normals: Normals, variational: bool
) -> Any:
    def mean_bound(log_hyper, log_sd):
        sd = jnp.exp(log_sd) if variational else q.log_hyper_sd
        moved = q._replace(log_hyper=log_hyper, log_hyper_sd=sd)
        return jnp.mean(bound(model, moved, counts, normals, not variational))

    return jax.grad(mean_bound, (0, 1))(q.log_hyper, jnp.log(q.log_hyper_sd))


def _median(prior: Any) -> float:
    try:
        with warnings.catch_warnings():  # numpyro imports tensorflow_probability here, whose import may warn
            warnings.simplefilter("ignore", DeprecationWarning)
            return float(prior.icdf(0.5))
    except (NotImplementedError, ImportError):  # numpyro needs another package for some of them
        draws = prior.sample(jax.random.key(0), (10_001,))
        return float(np.median(np.asarray(draws)))
