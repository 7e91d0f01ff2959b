r"""Laplace's approximation of latent classes of choosers, at the highest of the modes that several starts reach.

With the log shares :math:`\ln\pi_{sc}` and log likelihoods :math:`\ell_{sc}` of the decisions of subject s in class c,
and :math:`r_{sc}` the probability of the class given them, the negative Hessian of
:math:`\sum_s \ln \sum_c \pi_{sc} e^{\ell_{sc}}` is the information of complete data less that which the classes hide,

.. math:: \sum_{sc} r_{sc} I_{sc} - \sum_{sc} r_{sc} (u_{sc} - \bar u_s)(u_{sc} - \bar u_s)', \qquad
          u_{sc} = \nabla (\ln\pi_{sc} + \ell_{sc}), \quad \bar u_s = \sum_c r_{sc} u_{sc}.

Steps are Newton's where this is positive definite; elsewhere as much is left out of the second term as it takes. With
none of it they are those of the EM gradient algorithm, which go up: Louis (1982), "Finding the observed information
matrix when using the EM algorithm"; Lange (1995), "A gradient algorithm locally equivalent to the EM algorithm". Draws
of a t there are weighted by the joint density, as those of :mod:`~ethogram.inference.choices.laplace`.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.special import gammaln, log_softmax, logsumexp

from ethogram.inference.choices.choice_expansion import (
    RIPPLE,
    ROUNDING,
    ChosenGaps,
    chosen_gaps,
    derivatives,
    prior_variance,
)
from ethogram.inference.choices.laplace import log_ratios
from ethogram.inference.laplace_posterior import USABLE_K, LaplacePosterior
from ethogram.inference.pareto_weights import smoothed_weights, systematic_resample
from ethogram.models.arguments import require_integer, warn_user
from ethogram.models.choices.choice_problem import padded_count
from ethogram.models.choices.decisions import Decisions, weights_of
from ethogram.models.choices.latent_classes import ClassProblem, LatentClasses
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.value_priors import sum_zero
from ethogram.models.quick_jit import quick_jit

__all__ = ["by_class", "class_probabilities", "laplace_classes", "starts_of_chains"]

RESTARTS = 10
"""Starts of the search."""
FIRST_STEPS, FINALISTS = 8, 4
"""Steps of every start, and how many of the highest places go on."""
MOST_STEPS = 200
"""Of a search that ends."""
DECREMENT_TOL = 1e-8
"""A search ends where the expansion expects no higher gain in log density, in nats."""
LEFT_OUT = (0.0, 0.1, 0.3, 1.0)
"""Shares of the information that classes hide that are left out, until the rest is positive definite."""
LEAST_DRAWS = 100
"""Of which chains start at some."""
DEGREES = 20
"""Degrees of freedom of the t that draws come from: those of a Gaussian have weights of larger variance."""
NO_MODE = f"no start reached a mode of the latent classes in {MOST_STEPS} steps: give fewer classes, or more restarts"
OWN = 0.9
"""Probability of a subject's class in a start."""


