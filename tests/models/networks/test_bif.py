"""BIF files: what is read and written, there and back, and what is refused with its line."""

from __future__ import annotations

import os
import tracemalloc
import warnings
from pathlib import Path

import numpy as np
import pytest

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.bif import read_bif, write_bif
from ethogram.models.networks.read_network import read_network
from ethogram.models.networks.uai import write_network

STORED = Path(os.environ.get("ETHOGRAM_DATA", "../shared/data")) / "bayes_nets"

SPRINKLER = """network garden { property made by hand; }
// rain comes first
variable rain { type discrete [ 2 ] { no, yes }; property position = (1, 2); }
variable "wet grass" { type discrete [ 3 ] { dry, damp, "very wet" }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( "wet grass" | rain ) { /* rows
   in any order */
  (yes) 0.1, 0.2, 0.7;
  default 0.9, 0.1, 0;
}
"""


def written(folder, text):
    path = folder / "garden.bif"
    path.write_text(text)
    return path


def test_words_rows_and_defaults(tmp_path):
    network = read_bif(written(tmp_path, SPRINKLER))
    assert network.names == ("rain", "wet grass")
    assert network.state_names == (("no", "yes"), ("dry", "damp", "very wet"))
    np.testing.assert_array_equal(network.tables[1], [[0.9, 0.1, 0], [0.1, 0.2, 0.7]])


@pytest.mark.parametrize("name", ["garden.bif", "garden.bif.gz"])
def test_there_and_back(tmp_path, name):
    random = np.random.default_rng(0)
    tables = (
        random.dirichlet(np.ones(3)),
        random.dirichlet(np.ones(2), 3),
        random.dirichlet(np.ones(2), (2, 3)),
    )
    network = BayesNet(tables, ((), (0,), (1, 0)), names=("a b", "b", "c"))
    write_bif(tmp_path / name, network)
    found = read_bif(tmp_path / name)
    assert (found.names, found.parents) == (network.names, network.parents)
    assert found.state_names == (("s0", "s1", "s2"), ("s0", "s1"), ("s0", "s1"))
    for one, other in zip(found.tables, tables, strict=True):
        np.testing.assert_array_equal(one, other)


def test_names_go_through_uai_by_a_file_beside(tmp_path):
    network = read_bif(written(tmp_path, SPRINKLER))
    write_network(tmp_path / "garden.uai", network, tmp_path / "names.json")
    write_bif(tmp_path / "again.bif", read_network(tmp_path / "garden.uai", tmp_path / "names.json"))
    again = read_bif(tmp_path / "again.bif")
    assert (again.names, again.state_names) == (network.names, network.state_names)
    np.testing.assert_array_equal(again.tables[1], network.tables[1])


@pytest.mark.skipif(not STORED.exists(), reason="stored networks are not here: set ETHOGRAM_DATA")
@pytest.mark.parametrize("name", ["asia", "child", "alarm", "win95pts"])
def test_stored_networks_are_those_of_their_uai_files(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = read_bif(STORED / "bif" / f"{name}.bif.gz")
        other = read_network(STORED / "uai" / f"bnlearn_{name}.uai", STORED / "bif" / f"{name}.names.json")
    random = np.random.default_rng(0)
    for _ in range(20):
        states_of = {
            name: str(random.choice(states)) for name, states in zip(one.names, one.state_names, strict=True)
        }
        first, second = (
            network.log_joint([network.state(network.variable(v), states_of[v]) for v in network.names])
            for network in (one, other)
        )
        assert first == pytest.approx(second, rel=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[ 2 ] { no, yes }", "[ 3 ] { no, yes }", "line 3: variable 'rain' has 3 states, but 2 names"),
        ("table 0.8, 0.2;", "table 0.8;", "line 5: expected 2 numbers, found 1"),
        ("table 0.8, 0.2;", "table 0.8, much;", "line 5: expected a number, found 'much'"),
        ("| rain )", "| snow )", "line 6: variable 'snow' has not been declared"),
        ("(yes) 0.1", "(maybe) 0.1", "line 8: 'rain' has no state 'maybe': its states are no, yes"),
        ("(yes) 0.1, 0.2, 0.7;", "(yes) 0.1, 0.2, 0.7; (yes) 0.1, 0.2, 0.7;", "line 8: row .* appears twice"),
        ("default 0.9, 0.1, 0;", "", "row \\['no'\\] of 'wet grass' is missing"),
        ("probability ( rain ) { table 0.8, 0.2; }", "", "variable 'rain' has no probability block"),
        ("variable rain", "thing rain", "line 3: expected network, variable or probability, found 'thing'"),
        (
            "(yes) 0.1, 0.2, 0.7;",
            "(yes, no) 0.1, 0.2, 0.7;",
            "a row of 'wet grass' has 2 states for its 1 parents",
        ),
    ],
)
def test_files_that_do_not_fit(tmp_path, old, new, message):
    assert old in SPRINKLER
    with pytest.raises(ValueError, match=message):
        read_bif(written(tmp_path, SPRINKLER.replace(old, new)))


