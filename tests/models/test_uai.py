"""UAI files: stored networks come back to the letter, all forms are read, and what is broken is told by its line."""

from __future__ import annotations

import gzip
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from ethogram.models import uai
from ethogram.models.bayes_net import BayesNet

STORED = Path(os.environ.get("ETHOGRAM_DATA", "../shared/data")) / "bayes_nets"
GARDEN = """BAYES
3
2 2 3
3
1 0
3 2 0 1
1 2

2
 0.8 0.2

12
 0.9 0.1
 0.2 0.8
 0.5 0.5
 1 0
 2.5e-1 .75
 0 1.0

3
 0.25 0.25 0.5
"""


def written(folder, text, name="net.uai"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.fixture
def garden(tmp_path):
    return uai.read_network(written(tmp_path, GARDEN))


def test_last_variable_of_a_scope_changes_fastest(garden):
    assert garden.sizes == (2, 2, 3) and garden.parents == ((), (2, 0), ())
    assert garden.tables[1].shape == (3, 2, 2)
    np.testing.assert_array_equal(garden.tables[1][2], [[0.25, 0.75], [0, 1]])
    assert garden.log_joint([1, 1, 0]) == pytest.approx(np.log(0.2 * 0.8 * 0.25))
    assert garden.log_joint([1, 1, 1]) == -np.inf


@pytest.mark.skipif(not STORED.exists(), reason="stored networks are not here: set ETHOGRAM_DATA")
def test_stored_networks_come_back_to_the_letter(tmp_path):
    paths = sorted((STORED / "uai").glob("*.uai"))
    assert len(paths) == 33
    for path in paths:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*do not sum to one")
            network = uai.read_network(path)
        uai.write_network(tmp_path / "net.uai", network)
        assert (tmp_path / "net.uai").read_text() == path.read_text(), path.name
        evidence = STORED / "evid" / f"{path.stem}.evid"
        uai.write_evidence(tmp_path / "net.evid", network, uai.read_evidence(evidence, network))
        assert (tmp_path / "net.evid").read_text().split() == evidence.read_text().split()
        asked = STORED / "map" / f"{path.stem}.map"
        if asked.exists():
            uai.write_map_variables(tmp_path / "net.map", network, uai.read_map_variables(asked, network))
            assert (tmp_path / "net.map").read_text().split() == asked.read_text().split()


def test_white_space_comments_and_compression_make_no_difference(tmp_path, garden):
    odd = GARDEN.replace("\n", "\t\n  ").replace("3\n", "3 # of them\n", 1)
    with gzip.open(tmp_path / "net.uai.gz", "wt") as file:
        file.write(odd)
    again = uai.read_network(tmp_path / "net.uai.gz")
    for one, other in zip(garden.tables, again.tables, strict=True):
        np.testing.assert_array_equal(one, other)
    flat = uai.read_network(written(tmp_path, " ".join(GARDEN.split())))
    assert flat.parents == garden.parents


def test_names_go_to_a_second_file_and_come_back(tmp_path):
    named = BayesNet(
        (np.array([0.5, 0.5]), np.eye(2)),
        ((), (0,)),
        names=("rain", "wet grass"),
        state_names=(("no", "yes"),) * 2,
    )
    uai.write_network(tmp_path / "net.uai", named, tmp_path / "names.json")
    again = uai.read_network(tmp_path / "net.uai", tmp_path / "names.json")
    assert (again.names, again.state_names) == (named.names, named.state_names)
    (tmp_path / "names.json").write_text(json.dumps({"variables": []}))
    with pytest.raises(ValueError, match="has no names"):
        uai.read_network(tmp_path / "net.uai", tmp_path / "names.json")


@pytest.mark.parametrize(
    ("text", "sample", "expected"),
    [
        ("2 0 1 2 2", 0, {0: 1, 2: 2}),
        ("1\n2 0 1 2 2\n", 0, {0: 1, 2: 2}),
        ("2\n1 0 1\n2 1 0 2 1", 1, {1: 0, 2: 1}),
        ("0", 0, {}),
        ("1\n0\n", 0, {}),
        ("", 0, {}),
        ("1 1 0  # wet", 0, {1: 0}),
    ],
)
def test_both_forms_of_evidence(tmp_path, garden, text, sample, expected):
    assert uai.read_evidence(written(tmp_path, text, "net.evid"), garden, sample) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 2 0 1 2", "line 1, ends in sample 0"),
        ("1\n2 0 1 2 2 1", "line 2, has 1 numbers after"),
        ("1 7 0", "line 1, has 7: variables are 0..2"),
        ("1 0 5", "line 1, has 5 for x0: its states are 0..1"),
        ("1\n2 0 1\n0 1", "line 3, has variable 0 twice"),
        ("1 zero 1", "line 1, has 'zero' where number 1"),
    ],
)
def test_broken_evidence_is_told_by_its_line(tmp_path, garden, text, message):
    with pytest.raises(ValueError, match=message):
        uai.read_evidence(written(tmp_path, text, "net.evid"), garden)


