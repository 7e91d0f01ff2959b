"""Network files of every format: one network in each, faults by format, dialects, and damage of any kind."""

from __future__ import annotations

import gzip
import os
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ethogram.models.memory_bound import memory_bound
from ethogram.models.networks import tokens
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.read_network import read, read_network

STORED = Path(os.environ.get("ETHOGRAM_DATA", "../shared/data")) / "bayes_nets"

GARDEN = Path(__file__).parent / "garden_files"
FILES = {
    path.name: path.read_text("latin-1" if path.name == "XMLBIF" else "utf-8") for path in GARDEN.iterdir()
}
"""The same network in each format, and factors of another one in MARKOV."""
MARKOV = FILES.pop("MARKOV")
WET = np.array([[[0.99, 0.01], [0.4, 0.6]], [[0.7, 0.3], [0.2, 0.8]], [[0.15, 0.85], [0, 1]]])


def written(folder, kind, text=None):
    """The path of a file of a format, with its own text unless another is given."""
    text = FILES[kind] if text is None else text
    (folder / "net").write_bytes(text.encode("latin-1" if kind == "XMLBIF" else "utf-8"))
    return folder / "net"


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("mark", ["", "\ufeff", "\n \t\n", "\ufeff\r\n "])
def test_one_network_in_each_format(tmp_path, kind, mark):
    text = FILES[kind].replace("\n", "\r") if mark[-2:] == "\n " else FILES[kind]
    (tmp_path / "net").write_bytes(mark.encode() + text.encode("latin-1" if kind == "XMLBIF" else "utf-8"))
    if kind == "XMLBIF" and mark[:1] == "\ufeff":
        return  # the mark says that it is UTF-8, the declaration that it is not
    network, evidence = read(tmp_path / "net")
    assert evidence == {}
    names = network.names
    if kind == "UAI":
        assert (names, network.state_names) == (("x0", "x1", "x2"), None)
        names = ("rain", "hose", "wet")
    else:
        states = dict(zip(names, network.state_names, strict=True))
        bit = "a bit" if kind in ("XMLBIF", "BIF", "NET") else "bit"
        assert states == {"rain": ("no", bit, "yes"), "hose": ("off", "on"), "wet": ("dry", "damp")}
    assert names == (("wet", "rain", "hose") if kind == "XMLBIF" else ("rain", "hose", "wet"))
    for rain, hose, wet in np.ndindex(3, 2, 2):
        truth = [0.5, 0.3, 0.2][rain] * [0.9, 0.1][hose] * WET[rain, hose, wet]
        values = {"rain": rain, "hose": hose, "wet": wet}
        found = np.exp(network.log_joint([values[name] for name in names]))
        assert found == pytest.approx(truth, rel=1e-15)


ENTRY = {kind: ("0.9, 0.1" if kind in ("BIF", "DSL", "JSON") else "0.9 0.1") for kind in FILES}
"""How each format lists the table of hose."""


def entries(first, second=None):
    """Changes that put words in place of the table of hose, in every format."""
    words = [first] if second is None else [first, second]
    return {kind: (old, (", " if "," in old else " ").join(words)) for kind, old in ENTRY.items()}


PARENTS = {
    "XMLBIF": "<GIVEN>{}</GIVEN> <GIVEN>{}</GIVEN>",
    "XDSL": "<parents>{} {}</parents>",
    "XBN": '<CONDELEM NAME="{}"/><CONDELEM NAME="{}"/>',
    "BIF": "| {}, {} )",
    "NET": "| {} {})",
    "DSL": "PARENTS = ({}, {})",
    "JSON": '"wet": ["{1}", "{0}"]',
    "UAI": "3 {} {} 2",
}
"""How each format lists the parents of wet."""


