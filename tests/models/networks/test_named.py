"""Evidence and MAP variables by name, in JSON and in the UAI format: what is read, what is refused, and any text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.named import (
    parse_assignments,
    parse_variables,
    read_evidence,
    read_map_variables,
)

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
    """Three variables without names, the last with three states."""
    return BayesNet((HALF, HALF, np.full(3, 1 / 3)), ((), (), ()))


def written(folder, text):
    (folder / "net.evid").write_text(text)
    return folder / "net.evid"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rain = yes\nwet grass = a bit", {0: 1, 1: 0}),
        ("rain=yes, wet grass=very wet,", {0: 1, 1: 1}),
        ("# what was seen\nrain=no  # not, a drop\n\nfrogs = 2", {0: 0, 2: 1}),
        ('"wet grass" = "a bit"', {1: 0}),
        ("rain = 1\n1 = 0", {0: 1, 1: 0}),
        ("\ufeffrain = yes", {0: 1}),
        ('{"rain": "yes", "frogs": "1"}', {0: 1, 2: 0}),
        ('\n{"wet grass": 1}\n', {1: 1}),
        ('{"frogs": 1}', {2: 0}),
        ('[{"rain": 0}]', {0: 0}),
        ("{}", {}),
        ("# nothing was seen", {}),
        ("1 0 1", {0: 1}),
    ],
)
def test_evidence_by_name(tmp_path, garden, text, expected):
    assert read_evidence(written(tmp_path, text), garden) == expected


@pytest.mark.parametrize(
    ("text", "sample", "expected"),
    [
        ("2 0 1 2 2", 0, {0: 1, 2: 2}),
        ("1\n2 0 1 2 2\n", 0, {0: 1, 2: 2}),
        ("2\n1 0 1\n2 1 0 2 1", 1, {1: 0, 2: 1}),
        ("2\n0\n1 2 2", 1, {2: 2}),
        ("2\n0 1\n2 2", 0, {0: 1, 2: 2}),
        ("0", 0, {}),
        ("1\n0\n", 0, {}),
        ("", 0, {}),
        ("1 1 0  # wet", 0, {1: 0}),
        ("x0 = 1\n2 = 0", None, {0: 1, 2: 0}),
        ("x1=0,x0=1", None, {1: 0, 0: 1}),
    ],
)
def test_evidence_by_number(tmp_path, unnamed, text, sample, expected):
    assert read_evidence(written(tmp_path, text), unnamed, sample) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rain = yes\nsnow = no", ", line 2: no variable is named 'snow'; there are rain, wet grass, frogs"),
        ("\nrain = maybe", ", line 2: rain has no state 'maybe'; its states are no, yes"),
        ("wet grass = soaked", ": wet grass has no state 'soaked'; its states are a bit, very wet"),
        ("rain yes", ": expected 'variable = state', found 'rain yes'"),
        ("rain", ": expected 'variable = state', found 'rain'"),
        ("rain =", ": expected 'variable = state', found 'rain ='"),
        ("= yes", ": expected 'variable = state', found '= yes'"),
        ("rain = yes\n0 = 1", ", line 2: variable rain appears twice"),
        ("rain = 2", ": rain has no state 2; its states are no, yes, or by number 0..1"),
        ("frogs = 0", ": frogs has no state 0; its states are 1, 2, many"),
        ("frogs = 01", ": frogs has no state '01'; its states are 1, 2, many"),
        ('{"rain": "yes", "rain": "no"}', ": 'rain' appears twice"),
        ('{"rain": "yes", "0": "no"}', ", sample 0: variable rain appears twice"),
        ('{"rain": true}', ", sample 0, state of rain: expected a name or a number, found True"),
        ('{"rain": [0.2, 0.8]}', ", sample 0, state of rain: expected a name or a number, found [0.2, 0.8]"),
        ('{"frogs": 0}', ", sample 0: frogs has no state 0; its states are 1, 2, many"),
        ('{"rain": "yes"', ", line 1: not JSON: Expecting ',' delimiter"),
        ('{"rain": "yes"}\n{"rain": }', ", line 2: not JSON: Expecting value"),
        ("[]", " has no sample"),
        ('["rain"]', ", sample 0: expected an object of states by variable, found 'rain'"),
        ("[" * 100_000, "nested too deeply"),
        ('{"rain": ' + "1" * 5000 + "}", ": "),
        ("1 zero 1", ": expected 'variable = state', found '1 zero 1'"),
        ("1 2 0 1 2", ", line 1: sample 0 ends before its 2 pairs"),
        ("1\n2 0 1 2 2 1", ", line 2: expected the end of the file after 1 pairs or samples, found 1 more"),
        ("1 7 0", ", line 1: no variable is named 7; there are rain, wet grass, frogs, or by number 0..2"),
        ("1 0 5", ", line 1: rain has no state 5; its states are no, yes, or by number 0..1"),
        ("1 0 -1", ", line 1: integer 2 is -1, outside 0.."),
        ("1\n2 0 1\n0 1", ", line 3: variable 0 appears twice"),
    ],
)
def test_evidence_that_does_not_fit(tmp_path, garden, text, message):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=r"net\.evid") as caught:
        read_evidence(path, garden)
    assert message in str(caught.value).removeprefix(str(path))


def test_signs_in_names_need_quotation_marks():
    """The first equals sign outside of quotation marks is that of the assignment, in files and lists alike."""
    network = BayesNet(
        (HALF,) * 3,
        ((),) * 3,
        names=("p=q", "p", "a, b"),
        state_names=(("r", "x"), ("q=r", "<=3"), ("c#", 'd"')),
    )
    assert parse_assignments(network, "p=q=r", "here") == {1: 0}
    assert parse_assignments(network, '"p=q" = r, p = <=3', "here") == {0: 0, 1: 1}
    assert parse_assignments(network, '"a, b"="c#"\n# no more', "here") == {2: 0}
    assert parse_variables(network, '"a, b", p ,,"p=q"', "here") == (2, 1, 0)
    assert parse_variables(network, "", "here") == ()
    with pytest.raises(ValueError, match="here: no variable is named 'a'"):
        parse_variables(network, "a, b", "here")


def test_names_that_are_numbers_leave_no_numbers():
    network = BayesNet((HALF,) * 3, ((),) * 3, names=("7", "1", "y"))
    assert parse_assignments(network, "1 = 0", "here") == {1: 0}
    with pytest.raises(ValueError, match="here: no variable is named 0; there are 7, 1, y"):
        parse_assignments(network, "0 = 0", "here")


def test_states_without_names(unnamed):
    with pytest.raises(ValueError, match=r"here: x0 has no state 'yes'; its states are 0..1, without names"):
        parse_assignments(unnamed, "x0 = yes", "here")


@pytest.mark.parametrize(
    "text",
    ['[{"rain": "yes"}, {"rain": "no"}, {}]', '{"rain": "yes"}\n{"rain": "no"}\n\n{}', "3\n1 0 1\n1 0 0\n0"],
)
def test_samples_are_chosen_by_number(tmp_path, garden, text):
    path = written(tmp_path, text)
    for sample, expected in enumerate(({0: 1}, {0: 0}, {})):
        assert read_evidence(path, garden, sample) == expected
    several = r"net\.evid contains 3 evidence samples; pass sample=0..2 \(or --sample\)"
    with pytest.raises(ValueError, match=several):
        read_evidence(path, garden)
    for sample in (-1, 3):
        with pytest.raises(ValueError, match=rf"sample is {sample}, but .* contains samples 0..2"):
            read_evidence(path, garden, sample)
    with pytest.raises(ValueError, match=r"sample is 1, but .* contains only sample 0"):
        read_evidence(written(tmp_path, "rain = yes"), garden, 1)


@pytest.mark.parametrize(
    "text",
    [
        "frogs\nrain", '"frogs"  # green\n\nrain\n', "frogs, rain", "2, rain", '["frogs", "rain"]', "[2, 0]",
        "2 2 0", "# MAP variables\n2 2\n0",
    ],
)  # fmt: skip
def test_map_variables(tmp_path, garden, text):
    assert read_map_variables(written(tmp_path, text), garden) == (2, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rain\nsnow", ", line 2: no variable is named 'snow'"),
        ("rain\nfrogs\nrain", ": variable rain appears twice"),
        ("rain frogs", ": no variable is named 'rain frogs'"),
        ('["rain", null]', ": expected a name or a number, found None"),
        ('["rain", 7]', ": no variable is named 7; there are rain, wet grass, frogs, or by number 0..2"),
        ('{"rain": 1}', ": expected a list of names or numbers of variables, found an object"),
        ("[0] [1]", ": not JSON: expected one value, found 2"),
        ("", ", line 1: expected the number of MAP variables, found the end of the file"),
        ("2 0", ", line 1: expected MAP variable 1, found the end of the file"),
        ("1 9", ", line 1: MAP variable 0 is 9, outside 0..2"),
        ("2 1 1", ": variable wet grass appears twice"),
        ("1 0 1", ", line 1: expected the end of the file, found '1'"),
    ],
)
def test_map_variables_that_do_not_fit(tmp_path, garden, text, message):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=r"net\.evid") as caught:
        read_map_variables(path, garden)
    assert message in str(caught.value).removeprefix(str(path))


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
