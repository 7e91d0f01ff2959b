"""Tasks of many fits as they are sent to workers, and what comes back."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from ethogram.models.printing import short_repr

__all__ = ["Failure", "Item", "Later", "Outcome", "Task", "failure_of", "key_of", "said_of"]


@short_repr
class Failure(NamedTuple):
    """A fit that raised an error; it has no estimates.

    Attributes
    ----------
    name : of the item.
    error : its type and message.
    traceback : where it was raised; empty where a process ended without a word.
    """

    name: str
    error: str
    traceback: str


class Item(NamedTuple):
    """One fit to be done: the name of its result, data, the words of its key, and a model or None for a function."""

    name: str
    data: Any
    key: np.ndarray
    model: Any


class Task(NamedTuple):
    """Items that a worker fits in one call; made of arrays, model objects and strings, which pickle.

    Attributes
    ----------
    items : of one bucket.
    function : ``"module:name"`` of a function of key and data, or None for models.
    method, settings : of `ethogram.fit`.
    impl : of the keys.
    bucket : model and shapes; a worker drops compiled programs before it takes those of another bucket.
    together : fits of the bucket, where they run side by side; 0 where they run one by one.
    retries : further tries after an error that is not one of input.
    packs : whether results are the bytes of files.
    driver : where the call was made; elsewhere they are always.
    """

    items: tuple[Item, ...]
    function: str | None
    method: str
    settings: dict[str, Any]
    impl: str
    bucket: str
    together: int
    retries: int
    packs: bool
    driver: tuple[str, int]


class Later(NamedTuple):
    """A fit that was made beside others; `build` takes it out of their arrays."""

    build: Callable[[], Any]


class Outcome(NamedTuple):
    """What came of an item: a result, packed where it was made in another process, or a failure."""

    name: str
    result: Any
    warnings: tuple[str, ...]


def failure_of(name: str, error: Exception) -> Failure:
    """The failure of an item by an error that is being handled."""
    return Failure(name, f"{type(error).__name__}: {error}", traceback.format_exc())


def key_of(task: Task, item: Item) -> Array:
    """The typed key of an item."""
    return jax.random.wrap_key_data(jax.device_put(item.key), impl=task.impl)


def said_of(noted: Sequence[warnings.WarningMessage]) -> tuple[str, ...]:
    """Texts of warnings that are for users, each once."""
    kinds = UserWarning, RuntimeWarning
    return tuple(dict.fromkeys(str(each.message) for each in noted if issubclass(each.category, kinds)))
