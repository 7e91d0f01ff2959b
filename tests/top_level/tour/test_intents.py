"""Parts of the tour of agent-markov, and what it says of mice."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.domains import labyrinth, line_world
from ethogram.inference.conjugate import ConjugateSVI, heldout_log_likelihood
from ethogram.models.intents import AgentMarkov, IntentConstraints
from ethogram.tour import intents as tour_agents
from ethogram.tour import mouse_intents


@pytest.mark.slow
def test_silence_and_an_empty_region_change_no_number():
    """The four versions of Line World are one program; VI must be what the plain model gives."""
    data = line_world.simulate(jax.random.key(3), 4).data
    options = {"rows": "all", "truncation": 3}
    spoken = AgentMarkov(
        5, 3, stay_accuracy=0.9, constraints=IntentConstraints.never_switch([False] * 5), **options
    )
    silent = data._replace(stay=np.full(data.states.shape, -1, np.int32))
    bounds = [
        ConjugateSVI(model)
        .run(jax.random.key(4), given, 10, restarts=2, init="sticky", progress_bar=False)
        .restart_elbos
        for model, given in ((spoken, silent), (AgentMarkov(5, 3, **options), data))
    ]
    np.testing.assert_allclose(*bounds, rtol=1e-5)


@pytest.mark.slow
def test_one_intent_is_what_the_engine_finds():
    train, test = mouse_intents.draw_windows(jax.random.key(0), 6, 2)
    row = tour_agents._one_intent(train, test)
    model = AgentMarkov(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, 1)
    fit = ConjugateSVI(model).run(jax.random.key(1), train, 20, restarts=1, init="sticky", progress_bar=False)
    assert float(row["held-out, nats/step"]) == pytest.approx(heldout_log_likelihood(fit, test), abs=5e-3)
    # The engine pays for weights and transitions between intents that the count does without.
    assert 0 < float(row["ELBO, nats"]) - float(fit.elbo[-1]) < 100


def test_moves_lead_to_water_home_or_nowhere():
    """An agent that always knows the way, and one that turns in a circle between two nodes."""
    after = labyrinth.next_state()
    visits = np.ones(labyrinth.NUM_NODES)

    def nearer(goal):
        """Breadth first from the goal: at each node an action that leads one step nearer."""
        action, reached = np.zeros(labyrinth.NUM_NODES, int), {goal}
        while len(reached) < labyrinth.NUM_NODES:
            for node in set(range(labyrinth.NUM_NODES)) - reached:
                good = [a for a in range(4) if after[node, a] in reached]
                if good:
                    action[node] = good[0]
                    reached = reached | {node}
        return action

    to_water, to_home = nearer(labyrinth.WATER), nearer(labyrinth.HOME)
    to_water[labyrinth.WATER] = labyrinth.ACTION_NAMES.index("out left")
    to_home[labyrinth.HOME] = labyrinth.ACTION_NAMES.index("out right")
    if after[labyrinth.WATER, to_water[labyrinth.WATER]] == labyrinth.WATER:
        to_water[labyrinth.WATER] = labyrinth.ACTION_NAMES.index("out right")
    assert mouse_intents.where_moves_lead(np.eye(4)[to_water], visits) == pytest.approx((1, 0))
    water, home = mouse_intents.where_moves_lead(np.eye(4)[to_home], visits)
    assert (water, home) == pytest.approx((0, 1))
    nowhere = np.where(to_home == labyrinth.ACTION_NAMES.index("out right"), 0, to_home)
    nowhere[labyrinth.HOME] = 0
    assert mouse_intents.where_moves_lead(np.eye(4)[nowhere], visits)[1] == 0


def test_the_typical_trace_is_nearest_to_all():
    held = np.array([[0.9, 0.1], [0.55, 0.45], [0.1, 0.9]])
    assert mouse_intents.typical_trace(np.repeat(held[:, None], 6, axis=1)) == 1


def test_windows_are_different_ones():
    train, test = mouse_intents.draw_windows(jax.random.key(2), 5, 3)
    assert (train.num_sequences, test.num_sequences) == (5, 3)
    rows = np.concatenate([train.states, test.states])
    assert len(np.unique(rows, axis=0)) == 8
    with pytest.raises(ValueError, match="238 in all"):
        mouse_intents.draw_windows(jax.random.key(2), 230, 20)
