"""Files that are replaced whole: interrupts, errors, permissions, links, and places where nothing can be written."""

import gzip
import os

import numpy as np
import pytest

from ethogram.inference import storage
from ethogram.models.networks.tokens import write_text
from ethogram.models.whole_files import refuse_place, replacing, whole_file

WRITERS = {
    "arrays": lambda path: storage.write(path, {"a": np.arange(3)}),
    "network": lambda path: write_text(path, "BAYES"),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_new_file_has_the_permissions_of_the_old_and_a_link_stays_one(tmp_path, write):
    """Results that only their owner may read became readable for all, and links became files."""
    private, link = tmp_path / "private", tmp_path / "link"
    private.write_text("old")
    private.chmod(0o600)
    link.symlink_to(private)
    write(link)
    assert link.is_symlink() and private.read_bytes() != b"old" and private.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "private"]


def test_what_is_being_written_is_as_private_as_what_it_replaces(tmp_path):
    path = tmp_path / "private"
    path.write_text("old")
    path.chmod(0o600)
    with replacing(path, "w") as file:
        assert os.stat(file.name).st_mode & 0o777 == 0o600 and path.read_text() == "old"
    path.chmod(0o664)
    with replacing(path, "w") as file:
        file.write("new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o664


@pytest.mark.parametrize("moment", ["open", "fsync", "replace", "replaced"])
def test_ctrl_c_at_any_moment_leaves_one_whole_file_and_is_no_other_error(tmp_path, monkeypatch, moment):
    """After the renaming, it was a FileNotFoundError of the temporary file."""
    path = tmp_path / "fit"
    storage.write(path, "old")
    name = {"replaced": "replace", "open": "chmod"}.get(moment, moment)
    true = getattr(os, name)

    def pressed(*given):
        if moment == "replaced":
            true(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, name, pressed)
        storage.write(path, "new")
    assert storage.read(path) == ("new" if moment == "replaced" else "old")
    assert [each.name for each in tmp_path.iterdir()] == ["fit"]


def test_a_full_disk_is_an_error_of_the_file_and_keeps_the_old_one(tmp_path, monkeypatch):
    path = tmp_path / "fit"
    storage.write(path, "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    with (
        monkeypatch.context() as patch,
        pytest.raises(OSError, match=r"No space left on device: .*fit'") as seen,
    ):
        patch.setattr(os, "fsync", full)
        storage.write(path, "new")
    assert seen.value.errno == 28 and storage.read(path) == "old" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_folders_without_permissions_are_written_and_a_name_of_a_folder_is_none_of_a_file(
    tmp_path, monkeypatch, write
):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    path = tmp_path / "fit"
    path.write_text("old")
    monkeypatch.setattr(os, "chmod", refused)
    write(path)
    assert path.read_bytes() != b"old"
    with pytest.raises(IsADirectoryError):
        write(f"{tmp_path}/fits/")
    assert [each.name for each in tmp_path.iterdir()] == ["fit"]


def test_compressed_text_and_devices_are_written(tmp_path):
    write_text(tmp_path / "net.uai.gz", "BAYES\n")
    assert gzip.decompress((tmp_path / "net.uai.gz").read_bytes()) == b"BAYES\n"
    write_text("/dev/null", "BAYES\n")
    assert not os.path.isfile("/dev/null")


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("", "is no path of a file: it is empty"),
        ("{0}/fits/", "is no path of a file: it names a folder"),
        ("{0}/none/fit", "the folder .*none does not exist"),
        ("{0}", "it is a folder"),
        ("/dev/null", "it is a device or a pipe"),
        ("/proc/fit", "to the folder /proc"),
        ("{0}/" + 300 * "x", "File name too long"),
        ("{0}/a\0b", "null character"),
    ],
)
def test_what_cannot_be_written_is_said_before(tmp_path, path, fault):
    """The file system of /proc takes no file, whatever the permissions of its folder say."""
    with pytest.raises(OSError, match=fault):
        refuse_place(path.format(tmp_path))
    refuse_place(tmp_path / ("x" * 250))
    assert not list(tmp_path.iterdir())


def test_a_draft_replaces_the_file_only_when_it_is_complete(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), whole_file(path) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and [each.name for each in tmp_path.iterdir()] == ["kept.txt"]
    with whole_file(path) as draft:
        draft.write_text("new")
    assert path.read_text() == "new"
