"""The toy chain: a world, a life in it, and choices as noisy as they should be."""

from __future__ import annotations

import importlib.util

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
    ("options", "error", "message"),
    [
        ({"num_decisions": 0}, ValueError, "num_decisions must be at least 1, not 0"),
        ({"num_decisions": 2.5}, TypeError, "num_decisions must be an integer, not 2.5"),
        ({"num_actions": 1}, ValueError, "num_actions must be at least 2, not 1"),
        ({"num_states": "7"}, TypeError, "num_states must be an integer, not '7'"),
        ({"kappa": 0.0}, ValueError, "kappa is 0.0: give a finite variance above 0"),
        ({"kappa": -4.0}, ValueError, "kappa is -4.0"),
        ({"kappa": np.inf}, ValueError, "kappa is inf"),
        ({"kappa": np.nan}, ValueError, "kappa is nan"),
        ({"kappa": "flat"}, TypeError, "kappa is 'flat': give one number"),
    ],
)
def test_bad_input_is_named(options, error, message):
    """As users have it: in a module whose types are not checked when it is called."""
    spec = importlib.util.spec_from_file_location("unchecked_toy_chain", toy_chain.__file__)
    unchecked = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unchecked)
    with pytest.raises(error, match=message):
        unchecked.simulate(jax.random.key(0), **options)
