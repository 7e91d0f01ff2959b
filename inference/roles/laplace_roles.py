r"""Laplace's approximation of a role HMM with covariates, its draws weighted by the joint density.

The hidden states are summed out. With :math:`\phi` the parameters of initial state, emission and transitions, and
:math:`d_s` what subject s differs by,

.. math:: \ln p(y, \phi, d) \approx \sum_s \Big[ c_s + b_s'(\phi, d_s) - \tfrac12 (\phi, d_s)' L_s (\phi, d_s) \Big]
          + \ln p(\phi) + \sum_s \ln N(d_s; 0, \mathrm{diag}\,\tau^2)

is expanded at its mode; subjects are independent given :math:`\phi`, so that the precision is an arrow, and its cost
linear in subjects. The scales :math:`\tau` of subjects and splines have the marginal density that this Gaussian leaves
them, whose mode alternates with the expansion: Breslow and Clayton (1993); Wood and Fasiolo (2017), "A generalized
Fellner-Schall method", maximise the same function. Draws of their logarithms come from a multivariate t, resampled by
that density, all other draws from the Gaussian given these, and the ratio to the joint density weights them: Vehtari,
Simpson, Gelman, Yao, Gabry (2024), "Pareto smoothed importance sampling".
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln

from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.convergence import LEAST_ESS
from ethogram.inference.laplace_posterior import USABLE_K, LaplacePosterior
from ethogram.inference.pareto_weights import smoothed_weights, systematic_resample
from ethogram.inference.roles.covariate_problem import TOGETHER, Expansion, Problem, latent_starts
from ethogram.inference.roles.emission_starts import best_start
from ethogram.models.arguments import warn_user
from ethogram.models.conjugate_model import require_informative
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.held_warnings import held_warnings
from ethogram.models.roles.covariate_emission import CovariateEmission
from ethogram.models.roles.covariate_roles import CovariateRoleHMM

__all__ = ["Gaussian", "laplace_roles", "starts_of_chains"]

RESTARTS = 8
"""Starts, of a fit without covariates and of climbs."""
START_STEPS = 200
"""Of coordinate ascent without covariates."""
MOST_STEPS = 100
"""Of Newton's method, and of the alternation with the scales."""
DECREMENT_TOL = 1e-6
"""Newton's method ends where the expansion expects no higher gain in log density, in nats."""
SCALE_TOL = 1e-3
"""The alternation ends where no logarithm of a scale moves by more."""
FIRST_SCALE = 0.5
"""Of subjects and splines, where the alternation starts."""
DEGREES = 5
"""Degrees of freedom of the t of the logarithms of scales, whose posterior is skewed."""
WIDER = 1.3
"""Factor of the spread of the t, whose tails the density of scales exceeds."""
PROPOSALS = 8
"""Draws of the t for each one that is kept, by its weight under the expansion."""
DIFFERENCE = 1e-3
"""Step of the differences for derivatives in logarithms of scales."""
LEAST_CURVATURE = 0.25
"""Least curvature of the log density of the logarithm of a scale."""
MOST_DAMPING = 1e12
"""At which no step of Newton's method goes up: the density is not finite, or rounding hides its slope."""


class Gaussian(NamedTuple):
    """The posterior of all parameters given the scales, under an expansion."""

    phi: np.ndarray  # (shared,)
    root: np.ndarray  # Cholesky factor of the precision of phi
    d_root: np.ndarray  # Cholesky factors L (row, edge, edge) of the precision of d given phi
    white: np.ndarray  # (row, edge, shared + 1): L'd has the mean white[..., -1] - white[..., :-1] phi
    evidence: float  # log integral, less the expansion's constant

    def d(self, phi: np.ndarray, noise: Any = 0.0) -> np.ndarray:
        """D (row, edge) given phi, at the mean or at standard normal noise (row, edge)."""
        white = self.white[..., -1] - self.white[..., :-1] @ phi + noise
        return np.linalg.solve(self.d_root.swapaxes(1, 2), white[..., None])[..., 0]


