"""Levels of sequences: labels by name or number, and levels of one's own by label or per sequence."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

from ethogram.models.data import Metadata, Trajectories
from ethogram.models.data.levels import sequence_levels

DATA = Trajectories.from_list(
    [np.zeros((2, 1))] * 3, agent=["ada", "bo", "ada"], metadata=Metadata(subject_names=("f", "m"))
)._replace(group=np.array([7, -1, 2]), subject=np.array([1, 0, -1]))


@pytest.mark.parametrize(
    ("name", "values", "levels", "order"),
    [
        ("agent", None, ["ada", "bo", "ada"], ["ada", "bo"]),
        ("group", None, [7, None, 2], [2, 7]),
        ("subject", None, ["m", "f", None], ["f", "m"]),
        ("sequence", None, [0, 1, 2], [0, 1, 2]),
        ("sex", {"bo": "m", "ada": "f"}, ["f", "m", "f"], ["m", "f"]),
        ("site", pandas.Series({2: "hill", 7: "bog"}), ["bog", None, "hill"], ["hill", "bog"]),
        ("day", {0: "a", 1: "b", 2: "a"}, ["a", "b", "a"], ["a", "b"]),
        ("dose", [0.5, 1.5, np.nan], [0.5, 1.5, None], [0.5, 1.5]),
    ],
)
def test_levels_stand_in_the_order_of_labels_or_as_given(name, values, levels, order):
    found = sequence_levels(DATA, name, values)
    assert [None if pandas.isna(each) else each for each in found] == levels
    assert list(found.categories) == order
