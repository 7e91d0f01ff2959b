"""Archives: every array as written, and a named cause for every file that is not whole."""

from importlib import resources

import numpy as np
import pytest

from ethogram.domains.data import archive


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "numbers.npz"
    np.savez_compressed(path, a=np.arange(5000), b=np.array(["x", "y"]))
    return path


def test_arrays_come_in_the_order_asked_for(path):
    names, numbers = archive.read(path, ["b", "a"])
    np.testing.assert_array_equal(numbers, np.arange(5000))
    assert names.tolist() == ["x", "y"]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.5, 0.9, 0.99])
def test_a_file_cut_short_is_named(path, share):
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"numbers\.npz is not the npz archive expected .*end is missing"):
        archive.read(path, ["a"])


def test_a_changed_byte_is_found(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"numbers\.npz is not the npz archive expected"):
        archive.read(path, ["a", "b"])


def test_pickled_objects_and_missing_arrays_are_refused(path):
    np.savez(path, a=np.array([{"no": "pickles"}], dtype=object))
    with pytest.raises(ValueError, match=r"numbers\.npz .*allow_pickle"):
        archive.read(path, ["a"])
    with pytest.raises(ValueError, match="no array c in it"):
        archive.read(path, ["a", "c"])


def test_a_missing_embedded_file_is_named():
    with pytest.raises(FileNotFoundError, match="rugby"):
        archive.embedded("rugby", "rugby_5hz.npz", ["xy"])


def test_outside_data_are_found_under_the_environment_variable(path, monkeypatch):
    monkeypatch.setenv("ETHOGRAM_DATA", str(path.parents[1]))
    assert archive.external(path.parent.name, "numbers.npz") == path
    with pytest.raises(FileNotFoundError, match=r"other\.npz is not there .*set ETHOGRAM_DATA to the folder"):
        archive.external(path.parent.name, "other.npz")
    monkeypatch.delenv("ETHOGRAM_DATA")
    with pytest.raises(FileNotFoundError, match=r"ETHOGRAM_DATA is not set: set it to the folder that holds"):
        archive.external(path.parent.name, "numbers.npz")


MIT = "Permission is hereby granted, free of charge"
NOTICES = {
    "football": (MIT, "Copyright (c) 2023, Alexander Oonk & Daan Grob", "Alek050/databallpy"),
    "labyrinth": (
        *(MIT, "Copyright (c) 2021 Markus Meister", "markusmeister/Rosenberg-2021-Repository"),
        *("Copyright (c) 2024 Jingyang Ke", "BRAINML-GT/SWIRL"),
    ),
    "gridworld5": (MIT, "Copyright (c) 2024 Jingyang Ke", "BRAINML-GT/SWIRL"),
}


@pytest.mark.parametrize("name", NOTICES)
def test_licences_travel_with_the_data(name):
    folder = resources.files("ethogram.domains.data") / name
    notice = (folder / "NOTICE").read_text(encoding="utf-8")
    assert all(words in notice for words in NOTICES[name])
    assert name != "gridworld5" or len((folder / "gridworld5_switching.npz").read_bytes()) < 100_000
