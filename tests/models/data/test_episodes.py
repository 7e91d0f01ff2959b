"""Lists and episodes: what comes back is what went in, and what cannot go in is named."""

import warnings
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pandas
import pytest
import xarray
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.models.data.trajectories import Metadata, Trajectories, check

QUICK = settings(max_examples=25, deadline=None, derandomize=True)
REALS = st.floats(-1e6, 1e6, allow_nan=False)


@pytest.mark.filterwarnings("ignore:sequence .* has no observed frame")
@pytest.mark.filterwarnings("ignore:actions are the integers 1 to")
@QUICK
@given(st.data(), st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 3))
def test_a_list_comes_back_sequence_by_sequence(data, lengths, num_features):
    lists = [
        [data.draw(st.lists(st.one_of(REALS, st.just(np.nan)), min_size=num_features, max_size=num_features))
         for _ in range(length)]
        for length in lengths
    ]  # fmt: skip
    arrays = [np.array(rows).reshape(-1, num_features) for rows in lists]
    actions = [data.draw(st.lists(st.integers(-1, 4), min_size=n, max_size=n)) for n in lengths]
    agent = [data.draw(st.sampled_from(["cat", "dog", None])) for _ in lengths]
    batch = Trajectories.from_list(arrays, actions=actions, agent=agent, missing="nan")
    assert batch.lengths.tolist() == lengths
    names = batch.metadata.agent_names or ()
    assert [None if code < 0 else names[code] for code in batch.agent] == agent
    for row, (array, length) in enumerate(zip(arrays, lengths, strict=True)):
        gone = np.isnan(array).all(axis=1)
        np.testing.assert_array_equal(batch.observations[row, :length], array)
        assert (batch.observations[row, length:] == 0).all()
        np.testing.assert_array_equal(batch.observed[row, :length], ~gone)
        assert not batch.observed[row, length:].any()
        assert batch.actions[row, :length].tolist() == actions[row]
        assert (batch.actions[row, length:] == -1).all()


@pytest.mark.filterwarnings("ignore:sequence .* has no observed frame")
def test_observations_are_floats_and_arrays_are_numpy():
    for dtype in (np.float32, np.float64, np.int32, np.uint8, bool):
        batch = Trajectories.from_list([np.ones((2, 1), dtype), np.ones((3, 1), dtype), []])
        assert batch.observations.dtype == (np.float32 if dtype == np.float32 else np.float64)
        assert all(
            isinstance(part, np.ndarray) for part in batch if part is not None and part is not batch.metadata
        )
    single = [jnp.ones((2, 3), np.float32), jnp.ones((1, 3), np.float32)]
    assert Trajectories.from_list(single).observations.dtype == np.float32
    assert Trajectories.from_list(np.zeros((4, 3, 2))).observations.shape == (4, 3, 2)


def test_nulls_of_lists_are_nan_where_features_are_missing():
    for frames in (
        [[1, 3], [2, None]],
        np.array([[1, 3], [2, None]], object),
        pandas.DataFrame({"a": [1, 2], "b": pandas.array([3, None], dtype="Int64")}),
    ):
        made = Trajectories.from_list([frames], missing="nan")
        np.testing.assert_array_equal(made.observations[0], [[1, 3], [2, np.nan]])
        with pytest.raises(ValueError, match="sequence 0, step 1, feature 1 is NaN or null"):
            Trajectories.from_list([frames])
    with pytest.raises(TypeError, match="observations has dtype object: pass numbers"):
        Trajectories.from_list([[["1", None]]], missing="nan")


def test_one_dimensional_sequences_are_one_feature():
    batch = Trajectories.from_list([[2, 0, 1], [1]])
    assert batch.observations.tolist() == [[[2], [0], [1]], [[1], [0], [0]]]


def test_strings_get_codes_in_alphabetical_order_or_those_of_metadata():
    behaviour = [["walk", "rest"], ["eat"]]
    assert Trajectories.from_list(actions=behaviour).actions.tolist() == [[2, 1], [0, -1]]
    vocabulary = Metadata(action_names=("rest", "walk", "sleep", "eat"))
    batch = Trajectories.from_list(actions=behaviour, metadata=vocabulary)
    assert batch.actions.tolist() == [[1, 0], [3, -1]]
    assert batch.metadata == vocabulary


def test_marked_rows_may_hold_nan_and_marks_cannot_bring_nan_back():
    rows = [[[1.0, np.nan], [2.0, 3.0]]]
    batch = Trajectories.from_list(rows, observed=[[False, True]])
    assert batch.observed.tolist() == [[False, True]]
    assert np.isnan(batch.observations[0, 0]).all()
    rows = [[[np.nan, np.nan], [2.0, 3.0]]]
    assert Trajectories.from_list(rows, observed=[[True, True]], missing="nan").observed.tolist() == [
        [False, True]
    ]


