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
from scipy import optimize, stats
from threadpoolctl import threadpool_info, threadpool_limits

from ethogram.domains import small_mdps
from ethogram.inference.rewards import gaussian as reward_gaussian
from ethogram.inference.rewards import natural_gradient as reward_search
from ethogram.inference.rewards import natural_steps, reward_posterior
from ethogram.inference.rewards.fit_reward import fit_reward, unconverged_message
from ethogram.inference.rewards.max_entropy import fit_max_entropy
from ethogram.inference.rewards.predictions import (
    difference_coverage,
    policies,
    predict_reward,
)
from ethogram.inference.rewards.reward_guide import RewardGuide
from ethogram.models.rewards.gp_irl import GPIRL

FEATURES = np.array([[1.0], [2.0], [3.0]])
DATA = small_mdps.three_state_demonstrations(1, 1)
RAW = jnp.zeros(2, jnp.uint32)


def three_state(**settings):
    return GPIRL(
        small_mdps.three_state(), FEATURES, **({"scale_prior": 5.0, "relevance_prior": 1.0} | settings)
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
    found = jax.jit(reward_gaussian.log_hyper_prior)(model, at)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


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
    q = reward_gaussian.RewardGaussian(means, roots, np.zeros(0), np.zeros(0))
    covariances = roots @ np.swapaxes(roots, 1, 2)
    expected = np.trace(covariances, axis1=1, axis2=2).sum() + (means**2).sum() - 8
    expected = 0.5 * (expected - np.linalg.slogdet(covariances)[1].sum())
    np.testing.assert_allclose(jax.jit(reward_gaussian.divergence)(q), expected, rtol=1e-10)


NAN = float("nan")
PAIRS = [(0, 1), (1, 1), (2, 0)]
TABLE = pandas.DataFrame(PAIRS, columns=["state", "action"])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model": "model"}, TypeError, "model is str"),
        ({"key": RAW}, TypeError, "key must be one typed key"),
        ({"method": "adam"}, ValueError, "method must be 'natural_gradient'"),
        ({"hyper": "none"}, ValueError, "hyper must be 'nested'"),
        ({"prior": "levine"}, ValueError, "is a point estimate"),
        ({"num_restarts": -1}, ValueError, "num_restarts must be"),
        ({"num_draws": 3}, ValueError, "give an even number"),
        ({"tol": NAN}, ValueError, "tol must be"),
        ({"start": {"scale": 1.0}}, ValueError, "start must be a dict of"),
        ({"start": 3.0}, ValueError, "start must be a dict of"),
        ({"method": "map", "hyper": "point"}, ValueError, 'hyper="point" needs'),
        ({"method": "map", "hyper": "variational"}, ValueError, 'hyper="variational" needs .*, not \'map\''),
        ({"method": "laplace", "hyper": "variational"}, ValueError, 'hyper="variational" needs .*, not \'laplace\''),
        ({"method": "laplace", "hyper": "nested"}, ValueError, 'hyper="nested" needs method="natural_gradient", not'),
        ({"method": "laplace", "checkpoint": "/no/file"}, ValueError, "but method 'laplace' takes no steps"),
        ({"method": "map", "checkpoint": "/no/file"}, ValueError, "but method 'map' takes no steps"),
        ({"method": "map", "prior": "levine", "checkpoint": "/no/file"}, ValueError, "neither start nor checkpoint"),
        ({"demonstrations": np.zeros((3, 2), int)}, ValueError, "is all 0"),
        ({"demonstrations": PAIRS}, TypeError, "of pairs or of counts"),
        ({"demonstrations": TABLE}, TypeError, "is a table .*from_table"),
        ({"demonstrations": SimpleNamespace()}, TypeError, "from_episodes"),
    ],
)  # fmt: skip
def test_settings_that_do_not_fit_are_refused_by_name(settings, error, message):
    given = {"key": jax.random.key(0), "model": three_state(), "demonstrations": DATA, **settings}
    with pytest.raises(error, match=message):
        fit_reward(given.pop("key"), given.pop("model"), given.pop("demonstrations"), **given)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: m.simulate(RAW, num_trajectories=1, length=1), TypeError, "key must be one typed key"),
        (lambda m: predict_reward(RAW, m, {}, FEATURES), TypeError, "key must be one typed key"),
        (lambda m: policies(m.mdp, np.zeros(3)), ValueError, "rewards has shape"),
        (lambda m: RewardGuide("model"), TypeError, "model is str"),
        (lambda m: RewardGuide(m, rank=7), ValueError, "rank must be"),
        (lambda m: RewardGuide(m, hyper="none"), ValueError, "hyper must be 'variational'"),
        (lambda m: RewardGuide(m, start={"scale": 2.0}), ValueError, "start has 'scale'"),
        (lambda m: fit_max_entropy(m.mdp, DATA, FEATURES, penalty=-1.0), ValueError, "penalty must be"),
        (lambda m: fit_max_entropy(m.mdp, DATA, FEATURES[:2]), ValueError, "features has shape"),
    ],
)  # fmt: skip
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


