"""Constrained Dirichlet rows: optimality conditions, and SLSQP as the thing compared with."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import optimize
from scipy.special import digamma, gammaln, polygamma

from ethogram.models.families.projection import project_rows

SMALL = (64, 11)
"""Rows and entries of most tests, which share a program."""


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


def residual_of_optimality(row, free, lower, upper):
    """Largest violation of the Karush-Kuhn-Tucker conditions of each row, beside the size of the gradient.

    Given means, or bounds that hold with equality, may take any multiplier of the right sign; along the others the
    gradient vanishes.
    """
    total = row.sum(-1, keepdims=True)
    mean = row / total
    at_lower, at_upper = np.abs(mean - lower) < 1e-9, np.abs(mean - upper) < 1e-9
    held = at_lower | at_upper
    known = np.where(held, mean, 0)
    slope = gradient(row, free)
    loose = (~held).any(-1, keepdims=True)
    rest = np.where(loose, 1 - known.sum(-1, keepdims=True), 1)
    shared = np.where(loose, (known * slope).sum(-1, keepdims=True) / rest, 0)
    size = np.abs(polygamma(1, row) * (free - row) * row).sum(-1, keepdims=True) + 1
    along = np.where(held, 0, (slope + shared) * row) / size
    price = np.where(held, (slope + shared) * total, 0) / size
    given = lower >= upper
    wrong = np.where(at_lower & ~given, np.maximum(price, 0), 0) + np.where(
        at_upper & ~given, np.maximum(-price, 0), 0
    )
    return np.maximum(np.abs(along), wrong).max(-1)


def by_slsqp(free, lower, upper, starts):
    """The best end of SLSQP from random starts that keeps to the bounds."""
    random = np.random.default_rng(0)
    given = lower >= upper
    least, most = ~given & (lower > 0), ~given & (upper < 1)
    limits = []
    if given.any():
        limits.append({"type": "eq", "fun": lambda y: np.exp(y)[given] - lower[given] * np.exp(y).sum()})
    if least.any():
        limits.append({"type": "ineq", "fun": lambda y: np.exp(y)[least] - lower[least] * np.exp(y).sum()})
    if most.any():
        limits.append({"type": "ineq", "fun": lambda y: upper[most] * np.exp(y).sum() - np.exp(y)[most]})
    best = -np.inf
    for _ in range(starts):
        start = np.log(free) + random.normal(size=len(free))
        with np.errstate(all="ignore"):
            result = optimize.minimize(
                lambda y: -objective(np.exp(y), free),
                start,
                method="SLSQP",
                constraints=limits,
                options={"ftol": 1e-14},
            )
            mean = np.exp(result.x - result.x.max())
            mean = mean / mean.sum()
        # A run that leaves for rows of 1e180 has no objective left but rounding.
        if result.x.max() < 20 and np.maximum(lower - mean, mean - upper).max() < 1e-9:
            best = max(best, -result.fun)
    return best


def random_rows(seed, count, size=11, kinds=("equal", "least", "most", "between")):
    """Rows of the kind that a sweep meets: few counts, and bounds on one to three means."""
    random = np.random.default_rng(seed)
    free = 3 * random.dirichlet(np.ones(size), count) + random.gamma(0.2, 20, (count, size))
    lower, upper = np.zeros((count, size)), np.ones((count, size))
    for row in range(count):
        entries = random.choice(size, random.integers(1, min(4, size)), replace=False)
        share = random.uniform(0.05, 0.95) * random.dirichlet(np.ones(len(entries) + 1))[:-1] + 1e-3
        for entry, mean in zip(entries, share, strict=True):
            kind = kinds[random.integers(len(kinds))]
            if kind in ("equal", "least", "between"):
                lower[row, entry] = mean
            if kind == "equal":
                upper[row, entry] = mean
            elif kind in ("most", "between"):
                upper[row, entry] = min(1.5 * mean, 0.99)
    return free, lower, upper


GIVEN, BOUNDS = ("equal",), ("equal", "least", "most", "between")


@pytest.mark.parametrize(
    ("kinds", "count"),
    [(GIVEN, 64), (BOUNDS, 64), *(pytest.param(k, 2000, marks=pytest.mark.slow) for k in (GIVEN, BOUNDS))],
)
def test_rows_meet_the_optimality_conditions_in_one_call(kinds, count):
    free, lower, upper = random_rows(1, count, kinds=kinds)
    result = project_rows(free, lower, upper)
    row = np.asarray(result.concentration)
    mean = row / row.sum(-1, keepdims=True)
    assert np.maximum(lower - mean, mean - upper).max() < 1e-10
    assert np.asarray(result.converged).all()
    assert residual_of_optimality(row, free, lower, upper).max() < 1e-7


@pytest.mark.parametrize("away", [0.1, 0.5])
def test_a_search_from_an_earlier_projection_finds_the_same_optimum(away):
    """Where rows have moved, and where the earlier projection is of another row; anew where there was none."""
    free, lower, upper = random_rows(1, *SMALL)
    held = np.array(project_rows(free, lower, upper).concentration)
    held[::5] = np.roll(held[::5], 1, axis=0)
    solved = np.arange(len(free)) % 3 > 0
    free = free * np.exp(away * np.random.default_rng(0).normal(size=free.shape))
    cold, warm = project_rows(free, lower, upper), project_rows(free, lower, upper, held, solved)
    assert np.asarray(warm.converged).all()
    row, expected = np.asarray(warm.concentration), np.asarray(cold.concentration)
    assert residual_of_optimality(row, free, lower, upper).max() < 1e-7
    least = objective(expected, free)
    np.testing.assert_array_less(least - 1e-8 * (1 + np.abs(least)), objective(row, free))
    np.testing.assert_array_equal(row[~solved], expected[~solved])
    assert (row[solved] != expected[solved]).any(), "no search started at an earlier projection"


@pytest.mark.slow
def test_no_run_of_slsqp_is_better():
    """Thirty rows, of the best of four runs each; where no run keeps to the bounds there is nothing to beat."""
    free, lower, upper = random_rows(2, 30, 5)
    ours = objective(np.asarray(project_rows(free, lower, upper).concentration), free)
    theirs = np.array([by_slsqp(*row, starts=4) for row in zip(free, lower, upper, strict=True)])
    assert np.isfinite(theirs).mean() > 0.9, "too few runs of SLSQP keep to the bounds to compare with"
    np.testing.assert_array_less(theirs - 1e-8 * (1 + np.abs(theirs)), ours)


def test_a_row_that_keeps_to_its_bounds_is_its_own_answer():
    free, lower, upper = random_rows(3, *SMALL)
    mean = free / free.sum(-1, keepdims=True)
    lower, upper = np.minimum(lower, mean), np.maximum(upper, mean)
    result = project_rows(free, lower, upper)
    np.testing.assert_array_equal(result.concentration, free)
    np.testing.assert_array_equal(result.inflation, 1)


def test_all_means_may_be_given():
    free, target = np.array([2.0, 3, 5, 1, 4, 3, 2, 1, 1, 2, 2]), np.array([0.3, 0.2, 0.1, *[0.05] * 8])
    row = np.asarray(project_rows(*(np.tile(x, (64, 1)) for x in (free, target, target))).concentration)[0]
    np.testing.assert_allclose(row / row.sum(), target, rtol=1e-12)
    sizes = row.sum() * np.exp(np.linspace(-0.5, 0.5, 41))
    assert np.argmax([objective(size * target, free) for size in sizes]) == 20


def test_the_second_start_finds_what_the_symmetric_one_misses():
    """At eta = (1, .02, .02) with a first mean of .1: the symmetric stationary point has 0.073, two maxima 2.682."""
    free = np.tile([1.0, 0.02, 0.02, *[0] * 8], (64, 1))
    lower, upper = np.zeros_like(free), np.ones_like(free)
    lower[:, 0] = upper[:, 0] = 0.1
    row = np.asarray(project_rows(free, lower, upper).concentration)
    assert objective(row[0, :3], free[0, :3]) > 2.68


def test_structural_zeros_stay_and_change_nothing():
    """The other entries meet the optimality conditions of a row without them."""
    alone = random_rows(4, 64, 10)
    found = project_rows(*(np.insert(x, 2, value, axis=1) for x, value in zip(alone, (0, 0, 1), strict=True)))
    assert np.asarray(found.converged).all()
    beside = np.asarray(found.concentration)
    np.testing.assert_array_equal(beside[:, 2], 0)
    row, (free, lower, upper) = np.delete(beside, 2, 1), alone
    mean = row / row.sum(-1, keepdims=True)
    assert np.maximum(lower - mean, mean - upper).max() < 1e-10
    assert residual_of_optimality(row, free, lower, upper).max() < 1e-7


@pytest.mark.slow
def test_single_precision_stays_finite():
    free, lower, upper = (x.astype(np.float32) for x in random_rows(3, *SMALL))
    with jax.enable_x64(False):
        row = project_rows(free, lower, upper).concentration
    assert row.dtype == np.float32 and np.isfinite(row).all() and (np.asarray(row) > 0).all()
