"""numpyro distributions of frames whose features are independent, or come from several distributions.

A feature that is NaN was not recorded: it is integrated out, that is, it has log likelihood 0.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

__all__ = ["IndependentFeatures", "JoinedColumns", "split_columns"]


class IndependentFeatures(dist.Distribution):
    """Distribution of frames (feature,) whose features are independent given the state.

    Values outside the support have log density -inf, with gradient 0.

    Parameters
    ----------
    base : a distribution of numbers with batch shape (..., feature).
    inner : a number within the support, put in place of what is missing or outside.
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.real_vector
    pytree_data_fields = ("base",)
    pytree_aux_fields = ("inner",)

    def __init__(self, base: dist.Distribution, inner: float = 0.0, *, validate_args: bool | None = None):
        self.base, self.inner = base, inner
        *batch, features = base.batch_shape
        super().__init__(tuple(batch), (features,), validate_args=validate_args)

    def log_prob(self, value: Any) -> Array:
        """Sum of the log densities of the features that were recorded."""
        value = jnp.asarray(value)
        if not jnp.issubdtype(value.dtype, jnp.floating):
            value = value.astype(jnp.result_type(float))
        circular = self.base.support is constraints.circular  # angles may be given in any turn
        inside = jnp.isfinite(value) if circular else jnp.asarray(self.base.support(value))
        each = self.base.log_prob(jnp.where(inside, value, self.inner))
        return jnp.sum(jnp.where(jnp.isnan(value), 0, jnp.where(inside, each, -jnp.inf)), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Frames (*sample_shape, ..., feature)."""
        return self.base.sample(key, sample_shape)


class JoinedColumns(dist.Distribution):
    """Distribution of frames whose columns come from several distributions, independent given the state.

    Parameters
    ----------
    parts : distributions with one batch shape, each of one number or of a vector.
    whole : of each part, whether it takes integers only: it is then missing where one of its columns is.
    """

    arg_constraints: ClassVar[dict] = {}
    support = constraints.real_vector
    pytree_data_fields = ("parts",)
    pytree_aux_fields = ("whole",)

    def __init__(
        self,
        parts: tuple[dist.Distribution, ...],
        whole: tuple[bool, ...],
        *,
        validate_args: bool | None = None,
    ):
        self.parts, self.whole = tuple(parts), tuple(whole)
        super().__init__(parts[0].batch_shape, (sum(self.sizes),), validate_args=validate_args)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of columns of each part."""
        return tuple(part.event_shape[0] if part.event_shape else 1 for part in self.parts)

    def log_prob(self, value: Any) -> Array:
        """Sum of the log densities of the parts."""
        total: Any = 0.0
        for part, whole, columns in zip(
            self.parts, self.whole, split_columns(value, self.sizes), strict=True
        ):
            missing = jnp.any(jnp.isnan(columns), axis=-1) if whole else None
            if whole:
                columns = jnp.nan_to_num(columns).astype(jnp.int32)
            each = part.log_prob(columns if part.event_shape else columns[..., 0])
            total = total + (each if missing is None else jnp.where(missing, 0, each))
        return total

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Array:
        """Frames (*sample_shape, ..., feature), as floats."""
        keys = jax.random.split(key, len(self.parts))
        drawn = [part.sample(k, sample_shape) for part, k in zip(self.parts, keys, strict=True)]
        columns = [x if part.event_shape else x[..., None] for part, x in zip(self.parts, drawn, strict=True)]
        dtype = jnp.result_type(float, *columns)
        return jnp.concatenate([x.astype(dtype) for x in columns], axis=-1)


def split_columns(value: Any, sizes: tuple[int, ...]) -> list[Any]:
    """Consecutive columns of the last axis, so many for each part; of NumPy or JAX arrays."""
    found, start = [], 0
    for size in sizes:
        found.append(value[..., start : start + size])
        start += size
    return found