def test_an_interrupted_search_goes_on_and_ends_where_it_would_have(tmp_path, monkeypatch):
    """And hyper-parameters are learned too: with priors of both the evidence is -1.3445577."""
    model = three_state(**FREE)
    whole = fit_reward(jax.random.key(0), model, DATA, **FEW)
    steps = iter(range(4))

    def interrupted(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return step(*arguments)

    step = natural_steps.natural_step
    monkeypatch.setattr(natural_steps, "natural_step", interrupted)
    path = tmp_path / "search"
    with pytest.raises(KeyboardInterrupt):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=path, **FEW)
    monkeypatch.setattr(natural_steps, "natural_step", step)
    rest = fit_reward(jax.random.key(0), model, DATA, checkpoint=path, **FEW)
    assert rest.steps == whole.steps > 4
    assert -1.3445577 - 0.06 < whole.elbo < -1.3445577 + 4 * whole.elbo_se
    assert whole.elbo >= whole.laplace_elbo
    assert (np.abs(np.log(whole.posterior.log_hyper_sd)) < 0.5).all()  # near their priors, of deviation one
    np.testing.assert_array_equal(rest.trace, whole.trace)
    np.testing.assert_array_equal(rest.posterior.root, whole.posterior.root)
    assert (rest.elbo, rest.laplace_elbo) == (whole.elbo, whole.laplace_elbo)
    with pytest.raises(ValueError, match="of another model, data, key"):
        fit_reward(jax.random.key(1), model, DATA, checkpoint=path, **FEW)
    with pytest.raises(ValueError, match=f"checkpoint is of {whole.steps} steps, more than num_steps=2"):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=path, num_steps=2, **FEW)
    rest.posterior.save(tmp_path / "posterior")
    with pytest.raises(ValueError, match="not a checkpoint of this kind of fit"):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=tmp_path / "posterior", **FEW)
    with pytest.raises(ValueError, match="no folder"):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=tmp_path / "none" / "search")


def question_of(trace, scatter=0.0, decay=20):
    """What is asked of ELBOs with this trace, whose differences scatter over 64 antithetic pairs."""
    noise = scatter * np.tile(np.random.default_rng(0).normal(size=64), 2)
    at_draws = [np.full(128, bound) + number * noise for number, bound in enumerate(trace)]
    state = natural_steps.Climb(
        None, None, trace[-1], list(trace), at_draws, [], None, 20, decay, 1.0, 0.0, ""
    )
    return natural_steps._open_question(state, 6, 0.05)


@pytest.mark.parametrize(
    ("trace", "scatter", "reason"),
    [
        ([-561.0, -549.0, -548.0, -549.0, -548.0, -549.0, -584.0], 0.1, "has fallen, by 23 nats"),
        (-100 - 0.02 * np.arange(11), 0.001, "has fallen"),
        (-100 + 0.02 * np.arange(11), 0.001, "still increases, by 0.2 nats"),
        (-1720 + 0.02 * np.arange(11), 0.01, "still increases"),
        (np.full(11, -549.0), 3.7, "standard error of the gain over the latest 10 steps is"),
        (np.full(11, np.nan), 0.0, "has fallen|increases|gain"),
    ],
)
def test_noise_is_no_convergence(trace, scatter, reason):
    """A falling or rising bound, or one whose change is not known well."""
    assert re.search(reason, question_of(trace, scatter))


def test_a_flat_bound_is_convergence_after_enough_steps():
    assert question_of(-100 + 0.002 * np.arange(11), 0.001) == ""
    assert (
        question_of(-100 + 0.002 * np.arange(11), 0.001, decay=11) == "the steps have hardly begun to decay"
    )


@pytest.mark.parametrize("worse", [True, False])
def test_a_step_that_lowers_the_bound_is_halved(worse, monkeypatch):
    """Steps that lead away from the optimum at any size leave it; those that overshoot end at it, by halves."""
    model = three_state()
    search = reward_search.RewardSearch(model, model.counts(DATA)[None], "fixed", 2, 64, 0)
    at = np.array([[0.0 if worse else 3.0, 0.0, 0.0]])
    q = reward_gaussian.RewardGaussian(at, np.eye(3)[None], np.zeros(0), np.zeros(0))
    bound = lambda self, q, normals: np.full(64, -np.sum(q.mean**2))  # noqa: E731
    monkeypatch.setattr(reward_search.RewardSearch, "bounds", bound)
    away = 1000.0 if worse else -24.0
    step = lambda model, q, counts, normals, size, point: q._replace(mean=at + np.array([away * size, 0, 0]))  # noqa: E731
    monkeypatch.setattr(natural_steps, "natural_step", step)
    fixed = search.normals(jax.random.key(1), 64)
    np.testing.assert_array_equal(
        *np.split(np.asarray(fixed.white) * np.repeat([1, -1], 32)[:, None, None], 2)
    )
    first = natural_steps.begin_climb(search, q, fixed, jax.random.key(0))
    found = natural_steps.climb(search, first, fixed, 1, 0.05)
    assert found.step == 1
    if worse:
        assert found.reason == "the ELBO falls at steps of any size" and found.trace == [0.0, 0.0]
    else:  # 3 - 24 / 4 = -3 is as good, a longer step is worse
        np.testing.assert_allclose(found.q.mean[0, 0], -3.0)
        assert found.factor == 0.5


