"""Plots of agents show the numbers they are given, on labelled axes."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.plots import category_colours
from ethogram.plots import intents as plots_agents

CHANCE = np.array([[0.9, 0.1, 0.0], [0.2, 0.5, 0.3], [0.0, 0.25, 0.75], [0.1, 0.1, 0.8]])


def test_a_timeline_stacks_the_probabilities():
    axes = plots_agents.intent_timeline(CHANCE)
    bands = axes.collections
    assert len(bands) == 3 and axes.get_xlim() == (-0.5, 3.5) and axes.get_xlabel() == "time (steps)"
    for intent, band in enumerate(bands):
        corners = band.get_paths()[0].vertices
        inside = corners[np.abs(corners[:, 0] - 0.5) < 1e-9, 1]  # both edges of step 1 stand at 0.5
        below = CHANCE[1, :intent].sum()
        assert {round(below, 6), round(below + CHANCE[1, intent], 6)} <= {round(y, 6) for y in inside}
        np.testing.assert_allclose(band.get_facecolor()[0, :3], category_colours(3)[intent])


def test_changes_hang_below_and_arrivals_stand_above():
    change = np.array([0.5, 1.0, 0.0])
    axes = plots_agents.intent_timeline(CHANCE, change=change, marks={"home": [2], "water": [0, 3]})
    lines = next(part for part in axes.collections if hasattr(part, "get_segments"))
    ends = np.array([segment for segment in lines.get_segments()])
    np.testing.assert_allclose(ends[:, 0, 0], [0.5, 1.5, 2.5])
    depth = ends[:, 0, 1] - ends[:, 1, 1]
    np.testing.assert_allclose(depth / depth.max(), change, atol=1e-12)
    assert depth.min() >= 0 and ends.max(initial=-1, where=[False, True]) < 0
    home, water = (line for line in axes.get_lines() if line.get_marker() == "|")
    np.testing.assert_array_equal(home.get_xdata(), [2])
    np.testing.assert_array_equal(water.get_xdata(), [0, 3])
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["change", "0", "0.5", "1", "home", "water"]


def test_bad_timelines_are_refused():
    with pytest.raises(ValueError, match="with rows that sum to one"):
        plots_agents.intent_timeline(2 * CHANCE)
    with pytest.raises(ValueError, match=r"change has shape \(4,\), not \(3,\)"):
        plots_agents.intent_timeline(CHANCE, change=np.zeros(4))


def test_bars_are_shares_of_all_steps_and_dots_those_of_traces():
    chance = np.stack([CHANCE, np.where(np.arange(4)[:, None] < 2, CHANCE[::-1], 0)])  # the second ends early
    axes = plots_agents.intent_shares(chance, names=["seek", "return", "rest"])
    assert [label.get_text() for label in axes.get_xticklabels()] == ["seek", "return", "rest"]
    held = chance.sum((0, 1))
    np.testing.assert_allclose([bar.get_height() for bar in axes.patches], 100 * held / held.sum())
    (dots,) = (line for line in axes.get_lines() if line.get_marker() == ".")
    each = 100 * chance.sum(1) / chance.sum((1, 2))[:, None]
    np.testing.assert_allclose(dots.get_ydata(), each.ravel())
    assert axes.get_ylabel() == "share of steps, %"
    with pytest.raises(ValueError, match=r"probability has shape \(4, 3\)"):
        plots_agents.intent_shares(CHANCE)
