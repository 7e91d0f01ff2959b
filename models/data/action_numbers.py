"""The question whether actions are numbered from 1, where models count from 0."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.labels import coded_fields

__all__ = ["warn_of_numbers_from_one"]


def warn_of_numbers_from_one(data: Any, codes: bool | str | Iterable[str] = False) -> Any:
    """The trajectories; a warning where actions may be numbered from 1, and models would take them for those from 0."""
    known = "actions" in coded_fields(codes)
    if data.actions is None or data.metadata.action_names is not None or known:
        return data
    taken = np.unique(np.asarray(data.actions))
    taken = taken[taken >= 0]
    if len(taken) > 1 and taken[0] == 1 and taken[-1] == len(taken):
        warn_user(
            f"actions are the integers 1 to {taken[-1]}, and never 0, and models count from 0: subtract 1 if "
            "they are numbered from 1, or pass codes=True, or names of all actions, that of 0 first"
        )
    return data
