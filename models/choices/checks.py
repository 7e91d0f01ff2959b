"""Checks of decisions and priors, and the readers of lists that the constructors of decisions share."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from ethogram.models.arguments import is_concrete, read_array, require, require_kind, require_representable
from ethogram.models.data.labels import are_numerals, look_up
from ethogram.models.data.padding import read_column

__all__ = [
    "check_fields",
    "namespace",
    "read_floats",
    "read_indices",
    "read_named",
    "read_positions",
    "require_prior",
]

KINDS = {
    "features": ("f", "floats"), "legal": ("b", "booleans"), "choice": ("iu", "integers"),
    "subject": ("iu", "integers"), "weight": ("fiu", "numbers"),
}  # fmt: skip


MOST_ABSENT = 1000
"""Subjects without decisions, of which each has values, per decision."""


def check_fields(
    features: Any, legal: Any, choice: Any, subject: Any, weight: Any, subject_names: Any
) -> None:
    """Raise unless the arrays of decisions have the right kinds and shapes, and every known choice is legal."""
    given = dict(zip(KINDS, (features, legal, choice, subject, weight), strict=True))
    arrays = {name: np.asarray(array) for name, array in given.items() if array is not None}
    for name, array in arrays.items():
        kind, what = KINDS[name]
        require_kind(name, array, kind, f"pass {what}")
    features, legal, choice = arrays["features"], arrays["legal"], arrays["choice"]
    if features.ndim != 3 or 0 in features.shape[:2] or legal.shape != features.shape[:2]:
        raise ValueError(
            f"features has shape {features.shape}, legal {legal.shape}: pass (decision, option, feature) and "
            "(decision, option), with at least one decision and one option"
        )
    for name, array in arrays.items():
        if name not in ("features", "legal") and array.shape != legal.shape[:1]:
            raise ValueError(
                f"{name} has shape {array.shape}, not ({len(legal)},): pass one entry per decision"
            )
    _check_options(features, legal, choice)
    if subject is not None:
        who, count = arrays["subject"], np.inf if subject_names is None else len(subject_names)
        known = "" if subject_names is None else f" to {count - 1}, as metadata.subject_names has {count}"
        require((who >= 0) & (who < count), "subject", who, "is no subject", f"number subjects from 0{known}")
        most = count if subject_names is not None else max(MOST_ABSENT, MOST_ABSENT * len(who))
        fix = "number subjects 0, 1, 2, ..., or name them"
        require(who < most, "subject", who, f"is far beyond the {len(who)} decisions", fix)
    if weight is not None:
        often = arrays["weight"].astype(float)
        fine = np.isfinite(often) & (often >= 0)
        require(fine, "weight", often, "is negative or not finite", "pass finite numbers of at least 0")


def _check_options(features: np.ndarray, legal: np.ndarray, choice: np.ndarray) -> None:
    require(legal.any(-1), "legal", legal, "has no legal option", "drop decisions without options")
    inside = (choice >= -1) & (choice < legal.shape[1])
    fix = f"pass options from 0 to {legal.shape[1] - 1}, or -1 where the choice is unknown"
    require(inside, "choice", choice, "is not an option", fix)
    illegal = (choice >= 0) & ~np.take_along_axis(legal, np.maximum(choice, 0)[:, None], 1)[:, 0]
    if illegal.any():
        worst = int(illegal.argmax())
        raise ValueError(
            f"choice[{worst}] is option {choice[worst]}, which is not legal there: the legal options are "
            f"{np.flatnonzero(legal[worst]).tolist()}"
        )
    finite = ~legal[..., None] | np.isfinite(features)
    require(finite, "features", features, "is not finite", "pass finite features of every legal option")
    require_representable("features", np.where(legal[..., None], features, 0))


def require_prior(name: str, prior: dist.Distribution, most: float = np.inf, least: float = 0.0) -> None:
    """Raise ValueError unless a distribution is univariate, on the reals from `least` up to `most`."""
    if prior.batch_shape or prior.event_shape:
        raise ValueError(
            f"{name} has a prior with batch shape {prior.batch_shape} and event shape {prior.event_shape}: pass a "
            "univariate distribution"
        )
    support = prior.support
    lowest, largest = (getattr(support, f"{end}_bound", None) for end in ("lower", "upper"))
    fine = lowest is not None and (largest is not None or np.isinf(most)) and not support.is_discrete
    if fine and is_concrete(lowest, largest):
        fine = bool(np.all(np.asarray(lowest) >= least)) and (
            np.isinf(most) or bool(np.all(np.asarray(largest) <= most))
        )
    if not fine:
        where = f"[0, {most:g}], such as Beta(1, 19)"
        if np.isinf(most):
            where = "the positive reals, such as HalfNormal"
        if least > 0:
            where = f"the reals above {least:g}, such as TruncatedNormal(4.0, 8.0, low={least:g})"
        raise ValueError(f"{name} has a prior with support {support}: pass a distribution on {where}")


def read_floats(name: str, values: Any) -> np.ndarray:
    """Values as an array of float64."""
    array = read_array(name, values)
    require_kind(name, array, "biuf", "pass numbers")
    return array.astype(float)


def read_indices(
    name: str, values: Any, count: int, least: int = 0, names: Any = None, coded: bool = False
) -> np.ndarray:
    """Integers (decision,) from ``least`` to ``count - 1``, of integers or names as in `read_named`."""
    array = read_named(name, values, names, coded)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"{name} has dtype {array.dtype} and shape {array.shape}: pass integers (decision,)")
    unknown = ", or -1 where unknown" if least < 0 else ""
    inside = (array >= least) & (array < count)
    require(inside, name, array, "is out of range", f"pass numbers from 0 to {count - 1}{unknown}")
    return array


def read_named(name: str, values: Any, names: Any, coded: bool) -> np.ndarray:
    """An array of numbers, -1 where null; strings are looked up in ``names``.

    So are integers where some names are numerals, but not those that are ``coded``, nor a -1 that is no name.
    """
    array = read_array(name, values)
    if array.ndim != 1:
        return array
    array, null = read_column(values, name)
    whole = array.dtype.kind in "iu"
    if whole:
        array = np.where(null, np.asarray(-1), array) if null.any() else array
    if names is None or not (array.dtype.kind == "U" or (whole and are_numerals(names) and not coded)):
        return array
    known = ~null & (array != -1) if whole and "-1" not in names else ~null
    found = np.full(array.shape, -1)
    found[known] = look_up(
        array[known], names, name, "the names", ", or pass codes=True if integers are numbers"
    )
    return found


def read_positions(indices: Any, count: int) -> np.ndarray:
    """Positions of the decisions that integers, or booleans (decision,), select."""
    chosen = np.asarray(indices)
    if chosen.ndim != 1:
        raise ValueError(f"indices has shape {chosen.shape}: pass a list of integers or booleans, or a slice")
    if chosen.dtype == bool:
        if len(chosen) != count:
            raise ValueError(
                f"indices has {len(chosen)} booleans for {count} decisions: pass one per decision"
            )
        return np.flatnonzero(chosen)
    if not len(chosen):
        return chosen.astype(int)
    require_kind("indices", chosen, "iu", "pass integers or booleans")
    inside = (chosen >= -count) & (chosen < count)
    require(inside, "indices", chosen, "is out of range", f"there are {count} decisions")
    return chosen


def namespace(*values: Any) -> Any:
    """NumPy, which compiles nothing, for numbers and arrays on the host; else jax.numpy."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np
