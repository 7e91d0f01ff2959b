"""A house whose heating is out of order: a small noisy-or network of faults and what is noticed of them.

Made up for this project. Nine faults, each rare; what they do to the water, the pump and the boiler, which nobody sees;
and nine things that somebody in the house would notice. Several faults explain the same complaint, so that the most
probable faults together are not the faults that are most probable one by one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jax import Array
from numpyro.infer import Predictive

from ethogram.models.bayes_net import BayesNet, MarginalMAP
from ethogram.models.noisy_or import Effect, noisy_or_network

__all__ = ["COMPLAINTS", "FAULTS", "SYMPTOMS", "House", "heating", "question", "simulate"]

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
"""How probable each is in a house that has called."""

HIDDEN = {
    "water moves slowly": Effect({"pump worn": 0.9, "air in the pipes": 0.5, "valve stuck": 0.3}, 0.01),
    "pressure is low": Effect({"leak in a pipe": 0.95, "expansion vessel flat": 0.6}, 0.02),
    "boiler burns badly": Effect({"burner dirty": 0.8, "flue blocked": 0.9}, 0.01),
    "boiler stops early": Effect(
        {"water moves slowly": 0.5, "pressure is low": 0.6, "flue blocked": 0.7, "sensor loose": 0.6}, 0.01
    ),
}
"""What nobody sees."""

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
"""What somebody would notice."""

COMPLAINTS = {
    "one radiator cold": "yes",
    "all rooms cold": "yes",
    "boiler starts and stops": "yes",
    "high gas bill": "yes",
    "rooms upstairs cold": "no",
    "wet patch": "no",
    "soot": "no",
}
"""Of one house that called; what is not said was not asked."""


class House(NamedTuple):
    """A house with faults, and what is noticed there.

    Attributes
    ----------
    faults, symptoms : states, no or yes, by name.
    """

    faults: dict[str, str]
    symptoms: dict[str, str]


def heating() -> BayesNet:
    """The network; families of up to four causes are chains, so that no table has more than eight numbers."""
    return noisy_or_network(FAULTS, HIDDEN | SYMPTOMS)


def question(symptoms: dict[str, str] | None = None) -> MarginalMAP:
    """Which faults are most probable together, given symptoms; those of :data:`COMPLAINTS` where there are none."""
    return MarginalMAP(heating(), COMPLAINTS if symptoms is None else symptoms, tuple(FAULTS))


def simulate(key: Array, num_houses: int) -> list[House]:
    """Houses drawn from the network.

    Raises
    ------
    ValueError : `num_houses` is below 1.
    """
    if num_houses < 1:
        raise ValueError(f"num_houses is {num_houses}: give at least 1")
    network = heating()
    drawn = {name: np.asarray(x) for name, x in Predictive(network, num_samples=num_houses)(key).items()}
    words = np.array(("no", "yes"))
    return [
        House(
            {name: str(words[drawn[name][i]]) for name in FAULTS},
            {name: str(words[drawn[name][i]]) for name in SYMPTOMS},
        )
        for i in range(num_houses)
    ]
