"""Posterior intents of traces: what is added up of smoothed marginals."""

from __future__ import annotations

import numpy as np
import pytest

import ethogram
from ethogram.inference.conjugate import heldout_log_likelihood
from ethogram.inference.conjugate.posterior import ConjugatePosterior
from ethogram.inference.intents import USED, infer_intents
from ethogram.inference.roles import assign_roles, infer_roles
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.roles.role_hmm import RoleHMM


def test_visits_and_changes_add_up(fitted, decoded):
    result, data, _ = fitted
    inferred = infer_intents(result, data)
    np.testing.assert_allclose(inferred.probability.sum(-1), 1, rtol=1e-10)
    np.testing.assert_allclose(inferred.visits.sum(0), np.bincount(data.states.ravel(), minlength=5))
    one = data.states == 1
    np.testing.assert_allclose(inferred.visits[:, 1], inferred.probability[one].sum(0))
    np.testing.assert_allclose(inferred.change, decoded.within, atol=1e-10)
    share = inferred.visits.sum(-1) / inferred.visits.sum()
    assert set(inferred.used) == set(np.flatnonzero(share > USED)) and len(inferred.used) > 1
    assert (np.diff(share[inferred.used]) <= 0).all()
    np.testing.assert_array_equal(inferred.labels, inferred.probability.argmax(-1))
    np.testing.assert_array_equal(infer_intents(result.posterior, data).labels, inferred.labels)


def test_steps_beyond_a_length_have_no_intent(fitted):
    result, data, _ = fitted
    lengths = np.array([12, 5, 1, 8], np.int32)
    inside = np.arange(12) < lengths[:, None]
    stay = np.where(np.arange(12) < lengths[:, None] - 1, data.stay, -1)
    inferred = infer_intents(result, data._replace(lengths=lengths, observed=inside, stay=stay))
    np.testing.assert_array_equal(inferred.labels >= 0, inside)
    assert (inferred.probability[1, 5:] == 0).all() and (inferred.change[1, 4:] == 0).all()
    assert inferred.visits.sum() == pytest.approx(lengths.sum())


def test_other_models_have_no_intents(walks):
    model = RoleHMM(2, CategoricalEmission(3))
    with pytest.raises(TypeError, match=r"of a RoleHMM: give one of an AgentMarkov; .* from infer_roles"):
        infer_intents(ConjugatePosterior(model, model.prior()), walks)


@pytest.mark.parametrize("read", [infer_roles, assign_roles])
def test_fits_of_intents_have_no_roles(fitted, walks, read):
    with pytest.raises(TypeError, match=r"of an AgentMarkov: give one of a RoleHMM; .* from infer_intents"):
        read(fitted.result, walks)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("states", -1, r"states\[1, 2\] is -1, outside 0..4"),
        ("states", 5, r"states\[1, 2\] is 5, outside 0..4"),
        ("actions", 3, r"\[1, 2\] (is 3, outside -1..2|has no name)"),
        ("stay", 2, r"stay\[1, 2\] is"),
    ],
)
def test_numbers_out_of_range_are_named_by_all_that_read_data_under_a_fit(fitted, field, value, words):
    """An index of a compiled array is clamped, and -1 is the last entry: the answer would be another one."""
    result, data, _ = fitted
    changed = getattr(data, field).copy()
    changed[1, 2] = value
    wrong, model, mean = data._replace(**{field: changed}), result.posterior.model, result.posterior.mean()
    draws = {name: np.asarray(site)[None] for name, site in mean.items()}
    readers = (
        lambda: infer_intents(result, wrong),
        lambda: infer_intents(draws, wrong, model=model),
        lambda: heldout_log_likelihood(result.posterior, wrong),
        lambda: ethogram.to_arviz(result, wrong, num_draws=1),
        lambda: model.likelihood(mean, wrong).smooth(model.entries(wrong).value),
        lambda: model.likelihood(mean, wrong).log_prob(changed),
        lambda: model(wrong),
    )
    for reader in readers:
        with pytest.raises(ValueError, match=words):
            reader()
