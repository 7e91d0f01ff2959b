"""Timelines: one row per agent on a common axis, what columns show, and what is refused."""

from __future__ import annotations

import dataclasses
import tracemalloc

import matplotlib.dates
import numpy as np
import pandas
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ethogram import plots
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.plots.timeline_rows import MOST_ROWS, read_timeline


def probability_of(path: np.ndarray, count: int = 3) -> np.ndarray:
    """The label of the path with probability 0.75."""
    chance = np.full((*path.shape, count), 0.25 / (count - 1))
    np.put_along_axis(chance, np.maximum(path, 0)[..., None], 0.75, axis=-1)
    return chance


PATH = np.array([[0, 0, 1, 1], [2, 2, 2, 2], [1, 1, 1, -1], [2, 0, 0, -1]])


@pytest.fixture
def wolves() -> tuple[Trajectories, np.ndarray]:
    """Three wolves by the hour in Paris, each from an hour later than the one before; the first has a gap."""
    table = {"wolf": [], "time": [], "x": []}
    for wolf, hours in enumerate(([0, 1, 4, 5], [1, 2, 3], [2, 3, 4, 5])):
        table["wolf"] += [f"w{wolf}"] * len(hours)
        table["time"] += [
            pandas.Timestamp("2024-05-01", tz="Europe/Paris") + pandas.Timedelta(hours=h) for h in hours
        ]
        table["x"] += [0.0] * len(hours)
    data = Trajectories.from_table(
        table, sequence="wolf", agent="wolf", time="time", features="x", step="1h",
        metadata=Metadata(subject_names=("f", "m")),
    )._replace(subject=np.array([1, 0, 1]))  # fmt: skip
    return data, np.array([[0, 0, 0, 0, 1, 1], [2, 2, 2, -1, -1, -1], [1, 1, 0, 0, -1, -1]])


