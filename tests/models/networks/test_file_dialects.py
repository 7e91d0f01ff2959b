"""Dialects of network files: what formats and their writers do differently, and what is written comes back."""

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
GARDEN = Path(__file__).parent / "garden_files"
BIF, JSON, NET, XDSL = ((GARDEN / kind).read_text() for kind in ("BIF", "JSON", "NET", "XDSL"))


def written(folder, text):
    (folder / "net").write_text(text)
    return folder / "net"


def test_deterministic_nodes_of_genie(tmp_path):
    node = '<deterministic id="puddle"><state id="yes"/><state id="no"/><parents>wet hose</parents>'
    node += "<resultingstates>no yes yes yes</resultingstates></deterministic>"
    text = XDSL.replace("</nodes>", f"{node}</nodes>")
    network = read_network(written(tmp_path, text))
    np.testing.assert_array_equal(network.tables[3][..., 0], [[0, 1], [1, 1]])
    with pytest.raises(ValueError, match="net: 'puddle' has no state 'maybe': its states are yes, no"):
        read_network(written(tmp_path, text.replace("no yes yes yes", "no yes yes maybe")))


def test_nets_of_one_class(tmp_path):
    text = NET.replace("net { node_size = (50 50); }", "class Garden { inputs = (); outputs = (rain);") + "}"
    network = read_network(written(tmp_path, text))
    np.testing.assert_array_equal(network.tables[2][2], [[0.15, 0.85], [0, 1]])
    for damaged in (text[:-1], text + "}", text + " node x { }", text.replace("node hose", "instance hose")):
        with pytest.raises(ValueError, match=r"net, line \d+: expected"):
            read_network(written(tmp_path, damaged))


@pytest.mark.parametrize("node", ["hose[2]", "hose[4,5]", "hose[-1,0]"])
def test_ranges_of_integers_of_pyagrum(tmp_path, node):
    network = read_network(written(tmp_path, JSON.replace("hose{off|on}", node)))
    assert network.state_names[1] == {"2": ("0", "1"), "5": ("4", "5"), "0": ("-1", "0")}[node[-2]]


@pytest.mark.parametrize("name", ["garden.bif", "garden.bif.gz", "garden.uai", "garden.uai.gz", "garden.txt"])
def test_there_and_back(tmp_path, name):
    """The content decides, and not the name; UAI files have their names beside them."""
    random = np.random.default_rng(0)
    tables = (
        random.dirichlet(np.ones(3)),
        random.dirichlet(np.ones(2), 3),
        random.dirichlet(np.ones(2), (2, 3)),
    )
    network = BayesNet(tables, ((), (0,), (1, 0)), names=("a//b", "b c", "d"))
    states = (("s0", "http://z", "x/*y"), ("s0", "s1"), ("s0", "s1"))
    for own in (states, None):
        network = BayesNet(tables, network.parents, names=network.names, state_names=own)
        write_network(tmp_path / f"u{name}", network, tmp_path / "names.json")
        write_bif(tmp_path / name, network)
        unnamed, uai = (
            read_network(tmp_path / f"u{name}", beside) for beside in (None, tmp_path / "names.json")
        )
        bif = read_bif(tmp_path / name)
        assert unnamed.names == ("x0", "x1", "x2") and uai.names == bif.names == network.names
        assert uai.state_names == own and bif.state_names == (own or (("s0", "s1", "s2"), *states[1:]))
        for found in (unnamed, uai, bif):
            assert found.parents == network.parents
            for one, other in zip(found.tables, tables, strict=True):
                np.testing.assert_array_equal(one, other)


def test_what_the_formats_cannot_say(tmp_path):
    constant = BayesNet((np.array([0.5, 0.5]),), ((),), log_constant=1.0)
    for write in (write_bif, write_network):
        with pytest.raises(ValueError, match="log_constant 1"):
            write(tmp_path / "net", constant)
    with pytest.raises(ValueError, match="quotation mark"):
        write_bif(tmp_path / "net", BayesNet((np.array([0.5, 0.5]),), ((),), names=('a"b',)))


@pytest.mark.parametrize(
    "start", ["// variable is a word of BIF\n", "// \r", "/* of\ntwo lines */ ", " \n\t"]
)
def test_bif_after_comments_and_blanks(tmp_path, start):
    (tmp_path / "net").write_bytes((start + BIF).encode())
    assert read_network(tmp_path / "net").names == ("rain", "hose", "wet")


def test_commas_and_bars_are_blanks_in_javabayes(tmp_path):
    """Version 0.15: the first name is the variable, the others are its parents; the child's states are slowest."""
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
    path = written(tmp_path, text + f"probability ( v18 | {parents} ) {{ default .25 .75; ({row}) 1 0; }}")
    tracemalloc.start()
    table = read_bif(path).tables[-1]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * table.nbytes
    assert (table[..., 0] == 0.25).sum() == 2**count - 1 and table[(1,) * count].tolist() == [1, 0]


@pytest.mark.skipif(not STORED.exists(), reason="stored networks are not here: set ETHOGRAM_DATA")
@pytest.mark.parametrize("name", ["asia", "child", "alarm", "win95pts"])
def test_stored_networks_are_those_of_their_uai_files(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = read_bif(STORED / "bif" / f"{name}.bif.gz")
        other = read_network(STORED / "uai" / f"bnlearn_{name}.uai", STORED / "bif" / f"{name}.names.json")
    random = np.random.default_rng(0)
    for _ in range(20):
        states = {
            name: str(random.choice(known)) for name, known in zip(one.names, one.state_names, strict=True)
        }
        first, second = (
            network.log_joint([network.state(network.variable(v), states[v]) for v in network.names])
            for network in (one, other)
        )
        assert first == pytest.approx(second, rel=1e-12)
