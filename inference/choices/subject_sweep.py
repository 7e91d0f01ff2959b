r"""One sweep of PX-DA for subjects about their population: latent utilities, a scale, and all values at once.

Values are :math:`\theta_i = B z_i + \delta_i` with :math:`\delta_i \sim N(0, \Omega)`, and
:math:`B \sim N(0, V)` (:mod:`~ethogram.models.choices.subject_values`). Given the values of a subject its scale is not
inverse gamma, as their mean is not zero. With B and all :math:`\delta_i` summed out it is, one scale for all subjects:
of shape (n - g) / 2 as in :mod:`~ethogram.inference.choices.gibbs_sweep`, and of rate

.. math:: Q / 2 = y'(I + X \Lambda^{-1} X')^{-1} y / 2, \qquad
          \Lambda = \mathrm{diag}(V^{-1}, I \otimes \Omega^{-1})

over the design that stacks those of B and of the :math:`\delta_i`. Q given B instead would be wrong. B and the
:math:`\delta_i` are then drawn jointly, by a Cholesky factor per subject and one of the size of B.

Covariances are drawn by the conjugate conditionals of Huang and Wand (2013), variances with other priors by a slice
of the logarithm; then all deviations with the latents in place of the values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from jax.scipy.linalg import cho_solve, cholesky, solve_triangular
from numpyro.distributions import biject_to

from ethogram.inference.choices.gibbs_sweep import (
    Move,
    ProbitProblem,
    fitted,
    latents_of_subjects,
    scale_shape,
)
from ethogram.inference.choices.latent_utilities import draw_latents
from ethogram.inference.choices.slice_draw import draw_log_variances
from ethogram.models.choices.covariance_noise import inverse_wishart
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.subject_values import (
    DEGREES,
    SubjectValues,
    require_rows,
    standardised,
    subject_values,
)

__all__ = [
    "Population",
    "draw_factors",
    "draw_values",
    "first_population",
    "grams",
    "subject_precision",
    "sweep_subjects",
]


RIDGE = 1e-6
"""Precision of the proposal of deviations beside that of the likelihood, which may have none."""


class Population(NamedTuple):
    """What the prior of the values of one chain depends on; of several, with a leading chain axis."""

    coefficients: Any  # B (1 + subject feature, parameter), of which the first row is loc
    spread: Any  # covariance (random, random), log_kappa (...), or None where kappa is a number


def first_population(model: NoisyMDP, data: Decisions, num_chains: int) -> Population:
    """Means of zero; variances in the middle of the support of their prior, or 1."""
    require_rows(model, data)
    found, dtype = subject_values(model, data), jnp.result_type(float)
    spread: Any = None
    if model.correlated:
        spread = np.broadcast_to(
            np.eye(len(found.random), dtype=dtype), (num_chains, *[len(found.random)] * 2)
        )
    elif isinstance(model.kappa, dist.Distribution):
        middle = np.log(float(biject_to(model.kappa.support)(0.0)))
        spread = np.full((num_chains, *model.shape_of_kappa(data)), middle, dtype)
    count = 1 + len(model.subject_feature_names or ())
    return Population(np.zeros((num_chains, count, len(found.signs)), dtype), spread)


def sweep_subjects(
    key: Array,
    model: NoisyMDP,
    data: Decisions,
    problem: ProbitProblem,
    gram: Array,
    theta: Array,
    latents: Array,
    population: Population,
    move: Move,
    winner: str,
) -> tuple[Array, Array, Array, Population]:
    """Theta (subject, parameter, chain), latents, scales (chain,) and population after a sweep of all chains."""
    key_latents, *keys = jax.random.split(key, 1 + theta.shape[-1])

    def draw(means, legal, latents):
        return draw_latents(key_latents, means, legal, latents, winner=winner)

    latents = latents_of_subjects(draw, problem, theta, latents)
    found, (rows, row_precision) = subject_values(model, data), _rows_of_subjects(model, data)

    def of_chain(key, latents, population):
        key_values, key_spread = jax.random.split(key)
        precision = subject_precision(model, found, population.spread)
        drawn = draw_values(
            key_values, problem, gram, latents, precision, found.random, rows, row_precision, move
        )
        theta, coefficients, latents, scale = drawn
        if population.spread is None:
            return theta, latents, scale, Population(coefficients, None)
        key_spread, key_factors = jax.random.split(key_spread)
        means, random = rows @ coefficients, found.random
        apart = (theta - means)[:, random]
        spread = _draw_spread(key_spread, model, found, apart, population.spread)
        # The normal equations of factors of these parts, given the latents.
        cross = jnp.einsum(
            "iac,inc,in->ia",
            problem.axes,
            problem.design,
            latents.reshape(len(theta), -1),
            precision="highest",
        )
        side = cross[:, random] - (gram[:, random, : theta.shape[1]] @ means[..., None])[..., 0]
        squares = gram[:, random][:, :, random]
        spread, factor = draw_factors(key_factors, model, found, spread, apart, squares, side)
        return theta.at[:, random].add((factor - 1) * apart), latents, scale, Population(coefficients, spread)

    return jax.vmap(of_chain, in_axes=(0, -1, 0), out_axes=(-1, -1, 0, 0))(
        jnp.stack(keys), latents, population
    )


def grams(problem: ProbitProblem) -> Array:
    """X'X (subject, parameter, parameter) of the design of each subject."""
    return jnp.einsum("iac,ic,ibc->iab", problem.axes, problem.squares, problem.axes, precision="highest")


