"""The imitation benchmark: targets of made-up results, experts that fail, and its short form."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from scipy.stats import t

from benchmarks.papers import imitation


class Result(NamedTuple):
    failure: np.ndarray
    steps: np.ndarray


def made_up(learned, true, unstructured, steps=9.0):
    """Runs of two seeds with these failures in the last of two rounds."""
    values = {"learned": learned, "true": true, "unstructured": unstructured}
    return [
        (arm, seed, Result(np.array([0.9, failure]), np.array([40.0, steps])), 1.0, 0.0)
        for arm, pair in values.items()
        for seed, failure in enumerate(pair)
    ]


def test_rows_over_seeds_have_intervals_and_say_whether_targets_are_reached():
    rows = imitation.summary_rows(made_up((0.04, 0.06), (0.025, 0.025), (0.3, 0.5)))
    assert [row["reached"] for row in rows] == [True, True, True]
    half = t.ppf(0.975, 1) * 0.01
    assert (rows[0]["failure_low"], rows[0]["failure_high"]) == pytest.approx((0.05 - half, 0.05 + half))
    assert rows[1]["gap"] == pytest.approx(2.5)
    rows = imitation.summary_rows(made_up((0.06, 0.06), (0.02, 0.02), (0.3, 0.3)))
    assert [row["reached"] for row in rows] == [False, False, False]
    (slow, *_) = imitation.summary_rows(made_up((0, 0), (0, 0), (1, 1), steps=12.5))
    assert not slow["reached"]


def test_curves_stand_beside_the_papers():
    rows = imitation.curve_rows(made_up((0.1, 0.3), (0, 0), (0.5, 0.5)))
    assert [(row["arm"], row["round"]) for row in rows][:3] == [("learned", 1), ("learned", 2), ("true", 1)]
    assert rows[1]["failure"] == pytest.approx(0.2) and rows[1]["paper_failure"] == 0.38
    assert rows[5]["paper_steps"] == 41 and "paper_steps" not in rows[2]
    assert all(len(curve) == 10 for arm in imitation.PAPER.values() for curve in arm.values())


def test_experts_fail_on_a_large_board_because_one_of_them_waits_behind_the_prey():
    row = imitation.expert_row(0, 20, 500)
    assert 0.01 < row["failure"] < 0.08 and row["failure_low"] < row["failure"] < row["failure_high"]
    assert row["one_away"] > 0.8 and row["behind"] > 0.8 and row["waits"] > 0.8


@pytest.mark.slow
def test_the_short_form_has_a_row_for_each_arm():
    pytest.importorskip("sklearn")
    from sklearn.tree import DecisionTreeClassifier

    found = imitation.run_arms(
        (0,), 5, 2, DecisionTreeClassifier, lambda seed: imitation.simulated(seed, 30, 5), 20
    )
    rows = [imitation.seed_row(*each) for each in found]
    assert [row["arm"] for row in rows] == list(imitation.ARMS)
    assert (
        rows[0]["role_accuracy"] > 0.9
        and rows[1]["role_accuracy"] == 1
        and np.isnan(rows[2]["role_accuracy"])
    )
    assert rows[1]["failure"] < rows[2]["failure"]