def parents(first, second):
    """Changes of the parents of wet, in every format."""
    found = {}
    for kind, form in PARENTS.items():
        own = ("0", "1") if kind == "UAI" else ("rain", "hose")
        given = [{"rain": "0", "hose": "1", "wet": "2", "snow": "9"}[each] for each in (first, second)]
        found[kind] = form.format(*own), form.format(*(given if kind == "UAI" else (first, second)))
    return found


BLOCK = {
    "XMLBIF": "<DEFINITION> <FOR>hose</FOR> <TABLE> 0.9 0.1 </TABLE> </DEFINITION>",
    "XDSL": '<cpt id="hose"> <state id="off"/> <state id="on"/> <probabilities>0.9 0.1</probabilities> </cpt>',
    "XBN": '<DIST><PRIVATE NAME="hose"/><DPIS><DPI>0.9 0.1</DPI></DPIS></DIST>',
    "BIF": "probability ( hose ) { table 0.9, 0.1; }",
    "NET": "potential (hose) { data = (0.9 0.1); }",
}
"""The declaration of the table of hose, where formats have one; of all of hose in XDSL."""
WET_UAI = "3 0 1 2\n\n3\n .5 0.3 0.2\n"
"""What is between the scope and the table of hose in the UAI file."""
FAULTS = {
    "an entry that is no number": (
        "expected a number in (the table of 'hose'|table 1), found '\"?much\"?'",
        entries("0.9", "much") | {"JSON": ("0.9, 0.1", '0.9, "much"')},
    ),
    "an underscore": ("expected a number in", entries("0.9", "0_1") | {"JSON": ("0.9, 0.1", '0.9, "0_1"')}),
    "a digit of another script": ("expected a number in|not JSON", entries("0.9", "٠") | {"XMLBIF": None}),
    "a negative entry": ("table (of 'hose'|1) has the entry -0.1: it must be finite and", entries("0.9", "-0.1")),
    "a tiny negative entry": ("has the entry -1e-300: it must be finite and", entries("0.9", "-1e-300")),
    "an infinite entry": ("has the entry (1e999|Infinity): it must be finite and", entries("1e999", "0.1")),
    "no number at all": (
        "has the entry (nan|NaN): it must be finite and", entries("0.9", "nan") | {"JSON": ("0.9, 0.1", "0.9, NaN")}
    ),
    "one entry missing": (
        "(the table|row .*) of 'hose' has 1 entries, and needs 2|expected the size of table 2, found '0.99'",
        entries("0.9"),
    ),
    "one entry more": (
        "(the table|row .*) of 'hose' has 3 entries, and needs 2|expected the size of table 2, found '0.0'",
        entries("0.9", "0.1") | {kind: (old, old + (", 0.0" if "," in old else " 0.0")) for kind, old in ENTRY.items()},
    ),
    "an unknown parent": (
        "variable 'snow' has not been declared|a variable of scope 2 is 9, outside 0..2",
        parents("rain", "snow"),
    ),
    "a repeated parent": (
        "a parent of 'wet' is repeated, or is its own|scope 2 lists a variable twice",
        parents("rain", "rain"),
    ),
    "itself as a parent": (
        "a parent of 'wet' is repeated, or is its own|scope 2 lists a variable twice",
        parents("rain", "wet"),
    ),
    "no table": (
        "variable 'hose' has no table|variable 'hose' has not been declared|node 'hose' is of type CPT: only CPT with"
        "|it is no network of pyAgrum: KeyError at 'hose'|variable 1 has no table",
        {kind: (block, "") for kind, block in BLOCK.items()}
        | {
            "DSL": ("PROBABILITIES = (0.9, 0.1);", ""),
            "JSON": ('"hose": [0.9, 0.1],', ""),
            "UAI": (f"3\n1 0\n1 1\n{WET_UAI}2\n 0.9 0.1", f"2\n1 0\n{WET_UAI}"),
        },
    ),
    "two tables": (
        "variable '(hose|rain)' (has two tables|is declared twice)|variable 0 has two tables, 0 and 1",
        {kind: (block, block + "\n" + block) for kind, block in BLOCK.items()}
        | {
            "DSL": ("node wet", "node hose"),
            "JSON": ('"hose{off|on}", "wet', '"hose{off|on}", "hose{off|on}", "wet'),
            "UAI": (f"1 1\n{WET_UAI}2\n 0.9 0.1", f"1 0\n{WET_UAI}3\n 0.9 0.1 0"),
        },
    ),
    "two declarations": (
        "variable 'rain' is declared twice",
        {
            "XMLBIF": ("<NAME>hose<", "<NAME>rain<"),
            "XDSL": ('<cpt id="hose"', '<cpt id="rain"'),
            "XBN": ('<VAR NAME="hose"', '<VAR NAME="rain"'),
            "BIF": ("variable hose", "variable rain"),
            "NET": ("node hose", "node rain"),
            "DSL": ("node hose", "node rain"),
            "JSON": ('"hose{off|on}"', '"rain{off|on|x}"'),
        },
    ),
    "a table of nothing declared": (
        "variable 'snow' has not been declared",
        {
            "XMLBIF": ("<FOR>hose<", "<FOR>snow<"),
            "XBN": ('<PRIVATE NAME="hose"/>', '<PRIVATE NAME="snow"/>'),
            "BIF": ("probability ( hose )", "probability ( snow )"),
            "NET": ("potential (hose)", "potential (snow)"),
        },
    ),
    "two states of one name": (
        "variable 'hose' has two states of one name",
        {
            "XMLBIF": (">on<", ">off<"),
            "XDSL": ('id="on"', 'id="off"'),
            "XBN": (">on<", ">off<"),
            "BIF": ("{ off, on }", "{ off, off }"),
            "NET": ('"off" "on"', '"on" "on"'),
            "DSL": ("(off, on)", "(on, on)"),
            "JSON": ("{off|on}", "{on|on}"),
        },
    ),
    "no states": (
        "variable 'hose' has no states|the number of states of variable 1 is 0",
        {
            "XMLBIF": ("<OUTCOME>off</OUTCOME> <OUTCOME>on</OUTCOME>", ""),
            "XDSL": ('<state id="off"/> <state id="on"/>', ""),
            "XBN": ("<STATENAME>off</STATENAME><STATENAME>on</STATENAME>", ""),
            "BIF": ("[ 2 ] { off, on }", "[ 0 ] { }"),
            "NET": ('states = ("off" "on")', "x = 1"),
            "DSL": ("NAMESTATES = (off, on);", ""),
            "JSON": ("hose{off|on}", "hose[0]"),
            "UAI": ("3 2 2", "3 0 2"),
        },
    ),
    "a node of another kind": (
        "is of type (utility|mau|NOISY_MAX): only|expected network, variable or probability, found 'decision'|"
        "expected net, node .of discrete chance. or potential, found 'utility'|hose' is neither of named states nor",
        {
            "XMLBIF": ('TYPE="nature"> <NAME>hose', 'TYPE="utility"> <NAME>hose'),
            "XDSL": (BLOCK["XDSL"], BLOCK["XDSL"].replace("cpt", "mau")),
            "BIF": ("variable hose", "decision hose"),
            "NET": ("node hose", "utility hose"),
            "DSL": ("TYPE = CPT; PARENTS = ();", "TYPE = NOISY_MAX;"),
            "JSON": ("hose{off|on}", "hose"),
        },
    ),
    "a cycle": (
        r"parents contain a cycle: (?P<first>\w+) -> \w+ -> (?P=first)",
        {
            "XMLBIF": ("hose</FOR> <TABLE> 0.9 0.1", "hose</FOR> <GIVEN>wet</GIVEN> <TABLE> 0.9 0.1 0.9 0.1"),
            "XDSL": ("<probabilities>0.9 0.1", "<parents>wet</parents> <probabilities>0.9 0.1 0.9 0.1"),
            "BIF": (BLOCK["BIF"], "probability ( hose | wet ) { default 0.9, 0.1; }"),
            "NET": (BLOCK["NET"], "potential (hose | wet) { data = ((0.9 0.1)(0.9 0.1)); }"),
            "UAI": (f"1 1\n{WET_UAI}2\n 0.9 0.1", f"2 2 1\n{WET_UAI}4\n 0.9 0.1 0.9 0.1"),
        },
    ),
    "an end too early": (
        "not whole XML|expected .* found the end of the file|not JSON|table 2 ends after 11 of its 12 entries",
        {
            "XMLBIF": ("</BIF>", ""),
            "XDSL": ("</smile>", ""),
            "XBN": ("</ANALYSISNOTEBOOK>", ""),
            "BIF": ("0.8; }", "0.8;"),
            "NET": ("(0 1)));", "(0 1)))"),
            "DSL": ("};\n};", "}"),
            "JSON": ("]}}", "]}"),
            "UAI": ("0 1\n", "0\n"),
        },
    ),
}  # fmt: skip


