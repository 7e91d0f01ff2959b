"""Pointwise quantities of models whose groups are scored jointly."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.inference.export import to_arviz
from ethogram.inference.export.pointwise import Pointwise
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.roles.role_hmm import RoleHMM


def test_groups_keep_the_order_of_the_data():
    """Groups are interleaved, roles known, and every role has one symbol: each sequence shows its own."""
    roles, group = np.array([0, 1, 0, 1], np.int32), np.array([0, 1, 1, 0], np.int32)
    symbols = np.repeat(roles[:, None], 3, axis=1)
    data = Trajectories.from_list(list(symbols[..., None]), states=list(symbols), group=group)
    model = RoleHMM(2, CategoricalEmission(2), exclusive="per_sequence", known_roles=True)
    np.testing.assert_array_equal(model.entries(data).sequences, [[0, 3], [1, 2]])
    assert model.arrange(data).num_agents == 2
    pointwise = Pointwise(model, {"probability": np.eye(2)[None]}, data)
    np.testing.assert_array_equal(pointwise.predictive(jax.random.key(0))[0].reshape(4, 3), symbols)
    # One map of the two that are possible in each group, and symbols of probability one.
    np.testing.assert_allclose(pointwise.log_likelihood(), np.full((1, 2), -np.log(2)), rtol=1e-12)
    assert RoleHMM(2, CategoricalEmission(2)).entries(data).sequences is None


@pytest.mark.slow
def test_sequences_that_nothing_was_observed_of_have_no_entry():
    """One of no length, one whose frames are missing: neither is a group of its own, and names stay with numbers."""
    lengths = np.array([3, 0, 2, 3], np.int32)
    observed = np.arange(3) < lengths[:, None]
    observed[2] = False
    agents = {
        "agent": np.array([2, 0, 1, 0], np.int32),
        "metadata": Metadata(agent_names=["ann", "ben", "cat"]),
    }
    data = Trajectories(np.zeros((4, 3, 1), np.int32), None, None, lengths, observed, **agents)
    model = RoleHMM(2, CategoricalEmission(2))
    rows = np.array([[0.25, 0.75], [0.25, 0.75]])
    draws = {"initial": rows[:1], "transition": rows[None], "probability": rows[None]}
    pointwise = Pointwise(model, draws, data)
    np.testing.assert_array_equal(pointwise.counted, [0, 3])
    np.testing.assert_allclose(pointwise.log_likelihood(), np.full((1, 2), 3 * np.log(0.25)), rtol=1e-6)
    posterior = SampledPosterior(model, {name: draw[None] for name, draw in draws.items()}, {})
    scores = to_arviz(posterior, data, log_likelihood="sequence").log_likelihood["observations"]
    assert scores.dims == ("chain", "draw", "sequence") and scores.shape == (1, 1, 2)
    assert scores["sequence"].values.tolist() == [0, 3] and scores["agent"].values.tolist() == ["cat", "ann"]
    named = to_arviz(posterior, data, log_likelihood="sequence", coords={"sequence": list("abcd")})
    assert named.log_likelihood["sequence"].values.tolist() == ["a", "d"]
    with pytest.raises(ValueError, match=r"coords\['sequence'\] has 3 entries, but there are 4"):
        to_arviz(posterior, data, log_likelihood="sequence", coords={"sequence": list("abc")})
