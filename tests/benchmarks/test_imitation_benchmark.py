"""The imitation benchmark: experts that fail."""

from __future__ import annotations

from benchmarks.papers import imitation


def test_experts_fail_on_a_large_board_because_one_of_them_waits_behind_the_prey():
    row = imitation.expert_row(0, 20, 500)
    assert 0.01 < row["failure"] < 0.08 and row["failure_low"] < row["failure"] < row["failure_high"]
    assert row["one_away"] > 0.8 and row["behind"] > 0.8 and row["waits"] > 0.8
