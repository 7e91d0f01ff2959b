"""Plots of role models. Every function draws into Matplotlib axes, given (``ax=``) or new, and returns them.

Matplotlib is imported on the first call.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike

from ethogram.inference.draws import flat_draws
from ethogram.models.data.trajectories import Trajectories, valid_steps
from ethogram.models.families.exponential_family import PartlyKnown
from ethogram.plots.axes import axes_or_new, default_title, feature_label, legend_beside
from ethogram.plots.colours import SERIES, category_colours
from ethogram.plots.timeline_rows import read_labels, time_axis, timeline_rows

__all__ = [
    "elbo_traces",
    "pitch",
    "role_ellipses",
    "role_timelines",
    "score_curve",
    "transition_matrix",
]


def pitch(ax: Any = None, length: float | int = 104.9, width: float | int = 67.8) -> Any:
    """Axes with the lines of a football pitch, in metres about the centre spot.

    Parameters
    ----------
    ax : axes to draw into.
    length, width : of the pitch, in metres; the other markings have the sizes of the laws of the game.
    """
    from matplotlib.patches import Arc, Circle, Rectangle

    axes = axes_or_new(ax, (8, 5.5))
    line: dict[str, Any] = {"fill": False, "edgecolor": "0.75", "linewidth": 1, "zorder": 0}
    axes.add_patch(Rectangle((-length / 2, -width / 2), length, width, **line))
    axes.plot([0, 0], [-width / 2, width / 2], color="0.75", linewidth=1, zorder=0)
    axes.add_patch(Circle((0, 0), 9.15, **line))
    for side in (-1, 1):
        goal_line = side * length / 2
        for depth, breadth in ((16.5, 40.32), (5.5, 18.32)):
            left = min(goal_line, goal_line - side * depth)
            axes.add_patch(Rectangle((left, -breadth / 2), depth, breadth, **line))
        spot, angle = goal_line - side * 11, 180 if side > 0 else 0
        axes.plot(spot, 0, ".", color="0.75", markersize=3, zorder=0)
        half = np.degrees(np.arccos(5.5 / 9.15))
        axes.add_patch(
            Arc((spot, 0), 18.3, 18.3, angle=angle, theta1=-half, theta2=half, color="0.75", zorder=0)
        )
    axes.set(xlim=(-length / 2 - 2, length / 2 + 2), ylim=(-width / 2 - 2, width / 2 + 2), aspect="equal")
    axes.set(xlabel="x, m", ylabel="y, m")
    return axes


def role_ellipses(
    posterior: Any,
    ax: Any = None,
    *,
    draws: Any = None,
    deviations: float | int = 1.0,
    features: tuple[int, int] = (0, 1),
    data: Trajectories | None = None,
) -> Any:
    """Axes with the covariance ellipse of every role, and thin ellipses for draws from the posterior.

    The thick ellipse is that of the posterior mean of the role's mean and covariance; its semi-axes are `deviations`
    standard deviations. The scatter of the thin ones shows the posterior uncertainty.

    Parameters
    ----------
    posterior : with the sites ``mean`` and ``covariance``, such as that of a `RoleHMM` with Gaussian emissions.
    ax : axes to draw into, such as those of `pitch`; limits are kept where something is drawn already.
    draws : of ``posterior.sample``, one thin ellipse a role and draw; 20 are made where None.
    deviations : standard deviations of the semi-axes.
    features : indices of the two features.
    data : whose metadata have the names and units of the features, for the labels of the axes.

    Raises
    ------
    ValueError
        If the posterior has no means and covariances of at least two features.
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
    places = [(average["mean"], average["covariance"], {"linewidth": 2.0, "zorder": 4})]
    if draws is None:  # those of an export are made by NumPy, which compiles nothing
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
            width, height = 2 * deviations * np.sqrt(variances[::-1])
            angle = np.degrees(np.arctan2(directions[1, 1], directions[0, 1]))
            look = {"fill": False, "edgecolor": colours[role], **style}
            axes.add_patch(Ellipse(centre, width, height, angle=angle, **look))
    for role, centre in enumerate(np.asarray(average["mean"], float)[:, pick]):
        text = axes.text(*centre, str(role), color=colours[role], ha="center", va="center", zorder=5)
        text.set(fontsize=11, fontweight="bold", path_effects=[withStroke(linewidth=2.5, foreground="white")])
    if bare:
        axes.autoscale_view()
        axes.set_aspect("equal")
    if bare or data is not None:
        axes.set(xlabel=feature_label(data, features[0]), ylabel=feature_label(data, features[1]))
    default_title(axes, "roles: mean and covariance, posterior draws thin")
    return axes


