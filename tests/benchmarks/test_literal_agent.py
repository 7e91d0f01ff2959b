"""Weights as Unhelkar and Shah (2019) print them: the density of beta from its sticks, and the coordinate step."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
from scipy import stats
from scipy.special import digamma, gammaln

from benchmarks.papers.literal_agent import LiteralAgent, log_jacobian
from ethogram.models.families.exponential_family import DirichletCoordinates

GAMMA = 2.5


def log_density(weights):
    """From the sticks, and the Jacobian of stick breaking; relative to the largest density of the sticks."""
    rest = 1 - np.concatenate([[0.0], np.cumsum(weights[:-1])])
    return stats.beta.logpdf(weights[:-1] / rest[:-1], 1, GAMMA).sum() - np.log(rest[:-1]).sum()


def test_the_jacobian_makes_the_density_of_the_sticks_that_of_the_weights():
    weights = np.random.default_rng(0).dirichlet(np.ones(5))
    found = (GAMMA - 1) * np.log(weights[-1]) + jax.jit(log_jacobian)(weights, GAMMA)
    np.testing.assert_allclose(found, log_density(weights), rtol=1e-12)


def test_weights_ascend_to_a_maximum_given_the_rows():
    """Of the density of beta and the expected log densities of all rows."""
    model, random = LiteralAgent(3, 2, 3, gamma=GAMMA, rows="all"), np.random.default_rng(0)
    blocks = model.prior()
    for name in ("initial", "transition"):
        shape = blocks[name].natural.concentration.shape
        rows = DirichletCoordinates(random.gamma(0.5, size=shape) + np.array([3.0, 1.0, 0.3, 0.3]))
        blocks[name] = dataclasses.replace(blocks[name], natural=rows)
    every = np.concatenate(
        [np.reshape(blocks[x].natural.concentration, (-1, 4)) for x in ("initial", "transition")]
    )
    logs = digamma(every) - digamma(every.sum(-1, keepdims=True))

    def objective(weights):
        prior = 3.0 * weights
        return (prior * logs).sum() - len(logs) * gammaln(prior).sum() + log_density(weights)

    step = jax.jit(lambda blocks: blocks | {"weights": model._moved_weights(blocks)})
    values = []
    for _ in range(8):
        values.append(objective(np.asarray(blocks["weights"].natural)))
        blocks = step(blocks)
    best = np.asarray(blocks["weights"].natural)
    assert np.diff(values).min() > -1e-9 and values[-1] > values[0] + 1
    for direction in random.normal(size=(20, 4)):
        away = best * np.exp(1e-4 * direction)
        assert objective(away / away.sum()) < objective(best) + 1e-9
