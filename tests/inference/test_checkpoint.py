"""Checkpoints: interrupted fits go on to the very same result, and only to their own."""

from __future__ import annotations

import functools
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import warnings

import jax
import numpy as np
import pytest
import tqdm.auto

from ethogram.inference import checkpoint as checkpoint_module
from ethogram.inference import storage
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.journal import Pages
from ethogram.inference.conjugate.step_sizes import robbins_monro
from ethogram.models.whole_files import previous_of

pytestmark = pytest.mark.usefixtures("float64")


@pytest.fixture(autouse=True)
def _written_whenever_due(monkeypatch):
    """However long the write before took."""
    monkeypatch.setattr(checkpoint_module, "SHARE", 0.0)


ASCENT = {"tol": 0, "evaluate_every": 3}
STOCHASTIC = {"batch_size": 2, "step_size": robbins_monro(delay=2.0, forgetting=0.7)}
BOTH = pytest.mark.parametrize("options", [ASCENT, STOCHASTIC], ids=["ascent", "stochastic"])


def fit(model, data, num_steps=24, seed=0, **options):
    options = {"restarts": 1, "progress_bar": False} | options
    return ConjugateSVI(model).run(jax.random.key(seed), data, num_steps, **options)


def contents(result):
    """All numbers of a result."""
    key = jax.random.key_data(result.key)
    parts = (result._replace(key=key), result.posterior.blocks)
    return [np.asarray(leaf) for leaf in jax.tree.leaves(parts)]


def assert_identical(one, other):
    for a, b in zip(contents(one), contents(other), strict=True):
        np.testing.assert_array_equal(a, b)


def interrupt_after(monkeypatch, num_updates):
    """A progress bar at whose given update the user presses Ctrl-C."""

    class Interrupting(tqdm.auto.tqdm):
        updates = 0

        def update(self, n=1):
            Interrupting.updates += 1
            if Interrupting.updates == num_updates:
                raise KeyboardInterrupt
            return super().update(n)

    monkeypatch.setattr(tqdm.auto, "tqdm", Interrupting)


@BOTH
def test_an_interrupted_fit_goes_on_to_the_same_bits(symbol_model, symbols, tmp_path, monkeypatch, options):
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    whole = fit(model, data, **options)
    for num_updates, every in ((1, 50), (2, 7)):
        path.unlink(missing_ok=True)
        with monkeypatch.context() as patch:
            interrupt_after(patch, num_updates)
            with pytest.raises(KeyboardInterrupt):
                fit(model, data, checkpoint=path, checkpoint_every=every, **options)
        state = storage.read(path)["state"]
        assert 0 < state.steps < 24
        assert_identical(whole, fit(model, data, checkpoint=path, checkpoint_every=every, **options))
    assert_identical(whole, fit(model, data, checkpoint=path, **options))  # the finished one again
    assert {file.name for file in tmp_path.iterdir()} == {"fit.ckpt", "fit.ckpt.previous"}


@BOTH
def test_a_longer_run_goes_on_beyond_a_finished_one(symbol_model, symbols, tmp_path, options):
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    fit(model, data, 10, checkpoint=path, **options)
    assert_identical(fit(model, data, **options), fit(model, data, checkpoint=path, **options))


@BOTH
def test_a_checkpoint_of_more_steps_is_no_answer_for_fewer(symbol_model, symbols, tmp_path, options):
    """The call for 10 steps returned the fit of 24."""
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    whole = fit(model, data, checkpoint=path, **options)
    with pytest.raises(
        ValueError, match=r"checkpoint is of 2[04] steps, more than num_steps=10: pass num_steps=2"
    ):
        fit(model, data, 10, checkpoint=path, **options)
    assert_identical(whole, fit(model, data, checkpoint=path, **options))


