"""Constrained Dirichlet rows: optimality conditions, and SLSQP as the thing compared with."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize
from scipy.special import digamma, gammaln, polygamma

from ethogram.inference.constrained import check_targets, project_rows


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def objective(row, free):
    """By the definition: log B(eta) - KL, in NumPy."""
    total = row.sum(-1)
    kl = (
        gammaln(total)
        - gammaln(row).sum(-1)
        - gammaln(free.sum(-1))
        + gammaln(free).sum(-1)
        + ((row - free) * (digamma(row) - digamma(total)[..., None])).sum(-1)
    )
    return gammaln(free).sum(-1) - gammaln(free.sum(-1)) - kl


def gradient(row, free):
    total = row.sum(-1, keepdims=True)
    away = free - row
    return polygamma(1, row) * away - polygamma(1, total) * away.sum(-1, keepdims=True)


def by_slsqp(free, target, starts=8):
    """The best end of SLSQP from random starts."""
    random = np.random.default_rng(0)
    held = ~np.isnan(target)
    best = -np.inf
    for _ in range(starts):
        constraint = {"type": "eq", "fun": lambda y: np.exp(y)[held] - target[held] * np.exp(y).sum()}
        start = np.log(free) + random.normal(size=len(free))
        with np.errstate(all="ignore"):
            result = optimize.minimize(
                lambda y: -objective(np.exp(y), free),
                start,
                method="SLSQP",
                constraints=constraint,
                options={"ftol": 1e-14},
            )
        mean = np.exp(result.x) / np.exp(result.x).sum()
        if np.abs(mean - target)[held].max() < 1e-9:
            best = max(best, -result.fun)
    return best


def random_rows(seed, count, size=11):
    """Rows of the kind that a sweep meets: few counts, and one or two means given."""
    random = np.random.default_rng(seed)
    free = 3 * random.dirichlet(np.ones(size), count) + random.gamma(0.2, 20, (count, size))
    target = np.full((count, size), np.nan)
    for row in range(count):
        entries = random.choice(size, random.integers(1, 3), replace=False)
        share = random.uniform(0.05, 0.95) * random.dirichlet(np.ones(len(entries) + 1))[:-1]
        target[row, entries] = share + 1e-3
    return free, target


@pytest.mark.slow
def test_ten_thousand_rows_meet_the_optimality_conditions_in_one_call():
    """Gradient along the constraint surface, in log coordinates, beside the size of its terms."""
    free, target = random_rows(1, 10_000)
    result = project_rows(free, target)
    row = np.asarray(result.concentration)
    held, known = ~np.isnan(target), np.nan_to_num(target)
    total = row.sum(-1, keepdims=True)
    assert np.abs(np.where(held, row / total - known, 0)).max() < 1e-12
    slope = gradient(row, free)
    rest = 1 - known.sum(-1, keepdims=True)
    shared = (known * slope).sum(-1, keepdims=True) / rest
    along = np.where(held, 0, (slope + shared) * row)
    size = np.abs(polygamma(1, row) * (free - row) * row).sum(-1, keepdims=True) + 1
    assert np.asarray(result.converged).mean() > 0.999
    assert np.quantile(np.abs(along / size).max(-1), 0.999) < 1e-7


@pytest.mark.slow
def test_no_run_of_slsqp_is_better():
    free, target = random_rows(2, 40, 5)
    ours = objective(np.asarray(project_rows(free, target).concentration), free)
    theirs = np.array([by_slsqp(*row) for row in zip(free, target, strict=True)])
    assert np.isfinite(theirs).sum() > 30, "too few runs of SLSQP end on the constraint to compare with"
    assert (ours >= theirs - 1e-6).all()


def test_all_means_may_be_given():
    free, target = np.array([[2.0, 3.0, 5.0]]), np.array([[0.5, 0.3, 0.2]])
    row = np.asarray(project_rows(free, target).concentration)[0]
    np.testing.assert_allclose(row / row.sum(), target[0], rtol=1e-12)
    sizes = row.sum() * np.exp(np.linspace(-0.5, 0.5, 41))
    assert np.argmax([objective(size * target[0], free[0]) for size in sizes]) == 20


def test_the_second_start_finds_what_the_symmetric_one_misses():
    """At eta = (1, .02, .02) with a first mean of .1: the symmetric stationary point has 0.073, two maxima 2.682."""
    free = np.array([[1.0, 0.02, 0.02]])
    row = np.asarray(project_rows(free, np.array([[0.1, np.nan, np.nan]])).concentration)
    assert objective(row, free)[0] > 2.68


def test_single_precision_stays_finite():
    free, target = (x.astype(np.float32) for x in random_rows(3, 200))
    with jax.enable_x64(False):
        row = project_rows(jnp.asarray(free), jnp.asarray(target)).concentration
    assert row.dtype == np.float32 and np.isfinite(row).all() and (np.asarray(row) > 0).all()


IMPOSSIBLE = {
    "one": ([1.0, np.nan], "not strictly between 0 and 1"),
    "too much": ([0.6, 0.4, np.nan], "leaves nothing"),
    "too little": ([0.6, 0.3], "do not sum to one"),
}


@pytest.mark.parametrize(("target", "message"), IMPOSSIBLE.values(), ids=IMPOSSIBLE)
def test_means_that_no_row_has_are_named(target, message):
    with pytest.raises(ValueError, match=message):
        check_targets("stay", [target])
