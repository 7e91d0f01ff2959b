"""Many fits at once: the same in any order and by any executor, failures by name, folders that outlive their makers."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import cloudpickle
import jax
import numpy as np
import pytest

import ethogram
from ethogram.fits import executors, fit_items, fit_tasks
from ethogram.fits.many_fits import Fits
from ethogram.fits.task_types import Failure

KEY = jax.random.key(5)
QUIET = {"progress_bar": False}
SHORT = {"num_steps": 60, "restarts": 2, **QUIET}
MODEL = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))


def tracks(number, lengths=(12,)):
    random = np.random.default_rng(number)
    each = [random.normal(size=(n, 1)) + 4 * (np.arange(n)[:, None] // 4 % 2) for n in lengths]
    return ethogram.Trajectories.from_list(each)


@pytest.fixture(scope="module")
def items():
    """Ten animals of one shape, and two larger ones of shapes of their own."""
    small = {f"mouse {number}": tracks(number) for number in range(10)}
    return small | {"rat/1": tracks(10, (70, 20)), "rat/2": tracks(11, (9, 30, 8))}


@pytest.fixture(scope="module")
def fits(items):
    return ethogram.map_fits(MODEL, items, key=KEY, **SHORT)


@pytest.fixture
def module_of_functions(tmp_path, monkeypatch):
    """A module that spawned processes import: the search path is theirs too."""
    (tmp_path / "some_functions.py").write_text(
        textwrap.dedent(
            """
            import os, signal, time
            import ethogram
            import numpy as np

            def mean(key, data):
                return {"mean": float(np.mean(data.observations))}

            def kills(key, data):
                if data.num_sequences == 3:
                    os.kill(os.getpid(), signal.SIGKILL)
                return data.num_sequences

            def fails_once(key, data):
                if not os.path.exists(os.environ["MARK"]):
                    open(os.environ["MARK"], "w").close()
                    raise OSError("the disk was away")
                return 1

            def no_record(key, data):
                return object()

            def size(key, data):
                return data.num_sequences

            def doubled(key, data):
                data = data._replace(observations=2 * data.observations)
                model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
                return ethogram.fit(key, model, data, num_steps=3, restarts=1, progress_bar=False)

            def slow(key, data):
                time.sleep(0.2)
                return data.num_sequences
            """
        )
    )
    monkeypatch.syspath_prepend(tmp_path)
    import some_functions

    yield some_functions
    sys.modules.pop("some_functions", None)


def elbos(found):
    return {name: float(fit.result.elbo[-1]) for name, fit in found.items()}


def test_every_fit_is_that_of_its_own_call(fits, items):
    assert [*fits] == [*items] and len(fits) == 12 and not fits.failures
    words = fit_items.keys_of(KEY, [*items])
    for name in ("mouse 0", "mouse 7", "rat/2"):
        key = jax.random.wrap_key_data(words[[*items].index(name)])
        alone, fit = ethogram.fit(key, MODEL, items[name], **SHORT), fits[name]
        assert (fit.method, fit.method_reason, fit.result.step) == (
            "cavi",
            alone.method_reason,
            alone.result.step,
        )
        np.testing.assert_allclose(fit.result.elbo, alone.result.elbo, rtol=1e-5)
        np.testing.assert_allclose(fit.result.restart_traces, alone.result.restart_traces, rtol=1e-5)
        np.testing.assert_array_equal(fit.states().path, alone.states().path)
        assert (
            fit.code[:-1] + ", progress_bar=False)" == alone.code
            and "ethogram.RoleHMM(num_roles=2" in fit.code
        )
        np.testing.assert_allclose(fit.draws(3).sites["mean"], alone.draws(3).sites["mean"], rtol=1e-9)


def test_code_of_a_model_is_made_once(items, monkeypatch):
    """It takes longer than a small fit."""
    made = []
    monkeypatch.setattr(fit_tasks, "as_code", lambda model: made.append(model) or "a_model")
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
    few = {name: items[name] for name in [*items][:3]}
    found = ethogram.map_fits(model, few, key=KEY, **SHORT)
    assert all("model = a_model" in fit.code for fit in found.values()) and made == [model]


def test_fits_follow_their_names(fits, items):
    """Neither the order nor the other items matter, to the bit."""
    backwards = dict(reversed(items.items()))
    assert elbos(ethogram.map_fits(MODEL, backwards, key=KEY, **SHORT)) == elbos(fits)
    few = {name: items[name] for name in list(items)[2:11]}
    found = ethogram.map_fits(MODEL, few, key=KEY, **SHORT)
    np.testing.assert_allclose([*elbos(found).values()], [elbos(fits)[name] for name in few], rtol=1e-6)
    words = fit_items.keys_of(KEY, ["a", "b", "c"])
    np.testing.assert_array_equal(fit_items.keys_of(KEY, ["c", "d", "a", "e", "f"])[[2, 0]], words[[0, 2]])
    assert len(np.unique(fit_items.keys_of(KEY, [str(number) for number in range(5000)]), axis=0)) == 5000


def test_a_bad_item_stops_no_other(items):
    bad = {
        "text": "no data",
        "two": ethogram.Trajectories.from_list([np.zeros((12, 2))]),
        "empty": tracks(0)._replace(observed=np.zeros((1, 12), bool)),
        "good": items["mouse 3"],
        **{f"more {number}": tracks(number) for number in range(8)},
    }
    with pytest.warns(UserWarning, match="3 of 12 fits failed"):
        found = ethogram.map_fits(MODEL, bad, key=KEY, **SHORT)
    assert {*found.failures} == {"text", "two", "empty"} and repr(found) == "Fits(9 of 12 done, 3 failed)"
    assert found["two"].error.startswith("ValueError: data.observations has 2 features")
    assert "no observed frame" in found["empty"].error and "Traceback" in found["empty"].traceback
    assert isinstance(found["text"], Failure) and isinstance(found["good"], ethogram.fits.Fit)
    overview = found.overview()
    assert overview.error.astype(bool).sum() == 3 and overview.done.sum() == 9
    assert {*found.table().index.get_level_values("fit")} == {*bad} - {*found.failures}
    with pytest.raises(KeyError, match="'mouse' is no name"):
        found["mouse"]


class Files(Mapping):
    """Data that are read when they are asked for; one file is broken, and one has what does not pickle."""

    def __getitem__(self, name):
        if name == "broken":
            raise OSError("cannot be read")
        return {"shapeless": tracks(0)._replace(lengths=None), "code": lambda: 0}.get(name, tracks(0))

    def __iter__(self):
        return iter(("broken", "shapeless", "code", "good"))

    def __len__(self):
        return 4


@pytest.mark.parametrize("out", [None, "runs"])
def test_items_that_cannot_be_read_or_sent_stop_no_other(tmp_path, out):
    given = {"key": KEY, "out": out and tmp_path / out, **SHORT}
    with ThreadPoolExecutor(1) as threads, pytest.warns(UserWarning, match="3 of 4 fits failed"):
        found = ethogram.map_fits(MODEL, Files(), executor=threads, **given)
    assert {*found.failures} == {"broken", "shapeless", "code"}
    assert found["broken"].error == "OSError: cannot be read" and found["broken"].name == "broken"
    assert "pickle" in found["code"].error and "Traceback" in found["code"].traceback
    mended = dict.fromkeys(Files(), tracks(1)) | {"good": tracks(0)}
    assert not ethogram.map_fits(MODEL, mended, **given).failures


def test_warnings_are_kept_and_counted():
    """Of a prior that is far from the data."""
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1, mean=1e6, scale=1.0))
    many = {str(number): tracks(number) for number in range(9)}
    with pytest.warns(UserWarning, match="9 of 9 fits gave warnings"):
        found = ethogram.map_fits(model, many, key=KEY, num_steps=5, restarts=1, **QUIET)
    assert len(found.warnings) == 9 and "prior" in found.warnings["4"][0]


def test_items_are_the_units_of_one_data_set():
    data = ethogram.Trajectories.from_list(
        [np.full((4, 1), number) for number in range(5)],
        agent=[1, 0, 1, -1, 0],
        codes=True,
        metadata=ethogram.Metadata(agent_names=("Ada", "Bo")),
    )
    units = fit_items.named_items(data, "agent")
    assert [*units] == ["Ada", "Bo", "3"] or len(units) == 3
    np.testing.assert_array_equal(units["Bo"].observations[:, 0, 0], [0, 2])
    np.testing.assert_array_equal(units["Ada"].observations[:, 0, 0], [1, 4])
    assert [*fit_items.named_items(data, "sequence")] == ["0", "1", "2", "3", "4"]
    sets = ethogram.Decisions(
        np.ones((4, 2, 1)), np.ones((4, 2), bool), np.zeros(4, int), np.array([0, 1, 1, 0])
    )
    one = fit_items.named_items(sets, "subject")["1"]
    assert one.num_decisions == 2 and one.subject is None
    with pytest.raises(TypeError, match="items is one Trajectories: give by="):
        fit_items.named_items(data, None)
    with pytest.raises(ValueError, match="by"):
        fit_items.named_items(sets, "agent")
    for wrong, message in (({}, "empty"), ({1: data}, "names are strings"), (3, "items is int")):
        with pytest.raises((TypeError, ValueError), match=message):
            fit_items.named_items(wrong, None)


def test_models_by_name_are_fitted_to_every_item(items):
    models = {"K=1": ethogram.RoleHMM(1, ethogram.GaussianEmission(1)), "K=2": MODEL}
    two = {name: items[name] for name in ("mouse 1", "rat/1")}
    found = ethogram.map_fits(models, two, key=KEY, **SHORT)
    assert [*found] == ["mouse 1/K=1", "mouse 1/K=2", "rat/1/K=1", "rat/1/K=2"]
    table = found.compare({name: two[name.rpartition("/")[0]] for name in found})
    assert table.index[0].endswith("K=2") and table["steps"]["rat/1/K=1"] == 90
    alone = found["rat/1/K=2"].score(two["rat/1"])
    assert table["log density per step"]["rat/1/K=2"] == alone.mean and table["se"]["rat/1/K=2"] == alone.se
    with pytest.raises(ValueError, match="fits of one model"):
        found.to_arviz()


def test_tables_and_draws_have_a_dim_of_fits(fits, items):
    tree = fits.to_arviz("animal")
    assert tree.posterior.sizes["animal"] == 12 and tree.posterior["mean"].dims[:3] == (
        "chain",
        "draw",
        "animal",
    )
    one = fits["rat/1"].to_arviz().posterior
    np.testing.assert_array_equal(tree.posterior["mean"].sel(animal="rat/1"), one["mean"])
    table = fits.table()
    np.testing.assert_allclose(table.loc["mouse 4"], fits["mouse 4"].summary())
    new = tracks(99)
    scores = fits.compare(new)
    best, last = scores.index[0], scores.index[-1]
    apart = fits[last].score(new).mean - fits[best].score(new).mean
    np.testing.assert_allclose(scores["difference"][last], apart, atol=1e-12)
    assert scores["difference"].iloc[0] == 0 and (scores["difference"] <= 0).all()
    with pytest.raises(ValueError, match="no name of these fits"):
        fits.compare({"cat": new})


def test_fits_models_and_data_pickle(fits):
    for library in (pickle, cloudpickle):
        fit = library.loads(library.dumps(fits["mouse 2"]))
        np.testing.assert_array_equal(fit.states().path, fits["mouse 2"].states().path)
        assert fit.code == fits["mouse 2"].code and fit.summary().equals(fits["mouse 2"].summary())


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fit_one": 3}, TypeError, "model is int"),
        ({"method": "mcmc"}, ValueError, "method"),
        ({"draws": 3}, TypeError, "takes no draws"),
        ({"checkpoint": "here"}, TypeError, "checkpoint is the file of one fit"),
        ({"fit_one": lambda key, data: 1}, TypeError, "no process can import"),
        ({"fit_one": {}}, TypeError, "at least one model"),
        ({"retries": -1}, ValueError, "retries"),
        ({"executor": 0}, ValueError, "executor"),
        ({"executor": "two"}, TypeError, "executor is str"),
        ({"executor": True}, TypeError, "executor is bool"),
        ({"key": 3}, TypeError, "key"),
        ({"out": "no/such/folder"}, FileNotFoundError, "no/such"),
    ],
)
def test_bad_calls_are_refused_before_any_fit(arguments, error, message):
    given = {"fit_one": MODEL, "items": {"a": tracks(0)}, "key": KEY, **arguments}
    with pytest.raises(error, match=message):
        ethogram.map_fits(**given)


def test_executors_that_fork_are_refused():
    with (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("fork")) as forks,
        pytest.raises(ValueError, match=r'get_context\("spawn"\)'),
    ):
        ethogram.map_fits(MODEL, [tracks(0)], key=KEY, executor=forks)
    for fine in (
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("forkserver")),
        ThreadPoolExecutor(1),
    ):
        executors.check_executor(fine)
        fine.shutdown()
    pool = multiprocessing.get_context("spawn").Pool(1)
    with contextlib.closing(pool), pytest.raises(TypeError, match="executor is Pool"):
        executors.check_executor(pool)
    pool.terminate()


@pytest.fixture
def empty_cache(tmp_path):
    """An empty folder of compiled programs."""
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "compiled"))
    yield tmp_path / "compiled"
    jax.config.update("jax_compilation_cache_dir", before)


def test_threads_and_processes_make_the_same_fits(items, tmp_path, empty_cache):
    """And two processes that begin on one empty folder of compiled programs both succeed."""
    few = {name: items[name] for name in [*items][:10]}
    here = ethogram.map_fits(MODEL, few, key=KEY, **SHORT)
    with ThreadPoolExecutor(2) as threads:
        by_threads = ethogram.map_fits(MODEL, few, key=KEY, executor=threads, **SHORT)
    by_processes = ethogram.map_fits(MODEL, few, key=KEY, executor=2, out=tmp_path / "runs", **SHORT)
    assert elbos(by_threads) == elbos(here) == elbos(by_processes)
    assert by_processes["mouse 1"].code == here["mouse 1"].code and any(empty_cache.iterdir())


def test_a_folder_is_gone_on_with(items, tmp_path, monkeypatch):
    out, few = tmp_path / "runs", {name: items[name] for name in ("mouse 1", "rat/1", "rat/2")}
    writes = []

    def broken(place, target, replace=os.replace):
        writes.append(target)
        if len(writes) >= 3:  # the plan, a fit, and in the middle of the second
            raise KeyboardInterrupt
        replace(place, target)

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(KeyboardInterrupt):
        ethogram.map_fits(MODEL, few, key=KEY, out=out, **SHORT)
    monkeypatch.undo()
    assert len(ethogram.load(out)) == 1
    (done,) = out.glob("*.ethogram")
    before = done.stat().st_mtime_ns
    found = ethogram.map_fits(MODEL, few, key=KEY, out=out, **SHORT)
    assert done.stat().st_mtime_ns == before and len(found) == 3 and not [*out.glob("*.part")]
    assert elbos(found) == elbos(ethogram.map_fits(MODEL, few, key=KEY, **SHORT)) == elbos(ethogram.load(out))
    assert ethogram.load(done).summary().equals(found["mouse 1"].summary())
    with pytest.raises(ValueError, match="another model, method, settings or key"):
        ethogram.map_fits(MODEL, few, key=jax.random.key(6), out=out, **SHORT)
    with pytest.raises(ValueError, match="other data of 'rat/1'"):
        ethogram.map_fits(MODEL, few | {"rat/1": tracks(0)}, key=KEY, out=out, **SHORT)
    with pytest.raises(TypeError, match=r"call ethogram\.map_fits with the same arguments"):
        ethogram.load(out).resume()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("")
    with pytest.raises(ValueError, match="folder of other files"):
        ethogram.map_fits(MODEL, few, key=KEY, out=tmp_path / "other", **SHORT)
    (out / "fits.json").write_text("{")
    with pytest.raises(ValueError, match=r"fits\.json cannot be read"):
        ethogram.load(out)


def test_every_name_has_a_file_of_its_own(tmp_path, module_of_functions):
    """Names that differ in case or in what a file name cannot have, long ones, and one of bytes that are no text."""
    names = [
        "a",
        "A",
        "a/",
        "a?",
        "",
        "..",
        "e\u0301",
        "\u00e9",
        "\udcff",
        *("\U00020000" * n for n in (80, 81)),
    ]
    out = tmp_path / "runs"
    out.mkdir()
    (out / ".0123.part").touch()  # of a process that was killed
    few = {f"{name} ": tracks(0, (4,) * (number + 1)) for number, name in enumerate(names)}
    given = {"items": few, "key": KEY, "out": out, **QUIET}
    ethogram.map_fits(module_of_functions.size, **given)
    found = ethogram.load(out)
    assert [found[f"{name} "] for name in names] == [*range(1, 12)]
    assert len({path.name.lower() for path in out.glob("*.ethogram")}) == 11
    plan = (out / "fits.json").stat().st_mtime_ns
    ethogram.map_fits(module_of_functions.size, **given)
    assert (
        out / "fits.json"
    ).stat().st_mtime_ns == plan  # finished fits are read from a folder of others too


def test_functions_are_run_again_unless_their_input_is_wrong(
    module_of_functions, items, tmp_path, monkeypatch
):
    mark = tmp_path / "mark"
    monkeypatch.setenv("MARK", str(mark))
    one = {"a": items["rat/1"]}
    assert ethogram.map_fits(module_of_functions.fails_once, one, key=KEY, **QUIET)["a"] == 1
    mark.unlink()
    out = tmp_path / "runs"
    with pytest.warns(UserWarning, match="1 of 1 fits failed"):
        found = ethogram.map_fits(module_of_functions.fails_once, one, key=KEY, retries=0, out=out, **QUIET)
    assert "the disk was away" in found["a"].error and json.loads(next(out.glob("*.failure")).read_text())
    assert found.resume()["a"] == 1 and not [*out.glob("*.failure")]
    with pytest.warns(UserWarning, match="failed"):
        found = ethogram.map_fits(
            module_of_functions.no_record, one, key=KEY, out=tmp_path / "objects", **QUIET
        )
    assert "object cannot be saved" in found["a"].error
    code = ethogram.map_fits(module_of_functions.doubled, one, key=KEY, **QUIET)["a"].code
    assert "RoleHMM" in code and "num_steps=3" in code
    with pytest.raises(TypeError, match="takes no draws"):
        ethogram.map_fits(module_of_functions.mean, one, key=KEY, draws=1)
    with pytest.raises(TypeError, match="'a' is dict"):
        ethogram.map_fits(module_of_functions.mean, one, key=KEY, **QUIET).table()


def test_a_killed_process_costs_its_item_alone(module_of_functions):
    many = {f"{number}": tracks(number, (4,) * number) for number in (1, 2, 3, 4)}
    with pytest.warns(UserWarning, match="1 of 4 fits failed"):
        found = ethogram.map_fits(module_of_functions.kills, many, key=KEY, executor=1, **QUIET)
    assert [found[name] for name in ("1", "2", "4")] == [1, 2, 4]
    assert "killed, or used more memory" in found["3"].error


def test_a_killed_driver_loses_what_was_in_flight(module_of_functions, tmp_path):
    """Its processes end with it, and the same call goes on."""
    script = tmp_path / "driver.py"
    script.write_text(
        textwrap.dedent(
            f"""
            import sys
            sys.path.insert(0, {str(tmp_path)!r})
            import jax, numpy as np, ethogram, some_functions

            if __name__ == "__main__":
                data = {{str(n): ethogram.Trajectories.from_list([np.zeros((2, 1))] * (n + 1)) for n in range(12)}}
                found = ethogram.map_fits(some_functions.slow, data, key=jax.random.key(0), executor=1,
                                          out={str(tmp_path / "runs")!r}, progress_bar=False)
                print(len(found), found["7"])
            """
        )
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    driver = subprocess.Popen([sys.executable, str(script)], env=environment, start_new_session=True)
    limit = time.monotonic() + 120
    while len([*(tmp_path / "runs").glob("*.ethogram")]) < 3:
        assert time.monotonic() < limit and driver.poll() is None
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    done = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").glob("*.ethogram")}
    assert 3 <= len(done) < 12
    time.sleep(0.5)
    assert len([*(tmp_path / "runs").glob("*.ethogram")]) == len(done)
    again = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
    )
    assert again.stdout.split() == ["12", "8"], again.stderr
    assert all(path.stat().st_mtime_ns == before for path, before in done.items())
    with contextlib.suppress(ProcessLookupError):  # the spawned process has followed its parent
        os.killpg(driver.pid, 0)
        raise AssertionError("a process of the killed driver lives on")


def test_dask_makes_the_same_fits(fits, items):
    distributed = pytest.importorskip("distributed", reason="the extra [cluster] is not installed")
    few = {name: items[name] for name in [*items][:10]}
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster) as client:
        found = ethogram.map_fits(MODEL, few, key=KEY, executor=client.get_executor(), **SHORT)
        found["mouse 1"].summary()
    assert elbos(found) == elbos(ethogram.map_fits(MODEL, few, key=KEY, **SHORT))


def test_fits_with_other_numbers_of_draws_stand_side_by_side_as_one_chain_each():
    """As of the methods that ``"auto"`` takes for subjects: one chain of 300, and two of 100 draws."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2, 2))
    choice = (x @ [0.8, -0.5] + rng.normal(size=(60, 2))).argmax(1)
    data, model = ethogram.Decisions(x, np.ones((60, 2), bool), choice), ethogram.NoisyMDP(kind="features")
    long, short = (ethogram.fit(KEY, model, data, "laplace", num_samples=count) for count in (300, 200))
    sites = {name: site.reshape(2, 100, -1) for name, site in short.result.sites.items()}
    short.result = dataclasses.replace(short.result, sites=sites)
    tree = Fits(("long", "short"), {"long": (long, ()), "short": (short, ())}, None, None).to_arviz("who")
    found = tree.posterior["v"]
    assert found.dims == ("chain", "draw", "who", "feature") and found.shape == (1, 200, 2, 2)
    kept = np.linspace(0, 299, 200).round().astype(int)
    np.testing.assert_array_equal(found.sel(who="long")[0], long.result.sites["v"][0, kept])
    np.testing.assert_array_equal(found.sel(who="short")[0], sites["v"].reshape(200, 2))
