"""Benchmarks of the noisy MDP: oracles against closed forms and plain quadrature, checks that must fail, and rows."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from scipy import stats
from scipy.special import ndtr

from benchmarks.papers import noisy_mdp_calibration as calibration
from benchmarks.papers import noisy_mdp_reference as reference
from benchmarks.papers import noisy_mdp_truth as truth
from ethogram.inference.choices import gibbs_sweep
from ethogram.models.choices.noisy_mdp import NoisyMDP


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def chosen_world(num_states=3, num_decisions=12):
    """A world of two or three options a decision, with choices that no model made."""
    data = calibration.world(num_states, num_decisions, 3)
    return data._replace(choice=np.arange(num_decisions) % 2)


def by_trapezoid(design, data, kappa, nodes=81, width=12.0):
    """First and second moments of two parameters, on a square grid about zero, by a trapezoid rule in NumPy."""
    axis = np.linspace(-width, width, nodes)
    points = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    x = np.linspace(-9, 9, 181)
    density = np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi) * (x[1] - x[0])
    log_posterior = -0.5 * (points**2).sum(-1) / kappa
    for features, legal, chosen in zip(design, data.legal, data.choice, strict=True):
        product = np.ones((len(points), len(x)))
        for other in np.flatnonzero(legal):
            if other != chosen:
                product *= ndtr(x + (points @ (features[chosen] - features[other]))[:, None])
        log_posterior += np.log(product @ density)
    weight = np.exp(log_posterior - log_posterior.max())
    weight /= weight.sum()
    return np.stack([weight @ points, weight @ points**2])


@pytest.mark.slow
def test_oracles_are_the_posterior_by_plain_quadrature():
    """A grid to six digits; importance sampling within four of its own errors, in fewer than 1 of 1000 runs not."""
    data, model = chosen_world(), NoisyMDP(4.0)
    design = model.design(data)
    exact = by_trapezoid(design, data, 4.0)
    found = reference.grid_moments((design, data.legal, data.choice, 4.0))
    np.testing.assert_allclose(found, exact, atol=1e-6)
    means = reference.importance_means(model, data, 4000, 0)
    values = model.parts(exact[0], data)["v"]
    assert means.effective > 2000 and (np.abs(means.mean - values) < 4 * means.error).all()
    assert (means.error < 0.1).all()


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
            None,
        )
        with truth.spoiled(shape, shifts):
            scale = jax.jit(lambda key: gibbs_sweep._draw_scale(key, *arguments))(jax.random.key(0))
        right = jax.jit(lambda key: gibbs_sweep._draw_scale(key, *arguments))(jax.random.key(1))
    blocks = [*np.split(np.asarray(scale), 4), np.asarray(right)]
    for drawn, shift in zip(blocks, (0.0, -0.5, 0.5, 3.0, 0.0), strict=True):
        assert stats.kstest(rest / 2 / drawn, stats.gamma(shape + shift).cdf).pvalue > 0.001


class Independent(NamedTuple):
    """The state of chains that draw anew, with a deviation that may be wrong."""

    key: Array
    z: dict[str, Array]
    scale: Array


class FromThePrior:
    """A kernel that draws values from a normal distribution, whatever the data say."""

    def sample(self, state, model_args, model_kwargs):
        key, key_draw = jax.random.split(state.key)
        drawn = state.scale * jax.random.normal(key_draw, state.z["theta"].shape)
        return Independent(key, {"theta": drawn}, state.scale)


@pytest.mark.slow
def test_calibration_tells_a_wrong_posterior():
    """Values of a prior that data say nothing about; the right kernel fails in fewer than 1 of 100 runs."""
    replications, random = 400, np.random.default_rng(0)
    data = calibration.world(4, 3, 0)
    data = data._replace(features=np.full_like(data.features, 0.25))
    theta = 2 * random.normal(size=(replications, 3))
    choices = np.zeros((replications, 3), int)
    told = np.asarray(calibration._all_statistics({"theta": theta}, choices, data))
    keys = jax.random.split(jax.random.key(0), replications)
    kernel = FromThePrior()  # one, which compiles once
    for scale, passes in ((2.0, True), (1.6, False), (2.4, False)):
        states = Independent(keys, {"theta": jnp.zeros((replications, 3))}, jnp.full(replications, scale))
        ranks = calibration.Ranks("sbc", "independent", kernel, states, data, choices, told)
        rows = {row["statistic"]: row for row in calibration.rows_of_ranks(ranks, 20, 2)}
        assert list(rows) == ["v 1", "v 2", "|v|^2", "log likelihood"]  # the last is constant here
        assert rows["|v|^2"]["reached"] == passes
        assert not passes or (rows["v 1"]["reached"] and rows["v 2"]["reached"])


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


@pytest.mark.slow
def test_ranks_of_a_gibbs_block_have_their_rows():
    """Five statistics of two replications: that it runs, not that it is right."""
    ranks = calibration.begin_gibbs(2, 0)
    rows = calibration.rows_of_ranks(ranks, 2, 1)
    assert [row["statistic"] for row in rows] == list(calibration.NAMES)
    assert all(row["thinning"] >= 2 * row["iact"] and 0 <= row["p"] <= 1 for row in rows)
