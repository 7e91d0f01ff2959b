"""The checks behind `trajectories.check`: each message names the place, what stands there, and the cure."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ethogram.models.ragged.metadata import SEQUENCE_LABELS, STEP_FIELDS, STEP_LABELS
from ethogram.models.trajectories import HostOrDevice, Trajectories, valid_steps

__all__ = ["check_arrays", "first_place"]


def check_arrays(data: Trajectories) -> None:
    """None, once concrete arrays are found in order; raises what :func:`trajectories.check` describes."""
    data = _on_host(data)
    _check_kinds(data)
    _check_shapes(data)
    _check_lengths(data)
    valid = valid_steps(data)
    for field in STEP_LABELS:
        _check_labels(data, field, valid)
    for field in SEQUENCE_LABELS:
        _check_labels(data, field, np.True_)
    if data.stay is not None:
        _check_range(
            data.stay, "stay", valid & ((data.stay < -1) | (data.stay > 1)), "is 1, 0 or -1 (not known)"
        )
    _check_observations(data)


def first_place(wrong: HostOrDevice) -> tuple[int, ...]:
    """Indices of the first True entry."""
    return tuple(int(i) for i in np.unravel_index(int(wrong.argmax()), wrong.shape))


def _on_host(data: Trajectories) -> Trajectories:
    for field in Trajectories._fields[:-1]:
        part = getattr(data, field)
        if part is None and field in ("lengths", "observed"):
            raise TypeError(f"{field} is None: every Trajectories has lengths and observed")
        if part is not None and not isinstance(part, np.ndarray | jax.Array):
            raise TypeError(
                f"{field} is {type(part).__name__}: give a NumPy or JAX array, or use a constructor"
            )
    if data.observations is None and data.states is None and data.actions is None:
        raise ValueError("observations, states and actions are all None: there is nothing to model")
    return jax.tree.map(np.asarray, data)


def _check_kinds(data: Trajectories) -> None:
    if data.observations is not None and not _is_number(data.observations.dtype):
        raise TypeError(
            f"observations holds {data.observations.dtype}: give floats, or integers for symbols and counts"
        )
    if data.observed.dtype != np.bool_:
        raise TypeError(f"observed holds {data.observed.dtype}: give booleans")
    for field in ("lengths", "stay", *STEP_LABELS, *SEQUENCE_LABELS):
        part = getattr(data, field)
        if part is not None and part.dtype.kind not in "iu":
            raise TypeError(f"{field} holds {part.dtype}: give integers, with -1 for what is missing")


def _is_number(dtype: Any) -> bool:
    # NumPy does not know JAX's short floats, such as bfloat16.
    return jnp.issubdtype(dtype, jnp.floating) or jnp.issubdtype(dtype, jnp.integer)


def _check_shapes(data: Trajectories) -> None:
    if data.lengths.ndim != 1:
        raise ValueError(f"lengths has shape {data.lengths.shape}, not (sequence,)")
    num_sequences = len(data.lengths)
    if num_sequences == 0:
        raise ValueError("lengths is empty: Trajectories hold one sequence at least")
    if data.observed.ndim != 2 or data.observed.shape[0] != num_sequences or data.observed.shape[1] == 0:
        raise ValueError(
            f"observed has shape {data.observed.shape}, not ({num_sequences}, time), one row for each length"
        )
    for field in STEP_FIELDS:
        part = getattr(data, field)
        if part is None:
            continue
        is_table = field == "observations"
        if part.ndim != 2 + is_table or part.shape[:2] != data.observed.shape:
            num_steps = data.observed.shape[1]
            wanted = f"({num_sequences}, {num_steps}{', feature' if is_table else ''})"
            raise ValueError(
                f"{field} has shape {part.shape}, not {wanted}, the shape of observed: pad them alike"
            )
    for field in SEQUENCE_LABELS:
        part = getattr(data, field)
        if part is not None and part.shape != (num_sequences,):
            raise ValueError(
                f"{field} has shape {part.shape}, not ({num_sequences},): give one label a sequence"
            )
    num_features = 0 if data.observations is None else data.observations.shape[2]
    if data.observations is not None and num_features == 0:
        raise ValueError(
            f"observations has shape {data.observations.shape}, without features: use None instead"
        )
    for field in ("feature_names", "feature_units"):
        names = getattr(data.metadata, field)
        if names is not None and len(names) != num_features:
            raise ValueError(
                f"metadata.{field} has {len(names)} entries for {num_features} features: give one each"
            )


def _check_lengths(data: Trajectories) -> None:
    num_steps = data.observed.shape[1]
    negative = data.lengths < 0
    if negative.any():
        (place,) = first_place(negative)
        raise ValueError(f"lengths[{place}] is {data.lengths[place]}: a length cannot be negative")
    beyond = data.lengths > num_steps
    if beyond.any():
        (place,) = first_place(beyond)
        raise ValueError(
            f"lengths[{place}] is {data.lengths[place]}, beyond the padding: arrays hold {num_steps} steps"
        )
    outside = data.observed & ~valid_steps(data)
    if outside.any():
        row, step = first_place(outside)
        raise ValueError(
            f"observed[{row}, {step}] is True beyond lengths[{row}] = {data.lengths[row]}: "
            "set observed to False there or correct the length"
        )


def _check_labels(data: Trajectories, field: str, where: Any) -> None:
    part = getattr(data, field)
    vocabulary = getattr(data.metadata, (STEP_LABELS | SEQUENCE_LABELS)[field])
    if part is None:
        return
    _check_range(part, field, where & (part < -1), "is at least 0, and -1 marks a missing one")
    if vocabulary is not None:
        known = f"goes up to {len(vocabulary) - 1}, the last of the {len(vocabulary)} names in metadata"
        _check_range(part, field, where & (part >= len(vocabulary)), known)


def _check_range(part: HostOrDevice, field: str, wrong: HostOrDevice, rule: str) -> None:
    if wrong.any():
        place = first_place(wrong)
        raise ValueError(f"{field}{list(place)} is {part[place]}: a label {rule}")


def _check_observations(data: Trajectories) -> None:
    if data.observations is None or not jnp.issubdtype(data.observations.dtype, jnp.floating):
        return
    wrong = data.observed[..., None] & ~np.isfinite(data.observations)
    if wrong.any():
        row, step, feature = first_place(wrong)
        names = data.metadata.feature_names
        name = f" (feature {names[feature]!r})" if names else ""
        raise ValueError(
            f"observations[{row}, {step}, {feature}]{name} is {data.observations[row, step, feature]} where "
            f"observed[{row}, {step}] is True: replace it, or set observed to False there, as "
            'the constructors do for NaN with missing="nan"'
        )