@pytest.mark.parametrize(("num_steps", "fix"), [(9, 60), (40, 80)])
def test_the_recommended_number_of_steps_is_one_that_can_do(num_steps, fix):
    fit = reward_posterior.RewardFit(
        SimpleNamespace(method="natural_gradient"), 0.0, 0.1, 0.0, np.zeros(9), 0.0, False, num_steps, 0.1,
        "the ELBO still increases", 0.1,
    )  # fmt: skip
    assert unconverged_message(fit, num_steps, 12, 128, 0.05).endswith(f"Pass num_steps={fix}")
    noisy = fit._replace(reason="the standard error of the gain over the latest 9 steps is 4 nats")
    fixes = f"Pass num_evaluations=512 and num_steps={fix}"
    assert unconverged_message(noisy, num_steps, 12, 128, 0.05).endswith(fixes)


def test_an_unconverged_search_says_what_to_pass():
    with pytest.warns(
        UserWarning, match=r"after 9 steps: fewer than 12 .*tolerance 0.05, standard.*num_steps=60"
    ):
        fit = fit_reward(jax.random.key(0), three_state(**FREE), DATA, num_steps=9, **FEW)
    assert not fit.converged and fit.reason and np.isfinite(fit.search_se)


@pytest.mark.slow
def test_a_converged_fit_is_near_that_of_a_long_search(monkeypatch):
    """Posterior means within .25 sd of the fit after 250 steps."""
    data, settings = (
        small_mdps.three_state_demonstrations(100, 100),
        {"hyper": "variational", "progress_bar": False},
    )
    fit = fit_reward(jax.random.key(2), three_state(**FREE), data, **settings)
    assert fit.converged
    monkeypatch.setattr(natural_steps, "_open_question", lambda *_: "go on")
    with pytest.warns(UserWarning, match="go on"):
        long = fit_reward(jax.random.key(2), three_state(**FREE), data, num_steps=250, **settings)
    sd = np.sqrt((long.posterior.root**2).sum(-1))
    assert (np.abs(fit.posterior.mean - long.posterior.mean) < 0.25 * sd).all()
    assert long.elbo - fit.elbo < 0.1 + 3 * long.elbo_se


def test_every_step_has_draws_of_its_own(monkeypatch):
    model, drawn = three_state(), []
    search = reward_search.RewardSearch(model, jnp.asarray(model.counts(DATA))[None], "fixed", 2, 64, 0)
    q = reward_gaussian.RewardGaussian(jnp.zeros((1, 3)), jnp.eye(3)[None], jnp.zeros(0), jnp.zeros(0))

    def step(model, q, counts, normals, size, point):
        drawn.append(np.asarray(normals.white))
        return q

    monkeypatch.setattr(natural_steps, "natural_step", step)
    monkeypatch.setattr(reward_search.RewardSearch, "bounds", lambda self, q, normals: jnp.zeros(64))
    fixed = search.normals(jax.random.key(1), 64)
    first = natural_steps.begin_climb(search, q, fixed, jax.random.key(0))
    natural_steps.climb(search, first, fixed, 3, 0.05)
    assert len(drawn) == 3 and len(np.unique(drawn)) == np.size(drawn)


def test_a_mode_has_converged_where_its_gradient_is_zero(monkeypatch):
    """Whatever the optimiser says: of many demonstrations, its smallest relative step is many nats."""
    model = three_state()
    counts = np.array([[9000, 200], [100, 7000], [3000, 5000]])
    found = fit_reward(jax.random.key(0), model, counts, "laplace", progress_bar=False)
    assert found.converged
    honest = optimize.minimize

    def early(*task, options, **settings):
        found = honest(*task, options=options | {"maxiter": 3}, **settings)
        found.success = True
        return found

    monkeypatch.setattr(optimize, "minimize", early)
    with pytest.warns(UserWarning, match="pass another start or num_restarts"):
        assert not fit_reward(jax.random.key(0), model, counts, "map", progress_bar=False).converged