def test_cut_short(tmp_path):
    whole = SPRINKLER.rstrip()
    for stop in range(len("network garden {"), len(whole) - 1, 7):
        with pytest.raises(ValueError, match=r"garden\.bif"):
            read_bif(written(tmp_path, whole[:stop]))


def test_what_the_format_cannot_say(tmp_path):
    network = BayesNet((np.array([0.5, 0.5]),), ((),), log_constant=1.0)
    with pytest.raises(ValueError, match="log_constant"):
        write_bif(tmp_path / "x.bif", network)
    with pytest.raises(ValueError, match="quotation mark"):
        write_bif(tmp_path / "x.bif", BayesNet((np.array([0.5, 0.5]),), ((),), names=('a"b',)))


def test_a_table_with_parents_goes_through_the_childs_states_slowest(tmp_path):
    text = """network dog { } variable out { type discrete [ 2 ] { true, false }; }
variable light { type discrete [ 2 ] { true, false }; }
probability ( out ) { table 0.15 0.85; } probability ( light | out ) { table 0.6 0.05 0.4 0.95; }"""
    network = read_bif(written(tmp_path, text))
    np.testing.assert_allclose(network.tables[1], [[0.6, 0.4], [0.05, 0.95]])


def test_slashes_in_names_are_no_comments(tmp_path):
    network = BayesNet((np.array([0.5, 0.5]),), ((),), names=("a//b",), state_names=(("x/*y", "http://z"),))
    write_bif(tmp_path / "x.bif", network)
    found = read_bif(tmp_path / "x.bif")
    assert (found.names, found.state_names) == (network.names, network.state_names)


def test_commas_and_bars_are_blanks_in_javabayes(tmp_path):
    """Version 0.15: the first name is the variable, the others are its parents."""
    text = """network "Dog-Problem" { property "credal-set constant-density-bounded 1.1" ; }
variable "out" { type discrete[2] { "true" "false" }; property "position = (218, 195)" ; }
variable "bowel" { type discrete[3] { "true" "a bit" "false" }; }
variable "dog" { type discrete[2] { "true" "false" }; }
probability ( "out" ) { table 0.15 0.85 ; }
probability ( "bowel" ) { table 0.01, 0.09, 0.9 ; }
probability ( "dog" "bowel" "out" ) { %s }"""
    rows = [[0.99, 0.97], [0.96, 0.9], [0.5, 0.3]]
    slow = "table 0.99 0.97 0.96 0.9 0.5 0.3 0.01 0.03 0.04 0.1 0.5 0.7 ;"
    listed = "".join(
        f'("{bowel}" "{out}") {rows[i][j]} {1 - rows[i][j]!r} ;'
        for i, bowel in enumerate(("true", "a bit", "false"))
        for j, out in enumerate(("true", "false"))
    )
    for content in (slow, listed):
        network = read_bif(written(tmp_path, text % content))
        assert network.parents == ((), (), (1, 0))
        np.testing.assert_allclose(network.tables[2][..., 0], rows)
        np.testing.assert_allclose(network.tables[2].sum(-1), 1)


def test_a_default_row_takes_the_memory_of_its_table(tmp_path):
    """18 parents: a table of 4 MiB, of which the default fills all rows but one."""
    count = 18
    text = "".join(f"variable v{i} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for i in range(count + 1))
    text += "".join(f"probability ( v{i} ) {{ table .5 .5; }}\n" for i in range(count))
    parents, row = ", ".join(f"v{i}" for i in range(count)), ", ".join("b" * count)
    text += f"probability ( v{count} | {parents} ) {{ default .25 .75; ({row}) 1 0; }}"
    path = written(tmp_path, text)
    tracemalloc.start()
    table = read_bif(path).tables[-1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * table.nbytes
    assert (table[..., 0] == 0.25).sum() == 2**count - 1 and table[(1,) * count].tolist() == [1, 0]


def test_a_variable_without_states(tmp_path):
    with pytest.raises(ValueError, match="line 1: variable 'a' has no states"):
        read_bif(written(tmp_path, "variable a { type discrete [ 0 ] { }; } probability ( a ) { table ; }"))
