"""Typed keys made from one in a single small program, where JAX compiles several."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.models.quick_jit import quick_jit

__all__ = ["folded_key", "mapped_words", "split_key", "split_words"]


@quick_jit(static_argnames="count")
def split_key(key: Array, count: int = 2) -> tuple[Array, ...]:
    """Keys of ``jax.random.split``, one by one."""
    return tuple(jax.random.split(key, count))


@quick_jit
def folded_key(key: Array, number: int) -> Array:
    """The key of ``jax.random.fold_in``."""
    return jax.random.fold_in(key, number)


def split_words(words: np.ndarray, count: int, impl: str) -> np.ndarray:
    """Words (key, part, word) of the keys that ``jax.random.split`` makes of many, given by their words (key, word)."""
    return mapped_words(functools.partial(_split_words, count=count, impl=impl), words)


def mapped_words(function: Any, words: np.ndarray) -> np.ndarray:
    """What a compiled function makes of words (key, ...), which are padded so that their numbers share programs."""
    padded = np.zeros((2 ** (len(words) - 1).bit_length(), *words.shape[1:]), np.uint32)
    padded[: len(words)] = words
    return np.asarray(function(padded))[: len(words)]


@quick_jit(static_argnames=("count", "impl"))
def _split_words(words: Any, count: int, impl: str) -> Any:
    def parts(one: Any) -> Any:
        return jax.random.key_data(jax.random.split(jax.random.wrap_key_data(one, impl=impl), count))

    return jax.vmap(parts)(words)
