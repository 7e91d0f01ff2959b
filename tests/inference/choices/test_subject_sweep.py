"""Sweeps of PX-DA for subjects: invariance of the joint law, a grid, and NUTS."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size
from scipy.optimize import minimize
from scipy.special import log_ndtr, ndtr
from scipy.stats import invgamma, kstest, norm, t

import ethogram
from ethogram.fits.shrinkage import own_estimates
from ethogram.inference.choices import subject_sweep
from ethogram.inference.choices.gibbs_sweep import MOVES, subject_problems
from ethogram.inference.choices.laplace import refusal
from ethogram.inference.choices.px_da import PXDA
from ethogram.inference.choices.subject_sweep import draw_factors, draw_values, grams
from ethogram.models.choices import Decisions, Logit, Probit
from ethogram.models.choices.subject_values import HuangWand, subject_values
from ethogram.models.data.trajectories import Metadata

CHAINS, LOC_KAPPA, KAPPA = 4000, 4.0, 0.7
ROWS = np.array([[1.0, -1.0], [1.0, 0.2], [1.0, 0.8]])
"""Of three subjects, the last of whom decides nothing."""


@functools.cache
def joint_draws(moves):
    """Values and latents of chains drawn from their joint law, the problem, and its design by subject."""
    random = np.random.default_rng(0)
    who, x = np.array([0, 0, 0, 1]), random.normal(size=(4, 3, 2))
    legal = np.ones((4, 3), bool)
    legal[1, 2] = False
    problem = subject_problems(x, legal, np.zeros(4, int), who, 3, MOVES[moves])
    coefficients = np.sqrt(LOC_KAPPA) * random.normal(size=(CHAINS, 2, 2))
    means = ROWS @ coefficients
    apart = random.normal(size=means.shape) * np.array([1, 0])  # the second is the same for all
    theta = means + np.sqrt(KAPPA) * apart
    design = np.zeros((3, 3, 3, 2))  # (subject, option, decision, parameter)
    design[0, :, :3], design[1, :, :1] = np.moveaxis(x[:3], 0, 1), np.moveaxis(x[3:], 0, 1)
    legal = np.asarray(problem.legal)[..., 0]
    noise = random.normal(size=(CHAINS, *legal.shape))
    latents = np.where(legal, np.einsum("iodp,nip->niod", design, theta) + noise, 0)
    return theta, coefficients, latents, problem, design * legal[..., None]


def about_the_means(coefficients, latents):
    """Logarithms of the quadratic form of latents about their means given B, which is chi squared."""
    _, _, _, problem, design = joint_draws("local+scale")
    legal, found = np.asarray(problem.legal)[..., 0], 0
    counts = np.maximum(legal.sum(1, keepdims=True), 1)
    x = np.where(legal[..., None], design - design.sum(1, keepdims=True) / counts[..., None], 0)
    y = np.where(legal, latents - latents.sum(2, keepdims=True) / counts, 0)
    for i, row in enumerate(ROWS):
        one = x[i].reshape(-1, 2)
        off = y[:, i].reshape(CHAINS, -1) - (row @ coefficients) @ one.T
        inner = np.eye(len(one)) + KAPPA * np.outer(one[:, 0], one[:, 0])
        found = found + np.einsum("na,ab,nb->n", off, np.linalg.inv(inner), off)
    return np.log(found)


def changes(moves):
    """Standardised mean changes, of a form of B and latents and of |theta|^2, in a sweep from their joint law."""
    theta, coefficients, latents, problem, _ = joint_draws(moves)
    args = np.eye(1) / KAPPA, np.array([0]), ROWS, np.full((2, 1), 1 / LOC_KAPPA), MOVES[moves]

    def one(key, latents):
        return draw_values(key, problem, grams(problem), latents, *args)[:3]

    drawn = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), CHAINS), latents)
    after, *others = map(np.asarray, drawn)
    pairs = (
        (about_the_means(coefficients, latents), about_the_means(*others)),
        ((theta**2).sum((1, 2)), (after**2).sum((1, 2))),
    )
    return [standardised(new - old) for old, new in pairs]


def standardised(change):
    return change.mean() / change.std() * np.sqrt(CHAINS)


@pytest.mark.parametrize("moves", ["local+scale", "scale+translate"])
def test_a_sweep_leaves_the_joint_law_as_it_is(moves, monkeypatch):
    """|z| below 4.5 fails in 1 of 70 000 runs; a shape that is wrong by a half is found."""
    assert np.abs(changes(moves)).max() < 4.5
    if moves == "local+scale":
        right = subject_sweep.scale_shape
        monkeypatch.setattr(subject_sweep, "scale_shape", lambda counts, move: right(counts, move) + 0.5)
        assert changes(moves)[0] > 6


def test_a_rate_given_the_mean_would_be_wrong():
    """Residuals about the current mean give a scale that the test above finds."""
    _, coefficients, latents, problem, _ = joint_draws("local+scale")
    counts = np.asarray(problem.legal)[..., 0].sum(1)
    shape, before = (counts.sum() - (counts > 0).sum()) / 2, about_the_means(coefficients, latents)
    scale = np.exp(before) / 2 / np.random.default_rng(3).gamma(shape, size=CHAINS)
    after = about_the_means(coefficients, latents / np.sqrt(scale)[:, None, None, None])
    assert standardised(after - before) > 8


def test_covariances_are_drawn_by_their_conditional():
    """Twenty times, each after new values of five subjects: still half-t. A p-value below 1e-4 in 1 of 5000 runs."""
    model = Probit(4.0, correlated=True)
    found = subject_values(model, people(5))

    def chain(key):
        key_first, key_rest = jax.random.split(key)

        def step(covariance, key):
            key_values, key_new = jax.random.split(key)
            apart = jax.random.normal(key_values, (5, 2)) @ jnp.linalg.cholesky(covariance).T
            return subject_sweep._draw_spread(key_new, model, found, apart, covariance), None

        first = HuangWand(2, 2.0).sample(key_first)
        return jax.lax.scan(step, first, jax.random.split(key_rest, 20))[0]

    drawn = np.asarray(jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(0), CHAINS)))
    for at in range(2):
        assert kstest(np.sqrt(drawn[:, at, at]) / 2, lambda x: 2 * t(2).cdf(x) - 1).pvalue > 1e-4


def test_factors_leave_the_prior_of_deviations_as_it_is():
    """From the joint law of deviations, values and latents: half-t, by KS; p below 1e-4 in 1 of 5000 runs."""
    models = {
        "covariance": (Probit(4.0, correlated=True), HuangWand(2, 2.0)),
        "variances": (Probit(dist.InverseGamma(3.0, 2.0)), dist.InverseGamma(3.0, 2.0).expand((2,))),
    }
    random = np.random.default_rng(5)
    x = random.normal(size=(4, 3, 2))  # (subject, row, parameter)
    squares = np.einsum("inp,inq->ipq", x, x)
    for name, (model, prior) in models.items():
        found = subject_values(model, people(4))

        def chain(key, model=model, prior=prior, found=found, name=name):
            key_spread, key_values, key_noise, key_move = jax.random.split(key, 4)
            drawn = prior.sample(key_spread)
            whole = drawn if name == "covariance" else jnp.diag(drawn)
            apart = jax.random.normal(key_values, (4, 2)) @ jnp.linalg.cholesky(whole).T
            latents = jnp.einsum("inp,ip->in", x, apart) + jax.random.normal(key_noise, (4, 3))
            side = jnp.einsum("inp,in->ip", x, latents)
            spread = drawn if name == "covariance" else jnp.log(drawn)
            spread, factor = draw_factors(key_move, model, found, spread, apart, squares, side)
            variance = jnp.diagonal(spread) if name == "covariance" else jnp.exp(spread)
            return variance, factor

        variance, factor = jax.jit(jax.vmap(chain))(jax.random.split(jax.random.key(1), CHAINS))
        assert (np.asarray(factor)[:, 0] != 1).mean() > 0.2
        law = (
            invgamma(3.0, scale=2.0).cdf
            if name == "variances"
            else lambda x: 2 * t(2).cdf(np.sqrt(x) / 2) - 1
        )
        for at in range(2):
            assert kstest(np.asarray(variance)[:, at], law).pvalue > 1e-4


def people(count, decisions=6, features=2, seed=0, names=("speed", "price", "seats")):
    """Choices of people whose weights differ."""
    random = np.random.default_rng(seed)
    who = np.repeat(np.arange(count), decisions)
    x = random.normal(size=(len(who), 2, features))
    weights = np.array([1.0, -1.0, 0.5])[:features] + 0.8 * random.normal(size=(count, features))
    utility = np.einsum("dof,df->do", x, weights[who]) + random.normal(size=x.shape[:2])
    metadata = Metadata(feature_names=names[:features])
    return Decisions(x, np.ones(x.shape[:2], bool), utility.argmax(1), who, metadata=metadata)


@pytest.mark.slow
def test_one_random_coefficient_is_that_of_a_grid():
    """Means of loc and of the logarithm of the deviation within four and a half Monte Carlo errors."""
    data = people(6, features=1)
    model = Probit(1.0, correlated=True, loc_kappa=4.0)
    lengths = {"num_warmup": 100, "num_samples": 1500, "num_chains": 4, "progress_bar": False}
    sites = ethogram.fit(jax.random.key(2), model, data, "px-da", **lengths).result.sites
    loc, deviation = np.linspace(-5, 5, 101), np.exp(np.linspace(-6, 4, 101))
    theta = np.linspace(-12, 12, 481)
    gaps = np.asarray(data.features)[:, 0, 0] - np.asarray(data.features)[:, 1, 0]
    signs = np.where(data.choice == 0, 1, -1)
    logs = norm.logpdf(loc, 0, 2)[:, None] + t(2).logpdf(deviation) + np.log(deviation)
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    for who in range(6):
        mine = data.subject == who
        chance = np.prod(ndtr(np.outer(theta, (signs * gaps)[mine]) / np.sqrt(2)), axis=1)
        at = loc[:, None, None] + deviation[:, None] * nodes
        logs += np.log(np.interp(at, theta, chance) @ weights)
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    for drawn, truth in (
        (sites["loc"][..., 0], mass.sum(1) @ loc),
        (np.log(sites["deviation"][..., 0]), mass.sum(0) @ np.log(deviation)),
    ):
        error = drawn.std() / np.sqrt(float(effective_sample_size(drawn)))
        assert abs(drawn.mean() - truth) < 4.5 * error


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the draws have not converged")
def test_correlated_fixed_and_moved_coefficients_are_those_of_nuts():
    """Means within four and a half Monte Carlo errors of each other; rows of the summary have names."""
    data = people(8, features=3)
    ages = np.random.default_rng(4).uniform(20, 60, 8)
    model = Probit(
        1.0, correlated=True, loc_kappa=2.0, random=["speed", "price"], subject_features={"age": ages}
    )
    means, errors = [], []
    for name, size in {"px-da": 3000, "nuts": 600}.items():
        lengths = {"num_warmup": 300, "num_samples": size, "num_chains": 2, "progress_bar": False}
        fit = ethogram.fit(jax.random.key(1), model, data, name, **lengths)
        sites, lead = fit.result.sites, (2, size, -1)
        parts = sites["loc"], 10 * sites["slope"], np.log(sites["deviation"]), sites["correlation"]
        drawn = np.concatenate([part.reshape(lead) for part in (*parts, sites["theta"])], axis=-1)
        drawn = drawn[..., drawn.std((0, 1)) > 0]
        means.append(drawn.mean((0, 1)))
        errors.append(drawn.std((0, 1)) / np.sqrt(np.asarray(effective_sample_size(drawn))))
        assert (
            np.ptp(
                sites["theta"][..., 2] - np.einsum("cdp,s->cdsp", sites["slope"][:, :, :, 2], ages)[..., 0],
                axis=-1,
            ).max()
            < 1e-9
        )
    assert (np.abs(means[0] - means[1]) < 4.5 * np.hypot(*errors)).all()
    rows = list(fit.summary().index[:9])
    assert rows[:3] == ["v_loc[speed]", "v_loc[price]", "v_loc[seats]"]
    assert rows[3:] == [
        "v_slope[age, speed]", "v_slope[age, price]", "v_slope[age, seats]", "deviation[speed]",
        "deviation[price]", "correlation[price, speed]",
    ]  # fmt: skip
    posterior = fit.to_arviz().posterior
    assert posterior["correlation"].dims == ("chain", "draw", "pair")
    one = posterior["covariance"].sel(random_parameter="speed", other_parameter="price")
    np.testing.assert_array_equal(one, posterior["covariance"][:, :, 0, 1])


def test_what_px_da_and_laplace_do_not_take_is_named():
    data = people(3)
    skewed = Probit(dist.HalfNormal(1.0), random={"price": "lognormal"})
    with pytest.raises(ValueError, match=r"random\['price'\] is log-normal"):
        ethogram.fit(jax.random.key(0), skewed, data, "px-da")
    correlated = Probit(1.0, correlated=True)
    with pytest.raises(ValueError, match=r'use ethogram.fit.*"px-da"'):
        PXDA(correlated).init(jax.random.key(0), 0, None, (data,), {})
    with pytest.raises(ValueError, match="Laplace's approximation takes independent values"):
        ethogram.fit(jax.random.key(0), correlated, data, "laplace")


@pytest.mark.slow
def test_shrinkage_has_a_panel_per_random_feature():
    """Own estimates are those of each subject's decisions alone, by a search in SciPy."""
    data, lengths = people(3, features=2), {"num_warmup": 50, "num_samples": 50, "progress_bar": False}
    model = Probit(0.7, random=["price"], loc_kappa=2.0)
    fit = ethogram.fit(jax.random.key(0), model, data, "px-da", num_chains=1, **lengths)
    figure = fit.plot("shrinkage")
    assert [axes.get_title() for axes in figure.axes if axes.get_title()] == ["price"]
    fitted = fit.result.sites["theta"][0].mean(0)
    variance = 25 * (fitted**2).mean(0)
    gaps = np.asarray(data.features)[:, 0] - np.asarray(data.features)[:, 1]
    gaps = np.where(data.choice == 0, 1, -1)[:, None] * gaps / np.sqrt(2)
    for who, own in enumerate(own_estimates(fit, fitted)):
        mine = gaps[data.subject == who]
        found = minimize(lambda x, z=mine: -log_ndtr(z @ x).sum() + (x**2 / variance).sum() / 2, np.zeros(2))
        np.testing.assert_allclose(own, found.x, atol=1e-4)
    with pytest.raises(TypeError, match="decisions that have subjects"):
        ethogram.fit(jax.random.key(0), Probit(1.0), data._replace(subject=None)).plot("shrinkage")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the draws have not converged")
def test_log_normal_coefficients_have_their_sign_and_medians():
    """By NUTS, which "auto" takes; the median of the population is that of its means on the log scale."""
    data, lengths = people(5), {"num_warmup": 50, "num_samples": 50, "num_chains": 1, "progress_bar": False}
    model = Logit(dist.HalfNormal(1.0), random={"price": "negative lognormal"}, loc_kappa=2.0)
    fit = ethogram.fit(jax.random.key(0), model, data, **lengths)
    sites = fit.result.sites
    assert fit.method == "nuts" and refusal(model)
    assert (sites["theta"][..., 1] < 0).all() and (np.ptp(sites["theta"][..., 0], axis=2) == 0).all()
    assert (sites["v_loc"][..., 1] < 0).all() and not any("normal" in name for name in sites)
    apart = np.log(sites["theta"][..., 1] / sites["loc"][..., 1, None])
    assert abs(apart.mean() / np.sqrt(sites["kappa"].mean())) < 0.5
