"""The tour of systems that are made here: what it writes and prints, and how errors and Ctrl-C end it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from subprocess import PIPE
from types import SimpleNamespace

import numpy as np
import pytest

from ethogram import tour
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.tour import guide

# A process that takes a system of this module runs it without importing JAX.
SYSTEM = """
import os, sys
from ethogram.tour import TourReport

EXAMPLE, prepared = "made", []

def prepare():
    prepared.append(os.getpid())

def run(example, name, out, say, *, full, seed):
    say(f"counting {example}")
    row = {"fit": name, "full": full, "seed": seed, "process": os.getpid(), "prepared": len(prepared)}
    return TourReport([row], [out / name])

sys.modules["ethogram.tour.take_tour"].run = run
"""
FAULTS = """
import os, sys
from pathlib import Path
from ethogram.models.whole_files import whole_file

EXAMPLE = None

def run(example, name, out, say, **settings):
    if name == "full-disk":
        raise OSError(28, "No space left on device", "x.nc")
    if name.startswith("endless"):
        with whole_file(out / name), open(Path(__file__).with_name("pipe"), "rb", buffering=0) as pipe:
            say(f"process {os.getpid()}")
            pipe.read(1)
    os._exit(9)

sys.modules["ethogram.tour.take_tour"].run = run
"""
INTERRUPTED = """
import signal, sys
from ethogram import tour

signal.signal(signal.SIGINT, signal.default_int_handler)
tour.SYSTEMS.update({name: "faulty_system" for name in ("endless", "endless too")})
try:
    tour.take_tour(["endless", "endless too"], sys.argv[1], processes=2)
except KeyboardInterrupt:
    print("ethogram: interrupted", file=sys.stderr)
    sys.exit(130)
