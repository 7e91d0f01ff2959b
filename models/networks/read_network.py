"""Read a network file; the format is detected from its content."""

from __future__ import annotations

import os
import re

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.bif import parse_bif
from ethogram.models.networks.factors import FactorNetwork, network_of_factors
from ethogram.models.networks.tokens import errors_of, read_text
from ethogram.models.networks.uai import parse_uai, read_names
from ethogram.models.networks.uai_families import bayes_net_of

__all__ = ["read", "read_network"]

BIF = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*(?:network|variable|probability)\b", re.DOTALL)
"""How a BIF file begins, after comments; every other file is read as UAI."""


def read(path: str | os.PathLike, names: str | os.PathLike | None = None) -> FactorNetwork:
    """Network of a UAI (BAYES or MARKOV) or BIF file, and the evidence that encodes MARKOV factors; read once.

    Parameters
    ----------
    names : JSON file with ``names`` of the variables and ``states`` of each, for a UAI file.

    Raises
    ------
    OSError : a file cannot be opened.
    ValueError
        The file is neither UAI nor BIF, or is malformed (with the line); a BIF file comes with `names`; or as
        :class:`~ethogram.models.networks.BayesNet`.

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
    text = read_text(path)
    if BIF.match(text):
        if names is not None:
            own = f"{os.fspath(path)} is BIF and has its own names"
            raise ValueError(f"names is {os.fspath(names)}, but {own}")
        return FactorNetwork(parse_bif(path, text), {})
    factors = parse_uai(path, text)
    given = {} if names is None else read_names(names)
    if factors.kind == "BAYES":
        return FactorNetwork(bayes_net_of(path, factors, given), {})
    with errors_of(path):
        return network_of_factors(factors, **given)


def read_network(path: str | os.PathLike, names: str | os.PathLike | None = None) -> BayesNet:
    """Network of a UAI (BAYES) or BIF file.

    Parameters
    ----------
    names : JSON file with ``names`` of the variables and ``states`` of each, for a UAI file.

    Raises
    ------
    OSError, ValueError : as :func:`read`; or the file is MARKOV and its factors are not all conditional tables.
    """
    network, evidence = read(path, names)
    if evidence or network.log_constant:
        raise ValueError(
            f"{os.fspath(path)} is MARKOV: its factors need evidence or a constant; use read(path), which returns both"
        )
    return network