LINES = ("BIF", "NET", "DSL", "UAI")
WITHOUT_LINE = ("no table", "a cycle", "two tables", "an end too early", "one entry missing")
"""Faults that have no line, or not that of the change."""


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_refused_in_each_format(tmp_path, fault):
    message, changes = FAULTS[fault]
    for kind, change in changes.items():
        if change is None:
            continue
        before, old, after = FILES[kind].partition(change[0])
        assert old, kind
        path = written(tmp_path, kind, before + change[1] + after)
        line = f", line {before.count(chr(10)) + 1}" if kind in LINES and fault not in WITHOUT_LINE else ""
        with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}{line}[:,].*({message})"):
            read_network(path)


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        ("BIF", "[ 2 ] { off", "[ 3 ] { off", ", line 4: variable 'hose' has 3 states, but 2 names"),
        ("BIF", "[ 2 ] { off", "[ two ] { off", ", line 4: variable 'hose' has two states, but 2 names"),
        ("BIF", "(yes, off)", "(maybe, off)", ", line 8: 'rain' has no state 'maybe': its states are no, a bit, yes"),
        ("BIF", "(yes, off)", "(no, off)", r", line 8: row \['no', 'off'\] of 'wet' appears twice"),
        ("BIF", "(yes, off)", "(yes)", ", line 8: a row of 'wet' has 1 states for its 2 parents"),
        ("BIF", "default 0, 1;", "", r", line 8: row \['yes', 'on'\] of 'wet' is missing"),
        ("BIF", "default 0, 1;", "default 1;", ", line 8: the default of 'wet' has 1 entries, and needs 2"),
        ("BIF", "default 0, 1;", "default 0, 1; default 1, 0;", ", line 10: 'wet' has a default twice"),
        ("BIF", "default 0, 1;", "table 0, 1;", ", line 11: 'wet' has a table, and rows too"),
        ("BIF", "(yes, off)", "(yes, off /*)", ": a comment is not closed"),
        ("BIF", '("a bit", on)', '("a bit, on)', ", line 11: expected a name or '[)]', found '\"'"),
        ("BIF", "table 0.9, 0.1;", "", ", line 7: variable 'hose' has no table"),
        ("NET", "data = (0.9 0.1); ", "", ", line 7: the potential of 'hose' has no data"),
        ("NET", "data = (0.9 0.1); ", "data = 1; data = 1;", ", line 7: 'data' appears twice"),
        ("DSL", "NUMSAMPLES = 1000;", "NUMSAMPLES 1000;", ", line 5: expected '=', found '1000'"),
        ("DSL", "ID = garden;", "a = {" * 3000, ", line 4: blocks are nested too deeply"),
        ("JSON", "hose{off|on}", "hose[0,9999999999]", ": .* has more states than its table has entries"),
        ("JSON", '["hose", "rain"]', "3", ": it is no network of pyAgrum: TypeError"),
        ("JSON", '"cpt"', '"cpu"', ": it is no network of pyAgrum: KeyError at 'cpt'"),
        ("XBN", '<DPI INDEXES="1 1">0.2 0.8</DPI>', "", r": row \['1', '1'\] of 'wet' is missing"),
        ("XBN", 'INDEXES="1 1"', 'INDEXES="1 2"', ": 'hose' has no state '2': its states are 0, 1"),
        ("XDSL", 'id="hose"', 'id=""', ": a variable has no name"),
        ("XMLBIF", "<NAME>hose</NAME>", "", ": a variable has no name"),
        ("XMLBIF", "<BIF VERSION", "<html version", ", line 16: not whole XML: mismatched tag"),
        ("UAI", "BAYES", "BAYESIAN", ", line 1: expected BAYES or MARKOV, found 'BAYESIAN'"),
        ("UAI", "3 2 2\n", "3 two 2\n", ", line 3: expected the number of states of variable 1, found 'two'"),
        ("UAI", "\n12\n", "\n10\n", r", line 13: table 2 has 10 entries, and its scope \(0, 1, 2\) needs 12"),
        ("UAI", "1 1\n", "0\n", ", line 11: table 1 has 2 entries, and its scope|: scope 1 is empty"),
        ("UAI", "0 1\n", "0 1 1\n", ", line 7|, line 15: expected the end of the file, found '1'"),
    ],
)  # fmt: skip
def test_faults_of_one_format(tmp_path, kind, old, new, message):
    assert old in FILES[kind]
    with pytest.raises(ValueError, match=rf"net({message})"):
        read_network(written(tmp_path, kind, FILES[kind].replace(old, new, 1)))


