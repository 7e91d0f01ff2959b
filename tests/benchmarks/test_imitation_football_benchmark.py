"""The football benchmark: errors by horizon, the paired bootstrap and the energy score against closed forms."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.papers import imitation_football as paper
from ethogram.inference.imitation import Scenes, constant_velocity


def test_distances_of_constant_velocity_are_known():
    """Agents with an acceleration of 2 m a step squared: the error after h steps is h (h + 1)."""
    time = np.arange(60)
    positions = np.zeros((2, 60, 10, 2))
    positions[..., 0] = (time**2)[:, None]
    scenes = Scenes(positions, np.ones((2, 60, 2, 2)), np.array([60, 40]))
    errors = paper.distances(paper.Policy(constant_velocity, np.zeros(10)), scenes)
    steps = np.arange(1, paper.LONGEST + 1)
    np.testing.assert_allclose(paper.mean(errors), steps * (steps + 1), rtol=1e-5)
    # Starts at 5, 10, ..., 25 and 25 steps later: the number that reach a horizon within each length.
    starts = [start + turn * paper.LONGEST for start in paper.PHASES for turn in range(3)]
    expected = [[sum(s + h < n for s in set(starts)) for h in steps] for n in (60, 40)]
    twice = [[sum(s + h < n for s in starts) for h in steps] for n in (60, 40)]
    assert (errors.count >= expected).all() and (errors.count <= twice).all()


def test_the_energy_score_of_certain_futures_is_the_distance():
    rng = np.random.default_rng(0)
    scenes = Scenes(rng.normal(size=(2, 40, 10, 2)), rng.normal(size=(2, 40, 2, 2)), np.array([40, 40]))
    policy = paper.Policy(constant_velocity, np.zeros(10))
    certain = paper.energy(policy, scenes, np.zeros((10, 2, 2)), 0)
    np.testing.assert_allclose(paper.mean(certain), paper.mean(paper.distances(policy, scenes)), rtol=1e-5)


def test_the_bootstrap_pairs_plays():
    """A constant difference in every play has an interval without width, however much plays differ."""
    rng = np.random.default_rng(1)
    total, count = rng.gamma(1, 100, (20, paper.LONGEST)), np.full((20, paper.LONGEST), 10.0)
    ends = paper.bootstrap(paper.Errors(total, count), paper.Errors(total + 5.0, count), rng, 50)
    np.testing.assert_allclose(ends, 0.5)
    sampled = (paper.Errors(total, count),) * 2
    rows = paper.comparison_rows("x", sampled[0], paper.Errors(total + 5.0, count), sampled, rng)
    assert all(row["reached"] for row in rows) and [row["horizon_s"] for row in rows] == [
        0.2,
        0.4,
        1,
        2,
        3,
        5,
    ]
    assert rows[0]["fde_shuffled"] - rows[0]["fde_learned"] == pytest.approx(0.5)


def test_folds_have_about_as_many_frames():
    lengths = np.array([190, 20, 100, 90, 5, 60])
    fold = paper.folds(lengths)
    assert abs(lengths[fold == 0].sum() - lengths[fold == 1].sum()) < 40
