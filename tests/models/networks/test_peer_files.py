"""Files of pgmpy and pyAgrum against the tables that they were made from: as stored, and as the peers write today.

Run as a script, it writes the stored files.
"""

from __future__ import annotations

import itertools
import re
import warnings
from pathlib import Path

import numpy as np
import pytest

from ethogram.models.networks.read_network import read

HERE = Path(__file__).parent / "peer_files"
PYAGRUM = ("uai", "dsl", "bif", "net", "bifxml", "xdsl", "jgum")
PGMPY = {
    "uai": "UAIWriter",
    "bif": "BIFWriter",
    "net": "NETWriter",
    "xdsl": "XDSLWriter",
    "xmlbif": "XMLBIFWriter",
}


def weights(shape):
    """Rows of numbers of which no two orders agree, that sum to one."""
    at = np.indices(shape)
    table = 1.0 + np.tensordot([5, 3, 7, 4][-len(shape) :], at, 1) % 11 + at.prod(0)
    return table / table.sum(-1, keepdims=True)


SIZES = {"c": 2, "a": 3, "b": 4, "d": 2}
STATES = {name: tuple(f"{name}{i}" for i in range(size)) for name, size in SIZES.items()}
TABLES = {scope: weights([SIZES[name] for name in scope]) for scope in ("c", "ca", "b", "cabd")}
"""Tables of four variables by their scopes, the parents and the variable's own axis last."""
MARKOV = {
    "bcad": (1.0 + np.arange(48).reshape(4, 2, 3, 2)) / 8,
    "ab": (3.0 + np.arange(12).reshape(3, 4) % 7) / 4,
}
"""Factors of a Markov network of the same variables."""


def write_pgmpy(folder, states, tables):
    """Write a network in all formats of pgmpy; the names of the files."""
    from pgmpy import readwrite
    from pgmpy.factors.discrete import TabularCPD
    from pgmpy.models import DiscreteBayesianNetwork
    from pgmpy.readwrite.XMLBeliefNetwork import XBNWriter

    network = DiscreteBayesianNetwork([(parent, scope[-1]) for scope in tables for parent in scope[:-1]])
    network.add_nodes_from(states)
    for scope, table in tables.items():
        (*above, name), (*given, size) = scope, table.shape
        values = np.moveaxis(table, -1, 0).reshape(size, -1)
        own = {each: list(states[each]) for each in scope}
        network.add_cpds(TabularCPD(name, size, values, above or None, given or None, state_names=own))
    writers = {suffix: getattr(readwrite, name) for suffix, name in PGMPY.items()} | {"xbn": XBNWriter}
    for suffix, writer in writers.items():
        writer(network).write(str(folder / f"pgmpy.{suffix}"))
    return [f"pgmpy.{suffix}" for suffix in writers]


def write_pgmpy_factors(folder):
    """Write the Markov network by pgmpy; the names of the files."""
    from pgmpy import readwrite
    from pgmpy.factors.discrete import DiscreteFactor
    from pgmpy.models import DiscreteMarkovNetwork

    markov = DiscreteMarkovNetwork([pair for scope in MARKOV for pair in itertools.combinations(scope, 2)])
    for scope, table in MARKOV.items():
        markov.add_factors(DiscreteFactor(list(scope), list(table.shape), table))
    readwrite.UAIWriter(markov).write(str(folder / "pgmpy_markov.uai"))
    return ["pgmpy_markov.uai"]


def write_pyagrum(folder, states, tables):
    """Write a network in all formats of pyAgrum that are text; the names of the files."""
    import pyagrum

    network = pyagrum.BayesNet("garden")
    for name, each in states.items():
        network.add(pyagrum.LabelizedVariable(name, "", list(each)))
    for scope in tables:
        for parent in scope[:-1]:
            network.addArc(parent, scope[-1])
    for scope, table in tables.items():
        _fill(network.cpt(scope[-1]), scope, table)
    for suffix in PYAGRUM:
        pyagrum.saveBN(network, str(folder / f"pyagrum.{suffix}"))
    return [f"pyagrum.{suffix}" for suffix in PYAGRUM]


