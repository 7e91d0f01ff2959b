"""Exponential waiting times against SciPy and conjugate sums."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import ethogram
from ethogram.models.data import Trajectories
from ethogram.testing import check_model
from examples.waiting_times import ExponentialEmission

RATES = np.array([0.3, 4.0])
STATES = np.repeat(np.random.default_rng(0).integers(2, size=(6, 5)), 10, axis=1)


@pytest.fixture(scope="module")
def data() -> Trajectories:
    """Six sequences of two states that alternate; one time is missing."""
    times = np.random.default_rng(1).exponential(1 / RATES[STATES])[..., None]
    times[0, 3] = np.nan
    return Trajectories.from_list(list(times), states=list(STATES), missing="nan")


def test_density_is_that_of_scipy_and_leaves_out_what_is_missing():
    times = np.array([[0.5, 2.0], [np.nan, 1.0], [-1.0, 1.0]])
    parameters = {"rate": jnp.asarray([[0.3, 1.0], [4.0, 2.0]])}
    found = ExponentialEmission(2).distribution(parameters).log_prob(times[:, None])  # in single precision
    each = stats.expon.logpdf(times[:, None], scale=1 / np.asarray(parameters["rate"]))
    np.testing.assert_allclose(found, np.where(np.isnan(times)[:, None], 0, each).sum(-1), rtol=1e-6)


def test_samples_have_the_means_of_the_density():
    """Seven standard errors of 20 000 draws, whose standard deviation is their mean."""
    rates = jnp.asarray(RATES)[:, None]
    draws = ExponentialEmission().distribution({"rate": rates}).sample(jax.random.key(0), (20_000,))
    np.testing.assert_allclose(np.mean(draws, axis=0), 1 / rates, rtol=0.05)


def test_statistics_of_labels_are_counts_and_sums():
    times, labels = np.array([[0.5], [np.nan], [2.0], [3.0]]), np.array([0, 0, 1, 1])
    found = ExponentialEmission().label_statistics(np.random.default_rng(0), times, labels, 2)["rate"]
    np.testing.assert_allclose(np.ravel(found), [1, 2, 0.5, 5.0])


def test_a_time_that_is_not_positive_is_named():
    with pytest.raises(ValueError, match=r"data.observations\[0, 1, 0\] is no waiting time"):
        ethogram.RoleHMM(2, ExponentialEmission()).check(Trajectories.from_list([[[1.0], [0.0]]]))


@pytest.mark.slow
def test_the_hooks_agree_with_one_another(data):
    times = Trajectories.from_list([[[0.5], [np.nan], [2.0]], [[1.0]]], missing="nan")
    check_model(ethogram.RoleHMM(2, ExponentialEmission()), times)


@pytest.mark.slow
def test_posterior_given_the_states_is_the_conjugate_one(data):
    model = ethogram.RoleHMM(2, ExponentialEmission(1, 2.0, 3.0), known_roles=True)
    found = ethogram.fit(jax.random.key(0), model, data).result.posterior.blocks["rate"].natural
    times, member = np.asarray(data.observations)[..., 0], STATES[..., None] == np.arange(2)
    counts = np.sum(member & ~np.isnan(times)[..., None], axis=(0, 1))
    np.testing.assert_allclose(found.shape[:, 0], 2.0 + counts, rtol=1e-6)
    sums = np.nansum(member * times[..., None], axis=(0, 1))
    np.testing.assert_allclose(found.rate[:, 0], 3.0 + sums, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the draws have not converged")  # r_hat of 200 draws may pass 1.01
@pytest.mark.parametrize("method", ["cavi", "nuts"])
def test_a_fit_finds_states_and_rates_and_has_all_methods(method, data, tmp_path):
    settings = {"num_samples": 200, "num_warmup": 200, "num_chains": 2} if method == "nuts" else {}
    model = ethogram.RoleHMM(2, ExponentialEmission(), sticky=10.0)
    fit = ethogram.fit(jax.random.key(0), model, data, method, progress_bar=False, **settings)
    rates = [fit.summary()["mean"][f"rate[{state}, 0]"] for state in range(2)]
    np.testing.assert_allclose(rates, RATES, rtol=0.25)  # three standard deviations of 120 times or more
    assert np.mean(fit.states().path == STATES) > 0.95
    assert np.isfinite(fit.score().total)
    assert fit.plot().axes
    assert "rate" in fit.report(tmp_path / "times.html").read_text()
    fit.save(tmp_path / "times.npz")
    assert type(ethogram.load(tmp_path / "times.npz").model.emission) is ExponentialEmission
