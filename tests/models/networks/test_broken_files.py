"""Damaged network files: a byte order mark is skipped, all else gets a ValueError that names file and place."""

from __future__ import annotations

import gzip
import re
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ethogram.models.networks import tokens
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.read_network import read, read_network

UAI = "BAYES\n3\n2 2 3\n3\n1 0\n3 2 0 1\n1 2\n\n2\n.8 .2\n12\n.9 .1 .2 .8 .5 .5 1 0 .25 .75 0 1\n3\n.25 .25 .5\n"
MARKOV = "MARKOV\n2\n2 2\n2\n1 0\n2 0 1\n2\n1.0 3.0\n4\n2.0 1.0 0.5 5.0\n"
BIF = """network garden { property made by hand; }
variable rain { type discrete [ 2 ] { no, yes }; }
variable "wet grass" { type discrete [ 3 ] { dry, damp, "very wet" }; }
probability ( rain ) { table 0.8, 0.2; }
probability ( "wet grass" | rain ) { (yes) 0.1, 0.2, 0.7; default 0.9, 0.1, 0; }
"""


@pytest.mark.parametrize("text", [UAI, MARKOV, BIF])
def test_a_byte_order_mark_and_other_ends_of_lines_change_nothing(tmp_path, text):
    (tmp_path / "plain").write_text(text)
    (tmp_path / "marked").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    (one, evidence), (other, also) = read(tmp_path / "plain"), read(tmp_path / "marked")
    assert (one.names, one.parents, evidence) == (other.names, other.parents, also)
    for table, again in zip(one.tables, other.tables, strict=True):
        np.testing.assert_array_equal(table, again)


def test_utf16_is_named(tmp_path):
    (tmp_path / "net.bif").write_text(BIF, encoding="utf-16")
    with pytest.raises(ValueError, match=r"net\.bif is not UTF-8 text: .* starts as UTF-16"):
        read(tmp_path / "net.bif")


def test_cycles_name_the_file_and_the_variables(tmp_path):
    (tmp_path / "a.uai").write_text("BAYES 2 2 2 2  2 1 0  2 0 1  4 .5 .5 .5 .5  4 .5 .5 .5 .5")
    with pytest.raises(ValueError, match=r"a\.uai: parents contain a cycle: x\d -> x\d -> x\d"):
        read(tmp_path / "a.uai")
    (tmp_path / "b.bif").write_text(
        BIF.replace("( rain ) { table 0.8, 0.2;", '( rain | "wet grass" ) { default .5 .5;')
    )
    with pytest.raises(ValueError, match=r"b\.bif: parents contain a cycle: "):
        read(tmp_path / "b.bif")


@pytest.mark.parametrize("entry", ["nan", "inf", "-inf", "-0.1", "1e999", "-1e-300"])
@pytest.mark.parametrize(("text", "line"), [(UAI, 10), (MARKOV, 8), (BIF, 4)])
def test_entries_that_are_no_probabilities(tmp_path, entry, text, line):
    broken = re.sub(r"\.8|0\.8|3\.0", entry, text, count=1)
    (tmp_path / "net").write_text(broken.replace(f"0{entry}", entry))
    with pytest.raises(ValueError, match=rf"net, line {line}: .*{entry}.* must be finite and nonnegative"):
        read(tmp_path / "net")


