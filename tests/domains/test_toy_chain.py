"""The toy chain: a random MDP, a trajectory in it, and choices with the probabilities of the probit."""

from __future__ import annotations

import importlib.util

import jax
import numpy as np
import pytest

from ethogram.domains import toy_chain


@pytest.fixture(scope="module")
def toy():
    return toy_chain.simulate(jax.random.key(1), 3000, kappa=4.0)


def test_a_trajectory_follows_its_choices(toy):
    table = np.asarray(toy.mdp.transitions.probabilities)
    np.testing.assert_allclose(toy.decisions.features, table[toy.states], atol=1e-6)
    assert toy.values.sum() == pytest.approx(0, abs=1e-4)
    taken = table[toy.states[:-1], toy.decisions.choice[:-1], toy.states[1:]]
    assert (taken > 0).all() and taken.mean() > table.mean() * 2


def test_choices_have_the_probabilities_of_the_probit(toy):
    """The best action is taken as often as it is the best beside noise of variance 1, within three standard errors."""
    utility = np.asarray(toy.decisions.features) @ np.asarray(toy.values)
    noise, best = np.random.default_rng(0).normal(size=(100, *utility.shape)), utility.argmax(-1)
    chance = ((utility + noise).argmax(-1) == best).mean(0)
    gap = (np.asarray(toy.decisions.choice) == best) - chance
    assert 0.4 < chance.mean() < 0.9 and abs(gap.mean()) < 3 * gap.std() / np.sqrt(len(gap))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"num_decisions": 0}, ValueError, "num_decisions must be at least 1, not 0"),
        ({"num_decisions": 2.5}, TypeError, "num_decisions must be an integer, not 2.5"),
        ({"num_actions": 1}, ValueError, "num_actions must be at least 2, not 1"),
        ({"num_states": "7"}, TypeError, "num_states must be an integer, not '7'"),
        ({"kappa": 0.0}, ValueError, "kappa must be greater than 0, not 0"),
        ({"kappa": -4.0}, ValueError, "kappa must be greater than 0, not -4"),
        ({"kappa": np.inf}, ValueError, "kappa must be .*greater than 0, not inf"),
        ({"kappa": np.nan}, ValueError, "kappa must be .*greater than 0, not nan"),
        ({"kappa": "flat"}, TypeError, "kappa must be a real number, not 'flat'"),
    ],
)
def test_bad_input_is_named(options, error, message):
    """As users have it: in a module whose types are not checked when it is called."""
    spec = importlib.util.spec_from_file_location("unchecked_toy_chain", toy_chain.__file__)
    unchecked = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(unchecked)
    with pytest.raises(error, match=message):
        unchecked.simulate(jax.random.key(0), **options)
