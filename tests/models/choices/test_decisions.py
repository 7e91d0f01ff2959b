"""Decisions among changing sets of options: how they are built, checked, taken and split."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
import polars as pl
import pytest

from ethogram.models.choices.decisions import Decisions, check_decisions, weights_of
from ethogram.models.data.trajectories import Metadata
from ethogram.models.mdps.mdp import MDP


def example(**changes):
    random = np.random.default_rng(0)
    legal = np.array([[True, True, False], [True, True, True], [False, True, True]])
    parts = {"features": random.normal(size=(3, 3, 2)), "legal": legal, "choice": np.array([1, 0, 2])}
    return Decisions(**(parts | changes))


def test_sets_of_any_size_are_padded():
    sets = [np.ones((2, 3)), 2 * np.ones((4, 3)), 3 * np.ones((1, 3))]
    data = Decisions.from_list(sets, [1, 3, 0], subject=[0, 1, 0])
    assert data.features.shape == (3, 4, 3) and data.legal.sum(1).tolist() == [2, 4, 1]
    for row, one in enumerate(sets):
        np.testing.assert_array_equal(data.features[row][data.legal[row]], one)
    assert (data.features[~data.legal] == 0).all()
    assert Decisions.from_list(sets).choice.tolist() == [-1, -1, -1]


def test_options_of_a_world_are_expected_next_features():
    random = np.random.default_rng(1)
    world = MDP.dense(random.dirichlet(np.ones(4), size=(4, 3)))
    table, basis = np.asarray(world.transitions.probabilities), random.normal(size=(4, 2))
    legal = np.array([[True, True, False]] * 4)
    plain = Decisions.from_mdp(world, [2, 0], [1, 0])
    np.testing.assert_allclose(plain.features, table[[2, 0]], rtol=1e-6)
    assert plain.legal.all()
    based = Decisions.from_mdp(world, [2, 0], [1, 0], features=basis, legal=legal)
    np.testing.assert_allclose(based.features, (table @ basis)[[2, 0]], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(based.legal, legal[[2, 0]])
    far = Decisions.from_mdp(world, [2, 0], features=1e8 + np.arange(4.0)[:, None]).features - 1e8
    np.testing.assert_allclose(far[..., 0], (table @ np.arange(4.0))[[2, 0]], atol=1e-5)


def masked_world():
    mask = np.array([[True, True, False], [True, True, True], [False, True, True]])
    return MDP.deterministic([[0, 1, 2], [1, 2, 0], [2, 0, 1]], action_mask=mask), mask


def test_actions_that_a_world_does_not_have_are_no_options():
    world, mask = masked_world()
    np.testing.assert_array_equal(Decisions.from_mdp(world, [2, 0, 1]).legal, mask[[2, 0, 1]])
    within = mask & [True, True, False]
    np.testing.assert_array_equal(Decisions.from_mdp(world, [2, 0], legal=within).legal, within[[2, 0]])
    known = Decisions.from_mdp(world, [0, 2], [1, -1])
    assert known.choice.tolist() == [1, -1]


def long_table():
    return {
        "person": ["ann", "ann", "ann", "bob", "bob", "ann"],
        "trip": [1, 1, 2, 1, 1, 2],
        "mode": ["car", "bus", "walk", "bus", "car", "bus"],
        "hours": [1.0, 2.0, 3.0, 0.5, 0.6, 1.5],
        "cost": [9, 2, 0, 2, 5, 2],
        "taken": [True, False, False, True, False, True],
    }


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame])
def test_long_tables(make):
    data = Decisions.from_table(
        make(long_table()),
        decision=["person", "trip"], features=["hours", "cost"], chosen="taken", option="mode", subject="person",
    )  # fmt: skip
    assert data.metadata.action_names == ("bus", "car", "walk")
    assert data.metadata.subject_names == ("ann", "bob") and data.subject.tolist() == [0, 0, 1]
    assert data.legal.tolist() == [[True, True, False], [True, False, True], [True, True, False]]
    assert data.choice.tolist() == [1, 0, 0]
    assert data.features[1].tolist() == [[1.5, 2.0], [0.0, 0.0], [3.0, 0.0]]


def test_long_tables_without_names_take_rows_in_order():
    data = Decisions.from_table(long_table(), decision=["person", "trip"], features="hours", chosen="taken")
    assert data.features[..., 0].tolist() == [[1.0, 2.0], [3.0, 1.5], [0.5, 0.6]]
    assert data.choice.tolist() == [0, 1, 0]


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame])
def test_wide_tables_are_the_same_decisions(make):
    table = make(
        {
            "hours bus": [2.0, 1.5, 0.5], "hours car": [1.0, None, 0.6], "hours walk": [None, 3.0, None],
            "cost bus": [2.0, 2.0, 2.0], "cost car": [9.0, None, 5.0],
            "taken": ["car", "bus", "bus"],
        }
    )  # fmt: skip
    wide = Decisions.from_wide(
        table,
        features={"hours": ["hours bus", "hours car", "hours walk"], "cost": ["cost bus", "cost car", None]},
        choice="taken",
        metadata=Metadata(action_names=["bus", "car", "walk"]),
    )
    long = Decisions.from_table(
        long_table(), decision=["person", "trip"], features=["hours", "cost"], chosen="taken", option="mode"
    )
    for one, other in zip(jax.tree.leaves(wide), jax.tree.leaves(long), strict=True):
        np.testing.assert_array_equal(one, other)


def test_wide_tables_with_columns_of_what_is_legal():
    table = {"a": [1.0, 2.0], "b": [3.0, np.nan], "has a": [1, 1], "has b": [1, 0], "taken": [1, None]}
    features = {"x": ["a", "b"]}
    data = Decisions.from_wide(table, features=features, legal=["has a", "has b"], choice="taken", base=0)
    assert data.legal.tolist() == [[True, True], [True, False]] and data.choice.tolist() == [1, -1]
    with pytest.raises(ValueError, match="column 'b' is null in row 1"):
        Decisions.from_wide(table, features={"x": ["a", "b"]}, legal=["has a", "has a"])


def test_codes_of_choices_start_at_their_base():
    """Numbers from 1 would each be read one option off, and nothing would say so."""
    table = {"a": [1.0, 2.0, 3.0], "b": [3.0, 1.0, 2.0], "c": [2.0, 2.0, 2.0], "taken": [1, 2, None]}

    def read(table=table, **options):
        return Decisions.from_wide(table, features={"x": ["a", "b", "c"]}, choice="taken", **options)

    with pytest.raises(ValueError, match="column 'taken' has integers from 1 to 2, and never 0: pass base=1"):
        read()
    huge = table | {"taken": np.array([0, 2**64 - 1, 1], np.uint64)}  # -1 after a cast
    with pytest.raises(ValueError, match=r"row \[1\] is 18446744073709551615: options are 0 to 2"):
        Decisions.from_wide(huge, features={"x": ["a", "b", "c"]}, choice="taken")
    assert read(base=1).choice.tolist() == [0, 1, -1] and read(base=0).choice.tolist() == [1, 2, -1]
    with pytest.warns(
        UserWarning, match="column 'taken' is 0 in 1 of 3 rows, and base=1 is the first option"
    ):
        unknown = read(table | {"taken": [3, 0, 1]}, base=1)  # as in the Swissmetro data
    assert unknown.choice.tolist() == [2, -1, 0]
    with pytest.raises(ValueError, match=r"column 'taken', row \[0\] is 1: options are 3 to 5, or -1"):
        read(base=3)


def test_numbers_that_name_options_subjects_or_states_are_names():
    names = Metadata(action_names=["1", "2", "home"], subject_names=["20", "3"])
    table = {"a": [1.0, 2.0], "b": [3.0, 1.0], "c": [2.0, 2.0], "taken": [1, 2], "who": [3, 20]}
    columns = {"features": {"x": ["a", "b", "c"]}, "choice": "taken", "subject": "who", "metadata": names}
    wide = Decisions.from_wide(table, **columns)
    assert wide.choice.tolist() == [0, 1] and wide.subject.tolist() == [1, 0]
    assert Decisions.from_wide(table, **columns, base=0).choice.tolist() == [1, 2]
    words = columns | {"metadata": Metadata(action_names=["bus", "car", "walk"])}
    with pytest.raises(
        ValueError, match=r"'taken' is '1' in row 0, which is not in metadata\.action_names.*pass base=0"
    ):
        Decisions.from_wide(table, **words)
    sets = [[[1.0], [2.0], [3.0]]] * 2
    listed = Decisions.from_list(sets, [2, -1], subject=[20, 3], metadata=names)
    assert listed.choice.tolist() == [1, -1] and listed.subject.tolist() == [0, 1]
    assert Decisions.from_list(sets, ["home", "1"], metadata=names).choice.tolist() == [2, 0]
    assert Decisions.from_list(sets, [2, -1], metadata=names, codes=True).choice.tolist() == [2, -1]
    world = MDP.deterministic([[0, 1], [1, 1]], state_names=("5", "1"), action_names=("stay", "go"))
    walked = Decisions.from_mdp(world, [1, 5], [1, -1])
    np.testing.assert_array_equal(walked.features[:, 0], [[0, 1], [1, 0]])
    assert walked.choice.tolist() == [1, -1]
    assert Decisions.from_mdp(world, ["5", "1"], ["go", "stay"]).choice.tolist() == [1, 0]
    coded = Decisions.from_mdp(world, [1, 0], codes=True)
    np.testing.assert_array_equal(coded.features[:, 0], [[0, 1], [1, 0]])


def test_unknown_choices_stand_beside_names():
    """As -1, None, NaN and the null of pandas; names of any column of pandas."""
    sets, names = [[[1.0], [2.0]]] * 3, Metadata(action_names=["bus", "car"])
    world = MDP.deterministic([[0, 1], [1, 1]], action_names=("bus", "car"))
    for gap in (-1, None, np.nan, pd.NA):
        for taken in (["car", gap, "bus"], pd.Series(["car", gap, "bus"], dtype=object)):
            assert Decisions.from_list(sets, taken, metadata=names).choice.tolist() == [1, -1, 0]
            assert Decisions.from_mdp(world, [0, 1, 0], taken).choice.tolist() == [1, -1, 0]
            table = {"a": [1.0] * 3, "b": [2.0] * 3, "taken": taken}
            wide = Decisions.from_wide(table, features={"x": ["a", "b"]}, choice="taken", metadata=names)
            assert wide.choice.tolist() == [1, -1, 0]
    for taken in (pd.Categorical(["car", None, "bus"]), pd.array(["car", None, "bus"], dtype="string")):
        assert Decisions.from_list(sets, taken, metadata=names).choice.tolist() == [1, -1, 0]
    numbers = pd.Series([1, None, 0], dtype="Int64")
    assert Decisions.from_list(sets, numbers).choice.tolist() == [1, -1, 0]
    with pytest.raises(ValueError, match=r"states\[1\] is out of range \(it is -1\)"):
        Decisions.from_mdp(world, [0, None, 0])
    floats = Metadata(action_names=["1.0", "2.0"])
    with pytest.raises(ValueError, match=r"choice contains '1', which is not in the names.*pass codes=True"):
        Decisions.from_list(sets, [1, 1, 1], metadata=floats)


def test_identifiers_of_files_of_choices_are_text(tmp_path):
    (tmp_path / "trips.csv").write_text(
        "trip,mode,hours,taken,who\n07,None,1,0,NA\n07,car,2,1,NA\n7,None,3,1,ann\n7,car,4,0,ann\n"
    )
    data = Decisions.from_table(
        tmp_path / "trips.csv",
        decision="trip",
        option="mode",
        features="hours",
        chosen="taken",
        subject="who",
    )
    assert data.metadata.action_names == ("None", "car") and data.choice.tolist() == [1, 0]
    assert data.metadata.subject_names == ("NA", "ann") and data.subject.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"column 'id', row \[0\] is 1e\+16: from 2\*\*53 on"):
        Decisions.from_table({"id": [1e16, 1e16 + 1], "x": [1, 2]}, decision="id", features="x")


def test_options_that_are_not_available_are_not_legal():
    table = {"trip": [1, 1, 2, 2], "x": [2.0, np.nan, 0.5, 3.0], "av": [1, 0, 1, 1], "taken": [1, 0, 0, 1]}
    columns = {"decision": "trip", "features": "x", "chosen": "taken"}
    data = Decisions.from_table(table, **columns, available="av")
    assert data.legal.tolist() == [[True, False], [True, True]] and data.choice.tolist() == [0, 1]
    assert data.features[..., 0].tolist() == [[2, 0], [0.5, 3]]
    with pytest.raises(ValueError, match="column 'x' is null in row 1: every option that is available needs"):
        Decisions.from_table(table, **columns)
    with pytest.raises(
        ValueError, match=r"decision 1 \(2\) has chosen an option that column 'av' says.* in row 3"
    ):
        Decisions.from_table(table | {"x": [1.0] * 4, "av": [1, 1, 1, 0]}, **columns, available="av")


def test_decisions_without_a_chosen_row_are_counted():
    table = {"trip": [1, 1, 2, 2], "x": [2.0, 1.0, 0.5, 3.0], "taken": [1, 0, 0, 0]}
    with pytest.warns(
        UserWarning, match=r"1 of 2 decisions have no row with 'taken' true, such as decision 1 \(2\)"
    ):
        data = Decisions.from_table(table, decision="trip", features="x", chosen="taken")
    assert data.choice.tolist() == [0, -1]


def test_splits_share_nothing():
    data = Decisions.from_list([[[float(i)], [0.0]] for i in range(10)], np.zeros(10, int))
    train, test = data.split(jax.random.key(0), 0.3)
    assert (train.num_decisions, test.num_decisions) == (7, 3)
    assert sorted([*train.features[:, 0, 0], *test.features[:, 0, 0]]) == list(range(10))
    for fraction in ("0.3", True):
        with pytest.raises(TypeError, match="test_fraction must be a real number"):
            data.split(jax.random.key(0), fraction)
    with pytest.raises(ValueError, match="test_fraction must be greater than 0 and less than 1, not 1"):
        data.split(jax.random.key(0), 1.0)


def test_unknown_choices_and_what_is_not_legal_are_let_through():
    features = example().features.copy()
    features[0, 2] = np.nan
    check_decisions(example(features=features, choice=np.array([-1, 0, 2])))
    jax.jit(lambda data: check_decisions(data).choice)(example())


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: example(choice=np.arange(3)[::-1]), ValueError, r"choice\[0\] is option 2, .* are \[0, 1\]"),
        (lambda: example(choice=np.array([1, 0, 3])), ValueError, r"choice\[2\] is not an option \(it is 3\)"),
        (lambda: example(choice=np.array([1, 0])), ValueError, r"choice has shape \(2,\), not \(3,\)"),
        (lambda: example(choice=np.array([1.0, 0, 2])), TypeError, "choice has dtype float64: pass integers"),
        (lambda: example(legal=np.eye(3)), TypeError, "legal has dtype float64: pass booleans"),
        (lambda: example(legal=np.tile([[True], [False], [True]], 3)), ValueError, r"legal\[1\] has no legal option"),
        (lambda: example(features=np.full((3, 3, 2), np.inf)), ValueError, r"features\[0, 0, 0\] is not finite"),
        (lambda: example(features=np.zeros((3, 2, 2))), ValueError, r"features has shape \(3, 2, 2\), legal \(3, 3\)"),
        (lambda: example(subject=np.array([0, -1, 0])), ValueError, r"subject\[1\] is no subject \(it is -1\)"),
        (lambda: "choices", TypeError, "data is str, not Decisions"),
        (lambda: example(features=example().features.tolist()), TypeError, "features is list: pass a NumPy or"),
        (lambda: example(choice=[1, 0, 2]), TypeError, "choice is list"),
        (lambda: example(weight=[1, 0, 2]), TypeError, "weight is list"),
        (lambda: example(choice=None), TypeError, "choice is NoneType"),
    ],
)  # fmt: skip
def test_bad_decisions_are_named(make, error, message):
    with pytest.raises(error, match=message):
        check_decisions(make())


def long(changes=None, **options):
    options = {"decision": ["person", "trip"], "features": "hours"} | options
    return lambda: Decisions.from_table(long_table() | (changes or {}), **options)


def wide(*names, **options):
    features = {"x": ["a"], "y": ["a", "a"] if options.pop("uneven", False) else ["a"]}
    metadata = Metadata(action_names=names or None)
    return lambda: Decisions.from_wide(
        {"a": [1.0], "c": ["b"]}, features=features, metadata=metadata, **options
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Decisions.from_list([]), ValueError, "features is empty"),
        (lambda: Decisions.from_list([[[1.0]], [[1.0, 2.0]]]), ValueError, r"features\[1\] has shape \(1, 2\)"),
        (
            lambda: Decisions.from_mdp(MDP.deterministic([[0], [1]]), [2]),
            ValueError,
            r"states\[0\] is out of range \(it is 2\): pass numbers from 0 to 1",
        ),
        (lambda: Decisions.from_mdp(MDP.deterministic([[0], [1]]), [1.0]), TypeError, "states has dtype float64"),
        (lambda: Decisions.from_mdp("x", [0]), TypeError, "mdp is str: pass an MDP"),
        (lambda: Decisions.from_mdp(masked_world()[0], [0], [0.5]), TypeError, "actions has dtype float64"),
        (
            lambda: Decisions.from_mdp(masked_world()[0], [0], [3]),
            ValueError,
            r"actions\[0\] is out of range \(it is 3\): pass numbers from 0 to 2, or -1",
        ),
        (lambda: Decisions.from_mdp(masked_world()[0], [0, 1], [0]), ValueError, "actions has 1 entries, states 2"),
        (
            lambda: Decisions.from_mdp(masked_world()[0], [1, 0], [2, 2]),
            ValueError,
            r"actions\[1\] is 2, which is not legal in state 0: the legal actions are \[0, 1\]",
        ),
        (
            lambda: Decisions.from_mdp(masked_world()[0], [1, 2], legal=np.ones((3, 3), bool)),
            ValueError,
            r"legal\[2, 0\] is True at decision 1, but that action is not available",
        ),
        (
            lambda: Decisions.from_mdp(masked_world()[0], [1], legal=np.ones((3, 3), bool)),
            ValueError,
            r"legal\[0, 2\] is True, but that action",
        ),
        (lambda: Decisions.from_list([[["a"]]]), TypeError, r"features\[0\] has dtype <U1: pass numbers"),
        (
            lambda: Decisions.from_list([[[1.0]], [[1.0], [1.0, 2.0]]]),
            ValueError,
            r"features\[1\] has rows of different",
        ),
        (long({"taken": [1] * 6}, chosen="taken"), ValueError, r"decision 0 \(ann, 1\) has more than one row"),
        (long({"mode": ["bus"] * 6}, option="mode"), ValueError, r"decision 0 \(ann, 1\) repeats option 'bus'"),
        (long(decision="trip", subject="person"), ValueError, "'person' changes in row 3, within decision 0"),
        (long(features="mode"), TypeError, "column 'mode' has dtype"),
        (long(features="speed"), ValueError, "no column 'speed'"),
        (long(chosen="cost"), TypeError, "column 'cost' must be boolean"),
        (wide(choice="c"), TypeError, "column 'c' has dtype"),
        (wide("a", choice="c"), ValueError, "column 'c' is 'b' in row 0"),
        (wide(uneven=True), ValueError, "features have"),
    ],
)  # fmt: skip
def test_bad_sources_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_weights_come_from_lists_tables_and_worlds():
    sets = [[[1.0], [0.5]], [[0.2], [0.1]]]
    assert Decisions.from_list(sets, [0, 1], weight=[2, 0]).weight.tolist() == [2, 0]
    table = {
        "trip": [1, 1, 2, 2],
        "hours": [2.0, 1.0, 0.5, 3.0],
        "times": [3, 3, 1, 1],
        "who": ["b", "b", "a", "a"],
    }
    data = Decisions.from_table(table, decision="trip", features="hours", weight="times", subject="who")
    assert data.weight.tolist() == [3, 1]
    assert data.subject.tolist() == [1, 0]
    assert data.num_subjects == 2
    with pytest.raises(ValueError, match="column 'times' changes in row 1, within decision 0"):
        Decisions.from_table(
            {**table, "times": [3, 2, 1, 1]}, decision="trip", features="hours", weight="times"
        )
    wide = {"bus": [2.0, 0.5], "car": [1.0, 0.3], "times": [0.5, 2.0]}
    assert Decisions.from_wide(wide, features={"hours": ["bus", "car"]}, weight="times").weight.tolist() == [
        0.5,
        2.0,
    ]
    world = MDP.deterministic([[0, 1], [1, 0]])
    assert Decisions.from_mdp(world, [0, 1], [1, 1], weight=[1, 4]).weight.tolist() == [1, 4]


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"weight": [1.0, -0.5]}, ValueError, r"weight\[1\] is negative or not finite \(it is -0.5\)"),
        ({"weight": [np.nan, 1.0]}, ValueError, r"weight\[0\] is negative or not finite \(it is nan\)"),
        ({"weight": [1.0]}, ValueError, r"weight has shape \(1,\)"),
        ({"weight": ["a", "b"]}, TypeError, "weight has dtype"),
        (
            {"subject": [0, 2], "metadata": Metadata(subject_names=["ann", "ben"])},
            ValueError,
            r"subject\[1\] is no subject \(it is 2\): number subjects from 0 to 1",
        ),
    ],
)
def test_wrong_weights_and_subjects_are_named(parts, error, message):
    with pytest.raises(error, match=message):
        Decisions.from_list([[[1.0], [0.5]], [[0.2], [0.1]]], [0, 1], **parts)


def test_slices_are_taken():
    data = Decisions.from_list([[[float(i)], [0.5]] for i in range(5)], [0, 1, 0, 1, 0])
    np.testing.assert_array_equal(data.take(slice(1, 4)).choice, data.take([1, 2, 3]).choice)


@pytest.mark.parametrize("place", [np.asarray, jax.numpy.asarray])
@pytest.mark.parametrize(
    ("indices", "error", "message"),
    [
        (2, ValueError, r"indices has shape \(\)"),
        ([[0, 1]], ValueError, r"indices has shape \(1, 2\)"),
        ([0, 100], ValueError, r"indices\[1\] is out of range \(it is 100\): there are 5 decisions"),
        ([-6], ValueError, r"indices\[0\] is out of range \(it is -6\): there are 5 decisions"),
        ([True, False], ValueError, "indices has 2 booleans for 5 decisions"),
        ([0.0], TypeError, "indices has dtype float64"),
    ],
)
def test_decisions_that_are_not_there_are_not_taken(place, indices, error, message):
    data = jax.tree.map(place, Decisions.from_list([[[float(i)], [0.5]] for i in range(5)]))
    with pytest.raises(error, match=message):
        data.take(indices)


def test_keys_are_typed():
    data = Decisions.from_list([[[float(i)], [0.5]] for i in range(5)])
    for key in (0, jax.random.PRNGKey(0)):
        with pytest.raises(TypeError, match=r"key must be one typed key"):
            data.split(key)


def test_decisions_count_by_weight_and_where_the_choice_is_known():
    data = Decisions.from_list([[[1.0], [0.5]]] * 3, [0, -1, 1])
    assert weights_of(data).tolist() == [1, 1, 1] and weights_of(data, known=True).tolist() == [1, 0, 1]
    data = data._replace(weight=np.array([2, 3, 0]))
    assert weights_of(data).tolist() == [2, 3, 0] and weights_of(data, known=True).tolist() == [2, 0, 0]


def test_traced_subjects_are_counted_by_their_names():
    data = Decisions.from_list([[[1.0], [0.5]], [[0.2], [0.1]]], [0, 1], subject=[0, 1])
    with pytest.raises(TypeError, match="subject is traced"):
        jax.jit(lambda x: x.num_subjects)(data)
    named = data._replace(metadata=Metadata(subject_names=["ann", "ben", "cleo"]))
    assert jax.jit(lambda x: x.num_subjects)(named) == 3


def test_tables_of_many_states_are_refused_before_they_are_made():
    world = MDP.deterministic(np.zeros((20_000, 2), int), discount=0.9)
    with pytest.raises(ValueError, match=r"features of the options would have shape \(20000, 2, 20000\)"):
        Decisions.from_mdp(world, [0, 1], [0, 1])
    made = Decisions.from_mdp(world, [0, 1], [0, 1], features=np.ones((20_000, 1)))
    assert made.features.shape == (2, 2, 1)
