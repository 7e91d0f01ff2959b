"""The tour of planning from end to end on a small network."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.domains.optimal_policy import OptimalPolicy
from ethogram.domains.sysadmin import sysadmin
from ethogram.tour import planning

TINY = planning.TourSizes(3, 4, 4)
NAME, TOUR = "planning", planning.tour


@pytest.mark.slow
def test_table_notes_and_file(first):
    import xarray

    report, said = first
    assert [row["policy"] for row in report.rows] == ["nothing", "random", "SOGBOFA", "best"]
    assert f"{OptimalPolicy(sysadmin(3, horizon=4)).value:.1f}" in report.notes[0]
    assert [path.name for path in report.files] == ["planning.png", "planning.pdf", "planning.nc"]
    assert said[0].startswith("the best policy")
    with xarray.open_dataset(report.files[-1], engine="h5netcdf") as written:
        returns = np.asarray(written["return"].sel(policy="SOGBOFA"))
        assert returns.shape == (4,)
        assert f"{returns.mean():.1f}" == report.rows[2]["mean return"]
