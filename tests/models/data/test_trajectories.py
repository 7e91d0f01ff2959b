"""The container: checks, masks, choosing, buckets, splits, and life under JAX transformations."""

import dataclasses
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.models.data.trajectories import Metadata, Trajectories, bucket_indices, check, valid_steps

METADATA = Metadata(feature_names=("x", "y"), time_unit="s", frame_rate=5, state_names=("a", "b", "c"))
QUICK = settings(max_examples=25, deadline=None, derandomize=True)


def padded(lengths, num_steps=None, seed=0):
    """Trajectories with every part, and garbage (NaN, -99) where nobody may look."""
    rng = np.random.default_rng(seed)
    lengths = np.asarray(lengths, dtype=np.int32)
    shape = (len(lengths), num_steps or max(1, lengths.max()))
    valid = np.arange(shape[1]) < lengths[:, None]
    observed = valid & (rng.random(shape) < 0.8)
    observations = np.where(observed[..., None], rng.normal(size=(*shape, 2)), np.nan)
    return Trajectories(
        observations=observations,
        states=np.where(valid, rng.integers(-1, 3, shape), -99),
        actions=np.where(valid, rng.integers(-1, 4, shape), -99),
        lengths=lengths,
        observed=observed,
        agent=rng.integers(0, 3, len(lengths)),
        group=np.arange(len(lengths)) // 2,
        subject=np.arange(len(lengths)) // 3,
        stay=np.where(valid, rng.integers(-1, 2, shape), -99),
        metadata=METADATA,
    )


def content(data):
    """Each sequence without its padding, as comparable bytes, in order."""
    sequences = []
    for row, length in enumerate(np.asarray(data.lengths)):
        parts = (data.observations, data.states, data.actions, data.observed, data.stay)
        steps = [np.asarray(part[row, :length]).tobytes() for part in parts if part is not None]
        labels = [int(part[row]) for part in (data.agent, data.group, data.subject) if part is not None]
        sequences.append((steps, labels))
    return sequences


def test_check_returns_what_it_was_given():
    data = padded([3, 1, 0, 5])
    assert check(data) is data
    on_device = jax.tree.map(jnp.asarray, data)
    assert check(on_device) is on_device


BAD = [
    (
        dict(lengths=np.array([3, 9, 2])),
        ValueError,
        r"lengths\[1\] exceeds the padding \(it is 9\): arrays hold 5 steps",
    ),
    (dict(lengths=np.array([3, -1, 2])), ValueError, r"lengths\[1\] is negative \(it is -1\)"),
    (dict(lengths=np.array([3.0, 1.0, 2.0])), TypeError, "lengths has dtype float64"),
    (dict(lengths=np.array([3, 1])), ValueError, r"observed has shape \(3, 5\)"),
    (dict(lengths=np.zeros((3, 1), int)), ValueError, r"lengths has shape \(3, 1\)"),
    (dict(lengths=None), TypeError, "lengths is None"),
    (dict(lengths=np.zeros(0, int)), ValueError, "lengths is empty"),
    (dict(observed=np.ones((3, 5), bool)), ValueError, r"observed\[0, 3\] lies beyond its length"),
    (dict(observed=np.ones((3, 5), int)), TypeError, "observed has dtype int64"),
    (dict(observed=np.zeros((3, 4), bool)), ValueError, r"observations has shape \(3, 5, 2\), not \(3, 4"),
    (dict(observed=np.zeros((3, 0), bool)), ValueError, "observed has shape"),
    (dict(observations=np.zeros((3, 5))), ValueError, r"observations has shape \(3, 5\)"),
    (dict(observations=np.zeros((3, 5, 0))), ValueError, "without features"),
    (dict(observations=np.zeros((3, 5, 3))), ValueError, "feature_names has 2 entries for 3 features"),
    (dict(observations=np.zeros((3, 5, 2), complex)), TypeError, "observations has dtype complex128"),
    (dict(observations=[[[0.0]]]), TypeError, "observations is list"),
    (dict(states=np.full((3, 5), -2)), ValueError, r"states\[0, 0\] is below -1 \(it is -2\)"),
    (
        dict(states=np.full((3, 5), 3)),
        ValueError,
        r"states\[0, 0\] has no name \(it is 3\): metadata.state_names has 3 names",
    ),
    (dict(states=np.zeros((3, 5))), TypeError, "states has dtype float64"),
    (dict(actions=np.zeros((3, 4), int)), ValueError, r"actions has shape \(3, 4\), not \(3, 5\)"),
    (dict(stay=np.full((3, 5), 2)), ValueError, r"stay\[0, 0\] is not 1, 0 or -1 \(it is 2\)"),
    (dict(agent=np.array([0, -2, 0])), ValueError, r"agent\[1\] is below -1"),
    (dict(agent=np.array([0, 2**32, 0])), ValueError, r"agent\[1\] is beyond 32 bits \(it is 4294967296\)"),
    (dict(group=np.array([0, 1])), ValueError, r"group has shape \(2,\), not \(3,\)"),
    (dict(observations=None, states=None, actions=None), ValueError, "nothing to model"),
]


