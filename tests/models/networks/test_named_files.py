"""Evidence and MAP variables by name: lines and JSON, what is ambiguous, samples, and any text at all."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.named_text import read_assignment, split_list
from ethogram.models.networks.uai import read_evidence, read_map_variables, read_names

HALF = np.array([0.5, 0.5])


@pytest.fixture(scope="module")
def garden():
    """Rain with named states; wet grass, whose names have blanks; and a count whose states are named by numbers."""
    return BayesNet(
        (HALF, HALF, np.full(3, 1 / 3)),
        ((), (), ()),
        names=("rain", "wet grass", "frogs"),
        state_names=(("no", "yes"), ("a bit", "very wet"), ("1", "2", "many")),
    )


@pytest.fixture(scope="module")
def unnamed():
    """Three variables without names."""
    return BayesNet((HALF,) * 3, ((), (), ()))


def written(folder, text, name="net.evid"):
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rain = yes\nwet grass = a bit", {0: 1, 1: 0}),
        ("rain yes\nwet grass very wet\n", {0: 1, 1: 1}),
        ("# what was seen\nrain=no  # not a drop\n\nfrogs 2", {0: 0, 2: 1}),
        ('"wet grass" "a bit"', {1: 0}),
        ("rain = 1\n1 = 0", {0: 1, 1: 0}),
        ("\ufeffrain = yes", {0: 1}),
        ('{"rain": "yes", "frogs": "1"}', {0: 1, 2: 0}),
        ('\n{"wet grass": 1}\n', {1: 1}),
        ('[{"rain": 0}]', {0: 0}),
        ("{}", {}),
        ("# nothing was seen", {}),
        ("1 0 1", {0: 1}),
    ],
)
def test_evidence_by_name(tmp_path, garden, text, expected):
    assert read_evidence(written(tmp_path, text), garden) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rain = yes\nsnow = no", "line 2: no variable is named 'snow'; there are rain, wet grass, frogs"),
        ("\nrain = maybe", "line 2: rain has no state 'maybe'; its states are no, yes"),
        ("rain maybe", "line 1: rain has no state 'maybe'; its states are no, yes"),
        ("wet grass = soaked", "line 1: wet grass has no state 'soaked'; its states are a bit, very wet"),
        ("wet grass soaked", "line 1: wet grass has no state 'soaked'"),
        ("rain", "line 1: expected 'variable = state' or 'variable state', found 'rain'"),
        ("rain =", "line 1: expected 'variable = state' or 'variable state', found 'rain ='"),
        ("rain = yes, frogs = 1", "line 1: rain has no state 'yes, frogs = 1'; its states are no, yes"),
        ("rain = yes\n0 = 1", "line 2: variable rain appears twice"),
        ("rain = 2", "line 1: rain has no state 2; its states are 0..1"),
        ("frogs = 0", "line 1: frogs has no state '0'; its states are 1, 2, many"),
        ('{"rain": "yes", "rain": "no"}', "net.evid: 'rain' appears twice"),
        ('{"rain": "yes", "0": "no"}', "sample 0: variable rain appears twice"),
        ('{"rain": true}', "sample 0: expected the name or the number of a state of rain, found True"),
        ('{"rain": [0.2, 0.8]}', "sample 0: expected the name or the number of a state of rain"),
        ('{"frogs": 0}', "sample 0: frogs has no state '0'; its states are 1, 2, many"),
        ('{"rain": "yes"', "line 1: not JSON: Expecting ',' delimiter"),
        ('{"rain": "yes"}\n{"rain": }', "line 2: not JSON: Expecting value"),
        ("[]", "has no sample"),
        ('["rain"]', "sample 0: expected an object of states by variable, found 'rain'"),
        ("[" * 100_000, "nested too deeply"),
        ('{"rain": ' + "1" * 5000 + "}", "net.evid: "),
        ("rain yes no", "line 1: rain has no state 'yes no'"),
        ("1 zero 1", "line 1: expected integer 1, found 'zero'"),
    ],
)
def test_evidence_that_does_not_fit(tmp_path, garden, text, message):
    with pytest.raises(ValueError, match=r"net\.evid") as caught:
        read_evidence(written(tmp_path, text), garden)
    assert message in str(caught.value)


def test_numbers_where_there_are_no_names(tmp_path, unnamed):
    assert read_evidence(written(tmp_path, "x0 = 1\n2 = 0"), unnamed) == {0: 1, 2: 0}
    assert read_evidence(written(tmp_path, "x1 0"), unnamed) == {1: 0}
    with pytest.raises(ValueError, match=r"x0 has no state 'yes'; its states are 0..1, without names"):
        read_evidence(written(tmp_path, "x0 = yes"), unnamed)


def test_lines_that_may_be_split_in_two_ways():
    network = BayesNet(
        (HALF,) * 4,
        ((),) * 4,
        names=("a", "a b", "p=q", "p"),
        state_names=(("b c", "x"), ("c", "x"), ("r", "x"), ("q=r", "x")),
    )
    for text in ("a b c", "p=q=r"):
        with pytest.raises(ValueError, match=r"here: '.*' may be .* or .*: put quotation marks around"):
            read_assignment(network, text, "here")
    assert read_assignment(network, '"a b" c', "here") == (1, 0)
    assert read_assignment(network, 'a "b c"', "here") == (0, 0)
    assert read_assignment(network, 'p="q=r"', "here") == (3, 0)
    assert read_assignment(network, "p=q = x", "here") == (2, 1)
    assert read_assignment(network, "p=q x", "here") == (2, 1)


def test_names_that_are_numbers_leave_no_numbers():
    network = BayesNet((HALF,) * 3, ((),) * 3, names=("7", "1", "y"))
    assert read_assignment(network, "1 = 0", "here") == (1, 0)
    with pytest.raises(
        ValueError, match="here: no variable is named '0', and numbers are not taken where names"
    ):
        read_assignment(network, "0 = 0", "here")


def test_lists_on_one_line():
    assert split_list('a=b, "c,d" = e ,,f', "here") == ["a=b", '"c,d" = e', "f"]
    assert split_list("", "here") == []
    with pytest.raises(ValueError, match=r"here: a quotation mark in .* has no partner"):
        split_list('a="b', "here")


@pytest.mark.parametrize(
    "text",
    [
        '[{"rain": "yes"}, {"rain": "no"}, {}]',
        '{"rain": "yes"}\n{"rain": "no"}\n\n{}',
        "3\n1 0 1\n1 0 0\n0",
    ],
)
def test_samples_are_chosen_by_number(tmp_path, garden, text):
    path = written(tmp_path, text)
    for sample, expected in enumerate(({0: 1}, {0: 0}, {})):
        assert read_evidence(path, garden, sample) == expected
    with pytest.raises(ValueError, match=r"net\.evid has 3 samples of evidence, numbered 0 to 2: choose one"):
        read_evidence(path, garden)
    for sample in (-1, 3):
        with pytest.raises(ValueError, match=rf"sample is {sample}, but .* has 3 samples, numbered 0 to 2"):
            read_evidence(path, garden, sample)
    with pytest.raises(ValueError, match=r"sample is 1, but .* has 1 sample, number 0"):
        read_evidence(written(tmp_path, "rain = yes"), garden, 1)


@pytest.mark.parametrize(
    "text", ["frogs\nrain", '"frogs"  # green\n\n0\n', '["frogs", "rain"]', "[2, 0]", "2 2 0", "2\n2\n0"]
)
def test_map_variables_by_name(tmp_path, garden, text):
    if text.startswith('"frogs"'):
        text = text.replace("0\n", "rain\n")
    assert read_map_variables(written(tmp_path, text), garden) == (2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rain\nsnow", "line 2: no variable is named 'snow'"),
        ("rain\nfrogs\nrain", "variable rain appears twice"),
        ("rain, frogs", "line 1: no variable is named 'rain, frogs'"),
        ('["rain", null]', "None is not a variable"),
        ('{"rain": 1}', "expected a list of names or numbers of variables, found an object"),
        ("", "expected the number of MAP variables, found the end of the file"),
    ],
)
def test_map_variables_that_do_not_fit(tmp_path, garden, text, message):
    with pytest.raises(ValueError, match=r"net\.evid") as caught:
        read_map_variables(written(tmp_path, text), garden)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"names": ["a", 1]}, "names must be unique strings; 1 is not a string"),
        ({"names": ["a", "a"]}, "names must be unique strings; a name appears twice"),
        (
            {"names": ["a"], "states": [["x", ["y"]]]},
            r"names must be unique strings; \['y'\] is not a string",
        ),
    ],
)
def test_names_that_do_not_fit(tmp_path, content, message):
    with pytest.raises(ValueError, match=rf"names\.json: {message}"):
        read_names(written(tmp_path, json.dumps(content), "names.json"))


WORDS = [
    "rain", "wet", "grass", "frogs", "yes", "no", "a", "bit", "0", "1", "2", "-1", "=", '"', "{", "}", "[", "]", ":",
    ",", "\n", "#", "true", "null", "1e9", "9" * 30, "\x00", "²", "é", '{"rain": "yes"}', '{"frogs": 1}',
]  # fmt: skip


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join))
def test_any_text_is_evidence_or_a_value_error(tmp_path, garden, text):
    path = written(tmp_path, text)
    for read in (read_evidence, read_map_variables):
        try:
            found = read(path, garden)
        except ValueError as error:
            assert str(path) in str(error)
        else:
            assert all(0 <= variable < 3 for variable in found)
