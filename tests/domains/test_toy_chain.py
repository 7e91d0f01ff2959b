"""The toy chain: a world, a life in it, and choices as noisy as they should be."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.domains import toy_chain
from ethogram.models.choice import ProbitChoice


def test_a_life_follows_its_choices():
    toy = toy_chain.simulate(jax.random.key(0), 200)
    table = np.asarray(toy.mdp.transitions.probabilities)
    np.testing.assert_allclose(toy.decisions.features, table[toy.states], atol=1e-6)
    assert toy.values.sum() == pytest.approx(0, abs=1e-4)
    taken = table[toy.states[:-1], toy.decisions.choice[:-1], toy.states[1:]]
    assert (taken > 0).all() and taken.mean() > table.mean() * 2


def test_choices_have_the_probabilities_of_the_probit():
    """Mean log probability within three standard errors of minus the mean entropy."""
    toy = toy_chain.simulate(jax.random.key(1), 3000, kappa=4.0)
    choice = ProbitChoice(toy.decisions.features @ toy.values)
    told = np.asarray(choice.log_prob(toy.decisions.choice)) + np.asarray(choice.entropy())
    assert abs(told.mean()) < 3 * told.std() / np.sqrt(len(told))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_decisions": 0}, "num_decisions is 0"),
        ({"num_actions": 1}, "num_actions is 1"),
        ({"kappa": 0.0}, "kappa"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        toy_chain.simulate(jax.random.key(0), **options)