def role_timelines(path: ArrayLike, probability: ArrayLike, data: Trajectories, ax: Any = None) -> Any:
    """Axes with one row per agent: role by colour, probability of the role by opacity.

    Groups are concatenated along the time axis, separated by gaps; a black tick marks a change of role in the
    most likely path. Without agents every sequence has its own row.

    Parameters
    ----------
    path : (sequence, time) roles, -1 beyond the length, as `infer_roles` gives them.
    probability : (sequence, time, role).
    data : the trajectories, with names, frame rate and time unit.
    ax : axes to draw into.

    Raises
    ------
    ValueError
        If the shapes are inconsistent.
    """
    from matplotlib.patches import Patch

    roles, chance = read_labels(path, probability, data, "path")
    axes = axes_or_new(ax, (10, 4))
    first, rows, names = timeline_rows(data)
    inside = np.asarray(valid_steps(data)) & (roles >= 0)
    sequence, time = np.nonzero(inside)
    colours = np.array(category_colours(chance.shape[-1]))
    total = int((first + np.asarray(data.lengths)).max())
    image = np.zeros((len(names), total, 4))
    held, opacity = roles[sequence, time], np.clip(chance[sequence, time, roles[sequence, time]], 0, 1)
    image[rows[sequence], first[sequence] + time] = np.column_stack([colours[held], opacity])
    scale, unit = time_axis(data)
    extent = (0, total * scale, len(names) - 0.5, -0.5)
    axes.imshow(image, aspect="auto", interpolation="nearest", extent=extent, zorder=1)
    swaps = inside[:, 1:] & inside[:, :-1] & (roles[:, 1:] != roles[:, :-1])
    where, before = np.nonzero(swaps)
    at = (first[where] + before + 1) * scale
    axes.vlines(at, rows[where] - 0.45, rows[where] + 0.45, color="black", linewidth=0.9, zorder=3)
    for edge in np.unique(first)[1:]:
        axes.axvline(edge * scale, color="white", linewidth=2.5, zorder=4)
    for edge in range(1, len(names)):
        axes.axhline(edge - 0.5, color="white", linewidth=2, zorder=2)
    axes.set_yticks(range(len(names)), labels=names)
    row = "sequence" if data.agent is None else "agent"
    joined = "" if len(np.unique(first)) == 1 else ", groups concatenated"
    axes.set(xlabel=f"time ({unit}{joined})", ylabel=row)
    legend_beside(axes, "role", [Patch(color=colour, label=str(role)) for role, colour in enumerate(colours)])
    default_title(axes, "most probable roles; paler is less certain")
    return axes


def transition_matrix(posterior: Any, ax: Any = None, *, mass: float | int = 0.9) -> Any:
    """Axes with the posterior mean and credible interval of every transition probability, in percent.

    The intervals are exact: the marginals of a Dirichlet row are Beta distributed.

    Parameters
    ----------
    posterior : with a block ``transition`` of Dirichlet rows.
    ax : axes to draw into.
    mass : probability of the equal-tailed intervals.

    Raises
    ------
    ValueError
        If there is no such block, or `mass` is not between 0 and 1.
    """
    if "transition" not in posterior.blocks:
        raise ValueError(f"posterior has the blocks {sorted(posterior.blocks)}: transition is missing")
    if not 0 < mass < 1:
        raise ValueError(f"mass is {mass}: give a probability between 0 and 1")
    axes = axes_or_new(ax, (6.5, 6))
    mean = np.asarray(posterior.mean()["transition"], float)
    low, high = (_transition_quantile(posterior, mean, end) for end in ((1 - mass) / 2, (1 + mass) / 2))
    picture = axes.imshow(100 * mean, cmap="Blues", vmin=0, vmax=100)
    style = {"ha": "center", "va": "center", "fontsize": 7 if len(mean) > 6 else 9}
    for (before, after), share in np.ndenumerate(mean):
        label = f"{100 * share:.0f}\n{100 * low[before, after]:.0f}–{100 * high[before, after]:.0f}"
        axes.text(after, before, label, color="white" if share > 0.6 else "black", **style)
    axes.set(xticks=range(len(mean)), yticks=range(len(mean)), xlabel="next role", ylabel="role")
    axes.set_title(f"transition probability per frame, %: mean and {100 * mass:.0f} % interval")
    axes.figure.colorbar(picture, ax=axes, label="transition probability, %", shrink=0.8)
    return axes


def _transition_quantile(posterior: Any, mean: np.ndarray, share: float) -> np.ndarray:
    """Quantile of every entry; known and forbidden entries at their value."""
    from scipy.stats import beta

    block = posterior.blocks["transition"]
    held = isinstance(block, PartlyKnown)
    counts = np.asarray((block.block if held else block).standard().concentration, float)
    rest = counts.sum(axis=-1, keepdims=True) - counts
    free = (counts > 0) & (rest > 0)
    if held:
        free &= ~np.asarray(block.known)[:, None]
    return np.where(free, beta.ppf(share, np.where(free, counts, 1), np.where(free, rest, 1)), mean)


def elbo_traces(result: Any, ax: Any = None) -> Any:
    """Axes with the ELBO trace of every restart, the best one highlighted.

    The vertical axis starts slightly below the worst final ELBO, to resolve the differences between restarts; early
    iterations mostly lie below it.

    Parameters
    ----------
    result : of `ConjugateSVI.run`.
    ax : axes to draw into.
    """
    axes = axes_or_new(ax, (6, 4))
    traces = np.asarray(result.restart_traces, float)
    best = int(np.argmax(result.restart_elbos))
    for number, trace in enumerate(traces):
        chosen = number == best
        axes.plot(
            result.evaluated,
            np.where(np.isfinite(trace), trace, np.nan),
            color=SERIES[2] if chosen else "0.6",
            linewidth=2 if chosen else 1,
            marker="." if len(trace) < 3 else None,
            zorder=3 if chosen else 2,
            label=f"best of {len(traces)}: {result.restart_elbos[best]:.1f}" if chosen else None,
        )
    final = np.asarray(result.restart_elbos, float)
    final = final[np.isfinite(final)]
    spread = final.max() - final.min() or max(abs(final.max()) * 0.01, 1.0)
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
