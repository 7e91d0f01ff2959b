"""Random files of tracking, read as their programs' own readers read them: names, order of axes and columns, gaps."""

from __future__ import annotations

import json
import warnings

import h5py
import numpy as np
import pandas
import pytest
import xarray

from ethogram import tracking

pytestmark = pytest.mark.slow

NAMES = ("ada", "1", "01", "007", "7", "NA", "None", "null", "True", "1.0", "größe", "a b")
SEEDS = range(25)


def drawn(seed):
    """A generator, names of up to three animals and four keypoints, and positions (frame, animal, keypoint, axis)."""
    rng = np.random.default_rng(seed)
    animals = [str(name) for name in rng.permutation(NAMES)[: rng.integers(1, 4)]]
    points = [str(name) for name in rng.permutation(NAMES)[: rng.integers(1, 5)]]
    position = rng.integers(-1, 700, (rng.integers(2, 12), len(animals), len(points), 2)).astype(float)
    position[rng.random(position.shape[:3]) < 0.2] = np.nan
    return rng, animals, points, position


def compare(data, animals, points, position):
    """Values by names of animals and keypoints, NaN where missing; frames at the end may be missing altogether."""
    assert data.metadata.feature_names == tuple(f"{point}.{axis}" for point in points for axis in "xy")
    assert sorted(data.metadata.agent_names) == sorted(animals)
    for number, animal in enumerate(animals):
        row = int(np.flatnonzero(data.agent == data.metadata.agent_names.index(animal))[0])
        seen = ~np.isnan(position[:, number]).all((1, 2))
        np.testing.assert_array_equal(data.observed[row], seen)
        found = data.observations[row].reshape(len(position), len(points), 2)
        np.testing.assert_allclose(found[seen], position[seen, number], rtol=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_deeplabcut_as_pandas_reads_it(tmp_path, seed):
    rng, animals, points, position = drawn(seed)
    columns = [("net", *each, axis) for each in np.ndindex(len(animals), len(points)) for axis in (0, 1)]
    columns = [("net", animals[a], points[p], "xy"[axis]) for _, a, p, axis in columns]
    levels = ["scorer", "individuals", "bodyparts", "coords"]
    table = pandas.DataFrame(
        position.reshape(len(position), -1), columns=pandas.MultiIndex.from_tuples(columns, names=levels)
    )
    shuffled = table.iloc[rng.permutation(len(table)), rng.permutation(table.shape[1])]
    if len(animals) == 1 and seed % 2:
        shuffled = shuffled.droplevel("individuals", axis=1)
        animals = ["individual"]
    shuffled.to_csv(tmp_path / "a.csv")
    levels = list(range(shuffled.columns.nlevels))
    peer = pandas.read_csv(tmp_path / "a.csv", header=levels, index_col=0).sort_index()
    np.testing.assert_array_equal(peer.to_numpy(), shuffled.sort_index().to_numpy())
    data = tracking.read_deeplabcut(tmp_path / "a.csv", keypoints=points)
    compare(data, animals, points, position)


@pytest.mark.parametrize("seed", SEEDS)
def test_analysis_files_in_any_order_of_axes(tmp_path, seed):
    rng, animals, points, position = drawn(seed)
    axes, score = np.array(["frame", "track", "node", "xy"]), rng.random(position.shape[:3])
    order = rng.permutation(4)
    own = [axis for axis in order if axis != 3]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["tracks"], file["point_scores"] = position.transpose(order), score.transpose(own)
        file["tracks"].attrs["dims"] = json.dumps(axes[order].tolist())
        file["node_names"], file["track_names"] = (
            [name.encode() for name in each] for each in (points, animals)
        )
    position[score < 0.3] = np.nan
    compare(tracking.read_sleap(tmp_path / "a.h5", min_score=0.3), animals, points, position)


@pytest.mark.parametrize("seed", SEEDS)
def test_datasets_of_movement_in_any_order_of_dims(tmp_path, seed):
    rng, animals, points, position = drawn(seed)
    dims = ("time", "individuals", "keypoints", "space")
    coords = {
        "time": np.arange(len(position)) / 25,
        "individuals": animals,
        "keypoints": points,
        "space": ["x", "y"],
    }
    dataset = xarray.Dataset({"position": (dims, position)}, coords, {"time_unit": "seconds", "fps": 25})
    dataset = dataset.transpose(*rng.permutation(dims)).isel(space=rng.permutation(2))
    if seed % 5 == 0:
        dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    data = tracking.from_movement(tmp_path / "a.nc" if seed % 5 == 0 else dataset)
    assert data.metadata.frame_rate == pytest.approx(25)
    compare(data, animals, points, position)


@pytest.mark.parametrize("seed", SEEDS)
def test_projects_of_sleap_as_its_own_objects_say(tmp_path, seed):
    """Animals that come and go, people's corrections, strays without a track: each frame of each track by itself."""
    sleap = pytest.importorskip("sleap_io")
    rng, animals, points, position = drawn(seed)
    skeleton, video = sleap.Skeleton(list(points)), sleap.Video("a.mp4", open_backend=False)
    tracks, frames = [sleap.Track(name) for name in animals], []
    expected, strays = np.full_like(position, np.nan), 0
    for number, rows in enumerate(position):
        instances = []
        for row in rng.permutation(len(animals)):
            kinds = rng.random(3) < (0.6, 0.3, 0.15)  # predicted, corrected by a person, without a track
            noise = rng.normal(size=rows[row].shape)
            if kinds[0]:
                points_of = rows[row] + (noise if kinds[1] else 0)
                instances.append(sleap.PredictedInstance.from_numpy(points_of, skeleton, track=tracks[row]))
            if kinds[1]:
                old = instances[-1] if kinds[0] and rng.random() < 0.5 else None
                own = sleap.Instance.from_numpy(rows[row], skeleton, track=tracks[row])
                own.from_predicted = old
                instances.append(own)
            if kinds[2]:
                instances.append(sleap.PredictedInstance.from_numpy(rows[row] + noise, skeleton))
                strays += 1
            if kinds[0] or kinds[1]:
                expected[number, row] = rows[row]
        order = rng.permutation(len(instances))
        frames.append(
            sleap.LabeledFrame(video=video, frame_idx=number, instances=[instances[i] for i in order])
        )
    labels = sleap.Labels(frames, videos=[video], tracks=tracks, skeletons=[skeleton])
    sleap.save_slp(labels, str(tmp_path / "a.slp"), embed=False)
    present = [n for n, track in enumerate(tracks)
               if any(i.track is track for frame in frames for i in frame.instances)]  # fmt: skip
    last = max((n for n, frame in enumerate(frames) if any(i.track for i in frame.instances)), default=0)
    if not present:
        return
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        data = tracking.read_sleap(tmp_path / "a.slp")
    assert any(f"{strays} animals without a track" in str(w.message) for w in seen) == (strays > 0)
    compare(data, [animals[n] for n in present], points, expected[: last + 1, present])


@pytest.mark.parametrize("seed", SEEDS)
def test_movebank_as_pandas_groups_it(seed):
    """Positions by animal and hour; marks, other sensors and rows of no animal, in any order of rows."""
    rng = np.random.default_rng(seed)
    names = rng.permutation(NAMES)[:3]
    count = 40
    hour, animal = rng.permutation(120)[:count], rng.integers(-1, 3, count)
    table = pandas.DataFrame(
        {
            "individual-local-identifier": [None if a < 0 else str(names[a]) for a in animal],
            "timestamp": pandas.Timestamp("2010-05-01") + pandas.to_timedelta(hour, "h"),
            "location-long": rng.uniform(-180, 180, count).round(4),
            "location-lat": rng.uniform(-90, 90, count).round(4),
            "visible": rng.random(count) < 0.9,
        }
    )
    table.loc[rng.random(count) < 0.3, ["location-long", "location-lat"]] = np.nan
    noise = table[table["location-long"].isna()].assign(
        timestamp=lambda rows: rows["timestamp"] + pandas.Timedelta("17min")
    )
    whole = pandas.concat([table, noise]).sample(frac=1, random_state=seed)
    good = table[table["visible"]].dropna()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        data = tracking.read_movebank(whole, step="1h")
    for name, rows in good.groupby("individual-local-identifier"):
        number = int(np.flatnonzero(data.agent == data.metadata.agent_names.index(name))[0])
        frame = ((rows["timestamp"] - rows["timestamp"].min()) / pandas.Timedelta("1h")).astype(int)
        assert np.flatnonzero(data.observed[number]).tolist() == sorted(frame)
        assert data.lengths[number] == frame.max() + 1
        np.testing.assert_array_equal(
            data.observations[number, frame], rows[["location-long", "location-lat"]].to_numpy()
        )
    assert set(data.metadata.agent_names) == set(good["individual-local-identifier"])