@pytest.mark.parametrize("kind", [*FILES, "MARKOV"])
def test_every_beginning_of_a_file_is_refused(tmp_path, kind):
    whole = (FILES | {"MARKOV": MARKOV})[kind].rstrip()
    for stop in range(0, len(whole) - 3, 1 if kind == "MARKOV" else 7):
        with pytest.raises(ValueError, match="net"):
            read(written(tmp_path, kind, whole[:stop]))


WORDS = [
    "", "0", "1", "-1", "2", "nan", "1e999", "99999999999999999999", ".5", "rain", '"', "{", "}", "(", ")", ";", ",",
    "|", "<", ">", "%", "&", "table", "default", "variable", "probability", "network", "[", "]", "#", "/*", "\x00",
    "\ufeff", "é", "BAYES", "MARKOV", '"a bit"',
]  # fmt: skip


@pytest.mark.parametrize("kind", [*FILES, "MARKOV"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 90), st.sampled_from(WORDS), st.booleans()), max_size=3))
def test_any_damage_is_a_network_or_a_value_error(tmp_path, kind, damage):
    words = re.findall(r"\S+|\s+", (FILES | {"MARKOV": MARKOV})[kind])
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<html/>", r": expected the XML of XMLBIF \(BIF\), XDSL .* or XBN .*, found 'html'"),
        ("\n\n<BIF>\n", ", line 4: not whole XML"),
        *[(text, ": no variable is declared") for text in ("<BIF/>", "<smile/>", "<ANALYSISNOTEBOOK/>", "net a { };")],
        *[(text, ": no variable is declared") for text in ("network a { }", "net { }")],
        *[(text, ", line 1: expected BAYES or MARKOV, found") for text in ("", "# nothing", '{"names": ["a"]}')],
        *[(text, ", line 1: expected BAYES or MARKOV, found") for text in ("networks 1", "graph { variable x; }")],
        ("MARKOV 1 3000000000 0", r", line 1: a state of every variable .* take 67.1 GiB, more than 2"),
        ("BAYES 2 100000000 100000000 2 1 0 1 1", ", line 1: a state of every variable .* 4.47 GiB"),
        (f"BAYES 33 {'1 ' * 33} 1 33 {' '.join(map(str, range(33)))} 1 1", ", line 1: scope 0 has 33 variables"),
    ],
)  # fmt: skip
def test_files_without_a_network(tmp_path, text, message):
    with pytest.raises(ValueError, match=f"net{message}"):
        read(written(tmp_path, "other", text))


