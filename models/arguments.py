"""Checks of arguments: integers, numbers, one of several names, typed keys, real arrays, batches, covariances.

Each raises before anything is compiled; the message names the argument, its value and how to fix it.
"""

from __future__ import annotations

import math
import numbers
import operator
import os
import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from ethogram.models.held_warnings import hold

__all__ = [
    "Reals",
    "as_list",
    "common_batch",
    "concretely",
    "host_arrays",
    "is_concrete",
    "on_host",
    "read_array",
    "read_features",
    "read_part",
    "read_positive",
    "read_reals",
    "refuse_fork",
    "require",
    "require_covariance",
    "require_distributions",
    "require_flag",
    "require_integer",
    "require_key",
    "require_kind",
    "require_number",
    "require_one_of",
    "require_reals",
    "require_representable",
    "warn_user",
]

Reals = ArrayLike | Sequence[Any]


def require_integer(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """``value`` as an int: a TypeError unless a Python or NumPy one (no boolean), a ValueError out of the bounds."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, not {value}")
    return int(value)


def require_number(
    name: str,
    value: Any,
    least: float | int | None = None,
    most: float | int | None = None,
    *,
    above: float | int | None = None,
    below: float | int | None = None,
) -> float:
    """``value`` as a float: a ValueError if it is NaN, infinite or out of the bounds.

    A TypeError unless it is a Python or NumPy number, or an array without axes; not a boolean.
    """
    scalar = isinstance(value, np.ndarray | jax.Array) and value.ndim == 0 and is_concrete(value)
    number = value.item() if scalar and isinstance(value.dtype, np.dtype) else value
    if isinstance(number, bool | np.bool_) or not isinstance(number, numbers.Real):
        raise TypeError(f"{name} must be a real number, not {value!r}")
    try:
        number = float(number)
    except OverflowError:
        raise ValueError(
            f"{name} must be a number that a float holds, not one of more than 308 digits"
        ) from None
    bounds = (
        ("at least", least, operator.ge),
        ("greater than", above, operator.gt),
        ("at most", most, operator.le),
        ("less than", below, operator.lt),
    )
    stated = [(words, bound, holds) for words, bound, holds in bounds if bound is not None]
    inside = all(holds(number, bound) for _, bound, holds in stated)
    if not (math.isfinite(number) and inside):
        rules = [f"{words} {bound:g}" for words, bound, _ in stated]
        if not rules or (math.isinf(number) and inside):
            rules.insert(0, "finite")
        raise ValueError(f"{name} must be {' and '.join(rules)}, not {number:g}")
    return number


def require_flag(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is a boolean of Python or NumPy."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be True or False, not {value!r}")


def require_one_of(name: str, value: Any, allowed: Collection[Any]) -> None:
    """Raise ValueError unless ``value`` is one of ``allowed``."""
    if not any(value is each or (isinstance(value, str) and value == each) for each in allowed):
        *others, last = map(repr, allowed)
        choices = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{name} must be {choices}, not {value!r}")


def require_key(key: Any, name: str = "key") -> None:
    """Raise TypeError unless ``key`` is one typed key, as ``jax.random.key`` makes it.

    As `refuse_fork` besides.
    """
    refuse_fork()
    typed = isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed or key.shape:
        came = f"keys of shape {key.shape}" if typed else type(key).__name__
        raise TypeError(f"{name} must be one typed key, not {came}: pass jax.random.key(0)")


def refuse_fork() -> None:
    """Raise RuntimeError in a process forked after JAX had started, in which its programs never end."""
    if _FORKED:
        raise RuntimeError(
            "this process was forked after JAX had started, and would wait for ever: start processes by "
            'multiprocessing.get_context("spawn"), or fork before anything of JAX is computed'
        )


def _note_fork() -> None:
    """Note in a forked process whether JAX had started: the threads that its programs wait for are not there."""
    global _FORKED
    _FORKED = bool(getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None))


_FORKED = False
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def common_batch(came: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Batch shape to which all ``shapes`` broadcast, or a ValueError that begins with the words ``came``."""
    try:
        return jnp.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(f"{came}: give batch axes that broadcast") from None


def as_list(name: str, value: Any, what: str = "one array per sequence") -> list[Any]:
    """The entries of a list, tuple, array or other iterable; a TypeError for strings, mappings, sets and scalars."""
    unordered = isinstance(value, str | bytes | Mapping | set | frozenset)
    if unordered or not isinstance(value, Iterable):
        raise TypeError(f"{name} is {type(value).__name__}: give a list, {what}")
    if hasattr(value, "shape") and len(value.shape) == 0:
        raise TypeError(f"{name} is an array without axes: give a list, {what}")
    return list(value)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Give a warning that blames the first line outside the package, unless `held_warnings` keeps it."""
    if hold(message):
        return
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and (
        frame.f_code.co_filename.startswith("<")
        or frame.f_globals.get("__name__", "").split(".")[0]
        in ("ethogram", "numpyro", "jaxtyping", "beartype")
    ):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def is_concrete(*values: Any) -> bool:
    """Whether no value is traced by a JAX transformation."""
    return not any(isinstance(value, jax.core.Tracer) for value in values)


def on_host(*values: Any) -> bool:
    """Whether NumPy, which compiles nothing, can read all values without a transfer from an accelerator."""
    arrays = [value for value in values if isinstance(value, jax.Array)]
    return is_concrete(*values) and all(
        device.platform == "cpu" for array in arrays for device in array.devices()
    )


def concretely(function: Callable[..., Any], *values: Any) -> Any:
    """``function(numpy, *values)`` as JAX arrays where all values are concrete, else ``function(jax.numpy, ...)``.

    The arithmetic of a constructor on a few small arrays is not worth a compilation, and NumPy needs none; nor does
    ``device_put``, where ``jnp.asarray`` compiles a program for every shape. It may share the memory of what it is
    given: what is an array of the caller's is copied, so that the result does not change with it.
    """
    found = host_arrays(function, *values)
    if not is_concrete(*jax.tree.leaves(found)):
        return found
    with jax.ensure_compile_time_eval():  # concrete values stay concrete, inside jit too
        return jax.device_put(found)


def host_arrays(function: Callable[..., Any], *values: Any) -> Any:
    """As `concretely`, but concrete results stay arrays of NumPy, in JAX's precision.

    A compiled program takes small ones sooner than ``device_put`` makes arrays of JAX, one by one.
    """
    leaves, structure = jax.tree.flatten(values)
    if not is_concrete(*leaves):
        return function(jnp, *values)
    callers = [leaf for leaf in leaves if isinstance(leaf, np.ndarray)]
    host = jax.tree.unflatten(structure, [np.asarray(leaf) for leaf in leaves])
    found, shape = jax.tree.flatten(function(np, *host))

    def own(x: Any) -> Any:
        x = np.asarray(x)
        dtype = jax.dtypes.canonicalize_dtype(x.dtype)
        if dtype != x.dtype:
            return x.astype(dtype)
        return np.array(x) if any(np.may_share_memory(x, array) for array in callers) else x

    return jax.tree.unflatten(shape, [own(x) for x in found])


def require_reals(name: str, value: Any) -> None:
    """Raise TypeError unless ``value`` is an array of floats, a Python number, or lists of these."""
    if isinstance(value, np.ma.MaskedArray):
        read_array(name, value)  # which refuses it
    if hasattr(value, "dtype"):
        if not isinstance(value.dtype, np.dtype) and not isinstance(value, jax.Array | jax.core.Tracer):
            raise TypeError(f"{name} is {type(value).__name__} of {value.dtype}: pass an array of floats")
        if not jnp.issubdtype(value.dtype, jnp.floating) or value.dtype.itemsize > 8:
            raise TypeError(f"{name} has dtype {value.dtype}, not a float type: pass {name}.astype(float)")
        return
    try:
        real = read_array(name, value).dtype.kind in "iuf"
    except (TypeError, ValueError):  # rows of different lengths
        real = False
    if not real:
        fix = "pass a float or an array of floats"
        raise TypeError(f"{name} is {value!r}, neither a real number nor an array: {fix}")


def read_array(name: str, value: Any, ndim: int | None = None) -> np.ndarray:
    """``value`` as a NumPy array: a ValueError or TypeError that names it, where NumPy cannot or would guess.

    Masked arrays lose their mask in NumPy, and generators, sets and mappings become arrays of one object.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f'{name} is a masked array: fill it with NaN and pass missing="nan" where there is one'
        )
    if isinstance(value, Mapping | set | frozenset) or (
        isinstance(value, Iterable) and hasattr(value, "__next__")
    ):
        raise TypeError(f"{name} is {type(value).__name__}: give a list or an array")
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} has rows of different lengths: give it as one array") from None
    except Exception as error:
        raise TypeError(
            f"{name} is {type(value).__name__}, which is no array ({error}): give numbers"
        ) from None
    if ndim is not None and array.ndim != ndim:
        raise ValueError(f"{name} has shape {array.shape}: give {ndim} axes")
    return array


