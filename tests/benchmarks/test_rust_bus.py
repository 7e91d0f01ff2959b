"""Rust's buses by the nested fixed point: values against plain value iteration, and the estimates of the probit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from benchmarks.papers.rust_bus import choice_values, nested_fixed_point, reduced_form
from ethogram.domains import rust_bus


@pytest.mark.parametrize("shocks", ["logit", "probit"])
def test_utilities_are_the_fixed_point(shocks):
    """Plain value iteration at a discount where it converges, with expectations over shocks by summing draws."""
    found = choice_values(3.0, 4.0, beta=0.9, shocks=shocks)
    keep = np.zeros((90, 90))
    for row in range(90):
        for step, count in enumerate((1682, 2555, 55)):
            keep[row, min(row + step, 89)] += count / 4292
    cost, values = 0.004 * np.arange(90), np.zeros(90)
    x = np.linspace(-12, 12, 801)
    density = norm.pdf(x) * (x[1] - x[0])
    for _ in range(200):
        ahead = 0.9 * keep @ values
        u, v = -cost + ahead, np.full(90, -3.0 + ahead[0])
        if shocks == "logit":
            values = np.log(np.exp(u) + np.exp(v))
        else:  # the difference of the shocks is normal with variance 2
            gain = np.maximum(v - u + np.sqrt(2) * x[:, None], 0)
            values = u + density @ gain
    np.testing.assert_allclose(found, np.stack([u, v], 1), atol=1e-4)


@pytest.mark.slow
def test_estimates_with_normal_shocks_are_a_scale_of_those_with_gumbel_shocks():
    months = rust_bus.load(4)
    logit, probit = (
        nested_fixed_point(months, shocks=shocks, increments=rust_bus.INCREMENTS)
        for shocks in ("logit", "probit")
    )
    np.testing.assert_allclose(rust_bus.estimate(months), logit, rtol=1e-5)
    assert -163.40 < probit.log_likelihood < -163.30
    assert probit.replacement_cost / logit.replacement_cost == pytest.approx(0.60, abs=0.01)
    assert probit.theta / logit.theta == pytest.approx(0.52, abs=0.01)


def test_decisions_of_the_reduced_form():
    months = rust_bus.load(4)
    reduced = reduced_form(months)
    utilities = reduced.features @ np.array([2.0, 0.5])
    np.testing.assert_allclose(utilities[:, 1], -2 + 0.05 * months.bin)
    assert (utilities[:, 0] == 0).all() and reduced.choice.sum() == 33
