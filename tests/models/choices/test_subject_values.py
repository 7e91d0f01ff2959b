"""Laws of the values of subjects: draws and densities against SciPy, and named errors."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import numpyro.distributions as dist
import pandas
import pytest
from numpyro.infer.util import log_density
from scipy.integrate import quad
from scipy.stats import kstest, norm, t, uniform

import ethogram
from ethogram.inference.storage import pack, unpack
from ethogram.models.choices import Decisions, NoisyMDP, Probit
from ethogram.models.choices.subject_values import HuangWand, subject_values
from ethogram.models.data.trajectories import Metadata

AGES = np.array([20.0, 30.0, 55.0])


def decisions_of_people(seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(9, 3, 3))
    names = Metadata(feature_names=["price", "time", "seats"], subject_names=["ann", "ben", "cleo"])
    legal = np.ones(x.shape[:2], bool)
    return Decisions(x, legal, random.integers(3, size=9), np.repeat(np.arange(3), 3), metadata=names)


def test_huang_and_wand_have_half_t_deviations_and_uniform_correlations():
    """KS of 4000 draws of three deviations and correlations: a p-value below 1e-4 in 1 of 1700 runs."""
    drawn = np.asarray(HuangWand(3, 2.0).sample(jax.random.key(0), (4000,)))
    deviation = np.sqrt(np.diagonal(drawn, axis1=1, axis2=2))
    for at, other in ((0, 1), (1, 2), (2, 0)):
        assert kstest(deviation[:, at] / 2, lambda x: 2 * t(2).cdf(x) - 1).pvalue > 1e-4
        correlation = drawn[:, at, other] / deviation[:, at] / deviation[:, other]
        assert kstest(correlation, uniform(-1, 2).cdf).pvalue > 1e-4


def test_the_density_of_huang_and_wand_is_that_of_a_mixture_of_inverse_wisharts():
    """Summed over the rates by quadrature, one at a time; up to a constant."""
    random, found, expected = np.random.default_rng(1), [], []
    for _ in range(3):
        root = random.normal(size=(2, 2))
        covariance = root @ root.T + 0.1 * np.eye(2)
        each = np.diag(np.linalg.inv(covariance))
        mixed = [
            quad(lambda a, k=k: a**-1.5 * np.exp(-2 * k / a) * a**-1.5 * np.exp(-1 / (4 * a)), 0, np.inf)[0]
            for k in each
        ]
        expected.append(-3 * np.linalg.slogdet(covariance)[1] + np.log(mixed).sum())
        found.append(float(HuangWand(2, 2.0).log_prob(covariance)))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-6)


def test_the_joint_density_of_log_normal_fixed_and_moved_coefficients():
    """Against SciPy, at any point: price is below zero, time the same for all, seats moved by age."""
    data, sites = decisions_of_people(), {}
    law = {"price": "negative lognormal", "seats": "normal"}
    model = ethogram.Logit(dist.HalfNormal(1.0), loc_kappa=4.0, random=law, subject_features={"age": AGES})
    random = np.random.default_rng(2)
    sites = {
        "kappa": np.array([0.3, 0.8]), "loc_normal": random.normal(size=3),
        "slope": 0.01 * random.normal(size=(1, 3)), "theta_normal": random.normal(size=(3, 2)),
    }  # fmt: skip
    found, traced = jax.jit(lambda sites: _density_and_values(model, data, sites))(sites)
    mean = sites["loc_normal"] + (AGES - 35)[:, None] * sites["slope"]
    theta = np.stack([-np.exp(sites["theta_normal"][:, 0]), mean[:, 1], sites["theta_normal"][:, 1]], axis=1)
    np.testing.assert_allclose(traced["theta"], theta)
    np.testing.assert_allclose(traced["loc"], [-np.exp(sites["loc_normal"][0]), *sites["loc_normal"][1:]])
    gaps = np.einsum("dof,df->do", data.features, theta[data.subject])
    expected = (gaps - np.log(np.exp(gaps).sum(1, keepdims=True)))[np.arange(9), data.choice].sum()
    expected += (np.log(2) + norm.logpdf(sites["kappa"])).sum() + norm.logpdf(sites["loc_normal"], 0, 2).sum()
    expected += norm.logpdf(sites["slope"], 0, 2 / AGES.std()).sum()
    expected += norm.logpdf(sites["theta_normal"], mean[:, [0, 2]], np.sqrt(sites["kappa"])).sum()
    assert float(found) == pytest.approx(expected, rel=1e-9)


def _density_and_values(model, data, sites):
    density, found = log_density(model, (data,), {}, sites)
    return density, {name: site["value"] for name, site in found.items() if site["type"] == "deterministic"}


def test_rewards_of_actions_may_be_random_too():
    data = decisions_of_people()
    model = Probit(1.0, correlated=True, action_rewards=True, random=["time", "action_rewards"])
    found = subject_values(model, data)
    assert found.random.tolist() == [1, 3, 4] and found.site == "theta_normal"
    made = model.simulate(jax.random.key(0), data).parameters
    assert made["deviation"].shape == (4,) and "correlation" not in made
    assert np.ptp(made["v"][:, 0]) == 0 and (np.ptp(made["action_rewards"], axis=0) > 0).all()
    basis = model.parts(np.eye(5), data)["action_rewards"][3:]
    whole = basis.T @ np.asarray(made["covariance"], float)[1:, 1:] @ basis
    np.testing.assert_allclose(made["deviation"][1:] ** 2, np.diag(whole), rtol=1e-5)


def test_copies_of_a_model_have_its_laws_and_names():
    model = Probit(dist.HalfNormal(1.0), random={"price": "lognormal"}, subject_features={"age": AGES})
    copy = dataclasses.replace(model, loc_kappa=4.0)
    assert copy.random == (("price", "lognormal"),) and copy.subject_feature_names == ("age",)
    stored = unpack(pack({"model": model}), "model")["model"]
    assert stored.random == model.random and stored.subject_feature_names == ("age",)


def test_what_is_wrong_with_the_population_is_named():
    data = decisions_of_people()
    for match, fields in {
        "random is str: give a list, names": {"random": "price"},
        r"random\['price'\] must be 'normal', 'lognormal' or": {"random": {"price": "uniform"}},
        "random has 3": {"random": [3]},
        "rewards of actions are normal": {"random": {"action_rewards": "lognormal"}},
        "kappa is 25.0, the variance of the logarithm": {"random": {"price": "lognormal"}},
        "correlated must be True or False": {"correlated": 1},
        "correlated takes kind='features', a finite number": {
            "correlated": True,
            "kappa": dist.HalfNormal(1.0),
        },
        "subject_features has shape": {"subject_features": np.ones(3)},
        r"subject_features has columns of shapes \[\(2,\), \(3,\)\]": {
            "subject_features": {"age": AGES, "sex": [0.0, 1.0]}
        },
        r"subject_features\['age'\] is the same for all": {"subject_features": {"age": np.ones(3)}},
        r"subject_features\['months'\] is a combination": {
            "subject_features": {"age": AGES, "months": 12 * AGES}
        },
        "random has price, time, price: give each name once": {"random": ["price", "time", "price"]},
        "subject_labels is given without subject_features, whose labels": {"subject_labels": ["ann"]},
        "subject_feature_names is given without": {"subject_feature_names": ["age"]},
        r"subject_features\[1, 0\] is not finite": {"subject_features": {"age": [1.0, np.nan, 2.0]}},
    }.items():
        with pytest.raises((TypeError, ValueError), match=match):
            Probit(**fields)
    with pytest.raises(ValueError, match="values of states have none"):
        NoisyMDP(random=["price"])
    for match, model, given in (
        ("random names colour, and the features are price, time", Probit(random=["colour"]), data),
        ("the decisions have no subject", Probit(random=["price"]), data._replace(subject=None)),
        ("random names no feature", Probit(random=[]), data),
        (
            "subject_features has 2 rows, and the decisions have 3",
            Probit(subject_features=AGES[:2, None]),
            data,
        ),
    ):
        with pytest.raises(ValueError, match=match):
            model.check(given)
    fewer = data._replace(subject=data.subject % 2, metadata=Metadata())
    Probit(subject_features=AGES[:, None]).check(fewer)  # held-out decisions may lack some
    with pytest.raises(ValueError, match="subject_features has 3 rows, and the decisions have 2"):
        Probit(subject_features=AGES[:, None]).simulate(jax.random.key(0), fewer)
    with pytest.raises(ValueError, match="subject_features has 3 rows, and the decisions have 2"):
        ethogram.fit(jax.random.key(0), Probit(subject_features=AGES[:, None]), fewer, "px-da")


def test_a_column_of_a_table_is_a_feature_of_subjects():
    model = Probit(subject_features=pandas.Series(AGES, ["ann", "ben", "cleo"], name="age"))
    assert model.subject_feature_names == ("age",)
    np.testing.assert_array_equal(model.subject_features, AGES[:, None])


def test_rows_of_a_table_belong_to_the_subjects_of_its_index():
    data = decisions_of_people()
    ages = pandas.Series(AGES, index=["ann", "ben", "cleo"], name="age")
    model = Probit(1.0, correlated=True, subject_features=ages)
    assert dataclasses.replace(model, correlated=True).subject_labels == ("ann", "ben", "cleo")
    model.check(data)
    with pytest.raises(ValueError, match="subject_features has 'cleo' in row 0"):
        Probit(1.0, correlated=True, subject_features=ages[::-1]).check(data)
    Probit(1.0, correlated=True, subject_features=ages[::-1].reset_index(drop=True)).check(data)
    with pytest.raises(ValueError, match="subject_labels has 2 labels for 3 subjects"):
        Probit(1.0, subject_features=ages, subject_labels=("ann", "ben"))
