"""Figures of plans and episodes: what they show is what is in them."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from ethogram.inference.planning import Episodes, Plan
from ethogram.plots import episode_timeline, plan_marginals


@pytest.fixture(autouse=True)
def closed():
    yield
    plt.close("all")


def test_a_plan_shows_the_most_probable_actions():
    marginals = np.array([[1.0, 0.0, 0.2], [0.1, 0.0, 0.9]])
    plan = Plan({"go___a": True}, marginals[0], 3.25, marginals, 2, 5, 1, True, 0.01)
    ax = plan_marginals(plan, ("go___a", "go___b", "stop"), most=2)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["go(a)", "stop"]
    np.testing.assert_array_equal(ax.images[0].get_array(), [[1.0, 0.1], [0.2, 0.9]])
    assert ax.get_title() == "plan, value 3.2" and ax.get_xlabel() == "steps ahead"


def test_an_episode_shows_what_was_true_and_what_was_done():
    states = (("on___c2", "on___c10"), ("on___c10", "mode=fast"))
    episodes = Episodes(
        np.array([1.5]), (np.array([1.0, 0.5]),), ((("reset___c2",), ("wait",)),), (states,), np.ones(1)
    )
    ax = episode_timeline(episodes)
    rows = [label.get_text() for label in ax.get_yticklabels()]
    shown = np.asarray(ax.images[0].get_array())
    assert rows.index("on(c2)") < rows.index("on(c10)") and rows[-1] == "wait"
    np.testing.assert_array_equal(shown[rows.index("on(c10)")], [1, 1])
    np.testing.assert_array_equal(shown[rows.index("mode = fast")], [0, 1])
    crosses = {tuple(map(int, at)) for at in ax.lines[0].get_xydata()}
    assert crosses == {(0, rows.index("on(c2)")), (1, rows.index("wait"))}
    with pytest.raises(IndexError):
        episode_timeline(episodes, 1)
