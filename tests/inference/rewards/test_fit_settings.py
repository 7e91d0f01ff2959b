"""Settings of reward fits: priors, refusals, coverage of differences, and searches that go on."""

from __future__ import annotations

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
from ethogram.inference.rewards import gaussian_vi, hyper_parameters, laplace, vi_steps
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.gaussian_vi import BaseDraws
from ethogram.inference.rewards.laplace import Gaussian
from ethogram.inference.rewards.levine import levine_map
from ethogram.inference.rewards.max_entropy import fit_max_entropy
from ethogram.inference.rewards.predictions import (
    difference_coverage,
    policies,
    predict_reward,
)
from ethogram.inference.rewards.search_status import SENTENCES, Status, advice
from ethogram.inference.rewards.vi_steps import convergence_status
from ethogram.models.rewards.gp_irl import GPIRL

FEATURES = np.array([[1.0], [2.0], [3.0]])
DATA = small_mdps.three_state_demonstrations(1, 1)
RAW = jnp.zeros(2, jnp.uint32)


def three_state(**settings):
    return GPIRL(
        small_mdps.three_state(), FEATURES, **({"scale_prior": 5.0, "relevance_prior": 1.0} | settings)
    )


FREE = {"scale_prior": dist.LogNormal(np.log(5.0), 1.0), "relevance_prior": dist.LogNormal(0.0, 1.0)}
FEW = {"hyper": "fixed", "num_draws": 32, "num_evaluations": 64, "progress_bar": False}


def test_any_positive_distribution_may_be_a_prior():
    """Its median is where the search starts, by draws where there are no quantiles; log densities are SciPy's."""
    model = three_state(scale_prior=dist.Gamma(2.0, 0.4), relevance_prior=dist.HalfNormal(1.0))
    gamma, normal = stats.gamma(2.0, scale=1 / 0.4), stats.halfnorm()
    medians = np.log([gamma.median(), normal.median()])
    found = np.concatenate([*hyper_parameters.prior_medians(model).values()])
    np.testing.assert_allclose(found, medians, atol=0.03)
    at = np.array([0.4, -0.2])
    expected = gamma.logpdf(np.exp(0.4)) + normal.logpdf(np.exp(-0.2)) + at.sum()
    found = jax.jit(hyper_parameters.log_prior)(model, at)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_linear_algebra_of_few_rewards_has_one_thread_and_the_setting_is_restored(monkeypatch):
    def threads():
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    within, mode = [], laplace.posterior_mode

    def look(*arguments):
        within.append(threads())
        return mode(*arguments)

    monkeypatch.setattr(laplace, "posterior_mode", look)
    with threadpool_limits(2, user_api="blas"):
        fit_reward(jax.random.key(0), three_state(), DATA, "map", progress_bar=False)
        assert within == [{1}] and threads() == {2}


def test_the_log_ratio_is_that_of_normal_densities():
    """Of two experts, at each draw, within 1e-10 of SciPy's densities."""
    random = np.random.default_rng(5)
    means, roots = random.normal(size=(2, 4)), np.tril(random.normal(size=(2, 4, 4))) + 2 * np.eye(4)
    latent = random.normal(size=(6, 2, 4))
    expected = 0.0
    for mean, root, z in zip(means, roots, np.swapaxes(latent, 0, 1), strict=True):
        w = mean + z @ root.T
        prior, q = stats.multivariate_normal(np.zeros(4)), stats.multivariate_normal(mean, root @ root.T)
        expected += prior.logpdf(w) - q.logpdf(w)
    found = jax.jit(gaussian_vi.log_ratio)(Gaussian(means, roots), BaseDraws(latent, None))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_the_bound_of_a_gaussian_near_the_posterior_is_nearly_the_same_at_every_draw():
    """With the KL divergence in closed form it would vary by sqrt(3 / 2), the spread of half a chi-square."""
    counts = np.full((3, 2), 100_000)
    fit = fit_reward(jax.random.key(0), three_state(), counts, "laplace", progress_bar=False)
    posterior = fit.posterior
    q = Gaussian(np.asarray(posterior.latent_mean[0]), np.asarray(posterior.latent_root[0]))
    draws = gaussian_vi.base_draws(np.random.default_rng(0), posterior.model, 1, 64)
    at_draws = gaussian_vi.elbo(posterior.model, counts[None].astype(float), np.zeros(0), q, draws)
    assert at_draws.reshape(2, -1).mean(0).std() < 0.1


