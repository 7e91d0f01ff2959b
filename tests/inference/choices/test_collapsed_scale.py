"""The collapsed move of the scale: the same posterior, with far fewer sweeps to an effective draw."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC
from scipy.special import log_ndtr

from ethogram.inference.choices.px_da import PXDA
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP

KAPPA = 100.0


@pytest.fixture(scope="module")
def separated():
    """Fifteen choices between two options that no draw of the noise has turned round."""
    random = np.random.default_rng(2)
    features = random.normal(size=(15, 2, 2))
    choice = np.argmax(features @ (4.0, -2.0), axis=1)
    return Decisions(features, np.ones((15, 2), bool), choice)


def on_a_grid(data):
    """Means and deviations of two weights: two options have a closed form."""
    axis = np.linspace(-50, 50, 401)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    rows = data.features[np.arange(15), data.choice] - data.features[np.arange(15), 1 - data.choice]
    logs = log_ndtr(grid @ rows.T / np.sqrt(2)).sum(-1) - (grid**2).sum(-1) / (2 * KAPPA)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    mean = np.tensordot(mass, grid, 2)
    return mean, np.sqrt(np.tensordot(mass, (grid - mean) ** 2, 2))


def sampled(data, collapse_scale, num_samples):
    with pytest.warns(UserWarning, match="the choices are separated"):
        kernel = PXDA(NoisyMDP(KAPPA, "features"), winner="rejection", collapse_scale=collapse_scale)
        mcmc = MCMC(
            kernel,
            num_warmup=200,
            num_samples=num_samples,
            num_chains=16,
            chain_method="vectorized",
            progress_bar=False,
        )
        mcmc.run(jax.random.key(0), data, extra_fields=("accept_prob",))
    taken = np.asarray(mcmc.get_extra_fields()["accept_prob"])
    return np.asarray(mcmc.get_samples(group_by_chain=True)["v"]), taken


@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_the_posterior_is_that_of_a_grid(separated, every):
    """Means within four Monte Carlo errors, deviations within 6 %; without c^p means would be 10 % off."""
    mean, deviation = on_a_grid(separated)
    drawn, taken = sampled(separated, every, 400)
    error = deviation / np.sqrt(np.asarray(effective_sample_size(drawn)))
    assert (np.abs(drawn.mean((0, 1)) - mean) < 4 * error).all()
    np.testing.assert_allclose(drawn.std((0, 1)), deviation, rtol=0.06)
    assert 0.2 < taken.mean() < 0.95


def test_only_an_exact_draw_of_the_winner_goes_with_it():
    for winner in ("gibbs", "mh", "paper"):
        with pytest.raises(ValueError, match='use winner="rejection"'):
            PXDA(NoisyMDP(), winner=winner, collapse_scale=2)
    with pytest.raises(ValueError, match="collapse_scale must be at least 0, not -1"):
        PXDA(NoisyMDP(), winner="rejection", collapse_scale=-1)
