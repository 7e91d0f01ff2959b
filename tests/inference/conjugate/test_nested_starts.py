"""Nested starts: those of few states are the starts of a smaller model, and ELBOs do not fall with the truncation."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.conjugate.nested_starts import nested_starts
from ethogram.inference.conjugate.steps import bounds
from ethogram.models.intents import AgentMarkov, IntentConstraints

pytestmark = pytest.mark.usefixtures("float64")

S, A = 4, 3
MODEL = AgentMarkov(S, A, 4, stickiness="learn", rows="all")
OPTIONS = {"restarts": 4, "progress_bar": False}


@pytest.fixture(scope="module")
def walks():
    """Walks over a ring of four cells with three sticky intents, each with an action of its own."""
    agent = dataclasses.replace(MODEL, truncation=3)
    with jax.enable_x64(True):
        parameters = {
            "weights": np.full(4, 0.25),
            "initial": np.full(4, 0.25),
            "transition": np.broadcast_to(0.02 + 0.92 * np.eye(4)[:3], (S * A, 3, 4)),
            "policy": np.broadcast_to(0.05 + 0.85 * np.eye(3)[:, None], (3, S, A)),
            "stickiness": 1.0,
        }
        ring = (np.arange(S)[:, None] + np.arange(A)) % S
        made = agent.simulate(jax.random.key(0), ring, np.arange(8) % S, 40, parameters=parameters)
    return made.data


@pytest.mark.parametrize("init", ["mixed", "prior"])
def test_starts_of_few_states_are_those_of_a_smaller_model(walks, init):
    """The ELBO is that of the smaller model."""
    wide = MODEL.bind(walks)
    narrow = dataclasses.replace(wide, truncation=2)
    found = []
    for model in (wide, narrow):
        batches = [model.arrange(walks)]
        blocks = nested_starts(jax.random.key(1), model, batches, 3, init, batches, 2)
        found.append(np.asarray(bounds(model, blocks, model.prior(), batches)))
    assert len(np.unique(found[0].round(3))) == 3
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_the_elbo_does_not_fall_with_the_truncation(walks):
    """With 4 intents allowed three are found, at an ELBO no lower than with 2 or 3; steps may run out before."""
    fits = {}
    for truncation in (2, 3, 4):
        model = dataclasses.replace(MODEL, truncation=truncation)
        fits[truncation] = ConjugateSVI(model).run(jax.random.key(2), walks, 2000, **OPTIONS)
        trace = fits[truncation].restart_traces
        assert fits[truncation].converged and np.diff(trace, axis=1).min() >= -1e-8
    elbos = np.array([fit.elbo[-1] for fit in fits.values()])
    assert (np.diff(elbos) >= -1e-6 * abs(elbos[0])).all() and elbos[2] > elbos[0] + 5
    best = fits[4]
    mass = np.asarray(best.posterior.model.state_mass(best.posterior.blocks))
    assert (mass > 0.5).sum() == 3
    short = ConjugateSVI(MODEL).run(jax.random.key(2), walks, 60, **OPTIONS)
    assert not short.converged and short.step <= 60


@pytest.mark.parametrize(
    "settings",
    [
        {"beta_prior": "fixed"},
        {"constraints": IntentConstraints.stay(at_least=0.8)},
        {"constraints": IntentConstraints.action(2, intent=2, equal=0.0)},
    ],
)
def test_models_whose_unused_states_are_not_free_start_with_all(walks, settings):
    model = AgentMarkov(S, A, 3, rows="all", **settings)
    assert model.bind(walks).prior_of_first(2) is None
    fit = ConjugateSVI(model).run(jax.random.key(0), walks, 3, **OPTIONS)
    assert np.isfinite(fit.elbo).all() and not fit.converged
