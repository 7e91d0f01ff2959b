"""Laplace's approximation of choices against quadrature, importance sampling and ArviZ."""

from __future__ import annotations

import arviz
import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import log_ndtr
from scipy.stats import norm

import ethogram
from ethogram.inference.choices import laplace
from ethogram.inference.choices.choice_expansion import chosen_gaps, expand
from ethogram.inference.choices.laplace import (
    laplace_choices,
)
from ethogram.inference.pareto_weights import smoothed_weights, systematic_resample
from ethogram.models.choices import Decisions, NoisyMDP

KEY = jax.random.key(0)


def choices(num_decisions, beta, seed=0, num_options=2, **fields):
    """Decisions of an agent with weights beta, or (subject, feature), among options with normal features."""
    rng = np.random.default_rng(seed)
    beta = np.asarray(beta, float)
    x = rng.normal(size=(num_decisions, num_options, beta.shape[-1]))
    each = beta if beta.ndim == 1 else beta[fields["subject"]][:, None]
    utilities = (x * each).sum(-1) + rng.normal(size=x.shape[:2])
    return Decisions(x, np.ones(x.shape[:2], bool), utilities.argmax(1), **fields)


def log_likelihood(data, theta):
    """Log likelihoods (point,) of choices between two options at theta (point, feature), in closed form."""
    gaps = (
        data.features[np.arange(len(data)), data.choice]
        - data.features[np.arange(len(data)), 1 - data.choice]
    )
    weight = np.ones(len(data)) if data.weight is None else data.weight
    return log_ndtr(theta @ gaps.T / np.sqrt(2)) @ weight


def on_grid(log_density, *axes):
    """Points (point, axis), their probabilities and the log integral, by the trapezoid rule."""
    points = np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=-1)
    height = log_density(points)
    mass = np.exp(height - height.max())
    cell = np.prod([x[1] - x[0] for x in axes])
    return points, mass / mass.sum(), height.max() + np.log(mass.sum() * cell)


@pytest.mark.parametrize(("unit", "kappa"), [(1.0, 4.0), (1e4, np.inf), (1e-3, np.inf)])
def test_moments_and_evidence_are_those_of_quadrature(unit, kappa):
    """Of two weights of features in odd units and far from zero, with weighted decisions; 4.5 standard errors."""
    weight = np.random.default_rng(2).integers(0, 3, 60).astype(float)
    data = choices(60, [0.8, -0.5], weight=weight)
    scale = np.array([unit, 1.0])
    scaled = data._replace(features=(data.features + 1e3) * scale)
    found = laplace_choices(KEY, NoisyMDP(kappa, kind="features"), scaled, num_samples=2000)

    def log_joint(at):
        return log_likelihood(data, at) + (
            0 if np.isinf(kappa) else norm.logpdf(at, scale=np.sqrt(kappa)).sum(1)
        )

    points, probability, evidence = on_grid(
        log_joint, np.linspace(-1.5, 3.0, 181), np.linspace(-3.0, 1.5, 181)
    )
    theta = found.sites["theta"][0] * scale
    mean = probability @ points
    sd = np.sqrt(probability @ (points - mean) ** 2)
    assert found.pareto_k < 0.5
    np.testing.assert_allclose((theta.mean(0) - mean) / sd, 0, atol=4.5 / np.sqrt(1500))
    np.testing.assert_allclose(theta.std(0) / sd, 1, atol=4.5 / np.sqrt(2 * 1500))
    np.testing.assert_allclose(found.log_evidence, evidence if np.isfinite(kappa) else np.nan, atol=0.02)
    np.testing.assert_allclose(points[probability.argmax()], found.mode["theta"] * scale, atol=0.03)


