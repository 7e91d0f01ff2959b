"""The search for the Gaussian posterior of a reward: from the mode, by natural gradients.

Stochastic gradients of the bound leave good starts for worse ones, and find none from the prior. Steps with exact
Hessians of the log likelihood, averaged over a dozen draws, are near the end after two.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from ethogram.inference.reward_gaussian import (
    Normals,
    RewardGaussian,
    bound,
    free_hypers,
    hyper_values,
    law_of,
    natural_step,
)
from ethogram.inference.reward_map import levine_mode, posterior_mode
from ethogram.inference.reward_result import RewardFit, RewardPosterior
from ethogram.models.gp_irl import FEW_FEATURES, GPIRL
from ethogram.models.reward_kernel import white_share
from ethogram.models.soft_curvature import likelihood_curvature

__all__ = ["RewardSearch", "levine_fit"]

SIZES = (0.5, 0.25)
"""Of natural steps: for the first few, and then."""

FIRST_STEPS = 6
FLOOR = -8.0
"""Logarithm of a hyper-parameter below which a start makes no difference."""

SPREADS = (0.3, 0.1, 0.03, 0.01)
"""Standard deviations of the logarithm of a hyper-parameter to try at first; that with the best bound is taken."""


class RewardSearch(NamedTuple):
    """A model, counts (expert, state, action), what becomes of hyper-parameters, and draws of a step and of a bound."""

    model: GPIRL
    counts: Array
    hyper: str
    num_draws: int
    num_evaluations: int

    def first(self, key: Array, start: Any) -> np.ndarray:
        """Logarithms (hyper,) of the free hyper-parameters to begin with."""
        model, sizes = self.model, free_hypers(self.model)
        if start is not None:
            given = []
            for name, size in sizes.items():
                if name not in start:
                    raise ValueError(f"start has no {name}: it has {', '.join(sorted(start)) or 'nothing'}")
                value = np.broadcast_to(np.asarray(start[name], float), (size,))
                if not (np.isfinite(value) & (value > 0)).all():
                    raise ValueError(f"start[{name!r}] must be above 0, not {start[name]!r}")
                given.append(np.log(value))
            return np.concatenate(given) if given else np.zeros(0)
        medians = {
            name: np.full(size, float(np.log(_median(prior))))
            for (name, size), prior in zip(
                sizes.items(), (getattr(model, _field(name)) for name in sizes), strict=True
            )
        }
        if "relevance" in sizes and model.num_features > FEW_FEATURES and model.features.ndim == 2:
            inducing = model.inducing
            if inducing is None:
                inducing = np.flatnonzero(np.asarray(self.counts).sum((0, 2)))
            mode = levine_mode(key, model, inducing, jnp.sum(self.counts, 0)).log_hyper
            medians["relevance"] = np.maximum(mode[1:], FLOOR)
            if "scale" in sizes:
                medians["scale"] = mode[:1]
        return np.concatenate([medians[name] for name in sizes]) if sizes else np.zeros(0)

    def run(
        self, key: Array, log_hyper: np.ndarray, method: str, num_steps: int, tol: float, progress_bar: bool
    ) -> RewardFit:
        """The search, from the mode at the hyper-parameters it is given."""
        key_fixed, key_fresh, key_steps = jax.random.split(key, 3)
        q, objective, arrived = self._laplace(log_hyper, point=method == "map")
        if method == "map":
            nan = float("nan")
            return self._result(q, method, (nan, nan, nan), np.zeros(0), objective, arrived, 0)
        fixed = self._normals(key_fixed, self.num_evaluations)
        starts = [q]
        if self.hyper == "variational" and len(q.log_hyper):
            starts = [q._replace(log_hyper_sd=jnp.full_like(q.log_hyper, sd)) for sd in SPREADS]
        highest = [float(jnp.mean(self._bounds(start, fixed))) for start in starts]
        q = starts[int(np.nanargmax(highest))]
        best, laplace = q, q
        trace = [float(np.nanmax(highest))]
        steps, converged = 0, method == "laplace" and arrived
        if method == "natural_gradient":
            best, steps, converged = self._climb(key_steps, q, fixed, trace, num_steps, tol, progress_bar)
        fresh = self._normals(key_fresh, 4 * self.num_evaluations)
        ours, first = (np.asarray(self._bounds(one, fresh)) for one in (best, laplace))
        if ours.mean() < first.mean():
            best, ours = laplace, first
        pairs = ours.reshape(2, -1).mean(0)
        error = float(pairs.std(ddof=1) / np.sqrt(len(pairs)))
        told = (float(ours.mean()), error, float(first.mean()))
        return self._result(best, method, told, np.array(trace), objective, converged, steps)

    def _laplace(self, log_hyper: np.ndarray, point: bool) -> tuple[RewardGaussian, float, bool]:
        """Mode and curvature at known hyper-parameters, the log posterior density there, whether the search arrived."""
        model, where = self.model, jnp.asarray(log_hyper)
        law, times = law_of(model, where)
        means, roots, objective, arrived = [], [], 0.0, True
        for counts in self.counts:
            white, there = posterior_mode(model, where, counts, np.zeros(model.num_white))
            reward = (law.weights @ white).reshape(model.features.shape[:-1])
            bent = likelihood_curvature(model.mdp, times * reward, counts, pairs=model.features.ndim == 3)
            precision = np.eye(len(white)) - np.asarray(times**2 * law.weights.T @ bent.hessian @ law.weights)
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

    def _normals(self, key: Array, count: int) -> Normals:
        """Antithetic standard normals, first halves and their negatives: what is odd in them has no error."""
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

    def _bounds(self, q: RewardGaussian, normals: Normals) -> Array:
        return bound(self.model, q, self.counts, normals, self.hyper != "variational")

    def _climb(
        self, key: Array, q: RewardGaussian, fixed: Normals, trace: list[float], num_steps: int, tol: float,
        progress_bar: bool,
    ) -> tuple[RewardGaussian, int, bool]:  # fmt: skip
        """The best of the approximations on the way, how many steps were made, and whether nothing more was gained."""
        from tqdm import tqdm

        moves_hypers = self.hyper != "fixed" and len(q.log_hyper) > 0
        rule = optax.adam(0.1)
        moments = rule.init((q.log_hyper, jnp.log(jnp.maximum(q.log_hyper_sd, 1e-3))))
        best, highest = q, trace[0]
        with tqdm(range(num_steps), disable=not progress_bar, desc="natural gradient") as bar:
            for step in bar:
                key, key_step = jax.random.split(key)
                normals = self._normals(key_step, self.num_draws)
                q = natural_step(self.model, q, self.counts, normals, SIZES[step >= FIRST_STEPS])
                if moves_hypers:
                    q, moments = self._hyper_steps(q, normals, moments, rule)
                now = float(jnp.mean(self._bounds(q, fixed)))
                trace.append(now)
                bar.set_postfix_str(f"bound {now:.2f}", refresh=False)
                if now > highest:
                    best, highest = q, now
                if step >= 2 * FIRST_STEPS and max(trace[-5:]) < max(trace[:-5]) + tol:
                    return best, step + 1, True
        return best, num_steps, False

    def _hyper_steps(
        self, q: RewardGaussian, normals: Normals, moments: Any, rule: Any
    ) -> tuple[RewardGaussian, Any]:
        variational = self.hyper == "variational"
        gradient = _hyper_gradient(self.model, q, self.counts, normals, variational)
        if not all(bool(jnp.isfinite(x).all()) for x in gradient):
            return q, moments
        down = jax.tree.map(jnp.negative, gradient)
        moved, moments = rule.update(down, moments)
        log_hyper = q.log_hyper + moved[0]
        sd = jnp.exp(jnp.log(q.log_hyper_sd) + moved[1]) if variational else q.log_hyper_sd
        return q._replace(log_hyper=log_hyper, log_hyper_sd=sd), moments

    def _result(
        self, q: RewardGaussian, method: str, told: tuple[float, float, float], trace: np.ndarray,
        objective: float, converged: bool, steps: int,
    ) -> RewardFit:  # fmt: skip
        single = len(self.counts) == 1
        mean, root = (np.asarray(x[0] if single else x) for x in (q.mean, q.root))
        hyper = (np.asarray(q.log_hyper), np.asarray(q.log_hyper_sd))
        posterior = RewardPosterior(self.model, mean, root, *hyper, method)
        share = float(white_share(hyper_values(self.model, q.log_hyper)["relevance"], self.model.noise))
        return RewardFit(posterior, *told, trace, objective, bool(converged), steps, share)


def levine_fit(key: Array, model: GPIRL, counts: Array) -> RewardFit:
    """Levine's estimate, of one expert."""
    if counts.ndim == 3 or model.features.ndim == 3:
        raise ValueError('prior="levine" is of one expert with a reward of states: use prior="model"')
    inducing = model.inducing
    if inducing is None:
        inducing = np.flatnonzero(np.asarray(counts).sum(1))
    found = levine_mode(key, model, inducing, counts)
    posterior = RewardPosterior(
        model,
        found.u,
        np.zeros((len(found.u), len(found.u))),
        found.log_hyper,
        np.zeros_like(found.log_hyper),
        "map",
        np.asarray(inducing),
    )
    share = float(white_share(jnp.exp(found.log_hyper[1:]), model.noise))
    nan = float("nan")
    return RewardFit(posterior, nan, nan, nan, np.zeros(0), found.objective, found.converged, 0, share)


