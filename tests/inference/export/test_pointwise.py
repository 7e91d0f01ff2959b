"""Pointwise quantities of models whose groups are scored jointly."""

from __future__ import annotations

import jax
import numpy as np

from ethogram.inference.export.pointwise import Pointwise
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.roles.role_hmm import RoleHMM


def test_groups_keep_the_order_of_the_data():
    """Groups are interleaved, roles known, and every role has one symbol: each sequence shows its own."""
    roles, group = np.array([0, 1, 0, 1], np.int32), np.array([0, 1, 1, 0], np.int32)
    symbols = np.repeat(roles[:, None], 3, axis=1)
    data = Trajectories.from_list(list(symbols[..., None]), states=list(symbols), group=group)
    model = RoleHMM(2, CategoricalEmission(2), exclusive="per_sequence", known_roles=True)
    np.testing.assert_array_equal(model.grouped_sequences(data), [[0, 3], [1, 2]])
    assert model.joint_sequences(model.arrange(data)) == 2
    pointwise = Pointwise(model, {"probability": np.eye(2)[None]}, data)
    np.testing.assert_array_equal(pointwise.predictive(jax.random.key(0))[0].reshape(4, 3), symbols)
    # One map of the two that are possible in each group, and symbols of probability one.
    np.testing.assert_allclose(pointwise.log_likelihood(), np.full((1, 2), -np.log(2)), rtol=1e-12)
    assert RoleHMM(2, CategoricalEmission(2)).grouped_sequences(data) is None
