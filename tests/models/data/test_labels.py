"""Labels: which are integers, which are text, and what an integer means where a vocabulary names it."""

import numpy as np
import pandas
import polars
import pytest

from ethogram.models.data.labels import are_numerals, look_up
from ethogram.models.data.trajectories import Metadata, Trajectories

NAMES = ["1", "2", "home"]
FIELDS = {"states": "state_names", "actions": "action_names"}
FIELDS |= {"agent": "agent_names", "group": "group_names", "subject": "subject_names"}
KINDS = {
    "columns": dict,
    "pandas": pandas.DataFrame,
    "nullable": lambda columns: pandas.DataFrame(columns).convert_dtypes(),
    "floats": lambda columns: pandas.DataFrame(columns, dtype=float),
    "polars": polars.DataFrame,
    "rows": lambda columns: pandas.DataFrame(columns).to_dict("records"),
}


def file_of(folder, text, name="table.csv"):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", FIELDS)
def test_integers_of_tables_are_names_where_there_are_names(field, kind):
    """A 1 is the label "1", the first, also where no other row is a word."""
    table, named = KINDS[kind]({"it": [1, 2, 1], "n": [4, 5, 6]}), Metadata(**{FIELDS[field]: NAMES})
    options = {"features": "n", field: "it", "sequence": "it" if field not in ("states", "actions") else None}
    data = Trajectories.from_table(table, metadata=named, **options)
    assert np.ravel(getattr(data, field)).tolist() in ([0, 1, 0], [0, 1])
    coded = Trajectories.from_table(table, metadata=named, codes=True, **options)
    assert np.ravel(getattr(coded, field)).tolist() in ([1, 2, 1], [1, 2])
    with pytest.raises(ValueError, match=rf"{field} contains '1', which is not in metadata.*pass codes=True"):
        Trajectories.from_table(table, metadata=Metadata(**{FIELDS[field]: ["left", "right"]}), **options)


@pytest.mark.parametrize("rows", ["1\n2\n1\n", "1\n2\n1\nhome\n"])
def test_what_a_label_of_a_file_means_does_not_depend_on_other_rows(rows, tmp_path):
    table = file_of(tmp_path, f"s\n{rows}")
    data = Trajectories.from_table(table, states="s", metadata=Metadata(state_names=NAMES))
    assert data.states[0, :3].tolist() == [0, 1, 0]


def test_integers_of_lists_and_episodes_are_names_too():
    names = Metadata(action_names=NAMES, state_names=["10", "20"], agent_names=["7", "5"])
    listed = Trajectories.from_list(states=[[10, -1, 20]], actions=[[2, 1, -1]], agent=[5], metadata=names)
    assert listed.states.tolist() == [[0, -1, 1]] and listed.actions.tolist() == [[1, 0, -1]]
    assert listed.agent.tolist() == [1]
    mixed = Trajectories.from_list(actions=[[1, 2], ["home"], [1, "home"]], metadata=names)
    assert mixed.actions.tolist() == [[0, 1], [2, -1], [0, 2]]
    episode = {"observations": [10, 20, 20], "actions": [2, 1]}
    played = Trajectories.from_episodes([episode], as_states=True, metadata=names)
    assert played.states.tolist() == [[0, 1, 1]] and played.actions.tolist() == [[1, 0, -1]]
    some = Trajectories.from_episodes(
        [episode], as_states=True, metadata=names, codes=["actions"], last="drop"
    )
    assert some.states.tolist() == [[0, 1]] and some.actions.tolist() == [[2, 1]]
    below = Trajectories.from_list(actions=[[-1, 1]], metadata=Metadata(action_names=["1", "-1"]))
    assert below.actions.tolist() == [[1, 0]]
    with pytest.raises(
        ValueError, match=r"codes must be 'states', 'actions', .* 'subject' or 'covariates', not 'x'"
    ):
        Trajectories.from_list(actions=[[1]], codes="x")


@pytest.mark.filterwarnings("ignore:sequence .* has no observed frame")
def test_identifiers_and_labels_of_files_are_text(tmp_path):
    text = "who,act,x\n007,None,1\n7,NA,2\n007,null,3\n7,,4\nNA,left,NA\n"
    options = {"sequence": "who", "agent": "who", "actions": "act", "features": "x", "missing": "nan"}
    table = file_of(tmp_path, text)
    data = Trajectories.from_table(table, **options)
    assert data.metadata.agent_names == ("007", "7", "NA") and data.agent.tolist() == [0, 1, 2]
    assert data.metadata.action_names == ("NA", "None", "left", "null")
    assert data.actions.tolist() == [[1, 3], [0, -1], [2, -1]]
    assert data.observed.tolist() == [[True, True], [True, True], [False, False]]