@pytest.mark.parametrize(("change", "error", "message"), BAD)
def test_bad_arrays_are_named_with_their_place(change, error, message):
    data = padded([3, 2, 4], num_steps=5)
    with pytest.raises(error, match=message):
        check(data._replace(**change))


@pytest.mark.parametrize("wrong", [[np.nan, np.nan], [np.nan, np.inf], [0.0, -np.inf]])
def test_an_observed_frame_is_finite_or_lacks_some_features(wrong):
    data = padded([3, 2], num_steps=4)
    observations, observed = data.observations.copy(), data.observed.copy()
    observations[1, 1] = wrong
    observed[1, 1] = True
    at, name = (0, "x") if np.isnan(wrong).all() else (1, "y")
    with pytest.raises(ValueError, match=rf"observations\[1, 1, {at}\] \(feature '{name}'\) is {wrong[at]}"):
        check(data._replace(observations=observations, observed=observed))
    observed[1, 1] = False
    check(data._replace(observations=observations, observed=observed))
    observations[1, 1], observed[1, 1] = [0.0, np.nan], True
    check(data._replace(observations=observations, observed=observed))


def test_something_else_is_no_trajectories():
    with pytest.raises(TypeError, match="data is ndarray, not Trajectories"):
        check(np.zeros((3, 4, 2)))


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (dict(feature_names="xy"), TypeError, "feature_names is 'xy'"),
        (dict(agent_names=["a", 3]), TypeError, "agent_names"),
        (dict(state_names=["a", "b", "a"]), ValueError, "state_names must be unique; 'a' appears twice"),
        (dict(frame_rate=0), ValueError, "frame_rate must be greater than 0, not 0"),
        (dict(frame_rate=float("nan")), ValueError, "frame_rate must be greater than 0, not nan"),
        (dict(name=3), TypeError, "name"),
    ],
)
def test_bad_metadata_is_named(fields, error, message):
    with pytest.raises(error, match=message):
        Metadata(**fields)


def test_metadata_is_hashable_whatever_it_was_made_of():
    metadata = Metadata(
        feature_names=["x", np.str_("y")], feature_units=["m", "m"], action_names=[], frame_rate=25
    )
    assert metadata == Metadata(feature_names=("x", "y"), feature_units=("m", "m"), frame_rate=25.0)
    assert hash(metadata) == hash(dataclasses.replace(metadata))
    assert jax.tree.leaves(metadata) == []


def test_valid_steps_whole_and_under_vmap():
    data = padded([3, 0, 5])
    expected = [[True] * 3 + [False] * 2, [False] * 5, [True] * 5]
    assert valid_steps(data).tolist() == expected
    with jax.numpy_rank_promotion("raise"):
        assert jax.jit(valid_steps)(data).tolist() == expected
        assert jax.vmap(valid_steps)(data).tolist() == expected


