"""XMLBIF, NET, XDSL, DSL, XBN and JSON of pyAgrum: the same network in each, and damage that is refused."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.read_network import read_network

XMLBIF = """<?xml version="1.0" encoding="ISO-8859-1"?>
<!-- a garden -->
<!DOCTYPE BIF [
  <!ELEMENT BIF ( NETWORK )*>
  <!ATTLIST BIF VERSION CDATA #REQUIRED>
]>
<BIF VERSION="0.3"><NETWORK><NAME>J\xe4rdin</NAME>
<VARIABLE TYPE="nature"> <NAME>wet</NAME> <OUTCOME>dry</OUTCOME> <OUTCOME>damp</OUTCOME> </VARIABLE>
<VARIABLE TYPE="nature"> <NAME>rain</NAME> <OUTCOME>no</OUTCOME> <OUTCOME>a bit</OUTCOME> <OUTCOME>yes</OUTCOME>
  <PROPERTY>position = (1, 2)</PROPERTY> </VARIABLE>
<VARIABLE TYPE="nature"> <NAME>hose</NAME> <OUTCOME>off</OUTCOME> <OUTCOME>on</OUTCOME> </VARIABLE>
<DEFINITION> <FOR>rain</FOR> <TABLE> .5 0.3 0.2 </TABLE> </DEFINITION>
<DEFINITION> <FOR>hose</FOR> <TABLE> 0.9 0.1 </TABLE> </DEFINITION>
<DEFINITION> <FOR>wet</FOR> <GIVEN>rain</GIVEN> <GIVEN>hose</GIVEN>
  <TABLE> 0.99 0.01 <!-- hose on --> 0.4 0.6 0.7 0.3 0.2 0.8 0.15 0.85 0 1 </TABLE> </DEFINITION>
</NETWORK></BIF>
"""
XDSL = """<?xml version="1.0" encoding="UTF-8"?>
<smile version="1.0" id="garden"><nodes>
<cpt id="rain"> <state id="no"/> <state id="bit"/> <state id="yes"/>
  <probabilities>.5 0.3 0.2</probabilities> </cpt>
<cpt id="hose"> <state id="off"/> <state id="on"/> <probabilities>0.9 0.1</probabilities> </cpt>
<cpt id="wet"> <state id="dry"/> <state id="damp"/> <parents>rain hose</parents>
  <probabilities>0.99 0.01 0.4 0.6 0.7 0.3 0.2 0.8 0.15 0.85 0 1</probabilities> </cpt>
