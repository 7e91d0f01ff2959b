"""Small fits of one shape as tasks of many fits make them: side by side, by coordinate ascent."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from ethogram.fits.fit_object import Fit
from ethogram.fits.methods import NUM_STEPS
from ethogram.fits.systems import system_of
from ethogram.fits.task_types import Item, Task, key_of, said_of
from ethogram.inference.conjugate.padded_shapes import rounded_up
from ethogram.inference.conjugate.side_by_side import fit_side_by_side, goes_side_by_side, start, structure_of
from ethogram.inference.state_order import in_order
from ethogram.models.data import Trajectories
from ethogram.models.keys import split_key

__all__ = ["fits_of_shape", "is_small", "shapes_of"]

SETTINGS = ("num_steps", "restarts", "init", "tol", "search", "progress_bar")
"""Settings of coordinate ascent under which fits go side by side."""
RATIOS = (4.0, 2.0, 2**0.5, 2**0.25, 2**0.125)
"""Ratios of neighbouring padded sizes, coarse to fine."""
LARGEST = 2**13
"""Steps of data that are fitted side by side: larger ones fill a processor by themselves."""
FEWEST = 8
"""Fits of one shape from which a program for many is worth compiling."""


def is_small(model: Any, data: Any, method: str, settings: Mapping[str, Any]) -> bool:
    """Whether a fit can go side by side with others of its shape."""
    if not isinstance(data, Trajectories) or method not in ("auto", "cavi") or not {*settings} <= {*SETTINGS}:
        return False
    search, restarts = settings.get("search", "auto"), settings.get("restarts", 8)
    return (
        isinstance(settings.get("init", "mixed"), str)
        and isinstance(restarts, int)
        and search in ("auto", "restarts")
        and data.num_sequences * data.observed.shape[1] <= LARGEST
        and system_of(model).methods(model, data).usual == "cavi"
        and goes_side_by_side(model, search, restarts)
    )


def shapes_of(sizes: Sequence[tuple[int, int]], max_waste: float) -> list[tuple[int, int]]:
    """Padded shape (sequences, steps) of each data set: the fewest shapes with at most this share of padding."""
    cells = sum(count * steps for count, steps in sizes)
    for ratio in RATIOS:
        found = [(rounded_up(count, 1, ratio), rounded_up(steps, 8, ratio)) for count, steps in sizes]
        if cells >= (1 - max_waste) * sum(count * steps for count, steps in found):
            return found
    return [*sizes]


def fits_of_shape(task: Task) -> dict[str, tuple[Fit, tuple[str, ...]]]:
    """Fits of a task by name, with their warnings, as `ethogram.fit` makes them; those that it cannot make are left."""
    shape = task.bucket.shape
    assert shape is not None
    options = {name: value for name, value in task.settings.items() if name not in ("search", "progress_bar")}
    num_steps, tol = options.pop("num_steps", NUM_STEPS), options.pop("tol", 1e-6)
    options = {"restarts": 8, "init": "mixed", **options}
    begun: dict[Any, list[tuple[Item, Any, Any, list[Any]]]] = {}
    begin = time.perf_counter()
    for item in task.items:
        key, key_draws = split_key(key_of(task, item))
        with (
            warnings.catch_warnings(record=True) as noted,
            contextlib.suppress(Exception),
        ):  # which `fit` raises again
            warnings.simplefilter("always")
            started = start(key, item.model, item.data, shape=shape, **options)
            begun.setdefault(structure_of(started), []).append((item, started, key_draws, noted))
    found = {}
    for some in begun.values():
        results = fit_side_by_side([started for _, started, _, _ in some], num_steps, tol, task.bucket.size)
        seconds = (time.perf_counter() - begin) / len(task.items)
        for (item, _, key_draws, noted), result in zip(some, results, strict=True):
            if result is not None:
                result = in_order(result, item.data)
                reason = (
                    system_of(item.model).methods(item.model, item.data).reason
                    if task.method == "auto"
                    else ""
                )
                one = Fit(item.model, item.data, "cavi", reason, result, seconds, key_draws)
                found[item.name] = one, said_of(noted)
    return found
