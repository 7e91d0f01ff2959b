"""Football roles, as benchmarks score them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import multivariate_t

from benchmarks.papers import football_roles
from ethogram.domains import football
from ethogram.models.data import Trajectories


def test_the_score_of_one_gaussian_is_near_its_exact_predictive_density():
    """Many frames: plugging the posterior means in comes near to the exact predictive, a Student t."""
    random = np.random.default_rng(3)
    data = Trajectories.from_list(random.normal([2.0, -1.0], [3.0, 5.0], (40, 50, 2)))
    train, test = data.split(jax.random.key(0))
    x = np.asarray(train.observations, float).reshape(-1, 2)
    count, strength, dof = len(x), 0.01, 4.0
    centre = x.mean(axis=0)
    scale = 25 * np.eye(2) + (x - centre).T @ (x - centre)
    scale += strength * count / (strength + count) * np.outer(centre, centre)
    spread = scale * (strength + count + 1) / ((strength + count) * (dof + count - 1))
    exact = multivariate_t(count * centre / (count + strength), spread, df=dof + count - 1)
    expected = exact.logpdf(np.asarray(test.observations, float).reshape(-1, 2)).mean()
    assert football_roles.gaussian_score(train, test) == pytest.approx(expected, abs=1e-3)


def test_laying_out_changes_no_sequence_that_is_there():
    data = football.load("away").data
    wide = football_roles.laid_out(data, (data.num_sequences + 20, data.observed.shape[1] + 3))
    kept = wide.take(np.arange(data.num_sequences))
    for name in ("lengths", "agent", "group"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(data, name))
    np.testing.assert_array_equal(kept.observations[:, :-3], data.observations)
    assert wide.lengths[-20:].sum() == 0 and not wide.observed[-20:].any()
    assert len(np.unique(wide.group)) == 15 and set(wide.group[-20:]).isdisjoint(data.group)
