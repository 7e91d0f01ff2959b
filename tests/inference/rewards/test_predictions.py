"""Rewards as a function of features against dense algebra, and predictions that share compiled programs."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.inference.rewards import feature_rewards, policies, predict_reward, transfer_reward
from ethogram.models.mdps import MDP
from ethogram.models.rewards import GPIRL

NOISE = 0.3


def world(num_states):
    moves = np.arange(num_states)
    return MDP.deterministic(np.stack([np.maximum(moves - 1, 0), moves[::-1]], 1), discount=0.7)


def draws(model, count, seed=0):
    """Of two hyper-parameters, which take turns."""
    random = np.random.default_rng(seed)
    which = np.arange(count) % 2
    return {
        "scale": np.array([2.0, 5.0])[which],
        "relevance": np.array([[0.7], [0.2]])[which],
        "reward": random.normal(size=(count, model.num_points)),
    }


def kernel(points, scale, relevance, noise):
    """Covariances with the noise of every feature between points that differ, and `scale` on the diagonal."""
    apart = scale * np.exp(-0.5 * relevance * (points - points.T) ** 2 - noise * relevance)
    return apart, np.where(np.eye(len(points)), scale, apart)


def test_rewards_as_a_function_of_features_against_dense_algebra():
    """Draw by draw f | r is Gaussian, with mean K_f K^-1 r and covariance K_f - K_f K^-1 K_f; of two experts each."""
    points = np.array([[0.0], [1.0], [2.5]])
    with jax.enable_x64(True):
        model = GPIRL(world(3), points, noise=NOISE, scale_prior=2.0, relevance_prior=0.7)
        one = {
            "scale": 2.0,
            "relevance": np.array([0.7]),
            "reward": np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]]),
        }
        samples = {name: np.broadcast_to(x, (20_000, *np.shape(x))) for name, x in one.items()}
        found = np.asarray(feature_rewards(jax.random.key(0), model, samples))
    smooth, full = kernel(points, 2.0, 0.7, NOISE)
    smooth[np.eye(3, dtype=bool)] = 2.0 * np.exp(-NOISE * 0.7)
    gain = smooth @ np.linalg.inv(full)
    rest = smooth - gain @ smooth
    assert found.shape == (20_000, 2, 3)
    for expert in range(2):
        error = np.sqrt(np.diag(rest) / len(found))
        assert (abs(found[:, expert].mean(0) - gain @ one["reward"][expert]) < 4.5 * error).all()
        np.testing.assert_allclose(np.cov(found[:, expert].T), rest, atol=0.05 * rest.max())


def test_draws_keep_their_order_whatever_hyper_parameters_they_share():
    points, new = np.array([[0.0], [1.0], [2.5], [4.0]]), np.array([[0.5], [3.0]])
    with jax.enable_x64(True):
        model = GPIRL(world(4), points, noise=NOISE)
        samples = draws(model, 7)
        means = [
            np.asarray(
                predict_reward(jax.random.key(0), model, {k: x[[at]] for k, x in samples.items()}, new).mean
            )
            for at in range(7)
        ]
        all_of_them = predict_reward(jax.random.key(0), model, samples, new)
        drawn = [predict_reward(jax.random.key(at), model, samples, new).draws for at in range(200)]
    np.testing.assert_allclose(all_of_them.mean, np.mean(means, 0), rtol=1e-9)
    error = np.std(drawn, axis=0, ddof=1) / np.sqrt(200)
    assert (abs(np.mean(drawn, axis=0) - means) < 4.5 * error).all()


@pytest.mark.parametrize("call", ["predict", "transfer", "policies"])
def test_other_numbers_of_draws_and_points_compile_nothing(call, compiler_events):
    def once(count, seed):
        model = GPIRL(world(3), np.array([[0.0], [1.0], [2.0 + seed]]))
        samples, key = draws(model, count, seed), jax.random.key(seed)
        if call == "predict":
            return predict_reward(key, model, samples, np.linspace(0, 1, 5 + seed)[:, None], noise_free=True)
        if call == "transfer":
            return transfer_reward(key, model, samples, world(4), np.linspace(0, 1, 4)[:, None])
        return policies(model.mdp, samples["reward"])

    once(9, 0)
    compiler_events.clear()
    found = once(11, 1)
    assert not compiler_events["backend_compile_duration"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found))


def test_policies_of_experts_with_rewards_of_pairs_are_those_of_each():
    rewards = np.random.default_rng(0).normal(size=(4, 2, 3, 2))
    both, one = policies(world(3), rewards), policies(world(3), rewards[:, 1])
    for found, expected in zip(both, one, strict=True):
        np.testing.assert_allclose(found[1], expected, atol=1e-5)