def laplace_roles(
    key: Array, model: CovariateRoleHMM, data: Trajectories, *, num_samples: int = 500, **start: Any
) -> LaplacePosterior:
    """Draws from Laplace's approximation, resampled by weights that the joint density gives them.

    Their log evidence is that of one order of the states: of K that have the same prior, ln p(y) is larger by ln K!.

    Parameters
    ----------
    key : a typed key.
    model : a `RoleHMM` whose transitions have `Covariates`.
    data : trajectories with these.
    num_samples : number of draws.
    start : `restarts` and other settings of `ConjugateSVI` for the fit without covariates, where the search starts.

    Warns
    -----
    UserWarning
        The Pareto k of the weights is above .7, and subjects do not vary, or it is not finite; draws then are those of
        the approximation, without weights. Or the draws of scales have an effective sample size below 100.

    Raises
    ------
    RuntimeError
        Newton's method does not converge.
    """
    model.check(data)
    require_informative(model, data)
    model = model.bind(data)
    start = {"num_steps": START_STEPS, "restarts": RESTARTS, **start}
    restarts = start["restarts"]
    first = ConjugateSVI(model.without_covariates()).run(key, data, **start)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    with jax.enable_x64(True):
        sites = model.start(first.posterior.mean())
        model = model.with_phases(sites)
        problem = Problem.of(model, data)
        place, heights = problem.start(sites), None
        if isinstance(model.emission, CovariateEmission):
            scales = np.full(problem.num_scales, math.log(FIRST_SCALE))
            phi, heights = best_start(key, problem, sites, restarts, scales)
            place = phi, place[1]
        expansion, log_scales = _mode(problem, *place)
        while (larger := model.with_phases(problem.at_mode(expansion))) is not model:
            model, problem = larger, Problem.of(larger, data)
            expansion, log_scales = _mode(problem, expansion.phi, expansion.d)
        expansion = _without_saddles(problem, expansion)
        draws = _draws(rng, problem, expansion, log_scales, num_samples)
        log_joint = problem.values(draws.phi, draws.d)
        sites = problem.sites(rng, draws.phi, draws.d, draws.log_scales)
    log_weights = draws.log_weight + log_joint - expansion.predicted(draws.phi, draws.d) + expansion.constant
    log_weights, pareto_k = smoothed_weights(log_weights)
    usable = pareto_k <= USABLE_K
    if draws.ess < LEAST_ESS:
        warn_user(
            f"the draws of scales have an ESS of {draws.ess:.0f}, below {LEAST_ESS}: how much subjects differ, or "
            "curves bend, is not that of the posterior; use method='nuts'"
        )
    # Of hundreds of subjects' parameters k is about 1, and no weights are usable.
    elif not usable and not (problem.layout.varies and math.isfinite(pareto_k)):
        warn_user(
            f"the Pareto k of the weights of Laplace's approximation is {pareto_k:.2f}, above {USABLE_K}: the draws "
            "are those of the approximation; use method='nuts'"
        )
    rows = systematic_resample(rng, log_weights) if usable else np.arange(num_samples)
    dtype = jnp.result_type(float)
    return LaplacePosterior(
        model,
        {name: site[rows][None].astype(dtype) for name, site in sites.items()},
        {},
        draws_from="Laplace's approximation" + ", resampled by importance weights" * usable,
        pareto_k=max(pareto_k, draws.pareto_k),
        log_evidence=float(np.logaddexp.reduce(log_weights)) - math.log(num_samples),
        restart_heights=heights,
    )


def starts_of_chains(
    key: Array, model: CovariateRoleHMM, data: Trajectories, num_chains: int, progress_bar: bool
) -> tuple[CovariateRoleHMM, dict[str, Array]]:
    """The bound model, and unconstrained latent sites (chain, ...) at draws, so that all chains share their labels."""
    with held_warnings():
        found = laplace_roles(key, model, data, progress_bar=progress_bar)
    rows = np.linspace(0, len(found.sites["log_odds"][0]) - 1, num_chains).round().astype(int)
    return found.model, latent_starts(
        found.model, {name: site[0, rows] for name, site in found.sites.items()}
    )


class Draws(NamedTuple):
    """Draws of the approximation, and their log weights but for the error of the expansion."""

    phi: np.ndarray  # (draw, shared)
    d: np.ndarray  # (draw, row, edge)
    log_scales: np.ndarray  # (draw, scale): of changes of state where subjects vary, then of splines
    log_weight: np.ndarray
    pareto_k: float  # of the weights by which scales were resampled
    ess: float  # of these weights


