"""Summaries of choice models against their definitions, and a mode against scipy."""

from __future__ import annotations

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC
from scipy.optimize import minimize
from scipy.stats import norm

from ethogram.inference.choices.effects import choice_shares
from ethogram.inference.choices.summary import find_choice_mode, summarize_choices
from ethogram.models.choices.choice_distribution import ChoiceDistribution
from ethogram.models.choices.covariance_noise import independent_covariance
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import NormalNoise
from ethogram.models.data.trajectories import Metadata


def two_options(count=60, seed=0, **parts):
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, 2, 2))
    gap = (features[:, 0] - features[:, 1]) @ (0.9, -0.5)
    choice = (gap + np.sqrt(2) * random.normal(size=count) < 0).astype(int)
    names = Metadata(feature_names=["hours", "price"])
    return Decisions(features, np.ones((count, 2), bool), choice, metadata=names)._replace(**parts)


def log_likelihood(theta, data):
    """Two options have a closed form."""
    gap = (data.features[:, 0] - data.features[:, 1]) @ theta / np.sqrt(2)
    each = norm.logcdf(np.where(data.choice == 0, gap, -gap))
    return (
        each[data.choice >= 0]
        @ (np.ones(len(each)) if data.weight is None else data.weight)[data.choice >= 0]
    )


@pytest.mark.parametrize("kappa", [float("inf"), 2.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mode_is_scipys(kappa, weighted):
    data = two_options(weight=np.arange(60) % 4 if weighted else None)

    def loss(theta):
        return -log_likelihood(theta, data) + theta @ theta / (2 * kappa)

    best = minimize(loss, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12})
    found = find_choice_mode(NoisyMDP(kappa, "features"), data)
    np.testing.assert_allclose(found.theta, best.x, atol=1e-6)
    assert found.log_likelihood == pytest.approx(log_likelihood(best.x, data), abs=1e-8)
    step = 1e-4
    curvature = [
        [
            (
                loss(best.x + step * (a + b)) - loss(best.x + step * (a - b))
                - loss(best.x - step * (a - b)) + loss(best.x - step * (a + b))
            ) / (4 * step**2)
            for a in np.eye(2)
        ]
        for b in np.eye(2)
    ]  # fmt: skip
    np.testing.assert_allclose(found.deviation, np.sqrt(np.diag(np.linalg.inv(curvature))), rtol=1e-4)


def test_a_summary_says_what_it_is_defined_to_say():
    data, model = two_options(), NoisyMDP(9.0, "features")
    draws = np.random.default_rng(1).normal((0.8, -0.4), 0.2, size=(4000, 2))
    summarised = summarize_choices(model, {"theta": draws}, data, probability=0.8)
    mode = find_choice_mode(NoisyMDP(float("inf"), "features"), data)
    assert summarised.log_likelihood == mode.log_likelihood
    assert summarised.null_log_likelihood == pytest.approx(-60 * np.log(2))
    assert summarised.aic == pytest.approx(4 - 2 * mode.log_likelihood)
    assert summarised.mcfadden_r2 == pytest.approx(1 - mode.log_likelihood / summarised.null_log_likelihood)
    assert summarised.names == ["v[hours]", "v[price]"]
    np.testing.assert_allclose(summarised.mean, draws.mean(0))
    assert ((summarised.lower < draws) & (draws < summarised.upper)).mean() == pytest.approx(0.8, abs=0.01)
    assert summarised.separated is None
    assert "McFadden's R2" in str(summarised)
    assert "v[price]" in str(summarised)


def with_constants(data):
    """The same two options, whose difference has a column of one."""
    constant = np.broadcast_to(np.array([[0.5], [-0.5]]), (60, 2, 1))
    return np.concatenate([data.features, constant], axis=-1)


@pytest.mark.parametrize("kappa", [0.1, float("inf"), dist.HalfNormal(0.3)], ids=["narrow", "flat", "prior"])
@pytest.mark.parametrize("rewards", [False, True, 0.1])
def test_the_likelihood_is_at_its_maximum_whatever_the_prior(kappa, rewards):
    if rewards == 0.1 and not isinstance(kappa, dist.Distribution) and np.isinf(kappa):
        rewards = float("inf")
    data = two_options()
    model = NoisyMDP(kappa, "features", action_rewards=rewards)
    size = 2 if rewards is False else 3
    full = data if rewards is False else data._replace(features=with_constants(data))
    best = minimize(lambda theta: -log_likelihood(theta, full), np.zeros(size), method="BFGS")
    summarised = summarize_choices(model, {"theta": np.zeros((100, size))}, data)
    assert summarised.evaluated_at == "maximum" and summarised.separated is None
    assert summarised.log_likelihood == pytest.approx(-best.fun, abs=1e-6)
    assert summarised.aic == pytest.approx(2 * size + 2 * best.fun, abs=1e-5)
    assert summarised.mcfadden_r2 == pytest.approx(1 - best.fun / (60 * np.log(2)), abs=1e-6)
    assert "log likelihood at its maximum" in str(summarised)


def test_subjects_are_summarised_each_at_the_mean():
    who = np.arange(60) % 3
    data, model = two_options(subject=who), NoisyMDP(9.0, "features")
    draws = np.random.default_rng(1).normal((0.8, -0.4), 0.2, size=(500, 3, 2))
    summarised = summarize_choices(model, {"theta": draws}, data)
    assert summarised.names[:3] == ["v[0, hours]", "v[0, price]", "v[1, hours]"]
    each = [log_likelihood(draws.mean(0)[i], data.take(who == i)) for i in range(3)]
    assert summarised.log_likelihood == pytest.approx(sum(each), rel=1e-6)
    assert summarised.evaluated_at == "posterior mean" and "log likelihood at the posterior mean" in str(
        summarised
    )
    more = summarize_choices(model, {"theta": np.concatenate([draws, draws[:, :1]], axis=1)}, data)
    assert more.names[-1] == "v[3, price]" and len(more.names) == len(more.mean) == 8


def test_separated_choices_are_told():
    data = Decisions.from_list([[[1.0], [0.0]]] * 3, [0, 0, 0])
    summarised = summarize_choices(NoisyMDP(4.0, "features"), {"theta": np.ones((100, 1))}, data)
    assert "the choices are separated" in summarised.separated
    assert "separated" in str(summarised)
    assert summarised.evaluated_at == "posterior mode" and "log likelihood at the posterior mode" in str(
        summarised
    )
    assert summarised.log_likelihood == find_choice_mode(NoisyMDP(4.0, "features"), data).log_likelihood
    wide = NoisyMDP(dist.HalfNormal(2.0), "features")
    summarised = summarize_choices(
        wide,
        {"theta": 1 + np.random.default_rng(0).permutation(np.repeat([[-0.5], [0.5]], 200, axis=0))},
        data,
    )
    assert summarised.evaluated_at == "posterior mean"
    assert summarised.log_likelihood == pytest.approx(3 * norm.logcdf(1 / np.sqrt(2)), abs=1e-9)


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"v": np.zeros((3, 2))}, "draws have no theta"),
        (
            {"theta": np.zeros((50, 2, 2))},
            r"theta of shape \(50, 2, 2\): pass \(draw, 2\), as in mcmc\.get_samples\(\)",
        ),
        ({"theta": np.zeros((1, 2))}, "one draw of theta: pass at least two"),
        ({"theta": np.full((3, 2), np.inf)}, "not finite"),
    ],
)
def test_samples_that_are_no_draws_are_named(samples, message):
    with pytest.raises(ValueError, match=message):
        summarize_choices(NoisyMDP(4.0, "features"), samples, two_options())