def test_jit_keeps_metadata_and_sees_other_data_without_retracing():
    traces = []

    @jax.jit
    def doubled(data):
        traces.append(check(data).metadata)
        return data._replace(observations=2 * data.observations)

    first, second = padded([3, 2], seed=0), padded([1, 3], seed=1)
    assert doubled(first).metadata == METADATA
    np.testing.assert_allclose(doubled(second).observations, 2 * second.observations, rtol=1e-6)
    assert traces == [METADATA]
    doubled(second._replace(metadata=Metadata()))
    assert traces == [METADATA, Metadata()]


def test_tree_map_leaves_absent_parts_and_metadata_alone():
    data = padded([3, 2])._replace(actions=None)
    doubled = jax.tree.map(lambda leaf: leaf, data)
    assert doubled.actions is None and doubled.metadata is data.metadata
    with pytest.raises(ValueError, match=r"[Mm]etadata"):
        jax.tree.map(lambda a, b: a, data, data._replace(metadata=Metadata()))


@QUICK
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(0, 5), st.floats(0, 0.9), st.randoms()
)
def test_padding_order_and_buckets_change_no_sequence(lengths, extra, max_waste, random):
    data = padded(lengths, num_steps=max(1, *lengths, 1) + extra)
    order = list(range(len(lengths)))
    random.shuffle(order)
    assert content(data.take(order)) == [content(data)[row] for row in order]
    assert content(data.trim()) == content(data)
    assert data.trim().observed.shape[1] == max(1, max(lengths))
    buckets = data.buckets(max_waste)
    rows = bucket_indices(data.lengths, max_waste)
    assert [content(bucket) for bucket in buckets] == [content(data.take(chosen)) for chosen in rows]
    for bucket in buckets:
        assert check(bucket).metadata is METADATA
        assert bucket.observed.shape[1] == max(1, bucket.lengths.max())


def test_buckets_of_groups_keep_groups_whole():
    data = padded([1, 9, 2, 2, 9, 1, 3])._replace(group=np.array([0, 0, 1, 1, 2, 2, -1]))
    buckets = data.buckets(0.2, by="group")
    assert [bucket.group.tolist() for bucket in buckets] == [[1, 1, -1], [0, 0, 2, 2]]
    assert [bucket.observed.shape[1] for bucket in buckets] == [3, 9]
    assert sorted(one for bucket in buckets for one in content(bucket)) == sorted(content(data))
    alone = padded([9, 1, 1])._replace(group=np.array([-1, 0, 0]))
    assert [bucket.group.tolist() for bucket in alone.buckets(0, by="group")] == [[0, 0], [-1]]


def test_take_counts_from_the_end_and_by_mask():
    data = padded([3, 1, 2])
    assert content(data.take([-1, 0, 0])) == [content(data)[row] for row in (2, 0, 0)]
    assert content(data.take(np.array([True, False, True]))) == [content(data)[row] for row in (0, 2)]
    taken = jax.jit(lambda rows: data.take(rows))(jnp.array([2, 1]))
    assert taken.lengths.tolist() == [2, 1] and taken.metadata is METADATA


@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        ([0, 3], ValueError, r"indices\[1\] is 3, but there are 3 sequences"),
        ([-4], ValueError, r"indices\[0\] is -4"),
        ([], ValueError, "select at least one"),
        ([False] * 3, ValueError, "select at least one"),
        ([True, False], ValueError, r"a boolean mask needs shape \(3,\)"),
        ([0.0], TypeError, "float64"),
        (1, ValueError, "no list of sequences"),
    ],
)
def test_bad_choices_are_named(indices, error, message):
    with pytest.raises(error, match=message):
        padded([3, 1, 2]).take(indices)


@pytest.mark.parametrize("by", ["sequence", "group", "subject"])
@pytest.mark.parametrize("seed", [0, 1])
def test_split_is_a_partition_that_no_unit_straddles(by, seed):
    data = padded([2, 1, 3, 1, 2, 2, 3, 1, 1, 2])
    train, test = data.split(jax.random.key(seed), by=by, test_fraction=0.4)
    assert sorted(content(train) + content(test)) == sorted(content(data))
    num_units = {"sequence": 10, "group": 5, "subject": 4}[by]
    if by == "sequence":
        assert test.num_sequences == 4
    else:
        inside = set(getattr(train, by).tolist()), set(getattr(test, by).tolist())
        assert not inside[0] & inside[1]
        assert len(inside[1]) == round(0.4 * num_units)
    again = data.split(jax.random.key(seed), by=by, test_fraction=0.4)
    assert content(again[0]) == content(train) and content(again[1]) == content(test)
    assert train.metadata is METADATA and test.metadata is METADATA


