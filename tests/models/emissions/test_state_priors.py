"""Gaussian priors that differ by state: as a weight, against closed forms, and in the numbering of fitted roles."""

import jax
import numpy as np
import pytest

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission, GaussianMixtureEmission
from ethogram.models.roles import RoleHMM

MEANS = np.array([[40.0, 0.0], [0.0, 10.0], [-30.0, -5.0]])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    roles = np.repeat(np.arange(3), 4)
    return Trajectories.from_list([MEANS[role] + rng.normal(0, 3, (15, 2)) for role in roles])


def test_block_of_each_state_has_its_own_prior():
    strength, scale = np.array([1.0, 2.0, 5.0]), np.stack([np.eye(2), 2 * np.eye(2), 9 * np.eye(2)])
    emission = GaussianEmission(2, mean=MEANS, strength=strength, scale=scale)
    block = emission.prior(3)["mean_covariance"]
    mean, found_strength, _, found_scale = jax.jit(type(block).standard)(block)
    np.testing.assert_allclose(mean, MEANS, atol=1e-10)
    np.testing.assert_allclose(found_strength, strength)
    np.testing.assert_allclose(found_scale, scale, atol=1e-9)
    assert emission.differs_by_state and not GaussianEmission(2).differs_by_state


def test_starts_are_numbered_as_their_priors(data):
    for order in ([0, 1, 2], [2, 0, 1]):
        model = RoleHMM(3, GaussianEmission(2, mean=MEANS[order], strength=1.0)).bind(data)
        batch = model.arrange(data)
        sums = model.start_statistics(np.random.default_rng(0), "sticky", [batch])["mean_covariance"]
        found = sums.location / sums.strength[:, None] + np.asarray(model.emission.origin)
        np.testing.assert_allclose(found, MEANS[order], atol=3)


def test_far_prior_of_all_states_warns(data):
    model = RoleHMM(3, GaussianEmission(2, mean=MEANS + 1e4, strength=1.0))
    with pytest.warns(UserWarning, match="the prior lies far from the data"):
        model.bind(data)


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match="mean has shape"):
        GaussianEmission(2, mean=np.zeros((3, 5)))
    with pytest.raises(ValueError, match="priors of 3 states, the model 4 states"):
        RoleHMM(4, GaussianEmission(2, mean=MEANS))
    with pytest.raises(ValueError, match="strength has shape"):
        GaussianMixtureEmission(2, 2, strength=np.ones(3))
