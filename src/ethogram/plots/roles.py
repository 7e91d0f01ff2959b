"""Plots of role models: emissions, traces of the ELBO, and scores by size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ethogram.inference.draws import flat_draws
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data.angles import period_of
from ethogram.models.data.gaps import lacking
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.quick_jit import quick_jit
from ethogram.plots.axes import axes_or_new, default_title, feature_label, legend_beside, read_names
from ethogram.plots.colours import SERIES, category_colours

__all__ = [
    "elbo_traces",
    "role_ellipses",
    "role_marginals",
    "score_curve",
]


POINTS = 400
MOST_POINTS = 1000
"""Of whole numbers."""
DRAWS = 50
LEAST_NATS, ROUNDINGS = 0.5, 64
"""Smallest range of an axis of ELBOs: nats, and units of the rounding error of the ELBO in single precision."""


def role_ellipses(
    posterior: Any,
    ax: Any = None,
    *,
    features: tuple[int, int] = (0, 1),
    data: Trajectories | None = None,
    names: Sequence[str] | None = None,
) -> Any:
    """Axes with the covariance ellipse of every role, and thin ellipses for draws from the posterior.

    The thick ellipse is that of the posterior mean of the role's mean and covariance; its semi-axes are standard
    deviations. The scatter of the thin ones, of twenty draws, shows the posterior uncertainty.

    Parameters
    ----------
    posterior : with the sites ``mean`` and ``covariance``, such as that of a `RoleHMM` with Gaussian emissions.
    ax : axes to draw into, such as those of `pitch`; limits are kept where something is drawn already.
    features : indices of the two features.
    data : whose metadata have the names and units of the features, for the labels of the axes; new axes have equal
        scales where both units are known and the same.
    names : of the roles; their numbers where None.
    """
    from matplotlib.patches import Ellipse
    from matplotlib.patheffects import withStroke

    bare = ax is None or not ax.has_data()
    average = posterior.mean()
    if not {"mean", "covariance"} <= set(average) or average["mean"].ndim != 2:
        raise ValueError(
            f"posterior has the sites {sorted(average)}: ellipses need the mean (role, feature) and the covariance"
        )
    if average["mean"].shape[1] <= max(features):
        raise ValueError(f"features is {features}, the posterior has {average['mean'].shape[1]} features")
    axes = axes_or_new(ax, (8, 5.5))
    pick = list(features)
    colours = category_colours(average["mean"].shape[0])
    titles = read_names(names, len(colours))
    places = [(average["mean"], average["covariance"], {"linewidth": 2.0, "zorder": 4})]
    # Those of an export are made by NumPy, which compiles nothing.
    draws = flat_draws(posterior.draws_for_export(jax.random.key(0), 20).sites)
    count = len(draws["mean"])
    draws = {name: site[np.arange(min(count, 20)) * count // 20] for name, site in draws.items()}
    thin = {"linewidth": 0.6, "alpha": 0.4, "zorder": 2}
    places += [(*pair, thin) for pair in zip(draws["mean"], draws["covariance"], strict=True)]
    for mean, covariance, style in places:
        centres = np.asarray(mean, float)[:, pick]
        matrices = np.asarray(covariance, float)[:, pick][:, :, pick]
        for role, (centre, matrix) in enumerate(zip(centres, matrices, strict=True)):
            variances, directions = np.linalg.eigh(matrix)
            width, height = 2 * np.sqrt(variances[::-1])
            angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
            look = {"fill": False, "edgecolor": colours[role], **style}
            axes.add_patch(Ellipse(centre, width, height, angle=angle, **look))
    for role, centre in enumerate(np.asarray(average["mean"], float)[:, pick]):
        text = axes.text(*centre, titles[role], color=colours[role], ha="center", va="center", zorder=5)
        text.set(fontsize=11, fontweight="bold", path_effects=[withStroke(linewidth=2.5, foreground="white")])
    if bare:
        axes.autoscale_view()
        units = None if data is None else data.metadata.feature_units
        if units is not None and units[pick[0]] and units[pick[0]] == units[pick[1]]:
            axes.set_aspect("equal", adjustable="datalim")
    if bare or data is not None:
        axes.set(xlabel=feature_label(data, features[0]), ylabel=feature_label(data, features[1]))
    default_title(axes, "roles: mean and covariance, posterior draws thin")
    return axes


def elbo_traces(result: Any, ax: Any = None) -> Any:
    """Axes with the ELBO trace of every restart, the best one highlighted.

    The vertical axis starts slightly below the worst final ELBO, to resolve the differences between restarts, and spans
    more than their rounding errors; early iterations mostly lie below it.

    Parameters
    ----------
    result : of `ConjugateSVI.run`.
    ax : axes to draw into.
    """
    axes = axes_or_new(ax, (6, 4))
    traces = np.asarray(result.restart_traces, float)
    best = int(np.argmax(result.restart_elbos))
    finite = np.where(np.isfinite(traces), traces, np.nan)
    marker = "." if traces.shape[1] < 3 else None
    label = f"best of {len(traces)}: {result.restart_elbos[best]:.1f}"
    axes.plot(result.evaluated, np.delete(finite, best, axis=0).T, color="0.6", linewidth=1, marker=marker)
    axes.plot(result.evaluated, finite[best], color=SERIES[2], linewidth=2, marker=marker, label=label)
    final = np.asarray(result.restart_elbos, float)
    final = final[np.isfinite(final)]
    rounding = ROUNDINGS * np.finfo(np.float32).eps * abs(final.max())
    spread = max(final.max() - final.min(), LEAST_NATS, rounding)
    axes.set_ylim(final.min() - 0.6 * spread, final.max() + 0.12 * spread)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="step", ylabel="ELBO (nats)")
    axes.legend(loc="lower right", fontsize=9)
    default_title(axes, "ELBO of the restarts")
    return axes


def score_curve(curve: Any, ax: Any = None, *, unit: str = "roles") -> Any:
    """Axes with the held-out log likelihood and the training ELBO over the number of roles, both in nats per step.

    Each is drawn as its difference to its own best value, which the legend names; bars are standard errors of the
    held-out difference. The dotted line is ``curve.selected_size``; its label says where that is the largest size
    offered. Horizontal lines are the held-out scores of
    ``curve.peers``, as differences to the best one of the curve: where one lies above 0, it predicts better.

    Parameters
    ----------
    curve : with `size`, `elbo`, `heldout`, `train_steps` and `peers`, as `ethogram.heldout_score_curve` gives it.
    ax : axes to draw into.
    unit : what the sizes count.
    """
    axes = axes_or_new(ax, (6, 4))
    order = np.argsort(np.asarray(curve.size))
    size = np.asarray(curve.size)[order]
    shown = (
        ("held-out log likelihood", curve.heldout, curve.heldout_se, "o-", SERIES[0]),
        ("training ELBO", np.asarray(curve.elbo) / curve.train_steps, None, "s--", SERIES[1]),
    )
    for label, values, error, style, colour in shown:
        values = np.asarray(values, float)[order]
        values = np.where(np.isfinite(values), values, np.nan)
        best = np.nanmax(values) if not np.isnan(values).all() else np.nan
        bars = None if error is None else np.asarray(error, float)[order]
        look: dict[str, Any] = {"fmt": style, "color": colour, "capsize": 3}
        axes.errorbar(size, values - best, bars, **look, label=f"{label}, best {best:.4g}")
    for number, (name, peer) in enumerate(curve.peers.items()):
        place = peer.heldout - np.max(curve.heldout)
        if np.isfinite(place):
            label, dashes = f"{name}, {peer.heldout:.4g}", (0, (2 + 2 * number, 2))
            axes.axhline(place, color="0.3", linestyle=dashes, linewidth=1, label=label)
    selected = (
        "the largest offered: the score still rises" if curve.caution else "selected by one standard error"
    )
    axes.axvline(curve.selected_size, color="0.5", linestyle=":", label=selected)
    axes.legend(loc="best", fontsize=8)
    axes.set_xticks(size)
    axes.set(xlabel=f"number of {unit}", ylabel="difference to the best (nats per step)")
    default_title(axes, "scores by size of the model")
    return axes


@quick_jit
def _log_densities(emission: Any, draws: Any, like: Trajectories, values: Any) -> Any:
    """Log densities (draw, value, role) of values at draws of the parameters."""
    return jax.vmap(lambda draw: emission.distribution(draw, like).log_prob(values))(draws)


def role_marginals(
    posterior: Any,
    data: Trajectories,
    probability: Any,
    feature: int | str = 0,
    ax: Any = None,
    *,
    names: Sequence[str] | None = None,
) -> Any:
    """Axes with the density of one feature in each role, weighted by the share of the role, over a histogram.

    The dashed line is the sum over roles, which should follow the histogram. Densities are at the posterior means of
    the parameters, of sampled posteriors averages over fifty draws. Whole numbers have points in place of a curve.

    Parameters
    ----------
    posterior : of a role HMM whose emission sums out missing features, such as a `ProductEmission`.
    data : the trajectories.
    probability : (sequence, time, role), as `infer_roles` gives it.
    feature : number or name of the feature.
    ax : axes to draw into.
    names : of the roles; their numbers where None.
    """
    model = getattr(posterior, "model", posterior)
    if not hasattr(model, "emission"):
        raise TypeError(
            f"posterior is of a {type(model).__name__}, which has no emission: give that of a RoleHMM"
        )
    if model.emission.order:
        raise ValueError(
            f"a {type(model.emission).__name__} cannot sum out the other features: it has no marginals"
        )
    if data.observations is None:
        raise ValueError("data have no observations: give those of the fit")
    features = data.metadata.feature_names
    x = np.asarray(data.observations, float)
    place = (
        features.index(feature) if isinstance(feature, str) and features and feature in features else feature
    )
    if isinstance(place, str) or not 0 <= place < x.shape[-1]:
        raise ValueError(f"feature is {feature!r}: give a number below {x.shape[-1]}, or one of {features}")
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
    observed, lengths = np.ones((1, len(points)), bool), np.array([len(points)])
    like = data._replace(observations=frames.swapaxes(0, 1), observed=observed, lengths=lengths)
    like = like._replace(states=None, actions=None)
    if isinstance(posterior, SampledPosterior):  # means over draws of angles would mean nothing
        draws = posterior.sample(jax.random.key(0), DRAWS)
    else:
        draws = jax.tree.map(lambda site: np.asarray(site)[None], posterior.mean())
    frames = frames.astype(jnp.result_type(float))
    density = np.exp(np.asarray(_log_densities(model.emission, draws, like, frames))).mean(0)
    share = np.asarray(probability, float)[seen].mean(axis=0)
    style: dict[str, Any] = {"marker": "o", "markersize": 3} if whole else {}
    named = [f"role {role}" for role in range(len(share))] if names is None else read_names(names, len(share))
    for role, colour in enumerate(category_colours(len(share))):
        axes.plot(points, share[role] * density[:, role], color=colour, label=named[role], **style)
    axes.plot(points, density @ share, color="black", linestyle="--", linewidth=1, label="all roles")
    highest = max(float(np.histogram(values, edges, density=True)[0].max()), 1e-12)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.4 * highest), ylabel="density")
    axes.set_xlabel(feature_label(data, place))
    legend_beside(axes, "")
    return axes