def test_a_learned_variance_is_that_of_quadrature():
    """Log kappa and one weight, on a grid."""
    data = choices(80, [1.2])
    prior = dist.LogNormal(0.0, 1.0)
    found = laplace_choices(KEY, NoisyMDP(prior, kind="features"), data, num_samples=2000)

    def log_joint(at):
        x, theta = at.T
        return log_likelihood(data, theta[:, None]) + norm.logpdf(theta, scale=np.exp(x / 2)) + norm.logpdf(x)

    points, probability, evidence = on_grid(log_joint, np.linspace(-5, 6, 221), np.linspace(0.2, 2.6, 241))
    mean = probability @ points
    sd = np.sqrt(probability @ (points - mean) ** 2)
    drawn = np.stack([np.log(found.sites["kappa"][0]), found.sites["theta"][0, :, 0]], axis=1)
    assert found.pareto_k < 0.5
    np.testing.assert_allclose((drawn.mean(0) - mean) / sd, 0, atol=4.5 / np.sqrt(1000))
    np.testing.assert_allclose(drawn.std(0) / sd, 1, atol=4.5 / np.sqrt(1000))
    np.testing.assert_allclose(found.log_evidence, evidence, atol=0.03)


def test_people_and_their_mean_are_those_of_quadrature():
    """Of two subjects with one weight each, whose variance is known: a grid over both and their mean."""
    data = choices(60, [[0.3], [1.2]], seed=5, subject=np.arange(60) % 2)
    found = laplace_choices(KEY, NoisyMDP(0.5, kind="features", loc_kappa=4.0), data, num_samples=2000)
    each = [data.take(data.subject == number)._replace(subject=None) for number in range(2)]

    def log_joint(at):
        loc, *values = at.T
        height = norm.logpdf(loc, scale=2.0)
        for value, own in zip(values, each, strict=True):
            height = height + log_likelihood(own, value[:, None]) + norm.logpdf(value, loc, np.sqrt(0.5))
        return height

    axes = np.linspace(-3, 4, 61), np.linspace(-1.5, 2.0, 71), np.linspace(-0.5, 3.5, 71)
    points, probability, evidence = on_grid(log_joint, *axes)
    mean = probability @ points
    sd = np.sqrt(probability @ (points - mean) ** 2)
    drawn = np.concatenate([found.sites["loc"][0], found.sites["theta"][0, :, :, 0]], axis=1)
    assert found.pareto_k < 0.5 and found.covariance.shape == (2, 1, 1)
    np.testing.assert_allclose((drawn.mean(0) - mean) / sd, 0, atol=4.5 / np.sqrt(1500))
    np.testing.assert_allclose(drawn.std(0) / sd, 1, atol=4.5 / np.sqrt(2 * 1500))
    np.testing.assert_allclose(found.log_evidence, evidence, atol=0.02)


@pytest.mark.optimised
def test_six_weights_are_those_of_nuts():
    """Means and deviations within 4.5 standard errors of both, among four options."""
    data = choices(150, np.linspace(-1, 1, 6), num_options=3)
    model = NoisyMDP(25.0, kind="features")
    ours = laplace_choices(KEY, model, data, num_samples=4000)
    nuts = ethogram.fit(KEY, model, data, "nuts", num_samples=300, progress_bar=False).result
    theirs = nuts.sites["theta"].reshape(-1, 6)
    mine = ours.sites["theta"][0]
    assert ours.pareto_k < 0.5
    off = (mine.mean(0) - theirs.mean(0)) / theirs.std(0)
    np.testing.assert_allclose(off, 0, atol=4.5 * np.hypot(1 / np.sqrt(1200), 1 / np.sqrt(2500)))
    np.testing.assert_allclose(mine.std(0) / theirs.std(0), 1, atol=4.5 / np.sqrt(1200))


def test_separated_choices_are_named_and_auto_would_not_take_the_draws():
    """Only the prior bounds the weight: the posterior is skewed, which the k says."""
    data = Decisions(np.array([[[1.0], [0.0]]] * 8), np.ones((8, 2), bool), np.zeros(8, int))
    with (
        pytest.warns(UserWarning, match="the choices are separated"),
        pytest.warns(UserWarning, match=r"Pareto k .* above 0\.7: .* use method='nuts'"),
    ):
        found = laplace_choices(KEY, NoisyMDP(100.0, kind="features"), data)
    assert found.pareto_k > 0.7


