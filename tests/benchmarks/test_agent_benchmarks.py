"""Benchmarks of the agent Markov model: the plain reference against the package."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks.speed import agent_markov
from benchmarks.speed import agent_markov_reference as plain
from ethogram.models.families.exponential_family import Dirichlet, expected_statistics
from ethogram.models.intents.stick_weights import StickWeights, fit_to_counts


@pytest.mark.slow
def test_reference_has_the_local_step_and_the_bound_of_the_package():
    fit = agent_markov.bind(3, (4, 3, 3), (5, 8))
    model, random = fit.model, np.random.default_rng(4)
    one = {
        name: block
        if name == "weights"
        else Dirichlet.from_standard(random.gamma(1.0, 2.0, block.natural.concentration.shape))
        for name, block in model.prior().items()
    }
    fit = fit._replace(blocks=jax.tree.map(lambda x: np.asarray(x)[None], one))
    tables = agent_markov.tables_of(fit)
    value, counts = plain.local_step(tables, fit.traces)
    found = agent_markov.found_by(fit, jax.jit(expected_statistics)(one))
    assert plain.relative_error(found, (value, counts)) < 1e-10
    assert counts.initial.sum() == pytest.approx(5) and counts.policy.sum() == pytest.approx(40)
    ours = float(found[0]) - float(jax.jit(lambda model, blocks: model.divergence(blocks))(model, one))
    assert plain.bound(value, tables, *agent_markov.PRIOR) == pytest.approx(ours, rel=1e-10)


def test_weights_of_the_reference_are_where_the_package_ends():
    counts = np.random.default_rng(1).gamma(0.3, 10, (12, 3))
    start = StickWeights.uniform(3, jax.device_put(3.0), "stick")
    step = jax.jit(lambda weights, counts: fit_to_counts(weights, 3.0, counts))
    weights = start
    for _ in range(20):
        weights = step(weights, counts)
    theirs = plain.fit_weights(np.asarray(start.natural), 3.0, 3.0, counts)
    np.testing.assert_allclose(theirs, weights.natural, atol=1e-4)
