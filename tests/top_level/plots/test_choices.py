"""Figures of values and predictions: their contents, and refused input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from ethogram.inference.choices.predictions import Calibration
from ethogram.plots import choices as plots_choices
from ethogram.plots.axes import density_of


def legend_of(axes) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def test_marginals_stand_in_rows_from_the_top(axes):
    draws = np.random.default_rng(0).normal([1.0, -2.0], 0.1, size=(500, 2))
    drawn = plots_choices.value_marginals(draws, axes, names=["hours", "price"], truth=[1.0, -2.1])
    assert drawn is axes
    labels = {
        text.get_text(): place for text, place in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
    }
    means, truth = axes.lines[:2]
    np.testing.assert_allclose(means.get_xdata(), draws.mean(0))
    np.testing.assert_allclose(truth.get_xdata(), [1.0, -2.1])
    assert labels == {"hours": 1, "price": 0}
    np.testing.assert_array_equal(means.get_ydata(), [1, 0])
    assert legend_of(axes) == ["posterior mean, 90 % interval", "truth"]
    axes.figure.draw_without_rendering()
    lowest = axes.get_legend().get_window_extent().y0
    highest = axes.transData.transform((0, 1.4))[1]  # of what is drawn in the first row
    assert highest < lowest


def test_densities_are_whole_and_a_far_draw_does_not_widen_them():
    draws = np.random.default_rng(0).normal(size=2000)
    draws[0] = 1e4
    places, density = density_of(draws)
    near = abs(places) < 3
    np.testing.assert_allclose(density[near], norm.pdf(places[near]), atol=0.03)
    assert max(density[[0, -1]]) < 0.02 * density.max() and np.trapezoid(density, places) > 0.98


def test_plots_of_draws_that_have_not_converged_warn(axes):
    """Of one chain that drifts, and of two chains apart, each of which has converged."""
    good = np.random.default_rng(0).normal(size=(2, 200, 2))
    drift, apart = good[0] + np.linspace(0, 20, 200)[:, None], good + np.array([0.0, 3.0])[:, None, None]
    plots_choices.value_marginals(good, axes)
    np.testing.assert_allclose(axes.lines[0].get_xdata(), good.mean((0, 1)))
    for draws in (drift, apart):
        with pytest.warns(UserWarning, match="the draws have not converged") as seen:
            plots_choices.value_marginals(draws, axes)
        assert len(seen) == 1 and seen[0].filename == __file__


def test_reliability_has_a_point_a_bin_and_says_what_its_numbers_are(axes):
    half = np.array([0.25, 0.75])
    table = Calibration(
        half - 0.25, half + 0.25, half, half + 0.05, np.array([0.1, 0.1]), np.array([7.0, 9.0])
    )
    plots_choices.reliability(table, axes)
    assert [text.get_text() for text in axes.texts] == ["7", "9"]
    assert len(axes.containers) == 1
    assert legend_of(axes) == ["perfect calibration", "observed, two standard errors"]
    assert axes.get_legend().get_title().get_text() == "numbers: options in the bin"


def test_numbers_of_options_stay_inside(axes):
    """Of bins in both corners, where most options lie."""
    place, bins = np.array([0.001, 0.5, 0.999]), np.arange(3.0)
    counts = np.array([123456, 7, 34567])
    plots_choices.reliability(Calibration(bins, bins, place, place, np.zeros(3), counts), axes)
    axes.figure.draw_without_rendering()
    frame = axes.get_window_extent()
    for text in axes.texts:
        box = text.get_window_extent()
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda ax: plots_choices.value_marginals(np.zeros(3), ax), r"draws has shape \(3,\)"),
        (
            lambda ax: plots_choices.value_marginals(np.zeros((3, 2)), ax, names=["a"]),
            "names has 1 entries: give 2",
        ),
    ],
)
def test_what_does_not_fit_is_named(axes, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(axes)
