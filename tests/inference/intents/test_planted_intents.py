"""The number of intents that default fits use, in worlds drawn here in which it is known."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.intents import infer_intents
from ethogram.inference.roles import align_states
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov

S, A, TRACES, STEPS = 16, 4, 20, 150

# Of 32 worlds of 5000 steps (9 of one intent, 10 with a rare one, 13 of four) all had the right number.
WORLDS = {
    "one": [[1.0]],
    "two, of which one has 4 % of the steps": [
        [1 - 0.04 / 0.96 / 20, 0.04 / 0.96 / 20],
        [1 / 20, 1 - 1 / 20],
    ],
    "four that stay for 50 steps": np.eye(4) * (49 / 50) + (1 - np.eye(4)) / 150,
}


def walk(rng, leaving):
    """Traces, and their intents, each with a preferred action in every state, taken with probability .8."""
    leaving = np.asarray(leaving)
    count = len(leaving)
    preferred, onward = rng.integers(A, size=(count, S)), rng.integers(S, size=(S, A))
    stationary = np.linalg.matrix_power(leaving, 10_000)[0]
    states, actions, intents = np.zeros((3, TRACES, STEPS), int)
    state, intent = rng.integers(S, size=TRACES), rng.choice(count, p=stationary, size=TRACES)
    for t in range(STEPS):
        other = (preferred[intent, state] + rng.integers(1, A, size=TRACES)) % A
        action = np.where(rng.random(TRACES) < 0.8, preferred[intent, state], other)
        states[:, t], actions[:, t], intents[:, t] = state, action, intent
        state = np.where(rng.random(TRACES) < 0.8, onward[state, action], rng.integers(S, size=TRACES))
        intent = (leaving[intent].cumsum(1) < rng.random(TRACES)[:, None]).sum(1)
    return Trajectories.from_list(states=list(states), actions=list(actions)), intents


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORLDS)
def test_default_fits_use_as_many_intents_as_there_are(kind):
    data, intents = walk(np.random.default_rng(0), WORLDS[kind])
    with jax.enable_x64(False):
        model = AgentMarkov(S, A, rows="all")  # as by default, but the worlds share a program
        fit = ConjugateSVI(model).run(jax.random.key(0), data, 1000, progress_bar=False)
        found = infer_intents(fit, data)
    assert fit.converged and len(found.used) == len(WORLDS[kind])
    assert align_states(intents, found.labels).hamming < 0.08


def test_stickiness_is_learned_unless_it_is_given():
    assert "stickiness" in AgentMarkov(S, A).needed_sites()
    for given in (None, 0, 20.0):
        assert "stickiness" not in AgentMarkov(S, A, stickiness=given).needed_sites()
