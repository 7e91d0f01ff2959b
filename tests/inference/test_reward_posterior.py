"""Learned rewards against quadrature: bounds, divergences, the best Gaussian, other states; and what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import SVI, Trace_ELBO
from numpyro.optim import Adam

import ethogram
from ethogram.domains import toy_mdps
from ethogram.inference import reward_gaussian, reward_search
from ethogram.inference.linear_reward import fit_linear_reward
from ethogram.inference.reward_guide import RewardGuide
from ethogram.inference.reward_posterior import fit_reward
from ethogram.inference.reward_predictions import difference_coverage, policies, predict_reward, transfer
from ethogram.models.gp_irl import GPIRL
from ethogram.models.mdp import MDP
from ethogram.models.soft_policy import demonstration_counts
from ethogram.models.soft_values import soft_values
from ethogram.models.trajectories import Trajectories

FEATURES = np.array([[1.0], [2.0], [3.0]])
DATA = toy_mdps.three_state_demonstrations(1, 1)
EVIDENCE = -1.3577403816
BEST_GAUSSIAN = -1.3686171707
"""Of rewards of inducing points at all three states, scale 5 and relevance 1, by quadrature."""


def three_state(**settings):
    return GPIRL(
        toy_mdps.three_state(), FEATURES, **({"scale_prior": 5.0, "relevance_prior": 1.0} | settings)
    )


def bound_by_quadrature(model, mean, root, nodes=34):
    """The bound of a Gaussian over w, rewards being one Gaussian of three."""
    law = model.law(5.0, jnp.ones(1))
    weights = np.asarray(law.weights)
    spread = weights @ root @ root.T @ weights.T
    if law.noise is not None:
        spread = spread + np.asarray(law.noise) @ np.asarray(law.noise).T
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(x, x, x, indexing="ij"), -1).reshape(-1, 3)
    mass = (w[:, None, None] * w[:, None] * w).ravel() / w.sum() ** 3
    rewards = weights @ mean + grid @ np.linalg.cholesky(spread).T
    counts = demonstration_counts(model.mdp, DATA)
    told = (np.asarray(soft_values(model.mdp, jnp.asarray(rewards)).log_policy) * counts).sum((1, 2))
    sign = np.linalg.slogdet(root)[1]
    return mass @ told - 0.5 * ((root**2).sum() + mean @ mean - 3) + sign


@pytest.mark.parametrize("family", ["direct", "inducing"])
def test_natural_gradients_find_the_best_gaussian(family):
    with jax.enable_x64(True):
        model = three_state(family=family, inducing=None if family == "direct" else np.arange(3))
        fit = fit_reward(
            jax.random.key(0), model, DATA, num_draws=128, num_evaluations=512, progress_bar=False
        )
        exact = bound_by_quadrature(model, fit.posterior.mean, fit.posterior.root)
    assert fit.converged and fit.elbo >= fit.laplace_elbo
    assert abs(fit.elbo - exact) < 4.5 * fit.elbo_se
    assert exact < EVIDENCE
    if family == "inducing":
        assert exact > BEST_GAUSSIAN - 1e-3
    else:  # without the noise that no q of inducing points can learn
        assert exact > EVIDENCE - 2e-3


def test_rewards_of_pairs_have_their_own_evidence():
    """Two states and two actions, evidence by 400 000 draws of the prior and plain sweeps in NumPy, in 5 errors."""
    features = np.array([[[0.0], [1.0]], [[2.0], [3.5]]])
    world, counts = MDP.deterministic([[0, 1], [0, 1]], discount=0.5), np.array([[3, 1], [0, 4]])
    model = GPIRL(world, features, scale_prior=2.0, relevance_prior=0.5)
    fit = fit_reward(jax.random.key(0), model, counts, num_draws=64, num_evaluations=256, progress_bar=False)
    gap = features.ravel()[:, None] - features.ravel()
    prior = 2.0 * np.exp(-0.25 * gap**2 - 0.005 * 0.5 * (gap != 0))
    drawn = np.random.default_rng(0).multivariate_normal(np.zeros(4), prior, 400_000).reshape(-1, 2, 2)
    values = np.zeros((len(drawn), 2))
    for _ in range(60):
        ahead = drawn + 0.5 * values[:, None, :]
        values = np.logaddexp(ahead[..., 0], ahead[..., 1])
    chance = np.exp(((drawn + 0.5 * values[:, None, :] - values[..., None]) * counts).sum((1, 2)))
    evidence, error = np.log(chance.mean()), chance.std() / chance.mean() / np.sqrt(len(chance))
    slack = 5 * np.hypot(error, fit.elbo_se)
    assert evidence - 0.05 - slack < fit.elbo < evidence + slack


def test_draws_of_the_posterior_have_its_moments():
    """20 000 draws: means and deviations within 5 errors, of 6 numbers; fails by chance in 1 of 100 000 runs."""
    model = three_state()
    posterior = fit_reward(jax.random.key(0), model, DATA, progress_bar=False).posterior
    drawn = posterior.sample(jax.random.key(1), 20_000)
    weights = np.asarray(model.law(5.0, jnp.ones(1)).weights)
    covariance = weights @ posterior.root @ posterior.root.T @ weights.T
    rewards = np.asarray(drawn["reward"], float)
    sd = np.sqrt(np.diag(covariance))
    assert (np.abs(rewards.mean(0) - weights @ posterior.mean) < 5 * sd / np.sqrt(20_000)).all()
    assert (np.abs(rewards.std(0) / sd - 1) < 5 / np.sqrt(40_000)).all()
    np.testing.assert_allclose(drawn["policy"].sum(-1), 1, atol=1e-5)
    np.testing.assert_allclose(np.asarray(drawn["centred_reward"]).mean(-1), 0, atol=1e-5)


@pytest.mark.parametrize("family", ["direct", "inducing"])
def test_draws_do_not_lose_what_was_learned_in_double_precision(family):
    """On a line whose kernel has next to no noise, a root in single precision is another one: 4000 draws, 4 errors."""
    features = np.linspace(0, 3, 40)[:, None]
    world = MDP.deterministic(np.clip(np.arange(40)[:, None] + [-1, 1], 0, 39), discount=0.9)
    points = {} if family == "direct" else {"inducing": np.arange(0, 40, 2)}
    model = GPIRL(world, features.astype(np.float32), family=family, noise=1e-7, scale_prior=9.0, relevance_prior=1.0,
                  **points)  # fmt: skip
    counts = np.stack([np.zeros(40, int), np.full(40, 3)], 1)
    posterior = fit_reward(jax.random.key(0), model, counts, "laplace", progress_bar=False).posterior
    drawn = posterior.sample(jax.random.key(1), 4000)
    with jax.enable_x64(True):  # the model's features are those of single precision, to the last digit
        double = GPIRL(world, features.astype(np.float32).astype(float), family=family, noise=1e-7, scale_prior=9.0,
                       relevance_prior=1.0, **points)  # fmt: skip
        law = double.law(9.0, jnp.ones(1))
    root = np.asarray(law.weights) @ posterior.root
    rest = np.zeros((40, 40)) if law.noise is None else np.asarray(law.noise)
    covariance = root @ root.T + rest @ rest.T
    gap = np.asarray(drawn["reward"], float)
    gap = gap[:, :1] - gap[:, [10, 20, 39]]
    away = np.eye(40)[0] - np.eye(40)[[10, 20, 39]]
    sd = np.sqrt(np.einsum("gi,ij,gj->g", away, covariance, away))
    assert (np.abs(gap.std(0) / sd - 1) < 4 / np.sqrt(8000)).all(), gap.std(0) / sd
    middle = away @ (np.asarray(law.weights) @ posterior.mean)
    assert (np.abs(gap.mean(0) - middle) < 4 * sd / np.sqrt(4000)).all()
    assert drawn["reward"].dtype == np.float32


def test_as_many_actions_as_states_and_draws_are_no_rewards_of_pairs():
    """Three states, actions and draws, and three experts: every reward is one of states."""
    world = MDP.deterministic([[0, 1, 2]] * 3, discount=0.5)
    model = GPIRL(world, FEATURES, scale_prior=5.0, relevance_prior=1.0, rationality=2.0)
    data = Trajectories.from_list(
        states=[[0, 1], [2, 0], [1, 1]], actions=[[1, 1], [0, 1], [1, 2]], subject=[0, 1, 2]
    )
    fit = fit_reward(jax.random.key(0), model, data, progress_bar=False)
    drawn = fit.posterior.sample(jax.random.key(1), 3)
    assert drawn["policy"].shape == (3, 3, 3, 3) and drawn["values"].shape == (3, 3, 3)
    one = {"scale": drawn["scale"], "relevance": drawn["relevance"], "reward": drawn["reward"][:, 0]}
    there = transfer(jax.random.key(2), model, one, world, FEATURES)
    assert there.values.shape == (3, 3) and there.policy.shape == (3, 3, 3)
    # Every action leads where its number says: a value of 2 r + 0.5 V next, by sweeps.
    reward, values = np.asarray(there.reward.draws, float), np.zeros((3, 3))
    for _ in range(60):
        ahead = 2 * reward[:, :, None] + 0.5 * values[:, None, :]
        values = np.logaddexp.reduce(ahead, -1)
    np.testing.assert_allclose(there.policy, np.exp(ahead - values[..., None]), atol=1e-5)
    three = policies(world, one["reward"], rationality=2.0)
    np.testing.assert_allclose(three.mean, np.asarray(drawn["policy"])[:, 0].mean(0), atol=1e-5)


@pytest.mark.parametrize("hyper", ["variational", "point"])
def test_hyper_parameters_are_learned_too(hyper):
    """With priors of both the evidence is -1.3445577, which no bound is above; that of a point has a density in it."""
    model = three_state(
        scale_prior=dist.LogNormal(np.log(5.0), 1.0), relevance_prior=dist.LogNormal(0.0, 1.0)
    )
    fit = fit_reward(jax.random.key(0), model, DATA, hyper=hyper, num_draws=32, progress_bar=False)
    assert fit.elbo >= fit.laplace_elbo
    if hyper == "variational":
        assert -1.3445577 - 0.06 < fit.elbo < -1.3445577 + 4 * fit.elbo_se
        assert (np.abs(np.log(fit.posterior.log_hyper_sd)) < 0.5).all()  # near their priors, of deviation one
    else:
        assert (fit.posterior.log_hyper_sd == 0).all()


def test_bounds_of_numpyro_are_ours():
    """At one Gaussian and known hyper-parameters, in w and in the rewards: -ELBO of SVI within 4.5 errors."""
    with jax.enable_x64(True):
        model = three_state(family="inducing", inducing=np.arange(3))
        mean, root = np.array([0.2, 0.5, -0.3]), np.array([[0.9, 0, 0], [0.2, 0.7, 0], [-0.1, 0.1, 0.8]])
        exact = bound_by_quadrature(model, mean, root)
        from ethogram.models import reward_kernel

        low = np.asarray(
            reward_kernel.root(reward_kernel.covariance(model.points, 5.0, jnp.ones(1), 0.005), 5.0)
        )
        for whiten, at, spread in ((True, mean, root), (False, low @ mean, low @ root)):
            guide = RewardGuide(model, whiten=whiten)
            loss = Trace_ELBO(num_particles=4000)
            params = {"mean": jnp.asarray(at), "root": jnp.asarray(spread)}
            found = [
                -float(loss.loss(key, params, model, guide, DATA))
                for key in jax.random.split(jax.random.key(0), 8)
            ]
            assert abs(np.mean(found) - exact) < 4.5 * np.std(found, ddof=1) / np.sqrt(8)


@pytest.mark.parametrize("settings", [{}, {"rank": 2}, {"hyper": "point"}])
def test_svi_climbs_with_the_guide(settings):
    model = three_state(scale_prior=dist.LogNormal(np.log(5.0), 1.0))
    svi = SVI(
        model, RewardGuide(model, start={"scale": 5.0}, **settings), Adam(0.02), Trace_ELBO(num_particles=16)
    )
    losses = np.asarray(svi.run(jax.random.key(0), 400, DATA, progress_bar=False).losses)
    assert np.isfinite(losses).all()
    assert losses[-100:].mean() < losses[:20].mean() - 0.1


def test_rewards_of_other_states_against_dense_algebra():
    random = np.random.default_rng(0)
    with jax.enable_x64(True):
        world = MDP.dense(random.dirichlet(np.ones(4), (4, 2)), discount=0.8)
        features, others = random.normal(size=(4, 2)), random.normal(size=(3, 2))
        model = GPIRL(world, features, scale_prior=2.0, relevance_prior=np.array([0.5, 1.5]))
        rewards = random.normal(size=(50, 4))
        samples = {"scale": np.full(50, 2.0), "relevance": np.tile([0.5, 1.5], (50, 1)), "reward": rewards}
        found = predict_reward(jax.random.key(0), model, samples, others)
        clean = predict_reward(jax.random.key(0), model, samples, others, noise_free=True)

    def kernel(one, other, same):
        table = 2 * np.exp(-0.5 * (([0.5, 1.5] * (one[:, None] - other) ** 2).sum(-1)) - 0.005 * 2)
        return np.where(np.eye(len(one)), 2.0, table) if same else table

    cross = np.linalg.solve(kernel(features, features, True), kernel(features, others, False)).T
    rest = kernel(others, others, True) - cross @ kernel(features, others, False)
    np.testing.assert_allclose(found.mean, (rewards @ cross.T).mean(0), rtol=1e-8)
    np.testing.assert_allclose(found.sd, np.sqrt(np.diag(rest) + (rewards @ cross.T).var(0)), rtol=1e-8)
    less = 2 * -np.expm1(-0.005 * 2)
    np.testing.assert_allclose(
        clean.sd, np.sqrt(np.diag(rest) - less + (rewards @ cross.T).var(0)), rtol=1e-8
    )


def test_transfer_and_policies():
    model = three_state()
    fit = fit_reward(jax.random.key(0), model, DATA, progress_bar=False)
    samples = fit.posterior.sample(jax.random.key(1), 30)
    world = MDP.deterministic([[0, 1], [1, 0]], discount=0.5)
    there = transfer(jax.random.key(2), model, samples, world, [[1.5], [2.5]])
    assert there.values.shape == (30, 2) and there.policy.shape == (30, 2, 2)
    expected = soft_values(world, there.reward.draws).policy
    np.testing.assert_allclose(there.policy, expected, atol=1e-6)
    assert there.reward.draws.shape == (30, 2)
    three = policies(model.mdp, samples["reward"])
    np.testing.assert_allclose(three.mean, np.asarray(samples["policy"]).mean(0), atol=1e-5)
    assert set(np.unique(three.optimal)) <= {0.0, 1.0}
    with pytest.raises(ValueError, match=r"the world has \(2,\) states"):
        transfer(jax.random.key(2), model, samples, world, FEATURES)
    with pytest.raises(ValueError, match="samples have no relevance"):
        predict_reward(jax.random.key(2), model, {"scale": 1.0, "reward": samples["reward"]}, FEATURES)


def test_a_posterior_is_saved_and_loaded(tmp_path):
    posterior = fit_reward(jax.random.key(0), three_state(), DATA, progress_bar=False).posterior
    posterior.save(tmp_path / "reward.npz")
    again = ethogram.load(tmp_path / "reward.npz")
    for one, other in zip(jax.tree.leaves(posterior), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(one, other)
    drawn = (it.sample(jax.random.key(3), 4)["reward"] for it in (posterior, again))
    np.testing.assert_array_equal(*drawn)


def test_the_mode_is_the_best_of_its_starts(monkeypatch):
    """A search that goes nowhere leaves the best start: the reward that says what was demonstrated, not the other."""
    model, tried = three_state(), []

    def nowhere(model, log_hyper, counts, start):
        law = model.law(5.0, jnp.ones(1))
        log_policy = np.asarray(model.agent(law.reward(jnp.asarray(start))).log_policy)
        tried.append(start)
        return start, float((log_policy * np.asarray(counts)).sum() - 0.5 * start @ start), True

    monkeypatch.setattr(reward_search, "posterior_mode", nowhere)
    fit = fit_reward(jax.random.key(0), model, DATA, "map", num_restarts=20, progress_bar=False)
    densities = [
        nowhere(fit.posterior.model, None, demonstration_counts(model.mdp, DATA), one)[1]
        for one in tried[:21]
    ]
    assert not tried[0].any() and len({one[0] for one in tried[:21]}) == 21
    assert fit.objective == pytest.approx(max(densities), rel=1e-4)
    np.testing.assert_array_equal(fit.posterior.mean, tried[int(np.argmax(densities))])


def test_points_have_no_spread():
    model = three_state()
    mode = fit_reward(jax.random.key(0), model, DATA, method="map", progress_bar=False)
    assert np.isnan(mode.elbo) and mode.converged
    assert np.ptp(np.asarray(mode.posterior.sample(jax.random.key(0), 5)["reward"]), axis=0).max() == 0


@pytest.mark.parametrize("rationality", [1.0, 2.0])
def test_levines_objective_and_policy_against_dense_algebra(rationality):
    """At what was found: the objective as printed, and the policy of a reward that acts as it was learned."""
    model = three_state(rationality=rationality)
    fit = fit_reward(jax.random.key(0), model, DATA, method="map", prior="levine", progress_bar=False)
    u, scale, relevance = fit.posterior.mean, *np.exp(fit.posterior.log_hyper)
    every, points = np.arange(1.0, 4.0), np.array([1.0, 3.0])
    gap = points[:, None] - points
    inner = scale * np.exp(-0.5 * relevance * gap**2 - 0.005 * relevance * (gap != 0))
    cross = scale * np.exp(-0.5 * relevance * (every[:, None] - points) ** 2 - 0.005 * relevance)
    reward, values = cross @ np.linalg.solve(inner, u), np.zeros(3)
    following = np.array([[1, 2], [0, 2], [0, 1]])
    for _ in range(400):
        ahead = rationality * reward[:, None] + 0.9 * values[following]
        values = np.logaddexp(*ahead.T)
    log_policy = ahead - values[:, None]
    told = log_policy[0, 0] + log_policy[2, 1]
    prior = -0.5 * u @ np.linalg.solve(inner, u) - 0.5 * np.linalg.slogdet(2 * np.pi * inner)[1]
    objective = told + prior - np.log1p(relevance) - 0.5 * (np.linalg.inv(inner) ** 2).sum()
    np.testing.assert_allclose(fit.objective, objective, rtol=1e-8)
    drawn = fit.posterior.sample(jax.random.key(0), 5)
    np.testing.assert_allclose(drawn["policy"][4], np.exp(log_policy), atol=1e-5)
    tree = ethogram.to_arviz(fit, DATA, num_draws=3)
    np.testing.assert_allclose(
        np.asarray(tree.log_likelihood["demonstrations"])[0, 0], log_policy[[0, 2], [0, 1]], rtol=1e-4
    )


def test_counts_go_to_arviz_and_back():
    model, counts = three_state(), np.array([[3, 1], [0, 0], [1, 2]])
    fit = fit_reward(jax.random.key(0), model, counts, progress_bar=False)
    tree = ethogram.to_arviz(fit, counts, num_draws=8)
    new = np.asarray(tree.posterior_predictive["demonstrations"])
    assert new.shape == (1, 8, 3, 2) and (new.sum(-1) == [4, 0, 3]).all()
    assert tree.attrs["final_elbo"] == pytest.approx(fit.elbo)


def test_priors_of_any_positive_law_are_taken():
    model = three_state(scale_prior=dist.Gamma(2.0, 0.4), relevance_prior=dist.HalfNormal(1.0))
    fit = fit_reward(jax.random.key(0), model, DATA, num_steps=3, progress_bar=False)
    assert np.isfinite(fit.elbo) and fit.elbo < 0


def test_linear_reward_matches_expected_features():
    """At the maximum the features that were visited are those expected: counts less visits have no component left."""
    random = np.random.default_rng(4)
    world = MDP.dense(random.dirichlet(np.ones(5), (5, 3)), discount=0.9)
    features = random.normal(size=(5, 2))
    counts = random.integers(1, 9, (5, 3))
    fit = fit_linear_reward(world, features, counts, penalty=0.0)
    with jax.enable_x64(True):
        table, policy = np.asarray(world.transitions.probabilities, float), fit.policy
    moved = np.einsum("sa,san->sn", policy, table)
    signed = counts.sum(1) - 0.9 * np.einsum("sa,san->n", counts, table)
    visits = np.linalg.solve((np.eye(5) - 0.9 * moved).T, signed)
    assert fit.converged
    np.testing.assert_allclose(features.T @ (counts.sum(1) - visits), 0, atol=1e-3)
    np.testing.assert_allclose(fit.log_likelihood, (counts * np.log(policy)).sum(), rtol=1e-6)


def test_divergence_against_numpyro():
    random = np.random.default_rng(5)
    root = np.tril(random.normal(size=(4, 4))) + 2 * np.eye(4)
    with jax.enable_x64(True):
        q = reward_gaussian.RewardGaussian(
            jnp.asarray(random.normal(size=(1, 4))), jnp.asarray(root)[None], jnp.zeros(0), jnp.zeros(0)
        )
        other = dist.kl_divergence(
            dist.MultivariateNormal(q.mean[0], scale_tril=q.root[0]),
            dist.MultivariateNormal(jnp.zeros(4), jnp.eye(4)),
        )
        np.testing.assert_allclose(reward_gaussian.divergence(q), other, rtol=1e-10)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: fit_reward(jax.random.key(0), "model", DATA), TypeError, "model is str"),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, "adam"), ValueError, "method must be one of"),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, hyper="none"), ValueError, "hyper must be one of"),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, prior="levine"), ValueError, "a point estimate"),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, num_restarts=-1),
            ValueError,
            "num_restarts must be",
        ),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, num_draws=3), ValueError, "come in pairs"),
        (lambda m: fit_reward(jax.random.key(0), m, np.zeros((3, 2), int)), ValueError, "are all 0"),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, tol=float("nan")), ValueError, "tol must be"),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, "map", hyper="point"),
            ValueError,
            "keeps the hyper",
        ),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, start={"scale": 1.0}),
            ValueError,
            "start must be a dict",
        ),
        (lambda m: fit_reward(jax.random.key(0), m, DATA, start=3.0), ValueError, "start must be a dict"),
        (
            lambda m: fit_reward(jax.random.key(0), m, DATA, "map", prior="levine", checkpoint="/no/file"),
            ValueError,
            "no start and writes no checkpoint",
        ),
        (lambda m: fit_reward(jax.random.key(0), m, [[1, 0], [0], [1, 1]]), ValueError, "are a ragged list"),
        (lambda m: policies(m.mdp, np.zeros(3)), ValueError, "rewards has shape"),
        (lambda m: RewardGuide("model"), TypeError, "model is str"),
        (lambda m: RewardGuide(m, rank=7), ValueError, "rank must be"),
        (lambda m: RewardGuide(m, hyper="none"), ValueError, "hyper must be one of"),
        (lambda m: RewardGuide(m, start={"scale": 2.0}), ValueError, "start has scale"),
        (lambda m: fit_linear_reward(m.mdp, FEATURES, DATA, penalty=-1.0), ValueError, "penalty must be"),
        (lambda m: fit_linear_reward(m.mdp, FEATURES[:2], DATA), ValueError, "features has shape"),
    ],
)
def test_what_cannot_be_is_refused_by_name(call, error, message):
    with pytest.raises(error, match=message):
        call(three_state())


def test_what_was_learned_goes_to_arviz():
    model = three_state(scale_prior=dist.LogNormal(np.log(5.0), 1.0))
    fit = fit_reward(jax.random.key(0), model, DATA, progress_bar=False)
    tree = ethogram.to_arviz(fit, DATA, num_draws=20)
    assert tree.posterior["reward"].dims == ("chain", "draw", "state")
    assert tree.posterior["policy"].dims == ("chain", "draw", "state", "action")
    assert tree.log_likelihood["demonstrations"].shape == (1, 20, 2)
    expected = np.log(
        np.asarray(tree.posterior["policy"])[0, :, 0, 0]
    )  # the first goes from state 0 by action 0
    np.testing.assert_allclose(
        np.asarray(tree.log_likelihood["demonstrations"])[0, :, 0], expected, rtol=1e-4
    )
    assert np.asarray(tree.posterior_predictive["demonstrations"]).shape == (1, 20, 2, 1, 2)
    assert np.isfinite(np.asarray(tree.fit_stats["elbo"])).all()


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
    model = three_state(scale_prior=dist.LogNormal(np.log(5.0), 1.0))
    settings = {"num_steps": 9, "tol": 0.0, "progress_bar": False}
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
    with pytest.raises(ValueError, match="of another model, key"):
        fit_reward(jax.random.key(1), model, DATA, checkpoint=path, **settings)
    rest.posterior.save(tmp_path / "posterior")
    with pytest.raises(ValueError, match="none of fit_reward"):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=tmp_path / "posterior", **settings)
    with pytest.raises(ValueError, match="no folder"):
        fit_reward(jax.random.key(0), model, DATA, checkpoint=tmp_path / "none" / "search")