class Target(NamedTuple):
    """The log joint density of x: membership (class - 1, column) per deviation, then values (class, parameter)."""

    tiled: ChosenGaps  # decisions repeated for every class; their subjects are pairs (subject, class)
    columns: np.ndarray  # (subject, column) of membership, per standard deviation
    basis: np.ndarray  # (class, class - 1)
    precision: np.ndarray  # (x,) of the prior
    unit: np.ndarray  # (parameter,)

    def split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Membership (..., class - 1, column), and values (..., class, parameter) in units."""
        count, free, columns = *self.basis.shape, self.columns.shape[1]
        cut = free * columns
        shape = x.shape[:-1]
        return x[..., :cut].reshape(*shape, free, columns), x[..., cut:].reshape(*shape, count, -1)

    def log_share(self, membership: np.ndarray) -> np.ndarray:
        """Log probabilities (..., subject, class) of the classes."""
        return log_softmax(np.einsum("cf,...fk,sk->...sc", self.basis, membership, self.columns), axis=-1)

    def by_class(self, theta: np.ndarray) -> list[np.ndarray]:
        """Log likelihoods, slopes and information (subject, class, ...) at values (class, parameter) in units."""
        subjects, count = len(self.columns), len(theta)
        found = derivatives(self.tiled, np.tile(theta, (padded_count(subjects), 1)))
        return [each[: subjects * count].reshape(subjects, count, *each.shape[1:]) for each in found]


class Place(NamedTuple):
    """The log joint density at x, its gradient, both parts of its negative Hessian, and log densities by class."""

    x: np.ndarray
    value: float
    gradient: np.ndarray
    complete: np.ndarray
    hidden: np.ndarray
    log_joint: np.ndarray  # (subject, class), of the class and the choices

    def curvature(self, classes_known: bool) -> tuple[np.ndarray, bool]:
        """Negative Hessian (x, x), or what is positive definite of it, and whether that is all."""
        for share in LEFT_OUT[-1:] if classes_known else LEFT_OUT:
            found = self.complete - (1 - share) * self.hidden
            try:
                np.linalg.cholesky(found)
            except np.linalg.LinAlgError:
                continue
            return found, share == 0.0 or classes_known
        return np.diag(np.abs(np.diagonal(self.complete)) + 1.0), False  # noise that is not log-concave


def make_target(model: LatentClasses, problem: ClassProblem) -> Target:
    """The log joint density of a model and its decisions."""
    # As many subjects as have decisions take part; classes are tiled along the decisions.
    owned = problem.pooled._replace(data=problem.pooled.data._replace(subject=problem.subject))
    chosen, unit = chosen_gaps(model.base, owned)
    count, size = model.num_classes, len(chosen.weight)
    classes = np.repeat(np.arange(count), size)
    tiled = chosen._replace(
        gaps=np.tile(chosen.gaps, (1, count, 1)),
        others=np.tile(chosen.others, (1, count)),
        weight=np.tile(chosen.weight, count),
        subject=np.tile(chosen.subject, count) * count + classes,
    )
    variance = prior_variance(model.base, problem.pooled.data, model.base.kappa) / unit**2
    columns = problem.columns * np.asarray(1 / model.deviation())
    free = (count - 1) * columns.shape[1]
    precision = np.concatenate([np.full(free, 2 / model.membership_kappa), np.tile(1 / variance, count)])
    return Target(tiled, np.asarray(columns, float), sum_zero(count), precision, unit)


def evaluate(target: Target, x: np.ndarray) -> Place:
    """The log joint density at x, to second order and in double precision."""
    membership, theta = target.split(x)
    (subjects, columns), (count, free) = target.columns.shape, target.basis.shape
    size, cut = theta.shape[1], free * columns
    value, slope, curved = target.by_class(theta)
    log_share = target.log_share(membership)
    log_joint = log_share + value
    total = logsumexp(log_joint, axis=1, keepdims=True)
    own, share = np.exp(log_joint - total), np.exp(log_share)
    lean = target.basis - (share @ target.basis)[:, None]  # (subject, class, free)
    score = np.zeros((subjects, count, len(x)))
    score[..., :cut] = np.einsum("scf,sk->scfk", lean, target.columns).reshape(subjects, count, cut)
    complete = np.diag(target.precision)
    spread = np.einsum("sc,scf,scg->sfg", share, lean, lean)
    complete[:cut, :cut] += np.einsum("sfg,sk,sl->fkgl", spread, target.columns, target.columns).reshape(
        cut, cut
    )
    by_class = np.einsum("sc,scpq->cpq", own, curved)
    for at in range(count):
        place = slice(cut + at * size, cut + (at + 1) * size)
        score[:, at, place] = slope[:, at]
        complete[place, place] += by_class[at]
    mean = np.einsum("sc,scx->sx", own, score)
    apart = (np.sqrt(own)[..., None] * (score - mean[:, None])).reshape(-1, len(x))
    height = float(total.sum() - target.precision @ x**2 / 2)
    return Place(x, height, mean.sum(0) - target.precision * x, complete, apart.T @ apart, log_joint)


def ascend(
    target: Target, here: Place, most: int = MOST_STEPS, classes_known: bool = False
) -> tuple[Place, bool]:
    """The place that steps upwards lead to, and whether it is a mode."""
    for _ in range(most):
        curvature, whole = here.curvature(classes_known)
        step = np.linalg.solve(curvature, here.gradient)
        if here.gradient @ step / 2 < DECREMENT_TOL:
            return here, whole
        error = ROUNDING if target.tiled.noise.log_concave else RIPPLE
        size, least = 1.0, here.value - error * (1 + abs(here.value))
        while not (moved := evaluate(target, here.x + size * step)).value >= least:
            size /= 2
            if size < 1e-9:
                return here, False
        here = moved
    return here, False


def find_modes(rng: Any, target: Target, restarts: int) -> tuple[Place, np.ndarray]:
    """The highest of the modes that starts reach, and the heights of all that were followed to their end.

    Starts are clusters of subjects, by what one step of Newton's method from the mode without classes makes of each.

    Raises
    ------
    RuntimeError
        No start reaches a mode.
    """
    count = len(target.basis)
    pooled, _ = ascend(target, evaluate(target, np.zeros(len(target.precision))), classes_known=True)
    if count == 1:
        return pooled, np.array([pooled.value])
    theta, subjects = target.split(pooled.x)[1], len(target.columns)
    _, slope, curved = (each[:, 0] for each in target.by_class(theta))
    prior = np.diag(target.precision[-theta.shape[1] :])
    own = np.linalg.solve(curved + curved.mean(0) + prior, slope[..., None])[..., 0]
    features = own @ np.linalg.cholesky(curved.mean(0) + prior)
    places = []
    for number in range(restarts):
        chance = _clusters(rng, features, count) if number else rng.dirichlet(np.full(count, 0.5), subjects)
        places.append(evaluate(target, _start(target, theta, chance, slope, curved, prior)))
    first = [ascend(target, place, FIRST_STEPS)[0] for place in places]
    best = np.argsort([-place.value for place in first], kind="stable")[:FINALISTS]
    found = [ascend(target, first[at]) for at in best]
    heights = np.array([place.value for place, _ in found])
    modes = [place for place, is_mode in found if is_mode]
    if not modes:
        raise RuntimeError(NO_MODE)
    return max(modes, key=lambda place: place.value), heights


def _clusters(rng: Any, features: np.ndarray, count: int) -> np.ndarray:
    """Probabilities (subject, class) of a clustering of the subjects."""
    from scipy.cluster.vq import kmeans2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of clusters without a subject
        _, label = kmeans2(features, count, minit="++", rng=rng)
    return np.where(label[:, None] == np.arange(count), OWN, (1 - OWN) / (count - 1))


def _start(
    target: Target,
    theta: np.ndarray,
    chance: np.ndarray,
    slope: np.ndarray,
    curved: np.ndarray,
    prior: np.ndarray,
) -> np.ndarray:
    """The x of one step of EM from the same values (class, parameter) in all classes, given their probabilities."""
    information = np.einsum("sc,spq->cpq", chance, curved) + prior
    step = np.linalg.solve(information, (chance.T @ slope - theta @ prior)[..., None])[..., 0]
    membership = np.zeros(target.split(np.zeros(len(target.precision)))[0].shape)
    membership[:, 0] = target.basis.T @ np.log(chance.mean(0))
    return np.concatenate([membership.ravel(), (theta + step).ravel()])


class Approximation(NamedTuple):
    """Draws of the Gaussian at the mode, and their log weights by the joint density, smoothed."""

    target: Target
    mode: Place
    draws: np.ndarray  # (draw, x)
    log_weights: np.ndarray
    pareto_k: float
    log_evidence: float
    heights: np.ndarray


def approximate(
    rng: Any, model: LatentClasses, problem: ClassProblem, num_samples: int, restarts: int
) -> Approximation:
    """Laplace's approximation at the highest mode, its classes in the order of their shares."""
    target = make_target(model, problem)
    concave = target.tiled.noise.concave()
    mode, heights = find_modes(rng, target._replace(tiled=target.tiled._replace(noise=concave)), restarts)
    if not target.tiled.noise.log_concave:  # whose modes lie near those of the other
        mode, is_mode = ascend(target, evaluate(target, mode.x))
        if not is_mode:
            raise RuntimeError(NO_MODE)
    own = np.exp(mode.log_joint - logsumexp(mode.log_joint, axis=1, keepdims=True))
    mode = evaluate(target, _permuted(target, mode.x, np.argsort(-own.sum(0), kind="stable")))
    root = np.linalg.cholesky(mode.complete - mode.hidden)
    noise = rng.normal(size=(num_samples, len(mode.x)))
    noise *= np.sqrt(DEGREES / rng.chisquare(DEGREES, (num_samples, 1)))
    log_noise = np.log1p((noise**2).sum(1) / DEGREES) * -(DEGREES + len(mode.x)) / 2
    draws = mode.x + np.linalg.solve(root.T, noise.T).T
    membership, theta = target.split(draws)
    subjects, count = len(target.columns), len(target.basis)
    classes = target.tiled.subject % count
    ratios = log_ratios(
        target.tiled._replace(subject=classes),
        theta,
        target.split(mode.x)[1],
        model.base.choice_noise(),
        (target.tiled.subject, padded_count(subjects) * count),
    )[:, : subjects * count]
    before = mode.log_joint - target.log_share(target.split(mode.x)[0])
    change = np.array(
        [
            logsumexp(target.log_share(one) + before + ratio.reshape(subjects, count), axis=1).sum()
            for one, ratio in zip(membership, ratios, strict=True)
        ]
    )
    log_weights = change - draws**2 @ target.precision / 2 - mode.value - log_noise
    log_weights, pareto_k = smoothed_weights(log_weights)
    evidence = mode.value + np.log(target.precision).sum() / 2 - np.log(np.diagonal(root)).sum()
    evidence += (
        gammaln(DEGREES / 2) - gammaln((DEGREES + len(mode.x)) / 2) + len(mode.x) / 2 * math.log(DEGREES / 2)
    )
    evidence += np.logaddexp.reduce(log_weights) - math.log(num_samples)
    return Approximation(target, mode, draws, log_weights, pareto_k, float(evidence), heights)