</nodes></smile>
"""
NET = """% a garden
net { node_size = (50 50); }
node rain { label = "it rains .5"; states = ("no" "a bit" "yes"); }
node hose { states = ("off" "on"); }
node wet { states = ("dry" "damp"); }
potential (rain) { data = (.5 0.3 0.2); }
potential (hose) { data = (0.9 0.1); }
potential (wet | rain hose) {
  data = (((0.99 0.01)(0.4 0.6)) % no rain
          ((0.7 0.3)(0.2 0.8))
          ((0.15 0.85)(0 1)));
}
"""
DSL = """// a garden
net garden
{
 HEADER = { ID = garden; NAME = "it { rains; "; };
 NUMSAMPLES = 1000;
 node rain { TYPE = CPT; HEADER = { ID = rain; NAME = "rain"; }; SCREEN = { POSITION = { CENTER_X = 1; }; };
  PARENTS = (); DEFINITION = { NAMESTATES = (no, bit, yes); PROBABILITIES = (.5, 0.3, 0.2); }; };
 node hose { TYPE = CPT; PARENTS = (); DEFINITION = { NAMESTATES = (off, on); PROBABILITIES = (0.9, 0.1); }; };
 node wet { TYPE = CPT; PARENTS = (rain, hose); /* rain is slowest */
  DEFINITION = { NAMESTATES = (dry, damp);
   PROBABILITIES = (0.99, 0.01, 0.4, 0.6, 0.7, 0.3, 0.2, 0.8, 0.15, 0.85, 0, 1); }; };
};
"""
JGUM = """{"type": "BN", "nodes": ["rain{no|bit|yes}", "hose{off|on}", "wet{dry|damp}"],
"parents": {"rain": [], "hose": [], "wet": ["hose", "rain"]}, "cpt": {"rain": [0.5, 0.3, 0.2], "hose": [0.9, 0.1],
"wet": [0.99, 0.01, 0.4, 0.6, 0.7, 0.3, 0.2, 0.8, 0.15, 0.85, 0, 1]}}
"""
XBN = """<?xml version="1.0"?><ANALYSISNOTEBOOK NAME="garden"><BNMODEL><VARIABLES>
<VAR NAME="rain"><STATENAME>no</STATENAME><STATENAME>bit</STATENAME><STATENAME>yes</STATENAME></VAR>
<VAR NAME="hose"><STATENAME>off</STATENAME><STATENAME>on</STATENAME></VAR>
<VAR NAME="wet"><STATENAME>dry</STATENAME><STATENAME>damp</STATENAME></VAR></VARIABLES>
<DISTRIBUTIONS><DIST><PRIVATE NAME="rain"/><DPIS><DPI>.5 0.3 0.2</DPI></DPIS></DIST>
<DIST><PRIVATE NAME="hose"/><DPIS><DPI>0.9 0.1</DPI></DPIS></DIST>
<DIST><PRIVATE NAME="wet"/><CONDSET><CONDELEM NAME="rain"/><CONDELEM NAME="hose"/></CONDSET>
<DPIS><DPI INDEXES="2 0">0.15 0.85</DPI><DPI INDEXES="0 0">0.99 0.01</DPI><DPI INDEXES=" 0 1 ">0.4 0.6</DPI>
<DPI INDEXES="1 0">0.7 0.3</DPI><DPI INDEXES="1 1">0.2 0.8</DPI><DPI INDEXES="2 1">0 1</DPI></DPIS></DIST>
</DISTRIBUTIONS></BNMODEL></ANALYSISNOTEBOOK>
"""
FILES = {"XMLBIF": XMLBIF.encode("latin-1"), "XDSL": XDSL.encode(), "NET": NET.encode()}
FILES |= {"DSL": DSL.encode(), "JSON": JGUM.encode(), "XBN": XBN.encode()}
WET = np.array([[[0.99, 0.01], [0.4, 0.6]], [[0.7, 0.3], [0.2, 0.8]], [[0.15, 0.85], [0, 1]]])


def written(folder, content):
    (folder / "net").write_bytes(content)
    return folder / "net"


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\n \t\n", b"\xef\xbb\xbf\r\n "])
def test_the_same_network_in_each_format(tmp_path, kind, mark):
    network = read_network(written(tmp_path, mark * (kind != "XMLBIF" or mark[0:1] != b"\xef") + FILES[kind]))
    names = {"wet", "rain", "hose"}
    assert (set(network.names), network.names[0]) == (names, "wet" if kind == "XMLBIF" else "rain")
    states = dict(zip(network.names, network.state_names, strict=True))
    assert states["rain"] == ("no", "a bit" if kind in ("XMLBIF", "NET") else "bit", "yes")
    for rain in range(3):
        for hose in range(2):
            for wet in range(2):
                truth = [0.5, 0.3, 0.2][rain] * [0.9, 0.1][hose] * WET[rain, hose, wet]
                values = {"rain": rain, "hose": hose, "wet": wet}
                found = np.exp(network.log_joint([values[name] for name in network.names]))
                assert found == pytest.approx(truth, rel=1e-15)


def test_deterministic_nodes_of_genie(tmp_path):
    node = '<deterministic id="puddle"><state id="yes"/><state id="no"/><parents>wet hose</parents>'
    node += "<resultingstates>no yes yes no</resultingstates></deterministic>"
    network = read_network(written(tmp_path, XDSL.replace("</nodes>", f"{node}</nodes>").encode()))
    np.testing.assert_array_equal(network.tables[3][..., 0], [[0, 1], [1, 0]])
    damaged = XDSL.replace("</nodes>", f"{node}</nodes>".replace("no yes yes no", "no yes yes maybe"))
    with pytest.raises(ValueError, match="net: 'puddle' has no state 'maybe': its states are yes, no"):
        read_network(written(tmp_path, damaged.encode()))


def test_nets_of_one_class(tmp_path):
    text = NET.replace("net { node_size = (50 50); }", "class Garden { inputs = (); outputs = (rain);") + "}"
    network, truth = (
        read_network(written(tmp_path, text.encode())),
        read_network(written(tmp_path, NET.encode())),
    )
    assert (network.names, network.state_names) == (truth.names, truth.state_names)
    with pytest.raises(ValueError, match="net, line 12: expected '}' of the class, found the end"):
        read_network(written(tmp_path, text.rstrip("}").encode()))


@pytest.mark.parametrize("kind", ["XMLBIF", "XDSL"])
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0.9 0.1", "0.9", "the table of 'hose' has 1 entries, and needs 2"),
        ("0.9 0.1", "0.9 0.1 0", "the table of 'hose' has 3 entries, and needs 2"),
        ("0.9 0.1", "0.9 nan", "the table of 'hose' has the entry nan: it must be finite and nonnegative"),
        ("0.9 0.1", "1e999 0.1", "the table of 'hose' has the entry 1e999: it must be finite"),
        ("0.9 0.1", "0.9 -0.1", "the table of 'hose' has the entry -0.1: it must be finite"),
        ("0.9 0.1", "0.9 much", "expected a number in the table of 'hose', found 'much'"),
        (
            "<GIVEN>hose|rain hose<",
            "<GIVEN>snow|rain snow<",
            "variable 'snow', a parent of 'wet', has not been",
        ),
        (
            "<GIVEN>hose|rain hose<",
            "<GIVEN>rain|rain rain<",
            "a parent of 'wet' is repeated, or is its own",
        ),
        ('TYPE="nature"|<cpt (.*</cpt>)', r'TYPE="utility"|<mau \1', "is of type|not whole XML"),
        ("</BIF>|</smile>", "|", r"line \d+: not whole XML: no element found|not whole XML"),
        ("<BIF VERSION|<smile version", "<html version|<html version", "not whole XML"),
        ("<OUTCOME>on<|id=.on.", "<OUTCOME>off<|id='off'", "state_names of hose must be 2 unique strings"),
        (
            r"<FOR>hose<|<cpt id=.hose.",
            "<FOR>rain<|<cpt id='rain'",
            "two definitions|two variables have one name",
        ),
    ],
)
def test_damaged_xml(tmp_path, kind, old, new, message):
    text, which = FILES[kind].decode("latin-1"), kind == "XDSL"
    old, new = (each.split("|")[which] if "|" in each else each for each in (old, new))
    damaged = re.sub(old, new, text, count=1)
    assert damaged != text
    with pytest.raises(ValueError, match=rf"net.*({message})"):
        read_network(written(tmp_path, damaged.encode("latin-1")))


def test_other_xml(tmp_path):
    with pytest.raises(
        ValueError, match=r"net: expected the XML of XMLBIF \(BIF\), XDSL .* or XBN .*, found 'html'"
    ):
        read_network(written(tmp_path, b"<html/>"))
    with pytest.raises(ValueError, match="net, line 4: not whole XML"):
        read_network(written(tmp_path, b"\n\n<BIF>\n"))
    for text in (b"<BIF/>", b"<smile/>", b"<ANALYSISNOTEBOOK/>", b"net a { };"):
        with pytest.raises(ValueError, match="net: no variable is declared"):
            read_network(written(tmp_path, text))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("(0.9 0.1)", "(0.9)", "line 7: the table of 'hose' has 1 entries, and needs 2"),
        ("(0.9 0.1)", "(0.9 1e999)", "line 7: a number is 1e999: it must be finite and nonnegative"),
        ("(0.9 0.1)", "(0.9 -0.1)", "line 7: a number is -0.1: it must be finite and nonnegative"),
        ("(0.9 0.1)", "(0.9 nan)", "line 7: a number is nan: it must be finite and nonnegative"),
        ("(0.9 0.1)", "(0.9 much)", "line 7: expected a number, found 'much'"),
        ("data = (0.9 0.1); ", "", "line 7: the potential of 'hose' has no data"),
        ("potential (hose) { data = (0.9 0.1); }", "", "node 'hose' has no potential"),
        ("potential (hose)", "potential (rain)", "line 7: node 'rain' has two potentials"),
        (
            "potential (hose)",
            "potential (hose | hose)",
            "line 7: a parent of 'hose' is repeated, or is its own",
        ),
        ("potential (hose)", "potential (snow)", "line 7: node 'snow' has not been declared"),
        (
            "node hose",
            "utility hose",
            "line 4: expected net, node .of discrete chance. or potential, found 'uti",
        ),
        ("node hose", "node rain", "line 4: node 'rain' is declared twice"),
        ('"off" "on"', '"on" "on"', "line 4: node 'hose' has two states of one name"),
        ('states = ("off" "on")', "x = 1", "line 4: node 'hose' has no states"),
        ("(0 1)));", "(0 1)))", "line 12: expected ';', found the end of the file"),
    ],
)
def test_damaged_net(tmp_path, old, new, message):
    assert old in NET
    with pytest.raises(ValueError, match=rf"net(, |: ){message}"):
        read_network(written(tmp_path, NET.replace(old, new).encode()))


TEXTS = ("NET", "DSL", "JSON")


@pytest.mark.parametrize("kind", FILES)
def test_names_of_their_own(tmp_path, kind):
    with pytest.raises(ValueError, match=rf"is {kind if kind in TEXTS else 'XML'} and has its own names"):
        read_network(written(tmp_path, FILES[kind]), tmp_path / "names.json")


@pytest.mark.parametrize(
    ("kind", "old", "new", "message"),
    [
        (
            "DSL",
            "TYPE = CPT; PARENTS = ();",
            "TYPE = NOISY_MAX;",
            "node 'hose' is of type NOISY_MAX: only CPT with",
        ),
        (
            "DSL",
            "PROBABILITIES = (0.9, 0.1);",
            "",
            "node 'hose' is of type CPT: only CPT with its probabilities",
        ),
        ("DSL", "(0.9, 0.1)", "(0.9)", "the table of 'hose' has 1 entries, and needs 2"),
        ("DSL", "NUMSAMPLES = 1000;", "NUMSAMPLES 1000;", ", line 5: expected '=', found '1000'"),
        ("DSL", "(rain, hose)", "(rain, snow)", "variable 'snow', a parent of 'wet', has not been declared"),
        ("DSL", "node wet", "node hose", "two variables have one name"),
        ("DSL", "ID = garden;", "a = {" * 3000, "blocks are nested too deeply"),
        ("JSON", "hose{off|on}", "hose[0,9999999999]", "has more states than its table has entries"),
        ("JSON", "hose{off|on}", "hose", "node 'hose' is neither of named states nor of a range of integers"),
        ("JSON", '"hose": [0.9, 0.1],', "", "it is no network of pyAgrum: KeyError at 'hose'"),
        ("JSON", '["hose", "rain"]', "3", "it is no network of pyAgrum: TypeError"),
        ("JSON", '"cpt"', '"cpu"', "it is no network of pyAgrum: KeyError at 'cpt'"),
        ("XBN", '<DPI INDEXES="1 1">0.2 0.8</DPI>', "", "the table of 'wet' has 5 rows, and needs 6"),
        ("XBN", 'INDEXES="1 1"', 'INDEXES="1 2"', "row '1 1' of 'wet' is missing"),
        (
            "XBN",
            '<PRIVATE NAME="hose"/>',
            '<PRIVATE NAME="rain"/>',
            "variable 'rain' has a distribution, and has not",
        ),
        ("XBN", '<VAR NAME="rain">', '<VAR NAME="sun">', "variable 'rain' has a distribution, and has not"),
        ("XBN", ">0.9 0.1<", ">0.9 much<", "expected a number in the table of 'hose', found 'much'"),
    ],
)
def test_damage_to_formats_of_peers(tmp_path, kind, old, new, message):
    text = FILES[kind].decode()
    assert old in text
    with pytest.raises(ValueError, match=rf"net.*{message}"):
        read_network(written(tmp_path, text.replace(old, new, 1).encode()))


@pytest.mark.parametrize("node", ["hose[2]", "hose[4,5]", "hose[-1,0]"])
def test_ranges_of_integers_of_pyagrum(tmp_path, node):
    network = read_network(written(tmp_path, JGUM.replace("hose{off|on}", node).encode()))
    assert network.state_names[1] == {"2": ("0", "1"), "5": ("4", "5"), "0": ("-1", "0")}[node[-2]]


@pytest.mark.parametrize("kind", FILES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    place=st.integers(0, 80),
    word=st.sampled_from(["", "<", ">", "}", ")", '"', "0", "nan", "rain", "%", "&", "é"]),
)
def test_any_damage_is_a_network_or_a_value_error(tmp_path, kind, place, word):
    words = re.findall(r"\S+|\s+", FILES[kind].decode("latin-1"))
    words[min(2 * place, len(words) - 1)] = word
    path = written(tmp_path, "".join(words).encode())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            network = read_network(path)
        except ValueError as error:
            assert str(path) in str(error)
        else:
            assert isinstance(network, BayesNet)
