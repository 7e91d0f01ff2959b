"""UAI files: stored networks round-trip to the letter, and orders of tables: the standard's, pgmpy's, child first."""

from __future__ import annotations

import gzip
import json
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from ethogram.models.networks import named, uai
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

PGMPY = """BAYES
4
2 2 2 3
4
1 0
1 3
3 3 0 1
2 1 2

2
0.8 0.2
3
0.2 0.3 0.5
12
0.1 0.2 0.3 0.4 0.5 0.6 0.9 0.8 0.7 0.6 0.5 0.4
4
0.9 0.25 0.1 0.75"""
"""As pgmpy 1.1.2 writes four variables a, c, d, b, where p(c = 0 | a, b) is .1, .2, .3 for a = 0 and .4, .5, .6."""


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
        named.write_evidence(tmp_path / "net.evid", network, named.read_evidence(evidence, network))
        assert (tmp_path / "net.evid").read_text().split() == evidence.read_text().split()
        query = STORED / "map" / f"{path.stem}.map"
        if query.exists():
            named.write_map_variables(tmp_path / "net.map", network, named.read_map_variables(query, network))
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


def test_a_file_of_pgmpy_has_its_tables_backwards(tmp_path):
    with pytest.warns(UserWarning, match=r"net\.uai has the child's states slowest .* as pgmpy writes"):
        network = read_network(written(tmp_path, PGMPY))
    assert network.parents == ((), (3, 0), (1,), ())
    first = np.array([[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]])  # b, a
    np.testing.assert_allclose(network.tables[1], np.stack((first, 1 - first), -1))
    np.testing.assert_allclose(network.tables[2], [[0.9, 0.1], [0.25, 0.75]])
    assert network.log_joint([1, 0, 1, 2]) == pytest.approx(np.log(0.2 * 0.6 * 0.1 * 0.5))


def test_children_first_in_their_scopes(tmp_path):
    text = "BAYES 3 2 3 2 3  1 0  2 1 0  3 2 0 1  2 .8 .2  6 .1 .2 .3 .3 .6 .5  12"
    text += " .1 .2 .3 .4 .5 .6 .9 .8 .7 .6 .5 .4"
    with pytest.warns(UserWarning, match=r"net\.uai has the child first in every scope"):
        network = read_network(written(tmp_path, text))
    assert network.parents == ((), (0,), (0, 1))
    np.testing.assert_allclose(network.tables[1], [[0.1, 0.3, 0.6], [0.2, 0.3, 0.5]])
    np.testing.assert_allclose(network.tables[2][..., 0], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])


def test_children_first_need_tables_that_sum_to_one(tmp_path):
    text = "BAYES 2 2 3 2  1 0  2 1 0  2 .8 .2  6 .1 .2 .3 .3 .6 .6"
    with pytest.raises(
        ValueError, match=r"net\.uai: variable 0 has two tables, 0 and 1: the child is the last"
    ):
        read_network(written(tmp_path, text))


def test_tables_that_sum_to_one_both_ways_are_those_of_the_standard(tmp_path):
    circulant = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    text = "BAYES 2 3 3 2  1 0  2 0 1  3 .2 .3 .5  9 " + " ".join(map(str, circulant.ravel()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = read_network(written(tmp_path, text))
    np.testing.assert_array_equal(network.tables[1], circulant)


def test_one_order_holds_for_all_tables_of_a_file(tmp_path):
    """A table that sums to one both ways is backwards if another can only be backwards."""
    circulant = np.array([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.3, 0.2, 0.5]])
    text = "BAYES 3 3 3 2 3  1 0  2 0 1  2 0 2  3 .2 .3 .5  9 " + " ".join(map(str, circulant.ravel()))
    with pytest.warns(UserWarning, match="pgmpy"):
        network = read_network(written(tmp_path, text + " 6 .1 .2 .3 .9 .8 .7"))
    np.testing.assert_array_equal(network.tables[1], circulant.T)


def test_tables_of_no_order_are_used_as_given(tmp_path):
    text = "BAYES 2 2 2 2  1 0  2 0 1  2 .8 .2  4 .1 .2 .3 .4"
    with pytest.warns(UserWarning, match="rows that do not sum to one"):
        network = read_network(written(tmp_path, text))
    np.testing.assert_array_equal(network.tables[1], [[0.1, 0.2], [0.3, 0.4]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"variables": []}, 'give {"names": '),
        ([1], 'give {"names": '),
        ({"names": 5}, 'give {"names": '),
        ({"names": ["a"], "states": 3}, 'give {"names": '),
        ({"names": ["a"], "states": [3]}, "3 is no list of strings: give"),
        ({"names": ["a", 1]}, "['a', 1] is no list of strings: give"),
        ({"names": ["a"], "states": [["x", ["y"]]]}, "['x', ['y']] is no list of strings: give"),
        ({"names": ["a", "a"]}, "a name appears twice in ['a', 'a']"),
    ],
)
def test_names_that_do_not_fit(tmp_path, content, message):
    (tmp_path / "names.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=rf"names\.json: {re.escape(message)}"):
        read_network(written(tmp_path, GARDEN), tmp_path / "names.json")
