"""Chains of phases against sums over segmentations, geometric chains, differences, and the pmf of simulated bouts."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import chisquare, nbinom

from ethogram.models.chains import markov_chain, phases
from ethogram.models.roles.dwell_times import phases_of

MEAN, SIZE = np.array([2.0, 3.0, 2.5]), np.array([3.0, 0.6, 1.0])
INITIAL = np.array([0.2, 0.5, 0.3])
LENGTHS = np.array([6, 4, 1])
COUNT = 80
"""Phases: beyond these nothing is left."""


def dwell_laws(state):
    """P(d), P(dwell >= d), and of the bout that a sequence begins in, P(left = d), P(left >= d), for d from 0."""
    steps = np.arange(2000)
    ends = SIZE[state] / (SIZE[state] + MEAN[state] - 1)
    at_least = nbinom.sf(steps - 2, SIZE[state], ends)
    left = at_least / MEAN[state]
    left[0] = 0
    return nbinom.pmf(steps - 1, SIZE[state], ends), at_least, left, left[::-1].cumsum()[::-1]


def weight(path, moves, laws):
    """Probability of a path of states: a product over its bouts, of which the last is cut."""
    runs = [(state, len(list(run))) for state, run in itertools.groupby(path)]
    value, end = INITIAL[path[0]], 0
    for place, (state, length) in enumerate(runs):
        pmf, at_least, left, left_at_least = laws[state]
        last = place == len(runs) - 1
        whole, cut = (left, left_at_least) if place == 0 else (pmf, at_least)
        value *= cut[length] if last else whole[length]
        end += length
        value *= 1 if last else moves[end - 1, state, runs[place + 1][0]]
    return value


@pytest.fixture(scope="module")
def chain():
    """Arguments of the kernels, and weights of all paths of each sequence."""
    rng = np.random.default_rng(0)
    moves = rng.dirichlet(np.ones(2), (3, 5, 3))
    moves = np.stack([np.insert(moves[:, :, k], k, 0, axis=-1) for k in range(3)], axis=2)
    likelihood = rng.normal(0, 2, (3, 6, 3))
    likelihood[0, 2] = 0  # missing
    likelihood[1, 1] = [-np.inf, 0.3, -np.inf]  # a known state
    likelihood[np.arange(6) >= LENGTHS[:, None]] = 0
    laws = [dwell_laws(state) for state in range(3)]
    weights = [
        {
            path: weight(path, moves[row], laws)
            * np.exp(sum(likelihood[row, time, state] for time, state in enumerate(path)))
            for path in itertools.product(range(3), repeat=length)
        }
        for row, length in enumerate(LENGTHS)
    ]
    each = phases_of(MEAN, SIZE, COUNT)
    each = each._replace(first=each.first + np.log(INITIAL)[:, None])
    with np.errstate(divide="ignore"):
        arguments = each, jnp.asarray(np.log(moves)), jnp.asarray(likelihood), jnp.asarray(LENGTHS)
    return arguments, weights


def test_the_evidence_is_the_sum_over_all_segmentations(chain):
    arguments, weights = chain
    expected = [np.log(sum(each.values())) for each in weights]
    np.testing.assert_allclose(phases.log_normalizer(*arguments), expected, rtol=1e-10)
    found = phases.filter_states(*arguments)
    np.testing.assert_allclose(found.log_evidence, expected, rtol=1e-10)
    np.testing.assert_allclose(found.state[0].sum(-1), 1)


def test_marginals_are_those_of_all_segmentations(chain):
    arguments, weights = chain
    found, filtered = phases.marginals(*arguments), phases.filter_states(*arguments)
    for row, length in enumerate(LENGTHS):
        total = sum(weights[row].values())
        state, pair = np.zeros((6, 3)), np.zeros((5, 3, 3))
        for path, value in weights[row].items():
            for time, here in enumerate(path):
                state[time, here] += value / total
                if time:
                    pair[time - 1, path[time - 1], here] += value / total
        np.testing.assert_allclose(found.state[row], state, atol=1e-10)
        np.testing.assert_allclose(found.pair[row], pair, atol=1e-10)
        np.testing.assert_allclose(filtered.state[row, length - 1], state[length - 1], atol=1e-10)


def test_paths_are_the_most_likely_one_and_draws(chain):
    arguments, weights = chain
    sampled = jax.vmap(lambda key: phases.sample_path(key, *arguments).path)(
        jax.random.split(jax.random.key(0), 4000)
    )
    assert (np.asarray(sampled)[:, 1, 4:] == -1).all()
    for row in (0, 1):
        paths, values = zip(*weights[row].items(), strict=True)
        probability = np.array(values) / sum(values)
        drawn = [paths.index(tuple(path)) for path in np.asarray(sampled)[:, row, : LENGTHS[row]].tolist()]
        often = np.flatnonzero(probability > 0.01)
        counts = np.append(np.bincount(drawn, minlength=len(paths))[often], 0.0)
        counts[-1] = len(drawn) - counts.sum()
        shares = np.append(probability[often], 1 - probability[often].sum())
        assert chisquare(counts, len(drawn) * shares).pvalue > 1e-4  # of fixed keys: fails for one in 10 000
    best = phases.most_likely_path(*arguments)
    assert np.asarray(best.path)[2, 0] == max(weights[2], key=weights[2].get)[0]
    # That of phases is at most as likely as its states, and no less than a part of the evidence.
    for row, length in enumerate(LENGTHS):
        assert (
            best.log_probability[row] <= np.log(weights[row][tuple(best.path[row, :length].tolist())]) + 1e-9
        )


def test_the_most_likely_path_is_that_of_the_phases():
    """Against the expanded chain, whose matrix is written out."""
    few, count = 4, 12
    of = phases_of(MEAN, SIZE, few)
    rng = np.random.default_rng(3)
    moves = np.array([[0, 0.4, 0.6], [0.7, 0, 0.3], [0.5, 0.5, 0]])
    likelihood = rng.normal(0, 2, (5, count, 3))
    lengths = np.array([12, 7, 12, 3, 12])
    leave, stay = np.exp(of.leave), np.exp(of.stay)
    dense = np.zeros((3, few, 3, few))
    dense[:, :, :, 0] = leave[:, :, None] * moves[:, None]
    for state, phase in itertools.product(range(3), range(few)):
        dense[state, phase, state, min(phase + 1, few - 1)] = stay[state, phase]
    first = np.asarray(of.first) + np.log(INITIAL)[:, None]
    with np.errstate(divide="ignore"):
        log_dense, log_moves = np.log(dense.reshape(3 * few, -1)), np.log(moves)
    each = np.repeat(likelihood, few, axis=-1)
    expected = markov_chain.most_likely_path(first.ravel(), log_dense, each, lengths)
    steps = jnp.broadcast_to(log_moves, (5, count - 1, 3, 3))
    found = phases.most_likely_path(
        of._replace(first=jnp.asarray(first)), steps, jnp.asarray(likelihood), lengths
    )
    np.testing.assert_allclose(found.log_probability, expected.log_probability, rtol=1e-12)
    inside = np.arange(count) < lengths[:, None]
    np.testing.assert_array_equal(found.path, np.where(inside, np.asarray(expected.path) // few, -1))


def geometric(mean, moves):
    """Matrix of a chain whose states last as a geometric distribution of this mean."""
    return np.diag(1 - 1 / mean) + moves / mean[:, None]


def test_size_one_is_the_geometric_chain():
    rng = np.random.default_rng(1)
    moves = np.array([[0, 0.4, 0.6], [0.7, 0, 0.3], [0.5, 0.5, 0]])
    likelihood = rng.normal(0, 3, (4, 40, 3))
    of = phases_of(MEAN, np.ones(3), 7)
    of = of._replace(first=of.first + np.log(INITIAL)[:, None])
    with np.errstate(divide="ignore"):
        steps = jnp.broadcast_to(np.log(moves), (4, 39, 3, 3))
    lengths = np.array([40, 17, 1, 40])
    inside = np.arange(40) < lengths[:, None]
    found = phases.log_normalizer(of, steps, jnp.where(inside[..., None], likelihood, 0), lengths)
    expected = markov_chain.log_normalizer(
        np.log(INITIAL), np.log(geometric(MEAN, moves)), likelihood, lengths
    )
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_gradients_are_differences_and_stretches_change_nothing(monkeypatch):
    rng = np.random.default_rng(2)
    likelihood, half = jnp.asarray(rng.normal(0, 1, (1, 150, 2))), jnp.log(1 - jnp.eye(2))
    steps = jnp.broadcast_to(half, (1, 149, 2, 2))

    def value(theta):
        of = phases_of(1 + jnp.exp(theta[:2]), jnp.exp(theta[2:]), 20)
        return phases.log_normalizer(of._replace(first=of.first - jnp.log(2)), steps, likelihood, None)[0]

    theta = jnp.array([1.0, 1.5, 0.7, -0.3])
    whole, gradient = jax.value_and_grad(value)(theta)
    compiled = jax.jit(jax.vmap(value))
    moved = compiled(jnp.concatenate([theta + 1e-5 * jnp.eye(4), theta - 1e-5 * jnp.eye(4)]))
    np.testing.assert_allclose(gradient, (moved[:4] - moved[4:]) / 2e-5, rtol=1e-6)
    monkeypatch.setattr(phases, "KEPT", 0)
    again, in_parts = jax.value_and_grad(lambda each: value(each))(theta)
    assert float(again) == pytest.approx(float(whole), rel=1e-12)
    np.testing.assert_allclose(in_parts, gradient, rtol=1e-10)


def test_single_precision_far_from_zero_and_impossible_data():
    rng = np.random.default_rng(4)
    likelihood = rng.normal(-3e3, 200, (2, 60, 2))  # the worse state of a step is at e^-200 of the other
    likelihood[1, 30] = -np.inf
    steps = np.broadcast_to(np.log(np.maximum(1 - np.eye(2), 1e-300)), (2, 59, 2, 2))
    steps = np.where(steps < -100, -np.inf, steps)

    def run(dtype):
        of = phases_of(jnp.array([5.0, 9.0], dtype), jnp.array([4.0, 0.7], dtype), 30)
        return jax.value_and_grad(lambda x: phases.log_normalizer(of, steps.astype(dtype), x, None)[0])(
            jnp.asarray(likelihood, dtype)
        ), phases.log_normalizer(of, steps.astype(dtype), jnp.asarray(likelihood, dtype), None)

    (single, state), both = run(np.float32)
    (double, expected), _ = run(np.float64)
    assert single == pytest.approx(float(double), rel=1e-6)
    np.testing.assert_allclose(state[0], expected[0], atol=1e-3)
    assert np.isfinite(state).all()
    assert both[1] == -np.inf


def test_simulated_bouts_have_the_dwell_times():
    mean, size = np.array([6.0, 4.0]), np.array([4.0, 0.7])
    steps = jnp.broadcast_to(jnp.log(1 - jnp.eye(2)), (20, 1499, 2, 2))
    emission = dist.Normal(jnp.zeros(2), 1.0)
    made = phases.DwellMarkov(jnp.array([0.5, 0.5]), steps, phases_of(mean, size, 60), emission)
    states = np.asarray(made.sample_with_states(jax.random.key(3))[1])
    for state in range(2):
        runs = [
            [(one, len(list(run))) for one, run in itertools.groupby(path)][1:-1] for path in states.tolist()
        ]
        own = np.array([length for path in runs for one, length in path if one == state])
        edges = np.array([1, 2, 3, 4, 5, 6, 8, 10, 14])
        probability = nbinom.cdf(
            np.append(edges[1:] - 2, 10**6), size[state], size[state] / (size[state] + mean[state] - 1)
        )
        counts = np.histogram(own, np.append(edges, 10**6))[0]
        expected = np.diff(probability, prepend=0) * len(own)
        assert chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-4  # one key in 10 000