def test_what_has_no_mode_is_refused():
    with pytest.raises(ValueError, match="drop subject"):
        find_choice_mode(NoisyMDP(4.0, "features"), two_options(subject=np.zeros(60, int)))
    with pytest.raises(ValueError, match="probability is 1"):
        summarize_choices(NoisyMDP(), {}, two_options(), probability=1)
    with jax.enable_x64(True), pytest.raises(ValueError, match="kappa is infinite"):
        find_choice_mode(
            NoisyMDP(float("inf"), "features"), Decisions.from_list([[[1.0], [0.0]]] * 3, [0, 0, 0])
        )


@pytest.mark.filterwarnings("ignore:the draws have not converged")
def test_a_simulated_likelihood_is_beside_that_with_twice_the_points():
    """Independent errors of five alternatives, whose likelihood the normal noise has by quadrature."""
    random = np.random.default_rng(5)
    names = Metadata(action_names=["bus", "car", "foot", "plane", "train"])
    data = Decisions(
        random.normal(size=(20, 5, 1)), np.ones((20, 5), bool), random.integers(5, size=20), metadata=names
    )
    draws = {
        "theta": np.array([[0.4], [0.6]]),
        "noise_covariance": np.stack([independent_covariance(4) / 2] * 2),
    }
    found = summarize_choices(NoisyMDP(4.0, "features", noise="covariance"), draws, data)
    with jax.enable_x64(True):
        each = ChoiceDistribution(data.features[..., 0] * 0.5 * np.sqrt(2), data.legal, NormalNoise())
        exact = float(np.asarray(each.log_prob(data.choice)).sum())
    assert found.refined != found.log_likelihood
    assert abs(found.log_likelihood - exact) < 0.1 and abs(found.refined - exact) < 0.05
    assert f"simulated by GHK ({found.refined:.4f} with twice the points)" in str(found)


class Ran(MCMC):
    """A run with these draws of theta (chain, draw, parameter)."""

    def __init__(self, chains):
        self.chains = chains

    def get_samples(self, group_by_chain=False):
        return {"theta": self.chains if group_by_chain else self.chains.reshape(-1, 2)}


def test_a_summary_reads_mcmc_and_chains_and_warns_where_they_disagree():
    data, model = two_options(), NoisyMDP(9.0, "features")
    chains = np.random.default_rng(2).normal((0.8, -0.4), 0.2, size=(2, 250, 2))
    summarised = summarize_choices(model, {"theta": chains}, data)
    np.testing.assert_allclose(summarised.mean, chains.mean((0, 1)))
    assert (summarised.ess > 300).all() and (summarised.r_hat < 1.02).all() and "r_hat" in str(summarised)
    assert np.isnan(summarize_choices(model, {"theta": chains[0]}, data).r_hat).all()
    apart = {"theta": chains + np.array([0.0, 1.0])[:, None, None]}
    for summary in (summarize_choices, choice_shares):
        with pytest.warns(UserWarning, match="not converged.*ESS.*more draws") as seen:
            summary(model, apart, data)
        assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="smallest ESS"):
        summarised = summarize_choices(model, Ran(chains[:, :30]), data)
    np.testing.assert_allclose(summarised.mean, chains[:, :30].mean((0, 1)))
    assert np.isfinite(summarised.r_hat).all()