def test_splits_differ_between_keys_and_leave_something_on_both_sides():
    data = padded([1] * 12)
    drawn = {tuple(data.split(jax.random.key(seed))[1].subject.tolist()) for seed in range(5)}
    assert len(drawn) > 1
    for fraction, num_test in ((0.001, 1), (0.999, 11)):
        assert data.split(jax.random.key(0), test_fraction=fraction)[1].num_sequences == num_test


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (dict(group=None), dict(by="group"), "needs data.group, which is None"),
        (dict(group=np.array([0, -1, 1])), dict(by="group"), r"group\[1\] is -1"),
        (dict(subject=np.zeros(3, int)), dict(by="subject"), "finds only one subject"),
        ({}, dict(by="agent_name"), "by must be 'sequence', 'agent', 'group' or 'subject', not 'agent_name'"),
        ({}, dict(test_fraction=1.0), "test_fraction must be greater than 0 and less than 1, not 1"),
    ],
)
def test_bad_splits_are_named(change, options, message):
    with pytest.raises(ValueError, match=message):
        padded([3, 1, 2])._replace(**change).split(jax.random.key(0), **options)
    with pytest.raises(TypeError, match=r"key must be one typed key, not int: pass jax.random.key\(0\)"):
        padded([3, 1, 2]).split(0)


TABLE = {"walk": ["a", "a", "b", "b"], "who": ["ann", "ann", "ben", "ben"], "x": [1.0, 2.0, np.nan, np.nan]}
ROWS = [np.array([1.0, 2.0]), np.full(2, np.nan)]
DATASET = xarray.Dataset({"observations": (("sequence", "time", "feature"), np.stack(ROWS)[..., None])})
READERS = {
    "list": (lambda: Trajectories.from_list(ROWS, missing="nan"), "sequence 1 has"),
    "no frames": (lambda: Trajectories.from_list([[1.0], []]), "sequence 1 has"),
    "agents": (
        lambda: Trajectories.from_list(ROWS, agent=["ann", "ben"], missing="nan"),
        "sequence 1, agent 'ben', has",
    ),
    "episodes": (
        lambda: Trajectories.from_episodes([{"observations": each, "actions": []} for each in ([1.0], [])]),
        "sequence 1 has",
    ),
    "table": (
        lambda: Trajectories.from_table(TABLE, sequence="walk", features="x", agent="who", missing="nan"),
        r"sequence 1 \(b\), agent 'ben', has",
    ),
    "dataset": (lambda: Trajectories.from_xarray(DATASET, missing="nan"), "sequence 1 has"),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_sequence_without_an_observed_frame_is_named(reader):
    read, named = READERS[reader]
    with pytest.warns(UserWarning, match=f"^{named} no observed frame: it tells fits and scores nothing"):
        data = read()
    assert data.observed.any(axis=1).tolist() == [True, False]


@pytest.mark.parametrize("kind", ["arrays", "table"])
def test_short_sequences_take_at_most_three_times_their_memory(kind):
    rows = np.random.default_rng(0).normal(size=(20_000, 10, 2))
    if kind == "arrays":
        source, own = list(rows), rows.nbytes
    else:
        number, time = np.divmod(np.arange(200_000), 10)
        source = pandas.DataFrame(
            {"id": number, "t": time, "x": rows[..., 0].ravel(), "y": rows[..., 1].ravel()}
        )
        own = source.memory_usage().sum()
    tracemalloc.start()
    try:
        if kind == "arrays":
            data = Trajectories.from_list(source)
        else:
            data = Trajectories.from_table(source, sequence="id", time="t", features=["x", "y"])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(data.observations, rows)
    assert peak <= 3 * own + 2**20  # what does not grow with the rows
