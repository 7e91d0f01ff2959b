r"""Laplace's approximation of the posterior of choices, its draws weighted by the joint density.

The log likelihood of each subject's values is replaced by its expansion to second order at the mode,
:math:`\ell_i(\theta) \approx c_i + b_i'\theta - \theta' L_i \theta / 2`. Values and their mean over subjects are then
Gaussian, and what is left of a variance that has a prior is

.. math:: \ln p(\kappa) + \ln \int p(\mathrm{loc}) \prod_i N(\theta_i; \mathrm{loc}, \kappa)\,
          e^{c_i + b_i'\theta_i - \theta_i' L_i \theta_i / 2}\, d\theta\, d\mathrm{loc},

whose mode and curvature give a multivariate t for the logarithms of the variances. Expansion and variances alternate
until neither moves: Breslow and Clayton (1993), "Approximate inference in generalized linear mixed models". The ratio
of the joint density to that of the draws is the error of the expansion, times that of the t. Ratios are smoothed, and
their Pareto k says whether they have the moments that estimates need: Vehtari, Simpson, Gelman, Yao, Gabry (2024),
"Pareto smoothed importance sampling".
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array, lax
from jax.scipy.special import logsumexp
from numpyro.distributions import biject_to
from scipy.special import gammaln

from ethogram.inference.draws import Draws, FitStatistics
from ethogram.inference.pareto_weights import smoothed_weights, systematic_resample
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import warn_user
from ethogram.models.choices.choice_problem import ChoiceProblem, information, padded_count
from ethogram.models.choices.decisions import Decisions, weights_of
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import (
    WRITTEN_OUT,
    log_ndtr,
    log_probability,
    placed_nodes,
    winner_mode,
)
from ethogram.models.model_object import model_object
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "USABLE_K",
    "LaplacePosterior",
    "chosen_gaps",
    "expand",
    "find_mode",
    "laplace_choices",
    "prior_variance",
    "units",
]

USABLE_K = 0.7
"""Pareto k up to which estimates by the weights are right (Vehtari and others 2024, section 3.3)."""

EXPANSION_NODES = 16
"""Quadrature nodes for the mode: errors of a log probability are below 1e-7 with 3 options, 1e-5 with 100."""

WEIGHT_NODES = 10
"""Quadrature nodes for the weights: from ten decisions on the error of a log weight is about .001 (30 options).

With few decisions it is tens of nats for draws far from the mode, of weight below 1e-5; where the weight counts, up to
.002 with 3 or 4 options, and .25 with 2 decisions among 100.
"""

MOST_STEPS = 100
"""Of Newton's method, and of the alternation with the variances."""

STEP_TOL = 1e-4
"""Newton's method ends where no value moves by more, in posterior standard deviations."""

VARIANCE_TOL = 1e-4
"""The alternation ends where no log variance moves by more."""

DIFFERENCE = 1e-3
"""Step of the differences for derivatives in log variances."""

DEGREES = 5
"""Degrees of freedom of the t of log variances, whose posterior is skewed."""

LEAST_CURVATURE = 0.04
"""Least curvature of the log density of a log variance, whose t is then at most five wide."""

ROUNDING = 1e-12
"""Relative rounding of the log joint density, by which a step of Newton's method may lower it."""

LEAST_GAP = -6.0
"""Of a chosen option to another at the mode, for products in place of sums of logarithms: probabilities then are above
e-24, and single precision reaches down to e-87."""

CHUNK = 250
"""Draws that are weighted in one call of a compiled program."""


@model_object
class LaplacePosterior(SampledPosterior):
    """Draws from Laplace's approximation, resampled by their weights.

    Attributes
    ----------
    mode : the expansion's place, by site.
    covariance : (parameter, parameter) of theta at the mode; (subject, parameter, parameter) given loc and kappa.
    pareto_k : of the weights: below .5 they have a variance, above .7 the draws are not those of the posterior.
    log_evidence : ln p(choices), from the mean weight; NaN under a flat prior.
    """

    mode: Any = None
    covariance: Any = None
    pareto_k: float = math.nan
    log_evidence: float = math.nan

    def draws_for_export(self, key: Array, num_draws: int) -> Draws:
        """All draws, with the Pareto k of their weights."""
        found = super().draws_for_export(key, num_draws)
        names = ("pareto_k", "log_evidence")
        statistics: FitStatistics = {name: ((), np.asarray(getattr(self, name))) for name in names}
        return found._replace(fit=statistics)


