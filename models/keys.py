"""Typed keys made from one in a single small program, where JAX compiles several."""

from __future__ import annotations

import jax
from jax import Array

from ethogram.models.quick_jit import quick_jit

__all__ = ["folded_key", "split_key"]


@quick_jit(static_argnames="count")
def split_key(key: Array, count: int = 2) -> tuple[Array, ...]:
    """Keys of ``jax.random.split``, one by one."""
    return tuple(jax.random.split(key, count))


@quick_jit
def folded_key(key: Array, number: int) -> Array:
    """The key of ``jax.random.fold_in``."""
    return jax.random.fold_in(key, number)