def test_a_full_disk_loses_no_fit(symbol_model, symbols, tmp_path, monkeypatch):
    """An error at the last save lost a fit that was finished; the checkpoint before stays."""
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    whole, written = fit(model, data, **ASCENT), []

    def full(path, content, **keep):
        if written:
            raise OSError(28, "No space left on device", str(path))
        written.append(write(path, content, **keep))

    write = storage.write
    monkeypatch.setattr(storage, "write", full)
    with pytest.warns(
        UserWarning, match="checkpoint was not written, and the fit goes on: .*No space left"
    ) as seen:
        found = fit(model, data, checkpoint=path, checkpoint_every=10, **ASCENT)
    assert_identical(whole, found)
    assert seen[0].filename == __file__ and storage.read(path)["state"].steps == 10


def test_a_finished_run_that_had_not_converged_has_not_converged_when_read_again(
    symbol_model, symbols, tmp_path
):
    path = tmp_path / "fit.ckpt"
    for _ in range(3):
        result = fit(symbol_model(), symbols(), 2, checkpoint=path, tol=1e-12)
        assert not result.converged
        assert result.step == 2


@pytest.fixture
def keyboard():
    """Ctrl-C that raises KeyboardInterrupt, also where the tests were started in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard")
def test_a_signal_loses_nothing(symbol_model, symbols, tmp_path):
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    schedule, armed = robbins_monro(delay=2.0, forgetting=0.7), [True]

    def interrupted(step):
        if step == 17 and armed:
            armed.clear()
            signal.raise_signal(signal.SIGINT)
        return schedule(step)

    with pytest.raises(KeyboardInterrupt):
        fit(model, data, checkpoint=path, batch_size=2, step_size=interrupted)
    assert storage.read(path)["state"].steps == 18  # evaluations come every 3 steps, and cut the blocks
    assert_identical(fit(model, data, **STOCHASTIC), fit(model, data, checkpoint=path, **STOCHASTIC))


def test_a_killed_run_goes_on_from_its_last_checkpoint(symbol_model, symbols, tmp_path):
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    schedule = robbins_monro(delay=2.0, forgetting=0.7)

    def killed(step):
        if step == 17:
            raise SystemExit
        return schedule(step)

    with pytest.raises(SystemExit):
        fit(model, data, checkpoint=path, checkpoint_every=4, batch_size=2, step_size=killed)
    assert storage.read(path)["state"].steps == 16
    assert_identical(
        fit(model, data, **STOCHASTIC), fit(model, data, checkpoint=path, checkpoint_every=4, **STOCHASTIC)
    )


FRESH = """
import sys
import jax
sys.path.insert(0, sys.argv[2])
import numpy as np
from conftest import make_model, make_symbols
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.step_sizes import robbins_monro

with jax.enable_x64(True):
    result = ConjugateSVI(make_model()).run(
        jax.random.key(0), make_symbols(), 24, restarts=1, progress_bar=False, batch_size=2,
        step_size=robbins_monro(delay=2.0, forgetting=0.7), checkpoint=sys.argv[1],
    )
    blocks = {k: np.asarray(b.natural.concentration) for k, b in result.posterior.blocks.items()}
    np.savez(sys.argv[1] + ".npz", elbo=result.elbo, **blocks)
