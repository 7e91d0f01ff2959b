r"""The log likelihood of choices to second order, and the posterior mode by Newton's method.

:math:`\ell_i(\theta) \approx c_i + b_i'\theta - \theta' L_i \theta / 2` for the values of subject i, in whatever
noise. Noise that is not log-concave (Student t, lapses) leaves several modes: there the search starts from zero and
from the mode of a log-concave noise, and the negative directions of L are left out.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from scipy.special import gammaln

from ethogram.models.choices.choice_distribution import ChoiceNoise
from ethogram.models.choices.choice_problem import ChoiceProblem, information, padded_count
from ethogram.models.choices.decisions import Decisions, weights_of
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "DEGREES",
    "RIPPLE",
    "ROUNDING",
    "ChosenGaps",
    "Conditional",
    "Expansion",
    "chosen_gaps",
    "condition",
    "derivatives",
    "draw_values",
    "expand",
    "find_mode",
    "log_t",
    "prior_variance",
    "units",
]

EXPANSION_NODES = 16
"""Quadrature nodes for the mode: errors of a log probability are below 1e-7 with 3 options, 1e-5 with 100."""

ALONG = 4
"""Directions of second derivatives at a time."""

DEGREES = 5
"""Degrees of freedom of the t of what has a skewed posterior: log variances, logits of lapse probabilities, and values
where the noise is not log-concave."""

MOST_STEPS = 100
"""Of Newton's method."""

STEP_TOL = 1e-4
"""Newton's method ends where no value moves by more, in posterior standard deviations."""

ROUNDING, RIPPLE = 1e-12, 1e-6
"""Relative error of the log joint density, by which a step of Newton's method may lower it: of rounding, and of
quadratures that place their nodes by the values."""


class ChosenGaps(NamedTuple):
    """How much features of the chosen options exceed those of the others, in decisions that say something."""

    gaps: Any  # (option, decision, parameter), in units of about a posterior standard deviation
    others: Any  # (option, decision) booleans: which other options there are
    weight: Any  # (decision,), zero where padded
    subject: Any  # (decision,)
    noise: ChoiceNoise


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


def chosen_gaps(model: NoisyMDP, problem: ChoiceProblem) -> tuple[ChosenGaps, np.ndarray]:
    """The decisions that say something, padded to a size that others share, and the unit (parameter,) of theta.

    A lapse probability that has a prior is at its mean.
    """
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
    arrays = [np.pad(x, width) for x, width in zip(parts, widths, strict=True)]
    lapse: dict[str, Any] = {"lapse": float(model.lapse.mean)} if "lapse" in model.needed_sites() else {}
    return ChosenGaps._make([*arrays, model.choice_noise(lapse)]), unit


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
    value, gradient, curved = derivatives(chosen, theta)
    if not chosen.noise.log_concave:
        sizes, axes = np.linalg.eigh((curved + np.swapaxes(curved, 1, 2)) / 2)
        curved = axes * np.maximum(sizes, 0)[:, None] @ np.swapaxes(axes, 1, 2)
    return Expansion(theta, value, gradient, curved)


