"""Three networks of the UAI competitions with one marginal MAP query each (origin: ``data/bayes_nets/NOTICE``).

A grid, a medical diagnosis by noisy-or and a pedigree: typical applications of marginal MAP, hard enough that methods
differ.
"""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

from ethogram.models.arguments import require_one_of
from ethogram.models.held_warnings import held_warnings
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.named import read_evidence, read_map_variables
from ethogram.models.networks.read_network import read_network

__all__ = ["KNOWN", "Known", "load"]


class Known(NamedTuple):
    """Reference solution of a query.

    Attributes
    ----------
    about : application of the network.
    log_probability : of the best known assignment.
    proved : whether branch and bound has proved it optimal.
    """

    about: str
    log_probability: float
    proved: bool


KNOWN = {
    "50-12-5": Known("a grid", -16.5369245, True),
    "promedas_or_chain_42": Known("a diagnosis", -9.6562061, True),
    "pedigree1": Known("a pedigree", -64.0187641, False),
}


def load(name: str) -> MarginalMAP:
    """Marginal MAP query of one of the networks in :data:`KNOWN`.

    Examples
    --------
    >>> query = load("50-12-5")
    >>> query.network.num_variables, len(query.map_variables), query.observed
    (144, 71, ((55, 1),))
    """
    require_one_of("name", name, tuple(KNOWN))
    folder = resources.files("ethogram.domains.data") / "bayes_nets"
    with held_warnings(), resources.as_file(folder) as place:  # rows of the originals are rounded
        network = read_network(place / f"{name}.uai.gz")
        evidence = read_evidence(place / f"{name}.evid", network)
        return MarginalMAP(network, evidence, read_map_variables(place / f"{name}.map", network))
