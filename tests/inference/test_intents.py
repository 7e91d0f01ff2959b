"""Intents that a fit infers: what is added up of smoothed traces."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from ethogram import infer_intents
from ethogram.domains import line_world
from ethogram.inference.conjugate_result import ConjugateResult
from ethogram.inference.intents import USED
from ethogram.inference.posterior import Posterior
from ethogram.models.agent_markov import AgentMarkov
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.exponential_family import Dirichlet
from ethogram.models.role_hmm import RoleHMM


def _result(model, blocks):
    nothing, key = np.zeros(1), jax.random.key(0)
    posterior = Posterior(model, blocks)
    return ConjugateResult(posterior, nothing, nothing, True, 0, key, nothing.astype(int), nothing[None])


def test_visits_and_changes_add_up():
    data = line_world.simulate(jax.random.key(5), 4, 12).data
    model = AgentMarkov(5, 3, 2).bind(data)
    counts = np.random.default_rng(7).gamma(1.0, size=(2, 5, 3)) + 0.1
    blocks = {**model.prior(), "policy": Dirichlet.from_standard(counts)}
    fit = _result(model, blocks)
    inferred = infer_intents(fit, data)
    np.testing.assert_allclose(inferred.probability.sum(-1), 1, rtol=1e-4)
    np.testing.assert_allclose(
        inferred.visits.sum(0), np.bincount(data.states.ravel(), minlength=5), rtol=1e-4
    )
    trace = model.observation(fit.posterior.mean(), data)
    expected = trace.change_probability(model.observed_value(data))
    np.testing.assert_allclose(inferred.change, expected, atol=1e-5)
    share = inferred.visits.sum(-1) / inferred.visits.sum()
    assert set(inferred.used) == set(np.flatnonzero(share > USED))
    assert (np.diff(share[inferred.used]) <= 0).all()
    np.testing.assert_array_equal(inferred.labels, inferred.probability.argmax(-1))


def test_steps_beyond_a_length_have_no_intent():
    data = line_world.simulate(jax.random.key(5), 3, 8).data
    shorter = data._replace(lengths=np.array([8, 5, 1]), observed=np.arange(8) < np.array([[8], [5], [1]]))
    model = AgentMarkov(5, 3, 2).bind(data)
    inferred = infer_intents(_result(model, model.prior()), shorter)
    np.testing.assert_array_equal((inferred.labels >= 0).sum(1), [8, 5, 1])
    assert (inferred.probability[1, 5:] == 0).all() and (inferred.change[1, 4:] == 0).all()
    assert inferred.visits.sum() == pytest.approx(14, rel=1e-4)


def test_other_models_have_no_intents():
    model = RoleHMM(2, CategoricalEmission(3))
    data = line_world.simulate(jax.random.key(5), 1, 8).data
    with pytest.raises(TypeError, match="result is a fit of RoleHMM"):
        infer_intents(_result(model, model.prior()), data)
