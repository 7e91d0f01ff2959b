"""Benchmarks of the noisy MDP: autocorrelations of known memory, and shapes that are spoiled as they say."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

from benchmarks.papers import noisy_mdp_calibration as calibration
from benchmarks.papers import noisy_mdp_reference as reference
from benchmarks.papers import noisy_mdp_truth as truth
from ethogram.inference.choices import gibbs_sweep


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def chosen_world(num_states=3, num_decisions=12):
    """A world of two or three options per decision, with choices that no model made."""
    data = calibration.world(num_states, num_decisions, 3)
    return data._replace(choice=np.arange(num_decisions) % 2)


@pytest.mark.slow
def test_autocorrelation_of_chains_of_known_memory():
    """Times and lags of autoregressions: within four Monte Carlo errors, of 3 % for a time at this size."""
    random, rho = np.random.default_rng(1), np.array([0.9, 0.5])
    draws = np.empty((64, 8000, 2))
    draws[:, 0] = random.normal(size=(64, 2))
    for step in range(1, 8000):
        draws[:, step] = rho * draws[:, step - 1] + np.sqrt(1 - rho**2) * random.normal(size=(64, 2))
    found = reference.autocorrelation(draws + 3.0)
    np.testing.assert_allclose(found.time, (1 + rho) / (1 - rho), rtol=0.12)
    assert abs(found.total - 22) < 4 * found.total_error and 0.2 < found.total_error < 1.5
    np.testing.assert_allclose(found.at_lag[[0, 1, 5]], rho ** np.array([[0], [1], [5]]), atol=0.03)


@pytest.mark.slow
def test_a_spoiled_shape_is_the_shape_it_says():
    """Kolmogorov and Smirnov's test at 1 in 1000."""
    problem = truth.problem_of(chosen_world(3, 6), "local+scale")
    shape = truth.right_shape(np.asarray(problem.legal[..., 0]).T, "local+scale")
    chains, rest = 4000, 3.0
    shifts = np.repeat([0.0, -0.5, 0.5, 3.0], chains)
    with truth.shapes_can_be_spoiled():
        arguments = (
            jax.device_put(np.full(len(shifts), rest)),
            None,
            problem,
            gibbs_sweep.MOVES["local+scale"],
        )
        with truth.spoiled(shape, shifts):
            scale = jax.jit(lambda key: gibbs_sweep.draw_scale(key, *arguments))(jax.random.key(0))
        right = jax.jit(lambda key: gibbs_sweep.draw_scale(key, *arguments))(jax.random.key(1))
    blocks = [*np.split(np.asarray(scale), 4), np.asarray(right)]
    for drawn, shift in zip(blocks, (0.0, -0.5, 0.5, 3.0, 0.0), strict=True):
        assert stats.kstest(rest / 2 / drawn, stats.gamma(shape + shift).cdf).pvalue > 0.001


@pytest.mark.slow
def test_checks_of_shapes_and_of_the_joint_law_and_their_power():
    """At a level of 1 % for all; wrong shapes are twenty errors off."""
    with truth.shapes_can_be_spoiled():
        rows = truth.rows_of_shape("scale+translate", (200, 200), 0)
    assert [row["variant"].split(", ")[1] for row in rows] == ["right", "shape - 1/2", "shape + 1/2"]
    assert all(row["reached"] for row in rows)
    assert rows[1]["z"] < -10 and rows[2]["z"] > 10
    (row,) = truth.rows_of_geweke(3, "local+scale", "gibbs", (100, 100), 0, 1)
    assert row["reached"] and row["statistic"] == "largest of 6"