def condition(
    problem: Problem, expansion: Expansion, log_scales: np.ndarray, damping: float = 0.0
) -> Gaussian:
    """Posterior under an expansion given the logarithms of scales; LinAlgError where it is no maximum.

    With damping, precisions grow by this share of their diagonal, about the place of the expansion.
    """
    shared = problem.layout.shared
    on_phi, on_d = problem.prior(log_scales)
    linear, information = expansion.linear, expansion.information
    precision = information[:, :shared, :shared].sum(0) + np.diag(on_phi)
    pull = linear[:, :shared].sum(0) + on_phi * problem.centre
    own, cross = information[:, shared:, shared:] + np.diag(on_d), information[:, shared:, :shared]
    own_pull = linear[:, shared:].copy()
    if damping:
        more = damping * np.maximum(np.abs(np.diagonal(precision)), 1.0)
        precision, pull = precision + np.diag(more), pull + more * expansion.phi
        more = damping * np.maximum(np.abs(np.diagonal(own, axis1=1, axis2=2)), 1.0)
        own, own_pull = own + more[:, None] * np.eye(own.shape[-1]), own_pull + more * expansion.d
    evidence = problem.layout.conjugate * math.log(2 * math.pi) / 2  # their prior is in the expansion
    root_d = np.linalg.cholesky(own)
    white = np.linalg.solve(root_d, np.concatenate([cross, own_pull[..., None]], axis=2))
    flat = white.reshape(-1, shared + 1)
    products = flat.T @ flat
    precision, pull = precision - products[:-1, :-1], pull - products[:-1, -1]
    evidence += products[-1, -1] / 2 - np.log(np.diagonal(root_d, axis1=1, axis2=2)).sum()
    evidence -= len(own) * log_scales[: len(on_d)].sum()
    precision = (precision + precision.T) / 2
    root = np.linalg.cholesky(precision)
    phi = np.linalg.solve(precision, pull)
    evidence += pull @ phi / 2 - np.log(np.diagonal(root)).sum()
    known = (on_phi > 0) & np.isfinite(on_phi)
    evidence += (np.log(on_phi[known]).sum() - (on_phi * problem.centre**2).sum()) / 2
    return Gaussian(phi, root, root_d, white, float(evidence))


def find_mode(problem: Problem, expansion: Expansion, log_scales: np.ndarray) -> Expansion:
    """The expansion at the mode of all parameters given the scales, by damped Newton steps."""
    on_phi, on_d = problem.prior(log_scales)
    sizes = 0.5 ** np.arange(TOGETHER)

    def log_prior(phi: np.ndarray, d: np.ndarray) -> Any:
        return -((phi - problem.centre) ** 2 @ on_phi + (d**2 @ on_d).sum(-1)) / 2

    damping = 0.0
    for _ in range(MOST_STEPS):
        height = expansion.value + log_prior(expansion.phi, expansion.d)
        while True:
            try:
                target = condition(problem, expansion, log_scales, damping)
                step, step_d = target.phi - expansion.phi, target.d(target.phi) - expansion.d
                if not damping and _decrement(problem, expansion, step, step_d, on_phi, on_d) < DECREMENT_TOL:
                    return expansion
                phi = expansion.phi + sizes[:, None] * step
                d = expansion.d + sizes[:, None, None] * step_d
                heights = problem.values(phi, d) + log_prior(phi, d)
                best = int(np.argmax(heights))
                if heights[best] > height:
                    break
                if not damping and heights[best] > height - 1e-9 * (1 + abs(height)):
                    return expansion  # rounding hides what is left
            except np.linalg.LinAlgError:
                pass
            damping = max(10 * damping, 1e-3)
            if damping > MOST_DAMPING:
                raise RuntimeError(
                    "Newton's method found no higher density: the mode of the role HMM was not found; give fewer "
                    "states, or other keys"
                )
        expansion = problem.expand(phi[best], d[best])
        damping = damping / 10 if damping > 1e-4 else 0.0
    raise RuntimeError(
        f"Newton's method did not converge in {MOST_STEPS} steps: the mode of the role HMM was not found; give fewer "
        "states or covariates"
    )


def _decrement(
    problem: Problem,
    expansion: Expansion,
    step: np.ndarray,
    step_d: np.ndarray,
    on_phi: np.ndarray,
    on_d: np.ndarray,
) -> float:
    """What the expansion expects a full step to gain in log density."""
    shared = problem.layout.shared
    slope = expansion.gradient[:, :shared].sum(0) - on_phi * (expansion.phi - problem.centre)
    slope_d = expansion.gradient[:, shared:] - on_d * expansion.d
    return float(slope @ step + (slope_d * step_d).sum()) / 2


