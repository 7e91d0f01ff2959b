"""The table that commands and benchmarks print."""

from __future__ import annotations

import sys

from ethogram.terminal import format_table


def test_numbers_stand_to_the_right_and_missing_cells_are_dashes():
    head, line, *rows = format_table(
        [{"name": "a", "value": 1.0, "reached": False}, {"name": "longer", "value": 12.34567, "more": None}]
    ).splitlines()
    assert set(line) == {"─"}
    assert [row.split() for row in (head, *rows)] == [
        ["name", "value", "reached", "more"],
        ["a", "1", "NO", "-"],
        ["longer", "12.35", "-", "-"],
    ]
    assert (
        len(
            {
                row.index(cell) + len(cell)
                for row, cell in zip((head, *rows), ("value", "1", "12.35"), strict=True)
            }
        )
        == 1
    )
    assert format_table([]) == "no rows"


def test_a_table_needs_no_standard_output(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    assert format_table([{"name": "a"}]).split() == ["name", "a"]
