"""Noisy-or networks against the product formula, and how they grow."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from ethogram.inference.networks.elimination import exact_log_probability
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.networks.noisy_or import Effect, noisy_or_network

CAUSES = {"a": 0.2, "b": 0.5, "c": 0.1}
STRENGTHS = {"a": 0.9, "b": 0.3, "c": 0.6}


@pytest.mark.parametrize("leak", [0.0, 0.05])
def test_chains_have_the_probabilities_of_the_formula(leak):
    network = noisy_or_network(
        CAUSES, {"ill": Effect(STRENGTHS, leak), "worse": ({"ill": 0.5, "a": 0.5}, leak)}
    )
    for states in itertools.product((0, 1), repeat=3):
        prior = math.prod(p if on else 1 - p for p, on in zip(CAUSES.values(), states, strict=True))
        quiet = (1 - leak) * math.prod(
            1 - STRENGTHS[name] for name, on in zip("abc", states, strict=True) if on
        )
        for ill in (0, 1):
            query = MarginalMAP(network, {"ill": ill}, ["a", "b", "c"])
            truth = prior * (1 - quiet if ill else quiet)
            assert math.exp(exact_log_probability(query, states)) == pytest.approx(
                truth, rel=1e-12, abs=1e-15
            )
            for worse in (0, 1):
                query = MarginalMAP(network, {"ill": ill, "worse": worse}, ["a", "b", "c"])
                calm = (1 - leak) * (0.5 if ill else 1) * (0.5 if states[0] else 1)
                both = truth * (1 - calm if worse else calm)
                assert math.exp(exact_log_probability(query, states)) == pytest.approx(
                    both, rel=1e-12, abs=1e-15
                )


def test_two_hundred_causes_take_two_hundred_small_tables():
    causes = {f"cause {i}": 0.01 for i in range(200)}
    network = noisy_or_network(causes, {"effect": (dict.fromkeys(causes, 0.5), 0.1)})
    assert max(table.size for table in network.tables) == 8
    assert network.num_variables == 400
    value = exact_log_probability(MarginalMAP(network, {"effect": 0}, ["cause 0"]), [0])
    assert value == pytest.approx(math.log(0.9) + math.log(0.99) + 199 * math.log(0.995))


@pytest.mark.parametrize(
    ("causes", "effects", "message"),
    [
        ({"a": 1.5}, {}, r"causes\['a'\] must be a probability in \[0, 1\], not 1.5"),
        ({"a": 0.5}, {"e": ({"a": -1.0},)}, r"effects\['e'\].strengths\['a'\] must be a probability .* not -1.0"),
        ({"a": 0.5}, {"e": ({"a": 0.1}, np.nan)}, r"effects\['e'\].leak must be .* not nan"),
        ({"a": 0.5}, {"e": ({"b": 0.1},)}, "has the cause 'b', which is not defined before it"),
        ({"a": 0.5}, {"a": ({"a": 0.1},)}, "must be unique; 'a' appears twice"),
        ({"a": 0.5}, {"e": ({},)}, "has no causes"),
    ],
)  # fmt: skip
def test_what_is_refused(causes, effects, message):
    with pytest.raises(ValueError, match=message):
        noisy_or_network(causes, effects)
