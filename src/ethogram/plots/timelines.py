"""Timelines of roles or intents, one row per agent: by Matplotlib, and by plotly for a reader who zooms in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ethogram.models.data.trajectories import Trajectories
from ethogram.plots.axes import axes_or_new, default_title, legend_below, points_of
from ethogram.plots.colours import category_colours
from ethogram.plots.timeline_rows import Timeline, read_timeline

__all__ = ["role_timelines", "zoomable_timeline"]

MOST_COLUMNS, MOST_ZOOMED = 1500, 10_000
"""Columns of a new figure, two per point, and of one that zooms."""
TICK, MOST_COVERED = 0.9, 0.1
"""Width of a tick at a change in points, and the share of a row that ticks may cover."""
APART = 0.015
"""Distance of panels, as a share of all."""
LONG_END = 12
"""Letters that all names of rows end in, from which on they are left out."""


def role_timelines(
    path: ArrayLike,
    probability: ArrayLike,
    data: Trajectories,
    ax: Any = None,
    *,
    window: Any = None,
    agents: Any = None,
    by: Any = None,
    names: Sequence[str] | None = None,
    name: str = "role",
) -> Any:
    """Axes with one row per agent on a common axis of time: role by colour, its probability by opacity.

    The axis is of dates in their time zone where ``data.times`` are dates, else of time since the start, or of frames
    where their rate is unknown. Sequences of an agent stand on its row at their own times; where they would overlap,
    one after the other, and the label of the axis says so; so do short ones that are far apart, such as sessions of ten
    minutes on several days. Without agents every sequence has a row. Where agents occur in several groups, and in most
    of them, each group has a panel, side by side; where each is in one group, the rows of a group stand together, and
    its name on the right. Missing frames are blank. Where a column has several frames, it shows their most frequent
    role, and opacity is the mean probability of that role over the frames. Black ticks mark changes of role, unless
    they would cover a tenth of a row.

    Parameters
    ----------
    path : (sequence, time) roles, -1 beyond the length, as `infer_roles` gives them.
    probability : (sequence, time, role).
    data : the trajectories, with names, times or frame rate, and time unit.
    ax : axes to draw into.
    window : start and stop, as dates or their strings, as numbers in the unit of the times of the data (seconds of a
        video), whatever that of the axis, or as durations such as ``"5 min"``; all where None. Of sequences that stand
        end to end it is a window of each, in its own times.
    agents : the rows to show, from above: names of agents, or numbers of sequences; all where None.
    by : what sorts the rows: ``"group"`` or ``"subject"``; a role (its name), whose largest share stands above; or
        levels of your own, as of :meth:`ethogram.Fit.time_budget`: ``{"genotype": {"m1": "wt", "m2": "ko"}}``. By
        default the order of the labels.
    names : of the roles; their numbers where None.
    name : what the labels are.
    """
    from matplotlib.patches import Patch

    options: dict[str, Any] = {"window": window, "agents": agents, "by": by, "names": names}
    most = MOST_COLUMNS if ax is None else max(int(2 * points_of(ax)[0]), 100)
    found = read_timeline(path, probability, data, argument="path", most=most, **options)
    colours, rows = np.array(category_colours(len(found.names))), len(found.rows)
    axes = axes_or_new(ax, (11, min(1.6 + 0.28 * rows, 9)))
    width, height = points_of(axes)
    widths = np.array([panel.label.shape[1] * found.column for panel in found.panels])
    starts = np.cumsum(widths + APART * widths.sum()) - widths - APART * widths.sum()
    starts = starts if len(starts) > 1 else np.array([found.panels[0].first])
    changes = [_changes(panel.label) for panel in found.panels]
    busiest = max(each.sum(1).max() / length for each, length in zip(changes, widths, strict=True))
    for panel, start, length, change in zip(found.panels, starts, widths, changes, strict=True):
        image = np.concatenate([colours[panel.label], np.clip(panel.share, 0, 1)[..., None]], axis=-1)
        image[panel.label < 0] = 0
        extent = (start, start + length, rows - 0.5, -0.5)
        axes.imshow(image, aspect="auto", interpolation="nearest", extent=extent, zorder=1)
        if busiest * TICK <= MOST_COVERED * width / widths.sum():
            row, place = np.nonzero(change)
            at = start + (place + 1) * found.column
            axes.vlines(at, row - 0.45, row + 0.45, color="black", linewidth=TICK, zorder=3)
    low, high = found.limits or (starts[0], starts[-1] + widths[-1])
    axes.set(xlim=(low, high), ylim=(rows - 0.5, -0.5))
    axes.set_xlabel(found.axis, loc="center" if found.unit else "left")  # the year stands on the right
    axes.set_ylabel("sequence" if data.agent is None else "agent")
    levels = found.levels or [""] * rows
    edges = [at for at in range(1, rows) if levels[at] != levels[at - 1]]
    thin = min(1.5, 0.15 * height / rows)
    for edge in range(1, rows):
        axes.axhline(edge - 0.5, color="0.3" if edge in edges else "white", linewidth=thin, zorder=2)
    every = -(-rows * 11 // int(max(height, 11)))  # so that labels do not overlap
    axes.set_yticks(range(0, rows, every), labels=_without_common_end(found.rows)[::every], fontsize=8)
    if found.levels is not None:
        middle = [(low + high - 1) / 2 for low, high in itertools.pairwise([0, *edges, rows])]
        levels = _without_common_end(levels)
        beside = axes.secondary_yaxis("right")
        beside.set_yticks(middle, labels=[levels[at] for at in (0, *edges)], fontsize=8)
        beside.tick_params(length=0)
    _time_ticks(axes, found, starts, widths, width / (high - low))
    legend_below(axes, name, [Patch(color=colours[label], label=found.names[label]) for label in found.used])
    text = f"most probable {name}s; paler is less certain"
    if found.lasting is not None:
        text = f"most frequent {name} of each {found.lasting}; paler: a smaller share"
    default_title(axes, "; ".join([text, *found.left_out]))
    return axes


def _without_common_end(names: list[str]) -> list[str]:
    """Names without the end that all share, where it is long: files of a tracker end in the name of its network."""
    letters = zip(*(name[::-1] for name in names), strict=False)
    shared = len([*itertools.takewhile(lambda each: len(set(each)) == 1, letters)])
    long = LONG_END <= shared < min(map(len, names))
    return [f"{name[:-shared]}…" for name in names] if long else names


def _changes(label: np.ndarray) -> np.ndarray:
    """Whether (row, edge) the label changes from one recorded column to the next."""
    before, after = label[:, :-1], label[:, 1:]
    return (before != after) & (before >= 0) & (after >= 0)


def _time_ticks(axes: Any, found: Timeline, starts: np.ndarray, widths: np.ndarray, points: float) -> None:
    """Ticks of the axis of time, which has so many points per unit; panels have ticks and titles of their own."""
    from matplotlib import dates, ticker

    if found.unit is None:
        axes.xaxis_date(found.zone)
        most = max(int(np.ptp(axes.get_xlim()) * points / 50), 2)
        locator = dates.AutoDateLocator(found.zone, minticks=2, maxticks=most)
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator, found.zone))
    if len(found.panels) == 1:
        return
    places, titles, free = dict[float, str](), dict[float, str](), -np.inf
    for panel, start, length in zip(found.panels, starts, widths, strict=True):
        most, stop = int(length * points / 45), panel.first + length - 10 / points
        at = np.asarray(ticker.MaxNLocator(most).tick_values(panel.first, stop) if most else [])
        at = at[(at >= panel.first) & (at <= stop)]
        places |= {start + place - panel.first: f"{place:g}" for place in at}
        half = 3 * (max(map(len, panel.name.split("\n"))) + 1) / points
        if start + length / 2 - half >= free:
            titles[start + length / 2], free = panel.name, start + length / 2 + half
    axes.set_xticks(list(places), labels=list(places.values()), fontsize=8)
    above = axes.secondary_xaxis("top")
    above.set_xticks(list(titles), labels=list(titles.values()), fontsize=8)
    above.tick_params(length=0)


def zoomable_timeline(
    labels: ArrayLike,
    probability: ArrayLike,
    data: Trajectories,
    name: str = "role",
    *,
    window: Any = None,
    agents: Any = None,
    by: Any = None,
    names: Sequence[str] | None = None,
) -> Any:
    """A plotly figure with the rows, panels and axis of :func:`role_timelines`, the probability of a label on hover.

    Drag to zoom, double-click to go back; ``figure.write_html(path)`` makes a page of it. A column is a frame up to
    10 000 of them. Needs the extra ``ethogram[interactive]``.

    Parameters
    ----------
    labels : (sequence, time), -1 beyond the length, such as ``path`` of `infer_roles` or ``labels`` of `infer_intents`.
    probability : (sequence, time, label).
    data : the trajectories, with names, times or frame rate, and time unit.
    name : what the labels are.
    window, agents, by, names : as in :func:`role_timelines`.
    """
    import pandas

    try:
        import plotly.graph_objects as graph
        from plotly.subplots import make_subplots
    except ImportError as error:
        raise ImportError("zoomable_timeline needs plotly: pip install 'ethogram[interactive]'") from error
    options: dict[str, Any] = {"window": window, "agents": agents, "by": by, "names": names}
    found = read_timeline(labels, probability, data, argument="labels", most=MOST_ZOOMED, **options)
    count, panels = len(found.names), found.panels
    colours = [f"rgb({','.join(str(round(255 * part)) for part in rgb)})" for rgb in category_colours(count)]
    edges, titles = np.linspace(0, 1, count + 1), np.array(found.names)
    figure = make_subplots(
        cols=len(panels),
        shared_yaxes=True,
        column_widths=[panel.label.shape[1] for panel in panels],
        horizontal_spacing=APART,
        subplot_titles=[panel.name.replace("\n", "<br>") for panel in panels],
    )
    for number, panel in enumerate(panels, 1):
        inside, at = panel.label >= 0, panel.first + np.arange(panel.label.shape[1] + 1) * found.column
        if found.unit is None:  # plotly shows dates as they are on the clock of their zone
            dates = pandas.to_datetime(at, unit="D", utc=True).round("ms")
            at = dates.tz_convert(found.zone).tz_localize(None).to_numpy()
        heat = graph.Heatmap(
            z=np.where(inside, panel.label, np.nan),
            x=at,
            y=found.rows,
            text=np.where(inside, titles[panel.label], ""),
            customdata=np.where(inside, panel.share, np.nan),
            coloraxis="coloraxis",
            hovertemplate=f"%{{y}}, %{{x}}<br>{name} %{{text}}, probability %{{customdata:.3f}}<extra></extra>",
            hoverongaps=False,
        )
        figure.add_trace(heat, 1, number)
    figure.update_yaxes(autorange="reversed", type="category", fixedrange=True)
    figure.update_xaxes(title={"text": found.axis})
    scale = {
        "cmin": -0.5,
        "cmax": count - 0.5,
        "colorscale": [[edge, colours[at]] for at in range(count) for edge in edges[at : at + 2]],
        "colorbar": {"title": {"text": name}, "tickvals": list(range(count)), "ticktext": found.names},
    }
    figure.update_layout(coloraxis=scale, height=120 + 32 * len(found.rows), template="simple_white")
    return figure