NAN = float("nan")
EXPERTS = DATA._replace(subject=np.arange(2))
PAIRS = [(0, 1), (1, 1), (2, 0)]
TABLE = pandas.DataFrame(PAIRS, columns=["state", "action"])


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"model": "model"}, TypeError, "model is str"),
        ({"key": RAW}, TypeError, "key must be one typed key"),
        ({"method": "adam"}, ValueError, "method must be 'natural_gradient'"),
        ({"hyper": "none"}, ValueError, "hyper must be 'integrated'"),
        ({"num_restarts": -1}, ValueError, "num_restarts must be"),
        ({"num_draws": 3}, ValueError, "give an even number"),
        ({"tol": NAN}, ValueError, "tol must be"),
        ({"start": {"scale": 1.0}}, ValueError, "start must be empty: no hyper-parameter has a prior; it is scale"),
        ({"model": three_state(**FREE), "start": 3.0}, ValueError, "must be a dict of scale, relevance; it is float"),
        ({"method": "map", "hyper": "point"}, ValueError, 'hyper="point" needs'),
        ({"method": "laplace", "hyper": "integrated"}, ValueError, 'hyper="integrated" needs .*, not \'laplace\''),
        ({"method": "laplace", "checkpoint": "/no/file"}, ValueError, "but method 'laplace' takes no steps"),
        ({"method": "map", "checkpoint": "/no/file"}, ValueError, "but method 'map' takes no steps"),
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
        (lambda m: levine_map(jax.random.key(0), "model", DATA), TypeError, "model is str"),
        (lambda m: levine_map(RAW, m, DATA), TypeError, "key must be one typed key"),
        (lambda m: levine_map(jax.random.key(0), m, EXPERTS), ValueError, "needs one expert"),
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
    model = three_state()
    whole = fit_reward(jax.random.key(0), model, DATA, **FEW)
    steps = iter(range(3))

    def interrupted(*arguments):
        if next(steps, None) is None:
            raise KeyboardInterrupt
        return step(*arguments)

    step = gaussian_vi.natural_step
    monkeypatch.setattr(gaussian_vi, "natural_step", interrupted)
    path = tmp_path / "search"
    with pytest.raises(KeyboardInterrupt):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=path, **FEW)
    monkeypatch.setattr(gaussian_vi, "natural_step", step)
    rest = fit_reward(jax.random.key(0), model, DATA, checkpoint=path, **FEW)
    assert rest.steps == whole.steps > 3 and whole.elbo >= whole.laplace_elbo
    np.testing.assert_array_equal(rest.trace, whole.trace)
    np.testing.assert_array_equal(rest.posterior.latent_root, whole.posterior.latent_root)
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


def status_of(trace, scatter=0.0, num_averaged=20):
    """The status after ELBOs with this trace, whose differences scatter over 64 antithetic pairs."""
    noise = scatter * np.tile(np.random.default_rng(0).normal(size=64), 2)
    at_draws = [np.full(128, bound) + number * noise for number, bound in enumerate(trace)]
    return convergence_status(at_draws, 20, num_averaged, 1.0, 0.0, 0.05)


@pytest.mark.parametrize(
    ("trace", "scatter", "status"),
    [
        ([-561.0, -549.0, -548.0, -549.0, -548.0, -549.0, -584.0], 0.1, Status.ELBO_FELL),
        (-100 - 0.02 * np.arange(11), 0.001, Status.ELBO_FELL),
        (-100 + 0.02 * np.arange(11), 0.001, Status.ELBO_RISING),
        (-1720 + 0.02 * np.arange(11), 0.01, Status.ELBO_RISING),
        (np.full(11, -549.0), 3.7, Status.NOISY),
        (np.full(11, np.nan), 0.0, Status.NOT_FINITE),
    ],
)
def test_noise_is_no_convergence(trace, scatter, status):
    """A falling or rising bound, or one whose change is not known well."""
    assert status_of(trace, scatter) == status


