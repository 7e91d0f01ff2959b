"""Network files of any format: the content says which, each is opened and tokenized once, and the kinds agree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.bif import write_bif
from ethogram.models.networks.read_network import read, read_network
from ethogram.models.networks.tokens import Tokens
from ethogram.models.networks.uai import write_network

MARKOV = "MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n2\n1.0 3.0\n4\n2.0 1.0 0.5 5.0\n"


@pytest.fixture
def network():
    """Rain and wet grass, with names."""
    tables = (np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.25, 0.75]]))
    return BayesNet(tables, ((), (0,)), names=("rain", "wet grass"), state_names=(("no", "yes"),) * 2)


def same(found, network, named):
    for one, other in zip(found.tables, network.tables, strict=True):
        np.testing.assert_array_equal(one, other)
    assert found.parents == network.parents
    assert (found.names == network.names) is named


@pytest.mark.parametrize("suffix", ["uai", "bif", "txt", "uai.gz"])
def test_the_content_decides_and_not_the_name(tmp_path, network, suffix):
    write_network(tmp_path / f"a.{suffix}", network, tmp_path / "names.json")
    same(read_network(tmp_path / f"a.{suffix}"), network, False)
    same(read_network(tmp_path / f"a.{suffix}", tmp_path / "names.json"), network, True)
    write_bif(tmp_path / f"b.{suffix}", network)
    found, evidence = read(tmp_path / f"b.{suffix}")
    same(found, network, True)
    assert evidence == {}
    with pytest.raises(ValueError, match="is BIF and has its own names"):
        read(tmp_path / f"b.{suffix}", tmp_path / "names.json")


@pytest.mark.parametrize("start", ["// variable is a word of BIF\n", "/* of\ntwo lines */ ", " \n\t"])
def test_bif_after_comments_and_blanks(tmp_path, network, start):
    write_bif(tmp_path / "net", network)
    (tmp_path / "net").write_text(start + (tmp_path / "net").read_text())
    same(read_network(tmp_path / "net"), network, True)


def test_factors_come_with_their_evidence_or_are_refused(tmp_path):
    (tmp_path / "m.uai").write_text(MARKOV)
    found, evidence = read(tmp_path / "m.uai")
    assert len(evidence) == found.num_variables - 2 > 0
    values = [found.log_joint([a, b, *evidence.values()]) for a in (0, 1) for b in (0, 1)]
    np.testing.assert_allclose(values, [math.log(x) for x in (2.0, 1.0, 1.5, 15.0)], rtol=1e-12)
    with pytest.raises(
        ValueError, match=r"m\.uai is MARKOV: its factors need evidence or a constant; use read"
    ):
        read_network(tmp_path / "m.uai")
    (tmp_path / "tables.uai").write_text("MARKOV 2 2 2 2 1 0 2 0 1 2 .5 .5 4 .9 .1 .2 .8")
    assert read_network(tmp_path / "tables.uai").parents == ((), (0,))


@pytest.mark.parametrize("text", ["", "# nothing", '{"names": ["a"]}', "networks 1", "graph { variable x; }"])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "net").write_text(text)
    with pytest.raises(ValueError, match=r"net, line 1: expected BAYES or MARKOV, found"):
        read(tmp_path / "net")


def test_tokens_know_their_lines():
    tokens = Tokens("file", "one two # three\n\n  four\nfive")
    assert tokens.words == ["one", "two", "four", "five"]
    assert tokens.lines == [1, 1, 3, 4]
    tokens.expect("one", "two", "four")
    assert str(tokens.error("no")) == "file, line 3: no"
    assert str(tokens.error("no", ahead=True)) == "file, line 4: no"
    with pytest.raises(ValueError, match="file, line 4: expected a number, found 'five'"):
        tokens.integer("a number", 0)