def _mode(problem: Problem, phi: np.ndarray, d: np.ndarray) -> tuple[Expansion, np.ndarray]:
    """The expansion at the mode, with the logarithms of scales at theirs, from a start."""
    from scipy.optimize import minimize

    expansion = problem.expand(phi, d)
    x = np.full(problem.num_scales, math.log(FIRST_SCALE))
    for _ in range(MOST_STEPS):
        expansion = find_mode(problem, expansion, x)
        if not len(x):
            break
        objective = functools.partial(_slope, _scale_density(problem, expansion))
        before, x = x, minimize(objective, x, jac=True, method="BFGS").x
        if np.abs(x - before).max() < SCALE_TOL:
            break
    return expansion, x


def _without_saddles(problem: Problem, expansion: Expansion) -> Expansion:
    """The expansion with a maximum along differences of subjects, whatever their prior.

    Where the likelihood of a subject curves upwards, a wide prior would put it far away: there the curvature is
    mirrored, and such that the gain is at most half a nat.
    """
    shared = problem.layout.shared
    sizes, axes = np.linalg.eigh(expansion.information[:, shared:, shared:])
    along = np.einsum("iab,ia->ib", axes, expansion.gradient[:, shared:])
    least = np.where(sizes < 0, np.maximum(-sizes, along**2), sizes)
    information = expansion.information.copy()
    information[:, shared:, shared:] += (axes * (least - sizes)[:, None]) @ np.swapaxes(axes, 1, 2)
    return expansion._replace(information=information)


def _scale_density(problem: Problem, expansion: Expansion) -> Any:
    """Log density of the logarithms of scales under the expansion, up to a constant; their prior is half-normal(1)."""

    def density(x: np.ndarray) -> float:
        try:
            evidence = condition(problem, expansion, x).evidence
        except np.linalg.LinAlgError:
            return -np.inf
        return evidence + float((x - np.exp(2 * x) / 2).sum()) + len(x) * math.log(2 / math.pi) / 2

    return density


def _slope(density: Any, x: np.ndarray) -> tuple[float, np.ndarray]:
    """Minus the density and its slope, by central differences."""
    steps = DIFFERENCE * np.eye(len(x))
    slope = [(density(x + step) - density(x - step)) / (2 * DIFFERENCE) for step in steps]
    return -density(x), -np.asarray(slope)


def _draws(rng: Any, problem: Problem, expansion: Expansion, log_scales: np.ndarray, count: int) -> Draws:
    """Draws of scales and parameters, and log weights but for the error of the expansion."""
    size = len(log_scales)
    if size:
        density = _scale_density(problem, expansion)
        steps = DIFFERENCE * np.eye(size)
        slopes = [
            _slope(density, log_scales + step)[1] - _slope(density, log_scales - step)[1] for step in steps
        ]
        curvature = np.asarray(slopes) / (2 * DIFFERENCE)
        sizes, axes = np.linalg.eigh((curvature + curvature.T) / 2)
        spread = WIDER / np.sqrt(np.maximum(sizes, LEAST_CURVATURE))
        tried = PROPOSALS * count
        noise = rng.normal(size=(tried, size)) / np.sqrt(rng.chisquare(DEGREES, (tried, 1)) / DEGREES)
        log_t = np.log1p((noise**2).sum(1) / DEGREES) * -(DEGREES + size) / 2 - np.log(spread).sum()
        log_t += gammaln((DEGREES + size) / 2) - gammaln(DEGREES / 2) - size / 2 * math.log(DEGREES * math.pi)
        x = log_scales + (noise * spread) @ axes.T
        ratios = np.array([density(one) for one in x]) - log_t
        smoothed, pareto_k = smoothed_weights(ratios)
        ess = math.exp(2 * np.logaddexp.reduce(smoothed) - np.logaddexp.reduce(2 * smoothed))
        x = x[systematic_resample(rng, smoothed)[::PROPOSALS]]
        gaussians = [condition(problem, expansion, one) for one in x]
        log_weight = np.full(count, np.logaddexp.reduce(ratios) - math.log(tried))
    else:
        x, pareto_k, ess = np.zeros((count, 0)), -math.inf, math.inf
        gaussians = [condition(problem, expansion, log_scales)] * count
        log_weight = np.full(count, gaussians[0].evidence)
    phi, d = zip(*(_draw(rng, one) for one in gaussians), strict=True)
    return Draws(np.stack(phi), np.stack(d), x, log_weight, pareto_k, ess)


def _draw(rng: Any, gaussian: Gaussian) -> tuple[np.ndarray, np.ndarray]:
    """One draw of phi and d."""
    phi = gaussian.phi + np.linalg.solve(gaussian.root.T, rng.normal(size=len(gaussian.phi)))
    return phi, gaussian.d(phi, rng.normal(size=gaussian.white.shape[:-1]))