def rows_of(axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def labels_of(axes, number: int = 0) -> np.ndarray:
    """Labels (row, column) of a panel by their colours; -1 where it is blank."""
    image = np.asarray(axes.images[number].get_array())
    colours = np.array(plots.category_colours(3))
    label = np.abs(image[:, :, None, :3] - colours).sum(-1).argmin(-1)
    return np.where(image[..., 3] > 0, label, -1)


def test_groups_stand_side_by_side_and_players_have_rows(plays):
    axes = plots.role_timelines(PATH, probability_of(PATH), plays)
    assert [labels_of(axes, play).tolist() for play in (0, 1)] == [
        [[0, 0, 1, 1], [2, 2, 2, 2]],
        [[1, 1, 1], [2, 0, 0]],
    ]
    np.testing.assert_allclose(np.asarray(axes.images[0].get_array())[..., 3], 0.75)
    ends = [image.get_extent()[:2] for image in axes.images]
    assert ends[0] == pytest.approx((0, 0.8)) and ends[1][0] > 0.8
    assert ends[1][1] - ends[1][0] == pytest.approx(0.6)
    assert rows_of(axes) == ["Ada", "Bo"] and axes.get_xlabel() == "time since start (s)"
    (above,) = axes.child_axes
    assert [label.get_text() for label in above.get_xticklabels()] == ["0", "1"]
    marks = [segment[0, 0] - low for part, (low, _) in zip(axes.collections, ends, strict=True)
             for segment in part.get_segments()]  # fmt: skip
    np.testing.assert_allclose(marks, [0.4, 0.2])  # changes within plays only


def test_animals_share_an_axis_of_dates_with_gaps_blank(wolves):
    data, path = wolves
    axes = plots.role_timelines(path, probability_of(path), data, names=["rest", "walk", "eat"])
    assert labels_of(axes).tolist() == [[0, 0, -1, -1, 1, 1], [-1, 2, 2, 2, -1, -1], [-1, -1, 1, 1, 0, 0]]
    first = matplotlib.dates.num2date(axes.get_xlim()[0])
    assert first == pandas.Timestamp("2024-04-30 22:00", tz="UTC")
    assert axes.get_xlim()[1] - axes.get_xlim()[0] == pytest.approx(6 / 24)
    assert axes.get_xlabel() == "date (Europe/Paris)" and rows_of(axes) == ["w0", "w1", "w2"]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["rest", "walk", "eat"]


def test_a_window_agents_and_an_order_of_the_rows(wolves):
    data, path = wolves
    chance = probability_of(path)
    window = ("2024-05-01 01:00", pandas.Timestamp("2024-05-01 01:00", tz="UTC"))  # two hours
    axes = plots.role_timelines(path, chance, data, agents=["w2", "w0"], window=window)
    assert rows_of(axes) == ["w2", "w0"] and labels_of(axes).tolist() == [[-1, 1], [0, -1]]
    axes = plots.role_timelines(path, chance, data, by="subject")
    assert rows_of(axes) == ["w1", "w0", "w2"]
    assert [label.get_text() for label in axes.child_axes[0].get_yticklabels()] == ["f", "m"]
    given = {"colour": {"w0": "grey", "w1": "black", "w2": "grey"}}
    assert read(path, data, by=given).levels == ["grey", "grey", "black"]
    files = {wolf: f"{wolf}_DLC_resnet50_1000" for wolf in ("w0", "w1", "w2")}
    axes = plots.role_timelines(path, chance, data, by={"file": files})
    assert [label.get_text() for label in axes.child_axes[0].get_yticklabels()] == ["w0…", "w1…", "w2…"]
    assert read(path, data, by=2).rows[0] == "w1" and read(path, data, by="b", names="abc").rows[-1] == "w1"


def read(path, data, most=100, **options):
    return read_timeline(path, probability_of(path), data, argument="path", most=most, **options)


def test_rows_of_a_group_stand_together_where_no_agent_has_two(wolves):
    data, path = wolves
    found = read(path, data._replace(group=np.array([1, 0, -1])))
    assert (found.rows, found.levels, len(found.panels)) == (["w1", "w0", "w2"], ["0", "1", "no group"], 1)
    names = {"agent_names": ["a", "b", "c"], "group_names": ["a", "b", "c"]}
    files = data._replace(group=data.agent, metadata=dataclasses.replace(data.metadata, **names))
    assert read(path, files).levels is None  # one animal per file, both with the name of the file


def test_sequences_of_an_agent_stand_at_their_times_or_end_to_end(wolves):
    data, path = wolves
    rows = [np.zeros((length, 1)) for length in (2, 3, 2)]
    bare = Trajectories.from_list(rows, agent=[0, 0, 1])
    short = np.array([[0, 1, -1], [2, 2, 2], [1, 1, -1]])
    found = read(short, bare)
    assert found.axis == "time (frames, sequences end to end)"
    assert found.panels[0].label.tolist() == [[0, 1, -1, 2, 2, 2], [1, 1, -1, -1, -1, -1]]
    apart = [np.arange(2) + 3.0, np.arange(3) + 8.0, np.arange(2) + 4.0]
    timed = Trajectories.from_list(rows, agent=[0, 0, 1], time=apart, metadata=Metadata(time_unit="s"))
    found = read(short, timed)
    assert found.axis == "time (s)" and found.panels[0].first == 3
    assert found.panels[0].label.tolist() == [[0, 1, -1, -1, -1, 2, 2, 2], [-1, 1, 1, -1, -1, -1, -1, -1]]
    together = read(path, data._replace(agent=np.zeros(3, int)))  # dates stay, and overlap: a row for each
    assert together.rows == ["w0, 0", "w0, 1", "w0, 2"] and together.unit is None
    alone = read(short, bare._replace(agent=None))
    assert alone.rows == ["0", "1", "2"] and alone.axis == "time since start (frames)"


def test_a_window_is_in_the_unit_of_the_times_and_of_each_sequence():
    metadata, rows = Metadata(time_unit="s", frame_rate=2.0), [np.zeros((2000, 1))] * 2
    path = np.tile(np.arange(2000) % 3, (2, 1))
    long = Trajectories.from_list(rows, agent=[0, 1], metadata=metadata)
    assert read(path, long).unit == "min"
    found = read(path, long, window=(600, 605))  # seconds, as in the table of bouts
    assert (found.unit, found.limits, found.panels[0].label.shape) == ("s", (600, 605), (2, 10))
    with pytest.raises(ValueError, match=r"all are from 0 to 999\.5$"):
        read(path, long, window=(1000, 2000))
    found = read(path, long._replace(agent=np.zeros(2, int)), window=(600, 605))
    assert found.panels[0].label[0].tolist() == [*path[0, 1200:1210], -1, *path[1, 1200:1210]]


def test_short_sessions_on_several_days_and_groups_apart_stand_end_to_end():
    dates = [pandas.date_range(f"2024-05-0{day}", periods=3, freq="2s", tz="UTC") for day in (1, 2, 3)]
    frames = {"time": np.concatenate(dates), "session": np.repeat([0, 1, 2], 3), "x": 0.0, "animal": "a"}
    columns = {"sequence": "session", "agent": "animal", "time": "time", "features": "x"}
    data = Trajectories.from_table(pandas.DataFrame(frames), **columns, step="2s")
    path = np.array([[0, 1, 2]] * 3)
    found = read(path, data)
    assert (found.unit, found.axis) == ("s", "time (s, sequences end to end)")
    assert found.panels[0].label.tolist() == [[0, 1, 2, -1, 0, 1, 2, -1, 0, 1, 2]]
    assert read(path, data, window=("2024-05-02", "2024-05-03")).unit is None
    videos = data._replace(times=None, agent=np.array([0, 0, 1]), group=np.array([0, 1, 2]))
    found = read(path, videos)  # an animal in two of three groups, another in one
    assert len(found.panels) == 1 and found.levels is None
    found = read(path, data._replace(agent=np.zeros(3, int), group=np.arange(3)))
    assert [panel.name for panel in found.panels] == [f"{day}\n2024-05-0{day + 1} 00:00" for day in range(3)]


def test_units_are_readable():
    def axis(frames, rate, unit="s"):
        metadata = Metadata(time_unit=unit, frame_rate=rate)
        path = np.zeros((1, frames), int)
        found = read(path, Trajectories.from_list([np.zeros((frames, 1))], metadata=metadata))
        return found.unit, round(found.panels[0].label.shape[1] * found.column, 2)

    assert axis(30, 30.0) == ("s", 1.0) and axis(36_000, 30.0) == ("min", 20.0)
    assert axis(1000, 1 / 3600) == ("days", 41.67) and axis(50, 1 / 7) == ("min", 5.83)
    assert axis(500, 1.0, "minutes") == ("h", 8.33) and axis(10, 2.0, "trials") == ("trials", 5.0)
    path, late = np.zeros((1, 4), int), [1.7e9 + np.arange(4.0)]
    data = Trajectories.from_list([np.zeros((4, 1))], time=late, metadata=Metadata(time_unit="s"))
    assert read(path, data).axis == "time since start (s)" and read(path, data).panels[0].first == 0


def test_a_column_of_many_frames_has_the_most_frequent_label_and_its_share():
    rng = np.random.default_rng(0)
    path, chance = rng.integers(3, size=(1, 1000)), rng.dirichlet(np.ones(3), (1, 1000))
    seen = rng.random(1000) > 0.3
    seen[:20] = np.arange(20) == 0
    data = Trajectories.from_list([np.zeros((1000, 1))], observed=[seen])
    found = read_timeline(path, chance, data, argument="path", most=100)
    assert (
        found.lasting == "10 frames"
        and found.panels[0].label.shape == (1, 100)
        and found.panels[0].label[0, 1] == -1
    )
    for column in (0, 2, 57, 99):
        frames = np.flatnonzero(seen[10 * column : 10 * column + 10]) + 10 * column
        most = np.bincount(path[0, frames], minlength=3).argmax()
        assert found.panels[0].label[0, column] == most
        np.testing.assert_allclose(found.panels[0].share[0, column], chance[0, frames, most].mean())
    axes = plots.role_timelines(path, chance, data, Figure(figsize=(2, 2)).subplots())
    assert not axes.collections and "of each" in axes.get_title()  # ticks would cover the colours


def test_more_rows_than_fit_are_counted():
    data = Trajectories.from_list([np.zeros((2, 1))] * 70)
    path = np.zeros((70, 2), int)
    axes = plots.role_timelines(path, probability_of(path), data)
    assert axes.get_title().endswith("60 of 70 sequences") and len(rows_of(axes)) <= 60


def test_sequences_below_the_rows_are_not_read():
    """A timeline of many sequences is that of the first, and takes less memory than the probabilities of all."""
    path = np.random.default_rng(0).integers(3, size=(2000, 50))
    data = Trajectories.from_list(list(np.zeros((2000, 50, 1))))
    chance = probability_of(path)
    some = data.take(np.arange(MOST_ROWS))
    wanted = read_timeline(path[:MOST_ROWS], chance[:MOST_ROWS], some, argument="path", most=500)
    tracemalloc.start()
    found = read_timeline(path, chance, data, argument="path", most=500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < chance.nbytes
    assert found.left_out == [f"{MOST_ROWS} of 2000 sequences"] and found.rows == wanted.rows
    for ours, theirs in zip(found.panels, wanted.panels, strict=True):
        np.testing.assert_array_equal(ours.label, theirs.label)
        np.testing.assert_array_equal(ours.share, theirs.share)


def test_no_texts_overlap_at_the_width_of_a_phone(wolves):
    data, path = wolves
    figure = Figure(figsize=(4, 4), layout="constrained")
    axes = plots.role_timelines(path, probability_of(path), data, figure.subplots(), by="subject")
    FigureCanvasAgg(figure).draw()
    texts = [axes.title, axes.xaxis.label, axes.xaxis.get_offset_text(), *axes.get_legend().get_texts()]
    texts += [*axes.get_xticklabels(), *axes.get_yticklabels(), *axes.child_axes[0].get_yticklabels()]
    low, high = axes.get_xlim()
    boxes = [text.get_window_extent() for text in texts if text.get_text() and text.get_visible()]
    assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes) and low < high
    overlapping = [(i, j) for i in range(len(boxes)) for j in range(i) if boxes[i].overlaps(boxes[j])]
    assert not overlapping


def test_a_zoomable_timeline_has_the_same_places_and_names(plays, wolves):
    figure = plots.zoomable_timeline(PATH, probability_of(PATH), plays)
    first, second = figure.data
    np.testing.assert_array_equal(first.z, [[0, 0, 1, 1], [2, 2, 2, 2]])
    np.testing.assert_array_equal(second.z, [[1, 1, 1], [2, 0, 0]])
    np.testing.assert_allclose(first.customdata, 0.75)
    np.testing.assert_allclose(first.x, np.arange(5) / 5)  # edges
    assert list(first.y) == ["Ada", "Bo"] and figure.layout.xaxis.title.text == "time since start (s)"
    assert "plotly" in figure.to_html(include_plotlyjs=False).lower()
    data, path = wolves
    (heat,) = plots.zoomable_timeline(path, probability_of(path), data, names=["rest", "walk", "eat"]).data
    assert pandas.Timestamp(heat.x[0]) == pandas.Timestamp("2024-05-01") and heat.text[1][1] == "eat"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agents": ["w0", "fox"]}, "agents has 'fox': give some of"),
        (
            {"window": ("2025-01-01", "2025-01-02")},
            "has no recorded frame.*2024-04-30T22:00:00 to 2024-05-01T03",
        ),
        ({"window": ("noon", "2025-01-02")}, "window has the end 'noon': give dates"),
        ({"window": "2024"}, "give its start and its stop"),
        ({"by": "sex"}, "by is 'sex': give 'group', 'subject'"),
        ({"by": "group"}, "by has 'group', and the data have no group"),
        ({"by": {"sex": {"w0": "f"}}}, r"by\['sex'\] has no level of the agent w1, w2"),
        ({"names": ["a"]}, "names has 1 entries: give 3"),
    ],
)
def test_what_is_not_there_is_refused(wolves, options, message):
    data, path = wolves
    with pytest.raises(ValueError, match=message):
        read(path, data, **options)


def test_roles_of_other_data_are_refused(plays):
    with pytest.raises(ValueError, match=r"labels has shape \(3, 4\)"):
        plots.zoomable_timeline(PATH[:3], probability_of(PATH)[:3], plays)
    with pytest.raises(ValueError, match=r"path has shape \(3, 4\)"):
        plots.role_timelines(PATH[:3], probability_of(PATH)[:3], plays)
    with pytest.raises(ValueError, match="no recorded frame"):
        read(np.full_like(PATH, -1), plays)
