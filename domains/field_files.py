"""Paths of small files as they come from the field: simulated, in the formats of Movebank, DeepLabCut and a survey.

``examples/simulate_field_files.py`` of the repository makes them, and says what is true in them.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from ethogram.models.arguments import require_one_of

__all__ = ["FILES", "path"]

FILES = ("deer.csv.gz", "deer_sex.csv", "mice", "trips.csv")
"""Fixes of twelve deer and their sex, a folder with a file of poses per mouse, and choices of a mode of travel."""


def path(name: str) -> Path:
    """Path of one of the files, or of the folder ``"mice"``.

    Examples
    --------
    >>> sorted(each.name for each in path("mice").glob("*_wt.csv"))
    ['mouse_1_wt.csv', 'mouse_3_wt.csv', 'mouse_5_wt.csv']
    """
    require_one_of("name", name, FILES)
    return Path(str(resources.files("ethogram.domains.data") / "field")) / name