"""


@pytest.fixture(autouse=True)
def systems(tmp_path, monkeypatch):
    """Systems of modules that processes started from here find too."""
    (tmp_path / "made_system.py").write_text(SYSTEM)
    (tmp_path / "faulty_system.py").write_text(FAULTS)
    monkeypatch.syspath_prepend(tmp_path)
    for name in tour.SYSTEMS.copy():
        monkeypatch.delitem(tour.SYSTEMS, name)
    for name in ("one", "two", "three"):
        monkeypatch.setitem(tour.SYSTEMS, name, "made_system")
    for name in ("full-disk", "killed", "endless"):
        monkeypatch.setitem(tour.SYSTEMS, name, "faulty_system")
    monkeypatch.setattr(sys.modules["ethogram.tour.take_tour"], "run", guide.run)
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


class Tree:
    def to_netcdf(self, path, engine):
        with open(path, "w") as file:
            file.write(engine)


def example_of(results, fitted):
    """An example of one number, whose fits are `results`, one after the other; it records the settings of each."""

    def fit(key, model, data, **settings):
        fitted.append((model, data, settings))
        return SimpleNamespace(
            result=results[len(fitted) - 1], seconds=1.25, to_arviz=lambda **options: Tree()
        )

    return guide.Example(
        about="counting",
        load=lambda key, full: (7 if full else 3, "known"),
        model=lambda known: f"model of {known}",
        settings={"method": "count", "num_steps": 10},
        full={"num_steps": 20},
        truth=lambda fit, known: [("number", "2.9", known)],
        draw=lambda fit, known, figure: figure.subplots().set_title(known),
        size=(2, 1),
        fit=fit,
    )


def test_an_example_is_fitted_longer_until_it_has_converged_and_written(tmp_path):
    fitted, said = [], []
    results = [SimpleNamespace(converged=False), SimpleNamespace(converged=True)]
    report = guide.run(example_of(results, fitted), "one", tmp_path, said.append, full=True)
    assert [settings["num_steps"] for *_, settings in fitted] == [20, 40]
    assert fitted[0][:2] == ("model of known", 7)
    assert report.rows == [
        {"quantity": "counting", "learned": "by count", "truth": "-", "seconds": "1.2"},
        {"quantity": "number", "learned": "2.9", "truth": "known"},
    ]
    assert report.files == [tmp_path / "one.png", tmp_path / "one.nc"]
    assert sorted(path.name for path in tmp_path.glob("one.*")) == ["one.nc", "one.png"]
    assert (tmp_path / "one.nc").read_text() == "h5netcdf"
    assert said[1] == "counting: count, 2 times as long"


def test_what_has_not_converged_is_not_shown(tmp_path):
    fitted = []
    example = example_of([SimpleNamespace(converged=False)] * 4, fitted)
    report = guide.run(example, "one", tmp_path, lambda line: None)
    assert len(fitted) == 3 and not report.files and not list(tmp_path.glob("one.*"))
    assert [row["learned"] for row in report.rows] == ["not converged: nothing is shown"]
    without_length = example._replace(settings={"method": "count"})
    assert not guide.run(without_length, "one", tmp_path, lambda line: None).files
    assert len(fitted) == 4  # the same fit again would end as before


def test_chains_that_disagree_have_not_converged():
    chains = np.random.default_rng(0).normal(size=(4, 200, 2))
    for apart, converged in ((0.0, True), (2.0, False)):
        sites = {"v": chains + apart * np.arange(4)[:, None, None]}
        fit = SimpleNamespace(result=SampledPosterior(None, sites, {}))
        assert guide.has_converged(fit) == converged
    assert guide.has_converged(SimpleNamespace(seconds=1.0))


def test_an_unknown_system_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"systems has 'ghost': choose from one, two"):
        tour.take_tour(["ghost"], tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("processes", [1, 2])
def test_each_system_is_taken_once_and_its_table_follows_it(tmp_path, capfd, processes):
    import made_system

    out = tmp_path / "a" / "b"
    reports = tour.take_tour(
        ["two", "one", "two"], out, full=True, seed=5, processes=processes, prepare=made_system.prepare
    )
    assert list(reports) == ["two", "one"]
    row = reports["one"].rows[0]
    assert (row["full"], row["seed"], row["prepared"]) == (True, 5, 1)
    assert (row["process"] == os.getpid()) == (processes == 1)
    shown = capfd.readouterr().out
    assert f"tour: two, one; processes: {processes}\n" in shown and "] two: counting made\n" in shown
    assert "\none\nfit" in shown
    assert shown.endswith(f"tour: 2 of 2 done, figures and ArviZ files are in {out}\n")


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_comes_back_as_it_is_and_ends_the_others(tmp_path, pipe, processes):
    names = ["endless", "full-disk"] if processes == 2 else ["full-disk", "one"]
    with pytest.raises(OSError, match="No space left on device") as caught:
        tour.take_tour(names, tmp_path, processes=processes)
    assert caught.value.filename == "x.nc"
    if processes == 2:
        assert "faulty_system.py" in str(caught.value.__cause__)
        assert not list(tmp_path.glob(".draft-*"))


def test_a_process_that_dies_is_reported(tmp_path):
    with pytest.raises(RuntimeError, match=r"a process of the tour died; not done: .*killed"):
        tour.take_tour(["killed", "one"], tmp_path, processes=2)


def test_an_interrupt_ends_all_processes_and_is_reported_in_one_line(tmp_path, pipe):
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
        _, shown = running.communicate(timeout=60)
    assert (running.returncode, shown) == (130, "ethogram: interrupted\n")
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert not list((tmp_path / "out").iterdir())


def test_an_interrupt_that_does_not_end_the_wait_is_seen(tmp_path, pipe, interruptible, monkeypatch):
    """As one that comes just before the wait; here another thread has it while the main thread waits."""

    def wait(waiting, seconds=None, when=None):
        assert seconds is not None, "the interrupt would be seen only once a system is done"
        other = threading.Thread(target=lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
        other.start()
        other.join()
        return set(), set()

    monkeypatch.setattr(sys.modules["ethogram.tour.take_tour"].futures, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        tour.take_tour(["endless", "one"], tmp_path, processes=2)


def test_importing_the_tour_starts_no_device():
    code = "import sys, ethogram.tour; print('jax' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout == "False\n", answer.stderr