def _permuted(target: Target, x: np.ndarray, order: np.ndarray) -> np.ndarray:
    """The x of the same classes in another order."""
    membership, theta = target.split(x)
    moved = target.basis.T @ (target.basis @ membership)[order]
    return np.concatenate([moved.ravel(), theta[order].ravel()])


def laplace_classes(
    key: Array,
    model: LatentClasses,
    data: Decisions | ClassProblem,
    *,
    num_samples: int = 1000,
    restarts: int = RESTARTS,
) -> LaplacePosterior:
    """Draws from Laplace's approximation at the best mode, resampled by weights that the joint density gives them.

    Their log evidence is that of one order of the classes: of C, ln p(choices) is larger by ln C!.

    Parameters
    ----------
    num_samples : number of draws.
    restarts : starts of the search.

    Warns
    -----
    UserWarning
        The choices are separated, or the Pareto k of the weights is above .7.

    Raises
    ------
    RuntimeError
        No start reaches a mode.
    """
    require_integer("restarts", restarts, 1)
    problem = model.check(data)
    model.base.warn_of_separation(problem.pooled)
    model.base.warn_of_prior(problem.pooled)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    found = approximate(rng, model, problem, num_samples, restarts)
    if not found.pareto_k <= USABLE_K:
        warn_user(
            f"the Pareto k of the weights of Laplace's approximation is {found.pareto_k:.2f}, above {USABLE_K}: the "
            "draws are not those of the posterior; use method='nuts'"
        )
    dtype = jnp.result_type(float)

    def sites_at(x: np.ndarray) -> dict[str, np.ndarray]:
        membership, theta = found.target.split(x)
        sites = {"theta": theta * found.target.unit, "membership": np.asarray(model.from_free(membership))}
        parts = [
            model.parts({name: site[at] for name, site in sites.items()}, problem) for at in range(len(x))
        ]
        sites |= {name: np.stack([part[name] for part in parts]) for name in parts[0]}
        return {name: site.astype(dtype) for name, site in sites.items()}

    rows = systematic_resample(rng, found.log_weights)
    sites = sites_at(found.draws[rows])
    order = np.argsort(model.state_positions(sites, data), kind="stable")
    mode = sites_at(found.mode.x[None])
    return LaplacePosterior(
        model,
        {name: site[:, order][None] for name, site in sites.items()},
        {},
        draws_from="Laplace's approximation, resampled by importance weights",
        mode={name: site[0, order] for name, site in mode.items()},
        pareto_k=found.pareto_k,
        log_evidence=found.log_evidence,
        restart_heights=found.heights,
    )


