"""The tour of systems that are made here: what it announces, where it puts files, and how errors come back."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
from importlib import import_module
from subprocess import PIPE
from types import SimpleNamespace

import pytest

from ethogram import tour

SYSTEM = """
import os

QUICK, FULL = 1, 2
prepared = []

class Tree:
    def to_netcdf(self, path, engine):
        with open(path, "w") as file:
            file.write(engine)

def prepare():
    prepared.append(os.getpid())

def tour(guide, sizes):
    seconds = guide.step("counting", quick=3, full=30)
    if guide.full:  # matplotlib takes long to import in each process
        with guide.figure(2, 1, "a title") as figure:
            figure.subplots().plot([sizes, guide.seed])
    guide.save(Tree())
    row = {"fit": guide.name, "sizes": sizes, "seed": guide.seed, "process": os.getpid(), "seconds": seconds()}
    return guide.report([row | {"prepared": len(prepared)}], ["a note"])
"""
FAULTS = """
import os
from pathlib import Path
QUICK = FULL = None

def tour(guide, sizes):
    if guide.name == "full-disk":
        raise OSError(28, "No space left on device", "x.nc")
    if guide.name.startswith("endless"):
        guide.say(f"process {os.getpid()}")
        with open(Path(__file__).with_name("pipe"), "rb", buffering=0) as pipe:
            pipe.read(1)
    os._exit(9)
"""
INTERRUPTED = """
import os, signal, sys
from ethogram import tour
from ethogram.commands import command_line

signal.signal(signal.SIGINT, signal.default_int_handler)
command_line._prepare = os.getpid
tour.available_cores = lambda: 2
names = ["endless", "endless too"]
tour.SYSTEMS.update({name: tour.System("faulty_system", 1, 1) for name in names})
sys.exit(command_line.main(["tour", *names, "--out", sys.argv[1]]))
"""


REAL = tour.SYSTEMS.copy()


@pytest.fixture(autouse=True)
def systems(tmp_path, monkeypatch):
    """Systems of modules that processes started from here find too."""
    (tmp_path / "made_system.py").write_text(SYSTEM)
    (tmp_path / "faulty_system.py").write_text(FAULTS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in tour.SYSTEMS.copy():
        monkeypatch.delitem(tour.SYSTEMS, name)
    for name in ("one", "two", "three"):
        monkeypatch.setitem(tour.SYSTEMS, name, tour.System("made_system", 2, 20))
    for name in ("full-disk", "killed", "endless"):
        monkeypatch.setitem(tour.SYSTEMS, name, tour.System("faulty_system", 1, 1))
    yield
    for name in ("made_system", "faulty_system"):
        sys.modules.pop(name, None)


@pytest.fixture
def pipe(tmp_path):
    """What the endless systems wait for: a byte ends one of them, with exit code 9."""
    os.mkfifo(tmp_path / "pipe")
    ends = os.open(tmp_path / "pipe", os.O_RDWR)
    yield ends
    os.close(ends)


@pytest.fixture
def interruptible():
    """The usual handler of Ctrl-C, which Python leaves out of a process that is started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_every_system_has_two_sizes_and_a_tour():
    for system in REAL.values():
        module = import_module(system.module)
        assert callable(module.tour) and type(module.QUICK) is type(module.FULL)
        assert 0 < system.quick <= system.full


