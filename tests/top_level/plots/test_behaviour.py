"""Figures of tables of behaviour show the table's own numbers, in readable units; durations follow Kaplan and Meier."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from ethogram import plots


def of_rows(rows, names, **columns):
    index = (
        pandas.MultiIndex.from_tuples(rows, names=names)
        if len(names) > 1
        else pandas.Index(rows, name=names[0])
    )
    return pandas.DataFrame(columns, index=index)


def test_points_and_intervals_stand_by_level_and_curves_over_hours():
    rows = [(sex, state) for sex in "fm" for state in ("rest", "walk")]
    mean = np.array([0.6, 0.4, 0.3, 0.7])
    table = of_rows(rows, ["sex", "state"], mean=mean, lower=mean - 0.1, upper=mean + 0.2)
    axes = plots.state_intervals(table)
    assert [line.get_ydata().tolist() for line, *_ in axes.containers] == [[0.6, 0.3], [0.4, 0.7]]
    (bars,) = axes.containers[0][2]
    assert np.round([part[:, 1] for part in bars.get_segments()], 9).tolist() == [[0.5, 0.8], [0.2, 0.5]]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["f", "m"] and axes.get_ylabel() == "share"
    hours = of_rows(
        [(hour, "rest") for hour in (3, 5)], ["hour", "state"], mean=[0.1, 0.2], lower=[0, 0], upper=[1, 1]
    )
    (curve,) = plots.state_intervals(hours).lines
    assert curve.get_xdata().tolist() == [3, 5] and curve.get_ydata().tolist() == [0.1, 0.2]


def test_durations_have_a_readable_unit():
    times = pandas.to_timedelta([90, 240], unit="min")
    table = of_rows(["rest", "walk"], ["state"], mean=times, lower=times / 2, upper=times)
    axes = plots.state_intervals(table)
    assert axes.get_ylabel() == "duration (h)"
    assert [line.get_ydata().tolist() for line, *_ in axes.containers] == [[1.5], [4.0]]
    unused = of_rows(
        ["0", "1", "2"], ["state"], mean=[0.2, 0.0, 0.3], lower=[0.1, 0, 0.2], upper=[0.3, 0, 0.4]
    )
    unused.attrs["unit"] = "s"
    axes = plots.state_intervals(unused)
    assert axes.get_ylabel() == "duration (s)" and len(axes.containers) == 2
    colours = [line.get_color() for line, *_ in axes.containers]
    assert colours == [plots.category_colours(3)[state] for state in (0, 2)]


def test_durations_of_bouts_follow_kaplan_and_meier():
    """By hand: of five bouts of 1, 2, 2, 3 and 4, that of 3 is cut at its end, and a sixth at its start."""
    state = pandas.Categorical(["rest"] * 6, ["rest", "walk"])
    bouts = pandas.DataFrame(
        {"state": state, "duration": [1.0, 2, 2, 3, 4, 9], "cut": ["", "", "", "end", "", "start"]}
    )
    axes = plots.bout_durations(bouts)
    (curve,) = axes.lines
    assert dict(zip(curve.get_xdata(), np.round(curve.get_ydata(), 9), strict=True)) == {
        1: 0.8,
        2: 0.4,
        3: 0.4,
        4: 0,
    }


def test_transitions_are_a_matrix_with_their_intervals():
    rows = [("rest", "walk"), ("walk", "rest")]
    axes = plots.transition_intervals(
        of_rows(rows, ["state", "next_state"], mean=[0.5, 1], lower=[0.4, 1], upper=[0.6, 1])
    )
    assert [text.get_text() for text in axes.texts] == ["50\n40–60", "100\n100–100"]
    shown = axes.images[0].get_array().filled(np.nan)
    assert shown[0, 1] == 50 and shown[1, 0] == 100 and np.isnan(shown[0, 0])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (plots.state_intervals, "no mean, lower, upper and state"),
        (plots.bout_durations, "no state, duration and cut"),
        (plots.transition_intervals, "fit.transitions without by"),
    ],
)
def test_other_tables_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw(pandas.DataFrame({"x": [1]}))
