"""Settings of reward fits: priors, refusals, coverage of differences, and searches that go on."""

from __future__ import annotations

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas
import pytest
from scipy import stats
from threadpoolctl import threadpool_info, threadpool_limits

from ethogram.domains import toy_mdps
from ethogram.inference.rewards import gaussian as reward_gaussian
from ethogram.inference.rewards import natural_gradient as reward_search
from ethogram.inference.rewards import reward_posterior
from ethogram.inference.rewards.fit_reward import fit_reward, unconverged_message
from ethogram.inference.rewards.max_entropy import fit_max_entropy
from ethogram.inference.rewards.predictions import (
    difference_coverage,
    policies,
    predict_reward,
)
from ethogram.inference.rewards.reward_guide import RewardGuide
from ethogram.inference.rewards.stopping_rule import open_question
from ethogram.models.rewards.gp_irl import GPIRL

FEATURES = np.array([[1.0], [2.0], [3.0]])
DATA = toy_mdps.three_state_demonstrations(1, 1)
RAW = jnp.zeros(2, jnp.uint32)


def three_state(**settings):
    return GPIRL(
        toy_mdps.three_state(), FEATURES, **({"scale_prior": 5.0, "relevance_prior": 1.0} | settings)
    )


FREE = {"scale_prior": dist.LogNormal(np.log(5.0), 1.0), "relevance_prior": dist.LogNormal(0.0, 1.0)}
FEW = {"hyper": "variational", "num_draws": 32, "num_evaluations": 64, "progress_bar": False}


def test_any_positive_distribution_may_be_a_prior():
    """Its median is where the search starts, by draws where there are no quantiles; log densities are SciPy's."""
    model = three_state(scale_prior=dist.Gamma(2.0, 0.4), relevance_prior=dist.HalfNormal(1.0))
    search = reward_search.RewardSearch(model, np.zeros((1, 3, 2)), "variational", 2, 2, 0)
    gamma, normal = stats.gamma(2.0, scale=1 / 0.4), stats.halfnorm()
    medians = np.log([gamma.median(), normal.median()])
    np.testing.assert_allclose(search.first(jax.random.key(0), None), medians, atol=0.03)
    at = np.array([0.4, -0.2])
    expected = gamma.logpdf(np.exp(0.4)) + normal.logpdf(np.exp(-0.2)) + at.sum()
    np.testing.assert_allclose(reward_gaussian.log_hyper_prior(model, jnp.asarray(at)), expected, rtol=1e-9)


@pytest.mark.slow
def test_a_fit_takes_any_positive_prior():
    model = three_state(scale_prior=dist.Gamma(2.0, 0.4), relevance_prior=dist.HalfNormal(1.0))
    fit = fit_reward(jax.random.key(0), model, DATA, progress_bar=False)
    assert fit.converged and fit.elbo < 0


def test_linear_algebra_of_few_rewards_has_one_thread_and_the_setting_is_restored(monkeypatch):
    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    within, mode = [], reward_search.posterior_mode

    def look(*arguments):
        within.append(threads())
        return mode(*arguments)

    monkeypatch.setattr(reward_search, "posterior_mode", look)
    with threadpool_limits(2, user_api="blas"):
        fit_reward(jax.random.key(0), three_state(), DATA, "map", progress_bar=False)
        assert within == [{1}] and threads() == {2}