def derivatives(chosen: ChosenGaps, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log likelihood, gradient and observed information (subject, ...) at theta (subject, parameter)."""
    with jax.enable_x64(True):
        return tuple(map(np.asarray, _expansion(chosen, theta)))  # type: ignore[return-value]


@quick_jit(calls=2**6)
def _expansion(chosen: ChosenGaps, theta: Array) -> tuple[Array, Array, Array]:
    gaps, others, weight, subject, noise = chosen
    count, alone = len(gaps), len(theta) == 1

    def log_likelihood(at):
        each = jnp.where(weight > 0, weight * noise.log_probability(at, others, EXPANSION_NODES), 0)
        return jnp.sum(each), each

    def slopes(at):
        return jax.grad(log_likelihood, has_aux=True)(at)

    def of_subjects(scaled):  # sums of gaps with these factors (option, decision)
        if alone:  # a product takes less time than a scatter
            return jnp.einsum("jdp,jd->p", gaps, scaled, precision="highest")[None]
        each = jnp.einsum("jdp,jd->dp", gaps, scaled)
        return jnp.zeros((len(theta), *each.shape[1:]), each.dtype).at[subject].add(each)

    def along(direction):  # of the gaps (option, decision)
        return jax.jvp(lambda at: slopes(at)[0], (at,), (direction,))[1]

    if alone:
        at = jnp.einsum("jdp,p->jd", gaps, theta[0], precision="highest")
    else:
        at = jnp.einsum("jdp,dp->jd", gaps, theta[subject], precision="highest")
    slope, each = slopes(at)
    by_parameter = jnp.moveaxis(gaps, -1, 0)
    if count < len(by_parameter):  # derivatives by utilities, where these are fewer than parameters
        basis = jnp.broadcast_to(jnp.eye(count)[..., None], (count, *at.shape))
        hessian = lax.map(along, basis, batch_size=ALONG)

        def curved(direction):
            return jnp.sum(hessian * direction[:, None], axis=0)
    else:
        curved = along
    information = lax.map(lambda one: of_subjects(curved(one)), by_parameter, batch_size=ALONG)
    value = jnp.sum(each)[None] if alone else jnp.zeros(len(theta), each.dtype).at[subject].add(each)
    return value, of_subjects(slope), -jnp.moveaxis(information, 0, -1)


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

    Of several modes that with the largest joint density, among those from two starts.

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
        start = expand(chosen, np.zeros((num_subjects, len(variance)))), np.zeros_like(variance)
        if not chosen.noise.log_concave:
            concave = chosen._replace(noise=chosen.noise.concave())
            begun = find_mode(concave, variance, loc_variance, None, num_subjects)[1]
            starts = start, (expand(chosen, begun.theta), begun.loc)
            found = [find_mode(chosen, variance, loc_variance, one, num_subjects) for one in starts]
            return max(found, key=lambda one: log_joint(one[0], one[1].loc))
    here, loc = start
    for _ in range(MOST_STEPS):
        target = condition(here, variance, loc_variance)
        step, step_loc = target.theta - here.theta, target.loc - loc
        deviation = np.sqrt(np.diagonal(np.linalg.inv(target.precision), axis1=1, axis2=2))
        if np.abs(step / deviation).max() < STEP_TOL:
            return here, target
        size, height = 1.0, log_joint(here, loc)
        error = (ROUNDING if chosen.noise.log_concave else RIPPLE) * (1 + abs(height))
        while True:
            moved = expand(chosen, here.theta + size * step)
            if log_joint(moved, loc + size * step_loc) >= height - error or size < 1e-9:
                break
            size /= 2
        here, loc = moved, loc + size * step_loc
    raise RuntimeError(
        f"Newton's method did not converge in {MOST_STEPS} steps: the mode of the choices was not found"
    )


def draw_values(
    rng: Any, conditional: Conditional, variance: np.ndarray, num_draws: int, heavy: bool = False
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Draws of loc (draw, parameter) and theta (draw, subject, parameter), in units, and log ratios (draw,).

    These are of the densities of the Gaussian and of the draws, which with `heavy` are a t about the same mode.
    """
    loc, of_loc, theta, precision, _ = conditional
    noise, log_ratio = rng.normal(size=(num_draws, *theta.shape)), np.zeros(num_draws)
    if heavy:
        noise = noise * np.sqrt(DEGREES / rng.chisquare(DEGREES, (num_draws, len(theta), 1)))
        log_normal = -((noise**2).sum(-1) + theta.shape[1] * math.log(2 * math.pi)) / 2
        log_ratio = (log_normal - log_t(noise)).sum(1)
    root = np.swapaxes(np.linalg.cholesky(precision), 1, 2)
    draws = theta + np.moveaxis(np.linalg.solve(root, np.moveaxis(noise, 0, -1)), -1, 0)
    if of_loc is None:
        return {"loc": np.zeros((num_draws, len(loc))), "theta": draws}, log_ratio
    step = np.linalg.solve(
        np.linalg.cholesky(of_loc).T, rng.normal(size=(len(loc), num_draws))
    )  # (parameter, draw)
    moved = np.linalg.solve(precision, np.broadcast_to((step.T / variance).T, (len(theta), *step.shape)))
    return {"loc": loc + step.T, "theta": draws + np.moveaxis(moved, -1, 0)}, log_ratio


def log_t(noise: np.ndarray) -> np.ndarray:
    """Log densities (...) of the standard t of noise (..., dimension)."""
    count = noise.shape[-1]
    log_density = np.log1p((noise**2).sum(-1) / DEGREES) * -(DEGREES + count) / 2
    log_density += gammaln((DEGREES + count) / 2) - gammaln(DEGREES / 2)
    return log_density - count / 2 * math.log(DEGREES * math.pi)
