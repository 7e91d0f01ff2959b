"""Figures of imitation show the numbers of the results, with the intervals that they say."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import beta, t

from ethogram import plots


class Result(NamedTuple):
    """The parts of a result that curves are drawn from."""

    failure: np.ndarray
    steps: np.ndarray
    reached: np.ndarray
    game_steps: np.ndarray


def result(failed, count=20, steps=(9.0, 11.0)):
    """Rounds with so many failed games, whose steps alternate."""
    reached = np.arange(count) >= np.asarray(failed)[:, None]
    each = np.tile(np.resize(steps, count), (len(failed), 1))
    return Result(1 - reached.mean(1), each.mean(1), reached, each)


def band(axes, number=0):
    """Lower and upper end of a band at its rounds."""
    corners = axes.collections[number].get_paths()[0].vertices
    return [(corners[corners[:, 0] == x, 1].min(), corners[corners[:, 0] == x, 1].max()) for x in (1, 2)]


def test_one_result_has_the_interval_of_its_games(axes):
    assert plots.failure_curves({"learned": result([5, 0])}, axes, mass=0.9) is axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[1, 25], [2, 0]])
    first, second = band(axes)
    np.testing.assert_allclose(first, [100 * beta.ppf(q, 5.5, 15.5) for q in (0.05, 0.95)])
    np.testing.assert_allclose(second, [0, 100 * beta.ppf(0.95, 0.5, 20.5)])
    assert "%" in axes.get_ylabel() and axes.get_xlabel() == "round"


def test_several_results_have_the_interval_of_their_means(axes):
    seeds = [result([4, 2]), result([6, 2]), result([8, 2])]
    plots.failure_curves({"learned": seeds}, axes)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), [30, 10])
    half = t.ppf(0.975, 2) * 10 / np.sqrt(3)
    np.testing.assert_allclose(band(axes), [(30 - half, 30 + half), (10, 10)])


def test_policies_by_role(axes):
    plots.policy_roles([[0.9, 0.1], [np.nan, np.nan]], axes)
    assert [text.get_text() for text in axes.texts] == ["90", "10"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("inferred role", "policy")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plots.failure_curves({}), "at least one"),
        (lambda: plots.failure_curves({"a": []}), "at least one"),
        (lambda: plots.failure_curves({"a": result([1])}, mass=95), "mass must be"),
        (lambda: plots.failure_curves({"a": [result([1]), result([1, 2])]}), r"\[1, 2\] rounds"),
        (lambda: plots.policy_roles([[0.5, 0.1]]), "do not sum to 1"),
        (lambda: plots.policy_roles(np.full((2, 2), np.nan)), "do not sum to 1"),
        (lambda: plots.policy_roles([0.5, 0.5]), "shape"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
