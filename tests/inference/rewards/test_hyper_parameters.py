"""Hyper-parameters of rewards integrated over nodes: rules of integration, evidence and moments, files."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import jax
import numpy as np
import numpyro.distributions as dist
import pytest

import ethogram
from ethogram.domains import small_mdps
from ethogram.inference.rewards import gaussian_vi
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.hyper_parameters import (
    active_hypers,
    find_mode,
    integration_nodes,
    log_integral,
)
from ethogram.models.mdps.demonstrations import demonstration_counts
from ethogram.models.rewards.gp_irl import GPIRL

FEATURES = np.array([[1.0], [2.0], [3.0]])
DATA = small_mdps.three_state_demonstrations(1, 1)
MODEL = GPIRL(
    small_mdps.three_state(), FEATURES, scale_prior=dist.LogNormal(np.log(5.0), 1.0), relevance_prior=1.0
)
FEW = {"num_draws": 32, "num_evaluations": 64, "progress_bar": False}


@pytest.fixture(scope="module")
def fit():
    return fit_reward(jax.random.key(0), MODEL, DATA, **FEW)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_nodes_integrate_gaussians(size):
    """Mass, mean and covariance of a Gaussian; the covariance within a twentieth where nodes are a grid."""
    random = np.random.default_rng(size)
    root, mode = random.normal(size=(size, size)) + 2 * np.eye(size), random.normal(size=size)
    precision = root @ root.T
    nodes = integration_nodes(precision)
    places = nodes.around(mode)
    np.testing.assert_array_equal(places[0], mode)
    apart = places - mode
    log_density = -0.5 * np.einsum("ni,ij,nj->n", apart, precision, apart) - 7.0
    total, shares = log_integral(nodes, log_density)
    expected = 0.5 * size * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(precision)[1] - 7.0
    np.testing.assert_allclose(total, expected, atol=1e-10)
    np.testing.assert_allclose(shares @ places, mode, atol=1e-10)
    slack = 0.05 if size <= 2 else 1e-10
    found = np.einsum("n,ni,nj->ij", shares, apart, apart)
    np.testing.assert_allclose(found @ precision, np.eye(size), atol=slack)


MAXIMUM, BEND = np.array([5.0, 0.0, -1.0]), np.array([[2.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.0, 1.0]])


@pytest.mark.parametrize("finite", [True, False])
def test_the_mode_is_found_by_functions_that_touch_the_elbo(finite):
    """ELBOs of moved Gaussians are below the largest, and touch it where these were fitted; one entry is held at 3."""
    visited = []

    def fit_at(place):
        visited.append(place)
        apart = place - MAXIMUM
        return SimpleNamespace(log_hyper=place, q=place, elbo=-0.5 * apart @ BEND @ apart)

    def moved(place, q, new):
        step, apart = new - q, new - MAXIMUM
        value = -0.5 * apart @ BEND @ apart - 0.2 * step @ step
        return value if finite else np.nan, -BEND @ apart - 0.4 * step

    mode = find_mode(fit_at, moved, np.array([0.0, 3.0, 0.0]), np.array([0, 2]), 0.01)
    assert mode.converged == finite and len(mode.trace) == len(visited) <= 8
    if finite:
        np.testing.assert_allclose(mode.log_hyper, [5.0, 3.0, -1.0], atol=0.2)
        assert np.abs(np.diff(visited, axis=0)).max() <= 2 and mode.trace[-1] > -4.52


def truth(draws=12_000):
    """Log evidence, and moments of rewards apart from their mean and of ln scale, by importance sampling in NumPy."""
    random = np.random.default_rng(0)
    log_scale = np.log(5.0) + random.normal(size=draws)
    apart = (FEATURES - FEATURES.T) ** 2
    low = np.linalg.cholesky(np.exp(-0.5 * apart - 0.005 * (apart > 0)))
    reward = np.exp(0.5 * log_scale)[:, None] * (random.normal(size=(draws, 3)) @ low.T)
    ahead = np.array([[1, 2], [0, 2], [0, 1]])
    values = np.zeros((draws, 3))
    for _ in range(100):
        each = reward[:, :, None] + 0.9 * values[:, ahead]
        values = np.logaddexp.reduce(each, -1)
    log_policy = each - values[..., None]
    weights = np.sum(log_policy * demonstration_counts(MODEL.mdp, DATA), (1, 2))
    most = weights.max()
    weights = np.exp(weights - most)
    evidence = most + np.log(weights.mean())
    weights /= weights.sum()
    centred = np.column_stack([reward - reward.mean(1, keepdims=True), log_scale])
    mean = weights @ centred
    return evidence, mean, np.sqrt(weights @ (centred - mean) ** 2)


@pytest.mark.slow
def test_bound_and_moments_are_those_of_importance_sampling(fit):
    """The bound is below the evidence by the distance of Gaussians from the posterior at each scale, and no more."""
    evidence, mean, sd = truth()
    assert fit.converged and fit.elbo >= fit.laplace_elbo and fit.trace[-1] > fit.trace[0] - 0.05
    assert evidence - 0.06 < fit.elbo < evidence + 4 * fit.elbo_se
    drawn = fit.posterior.sample(jax.random.key(1), 4000)
    found = np.column_stack([drawn["centred_reward"], np.log(drawn["scale"])])
    np.testing.assert_allclose(found.mean(0), mean, atol=0.12)
    np.testing.assert_allclose(found.std(0), sd, rtol=0.1)
    middle = np.asarray(fit.posterior.mean(cell_noise=True)["centred_reward"])
    np.testing.assert_allclose(middle, found[:, :3].mean(0), atol=5 * sd[0] / np.sqrt(4000))


@pytest.mark.slow
def test_a_mixture_is_saved_loaded_and_exported(tmp_path, fit):
    fit.posterior.save(tmp_path / "posterior")
    again = ethogram.load_posterior(tmp_path / "posterior")
    drawn = (one.sample(jax.random.key(3), 20)["reward"] for one in (fit.posterior, again))
    np.testing.assert_array_equal(*drawn)
    drawn = fit.draws_for_export(jax.random.key(4), 20)
    assert np.shape(drawn.sites["reward"]) == (1, 20, 3) and drawn.attributes["final_elbo"] == fit.elbo
    with pytest.raises(ValueError, match="log_weights has shape"):
        dataclasses.replace(fit.posterior, log_weights=np.zeros(len(fit.posterior.log_weights)))


@pytest.mark.slow
def test_an_interrupted_search_ends_where_it_would_have(tmp_path, monkeypatch, fit):
    places, maximize = iter(range(4)), gaussian_vi.maximize_elbo

    def interrupted(*arguments, **settings):
        if next(places, None) is None:
            raise KeyboardInterrupt
        return maximize(*arguments, **settings)

    monkeypatch.setattr(gaussian_vi, "maximize_elbo", interrupted)
    path = tmp_path / "search"
    with pytest.raises(KeyboardInterrupt):
        fit_reward(jax.random.key(0), MODEL, DATA, checkpoint=path, **FEW)
    monkeypatch.setattr(gaussian_vi, "maximize_elbo", maximize)
    rest = fit_reward(jax.random.key(0), MODEL, DATA, checkpoint=path, **FEW)
    assert (rest.elbo, rest.steps) == (fit.elbo, fit.steps)
    np.testing.assert_array_equal(rest.posterior.latent_root, fit.posterior.latent_root)
    with pytest.raises(ValueError, match="of another model, data, key"):
        fit_reward(jax.random.key(1), MODEL, DATA, checkpoint=path, **FEW)


def test_without_free_hyper_parameters_there_is_one_gaussian():
    model = dataclasses.replace(MODEL, scale_prior=5.0)
    one = fit_reward(jax.random.key(0), model, DATA, **FEW)
    assert len(one.posterior.log_weights) == 1 and one.converged
    other = fit_reward(jax.random.key(0), model, DATA, **(FEW | {"hyper": "fixed"}))
    assert abs(one.elbo - other.elbo) < 0.05


def test_of_many_features_only_relevances_that_bend_the_kernel_are_integrated_over():
    points = np.sqrt(1.5) * np.outer([-1.0, 0.0, 1.0], np.ones(6))
    model = GPIRL(small_mdps.three_state(), points)
    log_hyper = np.log([5.0, 1e-6, 2.0, 1e-6, 0.5, 1.0, 1.5])
    assert active_hypers(model, log_hyper).tolist() == [0, 2, 5, 6]
    assert active_hypers(model, np.full(7, -14.0)).tolist() == [0]
    few = GPIRL(
        small_mdps.three_state(), points[:, :3], scale_prior=2.0, rationality=dist.LogNormal(0.0, 1.0)
    )
    assert active_hypers(few, np.zeros(4)).tolist() == [0, 1, 2, 3]
