"""Posterior predictive intervals hold what they promise, over data of many true models."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.roles.role_hmm import RoleHMM

NUM_REPLICATES, NUM_DRAWS = 120, 400
NUM_SEQUENCES, NUM_STEPS, NUM_NEW = 8, 12, 20
STRENGTH, DOF, SCALE, STICKY = 0.2, 6.0, 4.0, 3.0


def simulate(rng, initial, transition, mean, deviation):
    """Observations (chain, time) of chains with parameters of their own."""
    num_chains = len(initial)
    states = np.empty((num_chains, NUM_STEPS), dtype=int)
    rows = initial
    for t in range(NUM_STEPS):
        states[:, t] = rng.random(num_chains) >= rows[:, 0]
        rows = transition[np.arange(num_chains), states[:, t]]
    pick = np.arange(num_chains)[:, None], states
    return mean[pick] + deviation[pick] * rng.normal(size=states.shape)


def true_parameters(rng):
    """Two roles, drawn from the prior of the model."""
    variance = 0.5 * SCALE / rng.gamma(DOF / 2, size=2)
    mean = rng.normal(size=2) * np.sqrt(variance / STRENGTH)
    transition = np.stack([rng.dirichlet([1 + STICKY, 1]), rng.dirichlet([1, 1 + STICKY])])
    return rng.dirichlet([1, 1]), transition, mean, np.sqrt(variance)


@jax.jit
def replicates(key, posterior, one):
    """A new sequence (draw, time) from the model at every posterior draw."""
    draws = posterior.sample(key, NUM_DRAWS)
    keys = jax.random.split(key, NUM_DRAWS)
    return jax.vmap(lambda key, at: posterior.model.likelihood(at, one).sample(key))(keys, draws)[:, 0, :, 0]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:the prior outweighs", "ignore:the prior lies far"
)  # data are draws from it
def test_intervals_of_ninety_percent_hold_ninety_percent():
    lengths = np.full(NUM_SEQUENCES, NUM_STEPS, np.int32)
    held = np.empty(NUM_REPLICATES)
    with jax.enable_x64(True):
        model = RoleHMM(
            2, GaussianEmission(1, mean=0.0, strength=STRENGTH, dof=DOF, scale=SCALE), sticky=STICKY
        )
        engine = ConjugateSVI(model)
        for replicate in range(NUM_REPLICATES):
            rng = np.random.default_rng([5, replicate])
            truth = true_parameters(rng)
            x = simulate(rng, *(np.repeat(part[None], NUM_SEQUENCES + NUM_NEW, axis=0) for part in truth))
            train, new = x[:NUM_SEQUENCES, :, None], x[NUM_SEQUENCES:]
            data = Trajectories(train, None, None, lengths, np.ones(train.shape[:2], bool))
            fit = engine.run(jax.random.key(replicate), data, 60, restarts=4, progress_bar=False)
            each = replicates(jax.random.key(replicate), fit.posterior, data.take([0]))
            low, high = np.quantile(each, [0.05, 0.95], axis=0)
            held[replicate] = ((new > low) & (new < high)).mean()
    assert 0.85 <= held.mean() <= 0.95, held.mean()
    assert held.std() / np.sqrt(NUM_REPLICATES) < 0.01
