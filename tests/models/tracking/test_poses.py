"""Files of pose tracking, written here as their programs write them: values, names, what is missing, and refusals."""

from __future__ import annotations

import dataclasses
import json
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pandas
import pytest
import xarray

from ethogram import tracking
from ethogram.models.data import Metadata, Trajectories

RNG = np.random.default_rng(0)
POSITION = RNG.uniform(0, 640, size=(5, 2, 3, 2))  # frame, individual, keypoint, axis
SCORE = RNG.uniform(0.7, 1, size=(5, 2, 3))
SCORE[1, 0, 2] = 0.3
ANIMALS, POINTS = ("ada", "bo"), ("nose", "ear", "tail")
FEATURES = tuple(f"{point}.{axis}" for point in POINTS for axis in "xy")


def check_ada_and_bo(data, rate=30.0):
    """All readers give the same trajectories, with one keypoint of one frame below the threshold."""
    assert data.metadata.feature_names == FEATURES and data.metadata.frame_rate == rate
    assert data.metadata.agent_names == ANIMALS and set(data.metadata.feature_units) == {"pixels"}
    assert data.group.tolist() == [0, 0] and data.lengths.tolist() == [5, 5] and data.observed.all()
    expected = POSITION.copy()
    expected[1, 0, 2] = np.nan
    np.testing.assert_allclose(data.observations, expected.swapaxes(0, 1).reshape(2, 5, 6), rtol=1e-5)


def dlc_frame(animals=ANIMALS):
    """The table that DeepLabCut saves: levels of columns, in its order."""
    multi = animals == ANIMALS
    levels = ["scorer", *(["individuals"] if multi else []), "bodyparts", "coords"]
    columns, values = [], []
    for number, animal in enumerate(animals):
        for place, point in enumerate(POINTS):
            for axis, coordinate in enumerate(("x", "y", "likelihood")):
                columns.append(("DLC_resnet50", *([animal] if multi else []), point, coordinate))
                values.append(SCORE[:, number, place] if axis == 2 else POSITION[:, number, place, axis])
    return pandas.DataFrame(
        np.transpose(values), columns=pandas.MultiIndex.from_tuples(columns, names=levels)
    )


def test_deeplabcut_tables_of_several_animals(tmp_path):
    dlc_frame().to_csv(tmp_path / "cage.csv")
    data = tracking.read_deeplabcut(tmp_path / "cage.csv", frame_rate=30)
    check_ada_and_bo(data)
    assert data.metadata.group_names == ("cage",) and data.metadata.name == "cage"


def test_deeplabcut_tables_of_one_animal_with_empty_and_missing_frames(tmp_path):
    frame = dlc_frame(("ada",))
    frame.iloc[0] = np.nan
    frame.drop(index=3).to_csv(tmp_path / "one.csv")
    data = tracking.read_deeplabcut(tmp_path / "one.csv", keypoints=["tail", "nose"], min_likelihood=0)
    assert data.observed.tolist() == [[False, True, True, False, True]]
    assert data.metadata.feature_names == ("tail.x", "tail.y", "nose.x", "nose.y")
    np.testing.assert_allclose(data.observations[0, 1], POSITION[1, 0, [2, 0]].ravel())


def test_deeplabcut_files_in_hdf5(tmp_path):
    pytest.importorskip("tables")
    dlc_frame().to_hdf(tmp_path / "cage.h5", key="df_with_missing", mode="w")
    check_ada_and_bo(tracking.read_deeplabcut(tmp_path / "cage.h5", frame_rate=30))


@pytest.mark.parametrize("order", ["matlab", "named", "transposed"])
def test_analysis_files_of_sleap(tmp_path, order):
    """In the order of SLEAP's exporter, in that of sleap-io's Python preset, and of an old flag."""
    path = tmp_path / "cage.000_video.analysis.h5"
    with h5py.File(path, "w") as file:
        if order == "matlab":
            file["tracks"], file["point_scores"] = POSITION.transpose(1, 3, 2, 0), SCORE.transpose(1, 2, 0)
        elif order == "named":
            file["tracks"], file["point_scores"] = POSITION, SCORE
            file["tracks"].attrs["dims"] = json.dumps(["frame", "track", "node", "xy"])
        else:
            file["tracks"], file["point_scores"] = POSITION.transpose(0, 2, 3, 1), SCORE.transpose(0, 2, 1)
            file.attrs["transpose"] = False
        file["node_names"], file["track_names"] = np.bytes_(POINTS), np.bytes_(ANIMALS)
        file["track_occupancy"] = np.ones((5, 2), "uint8")
    check_ada_and_bo(tracking.read_sleap(path, frame_rate=30, min_score=0.5))


