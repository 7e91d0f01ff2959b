"""Natural-gradient variational inference for the Gaussian posterior of a reward, from Laplace's approximation.

Stochastic gradients of the ELBO leave good starts for worse ones, and do not converge from the prior. Steps with exact
Hessians of the log likelihood, averaged over a dozen draws, are close to the optimum after two. Khan and Nielsen
(2018), "Fast yet simple natural-gradient descent for variational inference", eq. 7 and 8.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array

from ethogram.inference.checkpoint import refuse_longer
from ethogram.inference.rewards.gaussian import (
    Normals,
    RewardGaussian,
    bound,
    free_hypers,
    hyper_priors,
    reward_map_of,
)
from ethogram.inference.rewards.natural_steps import Climb, begin_climb, climb
from ethogram.inference.rewards.posterior_mode import levine_mode, posterior_mode
from ethogram.models.held_warnings import import_quietly
from ethogram.models.mdps.soft_curvature import likelihood_curvature
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.reward_settings import FEW_FEATURES

__all__ = ["RewardSearch"]

LOST = "the search for the posterior mode did not end at a maximum"
FLOOR = -8.0
"""Lower limit of the logarithm of an initial hyper-parameter."""

SPREADS = (0.3, 0.1, 0.03, 0.01)
"""Initial standard deviations of the logarithm of a hyper-parameter; the one of the best ELBO is used."""

OPTIMISING = 60
"""Most steps towards hyper-parameters to start from where there is no estimate of Levine's."""

MOST_CHUNKS = 16
"""Most chunks of `num_evaluations` fresh draws for the ELBO that is reported."""

PRECISE = 1.0
"""Standard error in nats that these are to bring it down to."""


