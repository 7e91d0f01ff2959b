"""Trajectories in a folder: what comes back, what stands in the way, and parts of large data."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys

import jax
import numpy as np
import pytest

from ethogram.models.data import Trajectories, parts
from ethogram.models.data.on_disk import TABLE, disk_array


def ragged():
    """Two groups of sequences of unequal lengths, with all kinds of arrays, names and gaps."""
    return Trajectories.from_list(
        [[[0.0, 1.0], [2.0, np.nan], [3.0, 4.0]], [[5.0, 6.0]], [[7.0, 8.0], [np.nan, np.nan]]],
        states=[["rest", "walk", "walk"], ["walk"], ["rest", "rest"]],
        actions=[[0, 1, -1], [1], [0, 0]],
        stay=[[1, 0, -1], [1], [0, -1]],
        agent=["cat", "ape", "cat"],
        group=[0, 0, 1],
        subject=["x", "y", None],
        time=[[0.0, 0.5, 1.0], [0.5], [3.0, 3.5]],
        step=0.5,
        missing="nan",
    )


def assert_equal(found, data):
    assert found.metadata == data.metadata
    for field in Trajectories._fields[:-1]:
        array, expected = getattr(found, field), getattr(data, field)
        if expected is None:
            assert array is None, field
        else:
            np.testing.assert_array_equal(array, expected, field)
            assert array.dtype == expected.dtype, field


@pytest.mark.parametrize("drop", [(), ("observations", "times"), ("states", "actions", "stay", "group")])
def test_a_folder_gives_back_every_array_and_name(tmp_path, drop):
    data = ragged()
    data = data._replace(**dict.fromkeys(drop))
    data.save(tmp_path / "data")
    found = Trajectories.open(tmp_path / "data")
    assert_equal(found, data)
    assert isinstance(found.observed, np.memmap)
    assert_equal(found.take([2, 0]), data.take([2, 0]))
    found.save(tmp_path / "data")  # onto itself
    assert_equal(Trajectories.open(tmp_path / "data"), data)
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_parts_are_written_one_after_another(tmp_path):
    data = ragged()
    each = (data.take([number])._replace() for number in range(3))
    found = Trajectories.save_parts(tmp_path / "parts", each)
    assert_equal(found, data)
    narrow = (data.take([number]).trim() for number in (1, 0, 2))
    found = Trajectories.save_parts(str(tmp_path / "parts"), narrow, num_steps=data.observed.shape[1])
    inside = found.observed | (np.arange(found.observed.shape[1]) < found.lengths[:, None])
    for field in ("observations", "states", "actions", "stay", "times"):
        expected = getattr(data.take([1, 0, 2]), field)
        np.testing.assert_array_equal(getattr(found, field)[inside], expected[inside])
        padding = getattr(found, field)[~inside]
        fill = {"observations": 0.0, "times": np.nan}.get(field, -1)
        np.testing.assert_array_equal(padding, np.full_like(padding, fill))


def test_parts_that_differ_are_refused(tmp_path):
    data = ragged()
    other = data._replace(observations=data.observations.astype(np.float32))
    for second, message in (
        (data._replace(stay=None), r"parts\[1\]\.stay is None"),
        (
            data._replace(metadata=dataclasses.replace(data.metadata, name="b")),
            r"parts\[1\]\.metadata\.name is 'b'",
        ),
        (other, r"parts\[1\]\.observations.dtype is .float32"),
        ("walk", "data is str, not Trajectories"),
    ):
        with pytest.raises((ValueError, TypeError), match=message):
            Trajectories.save_parts(tmp_path / "bad", [data, second])
    with pytest.raises(ValueError, match="has 3 steps, more than 2"):
        Trajectories.save_parts(tmp_path / "bad", [data], num_steps=2)
    for parts_of_none, name in ((data, "Trajectories"), (None, "NoneType")):
        with pytest.raises(TypeError, match=f"parts is {name}: give a list"):
            Trajectories.save_parts(tmp_path / "bad", parts_of_none)
    with pytest.raises(ValueError, match="parts is empty"):
        Trajectories.save_parts(tmp_path / "bad", [])
    assert not [*tmp_path.iterdir()]


def test_other_folders_are_refused(tmp_path):
    data, folder = ragged(), tmp_path / "data"
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Trajectories.open(folder)
    with pytest.raises(ValueError, match=f"has no {TABLE}"):
        Trajectories.open(tmp_path)
    with pytest.raises(ValueError, match="something else than trajectories"):
        data.save(tmp_path)
    with pytest.raises(FileNotFoundError, match="is no folder"):
        data.save(tmp_path / "none" / "data")
    data.save(folder)
    table = json.loads((folder / TABLE).read_text())
    with open(folder / "observations.npy", "rb") as file:
        content = file.read()
    for changed, message in (
        (
            table | {"format": "ethogram trajectories 2"},
            "'ethogram trajectories 2', expected 'ethogram trajectories 1'",
        ),
        (
            table | {"arrays": table["arrays"] | {"lengths": [4]}},
            r"lengths.npy has shape \(3,\), expected \[4\]",
        ),
        (table | {"metadata": {"colour": 1}}, "colour"),
        ([], "cannot be read as trajectories"),
    ):
        (folder / TABLE).write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message):
            Trajectories.open(folder)
    (folder / TABLE).write_text(json.dumps(table))
    (folder / "observations.npy").write_bytes(content[:-8])
    with pytest.raises(ValueError, match="cannot be read as trajectories"):
        Trajectories.open(folder)
    (folder / "observations.npy").unlink()
    with pytest.raises(ValueError, match="observations"):
        Trajectories.open(folder)


def test_files_of_others_are_kept(tmp_path):
    data, folder = ragged(), tmp_path / "data"
    data.save(folder)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="also holds notes"):
        data.save(folder)
    (folder / "notes.txt").unlink()
    link = tmp_path / "link"
    link.symlink_to(folder, target_is_directory=True)
    other = data.take([1])
    other.save(link)
    assert link.is_symlink()
    assert_equal(Trajectories.open(folder), other)
    assert {each.name for each in tmp_path.iterdir()} == {"data", "link"}


def test_copies_of_mapped_arrays_are_in_memory(tmp_path, monkeypatch):
    data, folder = ragged(), tmp_path / "data"
    data.save(folder)
    monkeypatch.setattr(parts, "LARGE", 1)
    found = Trajectories.open(folder)
    copies = jax.tree.map(lambda x: x.copy(), found)
    assert parts.on_disk(found) and isinstance(copies.observed, np.memmap) and not parts.on_disk(copies)
    changed = np.load(folder / "observations.npy", mmap_mode="c")
    changed += 1
    for each in (copies, pickle.loads(pickle.dumps(found)), data._replace(observations=changed)):
        rows = np.concatenate([rows for rows, _ in parts.in_parts(each)])
        assert sorted(rows) == [0, 1, 2]
    np.testing.assert_array_equal(changed, data.observations + 1)


KILLED = """
import os, sys, numpy as np
from ethogram import Trajectories