class Instance:
    """As of sleap-io, by what a project is read by."""

    from_predicted = None

    def __init__(self, points, skeleton, track, scores):
        self.points, self.skeleton, self.track = {"xy": points, "score": scores}, skeleton, track

    @classmethod
    def from_numpy(cls, points, skeleton, scores=None, score=None, track=None):
        return cls(points, skeleton, track, scores)

    def numpy(self):
        return self.points["xy"]


class Predicted(Instance):
    pass


class Track:
    def __init__(self, name):
        self.name = name


def stand_in():
    """What of sleap-io this file uses, where that is not installed."""
    saved = {}

    def frame(video, frame_idx, instances):
        kinds = {kind: [each for each in instances if type(each) is kind] for kind in (Instance, Predicted)}
        return SimpleNamespace(
            video=video, frame_idx=frame_idx, instances=instances,
            user_instances=kinds[Instance], predicted_instances=kinds[Predicted],
        )  # fmt: skip

    def save(labels, path, embed):
        Path(path).touch()
        saved[path] = labels

    return SimpleNamespace(
        Skeleton=lambda names: SimpleNamespace(nodes=list(map(Track, names))), Track=Track,
        Video=lambda name, open_backend: Track(name), LabeledFrame=frame, Instance=Instance,
        PredictedInstance=Predicted, save_slp=save, load_slp=lambda path, open_videos: saved[path],
        Labels=lambda frames, skeletons, **parts: SimpleNamespace(labeled_frames=frames, **parts),
    )  # fmt: skip


@pytest.fixture(params=["sleap-io", "stand-in"])
def sleap(request, monkeypatch):
    if request.param == "sleap-io":
        return pytest.importorskip("sleap_io", reason="sleap-io is not installed")
    monkeypatch.setitem(sys.modules, "sleap_io", stand_in())
    return sys.modules["sleap_io"]


def project(sleap, path, frames, *, tracks=(), videos=1):
    """A file of SLEAP of frames, each a list of (row of POSITION, track or None, score or None for a person)."""
    skeleton = sleap.Skeleton(list(POINTS))
    video, *others = [sleap.Video(f"{number}.mp4", open_backend=False) for number in range(videos)]
    known, labelled = [sleap.Track(name) for name in tracks], []
    for number, animals in enumerate(frames):
        instances = []
        for row, track, score in animals:
            own = {"track": None if track is None else known[track]}
            points = POSITION[number, row]
            if score is None:
                instances.append(sleap.Instance.from_numpy(points, skeleton, **own))
            else:
                scores = np.full(len(POINTS), score)
                instances.append(
                    sleap.PredictedInstance.from_numpy(points, skeleton, scores, score=1.0, **own)
                )
        labelled.append(sleap.LabeledFrame(video=video, frame_idx=number, instances=instances))
    labelled += [sleap.LabeledFrame(video=other, frame_idx=9, instances=instances) for other in others]
    labels = sleap.Labels(labelled, videos=[video, *others], tracks=known, skeletons=[skeleton])
    sleap.save_slp(labels, str(path), embed=False)
    return path


def animals_of(data):
    """Rows of POSITION that each agent has, None where missing, by name."""
    found = {}
    for name, seen, x in zip(data.metadata.agent_names, data.observed[np.argsort(data.agent)],
                             data.observations[np.argsort(data.agent)], strict=True):  # fmt: skip
        rows = []
        for frame in range(len(x)):
            same = [np.allclose(x[frame], POSITION[frame, row].ravel()) for row in range(2)]
            rows.append(same.index(True) if seen[frame] else None)
        found[name] = rows
    return found


def test_projects_are_read_track_by_track(tmp_path, sleap):
    """Two animals that never share a frame, a lone second track, a track without a frame, and two of one name."""
    apart = project(
        sleap, tmp_path / "a.slp", [[(0, 0, 0.9)], [(1, 1, 0.9)], [(0, 0, 0.9)]], tracks=("ada", "bo")
    )
    assert animals_of(tracking.read_sleap(apart)) == {"ada": [0, None, 0], "bo": [None, 1, None]}
    second = project(sleap, tmp_path / "b.slp", [[(1, 1, 0.9)], [(1, 1, 0.9)]], tracks=("ada", "bo"))
    assert animals_of(tracking.read_sleap(second)) == {"bo": [1, 1]}
    twins = project(
        sleap, tmp_path / "c.slp", [[(0, 0, 0.9), (1, 1, 0.9)], [(1, 1, 0.9)]], tracks=("fly", "fly")
    )
    assert animals_of(tracking.read_sleap(twins)) == {"fly": [0, None], "fly (2)": [1, 1]}
    assert animals_of(tracking.read_sleap(twins, individuals=["fly (2)"])) == {"fly (2)": [1, 1]}