def test_a_frame_with_some_features_is_observed_and_complete_frames_drops_it():
    rows = [[[1.0, np.nan], [np.nan, np.nan], [2.0, 3.0]]]
    batch = Trajectories.from_list(rows, missing="nan")
    np.testing.assert_array_equal(batch.observations, rows)
    assert batch.observed.tolist() == [[True, False, True]]
    assert batch.complete_frames().observed.tolist() == [[False, False, True]]
    counts = Trajectories.from_table(
        {"n": [1, None, 2], "m": [None, None, 4]}, features=["n", "m"], missing="nan"
    )
    np.testing.assert_array_equal(counts.observations, [[[1, np.nan], [np.nan, np.nan], [2, 4]]])
    assert counts.observed.tolist() == [[True, False, True]]
    scaled = batch.standardised().observations[0]
    np.testing.assert_allclose(scaled[[0, 2]], [[-1, np.nan], [1, 0]])
    np.testing.assert_allclose(batch.centred("all").observations[0, [0, 2]], [[-0.5, np.nan], [0.5, 0]])
    np.testing.assert_array_equal(Trajectories.from_xarray(batch.to_xarray()).observations, rows)
    assert np.isnan(batch.to_table()["feature_1"][0])


def test_without_observations_a_frame_is_recorded_where_anything_is_known():
    batch = Trajectories.from_list(states=[[0, -1, -1]], actions=[[1, 1, -1]], stay=[[1, None, 0]])
    assert batch.observed.tolist() == [[True, True, False]]
    assert batch.stay.tolist() == [[1, -1, 0]]
    missing = Trajectories.from_list(states=[["a", None]], missing="nan")
    assert missing.states.tolist() == [[0, -1]] and missing.metadata.state_names == ("a",)


NAN = float("nan")
ROWS = [[[0.0, 1.0]], [[0.0, 1.0], [NAN, 1.0]]]


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({}, ValueError, "all None: give one of them"),
        (dict(observations=[]), ValueError, "observations is empty"),
        (dict(observations=ROWS), ValueError, r"sequence 1, step 1, feature 0 is NaN"),
        (
            dict(observations=ROWS, metadata=Metadata(feature_names=("x", "y"))),
            ValueError,
            "sequence 1, step 1, feature 'x' is NaN",
        ),
        (dict(observations=ROWS, metadata=Metadata(feature_names=())), ValueError, "feature 0 is NaN"),
        (dict(observations=ROWS, missing="drop"), ValueError, "missing must be 'error' or 'nan', not 'drop'"),
        (dict(observations=[[[0.0, 1.0]], [[0.0]]]), ValueError, r"observations\[1\] has 1 features"),
        (dict(observations=[[[0.0, 1.0], [0.0]]]), ValueError, r"observations\[0\] has rows of different"),
        (dict(observations=[np.zeros((2, 2, 2))]), ValueError, r"observations\[0\] has shape \(2, 2, 2\)"),
        (dict(observations=[["a"]]), TypeError, r"observations\[0\] has dtype <U1"),
        (dict(observations=[[1j]]), TypeError, r"observations\[0\] has dtype complex128"),
        (dict(observations=[np.ma.masked_array([1.0], [True])]), TypeError, "is a masked array"),
        (dict(observations=[[0.0, float("inf")]]), ValueError, r"observations\[0, 1, 0\] is inf"),
        (dict(observations=[[0.0]], observed=[[1]]), TypeError, "observed has dtype int64"),
        (
            dict(observations=[[0.0]], states=[[0], [1]]),
            ValueError,
            "states has 2 sequences, but observations",
        ),
        (
            dict(states=[[0, 1]], actions=[[0]]),
            ValueError,
            r"actions\[0\] has 1 frames, but states\[0\] has 2",
        ),
        (dict(states=[[[0]]]), ValueError, r"states\[0\] has shape \(1, 1\), not \(time,\)"),
        (dict(states=[[0, NAN]]), ValueError, "states of sequence 0, step 1 is missing"),
        (dict(states=[[0.5]]), TypeError, "states contains 0.5"),
        (dict(states=[[-2, 0]]), ValueError, r"states\[0, 0\] is below -1 \(it is -2\)"),
        (dict(states=[[2**31]]), ValueError, "states contains 2147483648, beyond 32 bits"),
        (
            dict(states=[["a"]], metadata=Metadata(state_names=("b",))),
            ValueError,
            "contains 'a', which is not in metadata.state_names: add it",
        ),
        (
            dict(states=[[1]], metadata=Metadata(state_names=("b",)), codes=True),
            ValueError,
            r"states\[0, 0\] has no name \(it is 1\)",
        ),
        (dict(states=[[0]], stay=[["yes"]]), TypeError, "stay contains <U3: pass integers$"),
        (dict(states=[[0]], agent=[0, 1]), ValueError, r"agent has shape \(2,\), not \(1,\)"),
        (dict(states=[[0]], agent=[object()]), TypeError, "agent has dtype object"),
    ],
)
def test_bad_lists_are_named(parts, error, message):
    with pytest.raises(error, match=message):
        Trajectories.from_list(**parts)


