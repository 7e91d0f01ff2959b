"""`jax.jit` that compiles small work quickly.

XLA spends seconds on a program that then handles small data within milliseconds. Without its fusion emitters, and at a
lower level of optimisation, it compiles three to five times as quickly, and the program runs 3 to 13 times as long.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import numpy as np
from jax.extend.core import find_top_trace

from ethogram.models.arguments import is_concrete

__all__ = ["has_option", "quick_jit", "repeated"]

REPEATS: ContextVar[int] = ContextVar("REPEATS", default=1)
"""Parts of the data that the program is called for."""

LEVELS = ((2**23, 0), (2**27, 1))
"""Work, in numbers handled, up to which a program is compiled at a level of optimisation; beyond, at JAX's default.

In an iteration of a role HMM a step and state takes .09 to .12 us at level 0, .013 to .023 at level 1, and .007 to .021
by default. Level 1 compiles 1.3 to 1.6 s longer than level 0, the default 1.7 to 3 s longer than level 1 (K = 3 to 10,
4 000 to 33 000 padded steps). A number of the arguments is taken for one or two of these.
"""


def quick_jit(
    function: Any = None, *, calls: int | Callable[..., int] = 1, inline: bool = False, **options: Any
) -> Any:
    """A function as `jax.jit` compiles it, on a CPU with less optimisation where its work is small.

    Parameters
    ----------
    function : of pytrees of arrays.
    calls : how often the program handles the numbers of its arguments, over all its calls in a typical use; or a
        function of the arguments that says so, such as one that grows with the iterations that were done. A model that
        handles more for each number of its data says how much, by its `work_per_number`.
    inline : whether the function is called as it is within another program. A numpyro distribution, whose leaves have
        the order of a set, then is no argument of a program inside, which another process would not find in a cache.
    options : of `jax.jit`.
    """
    if function is None:
        return functools.partial(quick_jit, calls=calls, inline=inline, **options)
    usual: Any = jax.jit(function, **options)
    quick: dict[int, Any] = {}

    def compiled(*args: Any, **kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        if inline and not is_concrete(*leaves):
            return function(*args, **kwargs)
        # Within another program its options hold, and JAX refuses others.
        if _is_transformed() or jax.default_backend() != "cpu":
            return usual(*args, **kwargs)
        times = calls(*args, **kwargs) if callable(calls) else calls
        times *= max((getattr(each, "work_per_number", 1) for each in args), default=1)
        work = REPEATS.get() * times * sum(map(np.size, leaves))
        level = next((level for most, level in LEVELS if work <= most), None)
        if level is None:
            return usual(*args, **kwargs)
        if level not in quick:
            quick[level] = jax.jit(function, compiler_options=_compiler_options(level), **options)
        return quick[level](*args, **kwargs)

    wrapped: Any = functools.update_wrapper(compiled, usual)
    wrapped.eval_shape = usual.eval_shape
    wrapped._cache_size = lambda: sum(program._cache_size() for program in (usual, *quick.values()))
    return wrapped


@contextlib.contextmanager
def repeated(times: int) -> Iterator[None]:
    """Programs are called for so many parts of the data, and compiled with their work in view."""
    token = REPEATS.set(times)
    try:
        yield
    finally:
        REPEATS.reset(token)


@functools.cache
def _compiler_options(level: int) -> dict[str, Any]:
    """Those for a level of optimisation, as far as this version of XLA has them."""
    wanted = {"xla_backend_optimization_level": level, "xla_cpu_use_fusion_emitters": False}
    return {name: value for name, value in wanted.items() if has_option(name, value)}


def has_option(name: str, value: Any) -> bool:
    """Whether this version of XLA compiles with an option."""
    program = jax.jit(lambda: 0, compiler_options={name: value})
    try:
        program.lower().compile()
    except jax.errors.JaxRuntimeError:
        return False
    return True


def _is_transformed() -> bool:
    """Whether JAX traces what runs here, be the arguments traced or not."""
    return type(find_top_trace(())).__name__ != "EvalTrace"
