"""A timeline of roles or intents that a reader zooms into, by plotly."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ethogram.models.data.trajectories import Trajectories, valid_steps
from ethogram.plots.colours import category_colours
from ethogram.plots.timeline_rows import read_labels, time_axis, timeline_rows

__all__ = ["zoomable_timeline"]


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

    Raises
    ------
    ValueError
        If the shapes are inconsistent.
    ImportError
        If plotly is not installed.
    """
    try:
        import plotly.graph_objects as graph
    except ImportError as error:
        raise ImportError("zoomable_timeline needs plotly: pip install 'ethogram[interactive]'") from error
    shown, chance = read_labels(labels, probability, data, "labels")
    places = timeline_rows(data)
    scale, unit = time_axis(data)
    sequence, time = np.nonzero(np.asarray(valid_steps(data)) & (shown >= 0))
    held = shown[sequence, time]
    total = int((places.first + np.asarray(data.lengths)).max())
    image = np.full((len(places.names), total), np.nan)
    certainty = np.full(image.shape, np.nan)
    at = places.row[sequence], places.first[sequence] + time
    image[at], certainty[at] = held, chance[sequence, time, held]
    count = chance.shape[-1]
    colours = [f"rgb({','.join(str(round(255 * part)) for part in rgb)})" for rgb in category_colours(count)]
    edges = np.linspace(0, 1, count + 1)
    heat = graph.Heatmap(
        z=image,
        x=np.arange(total) * scale,
        y=list(places.names),
        customdata=certainty,
        zmin=-0.5,
        zmax=count - 0.5,
        colorscale=[
            [edge, colour]
            for low, high, colour in zip(edges[:-1], edges[1:], colours, strict=True)
            for edge in (low, high)
        ],
        colorbar={"title": {"text": name}, "tickvals": list(range(count))},
        hovertemplate=f"%{{y}}, time %{{x:.6g}}<br>{name} %{{z}}, probability %{{customdata:.3f}}<extra></extra>",
        hoverongaps=False,
    )
    figure = graph.Figure(heat)
    figure.update_layout(
        xaxis={"title": {"text": f"time ({unit})"}},
        yaxis={"autorange": "reversed", "type": "category", "fixedrange": True},
        height=120 + 32 * len(places.names),
        template="simple_white",
    )
    return figure