"""


@pytest.mark.slow
def test_a_fresh_process_goes_on_to_the_same_bits(symbol_model, symbols, tmp_path, monkeypatch, request):
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 3)
        with pytest.raises(KeyboardInterrupt):
            fit(model, data, checkpoint=path, **STOCHASTIC)
    command = [sys.executable, "-c", textwrap.dedent(FRESH), str(path), str(request.path.parent)]
    subprocess.run(command, check=True, timeout=300)
    whole = fit(model, data, **STOCHASTIC)
    with np.load(f"{path}.npz") as fresh:
        np.testing.assert_array_equal(fresh["elbo"], whole.elbo)
        for name, block in whole.posterior.blocks.items():
            np.testing.assert_array_equal(fresh[name], block.natural.concentration)


def test_the_checkpoint_of_another_run_is_refused(symbol_model, symbols, tmp_path):
    path = tmp_path / "fit.ckpt"
    model, data = symbol_model(), symbols()
    fit(model, data, 6, checkpoint=path, **STOCHASTIC)
    before = path.read_bytes()
    other = r"fit\.ckpt is a checkpoint of another model, data, key or settings: remove it"
    changes = [
        {"model": symbol_model(concentration=2.0)},
        {"data": symbols(seed=1)},
        {"seed": 1},
        {"restarts": 3},
        {"init": "prior"},
        {"tol": 1e-3},
        {"batch_size": 3},
        {"evaluate_every": 5},
        {"batch_size": None},
    ]
    for change in changes:
        arguments = {"model": model, "data": data, "num_steps": 12, "checkpoint": path} | STOCHASTIC | change
        with pytest.raises(ValueError, match=other):
            fit(**arguments)
    with pytest.raises(ValueError, match=r"a run whose step_size was 0\.6.* at step 0, not 0\.25: remove it"):
        fit(model, data, 12, checkpoint=path, batch_size=2, step_size=0.25)
    assert path.read_bytes() == before
    start = fit(model, data, 3, batch_size=2)
    assert fit(model, data, 6, checkpoint=tmp_path / "on.ckpt", init=start, batch_size=2).step == 9
    another = fit(model, data, 3, batch_size=2, seed=5)
    with pytest.raises(ValueError, match="checkpoint of another model"):
        fit(model, data, 6, checkpoint=tmp_path / "on.ckpt", init=another, batch_size=2)


def test_a_schedule_is_known_by_its_numbers(symbol_model, symbols, tmp_path):
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    fit(model, data, 6, checkpoint=path, batch_size=2, step_size=lambda step: 0.5)
    fit(model, data, 9, checkpoint=path, batch_size=2, step_size=0.5)
    table = [0.5] * 9 + [0.25] * 3
    result = fit(model, data, 12, checkpoint=path, batch_size=2, step_size=lambda step: table[step])
    assert_identical(result, fit(model, data, 12, batch_size=2, step_size=lambda step: table[step]))


def test_arrays_may_live_anywhere(symbol_model, symbols, tmp_path):
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    first = fit(model, data, 6, checkpoint=path, tol=0)
    on_device = data._replace(observations=jax.numpy.asarray(data.observations))
    assert_identical(first, fit(model, on_device, 6, checkpoint=path, tol=0))


def test_broken_files_and_bad_paths_are_named(symbol_model, symbols, tmp_path):
    model, data, path = symbol_model(), symbols(), tmp_path / "fit.ckpt"
    fit(model, data, 2, checkpoint=path)
    good = path.read_bytes()
    for size in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:size])
        with pytest.raises(ValueError, match=r"fit\.ckpt cannot be read: truncated, or not written by"):
            fit(model, data, 2, checkpoint=path)
    storage.write(path, {"posterior": 3})
    with pytest.raises(
        ValueError, match=r"fit\.ckpt is not a checkpoint of this kind of fit: choose another file"
    ):
        fit(model, data, 2, checkpoint=path)
    with pytest.raises(ValueError, match="which is a folder: name a file"):
        fit(model, data, 2, checkpoint=tmp_path)
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere': create it first"):
        fit(model, data, 2, checkpoint=tmp_path / "nowhere" / "fit.ckpt")
    for place, fault in (
        ("", "it is empty"),
        ("/proc/fit", "/proc"),
        ("/dev/null", "a device"),
        ("x" * 300, "long"),
    ):
        with pytest.raises(ValueError, match=f"checkpoint is .*{fault}"):
            fit(model, data, 2, checkpoint=place)
    (entry,) = os.scandir(os.fsencode(tmp_path))
    with pytest.raises(TypeError, match="checkpoint is a path of bytes"):
        checkpoint_module.check_path(entry)
    checkpoint_module.check_path("fit.ckpt")
    spec = importlib.util.spec_from_file_location("unchecked_checkpoint", checkpoint_module.__file__)
    unchecked = importlib.util.module_from_spec(spec)  # as users have it: types are not checked at a call
    spec.loader.exec_module(unchecked)
    with pytest.raises(TypeError, match="checkpoint is int: give a path"):
        unchecked.check_path(3)


def resumed(path, kind=Pages, signature="s"):
    with checkpoint_module.Checkpoint(path) as store:
        return store.resumed(lambda: signature, kind, lambda *_: None, lambda: None)


def saved(path, *steps):
    """A file after states of these steps."""
    with checkpoint_module.Checkpoint(path) as store:
        store.resumed(lambda: "s", Pages, lambda *_: None, lambda: None)
        for done in steps:
            store.save(Pages(done, [], [], [[]], {"a": np.full(2, done)}), done)


def test_the_state_of_another_class_is_refused(tmp_path):
    saved(tmp_path / "state", 3)
    assert resumed(tmp_path / "state").steps == 3
    with pytest.raises(ValueError, match="not a checkpoint of this kind of fit"):
        resumed(tmp_path / "state", dict)
    assert resumed(tmp_path / "absent") is None and resumed(None) is None


def test_where_the_newest_file_is_damaged_the_one_before_is_read_and_stays(tmp_path):
    path = tmp_path / "fit"
    saved(path, 1, 2, 3)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.warns(UserWarning, match="it is damaged, and the run goes on from the file before it"):
        assert resumed(path).steps == 2
    with pytest.warns(UserWarning, match="it is damaged"):
        saved(path, 3)
    assert storage.read(path)["state"].steps == 3 and storage.read(previous_of(path))["state"].steps == 2
    path.write_bytes(b"")
    (tmp_path / "fit.previous").write_bytes(b"")
    with pytest.raises(ValueError, match=r"cannot be read.* it is damaged, or of another version"):
        resumed(path)


def test_a_second_run_on_one_file_is_refused_by_name(tmp_path):
    path, link = tmp_path / "fit", tmp_path / "link"
    link.symlink_to(path)
    holder = (
        rf"in use by process {os.getpid()} on {socket.gethostname()} since 20\d\d-.*: wait until that ends"
    )
    with checkpoint_module.Checkpoint(path):
        for place in (path, link):
            with pytest.raises(BlockingIOError, match=holder):
                resumed(place)
        resumed(tmp_path / "other")
    (tmp_path / "fit.lock").write_text("process 1 on elsewhere since 1970")  # of a process that was killed
    (tmp_path / ".fit.part").write_text("half")
    saved(path, 1)
    assert {file.name for file in tmp_path.iterdir()} == {"fit", "link"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_the_end_of_a_block_and_break_no_write(tmp_path, capsys, monkeypatch, number):
    """Two of them, the second while the file is written; then the handler from before is called."""
    path, calls, fsync = tmp_path / "fit", [], os.fsync

    def interrupted(descriptor):
        if storage.read(path)["state"].steps == 1:
            signal.raise_signal(number)
        fsync(descriptor)

    def handler(*_):
        calls.append(storage.read(path)["state"].steps)

    before = signal.signal(number, handler)
    try:
        with checkpoint_module.Checkpoint(path) as store:
            store.resumed(lambda: "s", Pages, lambda *_: None, lambda: None)
            store.save(Pages(1, [], [], [[]], None), 1)
            signal.raise_signal(number)
            assert not calls
            with monkeypatch.context() as patch:
                patch.setattr(os, "fsync", interrupted)
                store.save(Pages(2, [], [], [[]], None), 2, due=False)
            assert calls == [2]
            store.save(Pages(3, [], [], [[]], None), 3, due=False)
            assert calls == [2]
        assert signal.getsignal(number) is handler and storage.read(path)["state"].steps == 3
        with checkpoint_module.Checkpoint(path):
            signal.raise_signal(number)
        assert calls == [2, 3]  # at the end of the last block
    finally:
        signal.signal(number, before)
    assert capsys.readouterr().err.splitlines() == [f"{path}: saved at step 2; the same call goes on"]


@pytest.mark.usefixtures("keyboard")
def test_a_second_ctrl_c_does_not_wait_for_a_long_block(tmp_path, capsys):
    path = tmp_path / "fit"
    with pytest.raises(KeyboardInterrupt), checkpoint_module.Checkpoint(path) as store:
        store.resumed(lambda: "s", Pages, lambda *_: None, lambda: None)
        store.save(Pages(1, [], [], [[]], None), 1, due=False)
        assert not path.exists()
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second was to interrupt")
    assert "saved at step 1" in capsys.readouterr().err and storage.read(path)["state"].steps == 1


def test_other_threads_leave_the_handlers_alone(tmp_path):
    before, seen = signal.getsignal(signal.SIGTERM), []

    def run():
        with checkpoint_module.Checkpoint(tmp_path / "fit"):
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [before]


def test_a_state_is_written_by_time_and_for_a_share_of_it(tmp_path, monkeypatch):
    """A clock that a write takes 2 s of: the next waits 40 s, or 60 s where its steps do not ask for it."""
    path, now = tmp_path / "fit", [1000.0]

    def write(*given, **settings):
        now[0] += 2.0
        true(*given, **settings)

    true = storage.write
    monkeypatch.setattr(storage, "write", write)
    monkeypatch.setattr(checkpoint_module, "SHARE", 20.0)
    monkeypatch.setattr(checkpoint_module.time, "monotonic", lambda: now[0])
    found = []
    with checkpoint_module.Checkpoint(path) as store:
        store.resumed(lambda: "s", Pages, lambda *_: None, lambda: None)
        for step, (after, due) in enumerate(
            [(0, True), (39, True), (2, False), (59, False), (2, False), (0, False)]
        ):
            now[0] += after
            store.save(Pages(step, [], [], [[]], None), step, due=due)
            found.append(storage.read(path)["state"].steps)
    assert found == [0, 0, 2, 2, 4, 4] and storage.read(path)["state"].steps == 5


@pytest.mark.parametrize("name", ["open", "fsync", "link", "replace"])
def test_a_fault_of_any_system_call_of_a_write_loses_nothing(
    symbol_model, symbols, tmp_path, monkeypatch, name
):
    """Each call in turn: of the new file, of the one that is kept, and of the folder."""
    model, data = symbol_model(), symbols()
    whole, true, left = fit(model, data, **ASCENT), getattr(os, name), [0]

    def failing(*given, **settings):
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        return true(*given, **settings)

    for number in range(1, 5):
        path, left[0] = tmp_path / f"{number}", 10**6
        fit(model, data, 10, checkpoint=path, **ASCENT)
        with monkeypatch.context() as patch, warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            with checkpoint_module.Checkpoint(path) as store:  # the lock comes before
                signature = functools.partial(str, storage.read(path)["signature"])
                state = store.resumed(signature, Pages, lambda *_: None, lambda: None)
                patch.setattr(os, name, failing)
                left[0] = number
                store.save(state, state.steps)
        lost = [
            str(one.message) for one in noted if "was not written, and the fit goes on" in str(one.message)
        ]
        assert all(f"{path}: " in one and "No space left" in one for one in lost)
        assert resumed(path, signature=storage.read(path)["signature"]).steps == 10
        assert_identical(whole, fit(model, data, checkpoint=path, **ASCENT))
        assert {file.name for file in tmp_path.glob(f"*{number}*")} == {path.name, f"{path.name}.previous"}


def test_a_disk_that_is_full_at_any_byte_loses_nothing(tmp_path):
    """The limit on the size of files, at which the system refuses a write."""
    resource = pytest.importorskip("resource")
    path = tmp_path / "fit"
    saved(path, 1)
    size, limits = path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    for most in (0, 1, size // 2, size - 1):
        with pytest.warns(UserWarning, match="was not written, and the fit goes on: .*fit: .*File too large"):
            try:
                with checkpoint_module.Checkpoint(path) as store:
                    store.resumed(lambda: "s", Pages, lambda *_: None, lambda: None)
                    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
                    store.save(Pages(2, [], [], [[]], {"a": np.full(2, 2)}), 2)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert resumed(path).steps == 1 and [each.name for each in tmp_path.iterdir()] == ["fit"]