def test_divergence_is_that_of_gaussians():
    """Of two experts: half of tr C + m'm - k - ln det C, summed."""
    random = np.random.default_rng(5)
    roots = np.tril(random.normal(size=(2, 4, 4))) + 2 * np.eye(4)
    means = random.normal(size=(2, 4))
    q = reward_gaussian.RewardGaussian(jnp.asarray(means), jnp.asarray(roots), jnp.zeros(0), jnp.zeros(0))
    covariances = roots @ np.swapaxes(roots, 1, 2)
    expected = np.trace(covariances, axis1=1, axis2=2).sum() + (means**2).sum() - 8
    expected = 0.5 * (expected - np.linalg.slogdet(covariances)[1].sum())
    np.testing.assert_allclose(reward_gaussian.divergence(q), expected, rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: fit_reward(jax.random.key(0), "model", DATA), TypeError, "model is str"),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, "adam"),
            ValueError,
            "method must be 'natural_gradient'",
        ),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, hyper="none"),
            ValueError,
            "hyper must be 'nested'",
        ),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, prior="levine"), ValueError, "is a point estimate"),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, num_restarts=-1),
            ValueError,
            "num_restarts must be",
        ),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, num_draws=3), ValueError, "give an even number"),
        (lambda m: fit_reward(jax.random.key(0), m, np.zeros((3, 2), int)), ValueError, "is all 0"),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, tol=float("nan")), ValueError, "tol must be"),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, "map", hyper="point"),
            ValueError,
            'hyper="point" needs',
        ),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, start={"scale": 1.0}),
            ValueError,
            "start must be a dict of",
        ),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, start=3.0), ValueError, "start must be a dict of"),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, "map", prior="levine", checkpoint="/no/file"),
            ValueError,
            "neither start nor checkpoint",
        ),
        (
            lambda m: fit_reward(jax.random.key(0), m, [(0, 1), (1, 1), (2, 0)]),
            TypeError,
            "of pairs or of counts",
        ),
        (
            lambda m: fit_reward(
                jax.random.key(0), m, pandas.DataFrame([(0, 1), (1, 1), (2, 0)], columns=["state", "action"])
            ),
            TypeError,
            "is a table .*from_table",
        ),
        (lambda m: fit_reward(jax.random.key(0), m, SimpleNamespace()), TypeError, "from_episodes"),
        (lambda m: fit_reward(RAW, m, DATA), TypeError, "key must be one typed key"),
        (lambda m: m.simulate(RAW, num_trajectories=1, length=1), TypeError, "key must be one typed key"),
        (lambda m: predict_reward(RAW, m, {}, FEATURES), TypeError, "key must be one typed key"),
        (lambda m: policies(m.mdp, np.zeros(3)), ValueError, "rewards has shape"),
        (lambda m: RewardGuide("model"), TypeError, "model is str"),
        (lambda m: RewardGuide(m, rank=7), ValueError, "rank must be"),
        (lambda m: RewardGuide(m, hyper="none"), ValueError, "hyper must be 'variational'"),
        (lambda m: RewardGuide(m, start={"scale": 2.0}), ValueError, "start has 'scale'"),
        (lambda m: fit_max_entropy(m.mdp, DATA, FEATURES, penalty=-1.0), ValueError, "penalty must be"),
        (lambda m: fit_max_entropy(m.mdp, DATA, FEATURES[:2]), ValueError, "features has shape"),
        (
            lambda m: fit_max_entropy(m.mdp, DATA, step_size=0.1),
            ValueError,
            "step_size is that of gradient ascent",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call(three_state())


def test_coverage_of_differences_counts_central_intervals():
    """By quantiles of every difference; a truth far out is held by none, one at the median by all."""
    random = np.random.default_rng(0)
    draws, truth = random.normal(size=(4001, 5)), 0.8 * random.normal(size=5)
    for level in (0.3, 0.9):
        inside = []
        for i, j in zip(*np.triu_indices(5, 1), strict=True):
            low, high = np.quantile(draws[:, i] - draws[:, j], [(1 - level) / 2, (1 + level) / 2])
            inside.append(low <= truth[i] - truth[j] <= high)
        assert difference_coverage(draws, truth, level) == np.mean(inside)
    assert difference_coverage(draws, 100.0 * np.arange(5)) == 0
    assert difference_coverage(draws, np.median(draws, 0), 0.5) == 1
    with pytest.raises(ValueError, match="at least two each"):
        difference_coverage(draws, truth[:4])


@pytest.mark.filterwarnings("ignore:the search has not converged after 9 steps:UserWarning")
def test_an_interrupted_search_goes_on_and_ends_where_it_would_have(tmp_path, monkeypatch):
    model, settings = three_state(**FREE), FEW | {"num_steps": 9, "tol": 0.0}
    whole = fit_reward(jax.random.key(0), model, DATA, **settings)
    steps = iter(range(4))

    def interrupted(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return step(*arguments)

    step = reward_search.natural_step
    monkeypatch.setattr(reward_search, "natural_step", interrupted)
    path = tmp_path / "search"
    with pytest.raises(KeyboardInterrupt):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=path, **settings)
    monkeypatch.setattr(reward_search, "natural_step", step)
    rest = fit_reward(jax.random.key(0), model, DATA, checkpoint=path, **settings)
    assert rest.steps == whole.steps == 9
    np.testing.assert_array_equal(rest.trace, whole.trace)
    np.testing.assert_array_equal(rest.posterior.root, whole.posterior.root)
    assert (rest.elbo, rest.laplace_elbo) == (whole.elbo, whole.laplace_elbo)
    with pytest.raises(ValueError, match="of another model, data, key"):
        fit_reward(jax.random.key(1), model, DATA, checkpoint=path, **settings)
    rest.posterior.save(tmp_path / "posterior")
    with pytest.raises(ValueError, match="not a checkpoint of this kind of fit"):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=tmp_path / "posterior", **settings)
    with pytest.raises(ValueError, match="no folder"):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=tmp_path / "none" / "search")


def question_of(trace, error=0.01, factor=1.0):
    return open_question(list(trace), len(trace) - 1, factor, error, 0.05)


