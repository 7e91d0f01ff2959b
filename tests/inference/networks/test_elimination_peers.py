"""Exact scores beside pyAgrum's on the stored networks of bnlearn, where both are there."""

from __future__ import annotations

import math
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from ethogram.inference.networks.elimination import exact_log_probability
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.interop import network_from
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.read_network import read_network

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    gum = pytest.importorskip("pyagrum")

STORED = Path(os.environ.get("ETHOGRAM_DATA", "../shared/data")) / "bayes_nets"
NAMES = ("asia", "sachs", "child", "alarm", "win95pts", "hailfinder", "andes")
pytestmark = pytest.mark.skipif(not STORED.exists(), reason="stored networks are not here: set ETHOGRAM_DATA")


def theirs(network: BayesNet):
    """The same network as one of pyAgrum's."""
    made = gum.BayesNet()
    for name, states in zip(network.names, network.state_names, strict=True):
        made.add(gum.LabelizedVariable(name, name, list(states)))
    for number, parents in enumerate(network.parents):
        for parent in parents:
            made.addArc(network.names[parent], network.names[number])
    for number, (table, parents) in enumerate(zip(network.tables, network.parents, strict=True)):
        wanted = list(reversed(made.cpt(network.names[number]).names))
        have = [network.names[parent] for parent in parents] + [network.names[number]]
        ordered = np.transpose(table, [have.index(name) for name in wanted])
        made.cpt(network.names[number])[:] = np.ascontiguousarray(ordered)
    return made


@pytest.mark.parametrize("name", NAMES)
def test_evidence_probabilities(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = read_network(STORED / "uai" / f"bnlearn_{name}.uai", STORED / "bif" / f"{name}.names.json")
        other = theirs(network)
        again = network_from(other)
    random = np.random.default_rng(0)
    for check in range(10):
        count = min(network.num_variables - 1, 2 + 2 * check)
        order = random.permutation(network.num_variables)[:count]
        states = {int(v): int(random.integers(network.sizes[v])) for v in order}
        first, *rest = states
        query = MarginalMAP(network, {v: states[v] for v in rest}, [first])
        value = exact_log_probability(query, [states[first]])
        engine = gum.LazyPropagation(other)
        engine.setEvidence({network.names[v]: s for v, s in states.items()})
        try:
            chance = engine.evidenceProbability()
        except gum.IncompatibleEvidence:
            chance = 0.0
        assert value == (pytest.approx(math.log(chance), rel=1e-10) if chance > 0 else -math.inf)
        named = {network.names[v]: network.state_names[v][s] for v, s in states.items()}
        lead = network.names[first]
        translated = MarginalMAP(again, {n: s for n, s in named.items() if n != lead}, [lead])
        state = again.state(again.variable(lead), named[lead])
        assert exact_log_probability(translated, [state]) == (
            pytest.approx(value, rel=1e-10) if chance > 0 else -math.inf
        )
