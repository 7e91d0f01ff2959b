"""Log evidence of chains by log odds, against sums over all paths and the guarded kernel."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from ethogram.models.chains import markov_chain
from ethogram.models.chains.logit_chains import log_evidence

STATES, STEPS, LANES = 3, 5, 4
OFF = ~np.eye(STATES, dtype=bool)


@pytest.fixture
def chains():
    """Log initial probabilities, log odds and log likelihoods, with a gap, a known state, and states far apart."""
    rng = np.random.default_rng(3)
    likelihood = 30 * rng.normal(size=(STEPS, STATES, LANES))
    likelihood[2, :, 0] = 0
    likelihood[3, [0, 2], 1] = -np.inf
    likelihood[1:3, 0, 2] -= 900  # less than any double precision probability
    initial = log_softmax(rng.normal(size=(STATES, LANES)), axis=0)
    return initial, 4 * rng.normal(size=(STEPS - 1, OFF.sum(), LANES)), likelihood


def matrices(odds):
    """Log transitions (time - 1, state, state, lane)."""
    eta = np.zeros((len(odds), STATES, STATES, odds.shape[-1]))
    eta[:, OFF] = odds
    return log_softmax(eta, axis=2)


def by_paths(initial, odds, likelihood):
    """Sum over all paths (lane,)."""
    moves, weights = matrices(odds), []
    for path in itertools.product(range(STATES), repeat=STEPS):
        weight = initial[path[0]] + sum(likelihood[time, state] for time, state in enumerate(path))
        weights.append(weight + sum(moves[t, path[t], path[t + 1]] for t in range(STEPS - 1)))
    return logsumexp(weights, axis=0)


def test_the_evidence_is_the_sum_over_paths(chains):
    with jax.enable_x64(True):
        np.testing.assert_allclose(log_evidence(*chains), by_paths(*chains), rtol=1e-13)


def test_the_gradient_is_that_of_the_guarded_kernel(chains):
    def guarded(initial, odds, likelihood):
        eta = jnp.zeros((STEPS - 1, STATES, STATES, LANES)).at[:, *np.nonzero(OFF)].set(odds)
        moves = jax.nn.log_softmax(eta, axis=2)
        parts = initial.T, jnp.moveaxis(moves, -1, 0), jnp.moveaxis(likelihood, -1, 0)
        return markov_chain.log_normalizer(*parts)

    with jax.enable_x64(True):
        each = [jax.vjp(function, *chains)[1] for function in (log_evidence, guarded)]
        weights = np.arange(1.0, LANES + 1)
        for ours, theirs in zip(*(gradient(weights) for gradient in each), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-12)


def test_what_is_left_to_the_guarded_kernel_is_not_a_number(chains):
    initial, odds, likelihood = chains
    rare, impossible = odds.copy(), likelihood.copy()
    rare[1, 0, 0] = -300
    impossible[4, :, 1] = -np.inf
    with jax.enable_x64(True):
        assert np.isnan(log_evidence(initial, rare, likelihood)).tolist() == [True, False, False, False]
        assert np.isnan(log_evidence(initial, odds, impossible)).tolist() == [False, True, False, False]
