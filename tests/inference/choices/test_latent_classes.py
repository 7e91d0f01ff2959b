"""Latent classes of choosers against enumeration and an EM algorithm in NumPy, and planted classes."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import pytest
from numpyro.infer import Predictive
from numpyro.infer.util import potential_energy
from scipy.special import log_softmax, logsumexp, softmax

import ethogram
from ethogram import choices
from ethogram.inference.choices import latent_class_fit
from ethogram.inference.choices.laplace import laplace_choices
from ethogram.inference.choices.latent_class_fit import laplace_classes
from ethogram.models.choices import Decisions, LatentClasses
from ethogram.models.data import Metadata

KEY = jax.random.key(0)
THETA = np.array([[0.2, 1.5, -1.0], [-1.5, 0.5, 1.0], [-0.3, -1.0, 0.2]])
LOGIT = ethogram.Logit()


def planted(seed, subjects=60, each=8, theta=THETA, slope=1.0):
    """Decisions, income, and classes of subjects whose log odds depend on income."""
    rng = np.random.default_rng(seed)
    income = rng.normal(30, 10, subjects)
    log_odds = np.outer((income - 30) / 10, slope * np.arange(len(theta)))
    owner = np.array([rng.choice(len(theta), p=p) for p in softmax(log_odds, axis=1)])
    subject = np.repeat(np.arange(subjects), each)
    x = rng.normal(size=(len(subject), 3, theta.shape[1]))
    utility = (x * theta[owner[subject]][:, None]).sum(-1) + rng.gumbel(size=x.shape[:2])
    names = Metadata(feature_names=("price", "time", "comfort")[: theta.shape[1]])
    data = Decisions(x, np.ones(x.shape[:2], bool), utility.argmax(1), subject, metadata=names)
    return data, income, owner


@pytest.fixture(scope="module")
def some():
    return planted(0)


@pytest.fixture(scope="module")
def fit():
    data, income, _ = planted(0, 150)
    return ethogram.fit(KEY, LatentClasses(LOGIT, 3, {"income": income}), data, "laplace", progress_bar=False)


def log_joint(data, theta, log_share):
    """Log probabilities (subject, class) of classes and choices, decision by decision."""
    found = np.array(log_share, float)
    weight = np.ones(len(data)) if data.weight is None else data.weight
    for t, (s, a, legal) in enumerate(zip(data.subject, data.choice, data.legal, strict=True)):
        if a >= 0:
            utility = np.where(legal[:, None], data.features[t], 0) @ theta.T
            found[s] += weight[t] * (utility[a] - logsumexp(utility[legal], axis=0))
    return found


def ragged(data):
    """A third of the decisions, with unknown choices, missing options, weights, and a subject without decisions."""
    rng = np.random.default_rng(1)
    part = data.take(np.flatnonzero((rng.uniform(size=len(data)) < 0.4) & (data.subject != 5)))
    choice = np.where(rng.uniform(size=len(part)) < 0.1, -1, part.choice)
    legal = (rng.uniform(size=part.legal.shape) < 0.8) | (np.arange(3) == np.maximum(choice, 0)[:, None])
    features = np.where(legal[..., None], part.features, np.nan)
    return part._replace(
        choice=choice, legal=legal, features=features, weight=rng.integers(0, 3, len(part)).astype(float)
    )


def test_the_likelihood_is_that_of_enumeration(some):
    """Of ragged decisions with weights, in double precision; the choices of all subjects sum to one."""
    data, income = ragged(some[0]), some[1]
    model = LatentClasses(LOGIT, 3, {"income": income})
    rng = np.random.default_rng(2)
    membership = rng.normal(size=(3, 2)) * [1, 0.1]
    log_share = log_softmax((income - income.mean())[:, None] * membership[:, 1] + membership[:, 0], axis=1)
    truth = log_joint(data, THETA, log_share)
    batch = model.entries(data).batch
    found = model.likelihood({"theta": THETA, "membership": membership}, batch)
    np.testing.assert_allclose(found.log_prob(data.choice), logsumexp(truth, axis=1), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.smooth(data.choice), softmax(truth, axis=1), atol=1e-10)
    few = some[0].take([0, 1])._replace(metadata=Metadata())
    plain = LatentClasses(LOGIT, 3)
    one = plain.likelihood({"theta": THETA, "membership": membership[:, :1]}, plain.entries(few).batch)
    total = sum(
        float(np.exp(one.log_prob(np.array(pair))[0])) for pair in itertools.product(range(3), repeat=2)
    )
    np.testing.assert_allclose(total, 1, rtol=1e-10)


def test_slope_and_curvature_are_those_of_differences_and_of_the_numpyro_model(some):
    data, income = ragged(some[0]), some[1]
    model = LatentClasses(LOGIT, 3, {"income": income})
    problem = model.check(data)
    target = latent_class_fit.make_target(model, problem)
    x = np.random.default_rng(3).normal(size=len(target.precision))
    here, step = latent_class_fit.evaluate(target, x), 1e-5 * np.eye(len(x))
    ends = [[latent_class_fit.evaluate(target, x + sign * each) for sign in (1, -1)] for each in step]
    slope = [(up.value - down.value) / 2e-5 for up, down in ends]
    curved = [(down.gradient - up.gradient) / 2e-5 for up, down in ends]
    np.testing.assert_allclose(here.gradient, slope, atol=1e-6, rtol=1e-6)
    np.testing.assert_allclose(here.complete - here.hidden, curved, atol=1e-5, rtol=1e-5)

    def energy(at):
        membership, theta = target.split(np.asarray(at))
        sites = {"membership_free": membership, "theta": theta * target.unit}
        return float(potential_energy(model, (problem,), {}, sites))

    np.testing.assert_allclose(
        energy(x + 0.3) - energy(x), here.value - latent_class_fit.evaluate(target, x + 0.3).value
    )


@pytest.mark.parametrize("noise", ["normal", "gumbel"])
def test_gradients_far_from_zero_are_finite(some, noise):
    model = LatentClasses(ethogram.NoisyMDP(kind="features", noise=noise), 3)
    target = latent_class_fit.make_target(model, model.check(some[0]))
    for x in (1e2, -1e3, 1e4):
        place = latent_class_fit.evaluate(
            target, np.full(len(target.precision), x) * np.arange(len(target.precision))
        )
        assert np.isfinite(place.value)
        assert np.isfinite(place.gradient).all()


def test_one_class_is_the_fit_of_its_base(some):
    """Within four Monte Carlo errors, and the evidence to .01."""
    data = some[0]
    found = laplace_classes(KEY, LatentClasses(LOGIT, 1), data)
    base = laplace_choices(KEY, LOGIT, data._replace(subject=None))
    np.testing.assert_allclose(
        found.sites["theta"].mean((0, 1, 2)), base.sites["theta"].mean((0, 1)), atol=0.02
    )
    np.testing.assert_allclose(
        found.sites["theta"].std((0, 1, 2)), base.sites["theta"].std((0, 1)), rtol=0.12
    )
    np.testing.assert_allclose(found.log_evidence, base.log_evidence, atol=0.02)


def em(data, start, sweeps=2000, variance=1e6):
    """The maximum likelihood estimate of a mixture of logits by EM with Newton steps, in NumPy."""
    theta, share = np.array(start), np.full(len(start), 1 / len(start))
    x, chosen, who = data.features, data.choice, data.subject
    for _ in range(sweeps):
        joint = log_joint(data, theta, np.tile(np.log(share), (who.max() + 1, 1)))
        own = softmax(joint, axis=1)
        before, share = theta.copy(), own.mean(0)
        for c in range(len(theta)):
            p = softmax(x @ theta[c], axis=1)
            mean = np.einsum("to,top->tp", p, x)
            w = own[who, c]
            slope = w @ (x[np.arange(len(x)), chosen] - mean) - theta[c] / variance
            centred = x - mean[:, None]
            curved = np.einsum("t,to,top,toq->pq", w, p, centred, centred) + np.eye(len(slope)) / variance
            theta[c] = theta[c] + np.linalg.solve(curved, slope)
        if np.abs(theta - before).max() < 1e-10:
            break
    return theta, share, logsumexp(joint, axis=1).sum()


def test_the_mode_under_flat_priors_is_the_maximum_that_em_finds(some):
    data = some[0]
    theta, share, likelihood = em(data, THETA)
    model = LatentClasses(ethogram.Logit(1e6), 3, membership_kappa=1e6)
    found = laplace_classes(KEY, model, data)
    order = np.argsort(-share)
    np.testing.assert_allclose(found.mode["theta"], theta[order], atol=1e-4)
    np.testing.assert_allclose(found.mode["share"], share[order], atol=1e-4)
    log_share = np.tile(np.log(share), (60, 1))
    np.testing.assert_allclose(
        logsumexp(log_joint(data, theta, log_share), axis=1).sum(), likelihood, atol=1e-6
    )


def test_planted_classes_are_found():
    """Of 44 intervals of 90 % at least 34 hold the truth; by chance fewer in 1 of 300."""
    inside = []
    for seed in range(4):
        data, income, owner = planted(seed, 150)
        found = laplace_classes(KEY, LatentClasses(LOGIT, 3, {"income": income}), data)
        theta, membership = found.sites["theta"][0], found.sites["membership"][0]
        order = [int(np.abs(theta.mean(0) - truth).sum(1).argmin()) for truth in THETA]
        assert sorted(order) == [0, 1, 2]
        lower, upper = np.quantile(theta[:, order], [0.05, 0.95], axis=0)
        inside += ((lower < THETA) & (THETA < upper)).ravel().tolist()
        slope = membership[:, order][:, 1:, 1] - membership[:, order][:, :1, 1]
        lower, upper = np.quantile(slope, [0.05, 0.95], axis=0)
        inside += ((lower < [0.1, 0.2]) & ([0.1, 0.2] < upper)).tolist()
        own = found.model.entries(data)
        each = found.model.likelihood({"theta": theta.mean(0), "membership": membership.mean(0)}, own.batch)
        assert (np.argsort(order)[np.asarray(each.smooth(own.value)).argmax(1)] == owner).mean() > 0.9
    assert len(inside) == 44
    assert sum(inside) >= 34


def test_a_fit_shows_itself_by_names(fit):
    owner, table = planted(0, 150)[2], fit.summary()
    assert {"share[class 0]", "price[class 2]", "membership income[class 1]"} <= {*table.index}
    assert table["mean"].filter(like="share").is_monotonic_decreasing
    effects = fit.effects()
    np.testing.assert_allclose(effects["odds_ratio"], np.exp(effects["mean"]))
    people = fit.subjects()
    np.testing.assert_allclose(people.filter(like="class ").sum(axis=1), 1, atol=1e-5)
    assert pd.crosstab(people["class"], owner).max(axis=1).sum() >= 135
    tree = fit.to_arviz(log_likelihood="sequence")
    assert tree.posterior["theta"].dims == ("chain", "draw", "class", "parameter")
    assert tree.log_likelihood["choice"].sizes["subject"] == 150
    assert len(fit.plot().axes) == 2
    np.testing.assert_allclose(fit.predict().sum(1), 1, atol=1e-5)
    assert "price[hurried]" in fit.rename({1: "hurried"}).summary().index
    with pytest.raises(TypeError, match=r"fit\.subjects"):
        fit.states()


def test_files_give_the_same_fit(fit, tmp_path):
    fit.save(tmp_path / "fit.npz")
    pd.testing.assert_frame_equal(ethogram.load(tmp_path / "fit.npz").summary(), fit.summary())


def test_known_subjects_are_predicted_by_their_own_class_and_new_ones_by_membership(some):
    """Against the formula at every draw, in NumPy; the half of all subjects that is not in the fit is new."""
    data, income, _ = some
    index = [f"p{at}" for at in range(60)]
    data = data._replace(metadata=Metadata(subject_names=tuple(index)))
    people = pd.DataFrame({"income": income}, index).iloc[::-1]  # rows are found by their labels
    first = np.arange(len(data)) % 8 < 6
    train, held_out = data.take(first & (data.subject < 40)), data.take(~first)
    model = LatentClasses(LOGIT, 3, "income", subject_features=people)
    fit = ethogram.fit(KEY, model, train, "laplace", num_samples=50, progress_bar=False)
    theta, membership = fit.result.sites["theta"][0], fit.result.sites["membership"][0]
    apart = income - income.mean()
    found = []
    for values, each in zip(theta, membership, strict=True):
        share = log_softmax(each[:, 0] + apart[:, None] * each[:, 1], axis=1)
        own = log_softmax(log_joint(train, values, share), axis=1)
        chosen = log_softmax(np.einsum("top,cp->tco", held_out.features, values), axis=-1)
        chosen = np.take_along_axis(chosen, held_out.choice[:, None, None], 2)[..., 0]
        found.append(logsumexp(own[held_out.subject] + chosen, axis=1))
    truth = logsumexp(found, axis=0) - np.log(50)
    np.testing.assert_allclose(fit.score(held_out).entries, truth, atol=1e-5)
    chance = np.asarray(fit.predict(held_out))[np.arange(len(held_out)), held_out.choice]
    np.testing.assert_allclose(np.log(chance), truth, atol=1e-5)


def test_willingness_to_pay_is_by_class(fit):
    model, draws, data = fit.model, fit.result.sites, fit.data
    with pytest.raises(TypeError, match="by_class"):
        choices.willingness_to_pay(model, draws, data, "time", "price")
    base, each, by_class = choices.by_class(model, draws, data)
    with pytest.warns(UserWarning, match="negative with probability"):
        band = choices.willingness_to_pay(base, each, by_class, "time", "price")
    theta = draws["theta"].reshape(-1, 3, 3)
    np.testing.assert_allclose(band.median, np.median(-theta[..., 1] / theta[..., 0], axis=0), rtol=1e-4)
    shares = choices.choice_shares(base, each, by_class)
    np.testing.assert_allclose(shares.mean, np.asarray(fit.predict()).mean(0), atol=0.01)


def test_too_many_classes_are_said(some):
    """One class planted, two fitted: their values are alike."""
    data = planted(5, theta=THETA[:1])[0]
    with pytest.warns(UserWarning, match="Pareto k"):
        found = ethogram.fit(KEY, LatentClasses(LOGIT, 2), data, "laplace", progress_bar=False)
    assert "alike classes" in {each.kind for each in found.diagnose()}


def test_subjects_with_one_decision_have_a_fit(some):
    data = some[0].take(np.arange(0, 480, 8))
    found = laplace_classes(KEY, LatentClasses(LOGIT, 2), data, num_samples=100)
    assert np.isfinite(found.sites["theta"]).all()


def test_choices_are_simulated(some):
    drawn = Predictive(LatentClasses(LOGIT, 2), num_samples=3)(KEY, some[0], condition=False)
    assert drawn["choice"].shape == (3, 480)


@pytest.mark.slow
def test_nuts_agrees_with_laplace(fit):
    chains = ethogram.fit(KEY, fit.model, fit.data, "nuts", num_samples=400, progress_bar=False)
    one, other = chains.summary(), fit.summary()
    assert (one["r_hat"] < 1.05).all()
    np.testing.assert_allclose((one["mean"] - other["mean"]) / one["sd"], 0, atol=0.35)
    np.testing.assert_allclose(one["sd"] / other["sd"], 1, atol=0.3)


@pytest.mark.parametrize(
    ("make", "error", "said"),
    [
        (lambda: LatentClasses("logit", 2), TypeError, "give a NoisyMDP"),
        (lambda: LatentClasses(LOGIT, 0), ValueError, "num_classes must be at least 1"),
        (lambda: LatentClasses(LOGIT, 2, membership_kappa=0), ValueError, "membership_kappa"),
        (lambda: LatentClasses(ethogram.Logit(np.inf), 2), ValueError, "infinite kappa"),
        (lambda: LatentClasses(ethogram.Logit(dist.HalfNormal(1.0)), 2), ValueError, "prior of kappa"),
        (lambda: LatentClasses(ethogram.Logit(lapse=dist.Beta(1, 9)), 2), ValueError, "prior of lapse"),
        (lambda: LatentClasses(ethogram.Logit(random=["price"]), 2), ValueError, "how subjects differ"),
        (lambda: LatentClasses(ethogram.Probit(noise="covariance"), 2), ValueError, "covariance"),
        (lambda: LatentClasses(LOGIT, 1, {"income": [1.0, 2.0]}), ValueError, "leave it out"),
        (lambda: LatentClasses(LOGIT, 2, "income"), TypeError, "subject_features NoneType"),
        (lambda: LatentClasses(LOGIT, 2, "age", {"income": [1.0, 2.0]}), ValueError, "takes 'age'"),
        (lambda: LatentClasses(LOGIT, 2, "0 + income", {"income": [1.0, 2.0]}), ValueError, "constant"),
        (lambda: LatentClasses(LOGIT, 2, {"income": [1.0, 1.0]}), ValueError, "same for all subjects"),
        (lambda: LatentClasses(LOGIT, 2, {"income": [1.0, np.nan]}), ValueError, "not finite"),
        (lambda: LatentClasses(LOGIT, 2, None, {"income": [1.0, 2.0]}), TypeError, "table of a formula"),
        (
            lambda: LatentClasses(LOGIT, 2, pd.DataFrame({"income": [1.0, 2.0]}, index=["a", "a"])),
            ValueError,
            "one row per subject",
        ),
    ],
)
def test_models_that_make_no_sense_are_refused(make, error, said):
    with pytest.raises(error, match=said):
        make()


def test_data_that_do_not_fit_are_refused(some):
    data, income, _ = some
    with pytest.raises(ValueError, match="subject="):
        ethogram.fit(KEY, LatentClasses(LOGIT, 2), data._replace(subject=None))
    with pytest.raises(ValueError, match="2 subjects have known choices"):
        ethogram.fit(KEY, LatentClasses(LOGIT, 3), data.take(data.subject < 2))
    with pytest.raises(ValueError, match="membership has 59 rows"):
        ethogram.fit(KEY, LatentClasses(LOGIT, 2, {"income": income[1:]}), data)
    named = data._replace(metadata=Metadata(subject_names=tuple(map("p{}".format, range(60)))))
    people = pd.DataFrame({"income": income[:-1]}, [f"p{at}" for at in range(59)])
    with pytest.raises(ValueError, match="no row of subject 'p59'"):
        ethogram.fit(KEY, LatentClasses(LOGIT, 2, people), named)
    with pytest.raises(TypeError, match="takes no setting moves"):
        ethogram.fit(KEY, LatentClasses(LOGIT, 2), data, moves="x")
    with pytest.raises(ValueError, match="method"):
        ethogram.fit(KEY, LatentClasses(LOGIT, 2), data, "px-da")