def test_a_sample_that_is_not_there_is_refused(tmp_path, garden):
    with pytest.raises(ValueError, match=r"sample is 2: .* has 1"):
        uai.read_evidence(written(tmp_path, "1 0 1", "net.evid"), garden, 2)


def test_queries_with_comments(tmp_path, garden):
    assert uai.read_map_variables(written(tmp_path, "# asked for\n2 2\n0", "net.map"), garden) == (2, 0)
    for text, message in (("2 0", "ends where variable 1"), ("1 9", "9 for variable 0"), ("2 1 1", "variable 1 twice"),
                          ("1 0 1", "goes on with '1'")):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            uai.read_map_variables(written(tmp_path, text, "net.map"), garden)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("BAYES", "BAYESIAN"), "line 1, has 'BAYESIAN'"),
        (("2 2 3\n3", "2 2 0\n3"), "line 3, has 0 for the number of states"),
        (("2 2 3", "2 two 3"), "line 3, has 'two' where"),
        (("3 2 0 1", "3 2 2 1"), "line 6, has scope 1 with a variable twice"),
        (("3 2 0 1", "3 2 9 1"), "line 6, has 9 for a variable of scope 1"),
        (("\n12\n", "\n10\n"), r"line 12, has table 1 of 10 numbers, and its scope \(2, 0, 1\) has 12"),
        ((" 0.5 0.5", " 0.5 half"), "line 15, has 'half' in table 1"),
        ((" 0.5 0.5", " 0.5 -0.5"), "line 15, has -0.5 in table 1"),
        ((" 0.5 0.5", " 0.5 nan"), "line 15, has nan in table 1"),
        ((" 0.25 0.25 0.5\n", " 0.25\n"), "line 21, ends in table 2: 1 of its 3 numbers"),
        ((" 0.25 0.25 0.5\n", " 0.25 0.25 0.5 0.5\n"), "line 21, goes on with '0.5'"),
        (("1 0\n", "1 2\n"), "table 0 of 3? ?numbers|has table 0 of 2 numbers"),
        (("BAYES", "MARKOV"), "says MARKOV"),
    ],
)
def test_broken_networks_are_told_by_their_line(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        uai.read_network(written(tmp_path, GARDEN.replace(*change, 1)))


def test_two_tables_of_a_child_and_none_of_another(tmp_path):
    text = "BAYES\n2\n2 2\n2\n1 0\n1 0\n2\n.5 .5\n2\n.5 .5\n"
    with pytest.raises(ValueError, match="two tables of variable 0, 0 and 1"):
        uai.read_network(written(tmp_path, text))
    text = "BAYES\n2\n2 2\n1\n1 0\n2\n.5 .5\n"
    with pytest.raises(ValueError, match="no table of variable 1"):
        uai.read_network(written(tmp_path, text))


def test_a_constant_has_no_place_in_a_file(tmp_path):
    with pytest.raises(ValueError, match="log_constant 1"):
        uai.write_network(tmp_path / "net.uai", BayesNet((np.ones(1),), ((),), log_constant=1.0))
