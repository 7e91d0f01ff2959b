"""Timelines of roles or intents, one row per agent: by Matplotlib, and by plotly for a reader who zooms in."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from ethogram.models.data.trajectories import Trajectories, group_labels, valid_steps
from ethogram.plots.axes import axes_or_new, default_title, legend_beside
from ethogram.plots.colours import category_colours

__all__ = ["TimelineRows", "role_timelines", "timeline_rows", "zoomable_timeline"]


class TimelineRows(NamedTuple):
    """Places of sequences.

    Attributes
    ----------
    first : (sequence,) first frame of each on the common axis; those of a group start together.
    row : (sequence,) of its agent, or of the sequence where there are no agents.
    names : of the rows.
    """

    first: Int[np.ndarray, " sequence"]
    row: Int[np.ndarray, " sequence"]
    names: list[str]


def timeline_rows(data: Trajectories) -> TimelineRows:
    """Rows and first frames: one row per agent, with groups one after the other; else one row per sequence."""
    count, lengths = data.num_sequences, np.asarray(data.lengths)
    if data.agent is None:
        row, names = np.arange(count), [str(i) for i in range(count)]
    else:
        labels, row = np.unique(np.asarray(data.agent), return_inverse=True)
        known = data.metadata.agent_names
        names = [known[i] if known is not None and 0 <= i < len(known) else str(i) for i in labels]
    if data.group is None:
        block = np.zeros(count, int) if data.agent is None else np.arange(count)
    else:
        _, block = np.unique(group_labels(data), return_inverse=True)
    longest = np.zeros(block.max() + 1, int)
    np.maximum.at(longest, block, lengths)
    starts = np.concatenate([[0], np.cumsum(longest)[:-1]])
    return TimelineRows(starts[block], row, names)


class _Labels(NamedTuple):
    """Labels of steps at their places in a timeline; -1, and probability 0, where there is no step."""

    label: np.ndarray  # (row, frame)
    probability: np.ndarray  # (row, frame), of the label
    rows: TimelineRows
    num_labels: int
    frame: float  # length of one
    unit: str


def _read_labels(labels: ArrayLike, probability: ArrayLike, data: Trajectories, name: str) -> _Labels:
    """Labels (sequence, time) called `name`, with probabilities (sequence, time, label), at their places."""
    shown, every = np.asarray(labels), np.asarray(probability, float)
    if shown.shape != np.shape(data.observed) or every.shape[:-1] != shown.shape:
        raise ValueError(
            f"{name} has shape {shown.shape}, probability {every.shape}, the data {np.shape(data.observed)}: give "
            "(sequence, time) and (sequence, time, label) of these data"
        )
    rows, rate = timeline_rows(data), data.metadata.frame_rate
    sequence, time = np.nonzero(np.asarray(valid_steps(data)) & (shown >= 0))
    size = len(rows.names), int((rows.first + np.asarray(data.lengths)).max())
    at = rows.row[sequence], rows.first[sequence] + time
    label, certainty = np.full(size, -1), np.zeros(size)
    label[at] = shown[sequence, time]
    certainty[at] = every[sequence, time, label[at]]
    frame, unit = (
        (1.0, "frames") if rate is None else (1 / float(rate), data.metadata.time_unit or "time units")
    )
    return _Labels(label, certainty, rows, every.shape[-1], frame, unit)


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
    """
    from matplotlib.patches import Patch

    found = _read_labels(path, probability, data, "path")
    (first, rows, names), count = found.rows, found.label.shape[1]
    colours = np.array(category_colours(found.num_labels))
    axes = axes_or_new(ax, (10, 4))
    image = np.concatenate([colours[found.label], np.clip(found.probability, 0, 1)[..., None]], axis=-1)
    image[found.label < 0] = 0
    extent = (0, count * found.frame, len(names) - 0.5, -0.5)
    axes.imshow(image, aspect="auto", interpolation="nearest", extent=extent, zorder=1)
    roles, inside = np.asarray(path), np.asarray(valid_steps(data)) & (np.asarray(path) >= 0)
    changes = inside[:, 1:] & inside[:, :-1] & (roles[:, 1:] != roles[:, :-1])
    sequence, before = np.nonzero(changes)
    at = (first[sequence] + before + 1) * found.frame
    axes.vlines(at, rows[sequence] - 0.45, rows[sequence] + 0.45, color="black", linewidth=0.9, zorder=3)
    for edge in np.unique(first)[1:]:
        axes.axvline(edge * found.frame, color="white", linewidth=2.5, zorder=4)
    for edge in range(1, len(names)):
        axes.axhline(edge - 0.5, color="white", linewidth=2, zorder=2)
    axes.set_yticks(range(len(names)), labels=names)
    joined = "" if len(np.unique(first)) == 1 else ", groups concatenated"
    axes.set(xlabel=f"time ({found.unit}{joined})", ylabel="sequence" if data.agent is None else "agent")
    legend_beside(axes, "role", [Patch(color=colour, label=str(role)) for role, colour in enumerate(colours)])
    default_title(axes, "most probable roles; paler is less certain")
    return axes


def zoomable_timeline(
    labels: ArrayLike, probability: ArrayLike, data: Trajectories, name: str = "role"
) -> Any:
    """A plotly figure with one row per agent: the label of each step by colour, with its probability on hover.

    Drag to zoom, double-click to go back; ``figure.write_html(path)`` makes a page of it. Groups stand one after the
    other, as in :func:`role_timelines`. Needs the extra ``ethogram[interactive]``.

    Parameters
    ----------
    labels : (sequence, time), -1 beyond the length, such as ``path`` of `infer_roles` or ``labels`` of `infer_intents`.
    probability : (sequence, time, label).
    data : the trajectories, with names, frame rate and time unit.
    name : what the labels are.
    """
    try:
        import plotly.graph_objects as graph
    except ImportError as error:
        raise ImportError("zoomable_timeline needs plotly: pip install 'ethogram[interactive]'") from error
    found = _read_labels(labels, probability, data, "labels")
    count, names = found.num_labels, found.rows.names
    colours = [f"rgb({','.join(str(round(255 * part)) for part in rgb)})" for rgb in category_colours(count)]
    edges, inside = np.linspace(0, 1, count + 1), found.label >= 0
    heat = graph.Heatmap(
        z=np.where(inside, found.label, np.nan),
        x=np.arange(inside.shape[1]) * found.frame,
        y=list(names),
        customdata=np.where(inside, found.probability, np.nan),
        zmin=-0.5,
        zmax=count - 0.5,
        colorscale=[[edge, colours[at]] for at in range(count) for edge in edges[at : at + 2]],
        colorbar={"title": {"text": name}, "tickvals": list(range(count))},
        hovertemplate=f"%{{y}}, time %{{x:.6g}}<br>{name} %{{z}}, probability %{{customdata:.3f}}<extra></extra>",
        hoverongaps=False,
    )
    figure = graph.Figure(heat)
    figure.update_layout(
        xaxis={"title": {"text": f"time ({found.unit})"}},
        yaxis={"autorange": "reversed", "type": "category", "fixedrange": True},
        height=120 + 32 * len(names),
        template="simple_white",
    )
    return figure
