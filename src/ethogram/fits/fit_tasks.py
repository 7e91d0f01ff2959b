"""Tasks of many fits: what a worker is given, what it does, and what it gives back."""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import socket
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from ethogram.compilation_cache import use_compilation_cache
from ethogram.fits.as_code import as_code, call_as_code
from ethogram.fits.fit import fit
from ethogram.fits.fit_object import Fit
from ethogram.fits.saved_fit import fit_of_record
from ethogram.fits.systems import system_of
from ethogram.fits.task_types import Failure, Item, Later, Outcome, Task, failure_of, key_of, said_of
from ethogram.inference import storage
from ethogram.inference.state_order import in_order
from ethogram.models.arguments import refuse_fork
from ethogram.models.keys import split_words

__all__ = ["here", "jax_config", "place_of", "run_packed", "run_task", "unpacked"]

INPUT_ERRORS = (TypeError, ValueError)
"""Errors that the same call raises again."""
CACHE = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
X64, PRECISION = "jax_enable_x64", "jax_default_matmul_precision"


def here() -> tuple[str, int]:
    """Host and number of this process."""
    return socket.gethostname(), os.getpid()


def jax_config() -> dict[str, Any]:
    """Settings of JAX that workers take over."""
    return {name: getattr(jax.config, name) for name in (*CACHE, X64, PRECISION)}


def place_of(function: Callable[..., Any]) -> str:
    """Where a function can be imported from, ``"module:name"``; a TypeError where it cannot."""
    module, name = getattr(function, "__module__", None), function.__qualname__
    place = f"{module}:{name}"
    try:
        if module is None or _function_at(place) is not function:
            raise AttributeError(name)
    except (AttributeError, ImportError):
        raise TypeError(
            f"fit_one is {name}, which no process can import: give a model, or a function at the top level of a module"
        ) from None
    return place


def _function_at(place: str) -> Callable[..., Any]:
    """The function ``"module:name"``."""
    module, _, name = place.partition(":")
    found: Any = importlib.import_module(module)
    return functools.reduce(getattr, name.split("."), found)


def run_packed(task: bytes, config: dict[str, Any], driver: tuple[str, int]) -> list[Outcome]:
    """The outcomes of a packed task, in whatever process and thread.

    Arrays are unpacked under the driver's precision. What cannot be unpacked, such as a model that this process has no
    module of, is an error here, and not the end of the process.
    """
    refuse_fork()
    if here() != driver:
        _use_cache(config)
    with jax.enable_x64(config[X64]), jax.default_matmul_precision(config[PRECISION]):
        return run_task(pickle.loads(task))


def run_task(task: Task) -> list[Outcome]:
    """Fit every item; an error of one is its outcome, and does not stop the others."""
    away = here() != task.driver
    if away:
        _forget_others(task.bucket)
    made = _side_by_side(task) if task.together else {}
    return [
        _built(task, made[item.name], away) if item.name in made else _outcome(task, item, away)
        for item in task.items
    ]


def _side_by_side(task: Task) -> dict[str, Outcome]:
    """Fits that were made together; what has to be said of the others, they say in fits of their own."""
    items = [item for item in task.items if not isinstance(item.data, Failure)]
    if not items:
        return {}
    begin = time.perf_counter()
    methods = system_of(items[0].model).methods(items[0].model, None)
    name, reason = (methods.usual, methods.reason) if task.method == "auto" else (task.method, "")
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        try:
            words = split_words(np.stack([item.key for item in items]), 2, task.impl)
            data = [item.data for item in items]
            several: Any = methods.by_name[name].several
            found = several(items[0].model, words[:, 0], data, task.together, task.settings)
        except Exception:  # which fits have it, they say one by one
            return {}
    if said_of(noted):  # it is not known by which
        return {}
    seconds = (time.perf_counter() - begin) / len(items)

    def build(item: Item, one: Any, key: np.ndarray) -> Fit:
        draws = jax.random.wrap_key_data(jax.device_put(key), impl=task.impl)
        result = in_order(one.result(), item.data)
        return _with_code(Fit(item.model, item.data, name, reason, result, seconds, draws), task, item)

    each = zip(items, found, words[:, 1], strict=True)
    return {
        item.name: Outcome(item.name, Later(functools.partial(build, item, one, key)), one.notes)
        for item, one, key in each
        if one is not None
    }


def _built(task: Task, made: Outcome, away: bool) -> Outcome:
    """An outcome, packed where it has to be."""
    if task.packs or away:
        return made._replace(result=pack(made.result.build(), made.warnings))
    return made


_LAST_BUCKET: str | None = None


def _forget_others(bucket: str) -> None:
    """Drop the compiled programs of a worker's process where the next fits take others."""
    global _LAST_BUCKET
    if _LAST_BUCKET not in (None, bucket):
        jax.clear_caches()
    _LAST_BUCKET = bucket


def _use_cache(config: dict[str, Any]) -> None:
    """Use the driver's folder of compiled programs, or that of the command where it has none."""
    for name in CACHE:
        if config[name] is not None and getattr(jax.config, name) != config[name]:
            jax.config.update(name, config[name])
    use_compilation_cache()


_LAST_MADE: tuple[Any, str] = (None, "")


def _made_by(model: Any) -> str:
    """Python that makes a model, kept for the next fit of it; empty where no short code does."""
    global _LAST_MADE
    last, made = _LAST_MADE
    if last is not model:
        try:
            made = f"model = {as_code(model)}"
        except ValueError:
            made = ""
        _LAST_MADE = model, made
    return made


def _fitted(task: Task, item: Item) -> Any:
    key = key_of(task, item)
    if task.function is not None:
        return _function_at(task.function)(key, item.data)
    return fit(key, item.model, item.data, task.method, **{"progress_bar": False, **task.settings})


def _with_code(fit: Fit, task: Task, item: Item) -> Fit:
    """A fit with the call of :func:`ethogram.fit` that makes it."""
    asked = key_of(task, item), item.model, item.data, fit.method, task.settings
    fit.code = functools.partial(call_as_code, *asked, made=_made_by(item.model))  # type: ignore[assignment]
    return fit


def _outcome(task: Task, item: Item, away: bool) -> Outcome:
    if isinstance(item.data, Failure):  # to read them
        return Outcome(item.name, item.data._replace(name=item.name), ())
    for attempt in range(task.retries + 1):
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            try:
                result = _fitted(task, item)
                said = said_of(noted)
                if isinstance(result, Fit) and task.function is None:
                    result = _with_code(result, task, item)
                return Outcome(item.name, pack(result, said) if task.packs or away else result, said)
            except Exception as error:  # of one item among many
                if attempt == task.retries or isinstance(error, INPUT_ERRORS):
                    return Outcome(item.name, failure_of(item.name, error), said_of(noted))
    raise AssertionError("every attempt returns or raises")


def pack(result: Any, said: Sequence[str]) -> bytes:
    """The bytes of a file with a result, a fit or a record of arrays, numbers and strings, and its warnings.

    Raises
    ------
    TypeError : it holds something else.
    """
    record = result.record() if isinstance(result, Fit) else {"value": result}
    return storage.pack(record | {"warnings": list(said)})


def unpacked(content: bytes, path: str) -> tuple[Any, tuple[str, ...]]:
    """The result of the bytes, and its warnings; `path` names them in errors."""
    found = storage.unpack(content, path)
    return found["value"] if "value" in found else fit_of_record(found, path), tuple(found["warnings"])