def test_a_flat_bound_is_convergence_after_enough_steps():
    assert status_of(-100 + 0.002 * np.arange(11), 0.001) == Status.CONVERGED
    assert status_of(-100 + 0.002 * np.arange(11), 0.001, num_averaged=3) == Status.TOO_FEW_STEPS


@pytest.mark.parametrize("worse", [True, False])
def test_a_step_that_lowers_the_bound_is_halved(worse, monkeypatch):
    """Steps that lead away from the optimum at any size leave it; those that overshoot end at it, by halves."""
    model, random = three_state(), np.random.default_rng(0)
    at = np.array([[0.0 if worse else 3.0, 0.0, 0.0]])
    away = 1000.0 if worse else -24.0
    step = lambda model, counts, eta, q, draws, size: q._replace(mean=at + np.array([away * size, 0, 0]))  # noqa: E731
    monkeypatch.setattr(gaussian_vi, "natural_step", step)
    monkeypatch.setattr(gaussian_vi, "elbo", lambda m, c, eta, q, draws: np.full(64, -np.sum(q.mean**2)))
    fixed = gaussian_vi.base_draws(random, model, 1, 64)
    np.testing.assert_array_equal(fixed.latent[:32], -fixed.latent[32:])
    q = Gaussian(at, np.eye(3)[None])
    settings = {"num_steps": 1, "num_draws": 2, "tol": 0.05}
    found = gaussian_vi.maximize_elbo(jax.random.key(0), model, None, np.zeros(0), q, fixed, **settings)
    assert found.steps == 1
    if worse:
        assert found.status == Status.ELBO_FELL and found.trace == [0.0, 0.0]
    else:  # 3 - 24 / 4 = -3 is as good, a longer step is worse
        np.testing.assert_allclose(found.q.mean[0, 0], -3.0)
        assert found.step_scale == 0.5


@pytest.mark.parametrize(("num_steps", "fix"), [(9, 60), (40, 80)])
def test_the_recommended_number_of_steps_is_one_that_can_do(num_steps, fix):
    assert advice(Status.ELBO_RISING, num_steps, 12, 128) == f"num_steps={fix}"
    assert advice(Status.NOISY, num_steps, 12, 128) == f"num_evaluations=512 and num_steps={fix}"


def test_each_status_has_a_sentence():
    assert set(SENTENCES) == set(Status)
    assert [status for status in Status if not status.sentence] == [Status.CONVERGED]


def test_an_unconverged_search_says_what_to_pass():
    with pytest.warns(
        UserWarning, match=r"after 3 steps: too few steps .*tolerance 0.05, standard.*num_steps=60"
    ):
        fit = fit_reward(jax.random.key(0), three_state(), DATA, num_steps=3, **FEW)
    assert not fit.converged and fit.status == Status.TOO_FEW_STEPS and np.isfinite(fit.search_se)


@pytest.mark.slow
def test_a_converged_fit_is_near_that_of_a_long_search(monkeypatch):
    """Posterior means within .25 sd of the fit after 250 steps."""
    data, settings = (
        small_mdps.three_state_demonstrations(100, 100),
        {"hyper": "fixed", "progress_bar": False},
    )
    fit = fit_reward(jax.random.key(2), three_state(**FREE), data, **settings)
    assert fit.converged
    monkeypatch.setattr(vi_steps, "convergence_status", lambda *_: Status.UNSETTLED)
    with pytest.warns(UserWarning, match="still move"):
        long = fit_reward(jax.random.key(2), three_state(**FREE), data, num_steps=250, **settings)
    sd = np.sqrt((long.posterior.latent_root**2).sum(-1))
    assert (np.abs(fit.posterior.latent_mean - long.posterior.latent_mean) < 0.25 * sd).all()
    assert long.elbo - fit.elbo < 0.1 + 3 * long.elbo_se


