"""The tour of noisy-mdp from end to end on few sweeps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ethogram import tour_choices

TINY = tour_choices.TourSizes(
    tested=20, repetitions=2, sweeps=40, warmup=10, bus=40, games=3, moves=20, shown=8
)
TOUR = tour_choices.tour


@pytest.mark.slow
def test_the_table_has_a_row_a_player_and_one_of_the_buses(first):
    report, said = first
    assert [row["what was learned"].split(",")[0] for row in report.rows] == [*["Tetris"] * 3, "bus engines"]
    for row in report.rows[:3]:
        error, floor = (float(part) for part in row["error; floor"].split(";"))
        assert 0 <= error < 0.9 and 0 < floor < 0.5
        assert all(0 < float(part) <= 20 for part in row["moves player; imitator"].split(";"))
    assert any("log likelihood -164.65 at the mode" in note and "RC 10.07" in note for note in report.notes)
    assert any("the low player is learned" in line for line in said)


@pytest.mark.slow
def test_files_are_written_whole_and_can_be_read(first):
    import matplotlib.image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ says at import depends on its version
        import arviz
    picture, record = first[0].files
    image = matplotlib.image.imread(picture)
    assert image.shape[0] > 500 and image[..., :3].std() > 0.05
    tree = arviz.from_netcdf(str(record))
    assert np.asarray(tree["posterior"]["v"]).shape == (4, 40, 3)
    assert tree["posterior"]["feature"].values.tolist() == ["height", "holes", "bumpiness"]
    assert np.isfinite(np.asarray(tree["log_likelihood"]["choice"])).all()
    assert sorted(path.name for path in picture.parent.iterdir()) == ["noisy-mdp.nc", "noisy-mdp.png"]
