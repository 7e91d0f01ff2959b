"""The folder of many fits: one writer at a time, and a disk that is full for a while."""

from __future__ import annotations

import os

import pytest

from ethogram.fits.fit_tasks import pack
from ethogram.fits.fits_folder import FitsFolder
from ethogram.fits.task_types import Failure

NAMES = {"1": "", "2": "", "3": ""}


def test_results_that_cannot_be_written_stay_in_memory_and_are_tried_again(tmp_path, monkeypatch):
    path, full, true = tmp_path / "runs", [False], os.fsync

    def fsync(descriptor):
        if full[0]:
            raise OSError(28, "No space left on device")
        true(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = FitsFolder(path)
    folder.begin("call", NAMES)
    with folder.held():
        folder.write("1", pack(1, ()), ())
        full[0] = True
        for name, result in (("2", pack(2, ("said",))), ("3", Failure("3", "the error", "its traceback"))):
            with pytest.warns(
                UserWarning, match="not written, and the fits go on: .*No space left on device: .*runs"
            ):
                folder.write(name, result, ())
        assert [folder.read(name) for name in "12"] == [(1, ()), (2, ("said",))]
        assert folder.finished("2") and folder.failed("3") and folder.read("3")[0].error == "the error"
        assert not FitsFolder(path).finished("2") and not FitsFolder(path).failed("3")
        full[0] = False
    assert FitsFolder(path).read("2") == (2, ("said",)) and FitsFolder(path).failed("3")
    with folder.held():
        folder.write("3", pack(3, ()), ())
    assert FitsFolder(path).read("3") == (3, ()) and not [*path.glob("*.failure"), *path.glob(".*")]


def test_two_calls_do_not_write_to_one_folder_and_what_is_interrupted_says_so(tmp_path, capsys):
    folder = FitsFolder(tmp_path / "runs")
    folder.begin("call", NAMES)
    with folder.held():
        for refused in (
            folder.held().__enter__,
            lambda: FitsFolder(folder.path).begin("call", NAMES | {"4": ""}),
        ):
            with pytest.raises(BlockingIOError, match=f"in use by process {os.getpid()} on .* since"):
                refused()
        assert not FitsFolder(folder.path).finished("1")  # which can be read
    with pytest.raises(KeyboardInterrupt), folder.held():
        raise KeyboardInterrupt
    assert "runs: fits that are done are saved; the same call goes on" in capsys.readouterr().err


def test_long_names_of_one_beginning_do_not_share_a_file(tmp_path):
    """Two, whose digests agree in their first 32 bits."""
    folder = FitsFolder(tmp_path)
    assert folder.file_of("x" * 60 + "46721") != folder.file_of("x" * 60 + "47283")
