"""Separation against a search over all directions, and the directions it names."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.models.choices.separation import find_separation


def by_angles(rows):
    """Whether some direction of the plane is contradicted by no row: it may be taken on the edge of one."""
    if not len(rows):
        return True
    edges = np.concatenate([[(y, -x), (-y, x)] for x, y in rows if (x, y) != (0, 0)] or [[(1.0, 0.0)]])
    return bool(((rows @ edges.T) >= -1e-12).all(0).any())


def rows_of(design, legal, choice):
    return np.array(
        [
            design[t, choice[t]] - design[t, j]
            for t in range(len(choice))
            for j in np.flatnonzero(legal[t])
            if j != choice[t]
        ]
    ).reshape(-1, 2)


def test_small_sets_agree_with_a_search_over_directions():
    random, found = np.random.default_rng(0), 0
    for _ in range(200):
        count = random.integers(1, 7)
        design = random.integers(-2, 3, size=(count, 3, 2)).astype(float)
        legal = random.random((count, 3)) < 0.8
        choice = random.integers(3, size=count)
        legal[np.arange(count), choice] = True
        separation = find_separation(design, legal, choice)
        rows = rows_of(design, legal, choice)
        assert (separation is not None) == by_angles(rows), (design, legal, choice)
        if separation is not None:
            assert np.abs(separation.direction).max() == pytest.approx(1)
            assert (rows @ separation.direction > -1e-6).all()
            found += 1
    assert 20 < found < 180  # both answers occur


def test_the_direction_and_the_decisions_that_agree():
    design = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]], [[0.0, -1.0], [0.0, 0.0]]])
    separation = find_separation(design, np.ones((3, 2), bool), np.zeros(3, int))
    np.testing.assert_allclose(separation.direction, [1, 0], atol=1e-9)
    assert separation.agreeing.tolist() == [True, False, False]


def test_directions_without_any_difference():
    design = np.zeros((4, 2, 3))
    design[..., 0] = [[1, 0], [0, 1], [1, 0], [0, 1]]
    separation = find_separation(design, np.ones((4, 2), bool), np.array([0, 0, 1, 1]))
    assert separation.direction[0] == pytest.approx(0, abs=1e-9) and not separation.agreeing.any()
    assert find_separation(np.zeros((2, 2, 1)), np.ones((2, 2), bool), np.array([0, 1])) is not None
    assert find_separation(design[..., :1], np.ones((4, 2), bool), np.array([0, 0, 1, 1])) is None


@pytest.mark.parametrize("size", [1e-9, 1e6, 1e12])
def test_units_of_features_change_no_answer(size):
    random = np.random.default_rng(1)
    design = random.normal(size=(500, 3, 2))
    choice = np.argmax(design @ (0.5, -0.5) + random.normal(size=(500, 3)), axis=1)
    assert find_separation(design * (size, 1), np.ones((500, 3), bool), choice) is None
    best = np.argmax(design @ (0.5, -0.5), axis=1)
    found = find_separation(design * (size, 1), np.ones((500, 3), bool), best)
    direction = found.direction * (size, 1)
    np.testing.assert_allclose(direction / np.abs(direction).max(), (1, -1), atol=0.1)
    assert found.agreeing.all()


def test_unknown_choices_say_nothing():
    design = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
    legal = np.ones((2, 2), bool)
    assert find_separation(design, legal, np.array([0, 0])) is None
    assert find_separation(design, legal, np.array([0, -1])) is not None


def test_without_parameters_nothing_is_separated():
    assert find_separation(np.zeros((2, 3, 0)), np.ones((2, 3), bool), np.array([0, 1])) is None


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_magnitude_is_one(sign):
    design = sign * np.array([[[2.0, -1.0], [0.0, 0.0]], [[3.0, 1.0], [0.0, 0.0]]])
    direction = find_separation(design, np.ones((2, 2), bool), np.zeros(2, int)).direction
    assert np.abs(direction).max() == pytest.approx(1)
    assert direction[np.abs(direction).argmax()] == pytest.approx(sign)
