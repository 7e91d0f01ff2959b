"""Order of the tables of UAI files: the standard's, that of pgmpy, and children first in their scopes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.read_network import read_network
from ethogram.models.networks.uai import write_network

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


def written(folder, text):
    (folder / "net.uai").write_text(text)
    return folder / "net.uai"


def test_a_file_of_pgmpy_has_its_tables_backwards(tmp_path):
    with pytest.warns(UserWarning, match=r"net\.uai has the child's states slowest .* as pgmpy writes"):
        network = read_network(written(tmp_path, PGMPY))
    assert network.parents == ((), (3, 0), (1,), ())
    first = np.array([[0.1, 0.4], [0.2, 0.5], [0.3, 0.6]])  # b, a
    np.testing.assert_allclose(network.tables[1], np.stack((first, 1 - first), -1))
    np.testing.assert_allclose(network.tables[2], [[0.9, 0.1], [0.25, 0.75]])
    assert network.log_joint([1, 0, 1, 2]) == pytest.approx(np.log(0.2 * 0.6 * 0.1 * 0.5))


def test_what_is_read_is_written_by_the_standard(tmp_path):
    with pytest.warns(UserWarning, match="pgmpy"):
        network = read_network(written(tmp_path, PGMPY))
    write_network(tmp_path / "again.uai", network)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = read_network(tmp_path / "again.uai")
    for one, other in zip(network.tables, again.tables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_children_first_in_their_scopes(tmp_path):
    text = "BAYES 3 2 3 2 3  1 0  2 1 0  3 2 0 1  2 .8 .2  6 .1 .2 .3 .3 .6 .5  12"
    text += " .1 .2 .3 .4 .5 .6 .9 .8 .7 .6 .5 .4"
    with pytest.warns(UserWarning, match=r"net\.uai has the child first in every scope"):
        network = read_network(written(tmp_path, text))
    assert network.parents == ((), (0,), (0, 1))
    np.testing.assert_allclose(network.tables[1], [[0.1, 0.3, 0.6], [0.2, 0.3, 0.5]])
    np.testing.assert_allclose(network.tables[2][..., 0], [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])


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


@pytest.mark.parametrize("rounded", [False, True])
def test_random_networks_backwards(tmp_path, rounded):
    random = np.random.default_rng(0)
    sizes, parents = (2, 3, 2, 4), ((), (0,), (1, 0), (0, 2, 1))
    tables = [
        random.dirichlet(np.ones(size), tuple(sizes[p] for p in each)).reshape(
            *(sizes[p] for p in each), size
        )
        for size, each in zip(sizes, parents, strict=True)
    ]
    if rounded:
        tables = [np.round(table, 5) for table in tables]
    scopes = " ".join(f"{len(each) + 1} {' '.join(map(str, (*each, i)))}" for i, each in enumerate(parents))
    numbers = " ".join(f"{t.size} {' '.join(map(repr, t.transpose().ravel().tolist()))}" for t in tables)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network = read_network(written(tmp_path, f"BAYES 4 2 3 2 4 4 {scopes} {numbers}"))
    assert "pgmpy" in str(caught[0].message)
    assert isinstance(network, BayesNet)
    for one, other in zip(network.tables, tables, strict=True):
        np.testing.assert_array_equal(one, other)