def read_part(name: str, value: Any, kinds: str, fix: str) -> Any:
    """An array of one of NumPy's ``kinds``; None, and arrays of JAX, as they are."""
    if value is None or isinstance(value, jax.Array | jax.core.Tracer):
        return value
    array = read_array(name, value)
    require_kind(name, array, kinds, fix)
    return array


def read_reals(**parameters: Any) -> list[Array]:
    """Parameters as finite JAX arrays of one float type, the common one of those that are arrays."""
    for name, value in parameters.items():
        require_reals(name, value)
        if is_concrete(value):
            require(np.isfinite(np.asarray(value)), name, value, "is not finite", "remove or impute it")
    arrays = [value for value in parameters.values() if hasattr(value, "dtype")]
    typed = [x if isinstance(x, Array) else jax.dtypes.canonicalize_dtype(x.dtype) for x in arrays]
    own = {x.dtype if isinstance(x, Array) else x for x in typed}  # one of them is found sooner
    dtype = own.pop() if len(own) == 1 else jnp.result_type(*typed) if typed else jnp.result_type(float)
    dtype = jnp.promote_types(dtype, np.float32)  # no factorisation takes half precision
    for name, value in parameters.items():
        if is_concrete(value):
            require_representable(name, value, dtype)
    return [_of_type(value, dtype) for value in parameters.values()]


