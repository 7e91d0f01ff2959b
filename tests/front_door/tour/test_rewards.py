"""The tour of gp-irl from end to end on few steps."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.tour import rewards as tour_rewards

TINY = tour_rewards.TourSizes(size=4, trajectories=6, steps=2, draws=20)
NAME, TOUR = "gp-irl", tour_rewards.tour

pytestmark = pytest.mark.slow


def test_the_table_has_a_row_a_method_and_one_of_the_buses(first):
    report, said = first
    methods = [row["fit"].split(", ")[-1] for row in report.rows[:3]]
    assert methods == ["linear reward by maximum entropy", "Levine's mode", "posterior"]
    for row in report.rows[:3]:
        home, away = (float(part) for part in row["EVD home; transfer"].split(";"))
        assert home >= 0 and away >= 0  # no policy is better than the best
    assert 0 <= float(report.rows[2]["coverage"]) <= 1
    assert report.rows[3]["fit"].startswith("bus engines, 4292 months: replacement cost ")
    assert any("natural-gradient steps" in line for line in said)


def test_the_file_holds_the_objectworld(written):
    assert np.asarray(written["posterior"]["reward"]).shape == (1, 20, 16)
    assert np.isfinite(np.asarray(written["log_likelihood"]["demonstrations"])).all()