class ChosenGaps(NamedTuple):
    """How much features of the chosen options exceed those of the others, in decisions that say something."""

    gaps: Any  # (option, decision, parameter), in units of about a posterior standard deviation
    others: Any  # (option, decision) booleans: which other options there are
    weight: Any  # (decision,), zero where padded
    subject: Any  # (decision,)


class Expansion(NamedTuple):
    """Log likelihood, gradient and information (subject, ...) of the values of each subject, at theta."""

    theta: np.ndarray
    value: np.ndarray
    gradient: np.ndarray
    information: np.ndarray

    @property
    def linear(self) -> np.ndarray:
        """The factor b (subject, parameter) of theta."""
        return self.gradient + np.einsum("ipq,iq->ip", self.information, self.theta)

    @property
    def constant(self) -> float:
        """The sum of the constants c."""
        return float(np.sum(self.value) - np.sum((self.gradient + self.linear) * self.theta) / 2)

    def predicted(self, theta: np.ndarray) -> np.ndarray:
        """Changes of the log likelihood (draw,) from here to theta (draw, subject, parameter)."""
        step = theta - self.theta
        curved = np.einsum("nip,ipq,niq->n", step, self.information, step)
        return np.einsum("nip,ip->n", step, self.gradient) - curved / 2


class Conditional(NamedTuple):
    """The Gaussian of all values and of their mean, given the variances, under an expansion."""

    loc: np.ndarray  # (parameter,), zero without subjects
    loc_precision: np.ndarray | None  # None without subjects
    theta: np.ndarray  # (subject, parameter), at this loc
    precision: np.ndarray  # (subject, parameter, parameter) of theta given loc
    evidence: float  # log integral of the expansion less its constant; under a flat prior up to a constant


