"""Pictures of marginal MAP: incumbents over time."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from ethogram.inference.networks.anytime import TracePoint
from ethogram.plots import networks as plots_mmap


def point(seconds, value, kind="exact"):
    return TracePoint(seconds, seconds, value, kind, "", np.zeros(1, int))


def result(trace, seconds, upper_bound):
    return SimpleNamespace(trace=trace, seconds=seconds, upper_bound=upper_bound, proved_optimal=False)


def test_curves_rise_until_the_limit_and_a_method_without_an_answer_is_named():
    """Of exact log probabilities; an estimate may have been higher."""
    trace = [point(0.05, -1.0, "estimate"), point(0.1, -3.0), point(0.5, -2.0)]
    results = {"one": result(trace, 0.6, -1.8), "other": result([], 2.0, np.inf)}
    axes = plots_mmap.anytime_curves(results, best=-1.5)
    lines = {line.get_label(): line for line in axes.get_lines()}
    np.testing.assert_allclose(lines["one"].get_xdata(), [0.1, 0.5, 2.0])
    np.testing.assert_allclose(lines["one"].get_ydata(), [-3.0, -2.0, -2.0])
    circles = next(line for line in axes.get_lines() if line.get_marker() == "o")
    np.testing.assert_allclose(circles.get_xydata(), [[0.05, -1.0]])
    assert "other" not in lines and axes.get_xlabel().endswith("\nno possible assignment: other")
    assert set(lines["upper bound"].get_ydata()) == {-1.8}
    with pytest.raises(ValueError, match="results is empty"):
        plots_mmap.anytime_curves({})