def test_what_people_placed_comes_before_predictions(tmp_path, sleap):
    both = project(sleap, tmp_path / "a.slp", [[(0, 0, 0.9), (1, 0, None)], [(0, 0, 0.9)]], tracks=("ada",))
    assert animals_of(tracking.read_sleap(both)) == {"ada": [1, 0]}
    lone = project(sleap, tmp_path / "b.slp", [[(0, None, 0.9), (1, None, None)], [(0, None, 0.9)]])
    assert animals_of(tracking.read_sleap(lone, min_score=0.5)) == {"track 0": [1, 0]}


def test_animals_that_a_project_does_not_tell_apart_are_named(tmp_path, sleap):
    stray = project(
        sleap, tmp_path / "a.slp", [[(0, 0, 0.9)], [(1, None, 0.9)], [(0, 0, 0.9)]], tracks=("ada",)
    )
    with pytest.warns(UserWarning, match="1 animals without a track were left out, the first in frame 1 of"):
        assert animals_of(tracking.read_sleap(stray)) == {"ada": [0, None, 0]}
    several = project(sleap, tmp_path / "b.slp", [[(0, None, 0.9)], [(0, None, 0.9), (1, None, 0.9)]])
    with pytest.raises(ValueError, match=r"frame 1 of .*b\.slp has several animals without tracks"):
        tracking.read_sleap(several)
    twice = project(sleap, tmp_path / "c.slp", [[(0, 0, 0.9), (1, 0, 0.9)]], tracks=("ada",))
    with pytest.raises(ValueError, match=r"frame 0 of .*c\.slp has track 'ada' twice"):
        tracking.read_sleap(twice)
    second = project(sleap, tmp_path / "d.slp", [[(0, 0, 0.9)]], tracks=("ada",), videos=2)
    with pytest.warns(UserWarning, match="has 2 videos: only the first is read, with 1 frames"):
        assert animals_of(tracking.read_sleap(second)) == {"ada": [0]}


def analysis(path, names=ANIMALS, dims=None, shape=(5, 2, 3, 2), **settings):
    """A file of SLEAP of zeros, with axes frame, track, node and xy."""
    with h5py.File(path, "w") as file:
        tracks = file.create_dataset("tracks", shape, float, **settings)
        tracks.attrs["dims"] = json.dumps(["frame", "track", "node", "xy"]) if dims is None else dims
        file["node_names"], file["track_names"] = np.bytes_(POINTS), np.bytes_(names)
    return path


def test_tracks_of_one_name_are_two_animals_in_every_format(tmp_path):
    found = tracking.read_sleap(analysis(tmp_path / "a.h5", ("fly", "fly")))
    assert found.metadata.agent_names == ("fly", "fly (2)") and found.agent.tolist() == [0, 1]
    two = xarray.concat([boxes(np.arange(4))] * 2, "individuals")
    assert tracking.from_movement(two).metadata.agent_names == ("ada", "ada (2)")
    frame = dlc_frame(("ada",))
    pandas.concat([frame, frame], axis=1).to_csv(tmp_path / "two.csv")
    with pytest.raises(ValueError, match=r"has two columns individual\.nose\.x"):
        tracking.read_deeplabcut(tmp_path / "two.csv")


@pytest.mark.parametrize("plural", ["s", ""])
def test_datasets_of_movement(tmp_path, plural):
    dims = ("time", "space", f"keypoint{plural}", f"individual{plural}")
    dataset = xarray.Dataset(
        {
            "position": (dims, POSITION.transpose(0, 3, 2, 1)),
            "confidence": (("time", *dims[2:]), SCORE.transpose(0, 2, 1)),
        },
        coords={
            "time": np.arange(5) / 30,
            "space": ["x", "y"],
            dims[2]: list(POINTS),
            dims[3]: list(ANIMALS),
        },
        attrs={"fps": 30, "time_unit": "seconds", "source_software": "SLEAP", "ds_type": "poses"},
    )
    check_ada_and_bo(tracking.from_movement(dataset, min_confidence=0.5))
    dataset.to_netcdf(tmp_path / "cage.nc", engine="h5netcdf")
    check_ada_and_bo(tracking.from_movement(tmp_path / "cage.nc", min_confidence=0.5))
    del dataset.attrs["fps"]
    assert tracking.from_movement(dataset).metadata.frame_rate == pytest.approx(30)
    boxes = dataset.isel({dims[2]: 0}, drop=True)
    assert tracking.from_movement(boxes).metadata.feature_names == ("centre.x", "centre.y")
    for rate in (None, 30):
        with pytest.raises(ValueError, match=r"not 0\.0333333 apart"):
            tracking.from_movement(dataset.isel(time=[0, 1, 3]), frame_rate=rate)
    with pytest.raises(ValueError, match="do not increase"):
        tracking.from_movement(dataset.isel(time=[3, 2, 1]))


