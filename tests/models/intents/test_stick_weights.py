"""Shared weights: densities against their definitions, and steps against what a general optimiser finds."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import optimize, stats
from scipy.special import gammaln

from ethogram.models.intents.stick_weights import StickWeights, fit_to_counts, maximised, terms_of_rows

ALPHA, GAMMA = np.float64(3.0), 2.5


block_step = jax.jit(fit_to_counts)


@jax.jit
def coordinate_step(block, alpha, logs):
    return maximised(block, terms_of_rows(alpha, logs))


def block(weights, density="stick"):
    return StickWeights(*map(jax.device_put, (weights, GAMMA)), density)


def log_density(weights):
    """From the sticks: their Beta densities over those at 0."""
    rest = 1 - np.concatenate([[0.0], np.cumsum(weights[:-1])])
    sticks = weights[:-1] / rest[:-1]
    value = stats.beta.logpdf(sticks, 1, GAMMA).sum()
    unused = stats.beta.logpdf(np.zeros_like(sticks), 1, GAMMA).sum()
    return value - unused


def test_log_density_is_that_of_the_sticks():
    weights = np.random.default_rng(0).dirichlet(np.ones(5))
    np.testing.assert_allclose(
        jax.jit(lambda b: b.log_density())(block(weights)), log_density(weights), rtol=1e-12
    )


def counts_objective(weights, counts):
    prior = ALPHA * weights
    after = prior + np.pad(counts, ((0, 0), (0, 1)))
    return (gammaln(after) - gammaln(prior)).sum() + log_density(weights)


def rows_objective(weights, logs):
    prior = ALPHA * weights
    return (prior * logs).sum() - len(logs) * gammaln(prior).sum() + log_density(weights)


def best(objective, size):
    """The highest of many local maxima over the simplex, in log-ratio coordinates."""

    def negative(y):
        weights = np.exp(np.append(y, 0) - np.logaddexp.reduce(np.append(y, 0)))
        return -objective(np.maximum(weights, 1e-300))

    starts = np.random.default_rng(1).normal(size=(3, size - 1))
    return max(-optimize.minimize(negative, start, method="BFGS").fun for start in starts)


def test_the_block_step_finds_the_maximum():
    random = np.random.default_rng(0)
    counts = random.gamma(0.3, size=(20, 3)) * np.array([9.0, 3.0, 0.3])
    start = block(np.full(4, 0.25))
    weights = np.asarray(block_step(start, ALPHA, counts).natural)
    assert weights.min() > 0 and weights.sum() == pytest.approx(1, abs=1e-12)
    reached = counts_objective(weights, counts)
    np.testing.assert_allclose(reached, best(lambda w: counts_objective(w, counts), 4), atol=1e-6)


def test_the_coordinate_step_finds_the_maximum():
    random = np.random.default_rng(0)
    rows = random.dirichlet([5.0, 3.0, 1.0, 1.0], size=20)
    logs = np.log(rows)
    start = block(np.full(4, 0.25))
    weights = np.asarray(coordinate_step(start, ALPHA, logs).natural)
    reached = rows_objective(weights, logs)
    np.testing.assert_allclose(reached, best(lambda w: rows_objective(w, logs), 4), atol=1e-6)


def test_no_step_loses():
    """From anywhere, also far from the maximum, and mapped over starts that gain at different shares."""
    random = np.random.default_rng(4)
    starts = random.dirichlet(np.full(6, 0.3), size=8)
    starts = (starts + 1e-6) / (starts + 1e-6).sum(1, keepdims=True)
    logs = np.log(random.dirichlet(np.full(6, 0.4), size=12) + 1e-9)
    step = lambda w, logs: coordinate_step(block(w), ALPHA, logs).natural  # noqa: E731
    moved = jax.jit(jax.vmap(step, in_axes=(0, None)))(starts, logs)
    for before, after in zip(starts, np.asarray(moved), strict=True):
        assert rows_objective(after, logs) >= rows_objective(before, logs) - 1e-9


def test_a_state_without_counts_keeps_the_least_weight():
    counts = np.zeros((20, 3))
    counts[:, 0] = 4.0
    weights = np.asarray(block_step(block(np.full(4, 0.25)), ALPHA, counts).natural)
    assert (weights > 0).all() and np.isfinite(np.log(weights)).all()
    assert weights[1] == weights[2] < 1e-6


def test_fixed_weights_stay():
    start = block(np.full(4, 0.25), "fixed")
    assert fit_to_counts(start, ALPHA, jax.device_put(np.ones((2, 3)))) is start
    assert start.log_density() == 0


@pytest.mark.slow
def test_rows_held_and_rows_profiled_out_count_together():
    """Some rows by their counts, some where q holds them, one of these not taken: many steps end at the maximum."""
    random = np.random.default_rng(5)
    counts = random.gamma(0.5, 4, size=(6, 3))
    logs = np.log(random.dirichlet(np.ones(4), size=5))
    taken = np.array([True, True, False, True, True])

    def objective(weights):
        return (
            counts_objective(weights, counts) + rows_objective(weights, logs[taken]) - (log_density(weights))
        )

    moved = block(np.full(4, 0.25))
    for _ in range(30):
        moved = block_step(moved, ALPHA, counts, logs, taken)
    np.testing.assert_allclose(objective(np.asarray(moved.natural)), best(objective, 4), rtol=1e-7)
