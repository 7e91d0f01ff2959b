"""A live figure of the belief: lines hold the last steps, and stay the same artists."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from ethogram import plots


def report(step, count=3, batch=()):
    chance = np.full((*batch, count), 0.1)
    chance[..., step % count] = 1 - 0.1 * (count - 1)
    return SimpleNamespace(
        intent=chance, change=np.full(batch, step / 10), surprise=np.full(batch, float(step))
    )


def test_lines_hold_the_last_steps_and_are_drawn_in_place():
    live = plots.LiveBelief(Figure(), window=4, names=["home", "water"])
    live.update(report(0))
    upper, lower = live.figure.axes
    lines = upper.get_lines()
    assert [line.get_label() for line in lines] == ["home", "water", "none of these", "change"]
    for step in range(1, 6):
        live.update(report(step))
    assert live.figure.axes == [upper, lower] and list(upper.get_lines()) == list(lines)
    np.testing.assert_allclose(lines[1].get_xydata(), [[2, 0.1], [3, 0.1], [4, 0.8], [5, 0.1]])
    np.testing.assert_allclose(lines[3].get_ydata(), [0.2, 0.3, 0.4, 0.5])
    np.testing.assert_allclose(lower.get_lines()[0].get_ydata(), [2, 3, 4, 5])
    assert upper.get_xlim() == (1.5, 5.5) and lower.get_ylim()[1] > 5


def test_one_agent_of_a_batch_and_fewer_redraws():
    live = plots.LiveBelief(Figure(), agent=(1,), every=2)
    live.update(report(0, batch=(2,)))
    assert not len(live.figure.axes[0].get_lines()[0].get_xdata())
    live.update(report(1, batch=(2,)))
    np.testing.assert_allclose(live.figure.axes[0].get_lines()[1].get_ydata(), [0.1, 0.8])
    with pytest.raises(ValueError, match=r"report.intent has shape \(3,\): give LiveBelief the agent"):
        live.update(report(0))
    with pytest.raises(ValueError, match=r"report.intent has 4 intents, those before it 3"):
        live.update(report(0, 4, (2,)))
    with pytest.raises(ValueError, match="names has 1 entries: give 2, one per value"):
        plots.LiveBelief(Figure(), names=["home"]).update(report(0))
    with pytest.raises(ValueError, match="window"):
        plots.LiveBelief(Figure(), window=0)


def test_a_notebook_has_one_output_that_is_replaced(monkeypatch):
    shown, replaced = [], []
    handle = SimpleNamespace(update=replaced.append)
    monkeypatch.setattr(matplotlib, "get_backend", lambda: "inline")
    display = SimpleNamespace(display=lambda figure, display_id: shown.append(figure) or handle)
    monkeypatch.setitem(
        sys.modules,
        "IPython",
        SimpleNamespace(display=display, version_info=(8, 24), get_ipython=lambda: None),
    )
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    live = plots.LiveBelief(Figure())
    for step in range(3):
        live.update(report(step))
    assert shown == [live.figure] and replaced == [live.figure] * 2