def test_weights_are_smoothed_as_arviz_does():
    """Log weights and the Pareto k, of light and of heavy tails."""
    rng = np.random.default_rng(3)
    for log_ratios in (rng.normal(size=1000), rng.standard_t(3, size=500), rng.exponential(0.9, 2000)):
        log_weights, k = smoothed_weights(log_ratios)
        if not hasattr(arviz, "psislw"):
            pytest.skip("this version of ArviZ has no psislw")
        theirs, their_k = arviz.psislw(log_ratios)
        np.testing.assert_allclose(k, their_k, atol=1e-9)
        np.testing.assert_allclose(log_weights - np.logaddexp.reduce(log_weights), theirs, atol=1e-9)


def test_draws_are_resampled_by_their_weights():
    """Each as often as its weight says, up to one."""
    weight = np.array([0.3, 1.5, 0.0, 2.2])
    number = np.bincount(
        systematic_resample(np.random.default_rng(0), np.log(np.maximum(weight, 1e-300))), minlength=4
    )
    assert number.sum() == 4 and (abs(number - weight) < 1).all()


def test_the_expansion_is_that_of_differences():
    """Gradient and information of each subject, for fewer and for more options than weights."""
    for num_options in (2, 5):
        subject = np.arange(40) % 3
        data = choices(40, np.ones((3, 3)), num_options=num_options, subject=subject)
        model = NoisyMDP(1.0, kind="features")
        chosen, _ = chosen_gaps(model, model.check(data))
        theta = np.random.default_rng(1).normal(size=(3, 3))
        here, step = expand(chosen, theta), 1e-4
        for number in range(3):
            ahead, behind = (expand(chosen, theta + sign * step * np.eye(3)[number]) for sign in (1, -1))
            slope = (ahead.value - behind.value) / (2 * step)
            np.testing.assert_allclose(here.gradient[:, number], slope, atol=1e-6)
            curved = (behind.gradient - ahead.gradient) / (2 * step)
            np.testing.assert_allclose(here.information[:, number], curved, atol=1e-6)


def test_a_price_in_tiny_units_is_named_in_a_warning_of_the_fit():
    data = choices(60, [0.8, -0.5])
    tiny = data._replace(features=data.features * [1e-4, 1.0])
    with pytest.warns(
        UserWarning, match=r"outweighs the data on .*: 0 \(standard deviation [5-9]\.?\d*e-05\);"
    ):
        found = laplace_choices(KEY, NoisyMDP(kind="features"), tiny)
    assert abs(found.mode["theta"][0]) < 1  # 8000 with a column of 1


@pytest.mark.parametrize("least", [-6.0, np.inf], ids=["products", "logarithms"])
def test_ratios_of_likelihoods_are_those_of_a_fine_grid(monkeypatch, least):
    """Of four options, one of them missing in a third of the decisions, against a trapezoid rule in NumPy."""
    monkeypatch.setattr(laplace, "LEAST_GAP", least)
    data = choices(40, [0.8, -0.5], num_options=4)
    legal = (np.arange(4) != (data.choice[:, None] + 1) % 4) | (np.arange(40)[:, None] % 3 > 0)
    model, data = NoisyMDP(kind="features"), data._replace(legal=legal)
    chosen, unit = chosen_gaps(model, model.check(data))
    theta = np.random.default_rng(0).normal(size=(5, 2)) * 0.3 + [0.8, -0.5]
    near = laplace._is_near(chosen, theta[:1] / unit)
    assert near == (least < 0)
    found = laplace.log_ratios(chosen, (theta / unit)[:, None], theta[:1] / unit, chosen.noise)
    x = np.linspace(-8, 8, 801)
    utilities = data.features @ theta.T  # (decision, option, draw)
    gaps = np.take_along_axis(utilities, data.choice[:, None, None], 1) - utilities
    counts = (legal & (np.arange(4) != data.choice[:, None]))[..., None, None]
    below = np.where(counts, log_ndtr(gaps[..., None] + x), 0).sum(1)
    truth = np.log((norm.pdf(x) * np.exp(below)).sum(-1) * (x[1] - x[0])).sum(0)
    np.testing.assert_allclose(found, truth - truth[0], atol=2e-3)