def laplace_choices(
    key: Array, model: NoisyMDP, data: Decisions | ChoiceProblem, *, num_samples: int = 1000
) -> LaplacePosterior:
    """Draws from Laplace's approximation, resampled by weights that the joint density gives them.

    Parameters
    ----------
    num_samples : number of draws.

    Warns
    -----
    UserWarning
        The choices are separated, or the Pareto k of the weights is above .7.
    """
    problem = model.check(data)
    model.warn_of_separation(problem)
    model.warn_of_prior(problem)
    data = problem.data
    chosen, unit = chosen_gaps(model, problem)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    loc_variance = None if data.subject is None else float(model.loc_kappa) / unit**2
    count = data.num_subjects or 1
    if isinstance(model.kappa, dist.Distribution):
        draws, log_weights, expansion, conditional = _with_variances(
            rng, model, data, chosen, unit, loc_variance, num_samples
        )
    else:
        variance = prior_variance(model, data, model.kappa) / unit**2
        expansion, conditional = find_mode(chosen, variance, loc_variance, num_subjects=count)
        draws = _draw(rng, conditional, variance, num_samples)
        log_weights = np.full(num_samples, conditional.evidence)
    size = CHUNK * -(-num_samples // CHUNK)
    theta = np.resize(draws["theta"], (size, *expansion.theta.shape)).astype(jnp.result_type(float))
    near = _is_near(chosen, expansion.theta)
    ratios = [
        _log_ratios(chosen, part, expansion.theta.astype(part.dtype), near)
        for part in theta.reshape(-1, CHUNK, *theta.shape[1:])
    ]
    change = np.concatenate(ratios)[:num_samples].astype(float)
    log_weights = log_weights + expansion.constant + change - expansion.predicted(draws["theta"])
    log_weights, pareto_k = smoothed_weights(log_weights)
    if pareto_k > USABLE_K:
        warn_user(
            f"the Pareto k of the weights of Laplace's approximation is {pareto_k:.2f}, above {USABLE_K}: the draws "
            "are not those of the posterior; use method='nuts'"
        )
    rows = systematic_resample(rng, log_weights)
    mode = {"theta": conditional.theta * unit, "loc": conditional.loc * unit}
    covariance = np.linalg.inv(conditional.precision) * np.outer(unit, unit)
    draws = {name: site if name == "kappa" else site * unit for name, site in draws.items()}
    if data.subject is None:
        mode, covariance = {"theta": mode["theta"][0]}, covariance[0]
        draws = {name: site for name, site in draws.items() if name != "loc"} | {
            "theta": draws["theta"][:, 0]
        }
    dtype = jnp.result_type(float)
    return LaplacePosterior(
        model,
        model.with_parts({name: site[rows][None].astype(dtype) for name, site in draws.items()}, data),
        {},
        draws_from="Laplace's approximation, resampled by importance weights",
        mode=mode,
        covariance=covariance,
        pareto_k=pareto_k,
        log_evidence=math.nan
        if model.flat
        else float(np.logaddexp.reduce(log_weights)) - math.log(num_samples),
    )


def chosen_gaps(model: NoisyMDP, problem: ChoiceProblem) -> tuple[ChosenGaps, np.ndarray]:
    """The decisions that say something, padded to a size that others share, and the unit (parameter,) of theta."""
    data = problem.data
    legal, choice, design = np.asarray(data.legal), np.asarray(data.choice), np.asarray(problem.design, float)
    weight = weights_of(data, known=True)
    kept = (weight > 0) & (legal.sum(-1) > 1)
    legal, choice, design, weight = legal[kept], choice[kept], design[kept], weight[kept]
    subject = np.zeros(len(choice), int) if data.subject is None else np.asarray(data.subject)[kept]
    rest = (choice[:, None] + np.arange(1, legal.shape[1])) % legal.shape[1]
    others = np.take_along_axis(legal, rest, 1)
    chosen = np.take_along_axis(design, choice[:, None, None], 1)
    gaps = np.where(others[..., None], chosen - np.take_along_axis(design, rest[..., None], 1), 0)
    unit = units(problem)
    missing = padded_count(len(choice)) - len(choice)
    parts = (np.swapaxes(gaps * unit, 0, 1), others.T, weight, subject)
    widths: Any = ((0, 0), (0, missing), (0, 0)), ((0, 0), (0, missing)), (0, missing), (0, missing)
    return ChosenGaps(*(np.pad(x, width) for x, width in zip(parts, widths, strict=True))), unit


def units(problem: ChoiceProblem) -> np.ndarray:
    """About the posterior standard deviations (parameter,) of theta, in whatever units the features are."""
    return 1 / np.sqrt(np.maximum(information(problem).sum(0), 1 / 25))


def prior_variance(model: NoisyMDP, data: Decisions, kappa: Any) -> np.ndarray:
    """Prior variances (parameter,) of theta given kappa."""
    counts, *each = model.variances(kappa, data)
    parts = [np.broadcast_to(np.asarray(one, float), count) for count, one in zip(counts, each, strict=True)]
    return np.concatenate(parts)


def expand(chosen: ChosenGaps, theta: np.ndarray) -> Expansion:
    """The log likelihood at theta (subject, parameter), to second order and in double precision."""
    with jax.enable_x64(True):
        return Expansion(theta, *map(np.asarray, _expansion(chosen, theta)))


@quick_jit(calls=2**6)
def _expansion(chosen: ChosenGaps, theta: Array) -> tuple[Array, Array, Array]:
    gaps, others, weight, subject = chosen
    count = len(gaps)

    def log_likelihood(at):
        each = jnp.where(weight > 0, weight * log_probability(at, others, EXPANSION_NODES), 0)
        return jnp.sum(each), each

    def slopes(at):
        return jax.grad(log_likelihood, has_aux=True)(at)

    def of_subjects(each):
        return jnp.zeros((len(theta), *each.shape[1:]), each.dtype).at[subject].add(each)

    def along(direction):  # of the gaps (option, decision)
        return jax.jvp(lambda at: slopes(at)[0], (at,), (direction,))[1]

    at = jnp.einsum("jdp,dp->jd", gaps, theta[subject], precision="highest")
    slope, each = slopes(at)
    by_parameter = jnp.moveaxis(gaps, -1, 0)
    if count < len(by_parameter):  # derivatives by utilities, where these are fewer than parameters
        basis = jnp.broadcast_to(jnp.eye(count)[..., None], (count, *at.shape))
        hessian = lax.map(along, basis)

        def curved(direction):
            return jnp.sum(hessian * direction[:, None], axis=0)
    else:
        curved = along
    information = lax.map(lambda one: of_subjects(jnp.einsum("jdp,jd->dp", gaps, curved(one))), by_parameter)
    gradient = of_subjects(jnp.einsum("jdp,jd->dp", gaps, slope))
    return of_subjects(each), gradient, -jnp.moveaxis(information, 0, -1)


def _is_near(chosen: ChosenGaps, theta: np.ndarray) -> bool:
    """Whether no choice is so improbable at theta that products of normal probabilities underflow there."""
    at = np.einsum("jdp,dp->jd", chosen.gaps, theta[chosen.subject])
    return 1 < len(at) <= WRITTEN_OUT and bool((at > LEAST_GAP).all())


@quick_jit(calls=lambda *args: 2**11 if args[-1] else 2**16, static_argnames="near")
def _log_ratios(chosen: ChosenGaps, theta: Array, centre: Array, near: bool) -> Array:
    """Log likelihoods (draw,) at theta (draw, subject, parameter), relative to that at the centre.

    By decision, since single precision would round the differences of sums away; with the nodes of the centre. Those of
    products that underflow all the same are ``-inf``.
    """
    gaps, others, weight, subject = (x.astype(theta.dtype) if x.dtype.kind == "f" else x for x in chosen)

    def at(one):
        return jnp.einsum("jdp,dp->jd", gaps, one[subject], precision="highest")

    nodes, log_weights = placed_nodes(winner_mode(at(centre), others), WEIGHT_NODES)

    def of_option(terms, option):
        gap, there = option
        return terms + jnp.where(there, log_ndtr(jnp.where(there, nodes + gap, 0)), 0), None

    def step(base, one):
        if len(gaps) < 2:
            value = log_probability(at(one), others, WEIGHT_NODES)  # in closed form
        elif near:  # a product of 2 Phi: half the time of sums of logarithms
            below = jnp.exp(log_weights)
            for gap, there in zip(at(one), others, strict=True):
                below *= jnp.where(there, jax.scipy.special.erfc(-math.sqrt(0.5) * (nodes + gap)), 1)
            value = jnp.log(jnp.sum(below, axis=0))
        else:
            written_out = len(gaps) <= WRITTEN_OUT
            value = logsumexp(
                lax.scan(of_option, log_weights, (at(one), others), unroll=written_out)[0], axis=0
            )
        base = jnp.where(jnp.isnan(base), value, base)  # of the first, which is the centre
        return base, jnp.sum(jnp.where(weight > 0, weight * (value - base), 0))

    return lax.scan(
        step, jnp.full(len(weight), jnp.nan, theta.dtype), jnp.concatenate([centre[None], theta])
    )[1][1:]


def condition(expansion: Expansion, variance: np.ndarray, loc_variance: np.ndarray | None) -> Conditional:
    """Posterior under an expansion, given the prior variances (parameter,) of theta, and of loc where it has one."""
    known, linear = 1 / variance, expansion.linear
    precision = expansion.information + np.diag(known)
    theta = np.linalg.solve(precision, linear[..., None])[..., 0]
    finite = np.isfinite(variance)
    evidence = (linear * theta).sum() / 2 - np.linalg.slogdet(precision)[1].sum() / 2
    evidence -= len(theta) * np.log(variance, where=finite, out=np.zeros_like(variance)).sum() / 2
    if loc_variance is None:
        return Conditional(np.zeros_like(variance), None, theta, precision, float(evidence))
    # K - K (L + K)^-1 K, written without the cancellation.
    shrunk = known[:, None] * np.linalg.solve(precision, expansion.information).sum(0)
    of_loc = np.diag(1 / loc_variance) + (shrunk + shrunk.T) / 2
    pull = known * theta.sum(0)
    loc = np.linalg.solve(of_loc, pull)
    evidence += pull @ loc / 2 - np.linalg.slogdet(of_loc)[1] / 2 - np.log(loc_variance).sum() / 2
    theta = (
        theta + np.linalg.solve(precision, np.broadcast_to((known * loc)[:, None], (*theta.shape, 1)))[..., 0]
    )
    return Conditional(loc, of_loc, theta, precision, float(evidence))


def find_mode(
    chosen: ChosenGaps,
    variance: np.ndarray,
    loc_variance: np.ndarray | None = None,
    start: tuple[Expansion, np.ndarray] | None = None,
    num_subjects: int = 1,
) -> tuple[Expansion, Conditional]:
    """The mode of values and their mean given the variances, and the expansion there, by Newton's method.

    Raises
    ------
    RuntimeError
        Newton's method does not converge in 100 steps.
    """

    def log_joint(expansion, loc):
        prior = ((expansion.theta - loc) ** 2 / variance).sum()
        return (
            expansion.value.sum()
            - (prior + (0 if loc_variance is None else (loc**2 / loc_variance).sum())) / 2
        )

    if start is None:
        loc = np.zeros_like(variance)
        here = expand(chosen, np.zeros((num_subjects, len(variance))))
    else:
        here, loc = start
    for _ in range(MOST_STEPS):
        target = condition(here, variance, loc_variance)
        step, step_loc = target.theta - here.theta, target.loc - loc
        deviation = np.sqrt(np.diagonal(np.linalg.inv(target.precision), axis1=1, axis2=2))
        if np.abs(step / deviation).max() < STEP_TOL:
            return here, target
        size, height = 1.0, log_joint(here, loc)
        while True:
            moved = expand(chosen, here.theta + size * step)
            if (
                log_joint(moved, loc + size * step_loc) >= height - ROUNDING * (1 + abs(height))
                or size < 1e-9
            ):
                break
            size /= 2
        here, loc = moved, loc + size * step_loc
    raise RuntimeError(
        f"Newton's method did not converge in {MOST_STEPS} steps: the mode of the choices was not found"
    )


def _draw(rng: Any, conditional: Conditional, variance: np.ndarray, num_draws: int) -> dict[str, np.ndarray]:
    """Draws of loc (draw, parameter) and theta (draw, subject, parameter), in units."""
    loc, of_loc, theta, precision, _ = conditional
    noise = rng.normal(size=(num_draws, *theta.shape))
    root = np.swapaxes(np.linalg.cholesky(precision), 1, 2)
    draws = theta + np.moveaxis(np.linalg.solve(root, np.moveaxis(noise, 0, -1)), -1, 0)
    if of_loc is None:
        return {"loc": np.zeros((num_draws, len(loc))), "theta": draws}
    step = np.linalg.solve(
        np.linalg.cholesky(of_loc).T, rng.normal(size=(len(loc), num_draws))
    )  # (parameter, draw)
    moved = np.linalg.solve(precision, np.broadcast_to((step.T / variance).T, (len(theta), *step.shape)))
    return {"loc": loc + step.T, "theta": draws + np.moveaxis(moved, -1, 0)}


def _with_variances(
    rng: Any,
    model: NoisyMDP,
    data: Decisions,
    chosen: ChosenGaps,
    unit: np.ndarray,
    loc_variance: np.ndarray | None,
    num_draws: int,
) -> tuple[dict[str, np.ndarray], np.ndarray, Expansion, Conditional]:
    """Draws where variances have priors, their log weights under the expansion, and the latter with its Gaussian."""
    from scipy.optimize import minimize

    shape = model.shape_of_kappa(data)
    count = math.prod(shape)

    def at(x):
        """Kappa (row, ...), variances of theta in units (row, parameter) and log prior densities at x (row, ...)."""
        with jax.enable_x64(True):
            kappa, density = map(np.asarray, _log_prior(model, x))
        kappa = kappa.reshape(-1, *shape)
        return kappa, np.stack([prior_variance(model, data, one) / unit**2 for one in kappa]), density

    def log_density(x):
        _, variance, density = at(x)
        return density + [condition(expansion, one, loc_variance).evidence for one in variance]

    offsets = DIFFERENCE * np.concatenate([np.zeros((1, count)), np.eye(count), -np.eye(count)])

    def negative(x):
        height = log_density(x + offsets)
        return -height[0], -(height[1 : count + 1] - height[count + 1 :]) / (2 * DIFFERENCE)

    x, start = np.zeros(count), None
    for _ in range(MOST_STEPS):
        variance = at(x + offsets)[1][0]
        expansion, conditional = find_mode(chosen, variance, loc_variance, start, data.num_subjects or 1)
        start = expansion, conditional.loc
        before, x = x, minimize(negative, x, jac=True, method="BFGS").x
        if np.abs(x - before).max() < VARIANCE_TOL:
            break
    slopes = np.stack([negative(x + offset)[1] for offset in offsets[1:]])
    curvature = (slopes[:count] - slopes[count:]) / (2 * DIFFERENCE)
    sizes, axes = np.linalg.eigh((curvature + curvature.T) / 2)
    spread = 1 / np.sqrt(np.maximum(sizes, LEAST_CURVATURE))
    noise = rng.normal(size=(num_draws, count)) / np.sqrt(rng.chisquare(DEGREES, (num_draws, 1)) / DEGREES)
    log_t = np.log1p((noise**2).sum(1) / DEGREES) * -(DEGREES + count) / 2 - np.log(spread).sum()
    log_t += gammaln((DEGREES + count) / 2) - gammaln(DEGREES / 2) - count / 2 * math.log(DEGREES * math.pi)
    kappa, variance, density = at(x + (noise * spread) @ axes.T)
    each = [condition(expansion, one, loc_variance) for one in variance]
    drawn = [_draw(rng, one, part, 1) for one, part in zip(each, variance, strict=True)]
    draws = {name: np.concatenate([one[name] for one in drawn]) for name in ("loc", "theta")}
    return {"kappa": kappa, **draws}, density + [one.evidence for one in each] - log_t, expansion, conditional


@quick_jit
def _log_prior(model: NoisyMDP, x: Array) -> tuple[Array, Array]:
    """Variances (row, variance) at unconstrained x, and the log prior density (row,) of x."""
    transform = biject_to(model.kappa.support)
    kappa = transform(x)
    return kappa, jnp.sum(model.kappa.log_prob(kappa) + transform.log_abs_det_jacobian(x, kappa), axis=-1)