def _of_type(value: Any, dtype: Any) -> Array:
    """A value as a JAX array of a float type; one that is, as it is."""
    if isinstance(value, Array) and value.dtype == dtype and not value.weak_type:
        return value
    return concretely(lambda xp, x: xp.asarray(x, dtype=dtype), value)


def read_features(name: str, value: Any) -> Any:
    """Finite reals in the precision in which they came, as a NumPy copy; arrays of JAX as they are.

    Features far from zero have to be centred before they are rounded to the precision of JAX.
    """
    require_reals(name, value)
    if is_concrete(value):
        require(np.isfinite(np.asarray(value)), name, value, "is not finite", "remove or impute it")
        require_representable(name, value, jnp.result_type(float))
    if isinstance(value, jax.Array):
        return value
    return np.array(value) if hasattr(value, "dtype") else np.array(value, float)


def read_positive(fix: str, **parameters: Any) -> list[Array]:
    """Parameters as positive JAX arrays of one float type, broadcast against each other.

    Raises ValueError that ends in `fix` where a value is not positive, or where shapes do not broadcast.
    """
    values = read_reals(**parameters)
    for name, value in zip(parameters, values, strict=True):
        if is_concrete(value):
            require(np.asarray(value) > 0, name, value, "is not positive", fix)
    shapes = [f"{name} has shape {value.shape}" for name, value in zip(parameters, values, strict=True)]
    batch = common_batch(" and ".join(shapes), *(value.shape for value in values))
    return [concretely(lambda xp, x: xp.broadcast_to(x, batch), value) for value in values]