def _rows_of_subjects(model: NoisyMDP, data: Decisions) -> tuple[Array, Array]:
    """Features z (subject, 1 + subject feature), and prior precisions (1 + subject feature, 1) of the rows of B."""
    ones = jnp.ones((data.num_subjects or 0, 1))
    if model.subject_features is None:
        return ones, jnp.ones((1, 1)) / model.loc_kappa
    apart, deviation = standardised(jnp.asarray(model.subject_features, float))
    precision = jnp.append(jnp.ones(1), deviation**2)[:, None] / model.loc_kappa
    return jnp.concatenate([ones, apart], axis=1), precision


def subject_precision(model: NoisyMDP, found: SubjectValues, spread: Any) -> Array:
    """Precision (random, random) of the values of subjects about their means."""
    if model.correlated:
        root = cholesky(spread, lower=True)
        return cho_solve((root, True), jnp.eye(len(found.random), dtype=root.dtype))
    kappa = model.kappa if spread is None else jnp.exp(spread)
    return jnp.diag(1 / found.variance(kappa, model.action_rewards if model.rewards == "own" else 1.0))


def draw_values(
    key: Array,
    problem: ProbitProblem,
    gram: Array,
    latents: Array,
    precision: Array,
    random: np.ndarray,
    rows: Array,
    row_precision: Array,
    move: Move,
) -> tuple[Array, Array, Array, Array]:
    """Theta (subject, parameter), B, latents on the model's scale and the scale, of one chain, given its latents.

    Parameters
    ----------
    problem : of :func:`~ethogram.inference.choices.gibbs_sweep.subject_problems`, with its `grams`.
    latents : (subject, option, decision).
    precision : (random, random) of the parameters at the places `random`.
    rows : (subject, row) the features of subjects by which the means of all parameters are linear; `row_precision`
        (row, 1) is that of the prior of their coefficients B.
    """
    key_scale, key_means, key_values, key_level = jax.random.split(key, 4)
    legal, counts, dtype = problem.legal[..., 0], problem.counts[..., 0], latents.dtype
    y = latents
    if move.translations == "local":
        y = jnp.where(legal, y - (jnp.sum(y, axis=1) / jnp.maximum(counts, 1))[:, None], 0)
    exact: Any = {"precision": "highest"}
    axes = problem.axes
    flat = y.reshape(len(y), -1)
    cross = jnp.einsum("iac,inc,in->ia", axes, problem.design, flat, **exact)
    if move.translations == "one":  # a level per subject, with a flat prior; without decisions any will do
        alone = jnp.zeros((len(y), len(random) + 1, len(random) + 1), dtype)
        alone = alone.at[:, -1, -1].set(jnp.sum(counts, axis=1) == 0)
        precision, random = jnp.pad(precision, (0, 1)) + alone, np.append(random, axes.shape[1] - 1)
    count = axes.shape[1] - (move.translations == "one")
    # Of each subject, with its random part summed out.
    root = cholesky(gram[:, random][:, :, random] + precision, lower=True)
    onto = solve_triangular(root, gram[:, random, :count], lower=True)
    moved = solve_triangular(root, cross[:, random, None], lower=True)
    left = gram[:, :count, :count] - jnp.swapaxes(onto, 1, 2) @ onto
    pull = cross[:, :count] - (jnp.swapaxes(onto, 1, 2) @ moved)[..., 0]
    # S - S (S + K)^-1 S = S (S + K)^-1 K, without the cancellation.
    own = random[random < count]
    known = solve_triangular(root, jnp.broadcast_to(precision, root.shape)[..., : len(own)], lower=True)
    stable = jnp.swapaxes(onto, 1, 2) @ known
    left = left.at[:, own].set(jnp.swapaxes(stable, 1, 2)).at[:, :, own].set(stable)
    pull = pull.at[:, own].set((jnp.swapaxes(known, 1, 2) @ moved)[..., 0])
    size = rows.shape[1] * count
    whole = jnp.einsum("ic,id,ipq->cpdq", rows, rows, left, **exact).reshape(size, size)
    prior = jnp.broadcast_to(row_precision, (rows.shape[1], count)).reshape(-1)
    means_root = cholesky(whole + jnp.diag(prior), lower=True)
    pulled = solve_triangular(
        means_root, jnp.einsum("ic,ip->cp", rows, pull, **exact).reshape(-1), lower=True
    )

    def values(means_side, values_side):
        """B, its means of subjects, and their random parts, given right-hand sides on the factors."""
        coefficients = solve_triangular(means_root, means_side, lower=True, trans=1).reshape(-1, count)
        means = rows @ coefficients
        side = values_side - onto @ means[..., None]
        return coefficients, means, solve_triangular(root, side, lower=True, trans=1)[..., 0]

    def utilities(means, part):
        whole = jnp.zeros(axes.shape[:2], dtype).at[:, :count].set(means).at[:, random].add(part)
        return whole, fitted(problem, whole[..., None])[..., 0].reshape(y.shape)

    scale = jnp.ones((), dtype)
    if move.scale:
        # The residual sum of squares, as a sum: a difference would cancel where values are large against the noise.
        coefficients, means, part = values(pulled, moved)
        rest = jnp.sum((y - utilities(means, part)[1]) ** 2)
        rest += jnp.sum(part * (jnp.broadcast_to(precision, root.shape) @ part[..., None])[..., 0])
        rest += jnp.sum(prior * coefficients.reshape(-1) ** 2)
        scale = rest / 2 / jax.random.gamma(key_scale, scale_shape(counts, move), (), dtype)
    unit = jnp.sqrt(scale)
    coefficients, means, part = values(
        pulled / unit + jax.random.normal(key_means, pulled.shape, dtype),
        moved / unit + jax.random.normal(key_values, moved.shape, dtype),
    )
    theta = utilities(means, part)[0][:, :count]
    after = y / unit
    if move.translations == "one":
        after = after - part[:, -1][:, None, None]
    elif move.translations == "local":
        level = jax.random.normal(key_level, counts.shape, dtype)
        after = after + (level / jnp.sqrt(jnp.maximum(counts, 1)))[:, None]
    return theta, coefficients, jnp.where(legal, after, 0), scale