@pytest.mark.parametrize(
    ("words", "codes", "names"),
    [
        ("3,0,12", [3, 0, 12], None),
        ("3.0,,0.0", [3, -1, 0], None),  # as pandas writes integers beside nulls
        ("3,NA,0", [3, -1, 0], None),  # a number cannot be missing by a name
        ("03,3,0", [1, 2, 0], ("0", "03", "3")),
        ("3,0.5,0", [2, 1, 0], ("0", "0.5", "3")),
        ("5000000000,5000000001,1", [1, 2, 0], ("1", "5000000000", "5000000001")),
        ("True,False,True", [1, 0, 1], ("False", "True")),
        ("3, NA,0", [3, -1, 0], None),  # blanks
        ('left,"",right', [0, -1, 1], ("left", "right")),
        ("left, ,NA", [1, -1, 0], ("NA", "left")),
        ("NA,NA,NA", [0, 0, 0], ("NA",)),
    ],
)
def test_labels_of_a_file_are_integers_where_all_are(words, codes, names, tmp_path):
    table = file_of(tmp_path, "s,x\n" + "".join(f"{word},1\n" for word in words.split(",")))
    data = Trajectories.from_table(table, states="s", features="x", missing="nan")
    assert data.states[0].tolist() == codes and data.metadata.state_names == names


@pytest.mark.filterwarnings("ignore:sequence .* has no observed frame")
def test_nan_and_none_beside_names_of_a_list_are_missing():
    for gap in (np.nan, None, float("nan")):
        data = Trajectories.from_list(states=[["a", gap], ["b", "a"]], agent=["x", gap], missing="nan")
        assert data.states.tolist() == [[0, -1], [1, 0]] and data.agent.tolist() == [0, -1]
        assert data.metadata.state_names == ("a", "b") and data.metadata.agent_names == ("x",)
    whole = Trajectories.from_list(states=[["a"], [np.nan]], missing="nan")
    assert whole.states.tolist() == [[0], [-1]] and whole.metadata.state_names == ("a",)
    table = {"x": [1.0, 2.0], "who": ["ann", np.nan], "n": [0, 1]}
    assert Trajectories.from_table(table, sequence="n", features="x", agent="who").agent.tolist() == [0, -1]
    with pytest.raises(ValueError, match="states of sequence 0, step 1 is missing"):
        Trajectories.from_list(states=[["a", np.nan]])


def test_numbers_beside_names_are_names_and_a_minus_one_is_missing():
    """As in columns of numbers only; a 2.0 is the name 2."""
    entries = ["home", -1, 2.0, 1]
    table = {"s": entries, "who": ["ann", "ann", -1, -1], "n": [0, 0, 1, 1]}
    for made in (
        Trajectories.from_list(states=[entries[:2], entries[2:]], agent=["ann", -1], missing="nan"),
        Trajectories.from_table(table, states="s", agent="who", sequence="n", missing="nan"),
        Trajectories.from_table(
            pandas.DataFrame(table), states="s", agent="who", sequence="n", missing="nan"
        ),
    ):
        assert made.states.tolist() == [[2, -1], [1, 0]] and made.agent.tolist() == [0, -1]
        assert made.metadata.state_names == ("1", "2", "home") and made.metadata.agent_names == ("ann",)
    with pytest.raises(ValueError, match=r"states of sequence 0, step 1 is missing .* -1 beside names"):
        Trajectories.from_list(states=[entries])
    with pytest.raises(TypeError, match="states has dtype str and float"):
        Trajectories.from_list(states=[["home", 0.5]])


def test_an_action_of_minus_one_is_not_the_missing_one_of_the_last_frame():
    episode = {"observations": [[0.0], [1.0], [2.0]], "actions": [-1, 1]}
    names = Metadata(action_names=["-1", "0", "1"])
    with pytest.raises(ValueError, match=r'-1 is an action, .*pass last="drop"'):
        Trajectories.from_episodes([episode], metadata=names)
    assert Trajectories.from_episodes([episode], metadata=names, last="drop").actions.tolist() == [[0, 2]]
    coded = Trajectories.from_episodes([episode | {"actions": [0, 2]}], metadata=names, codes=True)
    assert coded.actions.tolist() == [[0, 2, -1]]


def test_identifiers_that_floats_cannot_tell_apart_are_refused():
    table = {"id": [1e16, 1e16 + 1], "x": [1.0, 2.0]}
    with pytest.raises(ValueError, match=r"column 'id', row \[0\] is 1e\+16: from 2\*\*53 on"):
        Trajectories.from_table(table, sequence="id", features="x")
    single = np.float32([2**24, 2**24 + 1])
    with pytest.raises(ValueError, match=r"column 'id', row \[0\] is 16777216.0: from 2\*\*24 on"):
        Trajectories.from_table(table | {"id": single}, sequence="id", features="x")
    exact = Trajectories.from_table(table | {"id": [10**16, 10**16 + 1]}, sequence="id", features="x")
    assert exact.num_sequences == 2


def test_lookups_of_labels():
    assert look_up(np.array([2.0, 1.0]), ["1", "2"], "s", "names").tolist() == [1, 0]
    assert look_up(np.array([], int), ["1"], "s", "names").tolist() == []
    assert [are_numerals(names) for names in (None, ["a"], ["0", "1", "b"], ["a", "2"], ["-5"], ["1.0"])] == [
        False, False, False, True, True, True,
    ]  # fmt: skip