class SearchState(NamedTuple):
    """State of a search."""

    laplace: RewardGaussian  # Laplace's approximation
    objective: float  # log posterior density at the mode
    mode_converged: bool  # whether the search for the mode converged
    key_fixed: Any  # of the draws on which ELBOs are compared
    climb: Climb | None  # of the natural-gradient steps; None before a point


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
        many = "relevance" in sizes and model.num_features > FEW_FEATURES
        medians = {name: np.full(size, float(np.log(_median(priors[name])))) for name, size in sizes.items()}
        if many and takes_levine(model):
            mode = levine_mode(key, model, jnp.sum(self.counts, 0))[0].log_hyper
            medians["relevance"] = np.maximum(mode[1:], FLOOR)
            if "scale" in sizes:
                medians["scale"] = mode[:1]
        elif many:  # by the prior alone hardly one of them would matter
            points = np.asarray(model.points)
            width = np.where(np.ptp(points, axis=0) > 0, np.var(points, axis=0), 0.0)
            equal = -np.log(np.where(width > 0, width, 1.0) * model.num_features)
            medians["relevance"] = np.where(width > 0, equal, medians["relevance"])
            if self.hyper in ("nested", "fixed"):
                return self._optimum(key, {name: np.exp(x) for name, x in medians.items()})
        return np.concatenate([medians[name] for name in sizes]) if sizes else np.zeros(0)

    def _optimum(self, key: Array, start: dict[str, Any]) -> np.ndarray:
        """Logarithms (hyper,) of hyper-parameters after some steps that optimise them."""
        search = self._replace(hyper="point")
        key_start, key_steps = jax.random.split(key)
        state = search.begin(key_start, key_steps, start, False)
        found = search.climb(state, OPTIMISING, 1.0, False, lambda state: None)
        assert found.climb is not None
        return np.maximum(np.asarray(found.climb.best.log_hyper), FLOOR)

    def begin(self, key_start: Array, key: Array, start: Any, point: bool) -> SearchState:
        """Laplace's approximation at the initial hyper-parameters."""
        key_fixed, key_steps = jax.random.split(key)
        key_hyper, key_modes = jax.random.split(key_start)
        q, objective, mode_converged = self.laplace(key_modes, self.first(key_hyper, start), point)
        if point:
            return SearchState(q, objective, mode_converged, key_fixed, None)
        fixed = self.normals(key_fixed, self.num_evaluations)
        starts = [q]
        if self.hyper == "variational" and len(q.log_hyper):
            starts = [q._replace(log_hyper_sd=np.full(len(q.log_hyper), sd)) for sd in SPREADS]
        tried = [begin_climb(self, one, fixed, key_steps) for one in starts]
        best = tried[int(np.nanargmax([one.trace[0] for one in tried]))]
        return SearchState(best.q, objective, mode_converged, key_fixed, best)

    def climb(
        self,
        state: SearchState,
        num_steps: int,
        tol: float,
        progress_bar: bool,
        save: Callable[[SearchState], None],
    ) -> SearchState:
        """State after natural-gradient steps, until the ELBO gains no more; `save` is called after each."""
        from tqdm import tqdm

        assert state.climb is not None
        refuse_longer(state.climb.step, num_steps)
        fixed = self.normals(state.key_fixed, self.num_evaluations)
        with tqdm(
            total=num_steps, initial=state.climb.step, disable=not progress_bar, desc="natural gradient"
        ) as bar:

            def report(now: Climb) -> None:
                save(state._replace(climb=now))
                bar.update()
                bar.set_postfix_str(f"ELBO {now.trace[-1]:.2f}", refresh=False)

            return state._replace(climb=climb(self, state.climb, fixed, num_steps, tol, report))

    def laplace(self, key: Array, log_hyper: np.ndarray, point: bool) -> tuple[RewardGaussian, float, bool]:
        """Laplace's approximation at fixed hyper-parameters, log posterior density at the mode, and convergence."""
        model = self.model
        mapping, times = _map_of(model, log_hyper)
        weights, inverse_temperature = np.asarray(mapping.weights), np.asarray(times)
        means, roots, objective, mode_converged = [], [], 0.0, True
        starts = np.zeros((len(self.counts), 1 + self.num_restarts, model.num_white))
        if self.num_restarts:
            starts[:, 1:] = jax.random.normal(key, starts[:, 1:].shape)
        for counts, tried in zip(np.asarray(self.counts), starts, strict=True):
            found = [posterior_mode(model, mapping, times, counts, one) for one in tried]
            white, _, there = max(found, key=lambda one: one[1])
            reward = inverse_temperature * (weights @ white).reshape(model.features.shape[:-1])
            pairs = model.features.ndim == 3
            bent = likelihood_curvature(model.mdp, reward, counts, basis=mapping.weights, pairs=pairs)
            precision = np.eye(len(white)) - inverse_temperature**2 * np.asarray(bent.hessian)
            values, vectors = np.linalg.eigh(precision)
            covariance = (vectors / np.maximum(values, 1e-3)) @ vectors.T
            means.append(white)
            roots.append(np.zeros_like(covariance) if point else np.linalg.cholesky(covariance))
            objective += float(bent.log_likelihood) - 0.5 * float(white @ white)
            mode_converged &= there
        q = RewardGaussian(np.stack(means), np.stack(roots), np.asarray(log_hyper), np.zeros(len(log_hyper)))
        return jax.device_put(q), objective, mode_converged

    def normals(self, key: Array, count: int) -> Normals:
        """Antithetic standard normals, draws and their negatives: odd functions have no Monte Carlo error."""
        experts, model = len(self.counts), self.model
        rest = (experts, model.num_points) if model.family == "inducing" else None
        hypers = (sum(free_hypers(model).values()),)
        return _antithetic(key, count // 2, (experts, model.num_white), rest, hypers)

    def bounds(self, q: RewardGaussian, normals: Normals) -> Array:
        return bound(self.model, q, self.counts, normals, self.hyper != "variational")

    def fresh_bounds(self, key: Array, q: RewardGaussian, chunks: int) -> np.ndarray:
        """ELBOs at chunks of antithetic draws; the negatives of the first half are the second half."""
        fresh = [self.normals(one, self.num_evaluations) for one in jax.random.split(key, chunks)]
        pairs = [np.asarray(self.bounds(q, one)).reshape(2, -1) for one in fresh]
        return np.concatenate(pairs, axis=1).ravel()


_map_of = jax.jit(reward_map_of)


@functools.partial(jax.jit, static_argnums=(1, 2, 3, 4))
def _antithetic(key: Array, count: int, *shapes: Any) -> Normals:
    """Standard normals of some shapes, or None of None, followed by their negatives."""
    draws = [None if shape is None else jax.random.normal(one, (count, *shape))
             for one, shape in zip(jax.random.split(key, 3), shapes, strict=True)]  # fmt: skip
    return Normals(*jax.tree.map(lambda half: jnp.concatenate([half, -half]), draws))


def takes_levine(model: GPIRL) -> bool:
    """Whether Levine's objective applies to the model."""
    return model.features.ndim == 2 and not isinstance(model.rationality, dist.Distribution)


def chunks_of(error: float) -> int:
    """Number of chunks of `num_evaluations` draws that bring a standard error down to `PRECISE`."""
    return int(np.ceil(1.2 * (error / PRECISE) ** 2)) if np.isfinite(error) and error > PRECISE else 1


def _median(prior: Any) -> float:
    if importlib.util.find_spec("tensorflow_probability"):  # numpyro imports it for some priors, and it warns
        import_quietly("tensorflow_probability.substrates.jax.math", DeprecationWarning)
    try:
        return float(prior.icdf(0.5))
    except (NotImplementedError, ImportError):  # numpyro needs another package for some of them
        draws = prior.sample(jax.random.key(0), (10_001,))
        return float(np.median(np.asarray(draws)))
