"""Bayesian networks, marginal MAP queries, and their file formats.

Files in reading order. Models: `bayes_net`, `marginal_map` (a query of one), `noisy_or` (networks of causes and
effects), `factors` (Markov networks as Bayesian ones), `interop` (networks of other packages). Files: `read_network`
detects the format; `bif`, `hugin`, `xml_networks` and `dsl` yield declarations, of which `families` makes a network;
`uai` is of numbers alone; `named` reads evidence and MAP variables. All but XML is read by `tokens`.
"""

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.bif import read_bif, write_bif
from ethogram.models.networks.factors import network_of_factors
from ethogram.models.networks.interop import network_from
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.named import (
    read_evidence,
    read_map_variables,
    write_evidence,
    write_map_variables,
)
from ethogram.models.networks.noisy_or import Effect, noisy_or_network
from ethogram.models.networks.read_network import read, read_network
from ethogram.models.networks.uai import read_factors, write_network

__all__ = [
    "BayesNet",
    "Effect",
    "MarginalMAP",
    "network_from",
    "network_of_factors",
    "noisy_or_network",
    "read",
    "read_bif",
    "read_evidence",
    "read_factors",
    "read_map_variables",
    "read_network",
    "write_bif",
    "write_evidence",
    "write_map_variables",
    "write_network",
]