def _draw_spread(key: Array, model: NoisyMDP, found: SubjectValues, apart: Array, spread: Array) -> Array:
    """A covariance, or logarithms of variances, given values (subject, random) about their means."""
    if not model.correlated:
        owner = _owners(found)
        number = len(apart) * owner.sum(0)
        return draw_log_variances(key, model.kappa, spread, number, jnp.sum(apart**2, axis=0) @ owner)
    key_rate, key_matrix = jax.random.split(key)
    count = apart.shape[1]
    rate = DEGREES * jnp.diagonal(subject_precision(model, found, spread)) + 1 / model.kappa
    inverse = jax.random.gamma(key_rate, (DEGREES + count) / 2, (count,), apart.dtype) / rate
    matrix = 2 * DEGREES * jnp.diag(inverse) + apart.T @ apart
    return inverse_wishart(key_matrix, DEGREES + count - 1 + len(apart), cholesky(matrix, lower=True))


def _owners(found: SubjectValues) -> np.ndarray:
    """Which entry of kappa (random, entry) is the variance of a parameter, as zeros and ones."""
    return (found.owner[:, None] == np.arange(max(found.owner.max(initial=-1) + 1, 1))).astype(float)


def draw_factors(
    key: Array,
    model: NoisyMDP,
    found: SubjectValues,
    spread: Array,
    apart: Array,
    squares: Array,
    side: Array,
) -> tuple[Array, Array]:
    r"""The spread and factors (random,) of values about their means, given latents, correlations and their ratios.

    Where deviations are small, or subjects have few decisions, the conditional given the values hardly moves. Given
    :math:`\eta = \delta / \sigma`, latents are linear in :math:`\sigma`: a draw from this likelihood is accepted by
    the ratio of its prior. Yu and Meng (2011), "To center or not to center", interweave both. The likelihood of factors
    c has :math:`-c' M c / 2 + b' c`, with squares (subject, random, random) and side (subject, random) of regressions.
    """
    key_noise, key_accept = jax.random.split(key)
    owner = np.eye(apart.shape[1]) if model.correlated else _owners(found)
    held = 1 - owner.sum(1)  # rewards with a variance of their own
    side = side - (squares @ (held * apart)[..., None])[..., 0]
    weighted = jnp.einsum("ip,ipq,iq->pq", apart, squares, apart, precision="highest")
    if model.correlated:
        known, now = jnp.diagonal(subject_precision(model, found, spread)), jnp.diagonal(spread)

        def log_prior(factor):
            shape = (DEGREES + len(known)) / 2
            return -shape * jnp.sum(jnp.log(DEGREES * known + factor**2 / model.kappa))
    else:
        now = jnp.exp(jnp.atleast_1d(spread))

        def log_prior(factor):
            kappa = factor**2 * now
            inside = model.kappa.support(kappa)
            density = model.kappa.log_prob(jnp.where(inside, kappa, 1)) + jnp.log(jnp.abs(factor))
            return jnp.sum(jnp.where(inside, density, -jnp.inf))

    ridge = RIDGE * now  # constant in the deviations, so that the way back has the same
    root = cholesky(owner.T @ weighted @ owner + jnp.diag(ridge), lower=True)
    centre = cho_solve((root, True), owner.T @ jnp.sum(apart * side, axis=0))
    noise = jax.random.normal(key_noise, centre.shape, centre.dtype)
    factor, one = centre + solve_triangular(root, noise, lower=True, trans=1), jnp.ones_like(centre)
    log_ratio = log_prior(factor) - log_prior(one) + jnp.sum(ridge * (factor**2 - 1)) / 2
    taken = jnp.log(jax.random.uniform(key_accept)) < log_ratio
    factor = jnp.where(taken, factor, one)
    each = owner @ factor + held
    if model.correlated:
        return spread * jnp.outer(each, each), each
    return spread + jnp.reshape(2 * jnp.log(jnp.abs(factor)), spread.shape), each
