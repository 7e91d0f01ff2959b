"""Fits, hidden states and scores of data that are read part by part, beside those of the same data in memory."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ethogram
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.conjugate import problem as problem_module
from ethogram.inference.conjugate import stochastic as stochastic_module
from ethogram.models.data import Trajectories, parts


def read_in_parts(monkeypatch, size=150):
    monkeypatch.setattr(parts, "LARGE", 1)
    monkeypatch.setattr(parts, "PART", size)
    monkeypatch.setattr(stochastic_module, "PART", size)


def walks(exclusive=None, gaps=False):
    """Model and data: groups of two agents, in no order, of unequal lengths, far from zero."""
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(2), exclusive=exclusive)
    rng = np.random.default_rng(3)
    lengths = np.repeat(rng.integers(5, 13, size=9), 2).astype(np.int32)
    group, agent = np.repeat(np.arange(9, dtype=np.int32), 2), np.tile(np.arange(2, dtype=np.int32), 9)
    x = 1e4 + 3 * agent[:, None, None] + rng.standard_normal((18, 12, 2))
    observed = np.arange(12) < lengths[:, None]
    if gaps:
        x[rng.random(x.shape[:2]) < 0.2, 1] = np.nan
    order = rng.permutation(18)
    return model, Trajectories(x, None, None, lengths, observed, agent, group).take(order)


def fitted(model, data, **settings):
    settings = {"batch_size": 3, "restarts": 2, "evaluate_every": 4, "progress_bar": False} | settings
    return ConjugateSVI(model).run(jax.random.key(0), data, settings.pop("num_steps", 14), **settings)


def leaves(result):
    return jax.tree.leaves(result.posterior.blocks)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("exclusive", "gaps"),
    [(None, False), pytest.param(None, True, marks=SLOW), pytest.param("per_sequence", False, marks=SLOW)],
)
def test_data_on_disk_give_the_fit_of_the_data_in_memory(tmp_path, monkeypatch, exclusive, gaps):
    model, data = walks(exclusive, gaps)
    data.save(tmp_path / "walks")
    usual = fitted(model, data)
    read_in_parts(monkeypatch)
    found, stored = fitted(model, data), fitted(model, Trajectories.open(tmp_path / "walks"))
    for one, other, whole in zip(leaves(found), leaves(stored), leaves(usual), strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_allclose(one, whole, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(found.elbo, stored.elbo)
    np.testing.assert_allclose(found.restart_traces, usual.restart_traces, rtol=1e-12)


def test_calls_of_one_step_make_the_same_steps(monkeypatch):
    model, data = walks()
    read_in_parts(monkeypatch)
    expected = fitted(model, data)
    read_in_parts(monkeypatch, 10**4)
    for one, other in zip(leaves(fitted(model, data)), leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_starts_are_those_of_some_groups_with_the_weight_of_all(monkeypatch):
    model, data = walks()
    bound, frames = model.bind(data), int(np.asarray(data.observed).sum())
    monkeypatch.setattr(problem_module, "START_CELLS", 100)
    some = problem_module.sampled_problem(bound, data, jax.random.key(2), frames)
    (batch,) = some.arranged
    assert 2 <= len(batch.lengths) <= 100 // 12 and len(batch.lengths) % 2 == 0
    assert some.frames == frames
    assert some.scale * np.asarray(batch.observed).sum() == pytest.approx(frames)
    read_in_parts(monkeypatch)
    assert np.isfinite(fitted(model, data).elbo).all()


def test_a_run_that_was_stopped_goes_on(tmp_path, monkeypatch):
    model, data = walks()
    data.save(tmp_path / "walks")
    read_in_parts(monkeypatch)
    data = Trajectories.open(tmp_path / "walks")
    expected = fitted(model, data)
    fitted(model, data, num_steps=6, checkpoint=tmp_path / "run")
    found = fitted(model, data, checkpoint=tmp_path / "run")
    for one, other in zip(leaves(found), leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_is_wrong_is_found_in_its_part(monkeypatch):
    model, data = walks()
    read_in_parts(monkeypatch)
    wrong = data.observations.copy()
    wrong[7, 2] = np.inf
    part = next(rows for rows, _ in parts.in_parts(data) if 7 in rows)
    with pytest.raises(ValueError, match=f"in the part of sequences {part[0]} to {part[-1]}: .* is inf"):
        fitted(model, data._replace(observations=wrong))
    with pytest.raises(ValueError, match="no observed frame to learn from"):
        fitted(model, data._replace(observed=np.zeros_like(data.observed)))
    with pytest.raises(ValueError, match="batch_size is 10, more than the 9 groups"):
        fitted(model, data, batch_size=10)


@pytest.mark.slow
def test_states_scores_and_exports_are_those_of_the_data_in_memory(tmp_path, monkeypatch):
    model, data = walks()
    data.save(tmp_path / "walks")
    fit = ethogram.fit(
        jax.random.key(1), model, data, "svi", num_steps=8, batch_size=3, restarts=2, progress_bar=False
    )
    states, score = fit.states(), fit.score(num_draws=8)
    export = fit.to_arviz(log_likelihood="sequence", num_draws=8).log_likelihood
    read_in_parts(monkeypatch)
    stored = Trajectories.open(tmp_path / "walks")
    found = fit.states(stored)
    np.testing.assert_array_equal(found.path, states.path)
    np.testing.assert_allclose(found.probability, states.probability, atol=1e-9)
    assert repr(found) == repr(states)
    again = fit.score(stored, num_draws=8)
    np.testing.assert_allclose(again.entries, score.entries, rtol=1e-9)
    np.testing.assert_array_equal(again.counts, score.counts)
    own = ethogram.to_arviz(
        fit.result, stored, key=fit._key, log_likelihood="sequence", num_draws=8
    ).log_likelihood
    np.testing.assert_array_equal(own.sequence, export.sequence)
    np.testing.assert_allclose(own.observations, export.observations, rtol=1e-9)
    with ethogram.memory_bound(most_bytes=1), pytest.raises(ValueError, match="give data"):
        ethogram.to_arviz(fit.result, stored, posterior_predictive=True, num_draws=8)


@pytest.mark.slow
def test_the_front_door_takes_mini_batches_of_data_on_disk(tmp_path, monkeypatch):
    model, data = walks()
    data.save(tmp_path / "walks")
    read_in_parts(monkeypatch)
    fit = ethogram.fit(
        jax.random.key(1),
        model,
        Trajectories.open(tmp_path / "walks"),
        num_steps=8,
        restarts=2,
        progress_bar=False,
    )
    assert (fit.method, fit.method_reason) == ("svi", "mini-batches, since the data are on disk")
    page = fit.report(tmp_path / "report.html").read_text()
    assert "Along the most probable paths" in page and "18 sequences" in page
