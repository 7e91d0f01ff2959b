"""Comparisons: moments against draws of known distributions, labels, rankings, and what is refused."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ethogram
from ethogram.domains import diagnosis
from ethogram.fits.disagreement import disagreements, moments

QUIET = {"progress_bar": False}


def normal(seed, mean=0.0, sd=1.0, count=4000):
    return mean + sd * np.random.default_rng(seed).normal(size=(2, count // 2, 200))


def test_equal_distributions_agree_and_others_are_told():
    """200 estimates each: false alarms have probability 6e-5 an estimate; shifts and ratios are recovered."""
    one = moments(normal(0), None)
    assert not disagreements(one, moments(normal(1), None))[2].any()
    shift, _, apart = disagreements(one, moments(normal(2, mean=0.5), None))
    assert apart.all() and shift.mean() == pytest.approx(-0.5, abs=0.01)
    _, ratio, apart = disagreements(one, moments(normal(3, sd=2.0), None))
    assert apart.all() and ratio.mean() == pytest.approx(0.5, abs=0.01)


def test_few_effective_samples_are_no_disagreement():
    few = moments(normal(4, mean=0.3), np.full(200, 10.0))
    assert not disagreements(moments(normal(5), None), few)[2].any()


def test_constant_estimates_agree():
    same = moments(np.zeros((1, 10, 1)), None)
    assert not disagreements(same, same)[2].any()


@pytest.fixture(scope="module")
def split():
    model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
    data = model.simulate(jax.random.key(0), num_groups=10, lengths=20).data
    return model, *data.split(jax.random.key(1), by="group", test_fraction=0.3)


@pytest.fixture(scope="module")
def fits(split):
    model, data, _ = split
    settings = {"num_steps": 40, "restarts": 2, **QUIET}
    return [ethogram.fit(jax.random.key(seed), model, data, **settings) for seed in (2, 3)]


def test_one_algorithm_with_two_keys_agrees_with_itself(fits, split):
    """The labels of the second are its own: they are aligned."""
    found = ethogram.compare({"one": fits[0], "two": fits[1]}, split[2])
    assert found.kind == "algorithms" and len(found.disagreements) == 0
    assert (
        "agree within Monte Carlo error in all" in found.statement and "favour large" not in found.statement
    )
    np.testing.assert_allclose(
        found.estimates["one"]["mean"], found.estimates["two"]["mean"], rtol=0.2, atol=0.1
    )
    assert set(found.scores.index) == {"one", "two"} and found.scores["difference"].max() == 0
    assert "log density per step" in str(found)
    assert len(found.plot().axes) == 7


def test_models_are_ranked_by_held_out_scores(fits, split):
    _, data, new = split
    one = ethogram.RoleHMM(1, ethogram.GaussianEmission(1))
    other = ethogram.fit(jax.random.key(4), one, data, num_steps=20, restarts=1, **QUIET)
    found = ethogram.compare({"one role": other, "two roles": fits[0]}, new)
    assert found.kind == "models" and list(found.scores.index) == ["two roles", "one role"]
    wanted = other.score(new).mean - fits[0].score(new).mean
    assert found.scores.loc["one role", "difference"] == pytest.approx(wanted)
    assert found.loo is None and "narrower than the posterior" in found.statement
    assert found.plot().axes[0].get_xlabel().startswith("log density per step")
    training = ethogram.compare({"one role": other, "two roles": fits[0]})
    assert "favour large models" in training.statement


def test_answers_are_ranked_and_say_what_is_proved():
    query = diagnosis.heating_query()
    answers = {
        name: ethogram.fit(jax.random.key(5), query, method=name, time_limit=2.0)
        for name in ("marginal", "hybrid")
    }
    found = ethogram.compare(answers)
    assert found.kind == "answers" and found.scores.index[0] == "hybrid"
    assert "proved optimal by hybrid" in found.statement
    found.plot()


def test_what_cannot_be_compared_is_refused(fits, split):
    model, _, new = split
    with pytest.raises(TypeError, match="fits"):
        ethogram.compare([fits[0], fits[1]])
    with pytest.raises(ValueError, match="fits has 1 entries"):
        ethogram.compare({"one": fits[0]})
    elsewhere = ethogram.fit(jax.random.key(2), model, new, num_steps=2, restarts=1, **QUIET)
    with pytest.raises(ValueError, match="different data"):
        ethogram.compare({"one": fits[0], "two": elsewhere})
