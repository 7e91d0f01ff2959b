"""Fault diagnosis of a heating system: a small noisy-or network of faults, hidden states and symptoms.

Made up for this project. Nine rare faults, four hidden states of water, pressure and boiler, and nine symptoms that the
residents notice. Several faults explain the same symptom, so that the most probable joint assignment of the faults
differs from their posterior modes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax import Array

from ethogram.inference.networks.samples import draw_states
from ethogram.models.arguments import require_integer
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.noisy_or import Effect, noisy_or_network
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["COMPLAINTS", "FAULTS", "SYMPTOMS", "House", "heating", "heating_query", "simulate"]

FAULTS = {
    "pump worn": 0.04,
    "air in the pipes": 0.10,
    "valve stuck": 0.05,
    "leak in a pipe": 0.03,
    "expansion vessel flat": 0.04,
    "burner dirty": 0.06,
    "flue blocked": 0.02,
    "thermostat off": 0.07,
    "sensor loose": 0.03,
}
"""Prior probability of every fault in a house that calls."""

HIDDEN = {
    "water moves slowly": Effect({"pump worn": 0.9, "air in the pipes": 0.5, "valve stuck": 0.3}, 0.01),
    "pressure is low": Effect({"leak in a pipe": 0.95, "expansion vessel flat": 0.6}, 0.02),
    "boiler burns badly": Effect({"burner dirty": 0.8, "flue blocked": 0.9}, 0.01),
    "boiler stops early": Effect(
        {"water moves slowly": 0.5, "pressure is low": 0.6, "flue blocked": 0.7, "sensor loose": 0.6}, 0.01
    ),
}
"""Hidden states."""

SYMPTOMS = {
    "rooms upstairs cold": Effect(
        {"water moves slowly": 0.8, "pressure is low": 0.6, "air in the pipes": 0.4}, 0.03
    ),
    "one radiator cold": Effect({"valve stuck": 0.9, "air in the pipes": 0.3}, 0.03),
    "all rooms cold": Effect({"boiler stops early": 0.6, "thermostat off": 0.7, "pump worn": 0.3}, 0.02),
    "gurgling": Effect({"air in the pipes": 0.9, "pressure is low": 0.3}, 0.02),
    "humming": Effect({"pump worn": 0.7, "valve stuck": 0.1}, 0.03),
    "wet patch": Effect({"leak in a pipe": 0.6}, 0.01),
    "boiler starts and stops": Effect(
        {"boiler stops early": 0.8, "thermostat off": 0.3, "sensor loose": 0.4}, 0.03
    ),
    "soot": Effect({"boiler burns badly": 0.7}, 0.01),
    "high gas bill": Effect(
        {"boiler burns badly": 0.6, "thermostat off": 0.4, "boiler starts and stops": 0.3}, 0.10
    ),
}
"""Observable symptoms."""

COMPLAINTS = {
    "one radiator cold": "yes",
    "all rooms cold": "yes",
    "boiler starts and stops": "yes",
    "high gas bill": "yes",
    "rooms upstairs cold": "no",
    "wet patch": "no",
    "soot": "no",
}
"""Symptoms that one caller reports or rules out; the others are unknown."""


class House(NamedTuple):
    """Faults and symptoms of one simulated house.

    Attributes
    ----------
    faults, symptoms : states, no or yes, by name.
    """

    faults: dict[str, str]
    symptoms: dict[str, str]


def heating() -> BayesNet:
    """The network; effects with several causes are chains, so that no table has more than eight entries."""
    return noisy_or_network(FAULTS, HIDDEN | SYMPTOMS)


def heating_query(symptoms: dict[str, str] | None = None) -> MarginalMAP:
    """Marginal MAP query of all faults given symptoms; :data:`COMPLAINTS` unless given."""
    return MarginalMAP(heating(), COMPLAINTS if symptoms is None else symptoms, tuple(FAULTS))


def simulate(key: Array, num_houses: int) -> list[House]:
    """Houses sampled from the network."""
    require_integer("num_houses", num_houses, 1)
    random, query = numpy_generator(key), MarginalMAP(heating(), {}, list(FAULTS))
    states = [draw_states(random, query) for _ in range(num_houses)]  # on the host: compiling takes longer
    drawn = {
        name: np.array([one[number] for one in states]) for number, name in enumerate(query.network.names)
    }
    words = np.array(("no", "yes"))
    kinds = FAULTS, SYMPTOMS
    return [
        House(*({name: str(words[drawn[name][i]]) for name in kind} for kind in kinds))
        for i in range(num_houses)
    ]