def test_an_unknown_system_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"systems has 'ghost': choose from one, two"):
        tour.take_tour(["ghost"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_each_system_is_taken_once_and_its_table_follows_it(tmp_path):
    said: list[str] = []
    out = tmp_path / "a" / "b"
    reports = tour.take_tour(
        ["two", "one", "two"],
        out,
        full=True,
        seed=5,
        prepare=import_module("made_system").prepare,
        say=said.append,
    )
    assert list(reports) == ["two", "one"]
    row = reports["one"].rows[0]
    assert (row["sizes"], row["seed"], row["process"], row["prepared"]) == (2, 5, os.getpid(), 2)
    assert reports["one"].files == [out / f"one.{suffix}" for suffix in ("png", "pdf", "nc")]
    assert all(path.stat().st_size > 0 for path in reports["one"].files)
    words = [line.split("s] ")[-1] for line in said]
    assert words[0] == "tour: two, one in 1 process: about 40 s if nothing is compiled yet"
    assert words[1:5] == [
        "two: importing packages",
        "two: counting (about 30 s)",
        f"two: wrote {out / 'two.png'}",
        f"two: wrote {out / 'two.pdf'}",
    ]
    assert words[6].startswith("\ntwo\nfit") and words[6].endswith("a note\n")
    assert words[-1] == f"tour: 2 of 2 done, figures and ArviZ files are in {out}"
    assert all(line.startswith("[  0.") for line in (said[0], said[1]))


def test_processes_give_the_same_reports_and_a_terminal_shows_a_bar_for_each(tmp_path, monkeypatch):
    """In a window of 100 characters, with the lines of progress and the tables above the bars."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", screen)
    for name, value in {"COLUMNS": "100", "TERM": "xterm", "FORCE_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    names, prepare = ["one", "two", "three"], import_module("made_system").prepare
    reports = tour.take_tour(names, tmp_path, seed=3, processes=2, prepare=prepare)
    assert list(reports) == names
    rows = [report.rows[0] for report in reports.values()]
    assert [(row["sizes"], row["seed"], row["prepared"]) for row in rows] == [(1, 3, 1)] * 3
    assert len({row["process"] for row in rows} | {os.getpid()}) == 4
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", screen.getvalue())
    assert "in 2 processes: about 3 s" in shown
    assert re.search(r"one +━+ 0:00:\d\d of about 2 s done", shown)
    assert f"three: wrote {tmp_path / 'three.nc'}" in shown and "a note" in shown


def test_an_error_comes_back_as_it_is(tmp_path):
    with pytest.raises(OSError, match="No space left on device") as caught:
        tour.take_tour(["full-disk", "one"], tmp_path, say=lambda line: None)
    assert caught.value.filename == "x.nc"


def test_an_error_comes_back_from_its_process_and_ends_the_others(tmp_path, pipe):
    with pytest.raises(OSError, match="No space left on device") as caught:
        tour.take_tour(["endless", "full-disk"], tmp_path, processes=2, say=lambda line: None)
    assert caught.value.filename == "x.nc" and "faulty_system.py" in caught.value.__notes__[0]
    os.write(pipe, b".")
    for child in multiprocessing.active_children():
        child.join()
        assert child.exitcode == -signal.SIGTERM


def test_a_process_that_dies_is_told(tmp_path):
    with pytest.raises(RuntimeError, match="the tour of killed ended with exit code 9"):
        tour.take_tour(["killed", "one"], tmp_path, processes=2, say=lambda line: None)


def test_an_interrupt_ends_all_processes_and_is_told_in_one_line(tmp_path, pipe):
    """Not the death of the processes, which would follow if it were lost."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    }
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "out")]
    with subprocess.Popen(
        command, stdout=PIPE, stderr=PIPE, text=True, env=environment, start_new_session=True
    ) as running:
        child = int(next(line for line in running.stdout if "endless: process" in line).split()[-1])
        os.killpg(running.pid, signal.SIGINT)
        os.write(pipe, b"..")
        _, told = running.communicate()
    assert (running.returncode, told) == (130, "ethogram: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)


def test_an_interrupt_that_does_not_end_the_wait_is_seen(tmp_path, pipe, interruptible, monkeypatch):
    """As one that comes just before the wait; here another thread has it while the main thread waits."""

    def wait(readers, seconds=None):
        assert seconds is not None, "the interrupt would be seen only once a tour speaks"
        other = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
        other.start()
        other.join()
        return []

    monkeypatch.setattr(sys.modules["ethogram.tour.take_tour"], "connection", SimpleNamespace(wait=wait))
    with pytest.raises(KeyboardInterrupt):
        tour.take_tour(["endless", "one"], tmp_path, processes=2, say=lambda line: None)


def test_importing_the_tour_starts_no_device(tmp_path):
    code = "import sys, ethogram.tour; print('jax' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout == "False\n", answer.stderr


def test_numbers_stand_to_the_right_and_gaps_are_dashes():
    text = tour.format_table([{"name": "a", "score": "10.5"}, {"name": "long", "score": "2", "other": "yes"}])
    head, line, *rows = text.splitlines()
    assert head.split() == ["name", "score", "other"] and set(line) == {"─"}
    assert [row.split() for row in rows] == [["a", "10.5", "-"], ["long", "2", "yes"]]
    ends = {
        row.index(cell) + len(cell) for row, cell in zip([head, *rows], ["score", "10.5", "2"], strict=True)
    }
    assert len(ends) == 1 and rows[0].index("-") == rows[1].index("yes") == head.index("other")


def test_an_interrupted_file_leaves_the_old_one(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), tour.whole_file(path) as draft:
        draft.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old" and not list(tmp_path.glob(".tour-*"))
