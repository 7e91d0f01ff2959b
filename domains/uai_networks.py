"""Three networks of the UAI competitions with a marginal MAP question each (origin: ``data/bayes_nets/NOTICE``).

A grid of variables, a medical diagnosis by noisy-or and a pedigree: what marginal MAP is asked of in practice, and hard
enough that methods differ.
"""

from __future__ import annotations

import warnings
from importlib import resources
from typing import NamedTuple

from ethogram.models.bayes_net import MarginalMAP
from ethogram.models.uai import read_evidence, read_map_variables, read_network

__all__ = ["KNOWN", "Known", "load"]


class Known(NamedTuple):
    """What is known of a question.

    Attributes
    ----------
    about : what the network is of.
    log_probability : of the best answer known.
    proved : whether no other is better, by branch and bound.
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
    """The question about one of the networks of :data:`KNOWN`.

    Raises
    ------
    ValueError : there is no such network.

    Examples
    --------
    >>> query = load("50-12-5")
    >>> query.network.num_variables, len(query.map_variables), query.observed
    (144, 71, ((143, 0),))
    """
    if name not in KNOWN:
        raise ValueError(f"name is {name!r}: take one of {', '.join(KNOWN)}")
    folder = resources.files("ethogram.domains.data") / "bayes_nets"
    with warnings.catch_warnings(), resources.as_file(folder) as place:
        warnings.simplefilter("ignore", UserWarning)  # rows are rounded in the originals, and kept
        network = read_network(place / f"{name}.uai.gz")
        evidence = read_evidence(place / f"{name}.evid", network)
        return MarginalMAP(network, evidence, read_map_variables(place / f"{name}.map", network))
