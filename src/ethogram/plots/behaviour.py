"""Plots of tables of behaviour: time budgets, usage and dwell times by level, durations of bouts, and transitions.

States are coloured in the order in which the table has them; those that no path has are left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ethogram.plots.axes import axes_or_new, default_title, draw_percentages, legend_beside
from ethogram.plots.colours import category_colours
from ethogram.plots.timeline_rows import SECONDS, readable

__all__ = ["bout_durations", "dwell_curves", "state_intervals", "transition_intervals"]

MOST_BARS = 25
"""Of the histogram of a state."""
WIDTH = 0.7
"""Of the states of one level, whose levels are 1 apart."""


def state_intervals(table: Any, ax: Any = None) -> Any:
    """Axes with mean and interval of every state: points beside each other by level, or curves over hours and days.

    Parameters
    ----------
    table : of `Fit.time_budget`, `Fit.usage` or `Fit.dwell_times`, of a difference or not.
    ax : axes to draw into.
    """
    if not {"mean", "lower", "upper"} <= {*getattr(table, "columns", ())} or "state" not in table.index.names:
        raise ValueError(
            "table has no mean, lower, upper and state: give one of fit.time_budget, usage or dwell_times"
        )
    axes = axes_or_new(ax, (7, 3.5))
    states = list(dict.fromkeys(table.index.get_level_values("state")))
    unit, values = _numbers(table[["mean", "lower", "upper"]])
    unit = unit if table["mean"].dtype.kind == "m" else table.attrs.get("unit", unit)
    by = [name for name in table.index.names if name != "state"]
    keys = table.index.droplevel("state") if by else np.zeros(len(table))
    levels = list(dict.fromkeys(keys))
    ordered = len(by) == 1 and len(levels) > 1 and by[0] in ("hour", "day", "month")
    places = np.array(levels if ordered else np.arange(len(levels)))
    for number, (state, colour) in enumerate(zip(states, category_colours(len(states)), strict=True)):
        rows = table.index.get_level_values("state") == state
        mean, lower, upper = values[rows].T
        if not np.nan_to_num(values[rows]).any():
            continue  # of an intent that the fit does not use
        x = places[[levels.index(key) for key in np.asarray(keys, object)[rows]]]
        if ordered:
            axes.plot(x, mean, color=colour, label=str(state))
            axes.fill_between(x, lower, upper, color=colour, alpha=0.25, linewidth=0)
            continue
        x = x + WIDTH * ((number + 0.5) / len(states) - 0.5)
        errors = (mean - lower, upper - mean)
        axes.errorbar(x, mean, np.nan_to_num(errors), fmt="o", color=colour, capsize=2, label=str(state))
    if not ordered:
        titles = [", ".join(map(str, each if isinstance(each, tuple) else (each,))) for each in levels]
        turned: dict[str, Any] = {"rotation": 40, "ha": "right"} if sum(map(len, titles)) > 30 else {}
        axes.set_xticks(places, titles if by else [""] * len(levels), **turned)
    axes.set_xlabel(", ".join(by))
    axes.set_ylabel(f"duration ({unit})" if unit else "share")
    if np.nanmin(values) < 0:
        axes.axhline(0, color="0.6", linewidth=1)
    else:
        axes.set_ylim(0, None)
    legend_beside(axes, "state")
    return axes


def _numbers(table: Any) -> tuple[str, np.ndarray]:
    """Values as floats, in a readable unit where they are durations, and that unit, or none."""
    if table.dtypes.iloc[0].kind != "m":
        shares = float(np.nanmax(table.to_numpy(float))) <= 1 + 1e-9
        return ("" if shares else "frames or units of time"), table.to_numpy(float)
    seconds = np.stack([table[name].dt.total_seconds() for name in table], axis=1)
    unit = readable(np.nanmax(np.abs(seconds)), 2)
    return unit, seconds / SECONDS[unit]


def bout_durations(bouts: Any, ax: Any = None) -> Any:
    """Axes with the share of bouts of each state that last longer than a duration, on a logarithmic axis.

    Bouts whose end a gap or the end of the recording cuts off count until then (Kaplan, Meier 1958); those whose start
    is cut off are left out, since nobody knows how long they had lasted.

    Parameters
    ----------
    bouts : of `Fit.bouts`.
    ax : axes to draw into.
    """
    from scipy.stats import CensoredData, ecdf

    if not {"state", "duration", "cut"} <= {*getattr(bouts, "columns", ())}:
        raise ValueError("bouts has no state, duration and cut: give the table of fit.bouts")
    axes = axes_or_new(ax, (6, 3.5))
    whole = bouts[~bouts["cut"].isin(["start", "both"])]
    if whole.empty:
        raise ValueError("bouts has none whose start was recorded")
    unit, durations = _numbers(whole[["duration"]])
    states = list(bouts["state"].cat.categories)
    for state, colour in zip(states, category_colours(len(states)), strict=True):
        rows = (whole["state"] == state).to_numpy()
        ended = (whole["cut"] == "").to_numpy()
        if not (rows & ended).any():
            continue
        data = CensoredData(durations[rows & ended, 0], right=durations[rows & ~ended, 0])
        curve = ecdf(data).sf
        label = f"{state} ({int(rows.sum())})"
        axes.step(curve.quantiles, curve.probabilities, where="post", color=colour, label=label)
    axes.set(xscale="log", ylim=(0, 1), ylabel="share that lasts longer")
    axes.set_xlabel(f"duration ({unit or 'units of time, or frames'})")
    axes.xaxis.set_major_formatter("{x:g}")
    legend_beside(axes, "state (bouts)")
    default_title(axes, "durations of bouts")
    return axes


def dwell_curves(figure: Any, table: Any) -> None:
    """One panel per state: a histogram of its whole bouts, and the fitted probability of each dwell time with its band.

    Parameters
    ----------
    figure : an empty one.
    table : of `Fit.dwell_distribution`.
    """
    states = list(dict.fromkeys(table.index.get_level_values("state")))
    panels = figure.subplots(1, len(states), squeeze=False)[0]
    for axes, state, colour in zip(panels, states, category_colours(len(states)), strict=True):
        own = table.loc[state]
        steps = own.index.to_numpy()
        width = -(-len(steps) // MOST_BARS)
        starts = np.arange(0, len(steps), width)
        shares = np.add.reduceat(own["observed"].to_numpy(), starts) / width
        axes.bar(starts + 0.5, shares, width, align="edge", color="0.8", label=f"{own['bouts'].sum()} bouts")
        axes.fill_between(steps, own["lower"], own["upper"], color=colour, alpha=0.3, linewidth=0)
        axes.plot(steps, own["mean"], color=colour, label="fitted")
        axes.set(title=str(state), xlabel="dwell time (frames)", ylim=(0, None))
        axes.legend(frameon=False, fontsize="small")
    panels[0].set_ylabel("probability")


def transition_intervals(table: Any, ax: Any = None) -> Any:
    """Axes with the mean and interval of every transition probability, in percent, as a matrix.

    Parameters
    ----------
    table : of `Fit.transitions`, without `by`.
    ax : axes to draw into.
    """
    if list(getattr(table.index, "names", ())) != ["state", "next_state"]:
        raise ValueError(
            f"table has the index {list(table.index.names)}: give one of fit.transitions without by"
        )
    axes = axes_or_new(ax, (5.5, 4.5))
    used = {each for pair in table.index[table["mean"] > 0] for each in pair}
    names = [each for each in dict.fromkeys(each for pair in table.index for each in pair) if each in used]
    columns = [
        table[column].unstack().reindex(index=names, columns=names) for column in ("mean", "lower", "upper")
    ]
    draw_percentages(axes, *(column.to_numpy() for column in columns))
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.set(xlabel="next state", ylabel="state")
    default_title(axes, "transitions, %: mean and interval")
    return axes
