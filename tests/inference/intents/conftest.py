"""Traces on Line World and one constrained fit, which all tests of agent Markov fits share: one program compiles."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from ethogram.domains import line_world
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov, IntentConstraints, noisy_stay_labels

CONSTRAINTS = (
    IntentConstraints.never_switch([2])
    .stay([1, 3], [0, 1], at_least=0.8)
    .stay([4], equal=0.99)
    .action(2, [2], equal=0.0)
)


class Fitted(NamedTuple):
    """A fit with what it came from."""

    result: Any
    data: Trajectories
    warned: list[str]


@pytest.fixture(scope="session")
def walks():
    """Four traces of twelve steps, with a missing action and stay labels on the first two."""
    rollout = line_world.simulate(jax.random.key(0), num_traces=4, length=12)
    actions = rollout.data.actions.copy()
    actions[1, 4] = -1
    labels = noisy_stay_labels(jax.random.key(1), rollout.intents, 0.9)
    labels[2:] = -1
    return rollout.data._replace(actions=actions, stay=labels)


@pytest.fixture(scope="session")
def fitted(walks):
    """Four intents under every kind of constraint: 30 iterations from three starts, and the warnings of the fit."""
    model = AgentMarkov(5, 3, truncation=4, stay_accuracy=0.9, constraints=CONSTRAINTS, stickiness=None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = ConjugateSVI(model).run(
            jax.random.key(2), walks, 30, restarts=3, tol=0.0, progress_bar=False
        )
    return Fitted(result, walks, [str(one.message) for one in caught])


@pytest.fixture(scope="session")
def decoded(fitted):
    """Changes, also of paths within the truncation, and the likeliest paths, at the posterior means."""
    model = fitted.result.posterior.model

    @jax.jit
    def read(model, parameters, value):
        trace = model.likelihood(parameters, fitted.data)
        within = trace.within_truncation().change_probability(value)
        return trace.change_probability(value), within, trace.most_likely_path(value).path

    found = read(model, fitted.result.posterior.mean(), model.entries(fitted.data).value)
    return SimpleNamespace(**dict(zip(("change", "within", "path"), map(np.asarray, found), strict=True)))


@pytest.fixture(scope="session")
def rows(fitted):
    """Concentrations of q by block."""
    blocks = {name: block for name, block in fitted.result.posterior.blocks.items() if name != "weights"}
    standard = jax.jit(
        lambda blocks: {name: block.standard().concentration for name, block in blocks.items()}
    )
    return jax.device_get(standard(blocks))
