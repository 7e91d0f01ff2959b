"""Most likely paths against the best of all, sampled paths against the share of each."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.stats import chisquare

from ethogram.models.chains.markov_chain import most_likely_path, sample_path

DRAWS = 20_000


@pytest.fixture(autouse=True)
def strict_ranks():
    with jax.numpy_rank_promotion("raise"):
        yield


@pytest.fixture(scope="module")
def problems(chain_oracle):
    kinds = {kind: chain_oracle.random_chains(7, kind == "driven") for kind in ("fixed", "driven")}
    return {kind: (chains, chain_oracle.enumerate_batch(*chains)) for kind, chains in kinds.items()}


@pytest.mark.parametrize("kind", ["fixed", "driven"])
def test_the_most_likely_path_is_the_best_of_all(problems, kind, compilations):
    chains, truth = problems[kind]
    result = most_likely_path(*chains)
    compilations.clear()
    most_likely_path(*chains)
    assert compilations == [], "a second call of one shape compiles nothing"
    assert (result.path.dtype, result.log_probability.dtype) == (np.int32, np.float64)
    np.testing.assert_array_equal(result.path, truth.best_path)
    np.testing.assert_allclose(result.log_probability, truth.best_weight, rtol=1e-12, atol=1e-12)


def test_ties_go_to_the_lowest_state_from_the_end(chain_oracle):
    random = np.random.default_rng(8)
    shapes = ((10, 1, 3), (10, 1, 3, 3), (10, 6, 6, 3))
    chains = chain_oracle.Chains(
        *(random.integers(-1, 1, size=shape).astype(float) for shape in shapes), np.full((10, 6), 6)
    )
    truth = chain_oracle.enumerate_batch(*chains)
    np.testing.assert_array_equal(most_likely_path(*chains).path, truth.best_path)


def frequencies(paths, num_states):
    """How often each path came, in the order of the oracle's list."""
    length = paths.shape[1]
    place = np.asarray(paths, int) @ num_states ** np.arange(length)
    return np.bincount(place, minlength=num_states**length)


@pytest.mark.parametrize("kind", ["fixed", "driven"])
def test_sampled_paths_come_as_often_as_they_should(kind, chain_oracle, compilations):
    """Fixed transitions: one key for a batch of equal sequences; driven ones: one key per draw, under vmap."""
    random = np.random.default_rng(9)
    num_steps, num_states, length = 5, 3, 4
    square = (num_states, num_states)
    log_initial = random.normal(size=num_states)
    log_transition = random.normal(size=(num_steps - 1, *square) if kind == "driven" else square)
    log_likelihood = 0.5 * random.normal(size=(num_steps, num_states))
    log_likelihood[1] = 0
    log_transition[..., 0, 2] = -np.inf
    key = jax.random.key(10)
    if kind == "fixed":
        many = np.broadcast_to(log_likelihood, (DRAWS, num_steps, num_states))
        paths, weight = sample_path(key, log_initial, log_transition, many, length)
        compilations.clear()
        again, _ = sample_path(jax.random.key(11), log_initial, log_transition, many, length)
        assert len(compilations) <= 1, "a second call of one shape compiles nothing but its key"
        assert np.mean(np.any(np.asarray(again) != np.asarray(paths), -1)) > 0.5
    else:

        @jax.jit
        @jax.vmap
        def draw(key):
            return sample_path(key, log_initial, log_transition, log_likelihood, length)

        paths, weight = draw(jax.random.split(key, DRAWS))

    paths, weight = np.asarray(paths), np.asarray(weight)
    assert np.all(paths[:, length:] == -1)
    listed = chain_oracle.paths_of(num_states, length)
    potentials = (log_initial, log_transition, log_likelihood)
    expected = chain_oracle.weights_of(listed, *potentials)
    share = np.exp(expected - chain_oracle.log_sum(expected, 0))
    seen = frequencies(paths[:, :length], num_states)
    assert np.array_equal(listed @ num_states ** np.arange(length), np.arange(len(listed)))
    assert not np.any(seen[share == 0])
    common = share * DRAWS >= 5
    rest = share[~common].sum() * DRAWS
    counts = np.append(seen[common], seen[~common].sum())
    assert chisquare(counts, np.append(share[common] * DRAWS, rest)).pvalue > 1e-3
    np.testing.assert_allclose(
        weight[:50], chain_oracle.weights_of(paths[:50, :length], *potentials), rtol=1e-5, atol=1e-5
    )


@pytest.mark.slow
def test_sampled_paths_are_possible_and_marked(problems, chain_oracle):
    """Every sort of zero, ragged lengths and impossible data; padding does not change the draw."""
    chains, truth = problems["fixed"]
    key = jax.random.key(11)
    longer = np.pad(chains.log_likelihood, ((0, 0), (0, 0), (0, 3), (0, 0)), constant_values=7.0)
    result = sample_path(key, *chains)
    padded = sample_path(key, chains.log_initial, chains.log_transition, longer, chains.length)
    result, padded = jax.tree.map(np.asarray, (result, padded))
    np.testing.assert_array_equal(padded.path[..., :6], result.path)
    np.testing.assert_allclose(padded.log_probability, result.log_probability, rtol=1e-6)
    assert np.all(padded.path[..., 6:] == -1)
    for r, n in np.ndindex(chains.length.shape):
        length = chains.length[r, n]
        path, weight = result.path[r, n], result.log_probability[r, n]
        if truth.log_normalizer[r, n] == -np.inf:
            assert np.all(path == -1)
            assert weight == -np.inf
            continue
        assert np.all(path[length:] == -1)
        potentials = (chains.log_initial[r, 0], chains.log_transition[r, 0], chains.log_likelihood[r, n])
        expected = chain_oracle.weights_of(path[None, :length], *potentials)[0]
        assert np.isfinite(expected)
        np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-5)


def test_one_step_needs_no_transition():
    log_initial, log_likelihood = np.log([0.2, 0.8]), np.log([[0.9, 0.1]])
    best = most_likely_path(log_initial, np.zeros((0, 2, 2)), log_likelihood)
    assert best.path.tolist() == [0]
    np.testing.assert_allclose(best.log_probability, np.log(0.18), rtol=1e-6)