def test_tables_beyond_memory(tmp_path):
    names = [f"v{i}" for i in range(31)]
    variables = "".join(f"variable {name} {{ type discrete [ 2 ] {{ a, b }}; }}\n" for name in (*names, "c"))
    for count, size in ((27, "6 GiB"), (31, "96 GiB")):
        given = ", ".join(names[:count])
        text = f"{variables}probability ( c | {given} ) {{ default .5 .5; }}"
        limit = f"net, line 33: entries up to the table of 'c' would have shape .* take {size}, more than 2"
        with pytest.raises(ValueError, match=limit):
            read(written(tmp_path, "BIF", text))


def test_tables_of_too_many_variables(tmp_path):
    node = 'node {0} {{ states = ("a"); }} potential ({0}) {{ data = (1); }}\n'
    nodes = "".join(node.format(f"v{i}") for i in range(32)) + 'node c { states = ("a"); }\n'
    text = f"{nodes}potential (c | {' '.join(f'v{i}' for i in range(32))}) {{ data = (1); }}"
    with pytest.raises(ValueError, match=r"net, line 34: the table of 'c' has 33 variables; the limit is 32"):
        read(written(tmp_path, "NET", text))


def test_encodings_and_compression(tmp_path):
    (tmp_path / "net.bif").write_text(FILES["BIF"], encoding="utf-16")
    with pytest.raises(ValueError, match=r"net\.bif is not UTF-8 text: .* starts as UTF-16"):
        read(tmp_path / "net.bif")
    with gzip.open(tmp_path / "net.uai.gz", "wb") as file:
        file.write(b" " * 2**16 + b"BAYES")
    with memory_bound(2**19), pytest.raises(ValueError, match=r"the text of .*net\.uai\.gz would have shape"):
        read(tmp_path / "net.uai.gz")