def write_pyagrum_factors(folder):
    """Write the Markov network by pyAgrum; the names of the files."""
    import pyagrum

    markov = pyagrum.MarkovRandomField("garden")
    for name, each in STATES.items():
        markov.add(pyagrum.LabelizedVariable(name, "", list(each)))
    for scope, table in MARKOV.items():
        _fill(markov.addFactor(list(scope)), scope, table)
    pyagrum.saveMRF(markov, str(folder / "pyagrum_markov.uai"))
    return ["pyagrum_markov.uai"]


def _fill(theirs, scope, table):
    """Set entries one by one, by the names of the variables, whatever the order of their axes is."""
    for index in np.ndindex(table.shape):
        theirs[dict(zip(scope, index, strict=True))] = float(table[index])


PEERS = {"pgmpy": (write_pgmpy, write_pgmpy_factors), "pyagrum": (write_pyagrum, write_pyagrum_factors)}


def agrees(path, states=STATES, tables=TABLES):
    """Whether a file has the probabilities, or factors, of its tables at every assignment."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(rows that do not sum to one|as pgmpy writes)")
        network, evidence = read(path)
    names = network.names
    if (
        names[0] not in states
    ):  # a UAI file: pgmpy orders variables by their numbers of states, as text, and by name
        theirs = sorted(states, key=lambda name: (str(len(states[name])), name))
        names = theirs if path.name.startswith("pgmpy") else list(states)
    assert set(names[: len(states)]) == set(states)
    for values in itertools.product(*(range(len(each)) for each in states.values())):
        at = dict(zip(states, values, strict=True))
        truth = [table[tuple(at[name] for name in scope)] for scope, table in tables.items()]
        found = [at[name] for name in names]
        if network.state_names is not None:
            found = [network.state(i, states[name][at[name]]) for i, name in enumerate(names)]
        log_joint = network.log_joint([*found, *evidence.values()])
        with np.errstate(divide="ignore"):
            if log_joint != pytest.approx(np.log(truth).sum(), abs=4e-4):  # pyAgrum writes six digits
                return False
    return True


@pytest.mark.parametrize("name", sorted(path.name for path in HERE.iterdir()))
def test_stored_files(name):
    assert agrees(HERE / name, tables=MARKOV if "markov" in name else TABLES)


@pytest.mark.parametrize("peer", PEERS)
def test_files_of_today(peer, tmp_path):
    pytest.importorskip(peer, reason=f"{peer} is not installed")
    write, write_factors = PEERS[peer]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        written = write(tmp_path, STATES, TABLES), write_factors(tmp_path)
    assert {path.name for path in HERE.glob(f"{peer}*")} == set().union(*written)
    for names, tables in zip(written, (TABLES, MARKOV), strict=True):
        for name in names:
            assert agrees(tmp_path / name, tables=tables), name


NAMES = [("1", "2", "home"), ("2", "1"), ("0", "1", "2"), ("yes", "no"), ("10", "9", "8", "7")]


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS)
def test_networks_of_any_kind(peer, tmp_path):
    """Variables and parents in any order, states named by numbers that are not theirs, rows with zeros."""
    pytest.importorskip(peer, reason=f"{peer} is not installed")
    random = np.random.default_rng(38)
    for _ in range(12):
        letters = random.permutation(list("pqrst"))[: random.integers(2, 6)].tolist()
        states = {name: NAMES[random.integers(len(NAMES))] for name in random.permutation(letters).tolist()}
        tables = {}
        for i, name in enumerate(letters):
            above = random.permutation(letters[:i])[: random.integers(0, min(i, 3) + 1)].tolist()
            shape = tuple(len(states[each]) for each in (*above, name))
            table = random.dirichlet(np.full(shape[-1], 0.7), shape[:-1]) * (random.random(shape) < 0.9)
            table[~table.any(-1)] = 1
            tables[(*above, name)] = np.round(table / table.sum(-1, keepdims=True), 3)
            tables[(*above, name)][..., -1] += 1 - tables[(*above, name)].sum(-1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            written = PEERS[peer][0](tmp_path, states, tables)
        for name in written:
            assert agrees(tmp_path / name, states, tables), (name, states, tables)


@pytest.mark.parametrize("name", ["pyagrum.uai", "pyagrum_markov.uai"])
def test_orders_that_cannot_be_decided_are_refused(name, tmp_path):
    """One comment less: neither the standard's file nor pyAgrum's."""
    text = (HERE / name).read_text()
    for place in [found.start() for found in re.finditer(" *#[^\n]*", text)]:
        end = text.index("\n", place)
        (tmp_path / name).write_text(text[:place] + text[end:])
        if "nbr" in text[place:end]:
            assert agrees(tmp_path / name, tables=MARKOV)
            continue
        with pytest.raises(
            ValueError, match=rf"{name}, line \d+: table \d is in the order of the standard or of pyAg"
        ):
            read(tmp_path / name)


def test_either_mark_of_pyagrum_in_xdsl_is_enough(tmp_path):
    text = (HERE / "pyagrum.xdsl").read_text()
    (tmp_path / "net").write_text(text.replace("created by pyAgrum", "drawn"))
    assert agrees(tmp_path / "net")
    (tmp_path / "net").write_text(text.replace('app="aGrUM', 'app="GeNIe'))
    assert agrees(tmp_path / "net")
    (tmp_path / "net").write_text(
        text.replace('app="aGrUM', 'app="GeNIe').replace("created by pyAgrum", "drawn")
    )
    assert not agrees(tmp_path / "net")


def test_comments_that_are_not_pyagrums(tmp_path):
    """The standard's order where nothing beside a scope or a size says otherwise, and where both orders agree."""
    plain = re.sub(" *#[^\n]*", "", (HERE / "pyagrum.uai").read_text())
    for text in (plain, f"# by hand\n{plain}# the end\n"):  # the blanks are pyAgrum's still
        (tmp_path / "pyagrum.uai").write_text(text)
        with pytest.raises(ValueError, match=r"table \d is in the order of the standard or of pyAgrum"):
            read(tmp_path / "pyagrum.uai")
        (tmp_path / "pyagrum.uai").write_text(re.sub(" +\n", "\n", text))
        assert not agrees(tmp_path / "pyagrum.uai")
    (tmp_path / "two.uai").write_text("BAYES 2 2 3 2\n1 0 # rain\n2 0 1\n2 .8 .2 6 .1 .2 .7 .3 .3 .4")
    np.testing.assert_array_equal(
        read(tmp_path / "two.uai").network.tables[1], [[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]
    )


CYCLE = "BAYES\n2\n3 3\n2\n1 0\n2 0 1\n\n3\n0.2 0.3 0.5\n9\n{}"


def test_tables_of_pgmpy_that_sum_to_one_both_ways_are_refused(tmp_path):
    (tmp_path / "net.uai").write_text(CYCLE.format("0.0 1.0 0.0 0.0 0.0 1.0 1.0 0.0 0.0"))
    with pytest.raises(
        ValueError, match=r"net\.uai: its tables sum to one in the order of the standard and in that"
    ):
        read(tmp_path / "net.uai")
    (tmp_path / "net.uai").write_text(CYCLE.format("0.0 1.0 0.0 0.0 0.0 1.0 1.0 0.0 0.0\n"))
    assert read(tmp_path / "net.uai").network.tables[1][0].tolist() == [0, 1, 0]
    (tmp_path / "net.uai").write_text(CYCLE.format("0.8 0.1 0.1 0.1 0.8 0.1 0.1 0.1 0.8"))
    assert read(tmp_path / "net.uai").network.tables[1][0].tolist() == [0.8, 0.1, 0.1]


def test_tables_of_pgmpy_that_are_rounded(tmp_path):
    """No row sums to one to four digits; those of the order that pgmpy writes nearly do."""
    (tmp_path / "net.uai").write_text(CYCLE.format("0.33 0.5 0.1 0.33 0.25 0.1 0.33 0.26 0.8"))
    with pytest.warns(UserWarning, match="as pgmpy writes|rows that do not sum to one"):
        network = read(tmp_path / "net.uai").network
    np.testing.assert_array_equal(network.tables[1][1], [0.5, 0.25, 0.26])


if __name__ == "__main__":
    for write, write_factors in PEERS.values():
        print(write(HERE, STATES, TABLES), write_factors(HERE))
