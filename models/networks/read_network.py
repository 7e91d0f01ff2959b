"""Read a network file; the format is detected from its content."""

from __future__ import annotations

import os
import re

from ethogram.models.networks.bayes_net import BayesNet, NumberedStates
from ethogram.models.networks.bif import parse_bif
from ethogram.models.networks.dsl import is_dsl, is_jgum, parse_dsl, parse_jgum
from ethogram.models.networks.factors import FactorNetwork, network_of_factors
from ethogram.models.networks.hugin import is_net, parse_net
from ethogram.models.networks.tokens import decoded, errors_of, read_bytes
from ethogram.models.networks.uai import parse_uai, read_names
from ethogram.models.networks.uai_families import bayes_net_of
from ethogram.models.networks.xml_networks import is_xml, parse_xml

__all__ = ["read", "read_network"]

BIF = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*(?:network|variable|probability)\b", re.DOTALL)
"""How a BIF file begins, after comments."""
TEXTS = (
    ("BIF", BIF.match, parse_bif),
    ("DSL", is_dsl, parse_dsl),
    ("NET", is_net, parse_net),
    ("JSON", is_jgum, parse_jgum),
)
"""Formats of text, how to know them, and how to read them; a file that begins as none of them is read as UAI."""


def read(path: str | os.PathLike, names: str | os.PathLike | None = None) -> FactorNetwork:
    """Network of a file, and the evidence that encodes MARKOV factors; the file is read once.

    It is UAI (BAYES or MARKOV), BIF, XMLBIF, NET (Hugin), XDSL or DSL (GeNIe), XBN or the JSON of pyAgrum, which its
    content decides.

    Parameters
    ----------
    names : JSON file with ``names`` of the variables and ``states`` of each, for a UAI file.

    Raises
    ------
    OSError : a file cannot be opened.
    ValueError
        The file has none of the formats, or is malformed (with the line); a file that has names of its own comes with
        `names`; or as :class:`~ethogram.models.networks.BayesNet`, with the file in front.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder) / "rain.uai"
    ...     _ = file.write_text("BAYES 2  2 2  2  1 0  2 0 1  2 0.8 0.2  4 0.9 0.1 0.2 0.8")
    ...     network, evidence = read(file)
    >>> network.parents, evidence
    (((), (0,)), {})
    """
    content = read_bytes(path)
    if is_xml(content):
        _refuse_names(path, names, "XML")
        return FactorNetwork(parse_xml(path, content), NumberedStates())
    text = decoded(path, content)
    for kind, begins, parse in TEXTS:
        if begins(text):
            _refuse_names(path, names, kind)
            return FactorNetwork(parse(path, text), NumberedStates())
    factors = parse_uai(path, text)
    given = {} if names is None else read_names(names)
    if factors.kind == "BAYES":
        return FactorNetwork(bayes_net_of(path, factors, given, text), NumberedStates())
    with errors_of(path):
        return network_of_factors(factors, **given)


def read_network(path: str | os.PathLike, names: str | os.PathLike | None = None) -> BayesNet:
    """Network of a file, which is read as :func:`read` does.

    Parameters
    ----------
    names : JSON file with ``names`` of the variables and ``states`` of each, for a UAI file.

    Raises
    ------
    OSError, ValueError
        As :func:`read`; or the file is MARKOV and its factors are not all conditional tables.
    """
    network, evidence = read(path, names)
    if evidence or network.log_constant:
        raise ValueError(
            f"{os.fspath(path)} is MARKOV: its factors need evidence or a constant; use read(path), which returns both"
        )
    return network


def _refuse_names(path: str | os.PathLike, names: str | os.PathLike | None, kind: str) -> None:
    if names is not None:
        own = f"{os.fspath(path)} is {kind} and has its own names"
        raise ValueError(f"names is {os.fspath(names)}, but {own}")