@pytest.mark.parametrize("kind", [kind for kind in FILES if kind != "UAI"])
def test_names_of_their_own(tmp_path, kind):
    found = "XML" if kind[0] == "X" else kind
    with pytest.raises(
        ValueError, match=rf"names is .*names\.json, but .*net is {found} and has its own names"
    ):
        read_network(written(tmp_path, kind), tmp_path / "names.json")


def test_factors_come_with_their_evidence_or_are_refused(tmp_path):
    path = written(tmp_path, "UAI", MARKOV)
    found, evidence = read(path)
    assert len(evidence) == found.num_variables - 2 > 0
    values = [found.log_joint([a, b, *evidence.values()]) for a in (0, 1) for b in (0, 1)]
    np.testing.assert_allclose(values, np.log([2.0, 1.0, 1.5, 15.0]), rtol=1e-12)
    without_constant = "MARKOV 2 2 2 3 1 0 2 0 1 1 1 2 .5 .5 4 .9 .1 .2 .8 2 1 .5"
    for text in (MARKOV, without_constant):
        with pytest.raises(
            ValueError, match="net is MARKOV: its factors need evidence or a constant; use read"
        ):
            read_network(written(tmp_path, "UAI", text))
    path = written(tmp_path, "UAI", "MARKOV 2 2 2 2 1 0 2 0 1 2 .5 .5 4 .9 .1 .2 .8")
    assert read_network(path).parents == ((), (0,))


def test_tokens_know_their_lines():
    found = tokens.Tokens("file", "one two # three\n\n  four\nfive")
    assert found.words == ["one", "two", "four", "five"]
    assert found.lines == [1, 1, 3, 4]
    found.expect("one", "two", "four")
    assert str(found.error("no")) == "file, line 3: no"
    assert str(found.error("no", ahead=True)) == "file, line 4: no"
    with pytest.raises(ValueError, match="file, line 4: expected a number, found 'five'"):
        found.integer("a number", 0)
