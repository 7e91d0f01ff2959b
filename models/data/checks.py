"""The checks of `Trajectories`: each message names the place, what stands there, and how to fix it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ethogram.models.arguments import is_concrete, require, require_kind, require_representable
from ethogram.models.data.covariates import check_covariates
from ethogram.models.data.gaps import first_gap
from ethogram.models.data.metadata import ARRAY_FIELDS, SEQUENCE_LABELS, STEP_FIELDS, STEP_LABELS, TABLES
from ethogram.models.data.selection import valid_steps

__all__ = ["check", "check_arrays", "check_form", "is_readable"]


def check(data: Any) -> Any:
    """The data themselves, once their shapes, lengths, labels and values are valid.

    One pass over the arrays: call it once, where data come in. Arrays under a JAX transformation, or
    spread over other processes, are not looked at. Padding and missing frames may contain anything.

    Raises
    ------
    TypeError
        If the data are no ``Trajectories`` or an array has the wrong dtype.
    ValueError
        If shapes disagree, a length or label is out of range, an observed frame is infinite or has no feature, or
        ``observed`` is True beyond a length. The message names the place and how to fix it.
    """
    if not {*ARRAY_FIELDS} <= {*getattr(data, "_fields", ())}:
        raise TypeError(
            f"data is {type(data).__name__}, not Trajectories: use a constructor such as Trajectories.from_list"
        )
    if is_readable(data):
        check_arrays(data)
    return data


def is_readable(data: Any) -> bool:
    """Whether no array is traced by a JAX transformation, or spread over other processes."""
    leaves = jax.tree.leaves(data)
    return is_concrete(*leaves) and all(getattr(leaf, "is_fully_addressable", True) for leaf in leaves)


def check_arrays(data: Any) -> None:
    """Raise what `check` describes unless the concrete arrays are valid."""
    data = check_form(data)
    lengths, observed, valid = data.lengths, data.observed, valid_steps(data)
    num_steps = observed.shape[1]
    require(lengths >= 0, "lengths", lengths, "is negative", "count the frames of the sequence")
    require(lengths <= num_steps, "lengths", lengths, "exceeds the padding", f"arrays hold {num_steps} steps")
    fix = "set it to False or correct the length"
    require(valid | ~observed, "observed", observed, "lies beyond its length", fix)
    for field, vocabulary in (STEP_LABELS | SEQUENCE_LABELS).items():
        part, names = getattr(data, field), getattr(data.metadata, vocabulary)
        if part is None:
            continue
        where = valid if field in STEP_LABELS else np.True_
        fix = "number from 0, with -1 for what is missing"
        require(~where | (part >= -1), field, part, "is below -1", fix)
        require(~where | (part < 2**31), field, part, "is beyond 32 bits", fix)
        if names is not None:
            fix = f"metadata.{vocabulary} has {len(names)} names"
            require(~where | (part < len(names)), field, part, "has no name", fix)
    if data.stay is not None:
        known = ~valid | ((data.stay >= -1) & (data.stay <= 1))
        require(known, "stay", data.stay, "is not 1, 0 or -1", "mark stayed, changed, unknown")
    if data.covariates is not None:
        check_covariates(data)
    if data.observations is not None and jnp.issubdtype(data.observations.dtype, jnp.floating):
        _check_finite(data)
        if jax.dtypes.canonicalize_dtype(data.observations.dtype) != data.observations.dtype:
            require_representable("observations", data.observations, where=data.observed[..., None])


def check_form(data: Any) -> Any:
    """The data on the host, once arrays are there, of the right kinds, and their shapes agree."""
    for field in ARRAY_FIELDS:
        part = getattr(data, field)
        if part is None and field in ("lengths", "observed"):
            raise TypeError(f"{field} is None: Trajectories always have lengths and observed")
        if part is not None and not isinstance(part, np.ndarray | jax.Array):
            raise TypeError(
                f"{field} is {type(part).__name__}: pass a NumPy or JAX array, or use a constructor"
            )
    if data.observations is None and data.states is None and data.actions is None:
        raise ValueError("observations, states and actions are all None: there is nothing to model")
    data = jax.tree.map(np.asarray, data)
    _check_kinds(data)
    _check_shapes(data)
    return data


def _check_kinds(data: Any) -> None:
    # NumPy does not know JAX's short floats, such as bfloat16.
    if data.observations is not None and not any(
        jnp.issubdtype(data.observations.dtype, kind) for kind in (jnp.floating, jnp.integer)
    ):
        raise TypeError(f"observations has dtype {data.observations.dtype}: pass floats or integers")
    require_kind("observed", data.observed, "b", "pass booleans")
    for field in ("lengths", "stay", *STEP_LABELS, *SEQUENCE_LABELS):
        part = getattr(data, field)
        if part is not None:
            require_kind(field, part, "iu", "pass integers, with -1 for what is missing")
    if data.covariates is not None:
        require_kind("covariates", data.covariates, "f", "pass floats, codes of levels among them")
    if data.times is not None:
        require_kind("times", data.times, "iuf", "pass numbers, or nanoseconds with metadata.time_kind")


def _check_shapes(data: Any) -> None:
    if data.lengths.ndim != 1:
        raise ValueError(f"lengths has shape {data.lengths.shape}, not (sequence,)")
    num_sequences = len(data.lengths)
    if num_sequences == 0:
        raise ValueError("lengths is empty: Trajectories need at least one sequence")
    if data.observed.ndim != 2 or data.observed.shape[0] != num_sequences or data.observed.shape[1] == 0:
        raise ValueError(
            f"observed has shape {data.observed.shape}, not ({num_sequences}, time), one row for each length"
        )
    for field in STEP_FIELDS:
        part, is_table = getattr(data, field), field in TABLES
        if part is not None and (part.ndim != 2 + is_table or part.shape[:2] != data.observed.shape):
            expected = ", ".join(map(str, data.observed.shape)) + (f", {TABLES[field]}" if is_table else "")
            raise ValueError(
                f"{field} has shape {part.shape}, not ({expected}), the shape of observed: pad them alike"
            )
    for field in SEQUENCE_LABELS:
        part = getattr(data, field)
        if part is not None and part.shape != (num_sequences,):
            raise ValueError(
                f"{field} has shape {part.shape}, not ({num_sequences},): give one label per sequence"
            )
    for field, axis in TABLES.items():
        table = getattr(data, field)
        count = 0 if table is None else table.shape[2]
        if table is not None and count == 0:
            raise ValueError(f"{field} has shape {table.shape}, without {axis}s: use None instead")
        for part in ("names", "units", *["levels"] * (field == "covariates")):
            names = getattr(data.metadata, f"{axis}_{part}")
            if names is not None and len(names) != count:
                raise ValueError(
                    f"metadata.{axis}_{part} has {len(names)} entries for {count} {axis}s: give one each"
                )


def _check_finite(data: Any) -> None:
    x, observed = data.observations, data.observed
    nothing = np.isnan(x).all(axis=2, keepdims=True)
    wrong = observed[..., None] & (np.isinf(x) | nothing)
    if wrong.any():
        row, step, _ = np.argwhere(wrong)[0]
        raise ValueError(
            f"{first_gap(data, wrong)} where observed[{row}, {step}] is True: replace it, or set observed to False "
            'there, as the constructors do for frames of NaN with missing="nan"; NaN in some features means that these '
            "are missing"
        )