def minari_episode(observations, actions):
    """The attributes of Minari's EpisodeData."""
    return SimpleNamespace(
        id=0,
        observations=observations,
        actions=actions,
        rewards=np.zeros(len(actions)),
        terminations=np.zeros(len(actions), bool),
        truncations=np.zeros(len(actions), bool),
        infos={},
    )


def imitation_trajectory(obs, acts):
    """The attributes of imitation's TrajectoryWithRew."""
    return SimpleNamespace(obs=obs, acts=acts, infos=None, terminal=True, rews=np.zeros(len(acts)))


@pytest.mark.parametrize("make", [minari_episode, imitation_trajectory])
def test_the_last_observation_stays_with_no_action_or_goes(make):
    episodes = [
        make(np.arange(8.0).reshape(4, 2), np.array([1, 0, 2])),
        make(np.ones((2, 2)), np.array([[1]])),
    ]
    kept = Trajectories.from_episodes(episodes, group=["a", "b"])
    assert kept.lengths.tolist() == [4, 2]
    assert kept.actions.tolist() == [[1, 0, 2, -1], [1, -1, -1, -1]]
    assert kept.observations[0].tolist() == np.arange(8.0).reshape(4, 2).tolist()
    assert kept.metadata.group_names == ("a", "b")
    dropped = Trajectories.from_episodes(iter(episodes), last="drop")
    assert dropped.lengths.tolist() == [3, 1]
    assert dropped.actions.tolist() == [[1, 0, 2], [1, -1, -1]]


def test_tabular_episodes_become_states():
    batch = Trajectories.from_episodes(
        [imitation_trajectory(np.array([4, 5, 9]), np.array([0, 1]))], as_states=True
    )
    assert batch.observations is None
    assert batch.states.tolist() == [[4, 5, 9]] and batch.actions.tolist() == [[0, 1, -1]]
    assert batch.observed.all()


def test_continuous_actions_can_be_left_out():
    episode = minari_episode(np.zeros((3, 2)), np.zeros((2, 4)))
    batch = check(Trajectories.from_episodes([episode], with_actions=False))
    assert batch.actions is None and batch.lengths.tolist() == [3]
    with pytest.raises(TypeError, match=r"actions of episode 0 have shape \(2, 4\).*with_actions=False"):
        Trajectories.from_episodes([episode])


def flat(**changes):
    """D4RL's dictionary: three episodes of 2, 3 and 1 steps, the last one without an end."""
    parts = {
        "observations": np.arange(12.0).reshape(6, 2),
        "actions": np.array([[1], [0], [2], [1], [0], [2]]),
        "rewards": np.zeros(6),
        "terminals": np.array([False, True, False, False, False, False]),
        "timeouts": np.array([0.0, 0.0, 0.0, 0.0, 1.0, 0.0]),
    }
    return {name: part for name, part in (parts | changes).items() if part is not None}


def test_a_flat_dictionary_is_cut_where_episodes_end():
    data = Trajectories.from_episodes(flat())
    assert data.lengths.tolist() == [2, 3, 1]
    assert data.actions.tolist() == [[1, 0, -1], [2, 1, 0], [2, -1, -1]]
    assert data.observations[data.observed].tolist() == np.arange(12.0).reshape(6, 2).tolist()
    after = np.arange(2.0, 14.0).reshape(6, 2)
    after[[1, 4]] = [[70.0, 71.0], [80.0, 81.0]]
    kept = Trajectories.from_episodes(flat(next_observations=after))
    assert kept.lengths.tolist() == [3, 4, 2] and kept.actions[1].tolist() == [2, 1, 0, -1]
    ends = kept.observations[np.arange(3), kept.lengths - 1]
    assert ends.tolist() == [[70, 71], [80, 81], [12, 13]]
    dropped = Trajectories.from_episodes(flat(next_observations=after), last="drop")
    for one, other in zip(tuple(dropped)[:5], tuple(data)[:5], strict=True):
        np.testing.assert_array_equal(one, other)


