"""The tour of gp-irl from end to end on few steps."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ethogram import tour_rewards

TINY = tour_rewards.TourSizes(size=4, trajectories=6, steps=2, draws=20)
TOUR = tour_rewards.tour


@pytest.mark.slow
def test_the_table_has_a_row_a_method_and_one_of_the_buses(first):
    report, said = first
    methods = [row["what was learned"].split(", ")[-1] for row in report.rows[:3]]
    assert methods == ["linear reward by maximum entropy", "Levine's mode", "posterior"]
    for row in report.rows[:3]:
        home, away = (float(part) for part in row["lost at home; away"].split(";"))
        assert home >= 0 and away >= 0  # no policy is better than the best
    assert 0 <= float(report.rows[2]["coverage"]) <= 1
    assert report.rows[3]["what was learned"].startswith("bus engines, 4292 months: replacing costs ")
    assert any("the posterior is learned" in line for line in said)


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
    assert np.asarray(tree["posterior"]["reward"]).shape == (1, 20, 16)
    assert np.isfinite(np.asarray(tree["log_likelihood"]["demonstrations"])).all()
    assert sorted(path.name for path in picture.parent.iterdir()) == ["gp-irl.nc", "gp-irl.png"]
