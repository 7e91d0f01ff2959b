"""Many fits: one model, or one function, on every item of a collection, here or by an executor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
from jax import Array

from ethogram.fits.executors import check_executor, run_tasks
from ethogram.fits.fit_items import data_of, keys_of, named_items, shape_in_words
from ethogram.fits.fit_tasks import here, place_of
from ethogram.fits.fits_folder import FitsFolder
from ethogram.fits.many_fits import Fits
from ethogram.fits.systems import system_of
from ethogram.fits.task_types import Failure, Item, Outcome, Task
from ethogram.inference import storage
from ethogram.inference.conjugate.side_by_side import IMPL, lanes_for
from ethogram.models.arguments import (
    require_flag,
    require_integer,
    require_key,
    require_one_of,
    warn_user,
)

__all__ = ["load_fits", "map_fits"]

CHUNK = 16
"""Items of a task at most."""
TASKS = 16
"""Tasks into which items are divided at least, so that processes end together."""


QUEUE = 4
"""Fits of a task in this process, per fit that runs at a time: one that has converged gives way to the next."""
SETTINGS = {"num_steps", "restarts", "init", "tol", "search", "evaluate_every", "progress_bar"}
"""With which fits run side by side."""


class Plan(NamedTuple):
    """A call of `map_fits`: what is fitted to what.

    Attributes
    ----------
    data : by name of the item.
    models : by name; one without a name where a single model, or a function, was given.
    fits : by name of the fit, the names of its item and its model.
    blank : a task without items.
    """

    data: Mapping[str, Any]
    models: Mapping[str, Any]
    fits: Mapping[str, tuple[str, str]]
    blank: Task
    key: Array
    folder: FitsFolder | None
    progress_bar: bool
    found: dict[str, tuple[Any, tuple[str, ...]]]


def map_fits(
    fit_one: Any,
    items: Any,
    method: str = "auto",
    *,
    key: Array,
    by: str | None = None,
    executor: Any = None,
    out: str | os.PathLike | None = None,
    retries: int = 1,
    progress_bar: bool = True,
    **settings: Any,
) -> Fits:
    """Fit a model to every item of a collection, and return the fits by name.

    One bad item never stops the rest: a :class:`Failure` stands in its place. The key of a fit follows its name, so
    that fits are the same in any order, by any executor, with any number of processes, and after a resume.

    Parameters
    ----------
    fit_one : a model, which :func:`ethogram.fit` fits; a mapping of names to models, such as several numbers of states,
        all of which are fitted to every item, under ``"item/model"``; or a function of a key and data, which processes
        can import, that returns a :class:`Fit` or a record of arrays, numbers and strings.
    items : data by name; a list of data, whose names are ``"0"``, ``"1"``, ...; or one `Trajectories` or `Decisions`
        with `by`. Folds, seeds and bootstrap replicates are items under names of their own.
    method : of :func:`ethogram.fit`.
    key : typed PRNG key, from which those of the fits are made.
    by : ``"subject"``, ``"agent"``, ``"group"`` or ``"sequence"``: what an item is, where `items` is one data set.
    executor : None fits in this process; a number starts so many processes on this machine; or any executor of
        `concurrent.futures` whose processes are not forked, such as ``Client.get_executor()`` of Dask.
    out : folder with one file per finished fit, written by a rename; the same call goes on from it. Without it results
        stay in memory.
    retries : further tries after an error that is not one of input, and after the end of a process.
    progress_bar : whether to show one over all fits.
    settings : of the method, as :func:`ethogram.fit` takes them.

    Raises
    ------
    TypeError, ValueError : the model, a setting or the executor is none; `out` has fits of another call or other data.
    BlockingIOError : another process writes to `out`.

    Warns
    -----
    UserWarning : fits failed, or gave warnings: how many.

    Examples
    --------
    >>> import ethogram
    >>> model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
    >>> data = model.simulate(jax.random.key(0), num_groups=3, lengths=20).data
    >>> fits = map_fits(model, data, key=jax.random.key(1), by="group", progress_bar=False)
    >>> fits, fits["2"].method
    (Fits(3 of 3 done, 0 failed), 'cavi')
    """
    require_key(key)
    require_flag("progress_bar", progress_bar)
    require_integer("retries", retries, 0)
    check_executor(executor)
    data = named_items(items, by)
    models, function = _what_fits(fit_one)
    if function is None:
        for model in models.values():
            _check_call(model, method, settings)
    elif settings or method != "auto":
        raise TypeError(
            f"fit_one is a function, which takes no {', '.join(settings) or 'method'}: give it a key and data"
        )
    fits = {f"{item}/{model}" if model else item: (item, model) for item in data for model in models}
    if len(fits) < len(data) * len(models):
        raise ValueError("items and models make one name twice: give names without '/'")
    folder = None if out is None else FitsFolder(out)
    impl = str(jax.random.key_impl(key))
    blank = Task((), function, method, settings, impl, "", 0, retries, folder is not None, here())
    plan = Plan(data, models, fits, blank, key, folder, progress_bar, {})
    if folder is not None:
        call = [
            [*models.items()] if function is None else function,
            method,
            settings,
            jax.random.key_data(key),
        ]
        digests = {item: _digest(data_of(data, item), function) for item in data}
        folder.begin(storage.fingerprint(*call), {name: digests[item] for name, (item, _) in fits.items()})
    return _run(plan, executor)


def load_fits(path: str | os.PathLike) -> Fits:
    """The fits of a folder that `map_fits` wrote, as :func:`ethogram.load` reads it."""
    folder = FitsFolder(path)
    if not folder.data:
        raise ValueError(f"{os.fspath(path)} is a folder without fits: give that of map_fits(..., out=)")
    return Fits(tuple(folder.data), {}, folder, None)


def _what_fits(fit_one: Any) -> tuple[Mapping[str, Any], str | None]:
    """Models by name, or the place of a function; a single model has no name."""
    if isinstance(fit_one, Mapping):
        wrong = next((name for name in fit_one if not isinstance(name, str) or not name), None)
        if wrong is not None or not fit_one:
            raise TypeError("fit_one is a mapping: give at least one model, under a name")
        return fit_one, None
    if hasattr(fit_one, "__qualname__"):  # a function; models are instances
        return {"": None}, place_of(fit_one)
    return {"": fit_one}, None


def _digest(data: Any, function: str | None) -> str:
    """Digest of data; empty where they cannot be read, or are none that a model is fitted to."""
    try:
        return "" if isinstance(data, Failure) else storage.fingerprint(data)
    except TypeError:
        if function is not None:
            raise
        return ""


def _check_call(model: Any, method: str, settings: Mapping[str, Any]) -> None:
    """Raise what every fit would: for what is no model, and for a method or settings that it does not have."""
    system = system_of(model)
    if not system.takes_data:
        raise TypeError(
            f"a {type(model).__name__} has its evidence and takes no data: solve queries one by one"
        )
    methods = system.methods(model, None)  # data choose between methods of the same settings
    require_one_of("method", method, ("auto", *methods.by_name))
    name = methods.usual if method == "auto" else method
    taken = {*methods.by_name[name].settings} if methods.choose is None or method != "auto" else {*settings}
    if unknown := sorted({*settings} - taken):
        raise TypeError(f"method {name!r} takes no {', '.join(unknown)}: it takes {', '.join(sorted(taken))}")
    if "checkpoint" in settings:
        raise TypeError("checkpoint is the file of one fit: give out=, a folder of finished fits")


def _run(plan: Plan, executor: Any) -> Fits:
    """Fits of a plan, after those without a result were made."""
    from tqdm.auto import tqdm

    check_executor(executor)
    folder, found, names = plan.folder, plan.found, tuple(plan.fits)
    if folder is not None:
        left = [name for name in names if not folder.finished(name)]
    else:
        left = [name for name in names if name not in found or isinstance(found[name][0], Failure)]
    counts = {"failed": 0, "warned": 0}
    with (
        folder.held() if folder is not None and left else contextlib.nullcontext(),
        tqdm(
            total=len(names), initial=len(names) - len(left), disable=not plan.progress_bar, desc="fits"
        ) as bar,
    ):

        def done(outcomes: list[Outcome]) -> None:
            for name, result, said in outcomes:
                if folder is not None:
                    folder.write(name, result, said)
                else:
                    found[name] = result, said
                counts["failed"] += isinstance(result, Failure)
                counts["warned"] += bool(said)
            bar.set_postfix({"failed": counts["failed"]}, refresh=False)
            bar.update(len(outcomes))

        whole = run_tasks(_tasks(plan, left, executor), executor, plan.blank.retries, done)
    fits = Fits(names, found, folder, lambda executor: _run(plan, executor))
    if not whole:
        warn_user(
            "the executor broke, and not all fits were made: call fits.resume(executor=) with a new one"
        )
    if counts["failed"]:
        warn_user(f"{counts['failed']} of {len(left)} fits failed: read fits.failures")
    if counts["warned"]:
        warn_user(f"{counts['warned']} of {len(left)} fits gave warnings: read fits.warnings")
    return fits


def _tasks(plan: Plan, left: list[str], executor: Any) -> tuple[Iterator[Task], Iterator[Task]]:
    """One item of every bucket for an executor, and the rest; data are cut out when a task is asked for.

    Buckets are those of all fits, also where only some are left: the same programs make the same fits.
    """
    keys = dict(zip(plan.fits, keys_of(plan.key, [*plan.fits]), strict=True))
    wanted = {*left}
    least = 1 if executor is None else max(1, min(CHUNK, len(left) // TASKS))

    def task(bucket: Bucket, start: int, stop: int) -> Task:
        named = [(name, *plan.fits[name]) for name in bucket.names[start:stop]]
        items = tuple(
            Item(name, data_of(plan.data, item), keys[name], plan.models[model])
            for name, item, model in named
        )
        return plan.blank._replace(items=items, bucket=bucket.words, together=bucket.together)

    first, rest = [], []
    for bucket in _buckets(plan):
        bucket = bucket._replace(names=[name for name in bucket.names if name in wanted])
        alone = 0 if executor is None else bucket.lanes or 1
        size = bucket.lanes * (1 if alone else QUEUE) or least
        first += [(bucket, 0, alone)] if alone and bucket.names else []
        rest += [(bucket, start, start + size) for start in range(alone, len(bucket.names), size)]
    return (task(*each) for each in first), (task(*each) for each in rest)


class Bucket(NamedTuple):
    """Fits that share compiled programs, by model and shape.

    Attributes
    ----------
    together, lanes : fits that take part, those that are left or not, and how many run side by side; 0 where none do.
    """

    words: str
    names: list[str]
    together: int
    lanes: int


def _buckets(plan: Plan) -> list[Bucket]:
    shapes = {item: shape_in_words(data_of(plan.data, item)) for item in plan.data}
    names: dict[tuple[str, str, int], list[str]] = {}
    for name, (item, model) in plan.fits.items():
        names.setdefault((model, *shapes[item]), []).append(name)
    buckets = []
    for (model, words, num_steps), each in names.items():
        lanes = lanes_for(num_steps, len(each)) if num_steps and _shares(plan, plan.models[model]) else 0
        buckets.append(Bucket(f"{model} {words}", each, len(each) if lanes else 0, lanes))
    return buckets


def _shares(plan: Plan, model: Any) -> bool:
    """Whether fits of a model to small data may run side by side."""
    if plan.blank.function is not None or plan.blank.impl != IMPL:
        return False
    methods = system_of(model).methods(model, None)
    name = methods.usual if plan.blank.method == "auto" else plan.blank.method
    return methods.by_name[name].several is not None and {*plan.blank.settings} <= SETTINGS