@pytest.mark.parametrize("entry", ["half", "0_8", "0x1", "٠", "1,5"])
def test_entries_that_are_no_numbers(tmp_path, entry):
    (tmp_path / "net").write_text(UAI.replace(".8", entry, 1))
    with pytest.raises(ValueError, match=rf"net, line 10: expected a number in table 0, found '{entry}'"):
        read(tmp_path / "net")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("| rain )", "| rain, rain )", "line 5: a parent of 'wet grass' is repeated, or is its own"),
        ("| rain )", '| "wet grass" )', "line 5: a parent of 'wet grass' is repeated, or is its own"),
        ("{ no, yes }", "{ no, no }", "line 2: variable 'rain' has two states of one name"),
        (
            '"wet grass" | rain )',
            '"wet grass | rain )',
            "line 5: expected the name of a variable, found '\"'",
        ),
        ("[ 2 ] { no", "[ two ] { no", "line 2: variable 'rain' has two states, but 2 names"),
    ],
)
def test_bif_that_contradicts_itself(tmp_path, old, new, message):
    (tmp_path / "net.bif").write_text(BIF.replace(old, new, 1))
    with pytest.raises(ValueError, match=rf"net\.bif, {message}"):
        read(tmp_path / "net.bif")


def test_families_beyond_memory(tmp_path):
    names = [f"v{i}" for i in range(31)]
    variables = "".join(f"variable {name} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for name in (*names, "c"))
    for parents in (names, names * 2):
        given_by = ", ".join(parents)
        (tmp_path / "net.bif").write_text(f"{variables}probability ( c | {given_by} ) {{ default .5 .5; }}")
        with pytest.raises(ValueError, match=r"net\.bif, line 33: .* (more than is read|repeated)"):
            read(tmp_path / "net.bif")
    scope = " ".join(map(str, range(33)))
    (tmp_path / "net.uai").write_text(f"BAYES 33 {'1 ' * 33} 1 33 {scope} 1 1")
    with pytest.raises(ValueError, match=r"net\.uai, line 1: scope 0 has 33 variables"):
        read(tmp_path / "net.uai")


@pytest.mark.parametrize("text", [UAI, MARKOV, BIF])
def test_every_beginning_of_a_file_is_refused(tmp_path, text):
    whole = text.rstrip()
    for stop in range(len(whole) - 1):
        if whole[stop:].strip() in ("0", ".0", "5"):  # the last number is another, and the file is whole
            continue
        (tmp_path / "net").write_text(whole[:stop])
        with pytest.raises(ValueError, match="net"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read_network(tmp_path / "net")


WORDS = [
    "", "0", "1", "-1", "2", "nan", "1e999", "99999999999999999999", ".5", "rain", '"', "{", "}", "(", ")", ";", ",",
    "|", "table", "default", "variable", "probability", "network", "[", "]", "#", "/*", "\x00", "\ufeff", "é",
    "BAYES", "MARKOV", '"wet grass"',
]  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([UAI, MARKOV, BIF]),
    st.lists(st.tuples(st.integers(0, 60), st.sampled_from(WORDS), st.booleans()), max_size=3),
)
def test_any_damage_is_a_network_or_a_value_error(tmp_path, text, damage):
    words = re.findall(r"\S+|\s+", text)
    for place, word, replaces in damage:
        place = min(2 * place, len(words) - 1)
        words[place : place + replaces] = [word, "" if replaces else " "]
    (tmp_path / "net").write_text("".join(words))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            network, _ = read(tmp_path / "net")
        except ValueError as error:
            assert str(tmp_path / "net") in str(error)
        else:
            assert isinstance(network, BayesNet)


@pytest.mark.parametrize("text", ["MARKOV 1 3000000000 0", "BAYES 2 100000000 100000000 2 1 0 1 1"])
def test_numbers_of_states_that_no_memory_holds(tmp_path, text):
    (tmp_path / "net.uai").write_text(text)
    with pytest.raises(
        ValueError, match=r"net\.uai, line 1: the variables have \d+ states together, more than is read"
    ):
        read(tmp_path / "net.uai")


def test_a_compressed_file_that_no_memory_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(tokens, "MOST_BYTES", 2**16)
    with gzip.open(tmp_path / "net.uai.gz", "wb") as file:
        file.write(b" " * 2**16 + b"BAYES")
    with pytest.raises(ValueError, match=r"net\.uai\.gz is larger than 65536 bytes, decompressed"):
        read(tmp_path / "net.uai.gz")