def require_representable(name: str, value: Any, dtype: Any = None, where: Any = True) -> None:
    """Raise ValueError where a finite real is infinite as a ``dtype``, by default that of JAX's precision.

    Entries that are not in the mask `where` may be anything.
    """
    host = np.asarray(value)
    dtype = jax.dtypes.canonicalize_dtype(host.dtype if dtype is None else dtype)
    if host.dtype.itemsize <= dtype.itemsize:
        return
    most = float(jnp.finfo(dtype).max)
    finite = np.isfinite(host) & where
    highest, lowest = (float(of(host, where=finite, initial=0)) for of in (np.max, np.min))
    if max(highest, -lowest) > most:
        inside = ~finite | (np.abs(host) <= most)
        require(inside, name, host, f"is beyond the range of {dtype}", "rescale it, or set jax_enable_x64")


def require(good: Any, name: str, value: Any, fault: str, fix: str | None = None) -> None:
    """Raise ValueError ``NAME[PLACE] FAULT (it is VALUE): FIX`` at the first False of ``good``.

    ``NAME[PLACE] is VALUE FAULT`` without a fix. ``good`` has the leading axes of ``value``.
    """
    good = np.asarray(good)
    for at in [] if good.all() else np.argwhere(~good)[:1].tolist():
        came, place = np.asarray(value)[tuple(at)], f"{name}{at or ''}"
        if fix is None:
            raise ValueError(f"{place} is {came}{fault}")
        raise ValueError(f"{place} {fault} (it is {np.array2string(came, separator=', ')}): {fix}")


def require_kind(name: str, array: Any, kinds: str, fix: str) -> None:
    """Raise TypeError unless the dtype is of one of NumPy's ``kinds``, such as "iu" for integers."""
    if array.dtype.kind not in kinds:
        raise TypeError(f"{name} has dtype {array.dtype}: {fix}")


def require_distributions(name: str, rows: Any) -> None:
    """Raise ValueError unless rows (..., entry) are probabilities that sum to one: within 1e-6, float32 1e-4."""
    rows = np.asarray(rows)
    require(rows >= 0, name, rows, "is negative", "give probabilities")
    sums = rows.sum(-1, dtype=np.float64)
    off = np.abs(sums - 1) > (1e-6 if rows.dtype == np.float64 else 1e-4)
    for at in np.argwhere(off)[:1].tolist():
        raise ValueError(f"{name}{at or ''} sums to {sums[tuple(at)]:.6g}, not 1: divide each row by its sum")


def require_covariance(name: str, matrices: Any, rows: Iterable[tuple[int, ...]] | None = None) -> None:
    """Raise ValueError unless matrices (*batch, feature, feature) are symmetric positive definite, all or ``rows``."""
    matrices = np.asarray(matrices)
    tolerance = 1e3 * np.finfo(np.result_type(matrices, np.float16)).eps
    for at in np.ndindex(matrices.shape[:-2]) if rows is None else rows:
        matrix, fault = matrices[at], ""
        if not np.isfinite(matrix).all():
            fault, fix = "finite", ""
        elif not np.abs(matrix - matrix.T).max() <= tolerance * np.abs(matrix).max():
            fault, fix = "symmetric", ": pass (M + M.T) / 2"
        else:
            try:
                np.linalg.cholesky((matrix + matrix.T) / 2)
            except np.linalg.LinAlgError:
                fault, fix = (
                    "positive definite",
                    ": add to its diagonal, or drop features that depend on others",
                )
        if fault:
            came = np.array2string(matrix, separator=", ")
            raise ValueError(f"{name}{list(at) or ''} is not {fault} (it is {came}){fix}")