@pytest.mark.parametrize(("moved_tol", "steps"), [(None, 37), (0.1, 19), (1.0, 4)])
def test_a_moved_gaussian_that_does_not_settle_ends_at_its_own_tolerance(moved_tol, steps, monkeypatch):
    """A step of size a moves q by 1.805 a^2 nats and gains nothing: 1.805 a remain, of sizes 1, 1/2, 1/3, ..."""
    step = lambda model, counts, eta, q, draws, size: q._replace(mean=q.mean + 1.9 * size)  # noqa: E731
    monkeypatch.setattr(gaussian_vi, "natural_step", step)
    monkeypatch.setattr(gaussian_vi, "elbo", lambda *_: np.zeros(64))
    q, fixed = Gaussian(np.zeros((1, 1)), np.ones((1, 1, 1))), BaseDraws(np.zeros((64, 1, 1)), None)
    settings = {"num_steps": 100, "num_draws": 2, "tol": 0.05, "moved_tol": moved_tol}
    found = gaussian_vi.maximize_elbo(
        jax.random.key(0), three_state(), None, np.zeros(0), q, fixed, **settings
    )
    assert (found.steps, found.status) == (steps, Status.CONVERGED)


def test_every_step_has_draws_of_its_own(monkeypatch):
    model, drawn = three_state(), []

    def step(model, counts, log_hyper, q, draws, size):
        drawn.append(draws.latent)
        return q

    monkeypatch.setattr(gaussian_vi, "natural_step", step)
    monkeypatch.setattr(gaussian_vi, "elbo", lambda *_: np.zeros(64))
    q, fixed = Gaussian(np.zeros((1, 3)), np.eye(3)[None]), BaseDraws(np.zeros((64, 1, 3)), None)
    settings = {"num_steps": 3, "num_draws": 2, "tol": 0.05}
    gaussian_vi.maximize_elbo(jax.random.key(0), model, None, np.zeros(0), q, fixed, **settings)
    assert len(drawn) == 3 and len(np.unique(drawn)) == np.size(drawn)


def test_a_wild_step_is_tried_again_and_hides_no_later_one():
    """A q that is too wide has a low ELBO with a large standard error; what is higher afterwards is kept."""
    q, wild = Gaussian(np.zeros((1, 1)), np.ones((1, 1, 1))), np.array([0.0, 0.0, -3.6, 0.0] * 2)
    state = vi_steps.init(q, np.zeros(8))
    halved = vi_steps.step(state, lambda size: (q, (4 * wild if size == 1 else np.zeros(8))), 0.05)
    assert halved.trace[-1] == 0 and halved.num_averaged == 1
    for at_draws in (wild, np.full(8, -0.5), np.full(8, -0.4)):
        state = vi_steps.step(state, lambda size, at_draws=at_draws: (q, at_draws), 0.05)
    assert state.best_elbo == pytest.approx(-0.4)


@pytest.mark.parametrize(
    ("gain", "shift", "kept"), [(-0.3, 0.1, "first"), (0.1, 0.1, "after"), (0.3, 0.1, None), (0.1, 2.0, None)]
)
def test_a_moved_gaussian_is_kept_where_a_step_gains_and_moves_little(gain, shift, kept):
    """A shift of s standard deviations is a divergence of half s^2: .005 and 2 nats."""
    q = Gaussian(np.zeros((1, 1)), np.ones((1, 1, 1)))
    after = q._replace(mean=np.full((1, 1), shift))
    found = vi_steps.settle(vi_steps.init(q, np.zeros(8)), lambda size: (after, np.full(8, gain)), 0.2)
    if kept is None:
        assert found is None
    else:
        assert found.best is {"first": q, "after": after}[kept] and found.best_elbo == max(gain, 0.0)
        assert (found.status, found.steps) == (Status.CONVERGED, 1)


def test_a_mode_has_converged_where_its_gradient_is_zero(monkeypatch):
    """Whatever the optimiser says: of many demonstrations, its smallest relative step is many nats."""
    model = three_state()
    counts = np.array([[9000, 200], [100, 7000], [3000, 5000]])
    found = fit_reward(jax.random.key(0), model, counts, "laplace", progress_bar=False)
    assert found.converged
    honest = optimize.minimize

    def early(*task, options, **settings):
        found = honest(*task, options=options | {"maxiter": 1}, **settings)
        found.success = True
        return found

    monkeypatch.setattr(optimize, "minimize", early)
    with pytest.warns(UserWarning, match="pass another start or num_restarts"):
        assert not fit_reward(jax.random.key(0), model, counts, "map", progress_bar=False).converged
