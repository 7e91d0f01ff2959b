"""What GP-IRL is told of inducing points and of priors, once it is found in order."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from numpyro.distributions import constraints

from ethogram.models.blocks.conjugate_block import is_concrete, read_reals, require_reals

__all__ = ["read_inducing", "read_prior"]

POSITIVE = (constraints.positive, constraints.nonnegative)


def read_inducing(inducing: Any, family: str, num_points: int) -> Any:
    """Integers (inducing,), or None where there are none.

    Raises
    ------
    TypeError, ValueError
        There are none where the family has some, or the other way round; they are no integers, none of the points, or
        one of them is named twice.
    """
    if family == "direct":
        if inducing is not None:
            raise ValueError('inducing is given, and family is "direct": leave it out, or family="inducing"')
        return None
    if inducing is None:
        raise ValueError(
            f'inducing is None, and family is "inducing" ({num_points} points): choose points by '
            "inducing_points(demonstrations, mdp), with pairs=True for rewards of states and actions"
        )
    points = jnp.asarray(inducing)
    if not jnp.issubdtype(points.dtype, jnp.integer) or points.ndim != 1 or not len(points):
        raise TypeError(
            f"inducing is {points.dtype} {points.shape}: give integers (inducing,), places of points"
        )
    if is_concrete(points):
        found, counts = np.unique(np.asarray(points), return_counts=True)
        if found[0] < 0 or found[-1] >= num_points:
            wrong = found[0] if found[0] < 0 else found[-1]
            raise ValueError(f"inducing has {wrong}, which is none of the points 0..{num_points - 1}")
        if (counts > 1).any():
            raise ValueError(f"inducing has {found[counts > 1][0]} more than once: name every point once")
    return points


def read_prior(name: str, value: Any, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """A law of one number above 0, or numbers above 0 of one of the shapes.

    Raises
    ------
    TypeError, ValueError
        It is neither, or the law is that of the noise, which is known.
    """
    if isinstance(value, dist.Distribution):
        if name == "noise":
            raise TypeError("noise is a distribution: it is known, a number")
        if value.batch_shape != () or value.event_shape != ():
            raise ValueError(f"{name} has batch shape {value.batch_shape}: give the law of one number")
        if not any(value.support is one or value.support == one for one in POSITIVE):
            raise ValueError(
                f"{name} is {type(value).__name__} with support {value.support}: give a law of all numbers above 0, "
                "such as LogNormal, Gamma or HalfNormal"
            )
        return value
    require_reals(name, value)
    if np.shape(value) not in shapes or (is_concrete(value) and not np.all(np.asarray(value) > 0)):
        told = " or ".join("a number" if not shape else f"numbers {shape}" for shape in shapes)
        raise ValueError(f"{name} must be {told} above 0, or a distribution, not {value!r}")
    return read_reals(**{name: value})[0]
