"""Files of pose tracking, written here as their programs write them: values, names, what is missing, and refusals."""

from __future__ import annotations

import json

import h5py
import numpy as np
import pandas
import pytest
import xarray

from ethogram import tracking

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


def test_projects_of_sleap(tmp_path):
    sleap = pytest.importorskip("sleap_io")
    skeleton, video = sleap.Skeleton(list(POINTS)), sleap.Video("cage.mp4", open_backend=False)
    tracks = [sleap.Track(name) for name in ANIMALS]
    frames = []
    for frame in range(5):
        found = [
            sleap.PredictedInstance.from_numpy(
                POSITION[frame, number], skeleton, SCORE[frame, number], score=1.0, track=track
            )
            for number, track in enumerate(tracks)
        ]
        frames.append(sleap.LabeledFrame(video=video, frame_idx=frame, instances=found))
    sleap.save_slp(sleap.Labels(frames), str(tmp_path / "cage.slp"), embed=False)
    check_ada_and_bo(tracking.read_sleap(tmp_path / "cage.slp", frame_rate=30, min_score=0.5))


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
    with pytest.raises(ValueError, match=r"not 0\.0333333 apart"):
        tracking.from_movement(dataset.isel(time=[0, 1, 3]))


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
    dlc, sleap = tracking.read_deeplabcut, tracking.read_sleap
    for call, kind, message in (
        (lambda: dlc(tmp_path / "none.csv"), FileNotFoundError, "there is no such file"),
        (lambda: dlc(tmp_path / "cage.mp4"), ValueError, r"ends in none of \.csv"),
        (lambda: dlc(tmp_path / "other.csv"), ValueError, "is no CSV file of DeepLabCut"),
        (lambda: dlc(tmp_path / "labelled.csv"), ValueError, "rows that are images"),
        (lambda: dlc(tmp_path / "cage.csv", min_likelihood=2), ValueError, "min_likelihood"),
        (lambda: dlc(tmp_path / "cage.csv", keypoints=["paw"]), ValueError, "'paw': the file has nose, ear"),
        (lambda: dlc(tmp_path / "cage.csv", individuals="ada"), TypeError, "individuals is 'ada'"),
        (lambda: sleap(tmp_path / "broken.h5"), ValueError, "cannot be read"),
        (lambda: sleap(tmp_path / "empty.h5"), ValueError, "it has no tracks"),
        (lambda: tracking.from_movement(xarray.Dataset()), TypeError, "without a variable position"),
    ):
        with pytest.raises(kind, match=message):
            call()
