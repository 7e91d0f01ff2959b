"""Densities of single features in each role, over the histogram of the data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ethogram.models.data.angles import period_of
from ethogram.models.data.gaps import lacking
from ethogram.models.data.trajectories import Trajectories
from ethogram.plots.axes import axes_or_new, feature_label, legend_beside
from ethogram.plots.colours import category_colours

__all__ = ["role_marginals"]

POINTS = 400
MOST_POINTS = 1000
"""Of whole numbers."""


def role_marginals(
    posterior: Any, data: Trajectories, probability: Any, feature: int | str = 0, ax: Any = None
) -> Any:
    """Axes with the density of one feature in each role, weighted by the share of the role, over a histogram.

    The dashed line is the sum over roles, which should follow the histogram. Densities are at the posterior means of
    the parameters. Whole numbers have points in place of a curve.

    Parameters
    ----------
    posterior : of a role HMM whose emission sums out missing features, such as a `ProductEmission`.
    data : the trajectories.
    probability : (sequence, time, role), as `infer_roles` gives it.
    feature : number or name of the feature.
    ax : axes to draw into.

    Raises
    ------
    ValueError
        If there is no such feature, or the emission cannot sum out the others.
    """
    names = data.metadata.feature_names
    x = np.asarray(data.observations, float)
    place = names.index(feature) if isinstance(feature, str) and names and feature in names else feature
    if isinstance(place, str) or not 0 <= place < x.shape[-1]:
        raise ValueError(f"feature is {feature!r}: give a number below {x.shape[-1]}, or one of {names}")
    emission = posterior.model.emission
    if not emission.sums_out_missing:
        raise ValueError(
            f"a {type(emission).__name__} cannot sum out the other features: it has no marginals"
        )
    axes = axes_or_new(ax, (6, 4))
    seen = np.asarray(data.observed)
    seen = seen & ~lacking(np.asarray(data.observations), seen)[..., place]
    values = x[..., place][seen]
    if not values.size:
        raise ValueError(f"feature {feature!r} is missing in every frame: choose another one")
    whole = bool((values == np.floor(values)).all())
    angle = not whole and period_of(data.metadata, place) == 2 * np.pi
    if whole:
        step = max(1, round(np.ptp(values) / MOST_POINTS))
        points = np.arange(values.min(), values.max() + 1, step)
        edges = np.append(points, points[-1] + step) - 0.5 * step
    else:
        values = (values + np.pi) % (2 * np.pi) - np.pi if angle else values
        low, high = (-np.pi, np.pi) if angle else (float(values.min()), float(np.quantile(values, 0.995)))
        edges, points = np.linspace(low, high, 41), np.linspace(low, high, POINTS)
    axes.hist(values, edges, density=True, color="0.85", label="data")
    frames = np.full((len(points), 1, x.shape[-1]), np.nan)
    frames[:, 0, place] = points
    like = data._replace(
        observations=frames.swapaxes(0, 1),
        observed=np.ones((1, len(points)), bool),
        states=None,
        actions=None,
        lengths=np.array([len(points)]),
    )
    law = emission.distribution_of(posterior.mean(), like)
    log_prob = jax.jit(type(law).log_prob)  # compiled once for every kind of law
    density = np.exp(np.asarray(log_prob(law, frames.astype(jnp.result_type(float)))))
    share = np.asarray(probability, float)[seen].mean(axis=0)
    style: dict[str, Any] = {"marker": "o", "markersize": 3} if whole else {}
    for role, colour in enumerate(category_colours(len(share))):
        axes.plot(points, share[role] * density[:, role], color=colour, label=f"role {role}", **style)
    axes.plot(points, density @ share, color="black", linestyle="--", linewidth=1, label="all roles")
    highest = max(float(np.histogram(values, edges, density=True)[0].max()), 1e-12)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.4 * highest), ylabel="density")
    axes.set_xlabel(feature_label(data, place))
    legend_beside(axes, "")
    return axes