@pytest.mark.parametrize(
    ("latest", "error", "reason"),
    [
        ([-548.3, -549.1, -547.9, -548.8, -550.2, -549.4, -548.1, -549.0, -548.0, -584.0], 4.6, "fallen"),
        (-100 - 0.05 * np.arange(10), 0.01, "fallen"),
        (-100 + 0.05 * np.arange(10), 0.01, "still increases"),
        (-1720 + 0.05 * np.arange(10), 1.5, "still increases"),
        (-100 + 0.2 * (-1.0) ** np.arange(10), 0.01, "jumps|gain"),
        (np.full(10, -100.0), 1.5, "standard error"),
        (np.full(10, -549.0), 4.6, "standard error .* 4.6 nats, above 1"),
        (np.full(10, np.nan), 0.01, "not finite"),
    ],
)
def test_noise_is_no_convergence(latest, error, reason):
    """A falling, rising or jumping bound, or one that is not known well, after twenty steps."""
    trace = [*np.full(11, min(-100.0, np.nanmin([-100.0, *latest]))), *latest]
    assert re.search(reason, question_of(trace, error))


def test_a_flat_bound_is_convergence():
    """Scatter within the tolerance, after a rise."""
    random = np.random.default_rng(0)
    trace = [*np.linspace(-130, -100, 11), *(-100 + 0.01 * random.normal(size=10))]
    assert question_of(trace) == ""
    assert question_of(trace[:12])


def test_small_steps_do_not_pass_for_a_maximum():
    """A slow rise of small steps is a fast one of full steps: as much remains as these would gain."""
    slow = [*np.linspace(-130, -100, 11), *(-100 + 0.002 * np.arange(10))]
    assert question_of(slow) == ""
    assert "still increases" in question_of(slow, factor=0.05)


def test_more_draws_settle_a_noisy_bound_or_the_fit_says_so(monkeypatch):
    """A standard error of 2 nats falls below 1 with more draws, one of 40 does not."""
    model = three_state()
    search = reward_search.RewardSearch(model, jnp.asarray(model.counts(DATA))[None], "fixed", 2, 64, 0)
    q = reward_gaussian.RewardGaussian(jnp.zeros((1, 3)), jnp.eye(3)[None], jnp.zeros(0), jnp.zeros(0))
    random = np.random.default_rng(0)
    for sd, settled in ((16.0, True), (320.0, False)):
        monkeypatch.setattr(
            reward_search.RewardSearch, "bounds", lambda self, q, normals, sd=sd: sd * random.normal(size=64)
        )
        error = sd / np.sqrt(64)
        state = reward_search.SearchState(
            None, q, None, 0.0, True, [0.0], [], jax.random.key(0), None, 20, 0, 1.0, error, ""
        )
        assert (search._precise(state).error <= 1) == settled


@pytest.mark.parametrize(("num_steps", "cure"), [(9, 60), (40, 80)])
def test_the_recommended_number_of_steps_is_one_that_can_do(num_steps, cure):
    fit = reward_posterior.RewardFit(
        SimpleNamespace(method="natural_gradient"), 0.0, 0.1, 0.0, np.zeros(9), 0.0, False, num_steps, 0.1,
        "the ELBO still increases", 0.1,
    )  # fmt: skip
    assert unconverged_message(fit, num_steps, 12, 128, 0.05).endswith(f"Pass num_steps={cure}")
    noisy = fit._replace(reason="the standard error of the ELBO is 40 nats, above 1", search_se=40.0)
    assert unconverged_message(noisy, num_steps, 12, 128, 0.05).endswith("Pass num_evaluations=15488")


def test_an_unconverged_search_says_what_to_pass():
    with pytest.warns(UserWarning, match=r"after 9 steps: fewer .*tolerance 0.05, standard.*num_steps=60"):
        fit = fit_reward(jax.random.key(0), three_state(**FREE), DATA, num_steps=9, **FEW)
    assert not fit.converged and fit.reason and np.isfinite(fit.search_se)


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 100])
def test_a_converged_fit_is_near_that_of_a_long_search(count, monkeypatch):
    """Posterior means within .25 sd of the fit after 250 steps, of few and of many demonstrations."""
    data, settings = (
        toy_mdps.three_state_demonstrations(count, count),
        {"hyper": "variational", "progress_bar": False},
    )
    fit = fit_reward(jax.random.key(2), three_state(**FREE), data, **settings)
    assert fit.converged
    monkeypatch.setattr(reward_search, "open_question", lambda *_: "go on")
    with pytest.warns(UserWarning, match="go on"):
        long = fit_reward(jax.random.key(2), three_state(**FREE), data, num_steps=250, **settings)
    sd = np.sqrt((long.posterior.root**2).sum(-1))
    assert (np.abs(fit.posterior.mean - long.posterior.mean) < 0.25 * sd).all()
    assert long.elbo - fit.elbo < 0.1 + 3 * long.elbo_se
