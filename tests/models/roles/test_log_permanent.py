"""log_permanent against enumeration of all one-to-one maps."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.models.roles import log_permanent as module
from ethogram.models.roles.log_permanent import (
    _BLOCK_TERMS,
    log_permanent,
    log_permanent_and_marginals,
    matching_marginals,
    sample_matching,
)

QUICK = [(3, 3), (3, 5)]
SHAPES = [
    *QUICK,
    *(
        pytest.param(*size, marks=pytest.mark.slow)
        for size in [(1, 1), (1, 2), (4, 4), (2, 6), (6, 6), (3, 16)]
    ),
]


def enumerate_maps(potentials):
    """Maps (map, agent) and the log weight of each, in exact order of their enumeration."""
    num_agents, num_roles = potentials.shape
    maps = np.array(list(itertools.permutations(range(num_roles), num_agents))).reshape(-1, num_agents)
    return maps, potentials[np.arange(num_agents), maps].sum(axis=1)


def enumerated(potentials):
    maps, logs = enumerate_maps(potentials)
    top = logs.max()
    marginals = np.zeros(potentials.shape)
    if top == -np.inf:
        return -np.inf, marginals
    weights = np.exp(logs - top)
    for agent in range(potentials.shape[0]):
        np.add.at(marginals[agent], maps[:, agent], weights / weights.sum())
    return top + np.log(weights.sum()), marginals


def batch_of_potentials(num_agents, num_roles, seed=0):
    """Mild, wide, offset, large, tied and partly forbidden potentials, and two without any possible map."""
    rng = np.random.default_rng([seed, num_agents, num_roles])
    normal = rng.normal(size=(8, num_agents, num_roles))
    normal[1] *= 30.0
    normal[2] += 1000.0
    normal[3] = rng.uniform(-1e3, 1e3, size=normal[3].shape)
    normal[4] = rng.integers(0, 2, size=normal[4].shape)
    normal[5][rng.random(normal[5].shape) < 0.4] = -np.inf
    normal[6][rng.integers(num_agents)] = -np.inf
    normal[7][:, rng.integers(num_roles) :] = -np.inf
    return normal


def assert_matches_enumeration(potentials, value, marginals, relative, absolute):
    expected = [enumerated(entry) for entry in potentials.astype(float)]
    expected_value = np.array([entry[0] for entry in expected])
    size = np.where(np.isfinite(potentials), abs(potentials), 0).max(axis=(1, 2)) * potentials.shape[1] + 1
    possible = np.isfinite(expected_value)
    np.testing.assert_array_equal(np.isneginf(value), ~possible)
    assert np.all(abs(value[possible] - expected_value[possible]) <= relative * size[possible])
    np.testing.assert_allclose(marginals, np.stack([entry[1] for entry in expected]), rtol=0, atol=absolute)
    assert np.all(marginals[~possible] == 0)


@jax.jit
@jax.vmap
def value_and_gradient(potentials):
    return jax.value_and_grad(log_permanent)(potentials)


@pytest.mark.parametrize(("num_agents", "num_roles"), SHAPES)
def test_value_and_gradient_equal_enumeration_in_float64(num_agents, num_roles):
    potentials = batch_of_potentials(num_agents, num_roles)
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        value, gradient = value_and_gradient(potentials)
        assert value.dtype == gradient.dtype == jnp.float64
        assert_matches_enumeration(potentials, np.array(value), np.array(gradient), 3e-15, 1e-12)


def test_float32_keeps_its_dtype_and_precision():
    potentials = batch_of_potentials(3, 5).astype(np.float32)
    value, marginals = log_permanent(potentials), matching_marginals(potentials)
    assert value.dtype == marginals.dtype == jnp.float32
    assert_matches_enumeration(potentials, np.array(value), np.array(marginals), 1e-6, 5e-4)
    assert_matches_enumeration(potentials[:1], np.array(value)[:1], np.array(marginals)[:1], 1e-6, 1e-6)
    total, same = log_permanent_and_marginals(potentials)
    np.testing.assert_allclose(total, value, rtol=1e-6)
    np.testing.assert_array_equal(same, marginals)


def test_known_values():
    with jax.enable_x64(True):
        equal = np.zeros((66, 101, 2, 5), int)  # a shape of another test
        np.testing.assert_allclose(log_permanent(equal), np.log(5 * 4), rtol=1e-14)
        assert float(log_permanent(np.zeros((0, 3)))) == 0.0
        assert matching_marginals(np.zeros((0, 2, 3))).shape == (0, 2, 3)


def test_leading_axes_and_vmap_over_several_blocks_equal_enumeration():
    potentials = np.random.default_rng(1).normal(size=(66, 101, 2, 5)) * 4
    num_entries = 66 * 101
    assert num_entries > _BLOCK_TERMS // 20  # 10 sets of 2 roles are the widest level
    maps = np.array(list(itertools.permutations(range(5), 2)))
    logs = potentials[:, :, np.arange(2), maps].sum(axis=3)
    weights = np.exp(logs - logs.max(axis=2, keepdims=True))
    expected_value = np.log(weights.sum(axis=2)) + logs.max(axis=2)
    probability = weights / weights.sum(axis=2, keepdims=True)
    expected = np.einsum("bcm,mak->bcak", probability, np.eye(5)[maps])
    with jax.enable_x64(True), jax.numpy_rank_promotion("raise"):
        np.testing.assert_allclose(log_permanent(potentials), expected_value, atol=1e-13)
        both = jax.jit(jax.vmap(jax.vmap(jax.value_and_grad(log_permanent)), in_axes=1, out_axes=1))
        value, gradient = both(potentials)
    np.testing.assert_allclose(value, expected_value, atol=1e-13)
    np.testing.assert_allclose(gradient, expected, atol=1e-14)


def test_nan_and_impossible_entries_do_not_touch_their_batch_mates():
    potentials = np.random.default_rng(2).normal(size=(8, 3, 5)).astype(np.float32)
    alone = np.array(matching_marginals(potentials))
    potentials[0, 0, 0] = np.nan
    potentials[2, 1] = -np.inf
    value, marginals = np.array(log_permanent(potentials)), np.array(matching_marginals(potentials))
    assert np.isnan(value[0])
    assert np.isnan(marginals[0]).any()
    assert value[2] == -np.inf
    np.testing.assert_array_equal(marginals[1], alone[1])
    np.testing.assert_array_equal(marginals[2], 0)


def test_second_derivatives_are_covariances_and_stay_finite():
    potentials = batch_of_potentials(2, 3)
    with jax.enable_x64(True):
        direction = np.random.default_rng(8).normal(size=potentials.shape)
        slope = jax.grad(lambda x: log_permanent(x).sum())

        @jax.jit
        def products(potentials):  # of the Hessian and a direction, by reverse and by forward mode
            backward = jax.grad(lambda x: jnp.vdot(direction, slope(x)))(potentials)
            return backward, jax.jvp(slope, (potentials,), (direction,))[1]

        backward, forward = map(np.asarray, products(potentials))
    np.testing.assert_allclose(backward, forward, atol=1e-12)
    for entry, way, product in zip(potentials, direction, forward, strict=True):
        maps, logs = enumerate_maps(entry)
        if np.isneginf(logs.max()):
            np.testing.assert_array_equal(product, 0)
            continue
        weights = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
        chosen = np.eye(3)[maps].reshape(len(maps), -1)
        mean = weights @ chosen
        expected = (chosen * weights[:, None]).T @ chosen - np.outer(mean, mean)
        np.testing.assert_allclose(product.ravel(), expected @ way.ravel(), atol=1e-11)


def test_draws_have_the_probabilities_of_the_maps():
    """And are -1 where no map is possible."""
    potentials = np.random.default_rng(4).normal(size=(3, 4)) * 1.5
    potentials[0, 1] = -np.inf
    num_draws = 20_000
    maps, logs = enumerate_maps(potentials)
    probability = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    batch = np.tile(potentials, (num_draws + 1, 1, 1))
    batch[-1, :, :2] = -np.inf  # three agents in two roles
    draws = np.array(sample_matching(jax.random.key(5), batch))
    np.testing.assert_array_equal(draws[-1], -1)
    draws = draws[:-1]
    assert draws.dtype == np.int32
    counts = (draws[:, None] == maps[None]).all(axis=2).sum(axis=0)
    assert counts.sum() == num_draws
    assert np.all(counts[probability == 0] == 0)
    expected = num_draws * probability[probability > 0]
    chi_square = ((counts[probability > 0] - expected) ** 2 / expected).sum()
    degrees = len(expected) - 1
    assert abs(chi_square - degrees) < 3.5 * np.sqrt(2 * degrees)


def test_equal_shapes_are_traced_once(monkeypatch):
    traces = []
    forward = module._forward
    monkeypatch.setattr(module, "_forward", lambda potentials: traces.append(0) or forward(potentials))
    potentials = np.zeros((3, 1, 2), np.float32)
    for shift in range(3):
        log_permanent(potentials + shift)
        matching_marginals(potentials + shift)
    assert len(traces) == 2


@pytest.mark.parametrize(
    "function", [log_permanent, matching_marginals, lambda w: sample_matching(jax.random.key(0), w)]
)
@pytest.mark.parametrize(
    ("potentials", "error", "message"),
    [
        (np.zeros(3), ValueError, r"shape \(3,\)"),
        (np.zeros((3, 2)), ValueError, "3 agents but 2 roles"),
        (np.zeros((2, 17)), ValueError, "17 roles"),
        (np.zeros((2, 2), complex), TypeError, "complex"),
    ],
)
def test_bad_potentials_are_refused(function, potentials, error, message):
    with pytest.raises(error, match=message):
        function(potentials)
