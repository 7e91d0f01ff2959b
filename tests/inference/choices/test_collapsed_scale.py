"""The collapsed move of the scale: the same posterior, with far fewer sweeps to an effective draw."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC
from scipy.special import log_ndtr

from ethogram.inference.choices import px_da
from ethogram.inference.choices.collapsed_scale import move_scale
from ethogram.inference.choices.gibbs_sweep import ParameterDraw
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
    """Weights on a grid and their posterior mass: two options have a closed form."""
    axis = np.linspace(-50, 50, 401)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    rows = data.features[np.arange(15), data.choice] - data.features[np.arange(15), 1 - data.choice]
    logs = log_ndtr(grid @ rows.T / np.sqrt(2)).sum(-1) - (grid**2).sum(-1) / (2 * KAPPA)
    mass = np.exp(logs - logs.max())
    return grid.reshape(-1, 2), mass.ravel() / mass.sum()


@pytest.mark.filterwarnings("ignore:the choices are separated")
def test_the_move_of_the_scale_keeps_the_posterior(separated):
    """Of 20000 draws from the grid, moments before and after within 4.5 errors of their differences."""
    kernel = PXDA(NoisyMDP(KAPPA, "features"), winner="rejection", collapse_scale=2)
    problem = kernel.init(jax.random.key(0), 0, None, (separated,), {}).carried.problem
    grid, mass = on_a_grid(separated)
    random = np.random.default_rng(0)
    theta = (grid[random.choice(len(grid), 20_000, p=mass)] + random.uniform(-0.125, 0.125, (20_000, 2))).T
    moved, taken = map(np.asarray, jax.jit(move_scale)(jax.random.key(1), problem, theta))
    ratio = np.log(moved / theta)
    np.testing.assert_allclose(ratio[0], ratio[1], atol=1e-12)  # one scale of both weights
    assert 0.3 < taken.mean() < 0.95 and ((ratio[0] != 0) == taken).all() and ratio[0].std() > 0.1
    for change in (ratio[0], *(moved - theta), *(moved**2 - theta**2)):
        assert abs(change.mean()) < 4.5 * change.std() / np.sqrt(20_000)


@pytest.mark.filterwarnings("ignore:the choices are separated")
def test_every_second_sweep_moves_the_scale(separated, monkeypatch):
    """With sweeps that add one, and moves that double what is there and are accepted in every second chain."""

    def sweep(key, problem, theta, latents, move, **options):
        return ParameterDraw(theta + 1, latents, jnp.ones(theta.shape[-1:])), jnp.ones(theta.shape[-1:])

    monkeypatch.setattr(px_da, "sweep", sweep)
    monkeypatch.setattr(
        px_da, "move_scale", lambda key, problem, theta: (2 * theta, jnp.arange(theta.shape[-1]) % 2 == 0)
    )
    kernel = PXDA(NoisyMDP(KAPPA, "features"), winner="rejection", collapse_scale=2)
    state = kernel.init(jax.random.split(jax.random.key(0), 2), 0, None, (separated,), {})
    one, seen = jax.jit(lambda state: kernel.sample(state, (separated,), {})), []
    for _ in range(4):
        state = one(state)
        seen.append((*np.asarray(state.z["theta"])[:, 0], *np.asarray(state.accept_prob)))
    assert seen == [(1, 1, 1, 1), (4, 4, 1, 0), (5, 5, 1, 0), (12, 12, 1, 0)]


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


@pytest.mark.slow
def test_the_posterior_is_that_of_a_grid(separated):
    """Means within four Monte Carlo errors, deviations within 6 %; without c^p means would be 10 % off."""
    grid, mass = on_a_grid(separated)
    mean = mass @ grid
    deviation = np.sqrt(mass @ (grid - mean) ** 2)
    drawn, taken = sampled(separated, 2, 400)
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
