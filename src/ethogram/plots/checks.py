"""Plots of whether hidden states explain data: pseudo-residuals, and sampled paths beside those of the chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from ethogram.plots.axes import axes_or_new, default_title, draw_intervals, read_names
from ethogram.plots.colours import SERIES, series_colour

__all__ = ["path_check", "residual_autocorrelation", "residual_quantiles"]

LAGS = 20
MOST_POINTS = 500


def residual_quantiles(residuals: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Axes with quantiles of pseudo-residuals against those of a standard normal: on the line where the model is true.

    Parameters
    ----------
    residuals : (sequence, time, feature), NaN where missing, as `Fit.residuals` gives them.
    ax : axes to draw into.
    names : of the features.
    """
    axes, values = axes_or_new(ax, (4, 4)), np.asarray(residuals, float)
    for feature, label in enumerate(read_names(names, values.shape[-1])):
        known = np.sort(values[..., feature][~np.isnan(values[..., feature])])
        shares = (np.arange(len(known)) + 0.5) / len(known)
        shown = np.unique(np.linspace(0, len(known) - 1, MOST_POINTS).astype(int))
        look: dict[str, Any] = {"color": series_colour(feature), "markersize": 3, "label": label}
        axes.plot(ndtri(shares[shown]), known[shown], ".", **look)
    axes.axline((0, 0), slope=1, color="0.5", linewidth=1)
    axes.set(xlabel="standard normal quantile", ylabel="pseudo-residual")
    axes.legend(frameon=False, fontsize="small", markerscale=3)
    default_title(axes, "pseudo-residuals")
    return axes


def residual_autocorrelation(residuals: Any, ax: Any = None, *, names: Sequence[str] | None = None) -> Any:
    """Axes with the autocorrelation of pseudo-residuals; the band holds 95 % of those of independent ones.

    Parameters
    ----------
    residuals, ax, names : as of :func:`residual_quantiles`.
    """
    axes, values = axes_or_new(ax, (5, 4)), np.asarray(residuals, float)
    lags = np.arange(1, min(LAGS, values.shape[1] - 1) + 1)
    for feature, label in enumerate(read_names(names, values.shape[-1])):
        x = values[..., feature] - np.nanmean(values[..., feature])
        found = [np.nanmean(x[:, lag:] * x[:, :-lag]) / np.nanmean(x**2) for lag in lags]
        axes.plot(lags, found, ".-", color=series_colour(feature), label=label)
    number = np.sqrt((~np.isnan(values)).sum((0, 1)).min())
    axes.axhspan(-1.96 / number, 1.96 / number, color="0.85", zorder=0)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set(xlabel="lag (frames)", ylabel="autocorrelation")
    axes.legend(frameon=False, fontsize="small")
    default_title(axes, "autocorrelation of pseudo-residuals")
    return axes


def path_check(
    found: Any, made: Any, names: Sequence[str], ax: Any = None, *, quantity: str = "share"
) -> Any:
    """Axes with 90 % intervals of a number of each state: of paths from the posterior, and of those the chain makes.

    Parameters
    ----------
    found, made : (draw, state), NaN where a draw has none.
    names : of the states.
    ax : axes to draw into.
    quantity : what the numbers are.
    """
    axes, rows = axes_or_new(ax, (5, 4)), np.arange(len(names))[::-1].astype(float)
    for number, (values, label) in enumerate(((found, "data"), (made, "model"))):
        known = np.asarray(values, float)
        inside = ~np.isnan(known).any(0)
        draw_intervals(
            axes, rows[inside] + 0.12 - 0.24 * number, known[:, inside], SERIES[number], label=label
        )
    axes.set_yticks(rows, names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    axes.set_xlabel(quantity)
    axes.legend(frameon=False, fontsize="small")
    return axes
