"""Two roles: moments within roles, persistence, and the same data up to offset and scale."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks import two_roles


def test_features_and_switches_are_as_documented():
    """Five standard errors."""
    made = [two_roles.simulate(jax.random.key(seed)) for seed in range(40)]
    roles = np.concatenate([one.roles for one in made])
    features = np.concatenate([one.data.observations for one in made])
    for role, mean in enumerate([(0.0, 0.0), (3.0, 0.0)]):
        inside = features[roles == role]
        np.testing.assert_allclose(inside.mean(0), mean, atol=5 / np.sqrt(len(inside)))
        np.testing.assert_allclose(np.cov(inside.T), np.eye(2), atol=5 * np.sqrt(2 / len(inside)))
    kept = roles[:, 1:] == roles[:, :-1]
    assert abs(kept.mean() - 0.95) < 5 * np.sqrt(0.95 * 0.05 / kept.size)
    assert abs(roles.mean() - 0.5) < 0.1


def test_offset_and_scale_change_nothing_else():
    plain, moved = (two_roles.simulate(jax.random.key(0), *place) for place in [(), (-4e3, 1e3)])
    np.testing.assert_array_equal(plain.roles, moved.roles)
    assert moved.data.observations.dtype == np.float64
    np.testing.assert_allclose(moved.data.observations, 1e3 * plain.data.observations - 4e3, rtol=1e-12)


def test_the_key_is_typed():
    with pytest.raises(TypeError, match="key"):
        two_roles.simulate(0)
