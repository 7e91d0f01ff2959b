"""UAI files: stored networks round-trip to the letter, all dialects are read, and errors give the line."""

from __future__ import annotations

import gzip
import json
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from ethogram.models.networks import uai
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.read_network import read_network

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
    return read_network(written(tmp_path, GARDEN))


def test_last_variable_of_a_scope_changes_fastest(garden):
    assert garden.sizes == (2, 2, 3) and garden.parents == ((), (2, 0), ())
    assert garden.tables[1].shape == (3, 2, 2)
    np.testing.assert_array_equal(garden.tables[1][2], [[0.25, 0.75], [0, 1]])
    assert garden.log_joint([1, 1, 0]) == pytest.approx(np.log(0.2 * 0.8 * 0.25))
    assert garden.log_joint([1, 1, 1]) == -np.inf


@pytest.mark.skipif(not STORED.exists(), reason="stored networks are not here: set ETHOGRAM_DATA")
@pytest.mark.parametrize("most", [12_000, pytest.param(10**9, marks=pytest.mark.slow)])
def test_stored_networks_come_back_to_the_letter(tmp_path, most):
    paths = sorted((STORED / "uai").glob("*.uai"))
    assert len(paths) == 33
    for path in paths:
        if path.stat().st_size > most:
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*do not sum to one")
            network = read_network(path)
        uai.write_network(tmp_path / "net.uai", network)
        assert (tmp_path / "net.uai").read_text() == path.read_text(), path.name
        evidence = STORED / "evid" / f"{path.stem}.evid"
        uai.write_evidence(tmp_path / "net.evid", network, uai.read_evidence(evidence, network))
        assert (tmp_path / "net.evid").read_text().split() == evidence.read_text().split()
        query = STORED / "map" / f"{path.stem}.map"
        if query.exists():
            uai.write_map_variables(tmp_path / "net.map", network, uai.read_map_variables(query, network))
            assert (tmp_path / "net.map").read_text().split() == query.read_text().split()


def test_white_space_comments_and_compression_make_no_difference(tmp_path, garden):
    odd = GARDEN.replace("\n", "\t\n  ").replace("3\n", "3 # of them\n", 1)
    with gzip.open(tmp_path / "net.uai.gz", "wt") as file:
        file.write(odd)
    again = read_network(tmp_path / "net.uai.gz")
    for one, other in zip(garden.tables, again.tables, strict=True):
        np.testing.assert_array_equal(one, other)
    flat = read_network(written(tmp_path, " ".join(GARDEN.split())))
    assert flat.parents == garden.parents


def test_names_go_to_a_second_file_and_come_back(tmp_path):
    named = BayesNet(
        (np.array([0.5, 0.5]), np.eye(2)),
        ((), (0,)),
        names=("rain", "wet grass"),
        state_names=(("no", "yes"),) * 2,
    )
    uai.write_network(tmp_path / "net.uai", named, tmp_path / "names.json")
    again = read_network(tmp_path / "net.uai", tmp_path / "names.json")
    assert (again.names, again.state_names) == (named.names, named.state_names)
    (tmp_path / "names.json").write_text(json.dumps({"variables": []}))
    with pytest.raises(ValueError, match='has no "names"'):
        read_network(tmp_path / "net.uai", tmp_path / "names.json")


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
        ("1 2 0 1 2", "line 1: sample 0 ends before its 2 pairs"),
        ("1\n2 0 1 2 2 1", "line 2: expected the end of the file after 1 pairs or samples, found 1 more"),
        ("1 7 0", "line 1: 7 is not a variable: give a number in 0..2"),
        ("1 0 5", "line 1: x0 has no state 5; its states are 0..1"),
        ("1\n2 0 1\n0 1", "line 3: variable 0 appears twice"),
        ("1 zero 1", "line 1: expected integer 1, found 'zero'"),
    ],
)
def test_broken_evidence_gives_its_line(tmp_path, garden, text, message):
    with pytest.raises(ValueError, match=message):
        uai.read_evidence(written(tmp_path, text, "net.evid"), garden)


def test_a_sample_that_is_not_there_is_refused(tmp_path, garden):
    with pytest.raises(ValueError, match=r"sample is 2, but .* has 1"):
        uai.read_evidence(written(tmp_path, "1 0 1", "net.evid"), garden, 2)


def test_of_several_samples_none_is_taken_in_silence(tmp_path, garden):
    path = written(tmp_path, "2\n1 0 1\n2 1 0 2 1", "net.evid")
    with pytest.raises(
        ValueError, match=r"net.evid has 2 samples of evidence, numbered 0 to 1: choose one by sample="
    ):
        uai.read_evidence(path, garden)
    assert uai.read_evidence(path, garden, 0) == {0: 1}


def test_queries_with_comments(tmp_path, garden):
    assert uai.read_map_variables(written(tmp_path, "# MAP variables\n2 2\n0", "net.map"), garden) == (2, 0)
    for text, message in (
        ("2 0", "expected MAP variable 1, found the end of the file"),
        ("1 9", "MAP variable 0 is 9, outside 0..2"),
        ("2 1 1", "variable x1 appears twice"),
        ("1 0 1", "expected the end of the file, found '1'"),
    ):
        with pytest.raises(ValueError, match=message):
            uai.read_map_variables(written(tmp_path, text, "net.map"), garden)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("BAYES", "BAYESIAN"), "line 1: expected BAYES or MARKOV, found 'BAYESIAN'"),
        (("2 2 3\n3", "2 2 0\n3"), "line 3: the number of states of variable 2 is 0"),
        (("2 2 3", "2 two 3"), "line 3: expected the number of states of variable 1, found 'two'"),
        (("3 2 0 1", "3 2 2 1"), "line 6: scope 1 lists a variable twice"),
        (("3 2 0 1", "3 2 9 1"), "line 6: a variable of scope 1 is 9, outside 0..2"),
        (("\n12\n", "\n10\n"), r"line 12: table 1 has 10 entries, and its scope \(2, 0, 1\) needs 12"),
        ((" 0.5 0.5", " 0.5 half"), "line 15: expected a number in table 1, found 'half'"),
        ((" 0.5 0.5", " 0.5 -0.5"), "line 15: table 1 has the entry -0.5"),
        ((" 0.5 0.5", " 0.5 nan"), "line 15: table 1 has the entry nan"),
        ((" 0.25 0.25 0.5\n", " 0.25\n"), "line 21: table 2 ends after 1 of its 3 entries"),
        ((" 0.25 0.25 0.5\n", " 0.25 0.25 0.5 0.5\n"), "line 21: expected the end of the file, found '0.5'"),
        (("1 0\n", "1 2\n"), "table 0 has 2 entries"),
    ],
)
def test_broken_networks_give_their_line(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        read_network(written(tmp_path, GARDEN.replace(*change, 1)))


def test_two_tables_of_a_child_and_none_of_another(tmp_path):
    text = "BAYES\n2\n2 2\n2\n1 0\n1 0\n2\n.5 .5\n2\n.5 .5\n"
    with pytest.raises(ValueError, match="variable 0 has two tables, 0 and 1"):
        read_network(written(tmp_path, text))
    text = "BAYES\n2\n2 2\n1\n1 0\n2\n.5 .5\n"
    with pytest.raises(ValueError, match="variable 1 has no table"):
        read_network(written(tmp_path, text))


def test_a_constant_has_no_place_in_a_file(tmp_path):
    with pytest.raises(ValueError, match="log_constant 1"):
        uai.write_network(tmp_path / "net.uai", BayesNet((np.ones(1),), ((),), log_constant=1.0))
