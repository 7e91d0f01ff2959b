"""What emissions share: how their blocks get a row a state, how they read data, how frames look to a start."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ethogram.models.blocks.conjugate_block import concretely, is_concrete, require
from ethogram.models.exponential_family import ConjugateBlock, Known, PartlyKnown
from ethogram.models.trajectories import Trajectories

__all__ = [
    "Emission",
    "in_range",
    "integer_observations",
    "of_every",
    "one_hot",
    "real_observations",
    "repeat_rows",
    "rows_of",
    "whole_number",
]


class Emission:
    """What emissions share: how frames look to a start."""

    event_dim: ClassVar[int] = 1
    site_dims: ClassVar[dict[str, tuple[str, ...]]] = {}

    def start_features(self, observations: np.ndarray, observed: np.ndarray) -> np.ndarray:
        """Frames as points (sequence, time, feature), for clustering."""
        return np.asarray(observations, dtype=float)


def one_hot(labels: np.ndarray, num_states: int) -> np.ndarray:
    """Labels (frame,) as rows of an identity matrix."""
    return (labels[:, None] == np.arange(num_states)).astype(float)


def of_every(name: str, value: Any, count: int) -> Array:
    """A number once a feature (category, component), or what was given for every one."""
    if value.shape not in ((), (count,)):
        raise ValueError(f"{name} has shape {value.shape}: give a number, or {count} of them")
    return concretely(lambda xp, x: xp.broadcast_to(x, (count,)), value)


def repeat_rows(block: Any, count: int) -> Any:
    """The block with a new leading batch axis of `count` equal rows."""
    return jax.tree.map(
        lambda x: concretely(lambda xp, x: xp.broadcast_to(x[None], (count, *x.shape)), x), block
    )


def rows_of(block: ConjugateBlock, num_states: int, known: Known | None) -> ConjugateBlock:
    block = repeat_rows(block, num_states)
    return block if known is None else PartlyKnown.from_known(block, known)


def whole_number(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, not {value}")


def _features(data: Trajectories, num_features: int) -> Any:
    if data.observations is None:
        raise ValueError(
            "data.observations is None: this emission needs observations (sequence, time, feature)"
        )
    if data.observations.shape[-1] != num_features:
        raise ValueError(
            f"data.observations has {data.observations.shape[-1]} features, the emission num_features={num_features}"
        )
    return data.observations


def real_observations(data: Trajectories, num_features: int) -> Array:
    x = _features(data, num_features)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(
            f"data.observations has dtype {x.dtype}, a Gaussian emission needs floats: "
            "pass data._replace(observations=data.observations.astype(float))"
        )
    return jnp.asarray(x)


def integer_observations(data: Trajectories, num_features: int, name: str) -> Array:
    x = _features(data, num_features)
    if not jnp.issubdtype(x.dtype, jnp.integer):
        raise TypeError(f"data.observations has dtype {x.dtype}, a {name} needs integers")
    return jnp.asarray(x)


def in_range(data: Trajectories, x: Any, low: int, high: Any, what: str) -> None:
    if not is_concrete(x, data.observed, high):
        return
    x, observed = np.asarray(x), np.asarray(data.observed)
    good = (x >= low) & (x <= np.asarray(high)) | ~observed.reshape(observed.shape + (1,) * (x.ndim - 2))
    require(
        good,
        "data.observations",
        x,
        f"lies outside {what}",
        f"use {low}..{np.asarray(high).tolist()}, or mark the step as missing",
    )
