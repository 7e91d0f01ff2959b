"""The sweep for a covariance of alternatives: it keeps the prior, and draws the posterior of weighted prior draws."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.distributions import Beta

import ethogram
from ethogram.inference.choices import covariance_sweep
from ethogram.inference.choices.covariance_sweep import covariance_problem, first_latents, sweep_covariance
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.covariance_noise import CovarianceNoise, CovariancePrior

CHAINS, PRECISION = 2000, 0.25
RNG = np.random.default_rng(0)
DESIGN = RNG.normal(size=(10, 3, 2))
LEGAL = np.ones((10, 3), bool)
LEGAL[0, 2] = LEGAL[1, 0] = False  # the base, and another
CHOICE = np.array([0, 1, 2, 0, 1, 2, 0, 0, 1, 0])


def the_problem():
    problem = covariance_problem(DESIGN, LEGAL, CHOICE, 4.0)
    return problem._replace(precision=np.full(2, PRECISION))


def statistics(theta, covariance):
    """Squared values, variances and the square of the covariance, by chain."""
    return jnp.stack([jnp.sum(theta**2, 0), covariance[:, 0, 0], covariance[:, 0, 1] ** 2])


@pytest.mark.parametrize("exact", [True, False])
def test_alternating_with_simulated_choices_keeps_the_prior(exact, monkeypatch):
    """|z| < 4 of three moments after 30 rounds of 2000 chains; without the Metropolis factor one is beyond 10."""
    if not exact:
        monkeypatch.setattr(
            covariance_sweep, "log_acceptance", lambda square, *_: jnp.full_like(square, jnp.inf)
        )
    problem, prior = the_problem(), CovariancePrior(2, 4.0)
    keys = jax.random.split(jax.random.key(1), 3)
    theta = jax.random.normal(keys[0], (2, CHAINS)) / np.sqrt(PRECISION)
    covariance = prior.sample(keys[1], (CHAINS,))

    def one_round(carry, key):
        theta, covariance = carry
        key_error, key_sweep = jax.random.split(key)
        error = jnp.linalg.cholesky(covariance) @ jax.random.normal(key_error, (CHAINS, 2, 10))
        latents = jnp.einsum("jtp,pc->jtc", problem.design, theta) + jnp.moveaxis(error, 0, -1)
        every = jnp.concatenate([latents, jnp.zeros((1, 10, CHAINS))])
        best = jnp.argmax(jnp.where(problem.legal, every, -jnp.inf), axis=0)
        here = problem._replace(chosen=jnp.arange(3)[:, None, None] == best)
        theta, covariance, *_ = sweep_covariance(key_sweep, here, theta, covariance, latents)
        return (theta, covariance), None

    rounds = jax.jit(lambda *start: jax.lax.scan(one_round, start, jax.random.split(keys[2], 30))[0])
    theta_end, covariance_end = rounds(theta, covariance)
    begun = np.asarray(statistics(theta, covariance))
    ended = np.asarray(statistics(theta_end, covariance_end))
    truth = np.array([2 / PRECISION, 1.0, begun[2].mean()])
    error = np.hypot(ended.std(1), begun.std(1) * [0, 0, 1]) / np.sqrt(CHAINS)
    z = np.abs(ended.mean(1) - truth) / error
    assert (z < 4).all() if exact else z.max() > 10, z


def test_draws_are_those_of_prior_draws_weighted_by_the_likelihood():
    """Ragged sets; 100 chains of 400 sweeps, whose means are within 5 standard errors of both."""
    problem = the_problem()

    @jax.jit
    def weights(key):
        key_theta, key_covariance = jax.random.split(key)
        theta = jax.random.normal(key_theta, (20_000, 2)) / np.sqrt(PRECISION)
        covariance = CovariancePrior(2, 4.0).sample(key_covariance, (20_000,))

        def of_draws(draw):
            offered = ChoiceDistribution(
                jnp.einsum("top,p->to", DESIGN, draw[0]), LEGAL, CovarianceNoise(draw[1])
            )
            return jnp.sum(offered.log_prob(CHOICE))

        return theta, covariance, jax.lax.map(of_draws, (theta, covariance), batch_size=1000)

    @jax.jit
    def sampled(key):
        def step(carry, key):
            found = sweep_covariance(key, problem, *carry)[:3]
            return found, jnp.concatenate([found[0], found[1][:, 0].T])

        start = jnp.zeros((2, 100)), jnp.broadcast_to(jnp.eye(2), (100, 2, 2)), first_latents(problem, 100)
        return jax.lax.scan(step, start, jax.random.split(key, 500))[1][100:]

    theta, covariance, logs = map(np.asarray, weights(jax.random.key(2)))
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    quantities = np.concatenate([theta, covariance[:, 0]], 1)
    truth = mass @ quantities
    error_truth = np.sqrt(mass**2 @ (quantities - truth) ** 2)
    chains = np.asarray(sampled(jax.random.key(3))).mean(0)  # (quantity, chain)
    error = np.hypot(chains.std(1) / 10, error_truth)
    assert (np.abs(chains.mean(1) - truth) < 5 * error).all(), (chains.mean(1) - truth) / error


@pytest.mark.filterwarnings("ignore:the draws have not converged")
def test_a_fit_by_px_da_is_summarised_predicted_and_exported():
    names = ethogram.Metadata(action_names=["air", "bus", "car"])
    data = ethogram.Decisions(DESIGN, LEGAL, CHOICE, metadata=names)
    model = ethogram.Probit(4.0, noise="covariance")
    fit = ethogram.fit(
        jax.random.key(0), model, data, "px-da", num_warmup=50, num_samples=100, progress_bar=False
    )
    assert "noise_covariance[air, bus]" in fit.summary().index
    np.testing.assert_allclose(np.asarray(fit.predict()).sum(1), 1, atol=1e-6)
    posterior = ethogram.to_arviz(fit.result, data, progress_bar=False).posterior
    assert posterior["noise_covariance"].sel(alternative="air", other_alternative="bus").shape == (4, 100)
    drawn = model.simulate(jax.random.key(1), data, {"v": np.ones(2), "noise_covariance": np.eye(2)})
    assert drawn.data.choice.shape == (10,)
    with pytest.raises(ValueError, match="pass a symmetric, positive definite matrix"):
        model.simulate(jax.random.key(1), data, {"v": np.ones(2), "noise_covariance": -np.eye(2)})
    with pytest.raises(ValueError, match=r"parameters\['lapse'\] is 1.5: pass a number in \[0, 1\]"):
        lapsing = ethogram.Probit(4.0, lapse=Beta(1, 9))
        lapsing.simulate(jax.random.key(1), data, {"v": np.ones(2), "lapse": 1.5})
    with pytest.raises(
        ValueError, match="PXDA samples normal noise with a covariance of alternatives beside values of one"
    ):
        ethogram.fit(jax.random.key(0), model, data._replace(subject=np.arange(10) % 2), "px-da")
    with pytest.raises(ValueError, match="moves is 'da'"):
        ethogram.PXDA(model, moves="da")
    with pytest.raises(ValueError, match="covariance of alternatives has a prior"):
        ethogram.fit(jax.random.key(0), model, data, "laplace")
