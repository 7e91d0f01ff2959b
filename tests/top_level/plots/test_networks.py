"""Pictures of marginal MAP: incumbents over time, and single changes."""

from __future__ import annotations

import numpy as np
import pytest

from ethogram.inference.networks.anytime import TracePoint
from ethogram.plots import networks as plots_mmap


def point(seconds, value, kind="exact"):
    return TracePoint(seconds, seconds, value, kind, "", np.zeros(1, int))


def test_curves_rise_until_the_limit_and_a_method_without_an_answer_is_named():
    """Of exact log probabilities; an estimate may have been higher."""
    traces = {"one": [point(0.05, -1.0, "estimate"), point(0.1, -3.0), point(0.5, -2.0)], "other": []}
    axes = plots_mmap.anytime_curves(traces, until=2, best=-1.5)
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_allclose(lines["one"].get_xdata(), [0.1, 0.5, 2.0])
    np.testing.assert_allclose(lines["one"].get_ydata(), [-3.0, -2.0, -2.0])
    circles = next(line for line in axes.get_lines() if line.get_marker() == "o")
    np.testing.assert_allclose(circles.get_xydata(), [[0.05, -1.0]])
    assert "other" not in lines and axes.get_xlabel().endswith("\nno possible assignment: other")
    with pytest.raises(ValueError, match="traces is empty"):
        plots_mmap.anytime_curves({}, until=2)


def test_bars_have_the_cost_of_the_best_other_state():
    flips = {"a": np.array([-1.0, -3.0, -2.5]), "b": np.array([-4.0, -1.0])}
    axes = plots_mmap.gap_bars(flips, [0, 1])
    np.testing.assert_allclose([bar.get_width() for bar in axes.patches], [1.5, 3.0])
    with pytest.raises(ValueError, match="flips has 2 variables and states 1"):
        plots_mmap.gap_bars(flips, [0])