def boxes(times, **attributes):
    """Centres of one animal; attributes are those of movement."""
    dims = ("time", "space", "individuals")
    values = POSITION[: len(times), :1, 0].transpose(0, 2, 1)
    coords = {"time": times, "space": ["x", "y"], "individuals": ["ada"]}
    return xarray.Dataset({"position": (dims, values)}, coords=coords, attrs=attributes)


@pytest.mark.parametrize(
    ("times", "attributes", "rate"),
    [
        (np.arange(5) / 30, {"fps": 30, "time_unit": "seconds"}, 30),
        (np.arange(0, 5, 2) / 30, {"fps": 30, "time_unit": "seconds"}, 15),
        (np.arange(4) / 25, {"fps": 50, "time_unit": "seconds"}, 25),
        (np.arange(4) / 25, {"fps": 50}, 25),
        (np.arange(4), {"fps": 50, "time_unit": "frames"}, 50),
        (np.arange(0, 5, 2), {"fps": 50, "time_unit": "frames"}, 25),
        (np.arange(4), {"time_unit": "frames"}, None),
        (np.arange(4) * np.timedelta64(40, "ms"), {"fps": 50}, 25),
    ],
)
def test_the_frame_rate_of_a_dataset_is_that_of_its_times(times, attributes, rate):
    """With a warning where the attribute contradicts times in seconds, unless the rate is given."""
    contradicts = attributes.get("time_unit") != "frames" and attributes.get("fps") != rate
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = tracking.from_movement(boxes(times, **attributes)).metadata.frame_rate
    assert found == (rate if rate is None else pytest.approx(rate))
    assert [f"fps of dataset is {attributes.get('fps')}, but times are" in str(w.message) for w in seen] == (
        [True] * contradicts
    )
    assert tracking.from_movement(boxes(times, **attributes), frame_rate=7).metadata.frame_rate == 7


@pytest.mark.parametrize("fps", ["30", 0, [30]])
def test_a_frame_rate_that_is_no_number_is_named(fps):
    with pytest.warns(UserWarning, match="the attribute fps of dataset is .*, which is no frame rate"):
        assert tracking.from_movement(boxes(np.arange(4) / 25, fps=fps)).metadata.frame_rate is None
    assert tracking.from_movement(boxes(np.arange(4) / 25, fps=fps), frame_rate=7).metadata.frame_rate == 7


def test_bodies_are_centred_and_turned(tmp_path):
    """Against rotations by complex numbers."""
    dlc_frame().to_csv(tmp_path / "cage.csv")
    data = tracking.read_deeplabcut(tmp_path / "cage.csv", min_likelihood=0)
    turned = tracking.egocentric(data, centre="tail", heading="nose")
    assert turned.metadata.feature_names == ("nose.x", "ear.x", "ear.y")
    z = (POSITION[..., 0] + 1j * POSITION[..., 1]).swapaxes(0, 1)
    nose, ear = (z[..., place] - z[..., 2] for place in (0, 1))
    ear = ear * np.exp(-1j * np.angle(nose))
    np.testing.assert_allclose(turned.observations, np.stack([abs(nose), ear.real, ear.imag], -1))
    gapped = tracking.egocentric(
        tracking.read_deeplabcut(tmp_path / "cage.csv"), centre="tail", heading="nose"
    )
    assert gapped.observed.sum() == 9 and not gapped.observed[0, 1]
    for units, message in (
        ("degrees", "project them to metres"),
        ("rad", "np.rad2deg"),
        (("m", "km") * 3, "one unit"),
    ):
        other = dataclasses.replace(
            data.metadata, feature_units=[units] * 6 if isinstance(units, str) else units
        )
        with pytest.raises(ValueError, match=message):
            tracking.egocentric(data._replace(metadata=other), centre="tail", heading="nose")
    with pytest.raises(ValueError, match="heading is 'paw'"):
        tracking.egocentric(data, centre="tail", heading="paw")