@jax.jit
def _hyper_gradient_point(model: GPIRL, q: RewardGaussian, counts: Array, normals: Normals) -> Any:
    def mean_bound(log_hyper):
        return jnp.mean(bound(model, q._replace(log_hyper=log_hyper), counts, normals, True))

    return jax.grad(mean_bound)(q.log_hyper), jnp.zeros_like(q.log_hyper)


@jax.jit
def _hyper_gradient_spread(model: GPIRL, q: RewardGaussian, counts: Array, normals: Normals) -> Any:
    def mean_bound(log_hyper, log_sd):
        moved = q._replace(log_hyper=log_hyper, log_hyper_sd=jnp.exp(log_sd))
        return jnp.mean(bound(model, moved, counts, normals, False))

    return jax.grad(mean_bound, (0, 1))(q.log_hyper, jnp.log(q.log_hyper_sd))


def _hyper_gradient(
    model: GPIRL, q: RewardGaussian, counts: Array, normals: Normals, variational: bool
) -> Any:
    return (_hyper_gradient_spread if variational else _hyper_gradient_point)(model, q, counts, normals)


def _field(name: str) -> str:
    return name if name == "rationality" else f"{name}_prior"


def _median(prior: Any) -> float:
    try:
        return float(prior.icdf(0.5))
    except NotImplementedError:
        draws = prior.sample(jax.random.key(0), (10_001,))
        return float(np.median(np.asarray(draws)))
