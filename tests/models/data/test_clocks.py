"""One clock a group: agents that come and go are compared at the same moments, and times come back."""

import datetime
import zoneinfo

import numpy as np
import pandas
import polars
import pytest

from ethogram.inference.roles import duplicate_share
from ethogram.models.data.trajectories import Trajectories

TRIP = {"trip": list("aaaaa"), "who": list("AAABB"), "t": [0, 1, 2, 1, 2], "x": [0.0, 1.0, 2.0, 3.0, 4.0]}
MAKERS = {"columns": dict, "pandas": pandas.DataFrame, "polars": polars.DataFrame}
PARIS = zoneinfo.ZoneInfo("Europe/Paris")


@pytest.fixture(params=list(MAKERS))
def make(request):
    return MAKERS[request.param]


def read(table, **options):
    settings = dict(sequence=["trip", "who"], time="t", features="x", agent="who", group="trip", step=1)
    return Trajectories.from_table(table, **(settings | options))


@pytest.mark.parametrize("step", [1, None])
def test_agents_of_a_group_share_their_moments(make, step):
    data = read(make(TRIP), step=step)
    np.testing.assert_array_equal(data.observations[..., 0], [[0, 1, 2], [np.nan, 3, 4]])
    assert data.observed.tolist() == [[True] * 3, [False, True, True]] and data.lengths.tolist() == [3, 3]
    roles = np.zeros((2, 3), int)
    assert duplicate_share(roles, data.group, data.lengths, observed=data.observed) == pytest.approx(2 / 3)


def test_sequences_without_a_group_keep_their_own_origin(make):
    assert read(make(TRIP), group=None).lengths.tolist() == [3, 2]


def test_rows_and_groups_in_any_order_have_their_own_clocks():
    table = {
        "trip": list("baab"), "who": list("ABAB"), "t": [7.0, 3.0, 1.0, 5.0], "x": [0.0, 1.0, 2.0, 3.0],
    }  # fmt: skip
    data = read(table)
    assert [row.nonzero()[0].tolist() for row in data.observed] == [[2], [2], [0], [0]]


@pytest.mark.parametrize("wide", [10**9, 10**6])
def test_a_long_absence_is_told(wide):
    table = TRIP | {"t": [0, 1, 2, wide, wide + 1]}
    if wide == 10**9:
        with pytest.raises(ValueError, match=r"t of sequence 1 \(a, B\) .* GiB"):
            read(table)
    else:
        with pytest.warns(UserWarning, match=r"sequence 1 \(a, B\) is 1000000 in row 3.*of trip 'a'"):
            read(table)


def test_messages_name_the_group():
    with pytest.raises(ValueError, match=r"1\.3 steps of 1 after the first of trip 'a'"):
        read(TRIP | {"t": [0, 1, 2, 1.3, 2.3]})


def test_snap_moves_times_to_the_grid_and_tells(make):
    table = make(TRIP | {"t": [0.0, 1.3, 2.0, 1.001, 2.0]})
    with pytest.raises(ValueError, match="snap="):
        read(table)
    with pytest.warns(UserWarning, match=r"snap moved 2 of 5 times .*at most 0\.3"):
        data = read(table, snap=True)
    assert data.observed.tolist() == [[True] * 3, [False, True, True]]
    np.testing.assert_array_equal(data.times[0], [0.0, 1.3, 2.0])
    with pytest.raises(ValueError, match=r"0\.2 of a step"):
        read(table, snap=0.2)
    with pytest.raises(ValueError, match="row 1, in the same frame as row 0"):
        read(make(TRIP | {"t": [0.0, 0.4, 2.0, 1.0, 2.0]}), snap=True)
    with pytest.raises(ValueError, match="snap is True without step"):
        read(table, snap=True, step=None)


DATES = [
    datetime.datetime(2024, 3, 31, 0, 59, s, tzinfo=datetime.UTC).astimezone(PARIS) for s in (0, 1, 2, 1, 2)
]
NAIVE = [date.replace(tzinfo=None) for date in DATES]
FORMS = {
    "aware list": (DATES, "Europe/Paris"),
    "aware pandas": (pandas.Series(DATES), "Europe/Paris"),
    "aware polars": (polars.Series(DATES, dtype=polars.Datetime("us", "Europe/Paris")), "Europe/Paris"),
    "aware numpy": (np.array(DATES, dtype=object), "Europe/Paris"),
    "ISO strings": ([date.isoformat() for date in NAIVE], None),
    "ISO array": (np.array([date.isoformat() for date in NAIVE]), None),
    "ISO pandas": (pandas.Series([date.isoformat() for date in NAIVE]), None),
    "ISO with zone": ([date.isoformat() for date in DATES], "UTC+01:00"),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "step", ["1s", "s", np.timedelta64(1, "s"), datetime.timedelta(seconds=1), pandas.offsets.Second()]
)
def test_dates_of_any_form_and_steps_of_any_form(form, step):
    times, zone = FORMS[form]
    data = read(TRIP | {"t": times}, step=step)
    assert data.observed.tolist() == [[True] * 3, [False, True, True]]
    assert data.metadata.frame_rate == 1.0 and data.metadata.time_zone == zone
    back = data.to_table()
    expected = pandas.Series(DATES if zone else NAIVE)
    assert (back["time"].to_numpy() == expected.dt.tz_convert(back["time"].dt.tz).to_numpy()).all() if zone else (
        back["time"].to_numpy() == expected.to_numpy()).all()  # fmt: skip


def test_dates_with_and_without_a_zone_do_not_mix():
    with pytest.raises(ValueError, match=r"column 't' is .* in row 1, without the time zone"):
        read(TRIP | {"t": [DATES[0], NAIVE[1], *DATES[2:]]}, step="1s")


@pytest.mark.parametrize("step", ["1 month", "M", "soon", "NaT", "", "5", "1.5", 1])
def test_steps_that_are_no_duration(step):
    with pytest.raises((TypeError, ValueError), match="step is "):
        read(TRIP | {"t": NAIVE}, step=step)


def test_times_come_back_by_table_and_xarray():
    data = read(TRIP | {"t": [100, 101, 102, 101, 102]})
    table = data.to_table()
    assert table["time"].tolist() == [100, 101, 102, 101, 102] and table["x"].tolist() == TRIP["x"]
    assert table["agent"].tolist() == TRIP["who"] and table["group"].tolist() == TRIP["trip"]
    again = Trajectories.from_xarray(data.to_xarray())
    np.testing.assert_array_equal(again.times, data.times)
    assert again.metadata == data.metadata
    assert read(TRIP | {"t": DATES}, step="1s").take([1]).to_table()["time"].tolist() == DATES[3:]


def test_lists_with_times_share_the_clock_of_their_group():
    data = Trajectories.from_list(
        [[0.0, 1.0, 2.0], [3.0, 4.0]], group=["a", "a"], time=[[0, 1, 2], [1, 2]], step=1
    )
    np.testing.assert_array_equal(data.observations[..., 0], [[0, 1, 2], [np.nan, 3, 4]])
    with pytest.raises(ValueError, match=r"time\[1\] has 1 frames"):
        Trajectories.from_list([[0.0], [1.0, 2.0]], time=[[0], [1]], step=1)


def test_episodes_with_times_share_the_clock_of_their_group():
    class Episode:
        def __init__(self, times):
            self.observations, self.actions = np.zeros((len(times), 1)), np.zeros(len(times), int)

    times = [[0, 1, 2], [1, 2]]
    data = Trajectories.from_episodes(map(Episode, times), time=times, step=1, group=[0, 0])
    assert data.observed.tolist() == [[True] * 3, [False, True, True]]
