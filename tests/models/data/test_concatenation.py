"""Trajectories joined: arrays put together by hand, and a tuple whose length is that of the data."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import jax
import numpy as np
import pytest

from ethogram.models.data import Trajectories

ONE = Trajectories.from_list([[[0.0, 1.0], [2.0, 3.0]]], agent=["cat"], actions=[["x", "y"]], group=["g"])
OTHER = Trajectories.from_list(
    [[[0.0, 1.0]], [[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]],
    agent=["ape", "cat"], actions=[["z"], ["y", "y", "x"]], group=["h", "g"],
)  # fmt: skip


def herd(start, group="g"):
    table = {"t": np.arange(3.0) + start, "x": [1.0, 2.0, 3.0], "g": [group] * 3}
    return Trajectories.from_table(table, time="t", features="x", group="g", step=1)


def with_metadata(data, **changes):
    return data._replace(metadata=dataclasses.replace(data.metadata, **changes))


def test_sequences_follow_each_other_and_codes_follow_their_names():
    both = Trajectories.concatenate([ONE, OTHER])
    assert both.lengths.tolist() == [2, 1, 3] and both.metadata.agent_names == ("cat", "ape")
    assert both.agent.tolist() == [0, 1, 0] and both.group.tolist() == [0, 1, 0]
    assert both.metadata.action_names == ("x", "y", "z")
    assert both.actions.tolist() == [[0, 1, -1], [2, -1, -1], [1, 1, 0]]
    assert both.observations[0].tolist() == [[0, 1], [2, 3], [0, 0]] and both.observed.sum(1).tolist() == [
        2,
        1,
        3,
    ]
    timed = Trajectories.concatenate([herd(0.0), herd(5.0, "h")])
    assert timed.times.tolist() == [[0, 1, 2], [5, 6, 7]] and timed.metadata.frame_rate == 1


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        ([ONE, OTHER._replace(actions=None)], ValueError, r"items\[1\].actions is None, that of items\[0\] is 'given'"),
        ([ONE._replace(group=None), OTHER], ValueError, r"items\[1\].group is 'given', that of items\[0\] is None"),
        ([ONE, with_metadata(OTHER, frame_rate=3)], ValueError, r"items\[1\].metadata.frame_rate is 3.0, .* is None"),
        ([ONE, with_metadata(OTHER, time_zone="UTC")], ValueError, r"items\[1\].metadata.time_zone is 'UTC'"),
        ([ONE, with_metadata(OTHER, feature_names=["a", "b"])], ValueError, r"items\[1\].metadata.feature_names"),
        ([ONE, with_metadata(OTHER, agent_names=None)], ValueError, r"items\[1\].metadata.agent_names is None"),
        ([ONE, ONE._replace(observations=ONE.observations[..., :1])], ValueError, r"shape\[2\] is 1, that of .* is 2"),
        ([ONE, 3], TypeError, r"items\[1\] is int"),
        (ONE, TypeError, r"items\[0\] is ndarray: give a list of Trajectories"),
        ([], ValueError, "items is empty"),
        ([herd(0.0), herd(5.0)], ValueError, r"group 'g' is in several items, which count its frames"),
    ],
)  # fmt: skip
def test_items_that_do_not_fit_are_named(items, error, message):
    with pytest.raises(error, match=message):
        Trajectories.concatenate(items)


def test_a_length_is_of_sequences_and_a_sum_is_refused():
    """And the tuple is one for JAX, copy and pickle all the same."""
    assert len(ONE) == 1 and len(OTHER) == 2
    with pytest.raises(TypeError, match=r"Trajectories.concatenate\(\[one, other\]\)"):
        ONE + OTHER
    for make in (
        copy.copy,
        copy.deepcopy,
        lambda data: pickle.loads(pickle.dumps(data)),
        lambda data: jax.tree.map(np.asarray, data),
        lambda data: jax.jit(lambda data: data._replace(stay=None))(data),
        lambda data: jax.vmap(lambda data: data)(data),
        lambda data: Trajectories._make(tuple(data)),
    ):
        same = make(OTHER)
        assert isinstance(same, Trajectories) and len(same) == 2 and same.metadata == OTHER.metadata
        np.testing.assert_array_equal(same.actions, OTHER.actions)
