"""Comparisons: moments against draws of known distributions, labels, rankings, and what is refused."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import ethogram
from ethogram.domains import diagnosis
from ethogram.fits.disagreement import disagreements, moments
from ethogram.fits.fit_object import Fit
from ethogram.inference.conjugate import ConjugatePosterior
from ethogram.inference.sampled_posterior import SampledPosterior

QUIET = {"progress_bar": False}


def normal(seed, mean=0.0, sd=1.0, count=4000):
    return mean + sd * np.random.default_rng(seed).normal(size=(2, count // 2, 200))


def test_equal_distributions_agree_and_others_are_told():
    """200 estimates each: false alarms have probability 6e-5 an estimate; shifts and ratios are recovered."""
    one = moments(normal(0), False)
    assert not disagreements(one, moments(normal(1), False))[2].any()
    shift, _, apart = disagreements(one, moments(normal(2, mean=0.5), False))
    assert apart.all() and shift.mean() == pytest.approx(-0.5, abs=0.01)
    _, ratio, apart = disagreements(one, moments(normal(3, sd=2.0), False))
    assert apart.all() and ratio.mean() == pytest.approx(0.5, abs=0.01)


def test_errors_are_those_of_theory_also_of_heavy_tails():
    """The log of the sd of n draws has the error sqrt((kurtosis - 1) / (4 n)): kurtosis 3 of normal draws, 9 of
    exponential ones.
    """
    np.testing.assert_allclose(moments(normal(0), False).log_sd_error.mean(), np.sqrt(0.5 / 4000), rtol=0.02)
    heavy = [moments(np.random.default_rng(seed).exponential(size=(1, 4000, 200)), False) for seed in (1, 2)]
    np.testing.assert_allclose(heavy[0].log_sd_error.mean(), np.sqrt(2 / 4000), rtol=0.05)
    assert not disagreements(*heavy)[2].any()


def test_autocorrelated_chains_have_the_error_of_their_effective_samples():
    """AR(1) with coefficient r: n (1 - r) / (1 + r) effective draws of the mean, (1 - r^2) / (1 + r^2) of squares."""
    one, two = (moments(autoregressive(seed, 0.8), True) for seed in (4, 5))
    assert one.ess.mean() == pytest.approx(2000 * 0.2 / 1.8, rel=0.2)
    wanted = np.sqrt(0.5 / (2000 * (1 - 0.8**2) / (1 + 0.8**2)))
    assert one.log_sd_error.mean() == pytest.approx(wanted, rel=0.2)
    assert not disagreements(one, two)[2].any()


def test_constant_estimates_agree_and_a_mode_has_no_spread_to_compare():
    same = moments(np.zeros((1, 10, 1)), False)
    assert same.single and not disagreements(same, same)[2].any()
    mode = moments(np.full((1, 4000, 200), 0.05), False)
    assert not disagreements(mode, moments(normal(6), False))[2].any()


def autoregressive(seed, coefficient):
    """Stationary chains (2, 1000, 6) of mean 0 and sd 1."""
    noise = np.random.default_rng(seed).normal(size=(2, 1000, 6))
    chains = noise.copy()
    for step in range(1, 1000):
        chains[:, step] = coefficient * chains[:, step - 1] + np.sqrt(1 - coefficient**2) * noise[:, step]
    return chains


def switched(fit, key):
    """Other draws of the same posterior as of a sampler that numbered the roles the other way."""
    drawn = fit.result.draws_for_export(jax.random.key(key), 1000)
    turned = {name: site[:, :, ::-1] for name, site in drawn.sites.items()}
    if "transition" in turned:
        turned["transition"] = turned["transition"][..., ::-1]
    result = SampledPosterior(drawn.model, turned, {})
    return Fit(fit.model, fit.data, "nuts", "", result, 2.0, jax.random.key(key))


@pytest.fixture(scope="module")
def split(role_data, role_tracks):
    return *role_data, role_tracks.take(range(6, 12))


@pytest.fixture(scope="module")
def fits(roles):
    return [roles, switched(roles, 3)]


@pytest.mark.slow
def test_one_posterior_with_other_labels_agrees_with_itself(fits, split):
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
    assert len(found.plot().legends[0].get_texts()) == 2


@pytest.mark.slow
def test_one_algorithm_with_two_keys_agrees_with_itself(roles, role_data):
    """States have one order, whatever the key."""
    settings = {"num_steps": 40, "restarts": 2, **QUIET}
    others = {str(seed): ethogram.fit(jax.random.key(seed), *role_data, **settings) for seed in range(4)}
    means = [np.ravel(each.result.posterior.mean()["mean"]) for each in others.values()]
    assert len({bool(mean[0] < mean[-1]) for mean in means}) == 1
    assert len(ethogram.compare({"one": roles, **others}).disagreements) == 0


@pytest.mark.slow
def test_roles_that_exclude_each_other_are_aligned_and_rank_beside_free_ones(roles):
    """Labels of exclusive roles switch too; groups are the entries of both kinds of models."""
    random = np.random.default_rng(0)
    rows = [random.normal(size=(8, 2)) + 4 * (number % 2) for number in range(8)]
    data = ethogram.Trajectories.from_list(rows, agent=[0, 1] * 4, group=np.repeat(range(4), 2))
    free = Fit(roles.model, data, "cavi", "", roles.result, 1.0, jax.random.key(0))
    model = ethogram.RoleHMM(2, roles.model.emission, exclusive="per_sequence")
    blocks = {"mean_covariance": roles.result.posterior.blocks["mean_covariance"]}
    result = roles.result._replace(posterior=ConjugatePosterior(model, blocks))
    one = Fit(model, data, "cavi", "", result, 1.0, jax.random.key(1))
    assert len(ethogram.compare({"one": one, "two": switched(one, 2)}).disagreements) == 0
    found = ethogram.compare({"exclusive": one, "free": free})
    gaps = one.score().entries - free.score().entries
    assert gaps.shape == (4,) and free.score().counts.tolist() == [16, 16, 16, 16]
    assert found.scores["se of difference"].max() == pytest.approx(gaps.std(ddof=1) / 32)


def test_models_are_ranked_by_held_out_scores(fits, split):
    """That of the second model has its prior in place of a posterior."""
    _, data, new = split
    vague = ethogram.RoleHMM(2, ethogram.GaussianEmission(2), transition=0.5)
    result = fits[0].result._replace(posterior=ConjugatePosterior(vague, vague.prior()))
    other = Fit(vague, data, "cavi", "", result, 1.0, jax.random.key(4))
    found = ethogram.compare({"vague": other, "two roles": fits[0]}, new)
    assert found.kind == "models" and list(found.scores.index) == ["two roles", "vague"]
    wanted = other.score(new).mean - fits[0].score(new).mean
    assert found.scores.loc["vague", "difference"] == pytest.approx(wanted)
    assert found.plot().axes[0].get_xlabel().startswith("log density per step")
    assert "has a caution" not in found.statement
    other.result = result._replace(converged=False)
    training = ethogram.compare({"vague": other, "two roles": fits[0]})
    assert training.scores.loc["vague", "worst finding"] == "caution, search"
    assert "vague has a caution, search: The ELBO still rises" in training.statement
    assert "favour large models" in training.statement and "favour" not in found.statement


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
    nothing = ethogram.fit(jax.random.key(5), query, time_limit=1e-9)
    found = ethogram.compare({"one": nothing, "two": nothing})
    assert nothing.predict() is None and "No method found an assignment" in found.statement


def test_what_cannot_be_compared_is_refused(fits, split):
    model, _, new = split
    with pytest.raises(TypeError, match="fits"):
        ethogram.compare([fits[0], fits[1]])
    with pytest.raises(ValueError, match="fits has 1 entries"):
        ethogram.compare({"one": fits[0]})
    elsewhere = Fit(model, new, "cavi", "", fits[0].result, 1.0, jax.random.key(2))
    with pytest.raises(ValueError, match="different data"):
        ethogram.compare({"one": fits[0], "two": elsewhere})


def test_choices_by_several_formulas_make_the_table_of_a_paper():
    """Formulas have features of their own, of the same choices; coefficients stand by their names."""
    random = np.random.default_rng(0)
    table = {
        "trip": np.repeat(np.arange(40), 2), "mode": np.tile(["bus", "car"], 40),
        "price": random.normal(size=80), "time": random.normal(size=80),
        "taken": (np.arange(80) + np.repeat(random.integers(0, 2, 40), 2)) % 2,
    }  # fmt: skip
    model, names, data = ethogram.Logit(4.0), {"short": "price", "long": "price + time"}, {}
    fits, means = {}, {"short": (-1.234, 0.5), "long": (-1.0, 0.031, 0.25)}
    for name, formula in names.items():
        read = {"decision": "trip", "option": "mode", "chosen": "taken", "formula": formula}
        data[name] = ethogram.Decisions.from_table(table, **read)
        noise = random.normal(size=(1, 400, len(means[name])))
        noise = (noise - noise.mean((0, 1))) / noise.std((0, 1))
        draws = {"theta": means[name] + 0.1 * noise}
        result = SampledPosterior(model, draws, {})
        fits[name] = Fit(model, data[name], "nuts", "", result, 1.0, jax.random.key(1))
    new = {name: each.take(slice(0, 10)) for name, each in data.items()}
    found = ethogram.compare(fits, new)
    assert found.kind == "models" and len(found.scores) == 2
    paper = found.to_table()
    assert list(paper.columns) == ["short", "long"]
    assert paper.loc[("price", "mean")].tolist() == ["-1.23", "-1.00"]
    assert paper.loc[("price", "sd")].tolist() == ["(0.10)", "(0.10)"]
    assert paper.loc[("time", "mean")].tolist() == ["", "0.03"] and "v[" not in paper.to_html()
    assert paper.loc[("decisions", "")].tolist() == ["40", "40"]
    likelihoods = [float(each) for each in paper.loc[("log likelihood", "")]]
    assert likelihoods[0] < likelihoods[1] < 0
    assert paper.index[-1] == ("log density per decision", "held out")
    assert float(paper.iloc[-1]["long"]) == pytest.approx(fits["long"].score(new["long"]).mean, abs=1e-4)
    with pytest.raises(
        ValueError, match=r"data has \['short'\]: give the same decisions for each of the fits"
    ):
        ethogram.compare(fits, {"short": new["short"]})
    with pytest.raises(ValueError, match=r"metadata.feature_names\[1\]"):
        ethogram.compare(fits, new["long"])
