"""Read a network file; the format is detected from its content."""

from __future__ import annotations

import os
import re

from ethogram.models.networks.bayes_net import BayesNet, NumberedStates
from ethogram.models.networks.bif import bif_families
from ethogram.models.networks.dsl import dsl_families, jgum_families
from ethogram.models.networks.factors import FactorNetwork, network_of_factors
from ethogram.models.networks.families import network_by_name
from ethogram.models.networks.hugin import net_families
from ethogram.models.networks.tokens import decoded, prefix_errors, read_bytes
from ethogram.models.networks.uai import parse_uai, read_names, uai_network
from ethogram.models.networks.xml_networks import xml_families

__all__ = ["read", "read_network"]

SLASHES = r"(?>\s|//[^\n\r]*|/\*.*?\*/)*+"  # without going back, which many comments would make endless
FORMATS = (
    ("XML", re.compile(r"\s*<"), xml_families),
    ("BIF", re.compile(SLASHES + r"(?:network|variable|probability)\b", re.DOTALL), bif_families),
    ("DSL", re.compile(SLASHES + r"net\s+[^\s{]+\s*\{", re.DOTALL), dsl_families),
    ("NET", re.compile(r"(?>\s|%[^\n\r]*)*+(?:net|class|node)\b"), net_families),
    ("JSON", re.compile(r'\s*\{\s*"type"\s*:\s*"BN"'), jgum_families),
)
"""Formats, how their files begin, and what yields the declarations; a file that begins as none of them is UAI."""


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
    start = content.decode("utf-8-sig", "replace")
    for kind, begins, families in FORMATS:
        if begins.match(start):
            if names is not None:
                own = f"{os.fspath(path)} is {kind} and has its own names"
                raise ValueError(f"names is {os.fspath(names)}, but {own}")
            return FactorNetwork(network_by_name(path, families(path, content)), NumberedStates())
    text = decoded(path, content)
    file = parse_uai(path, text)
    if file.kind == "BAYES":
        return FactorNetwork(uai_network(path, file, text, names), NumberedStates())
    given = read_names(names)
    with prefix_errors(path):
        return network_of_factors(file, **given)


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
