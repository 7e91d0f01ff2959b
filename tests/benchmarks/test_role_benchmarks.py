"""Benchmarks of roles: coverage and LOO against what is known, in small sizes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.papers import interval_coverage, role_number


def test_intervals_of_calibrated_draws_cover_as_many_as_they_promise():
    """Truths and draws from one law: 90 % within three standard errors, and none where draws are elsewhere."""
    random = np.random.default_rng(0)
    truth = {"mean": random.normal(size=(40, 50)), "covariance": random.normal(size=(500, 2, 2))}
    drawn = {name: random.normal(size=(500, *site.shape)) for name, site in truth.items()}
    inside = interval_coverage._covered(drawn, truth)
    assert inside["mean"] == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / 2000))
    assert inside["covariance"] == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / 1500))
    upper = {"covariance": drawn["covariance"] + 100 * np.triu(np.ones((2, 2)), 1)}
    counted = interval_coverage._covered(drawn | upper, truth)["covariance"]
    assert counted == inside["covariance"]  # entries above the diagonal are those below it


def test_true_labels_are_those_that_share_the_steps():
    truth = np.array([[0, 0, 1, 2, -1], [2, 2, 1, 1, 0]])
    order = np.array([2, 0, 1])  # fitted label k is the true label order[k]
    probability = 0.8 * np.eye(3)[np.argsort(order)[truth]] + 0.2 / 3
    np.testing.assert_array_equal(interval_coverage._order(truth, probability), order)


def test_loo_of_draws_is_that_of_leaving_out():
    """A normal mean under a flat prior, where the predictive of the others is known."""
    random = np.random.default_rng(0)
    x = random.normal(size=30)
    mean = random.normal(x.mean(), 1 / np.sqrt(30), size=(2, 4000, 1))
    elpd, large = role_number._loo(norm.logpdf(x, mean))
    others = (x.sum() - x) / 29
    assert elpd == pytest.approx(norm.logpdf(x, others, np.sqrt(1 + 1 / 29)).sum(), abs=0.05)
    assert large == 0
