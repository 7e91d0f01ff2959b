"""Tables of Movebank: positions of tagged animals, with marks of outliers.

Movebank attribute dictionary: ``visible`` is false where a row is marked as an outlier by an algorithm, by a person or
at import, unless a person marked it as valid.

Snyder (1987), "Map projections: a working manual", chapter 25: the azimuthal equidistant projection of the sphere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.angles import great_circle, heading
from ethogram.models.data.columns import Columns, as_names
from ethogram.models.data.labels import label_texts
from ethogram.models.data.metadata import ColumnName, Metadata
from ethogram.models.data.table_kinds import NULLS
from ethogram.models.data.tables import file_rules, read_table
from ethogram.models.data.trajectories import Label, Trajectories, check

__all__ = ["project", "read_movebank"]

ANIMALS = ("individual-local-identifier", "individual-id", "tag-local-identifier", "tag-id")
MARKS = ("algorithm-marked-outlier", "import-marked-outlier", "manually-marked-outlier")


def read_movebank(
    table: Any,
    *,
    step: Any,
    snap: bool | float | int = False,
    individuals: Sequence[Any] | None = None,
    metres: bool = False,
    features: ColumnName | Sequence[ColumnName] = (),
    agent: Label = None,
    group: Label = None,
    subject: Label = None,
    duplicates: str = "error",
    max_speed: float | int | None = None,
    time_zone: str = "UTC",
    covariates: ColumnName | Iterable[ColumnName] | None = None,
    missing_covariates: str = "error",
) -> Trajectories:
    """Trajectories of tables of Movebank: one sequence per animal, from its first position to its last.

    Features are ``longitude`` and ``latitude`` in degrees, or with `metres` east and north of the mean position, and
    those that are asked for. Rows without a position, or marked as outliers, are as if they were not there: times
    without another row are missing frames. Rows without an animal, and animals without a position, are left out.
    Warnings count marked rows and rows without an animal, and name such animals.

    Parameters
    ----------
    table : path of the CSV file, a pattern of paths or a list of these, or such a table of any kind. Messages count
        its rows as it was given, from 0.
    step : time from one frame to the next, such as ``"1h"``.
    snap : True moves every time to its nearest frame, a number only those off by at most this share of a step; see
        `Trajectories.from_table`. Fixes are seldom on time: ``snap=True`` with the programmed step is common.
    individuals : which to read; all by default. Rows before and after deployment, without an animal, are left out.
    metres : project to metres, by the azimuthal equidistant projection about the mean position. Distances are true to
        one in a thousand within about 300 km of it.
    features : further columns of numbers, such as ``"external-temperature"``, to be kept as features.
    agent, group, subject : columns, or read from the names of files, as in `Trajectories.from_table`. Agents are by
        default the animals of the first column that Movebank has for them.
    duplicates, max_speed : as in `Trajectories.from_table`, speeds in metres per second.
    covariates, missing_covariates : further columns, as in `Trajectories.from_table`.
    time_zone : that of dates and hours in tables and figures, such as ``"Africa/Nairobi"``. Movebank has its times in
        UTC, and hours of the day are those of UTC by default.
    """
    try:
        ZoneInfo(time_zone)
    except (KeyError, ValueError):
        raise ValueError(f"time_zone is {time_zone!r}: give a name such as 'Africa/Nairobi'") from None
    rules, labels = file_rules({"agent": agent, "group": group, "subject": subject})
    columns = Columns(
        table,
        lambda name: NULLS if _spelling(name) in ANIMALS or name in labels.values() else None,
        rules=rules,
    )
    spelled = {_spelling(name): name for name in columns.names}

    def column(name: str) -> Any:
        return columns[spelled[name]]

    for name in ("timestamp", "location-long", "location-lat"):
        if name not in spelled:
            raise ValueError(f"table has no column {name!r}: its columns are {columns.names}")
    named = (spelled[name] for name in ANIMALS if name in spelled and not column(name).null.all())
    animal = next(named, None) if labels["agent"] is None else labels["agent"]
    if animal is None:
        raise ValueError(
            f"table has none of the columns {', '.join(ANIMALS)}: it does not say which animal a row is of; name a "
            'column as agent=, or pass agent="file" where each has its own file'
        )
    found = columns[animal]
    names = np.zeros(columns.num_rows, object)
    names[~found.null] = label_texts(found.values[~found.null], f"column {animal!r}")
    names = np.where(found.null, "", names).astype(str)
    kept = names != ""
    asked = None if individuals is None else [str(name) for name in individuals]
    for name in asked or ():
        if name not in names[kept]:
            raise ValueError(f"individuals has {name!r}: the table has {', '.join(np.unique(names[kept]))}")
    if (~kept).any():
        warn_user(f"{int((~kept).sum())} rows without an animal were left out: before or after deployment")
    if asked is not None:
        kept &= np.isin(names, asked)
    if not kept.any():
        raise ValueError("table has no row of an animal: it needs at least one")
    times = columns.times(spelled["timestamp"]).values
    further = [spelled.get(_spelling(name), name) for name in as_names(features)]
    places = [spelled["location-long"], spelled["location-lat"]]
    values, null = columns.features([*places, *further], np.arange(columns.num_rows))
    values = np.where(null, np.nan, values.astype(float))
    degrees = values[:, :2]
    marked = _marked(spelled, column) & kept
    degrees[marked] = np.nan
    if marked.any():
        warn_user(f"{int(marked.sum())} rows that are marked as outliers were taken as missing")
    beyond = (abs(degrees) > (180, 90)).any(axis=1) & kept
    if beyond.any():
        raise ValueError(
            f"row {int(beyond.argmax())} has the position {degrees[beyond.argmax()].tolist()}: expected degrees, "
            "longitude within 180 and latitude within 90"
        )
    located = kept & ~np.isnan(degrees).any(axis=1)
    if not located.any():
        raise ValueError("table has no row of an animal with a position: it needs at least one")
    lost = np.setdiff1d(names[kept], names[located])
    if lost.size:
        warn_user(f"animals without a position were left out: {', '.join(lost)}")
    order = np.flatnonzero(located)[np.argsort(times[located], kind="stable")]
    unit, positions = "degrees", ["longitude", "latitude"]
    if metres:
        degrees[located] = project(degrees[located])
        unit, positions = "m", ["east", "north"]
    time, names_of_features = str(spelled["timestamp"]), [*positions, *map(str, further)]
    rows = {"animal": names[order], time: times[order]}
    rows |= dict(zip(names_of_features, values[order].T, strict=True))
    others = {field: name for field, name in labels.items() if field != "agent" and name is not None}
    for field, name in others.items():
        label, absent = columns[name].take(order)
        rows[field] = np.where(absent, np.array(None), label.astype(object))
    moving = [spelled.get(_spelling(name), name) for name in as_names(covariates)]
    for name in moving:
        value, absent = columns[name].take(order)
        rows[str(name)] = np.where(absent, np.array(None), value.astype(object))
    read = read_table(
        rows,
        "animal",
        time,
        names_of_features,
        dict.fromkeys(("states", "actions", "stay")),
        {"agent": "animal", "group": None, "subject": None} | {field: field for field in others},
        step,
        Metadata(feature_units=[unit, unit, *[""] * len(further)], name="Movebank"),
        missing="nan",
        snap=snap,
        called=lambda row: columns.row(order[row]),
        duplicates=duplicates,
        max_speed=max_speed,
        covariates=list(map(str, moving)) if covariates is not None else None,
        missing_covariates=missing_covariates,
    )
    zone = time_zone if read["metadata"].time_kind == "date" else None
    return check(Trajectories(**read | {"metadata": dataclasses.replace(read["metadata"], time_zone=zone)}))


def _spelling(name: Any) -> str:
    """Name of a column as Movebank writes it, with hyphens."""
    return str(name).replace("_", "-").replace(".", "-").replace(":", "-").lower()


def _marked(spelled: dict[str, Any], column: Any) -> np.ndarray:
    """Rows that Movebank, or a person, marked as outliers."""

    def true(name: str) -> np.ndarray:
        values, null = column(name)
        return ~null & np.isin(np.char.lower(np.char.strip(values.astype(str))), ("true", "1", "1.0"))

    if "visible" in spelled:
        return ~true("visible") & ~column("visible").null
    marks = [true(name) for name in MARKS if name in spelled]
    if not marks:
        return np.zeros(len(column("timestamp").null), bool)
    valid = true("manually-marked-valid") if "manually-marked-valid" in spelled else False
    return np.any(marks, axis=0) & ~valid


def project(degrees: np.ndarray) -> np.ndarray:
    """Metres (row, east and north) of degrees (row, longitude and latitude) about their mean position.

    Distances and directions from the mean position are those on the sphere. NaN stays NaN.
    """
    longitude, latitude = np.radians(np.asarray(degrees, float)).T
    there = np.stack(
        [np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)]
    )
    if not np.isfinite(there).any():
        return np.full(np.shape(degrees), np.nan)
    mean = np.nanmean(there, axis=1)  # also across the date line
    centre = np.arctan2(mean[1], mean[0]), np.arctan2(mean[2], np.hypot(mean[0], mean[1]))
    metres = 1000 * great_circle(np.rad2deg(centre), degrees)
    direction = heading(*centre, longitude, latitude)
    return metres[:, None] * np.stack([np.cos(direction), np.sin(direction)], axis=1)