def starts_of_chains(
    key: Array, model: LatentClasses, problem: ClassProblem, num_chains: int, restarts: int
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Unconstrained starts (chain, ...) by site, draws at the best mode; the covariance of x there; units of theta."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    found = approximate(rng, model, problem, max(num_chains, LEAST_DRAWS), restarts)
    rows = systematic_resample(rng, found.log_weights)
    rows = rows[np.linspace(0, len(rows) - 1, num_chains).round().astype(int)]
    membership, theta = found.target.split(found.draws[rows])
    covariance = np.linalg.inv(found.mode.complete - found.mode.hidden)
    return {"membership_free": membership, "theta_scaled": theta}, covariance, found.target.unit


def by_class(
    model: LatentClasses, draws: Any, data: Decisions
) -> tuple[NoisyMDP, dict[str, np.ndarray], Decisions]:
    """Model, draws and decisions in which classes are the subjects, for effects and willingness to pay by class.

    Every decision is there once for each class, its weight times the mean probability of the class given the choices of
    the subject, so that shares, elasticities and surplus are those of all subjects; change features of what comes back.

    Parameters
    ----------
    draws : the sites of a fit of `model`, ``fit.result.sites``.
    data : decisions of its subjects.
    """
    sites = {name: np.asarray(draws[name]) for name in model.needed_sites()}
    sites = {name: site.reshape(-1, *site.shape[-2:]) for name, site in sites.items()}
    found, count = model.entries(data), model.num_classes
    known = np.asarray(class_probabilities(model, sites, found.batch, found.value), float).mean(0)
    weight = weights_of(data)[:, None] * known[np.asarray(data.subject)]
    names = dataclasses.replace(data.metadata, subject_names=tuple(f"class {at}" for at in range(count)))
    features, legal, choice = (np.asarray(getattr(data, name)) for name in ("features", "legal", "choice"))
    repeated = data._replace(
        features=np.tile(features, (count, 1, 1)),
        legal=np.tile(legal, (count, 1)),
        choice=np.tile(choice, count),
        subject=np.repeat(np.arange(count), len(choice)),
        weight=weight.T.ravel(),
        metadata=names,
    )
    return model.base, {"theta": sites["theta"]}, repeated


@quick_jit(calls=2**10)
def class_probabilities(model: LatentClasses, draws: Any, batch: ClassProblem, value: Any) -> Array:
    """Probabilities (draw, subject, class) of the classes given the choices of the subjects."""
    return jax.lax.map(lambda one: model.likelihood(one, batch).smooth(value), draws)
