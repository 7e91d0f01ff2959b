"""Pseudo-residuals are standard normal where the model is true, and not where it is wrong; the chain's own numbers."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import kstest, norm

from ethogram.fits.checks import chain_checks, pseudo_residuals
from ethogram.models.data import Trajectories
from ethogram.models.emissions import GaussianEmission, PoissonEmission, ProductEmission
from ethogram.models.roles import RoleHMM

CHAIN = {"initial": np.array([0.5, 0.5]), "transition": np.array([[0.9, 0.1], [0.2, 0.8]])}
SITES = CHAIN | {
    "x_mean": np.array([[-1.0], [2.0]]),
    "x_covariance": np.ones((2, 1, 1)),
    "n_rate": np.array([[2.0], [9.0]]),
}
MODEL = RoleHMM(2, ProductEmission({"x": GaussianEmission(1), "n": PoissonEmission(1)}))


@pytest.fixture(scope="module")
def simulated():
    return MODEL.simulate(jax.random.key(0), num_groups=8, lengths=100, parameters=SITES)


def residuals(simulated, **changed):
    sites = {name: np.asarray(value)[None] for name, value in (SITES | changed).items()}
    data = simulated.data._replace(observed=simulated.data.observed & (np.arange(100) % 10 > 0))
    return pseudo_residuals(jax.random.key(1), MODEL.bind(data), sites, data)


def test_residuals_of_the_true_model_are_standard_normal_and_independent(simulated):
    """A false alarm in one of a thousand keys; counts are discrete, so that only their moments are tested."""
    found = residuals(simulated)
    assert np.isnan(found[:, ::10]).all() and not np.isnan(found[:, 1::10]).any()
    x, counts = (found[..., feature][~np.isnan(found[..., feature])] for feature in range(2))
    assert kstest(x, norm.cdf).pvalue > 1e-3
    assert abs(counts.mean()) < 3.3 / np.sqrt(len(counts)) and abs(counts.std() - 1) < 0.1
    lagged = found[:, 1:, 0] * found[:, :-1, 0]
    assert abs(np.nanmean(lagged)) < 3.3 / np.sqrt((~np.isnan(lagged)).sum())


def test_a_wrong_model_is_seen(simulated):
    wide = residuals(simulated, x_covariance=np.full((2, 1, 1), 4.0))
    assert np.nanstd(wide[..., 0]) < 0.8
    still = residuals(simulated, transition=np.array([[0.5, 0.5], [0.5, 0.5]]))
    assert np.nanmean(still[:, 1:, 0] * still[:, :-1, 0]) > 0.1


def test_numbers_of_the_chain_are_those_of_its_own_paths_only_where_it_is_one():
    """No bout of exactly five frames has one; of a chain that leaves after five on average, one in five does."""
    made = np.repeat(np.tile([0, 1], 40), 5)[None, None].astype(np.int8).repeat(200, 0)
    sites = {"initial": np.full((200, 2), 0.5), "transition": np.tile([[0.8, 0.2], [0.2, 0.8]], (200, 1, 1))}
    data = Trajectories.from_list(np.zeros((1, 400, 2)))
    model = MODEL.bind(data)
    sites |= {
        name: np.repeat(SITES[name][None], 200, axis=0) for name in ("x_mean", "x_covariance", "n_rate")
    }
    (share, made_share), (short, made_short) = chain_checks(
        jax.random.key(0), model, sites, data, made
    ).values()
    assert (short == 0).all() and (share == 0.5).all()
    assert made_short.mean(0) == pytest.approx([0.2, 0.2], abs=0.02)
    assert made_share.mean(0) == pytest.approx([0.5, 0.5], abs=0.03)
