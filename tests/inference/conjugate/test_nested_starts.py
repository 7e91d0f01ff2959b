"""Nested starts: those of few states are the starts of a smaller model, and ELBOs do not fall with the truncation."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.conjugate import run as run_module
from ethogram.inference.conjugate.nested_starts import nested_starts
from ethogram.inference.conjugate.run import Run
from ethogram.inference.conjugate.steps import bounds
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import Dirichlet, DirichletCoordinates
from ethogram.models.intents import AgentMarkov, IntentConstraints

pytestmark = pytest.mark.usefixtures("float64")

S, A = 4, 3
MODEL = AgentMarkov(S, A, 4, stickiness="learn", rows="all")
OPTIONS = {"restarts": 4, "progress_bar": False}


@pytest.fixture(scope="module")
def walks():
    """Walks over a ring of four cells with three sticky intents, each with an action of its own."""
    rng, shape = np.random.default_rng(0), (8, 40)
    changes = np.where(rng.random(shape) < 0.06, rng.integers(1, 3, size=shape), 0)
    intents = np.cumsum(changes, axis=1) % 3
    actions = np.where(rng.random(shape) < 0.85, intents, rng.integers(A, size=shape))
    states = (np.arange(8)[:, None] + np.cumsum(actions, axis=1) - actions) % S
    return Trajectories.from_list(states=list(states), actions=list(actions))


def test_starts_of_few_states_hold_no_others(walks):
    model = MODEL.bind(walks)
    batches = [model.arrange(walks)]
    blocks = nested_starts(jax.random.key(1), model, batches, 3, "mixed", batches, 2)
    mass = np.asarray(jax.jit(jax.vmap(type(model).state_mass, (None, 0)))(model, blocks))
    assert mass.shape == (3, 4) and (mass[:, :2] > 1).all() and mass[:, 2:].max() < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("init", ["mixed", "prior"])
def test_starts_of_few_states_are_those_of_a_smaller_model(walks, init):
    """The ELBO is that of the smaller model."""
    wide, found = MODEL.bind(walks), []
    for model in (wide, dataclasses.replace(wide, truncation=2)):
        batches = [model.arrange(walks)]
        blocks = nested_starts(jax.random.key(1), model, batches, 3, init, batches, 2)
        found.append(np.asarray(bounds(model, blocks, model.prior(), batches)))
    assert len(np.unique(found[0].round(3))) == 3
    np.testing.assert_allclose(*found, rtol=1e-5)


@pytest.mark.slow
def test_as_many_intents_are_used_as_there_are(walks, monkeypatch):
    """With 4 allowed three are found, from two at first, with room for two, then for four; steps may run out before."""
    monkeypatch.setattr(run_module, "ROOM", 2)
    fit = ConjugateSVI(MODEL).run(jax.random.key(2), walks, 2000, **OPTIONS)
    assert fit.converged and np.diff(fit.restart_traces, axis=1).min() >= -1e-8
    mass = np.asarray(
        jax.jit(type(fit.posterior.model).state_mass)(fit.posterior.model, fit.posterior.blocks)
    )
    assert mass.shape == (4,) and (mass > 0.5).sum() == 3
    short = ConjugateSVI(MODEL).run(jax.random.key(2), walks, 60, **OPTIONS)
    assert not short.converged and short.step <= 60


def test_a_search_has_room_for_few_states_and_for_more_once_these_are_used(walks):
    model = dataclasses.replace(MODEL, truncation=9).bind(walks)
    run = Run(model, walks, jax.random.key(0), None, None, None, 1e-6, "auto")
    narrow, prior = run.model_of(run.search_at_start(0, 4))
    assert narrow.truncation == 6 and prior["transition"].natural.concentration.shape[1:] == (6, 7)
    for restarts, room in ((4, 12), (1, 0)):  # a single restart uses all
        assert run.model_of(run.search_at_start(0, restarts, room))[0] is model


def test_unused_states_leave_the_counts_and_the_rest_of_the_weights(walks):
    """Blocks of a narrow model in a wide one, by hand: concentrations are alpha beta + kappa + counts."""
    wide = MODEL.bind(walks)
    narrow = dataclasses.replace(wide, truncation=2)
    prior, rng = narrow.prior(), np.random.default_rng(0)
    counts = rng.gamma(1.0, size=prior["transition"].natural.concentration.shape)
    weights = np.array([0.5, 0.2, 0.3])
    rows = 3 * weights + 20 * np.eye(2, 3) + counts
    blocks = {**prior, "weights": dataclasses.replace(prior["weights"], natural=weights)}
    blocks["transition"] = Dirichlet(DirichletCoordinates(rows))
    found = wide.widened(narrow, blocks)
    least = found["weights"].natural[2]
    assert 0 < least < 1e-6
    wanted = np.array([0.5, 0.2, least, least, 0.3 - 2 * least])
    np.testing.assert_allclose(found["weights"].natural, wanted, rtol=1e-12)
    after = np.zeros((len(rows), 4, 5))
    after[:, :2, [0, 1, 4]] = counts
    after += 3 * wanted + 20 * np.eye(4, 5)
    np.testing.assert_allclose(found["transition"].natural.concentration, after, rtol=1e-12)


NOT_FREE = (
    {"beta_prior": "fixed"},
    {"constraints": IntentConstraints.stay(at_least=0.8)},
    {"constraints": IntentConstraints.action(2, intent=2, equal=0.0)},
)


def test_models_whose_unused_states_are_not_free_start_with_all(walks):
    for settings, number in [({}, 2), *((settings, 0) for settings in NOT_FREE)]:
        model = AgentMarkov(S, A, 3, rows="all", **settings).bind(walks)
        assert (model.prior_of_first(2) is None) == (number == 0)
        one = Run(model, walks, jax.random.key(0), None, None, None, 1e-6, "auto")
        assert one.search_at_start(0, 4).number == number
        assert one.search_at_start(0, 1).number == 0  # a single restart uses all
