"""The tour of noisy-mdp from end to end on few sweeps."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.tour import choices as tour_choices

TINY = tour_choices.TourSizes(
    tested=20, repetitions=2, draws=40, warmup=10, bus=40, games=3, moves=20, shown=8
)
NAME, TOUR = "noisy-mdp", tour_choices.tour

pytestmark = pytest.mark.slow


def test_the_table_has_a_row_a_player_and_one_of_the_buses(first):
    report, said = first
    assert [row["fit"].split(",")[0] for row in report.rows] == [*["Tetris"] * 3, "bus engines"]
    for row in report.rows[:3]:
        error, floor = (float(part) for part in row["error; oracle"].split(";"))
        assert 0 <= error < 0.9 and 0 < floor < 0.5
        assert all(0 < float(part) <= 20 for part in row["moves player; imitator"].split(";"))
    assert any("log likelihood -164.65 at the mode" in note and "RC 10.07" in note for note in report.notes)
    assert any("the low player: 100 placements, 20 held out" in line for line in said)


def test_the_file_holds_the_careful_player(written):
    assert np.asarray(written["posterior"]["v"]).shape == (4, 40, 3)
    assert written["posterior"]["feature"].values.tolist() == ["height", "holes", "bumpiness"]
    assert np.isfinite(np.asarray(written["log_likelihood"]["choice"])).all()