def test_what_is_no_such_file_is_refused(tmp_path):
    dlc_frame().to_csv(tmp_path / "cage.csv")
    pandas.DataFrame({"x": [1.0]}).to_csv(tmp_path / "other.csv")
    labelled = dlc_frame()
    labelled.index = [f"labeled-data/cage/img{number}.png" for number in range(5)]
    labelled.to_csv(tmp_path / "labelled.csv")
    (tmp_path / "broken.h5").write_bytes(b"no file")
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    whole = (tmp_path / "cage.csv").read_text().splitlines()
    (tmp_path / "names.csv").write_text("\n".join([*whole[:2], whole[2][:-5], *whole[3:]]))
    for name, number in (("far", "10000000000"), ("late", "1e300"), ("nan", "nan")):
        (tmp_path / f"{name}.csv").write_text("\n".join([*whole[:4], number + whole[4][1:]]))
    analysis(tmp_path / "dims.h5", dims="[")
    analysis(tmp_path / "huge.h5", shape=(10**10, 2, 3, 2), chunks=(10**6, 1, 1, 1), compression="gzip")
    dlc, sleap = tracking.read_deeplabcut, tracking.read_sleap
    for call, kind, message in (
        (lambda: dlc(tmp_path / "none.csv"), FileNotFoundError, "there is no such file"),
        (lambda: dlc(tmp_path / "cage.mp4"), ValueError, r"ends in none of \.csv"),
        (lambda: dlc(tmp_path / "other.csv"), ValueError, "is no CSV file of DeepLabCut"),
        (lambda: dlc(tmp_path / "labelled.csv"), ValueError, "rows that are images"),
        (lambda: dlc(tmp_path / "names.csv"), ValueError, "lines of names of different lengths: 18 scorer"),
        (lambda: dlc(tmp_path / "far.csv"), ValueError, "GiB, more than 2: its last frame is 10000000000"),
        (lambda: dlc(tmp_path / "late.csv"), ValueError, "are no numbers from 0"),
        (lambda: dlc(tmp_path / "nan.csv"), ValueError, "are no numbers from 0"),
        (lambda: sleap(tmp_path / "dims.h5"), ValueError, r"dims are '\['"),
        (lambda: sleap(tmp_path / "huge.h5"), ValueError, "GiB, more than 2"),
        (lambda: dlc(tmp_path / "cage.csv", min_likelihood=2), ValueError, "min_likelihood"),
        (lambda: dlc(tmp_path / "cage.csv", keypoints=["paw"]), ValueError, "'paw': cage has nose, ear"),
        (lambda: dlc(tmp_path / "cage.csv", individuals="ada"), TypeError, "individuals is 'ada'"),
        (lambda: sleap(tmp_path / "broken.h5"), ValueError, "cannot be read"),
        (lambda: sleap(tmp_path / "empty.h5"), ValueError, "it has no tracks"),
        (lambda: tracking.from_movement(xarray.Dataset()), TypeError, "without a variable position"),
    ):
        with pytest.raises(kind, match=message):
            call()


def test_swapped_keypoints_are_counted_or_missing():
    """A mouse that turns slowly; nose and tail are swapped in three frames, of which a dropped one follows."""
    angle = np.linspace(0, 2, 40)
    tail = np.stack([np.arange(40.0), np.zeros(40)], -1)
    nose = tail + 5 * np.stack([np.cos(angle), np.sin(angle)], -1)
    pose = np.concatenate([nose, tail], -1)
    truth = [7, 20, 21]
    pose[truth] = pose[truth][:, [2, 3, 0, 1]]
    pose[22:30] = np.nan
    metadata = Metadata(feature_names=("nose.x", "nose.y", "tail.x", "tail.y"))
    data = Trajectories.from_list([pose], metadata=metadata, missing="nan")
    around = {"centre": "tail", "heading": "nose", "keep_motion": True}
    with pytest.warns(
        UserWarning, match="in 3 of 32 frames the axis from tail to nose .* first in frame 7 of sequence 0"
    ):
        kept = tracking.egocentric(data, **around)
    assert np.nanmax(np.abs(kept.observations[0, :, -1])) > 3
    clean = tracking.egocentric(data, **around, swapped="missing")
    assert np.flatnonzero(~clean.observed[0]).tolist() == [*truth, *range(22, 30)]
    np.testing.assert_allclose(clean.observations[0, [1, 5, 32], -1], 2 / 39, rtol=1e-6)
