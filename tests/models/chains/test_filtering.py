"""Filtering against the evidence of every prefix, forecasting against matrix powers."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest

from ethogram.models.chains.markov_chain import Filtered, filter_states, forecast_states

DOUBLE = {"rtol": 1e-11, "atol": 1e-12}


@pytest.fixture(autouse=True)
def strict_ranks():
    with jax.numpy_rank_promotion("raise"):
        yield


def close(actual, desired, **tolerance):
    jax.tree.map(functools.partial(np.testing.assert_allclose, **tolerance), actual, desired)


def filtered_by_prefix(oracle, log_initial, log_transition, log_likelihood, length):
    """What the list of all paths says at the end of every prefix of one sequence."""
    num_steps, num_states = log_likelihood.shape
    uniform = np.full(num_states, 1 / num_states)
    state, predicted = np.zeros((num_steps, num_states)), np.zeros((num_steps, num_states))
    increment = np.zeros(num_steps)
    evidence, expected = 0.0, np.exp(log_initial)
    for t in range(length):
        prefix = oracle.enumerate_chain(log_initial, log_transition, log_likelihood, t + 1)
        possible = prefix.log_normalizer > -np.inf
        predicted[t] = expected if expected.any() else uniform
        state[t] = prefix.state[t] if possible else uniform
        increment[t] = prefix.log_normalizer - evidence if possible else -np.inf
        evidence = prefix.log_normalizer
        if t + 1 < num_steps:
            matrix = log_transition if log_transition.ndim == 2 else log_transition[t]
            expected = prefix.state[t] @ np.exp(matrix)
    return Filtered(evidence, state, predicted, increment)


@pytest.mark.parametrize("kind", ["fixed", "driven"])
def test_increments_are_conditional_densities(kind, chain_oracle, compilations):
    chains = chain_oracle.random_chains(3, kind == "driven", num_chains=8, num_sequences=4)
    result = filter_states(*chains)
    compilations.clear()
    filter_states(*chains)
    assert compilations == [], "a second call of one shape compiles nothing"
    result = Filtered(*(np.asarray(x) for x in result))
    np.testing.assert_allclose(result.log_increment.sum(-1), result.log_evidence, rtol=1e-6)
    for r, n in np.ndindex(chains.length.shape):
        transition = chains.log_transition[r, n if kind == "driven" else 0]
        data = (chains.log_likelihood[r, n], chains.length[r, n])
        truth = filtered_by_prefix(chain_oracle, chains.log_initial[r, 0], transition, *data)
        close(tuple(x[r, n] for x in result), tuple(truth), **DOUBLE)


def test_rows_behind_an_impossible_step_are_uniform():
    log_likelihood = np.zeros((4, 2))
    log_likelihood[1] = -np.inf
    log_transition = np.log([[0.9, 0.1], [0.4, 0.6]])
    result = filter_states(np.log([0.5, 0.5]), log_transition, log_likelihood)
    assert result.log_evidence == -np.inf
    close(result.log_increment, np.array([0, -np.inf, -np.inf, -np.inf]), atol=1e-6)
    close(result.state, np.full((4, 2), 0.5), atol=1e-6)
    close(result.predicted, np.array([[0.5, 0.5], [0.65, 0.35], [0.5, 0.5], [0.5, 0.5]]), atol=1e-6)


def normalized(log_weight):
    """Rows that sum to one; those of zeros become uniform."""
    log_weight = np.where(np.any(log_weight > -np.inf, -1, keepdims=True), log_weight, 0)
    return log_weight - np.logaddexp.reduce(log_weight, -1, keepdims=True)


def test_forecasts_are_matrix_powers(chain_oracle, compilations):
    chains = chain_oracle.random_chains(4, False, num_chains=8, num_sequences=7)
    initial, transition = normalized(chains.log_initial), normalized(chains.log_transition)
    result = forecast_states(initial, transition, chains.log_likelihood, 5, chains.length)
    compilations.clear()
    forecast_states(initial, transition, chains.log_likelihood, 5, chains.length)
    assert compilations == [], "a second call of one shape compiles nothing"
    assert result.shape == (8, 7, 5, 3)
    for r, n in np.ndindex(chains.length.shape):
        matrix, length = np.exp(transition[r, 0]), chains.length[r, n]
        chain = (initial[r, 0], transition[r, 0], chains.log_likelihood[r, n], length)
        truth = chain_oracle.enumerate_chain(*chain)
        for step in range(1, 6):
            if length == 0:
                expected = np.exp(initial[r, 0]) @ np.linalg.matrix_power(matrix, step - 1)
            else:
                possible = truth.log_normalizer > -np.inf
                last = truth.state[length - 1] if possible else np.full(3, 1 / 3)
                expected = last @ np.linalg.matrix_power(matrix, step)
            close(result[r, n, step - 1], expected, **DOUBLE)


def test_forecasts_far_ahead_reach_the_stationary_distribution():
    transition = np.array([[0.9, 0.1], [0.3, 0.7]])
    far = forecast_states(np.log([0.5, 0.5]), np.log(transition), np.zeros((1, 2)), 200)[-1]
    close(far, np.array([0.75, 0.25]), atol=1e-6)


def test_gradients_stay_finite_beside_zeros():
    """Structural zeros, an impossible sequence and missing steps beside an ordinary one."""
    zero = -np.inf
    log_transition = np.array([[zero, 0.0, zero], [-1.0, -1.0, -1.0], [zero, zero, 0.0]])
    log_likelihood = np.random.default_rng(5).normal(size=(3, 4, 3))
    log_likelihood[1, 2] = zero
    log_likelihood[2, 1:3] = 0

    @functools.partial(jax.jit, static_argnames="of")
    @functools.partial(jax.grad, argnums=(0, 1, 2))
    def gradient(log_initial, log_transition, log_likelihood, of):
        potentials = (log_initial, log_transition, log_likelihood)
        if of == "evidence":
            return filter_states(*potentials).log_evidence.sum()
        return forecast_states(*potentials, 3)[..., 0].sum()

    log_initial = np.array([0.0, zero, zero])
    for of in ("evidence", "forecast"):
        parts = gradient(log_initial, log_transition, log_likelihood, of)
        assert all(np.all(np.isfinite(part)) for part in parts), of
        assert np.asarray(parts[1]).any(), of


def test_one_step_needs_no_transition():
    result = filter_states(np.log([0.2, 0.8]), np.zeros((0, 2, 2)), np.log([[0.9, 0.1]]))
    close(result.state, np.array([[9 / 13, 4 / 13]]), rtol=1e-6)
    close(result.log_evidence, np.log(0.26), rtol=1e-6)


def test_forecast_errors_name_the_cure():
    half = np.log(np.full((2, 2), 0.5))
    with pytest.raises(ValueError, match="steps must be at least 1, not 0"):
        forecast_states(half[0], half, np.zeros((3, 2)), 0)
    with pytest.raises(ValueError, match="forecast needs fixed transitions"):
        forecast_states(half[0], np.stack([half, half]), np.zeros((3, 2)), 1)