def test_keys_of_episodes_become_groups():
    named = {
        "pilot": imitation_trajectory([[0.0], [1.0]], [3]),
        "main": {"observations": [[2.0], [3.0]], "actions": [4, 5], "infos": {}},
    }
    data = Trajectories.from_episodes(named)
    assert data.actions.tolist() == [[3, -1], [4, 5]] and data.metadata.group_names == ("main", "pilot")
    assert data.group.tolist() == [1, 0] and Trajectories.from_episodes(named, group=[7, 7]).group[0] == 7
    numbered = Trajectories.from_episodes(dict(zip([5, 3], named.values(), strict=True)))
    assert numbered.group.tolist() == [5, 3] and numbered.metadata.group_names is None
    tuples = Trajectories.from_episodes(dict(zip([("a", 1), -1], named.values(), strict=True)))
    assert tuples.metadata.group_names == ("('a', 1)", "-1")


@pytest.mark.parametrize(
    ("episodes", "error", "message"),
    [
        (flat(terminals=None, timeouts=None), ValueError, "without terminals and timeouts: give these, or"),
        (flat(timeouts=np.zeros(5)), ValueError, "timeouts of episodes has 5 steps, observations 6"),
        (flat(terminals=np.full(6, 2)), TypeError, "terminals of episodes is not one boolean per step"),
        (flat(terminals=np.zeros((6, 2))), TypeError, "terminals of episodes is not one boolean per step"),
        (flat(actions=np.zeros((6, 3))), TypeError, "actions of episode 0 .*: discretise them, join them to"),
        (flat(actions=3), TypeError, "actions of episodes is int: flatten"),
        (
            flat(next_observations=np.ones((6, 2))),
            ValueError,
            r"next_observations\[0\] of episodes is not observations\[1\], and no episode ends there",
        ),
        ({"a": {"obs": [[0.0]]}}, TypeError, "episode 'a' is dict without observations and actions"),
        ({}, ValueError, "observations is empty"),
    ],
)
def test_bad_dictionaries_of_episodes_are_named(episodes, error, message):
    with pytest.raises(error, match=message):
        Trajectories.from_episodes(episodes)


@pytest.mark.parametrize(
    ("episode", "options", "error", "message"),
    [
        (
            imitation_trajectory(np.zeros((5, 1)), [0, 1]),
            {},
            ValueError,
            "episode 0 has 5 observations and 2 actions",
        ),
        (minari_episode((np.zeros(3), np.zeros(3)), [0, 1]), {}, TypeError, "episode 0 is tuple: flatten"),
        (SimpleNamespace(states=[0]), {}, TypeError, "episode 0 is SimpleNamespace without observations"),
        (
            minari_episode({"a": np.zeros(3)}, [0, 1]),
            {},
            TypeError,
            "observations of episode 0 is dict: flatten",
        ),
        (minari_episode(np.zeros((3, 2)), [0, 1]), dict(as_states=True), TypeError, "pass as_states=False"),
        (
            minari_episode(np.zeros((3, 2)), [0, 1]),
            dict(last="mask"),
            ValueError,
            "last must be 'keep' or 'drop', not 'mask'",
        ),
        (minari_episode([[0.0], [NAN]], [0]), {}, ValueError, "sequence 0, step 1, feature 0 is NaN"),
    ],
)
def test_bad_episodes_are_named(episode, options, error, message):
    with pytest.raises(error, match=message):
        Trajectories.from_episodes([episode], **options)


def test_actions_that_may_be_numbered_from_one_are_asked_about():
    """In every constructor; not those with a gap or a zero, nor those with names or codes."""
    listed = {"states": [[0, 1, 2, 0]], "actions": [[1, 2, 3, -1]]}
    variables = {name: (("sequence", "time"), rows) for name, rows in listed.items()}
    columns = {name: rows[0] for name, rows in listed.items()}
    episode = {"observations": np.zeros((4, 1)), "actions": [1, 2, 3]}
    ask = "actions are the integers 1 to 3, and never 0"
    for make in (
        lambda **codes: Trajectories.from_list(**listed, **codes),
        lambda **codes: Trajectories.from_table(columns, states="states", actions="actions", **codes),
        lambda **codes: Trajectories.from_episodes([episode], **codes),
    ):
        with pytest.warns(UserWarning, match=ask) as caught:
            made = make()
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert make(codes="actions").actions.tolist() == listed["actions"]
            Trajectories.from_xarray(made.to_xarray())
    with pytest.warns(UserWarning, match=ask):
        Trajectories.from_xarray(xarray.Dataset(variables))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for actions in ([1, 3, 1], [0, 1, 2], [1, 1, 1], ["a", "b", "b"]):
            Trajectories.from_list(states=[[0, 1, 2]], actions=[actions])
        named = Metadata(action_names=["wait", "left", "right"])
        Trajectories.from_list(states=[[0, 1, 2]], actions=[[1, 2, 1]], metadata=named, codes=True)
