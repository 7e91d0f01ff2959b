"""Files of DeepLabCut: predictions of a video, of one animal or several, as CSV or HDF5.

Both hold one row per frame, below three lines of names: scorer, body part, and coordinate (x, y, likelihood; or x, y, z
of triangulated poses). With several animals a line of individuals stands after the scorer. LightningPose writes the
same.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ethogram.models.data.file_names import NameRule, Paths, existing_file
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.memory_bound import require_room
from ethogram.models.tracking.pose import AXES, ONE, Poses, read_poses

__all__ = ["read_deeplabcut"]

LEVELS = ("scorer", "bodyparts", "coords")


def read_deeplabcut(
    path: Paths,
    *,
    frame_rate: float | int | None = None,
    min_likelihood: float | int = 0.6,
    keypoints: Sequence[str] | None = None,
    individuals: Sequence[str] | None = None,
    agent: NameRule | None = None,
    group: NameRule | None = None,
    subject: NameRule | None = None,
) -> Trajectories:
    """Trajectories of files of DeepLabCut: one sequence per individual, those of a file in one group.

    Features are ``nose.x``, ``nose.y``, ... in pixels. Keypoints below the likelihood are missing in that frame.

    Parameters
    ----------
    path : ``.csv`` or ``.h5`` file of predictions, not of labelled images, a pattern such as ``"day1/*.csv"``, or a
        list of these; ``.h5`` needs the extra ``ethogram[behaviour]``.
    frame_rate : frames a second of the video.
    min_likelihood : in [0, 1]; DeepLabCut's own ``pcutoff`` is 0.6.
    keypoints, individuals : names to read, in this order; all by default.
    agent, group, subject : labels of the files: ``"file"`` for the name without ending, a regular expression that is
        searched in it (the first group counts, where it has one), or a function of the ``pathlib.Path``. By default
        animals have their own names, or in several files without any those of the files, and each file is a group.
        Animals of one name are one agent; with `agent` it stands before the names of several animals in a file.
    """
    return read_poses(
        path,
        _read_file,
        threshold=("min_likelihood", min_likelihood),
        frame_rate=frame_rate,
        keypoints=keypoints,
        individuals=individuals,
        rules={"agent": agent, "group": group, "subject": subject},
    )


def _read_file(path: Path) -> Poses:
    found = existing_file(path, (".csv", ".h5", ".hdf5"), "give the predictions of a video")
    import pandas

    try:
        frame = (_of_csv if found.name.lower().endswith(".csv") else _of_hdf)(found)
    except (UnicodeDecodeError, csv.Error, pandas.errors.ParserError) as error:
        raise ValueError(f"{found} cannot be read: {error}") from error
    frame.index = _frames(list(frame.index), found)
    animals, parts, coordinates = (list(frame.columns.unique(level)) for level in range(3))
    axes = [axis for axis in AXES if axis in coordinates]
    if not {"x", "y"} <= {*axes}:
        raise ValueError(f"{found} has the coordinates {sorted(coordinates)}: expected x and y")
    for column in frame.columns[frame.columns.duplicated()][:1]:
        raise ValueError(f"{found} has two columns {'.'.join(column)}: save the predictions of one scorer")
    count = int(frame.index.max()) + 1 if len(frame) else 0
    shape = (count, len(animals), len(parts), len(axes) + 1)
    require_room(f"poses of {found}", shape, float, f"its last frame is {count - 1}, correct it")
    every = pandas.MultiIndex.from_product([animals, parts, [*axes, "likelihood"]])
    values = frame.reindex(index=range(count), columns=every).to_numpy(float).reshape(shape)
    return Poses(values[..., :-1], values[..., -1], animals, parts, found.stem)


def _of_csv(path: Path) -> Any:
    """The ``pandas.DataFrame`` with the columns (individual, body part, coordinate), of numbers."""
    import pandas

    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(itertools.islice(csv.reader(file), 4))
        heads = {row[0]: row[1:] for row in rows if row and row[0] in (*LEVELS, "individuals")}
        if not {*LEVELS} <= heads.keys():
            raise ValueError(
                f"{path} is no CSV file of DeepLabCut: its first lines begin with "
                f"{', '.join(repr(row[0]) if row else 'nothing' for row in rows[:3])}, expected {', '.join(LEVELS)}"
            )
        if len({len(names) for names in heads.values()}) > 1:
            came = ", ".join(f"{len(names)} {level}" for level, names in heads.items())
            raise ValueError(f"{path} has lines of names of different lengths: {came}; is it whole?")
        animals = heads.get("individuals", [ONE] * len(heads["coords"]))
        columns = list(zip(animals, heads["bodyparts"], heads["coords"], strict=True))
        file.seek(0)
        for line in itertools.islice(file, len(heads), None):  # pandas fills in what a row lacks
            if line.strip() and line.count(",") != len(columns):
                came = f"{line.count(',') + 1} entries, expected {len(columns) + 1}"
                raise ValueError(f"{path}, row of frame {line.partition(',')[0]}: {came}")
    body = pandas.read_csv(
        path, skiprows=len(heads), names=range(len(columns) + 1), index_col=0, skipinitialspace=True
    )
    numbers = body.apply(pandas.to_numeric, errors="coerce")
    for row, place in np.argwhere(numbers.isna() & body.notna())[:1]:
        column, came = ".".join(columns[place]), body.iat[row, place]
        raise ValueError(f"{path}, frame {body.index[row]}, {column}: {came!r} is no number")
    return numbers.set_axis(
        pandas.MultiIndex.from_arrays([animals, heads["bodyparts"], heads["coords"]]), axis=1
    )


def _of_hdf(path: Path) -> Any:
    """The same of an HDF5 file, which pandas reads by way of PyTables."""
    import pandas

    try:
        frame: Any = pandas.read_hdf(path)
    except ImportError as error:
        raise ImportError(
            "HDF5 files of DeepLabCut need PyTables: pip install 'ethogram[behaviour]'"
        ) from error
    except Exception as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    levels = list(getattr(frame, "columns", pandas.Index([])).names)
    if not {"bodyparts", "coords"} <= set(levels):
        raise ValueError(f"{path} is no HDF5 file of DeepLabCut: its columns have the levels {levels}")
    labels = {level: frame.columns.get_level_values(level).astype(str) for level in levels}
    animals = labels.get("individuals", [ONE] * frame.shape[1])
    columns = pandas.MultiIndex.from_arrays([animals, labels["bodyparts"], labels["coords"]])
    return frame.set_axis(columns, axis=1)


def _frames(labels: Sequence[Any], path: Path) -> np.ndarray:
    """Numbers of the frames; a ValueError for rows that are images, or that repeat."""
    try:
        numbers = np.array([float(label) for label in labels], float)
    except (TypeError, ValueError):
        raise ValueError(
            f"{path} has rows that are images, such as {labels[0]!r}: expected predictions of a video, a row per frame"
        ) from None
    wrong = ~((numbers >= 0) & (numbers < 2**53) & (numbers == np.floor(numbers)))
    if wrong.any() or len(np.unique(numbers)) < len(numbers):
        raise ValueError(
            f"{path} has frames that repeat, or are no numbers from 0: expected one row per frame"
        )
    return numbers.astype(int)
