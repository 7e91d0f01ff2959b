"""What a GP-IRL model is given: checks of its features, inducing points and priors, and their defaults."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import Array
from numpyro.distributions import constraints

from ethogram.models.arguments import (
    is_concrete,
    read_array,
    read_features,
    read_reals,
    require_one_of,
    require_reals,
    warn_user,
)
from ethogram.models.mdps.mdp import MDP
from ethogram.models.memory_bound import most_bytes_now
from ethogram.models.rewards.inducing_points import representative_points
from ethogram.models.rewards.priors import SquaredHalfCauchy, shrinkage_scale

__all__ = [
    "FEW_FEATURES", "default_relevance_prior", "read_conditional", "read_features_of", "read_inducing", "read_prior",
    "require_room_for_rewards", "warn_of_constant_features",
]  # fmt: skip

CONDITIONALS = ("full", "independent", "none")
DIRECT_AT_MOST, FULL_AT_MOST = 500, 2000
"""Numbers of points up to which no inducing points, and the full conditional covariance, are the defaults."""

FEW_FEATURES = 3
"""Number of features up to which their relevances have log-normal priors."""

POSITIVE = (constraints.positive, constraints.nonnegative)

TABLES = 6
"""Matrices (point, point), or (point, inducing), that a fit holds at once: they may take twice what one array may."""


def read_features_of(mdp: MDP, features: Any) -> Any:
    """Checked features (state, feature) or (state, action, feature); by default those of the MDP."""
    if features is None and mdp.features is None:
        raise ValueError("features is None, and mdp has none: give features (state, feature)")
    checked = read_features("features", mdp.features if features is None else features)
    lead = (mdp.num_states, mdp.num_actions)
    if checked.shape[:-1] not in (lead[:1], lead) or not checked.shape[-1]:
        raise ValueError(
            f"features has shape {checked.shape}, not (state, feature), which is ({lead[0]}, ...), or (state, action, "
            f"feature), which is ({lead[0]}, {lead[1]}, ...)"
        )
    return checked


def warn_of_constant_features(features: Array) -> None:
    """Warn where features (..., feature) of several points do not differ; those that are traced are not read."""
    if not is_concrete(features):
        return
    flat = np.asarray(features).reshape(-1, features.shape[-1])
    same = np.flatnonzero(np.ptp(flat, axis=0) == 0)
    if len(same) and len(flat) > 1:
        warn_user(
            f"{len(same)} features are constant, the first of them features[..., {same[0]}]: their relevances are not "
            "identified, and their posterior is the prior"
        )


def read_conditional(conditional: str | None, inducing: Any, num_points: int) -> str:
    """Checked kind of the covariance given inducing points; ``"none"`` where there are none."""
    if conditional is None:
        if inducing is None and num_points <= DIRECT_AT_MOST:
            return "none"
        return "full" if num_points <= FULL_AT_MOST else "independent"
    require_one_of("conditional", conditional, CONDITIONALS)
    if conditional == "none" and inducing is not None:
        raise ValueError('inducing is given, but conditional is "none": leave one of them out')
    return conditional


def read_inducing(inducing: Any, points: Array) -> Any:
    """Checked numbers of points (inducing,), which must be unique.

    By default those that represent the features of all `points` (point, feature).
    """
    num_points = len(points)
    if inducing is None and is_concrete(points):
        inducing = representative_points(np.asarray(points))
    if inducing is None:
        raise ValueError(
            f"inducing is None, and the features of {num_points} points are traced: pass numbers of points, from "
            "representative_points or select_inducing_points"
        )
    chosen = inducing if isinstance(inducing, Array) else read_array("inducing", inducing)
    if not jnp.issubdtype(chosen.dtype, jnp.integer) or chosen.ndim != 1 or not len(chosen):
        raise TypeError(
            f"inducing is {chosen.dtype} {chosen.shape}: give integers (inducing,), numbers of points"
        )
    if is_concrete(chosen):
        found, counts = np.unique(np.asarray(chosen), return_counts=True)
        if found[0] < 0 or found[-1] >= num_points:
            wrong = found[0] if found[0] < 0 else found[-1]
            raise ValueError(
                f"inducing has {wrong}, outside the points 0..{num_points - 1}: give numbers of points"
            )
        if (counts > 1).any():
            raise ValueError(f"inducing must be unique points; {found[counts > 1][0]} appears twice")
    return jnp.asarray(chosen)


def default_relevance_prior(points: Array) -> dist.Distribution:
    """Prior of the relevances of features (point, feature): log-normal for few, sparse for more."""
    if points.shape[-1] <= FEW_FEATURES:
        return dist.LogNormal(0.0, 1.0)
    return SquaredHalfCauchy(shrinkage_scale(points))


def read_prior(name: str, value: Any, shapes: tuple[tuple[int, ...], ...]) -> Any:
    """A checked scalar distribution on the positive reals, not of noise; or numbers above 0 of one of the shapes."""
    if isinstance(value, dist.Distribution):
        if name == "noise":
            raise TypeError("noise is a distribution: give a number")
        if value.batch_shape != () or value.event_shape != ():
            raise ValueError(f"{name} has batch shape {value.batch_shape}: give a scalar distribution")
        if not any(value.support is one or value.support == one for one in POSITIVE):
            raise ValueError(
                f"{name} is {type(value).__name__} with support {value.support}: give a distribution on the positive "
                "reals, such as LogNormal, Gamma or HalfNormal"
            )
        return value
    require_reals(name, value)
    if np.shape(value) not in shapes or (is_concrete(value) and not np.all(np.asarray(value) > 0)):
        allowed = " or ".join("a number" if not shape else f"numbers {shape}" for shape in shapes)
        raise ValueError(f"{name} must be {allowed} above 0, or a distribution, not {value!r}")
    return read_reals(**{name: value})[0]


def require_room_for_rewards(num_points: int, num_inducing: int | None) -> None:
    """Raise ValueError where covariances take too much memory: of all points, or only with the inducing points."""
    size = TABLES * num_points * (num_inducing or num_points) * 8
    if size > (most := 2 * most_bytes_now()):
        fix = "fewer inducing points" if num_inducing else 'conditional="independent"'
        raise ValueError(
            f"features has {num_points} points: their covariances, Cholesky factors and Hessians take {size} bytes, "
            f"more than {most}. Pass {fix}, aggregate states, or fit a linear reward by fit_max_entropy, which "
            "takes sparse MDPs of any size; ethogram.memory_bound(most_bytes=...) raises the bound"
        )
