"""Figures of plans and episodes: what they show is what is in them."""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pytest

from ethogram.inference.planning import Episodes, Plan
from ethogram.plots import episode_timeline, plan_marginals


def test_a_plan_shows_the_most_probable_actions():
    marginals = np.array([[1.0, 0.0, 0.2], [0.1, 0.0, 0.9]])
    plan = Plan({"go___a": True}, marginals[0], 3.25, marginals, 2, 5, True, 0.01)
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
    with pytest.raises(IndexError, match="number = 1: there are 1 episodes"):
        episode_timeline(episodes, 1)


def of_computers(count, steps):
    """An episode in which all computers run, and the last is rebooted at each step."""
    true = tuple(f"running___c{i + 1}" for i in range(count))
    return Episodes(
        np.array([1.0]),
        (np.ones(steps),),
        (((f"reboot___c{count}",),) * steps,),
        ((true,) * steps,),
        np.ones(1),
    )


@pytest.mark.parametrize(("count", "steps"), [(3, 1), (10, 40)])
def test_the_legend_and_the_names_hide_nothing(count, steps):
    ax = episode_timeline(of_computers(count, steps))
    ax.figure.canvas.draw()
    legend = ax.get_legend().get_window_extent()
    assert legend.y1 <= ax.get_window_extent().y0
    for tick in (*ax.get_xticklabels(), ax.xaxis.label):
        if tick.get_text():
            assert not legend.overlaps(tick.get_window_extent()), tick
    assert all(float(at).is_integer() for at in ax.get_xticks())


@pytest.mark.parametrize("given", [False, True])
def test_names_of_fifty_computers_do_not_overlap(given):
    """In a figure of its own each is named; in small axes every so many."""
    ax = episode_timeline(of_computers(50, 3), ax=plt.subplots(figsize=(5, 4))[1] if given else None)
    ax.figure.canvas.draw()
    names = [label.get_window_extent() for label in ax.get_yticklabels()]
    assert (len(names) < 50) == given
    assert all(upper.y0 >= lower.y1 - 3 for upper, lower in itertools.pairwise(names))


def test_long_names_leave_room_and_plans_name_their_actions():
    marginals = np.ones((2, 1))
    plan = Plan({}, marginals[0], 1.0, marginals, 2, 5, True, 0.01)
    (label,) = plan_marginals(
        plan, ("move-the-very-large-elevator___from-floor-1__to-floor-12",)
    ).get_yticklabels()
    assert label.get_text() == "move-the-very-la…r-1, to-floor-12)"
    with pytest.raises(ValueError, match="actions has 2 names: expected those of the plan's 1 actions"):
        plan_marginals(plan, ("a", "b"))
    with pytest.raises(ValueError, match="without actions"):
        plan_marginals(plan._replace(marginals=np.ones((2, 0))), ())
