"""The tour of marginal-map from end to end on little time, and its pictures."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest

from ethogram import plots_mmap, tour_mmap
from ethogram.domains import uai_networks
from ethogram.inference.elimination import exact_log_probability
from ethogram.inference.incumbent import TracePoint

TINY = tour_mmap.TourSizes(0.5, 1.0)
TOUR = tour_mmap.tour


@pytest.mark.slow
def test_the_table_has_a_row_a_network_and_method(first):
    report, said = first
    assert len(report.rows) == len(uai_networks.KNOWN) * len(tour_mmap.METHODS)
    assert [line.split(":")[0] for line in said] == list(uai_networks.KNOWN)
    for row in report.rows:
        late, best = float(row["at 1 s"]), float(row["best known"])
        assert late <= best + 1e-3 or row["what was asked"].startswith("pedigree1")
    hybrid = [row for row in report.rows if row["method"] == "hybrid"]
    assert all(math.isfinite(float(row["at 1 s"])) for row in hybrid)


@pytest.mark.slow
def test_files_are_written_whole_and_can_be_read(first):
    import matplotlib.image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ says at import depends on its version
        import arviz
    picture, record = first[0].files
    image = matplotlib.image.imread(picture)
    assert image.shape[0] > 300 and image[..., :3].std() > 0.05
    tree = arviz.from_netcdf(str(record))
    for name in uai_networks.KNOWN:
        query = uai_networks.load(name)
        states = np.asarray(tree["posterior"][name])
        values = np.asarray(tree["sample_stats"][name])
        assert states.shape == (len(tour_mmap.METHODS), 1, len(query.map_variables))
        assert exact_log_probability(query, states[0, 0]) == pytest.approx(values[0, 0], rel=1e-9)


@pytest.mark.parametrize("name", list(uai_networks.KNOWN))
def test_embedded_questions(name):
    query, known = uai_networks.load(name), uai_networks.KNOWN[name]
    assert len(query.map_variables) >= 71
    assert known.log_probability < 0
    with pytest.raises(ValueError, match="name is 'nothing': take one of 50-12-5"):
        uai_networks.load("nothing")


def point(seconds, value):
    return TracePoint(seconds, seconds, value, "exact", "", np.zeros(1, int))


def test_curves_go_on_to_the_end_and_name_who_found_nothing():
    traces = {"one": [point(0.1, -3.0), point(0.5, -2.0)], "other": []}
    axes = plots_mmap.anytime_curves(traces, until=2, best=-1.5)
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_allclose(lines["one"].get_xdata(), [0.1, 0.5, 2.0])
    np.testing.assert_allclose(lines["one"].get_ydata(), [-3.0, -2.0, -2.0])
    assert "other: nothing possible" in lines
    with pytest.raises(ValueError, match="give one method at least"):
        plots_mmap.anytime_curves({}, until=2)


def test_bars_have_the_cost_of_the_best_other_state():
    flips = {"a": np.array([-1.0, -3.0, -2.5]), "b": np.array([-4.0, -1.0])}
    axes = plots_mmap.gap_bars(flips, [0, 1])
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [1.5, 3.0])
    with pytest.raises(ValueError, match="give both for each"):
        plots_mmap.gap_bars(flips, [0])