def parts():
    yield Trajectories.from_list([[0.0, 1.0]])
    print("half", flush=True)
    sys.stdin.read()

Trajectories.save_parts(sys.argv[1], parts())
"""


def test_a_writer_that_is_killed_leaves_what_was_there(tmp_path):
    data, folder = ragged(), tmp_path / "data"
    data.save(folder)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout.readline() == "half\n"
        os.kill(writer.pid, signal.SIGKILL)
    assert_equal(Trajectories.open(folder), data)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_whole_groups_stay_together_in_order(size):
    labels = np.random.default_rng(size).integers(12, size=40)
    found = list(parts.whole_groups(labels, size))
    joined = np.concatenate(found)
    np.testing.assert_array_equal(joined, np.argsort(labels, kind="stable"))
    for one, following in itertools.pairwise(found):
        assert labels[one].max() < labels[following].min()
        first = np.flatnonzero(labels == labels[following].min())
        assert len(one) <= max(size, np.bincount(labels)[labels[one[0]]])
        assert len(one) + len(first) > size  # the next group had no room


def test_results_are_gathered_in_place(tmp_path, monkeypatch):
    data = ragged()._replace(group=np.array([1, 0, 1], np.int32))
    data.save(tmp_path / "data")
    monkeypatch.setattr(parts, "LARGE", 4)
    monkeypatch.setattr(parts, "PART", 6)
    monkeypatch.setattr("ethogram.models.data.on_disk.IN_MEMORY", 8)
    seen = []

    def function(part):
        seen.append(part.num_sequences)
        assert not isinstance(part.observations, np.memmap)
        return part.observations[..., 0], part.lengths

    first, lengths = parts.gathered(Trajectories.open(tmp_path / "data"), function)
    assert seen == [1, 2]
    np.testing.assert_array_equal(first, data.observations[..., 0])
    np.testing.assert_array_equal(lengths, data.lengths)
    assert isinstance(first, np.memmap)
    assert disk_array((1,), np.int32) == 0
