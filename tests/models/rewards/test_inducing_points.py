"""Rewards given those of inducing points against dense algebra, and the points that represent all others."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpyro.infer.util import log_density
from scipy import stats

from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.predictions import predict_reward
from ethogram.models.mdps.mdp import MDP
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.inducing_points import representative_points

RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.normal(size=(7, 2))
NEXT = RANDOM.integers(7, size=(7, 2))
COUNTS = RANDOM.integers(0, 6, (7, 2))
POINTS = np.array([0, 2, 5])
SCALE, RELEVANCE, NOISE, DISCOUNT = 2.0, np.array([0.7, 1.3]), 0.01, 0.8
WORLD = MDP.deterministic(NEXT, discount=DISCOUNT)

quick = settings(max_examples=40, deadline=None, derandomize=True)


def given_points(conditional, **changes):
    members = {"family": "inducing", "inducing": POINTS, "conditional": conditional, "noise": NOISE} | changes
    return GPIRL(WORLD, FEATURES, scale_prior=SCALE, relevance_prior=RELEVANCE, **members)


def smooth(features, others, scale=SCALE, relevance=RELEVANCE):
    """The covariance of rewards of different points, from squared differences."""
    squares = (relevance * (features[:, None] - others) ** 2).sum(-1)
    return scale * np.exp(-0.5 * squares - NOISE * relevance.sum())


def prior(features, scale=SCALE, relevance=RELEVANCE):
    covariance = smooth(features, features, scale, relevance)
    np.fill_diagonal(covariance, scale)
    return covariance


INNER, CROSS = prior(FEATURES[POINTS]), smooth(FEATURES, FEATURES[POINTS])
REST = prior(FEATURES) - CROSS @ np.linalg.solve(INNER, CROSS.T)


@jax.jit
def mapping_of(model):
    return model.reward_map(SCALE, RELEVANCE)


def density(model, **values):
    return jax.jit(lambda values: log_density(model, (COUNTS,), {}, values)[0])(values)


def log_likelihood(reward, counts=COUNTS):
    """Of counts under rewards of states, by value iteration."""
    values = np.zeros(len(NEXT))
    for _ in range(200):
        ahead = reward[:, None] + DISCOUNT * values[NEXT]
        values = np.logaddexp.reduce(ahead, axis=1)
    return ((ahead - values[:, None]) * counts).sum()


def test_the_independent_conditional_is_the_diagonal_of_the_full_one():
    full, independent = (
        jax.tree.map(np.asarray, mapping_of(given_points(kind))) for kind in ("full", "independent")
    )
    np.testing.assert_allclose(
        independent.weights @ independent.weights.T, CROSS @ np.linalg.solve(INNER, CROSS.T), atol=1e-12
    )
    np.testing.assert_allclose(independent.weights, full.weights, atol=1e-14)
    np.testing.assert_allclose(full.noise @ full.noise.T, REST, atol=1e-12)
    np.testing.assert_allclose(independent.noise**2, np.diag(REST), atol=1e-12)
    # Every reward has the variance of the prior, those of inducing points too.
    total = np.sum(independent.weights**2, axis=1) + independent.noise**2
    np.testing.assert_allclose(total, np.full(7, SCALE), rtol=1e-12)
    white, rest = RANDOM.normal(size=(4, 3)), RANDOM.normal(size=(4, 7))
    for mapping, noise in ((full, full.noise), (independent, np.diag(independent.noise))):
        expected = white @ mapping.weights.T + rest @ noise.T
        np.testing.assert_allclose(
            mapping.reward(jnp.asarray(white), jnp.asarray(rest)), expected, rtol=1e-12
        )


@pytest.mark.parametrize("conditional", ["full", "independent"])
def test_whitened_or_not_the_joint_density_is_that_of_normal_laws(conditional):
    rest = REST if conditional == "full" else np.diag(np.diag(REST))
    low, root = np.linalg.cholesky(INNER), np.linalg.cholesky(rest)
    white, left = np.array([0.3, -1.0, 0.6]), np.linspace(-1, 1, 7)
    u = low @ white
    mean = CROSS @ np.linalg.solve(INNER, u)
    reward = mean + root @ left
    expected = stats.multivariate_normal(np.zeros(3), INNER).logpdf(u)
    expected += stats.multivariate_normal(mean, rest).logpdf(reward) + log_likelihood(reward)
    model = given_points(conditional, whiten=False)
    np.testing.assert_allclose(density(model, u=u, reward=reward), expected, rtol=1e-10)
    volume = np.linalg.slogdet(low)[1] + np.linalg.slogdet(root)[1]
    model = dataclasses.replace(model, whiten=True)
    found = density(model, u_white=white, reward_white=left)
    np.testing.assert_allclose(found, expected + volume, rtol=1e-10)


@pytest.mark.parametrize("noise_free", [False, True])
def test_predictions_of_independent_rewards_against_dense_algebra(noise_free):
    """Two posterior draws; 4000 draws of one of them, each of eight numbers within 5 errors: 1 of 200 000 runs."""
    model = given_points("independent")
    new = RANDOM.normal(size=(3, 2))
    new[1] = new[0]
    scale, relevance = np.array([2.0, 5.0]), np.array([[0.7, 1.3], [0.2, 0.9]])
    u = RANDOM.normal(size=(2, 3))
    means, variances, white = [], [], []
    for draw in range(2):
        hypers = scale[draw], relevance[draw]
        inner, cross = prior(FEATURES[POINTS], *hypers), smooth(new, FEATURES[POINTS], *hypers)
        own = np.full(3, scale[draw]) * (np.exp(-NOISE * relevance[draw].sum()) if noise_free else 1)
        means.append(cross @ np.linalg.solve(inner, u[draw]))
        variances.append(own - np.diag(cross @ np.linalg.solve(inner, cross.T)))
        white.append(np.linalg.solve(np.linalg.cholesky(inner), u[draw]))
    draws = {"scale": scale, "relevance": relevance}
    for sites in (draws | {"u": u}, draws | {"u_white": np.array(white)})[: 1 if noise_free else 2]:
        found = predict_reward(jax.random.key(0), model, sites, new, noise_free=noise_free)
        np.testing.assert_allclose(found.mean, np.mean(means, 0), rtol=1e-9)
        expected = np.sqrt(np.mean(variances, 0) + np.var(means, 0))
        np.testing.assert_allclose(found.sd, expected, rtol=1e-8)
    if noise_free:
        return
    many = {name: np.broadcast_to(x[0], (4000, *x[0].shape)) for name, x in (draws | {"u": u}).items()}
    drawn = np.asarray(predict_reward(jax.random.key(1), model, many, new).draws)
    sd = np.sqrt(variances[0])
    assert (np.abs(drawn.mean(0) - means[0]) < 5 * sd / np.sqrt(4000)).all()
    assert (np.abs(drawn.std(0) / sd - 1) < 5 / np.sqrt(8000)).all()
    # Even states with the same features are independent given the inducing points.
    apart = np.corrcoef(drawn.T)[[0, 1], [1, 2]]
    assert (np.abs(apart) < 5 / np.sqrt(4000)).all()


@pytest.mark.slow
def test_likelihoods_of_many_states_are_those_of_few(monkeypatch):
    """Draws one after the other, as above 128 states: values by value iteration, and gradients."""
    model = given_points("independent")
    rewards = RANDOM.normal(size=(3, 2, 7))
    counts = np.stack([COUNTS, COUNTS[::-1]]).astype(float)
    times = np.array([1.0, 0.5, 2.0])[:, None, None]
    expected = [
        [log_likelihood(reward, at) for reward, at in zip(draw, counts, strict=True)]
        for draw in times * rewards
    ]

    monkeypatch.setattr(gp_irl, "TOGETHER_AT_MOST", 6)

    @jax.jit
    def likelihood(rewards):
        def total(rewards):
            found = model.count_log_likelihood(rewards, jnp.asarray(counts), jnp.asarray(times))
            return jnp.sum(found), found

        (_, found), gradient = jax.value_and_grad(total, has_aux=True)(rewards)
        # Counts without an axis of experts.
        plain = model.count_log_likelihood(rewards[:, :1], jnp.asarray(counts[0]), jnp.asarray(times))
        return found, gradient, plain

    found, gradient, plain = likelihood(rewards)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    np.testing.assert_allclose(plain, np.array(expected)[:, :1], rtol=1e-9)
    for draw, expert in np.ndindex(3, 2):
        away = 1e-4 * RANDOM.normal(size=7)
        ahead, behind = (
            log_likelihood(times[draw, 0] * (rewards[draw, expert] + d), counts[expert])
            for d in (away, -away)
        )
        np.testing.assert_allclose(gradient[draw, expert] @ away, (ahead - behind) / 2, rtol=1e-6, atol=1e-9)


def scaled(features):
    """Features in units of which half the expected squared distance of two points is one, constant ones left out."""
    kept = features[:, np.ptp(features, axis=0) > 0]
    return kept / kept.std(0) / np.sqrt(max(kept.shape[1], 1))


def left_over(features, chosen):
    """Variance of every point given those chosen."""
    table = scaled(features)
    kernel = np.exp(-0.5 * ((table[:, None] - table) ** 2).sum(-1))
    cross = kernel[:, chosen]
    return 1 - np.sum(cross * np.linalg.solve(kernel[np.ix_(chosen, chosen)], cross.T).T, axis=1)


def by_hand(features, num):
    """The greedy choice, point by point."""
    chosen, left = [], np.ones(len(features))
    while len(chosen) < min(num, len(features)) and left.max() > 1e-4:
        chosen.append(int(np.argmax(left)))
        left = left_over(features, chosen)
    return sorted(chosen)


@quick
@given(st.integers(0, 2**31), st.integers(1, 25), st.integers(1, 3), st.integers(1, 40))
def test_representative_points_are_the_greedy_ones_in_any_units(seed, count, num_features, num):
    random = np.random.default_rng(seed)
    features = random.normal(size=(count, num_features))
    found = representative_points(features, num)
    assert found.tolist() == by_hand(features, num)
    scale, shift = 10 ** random.uniform(-3, 3, num_features), random.normal(size=num_features)
    np.testing.assert_array_equal(representative_points(scale * (features + shift), num), found)
    widened = np.column_stack([np.full(count, 0.1), features])
    np.testing.assert_array_equal(representative_points(widened, num), found)
    # In another order, which begins with the same point, the same points.
    order = np.append(0, 1 + random.permutation(count - 1))
    np.testing.assert_array_equal(np.sort(order[representative_points(features[order], num)]), found)


@quick
@given(st.integers(0, 2**31), st.integers(1, 60), st.integers(1, 3), st.integers(1, 80), st.integers(1, 6))
def test_representative_points_of_grids_leave_nothing_and_repeat_nothing(
    seed, count, num_features, num, levels
):
    """Where features repeat, and many points are as far from all others."""
    features = np.random.default_rng(seed).integers(levels, size=(count, num_features)).astype(float)
    chosen = representative_points(features, num)
    assert chosen.dtype.kind == "i" and 1 <= len(chosen) <= min(num, count)
    assert (np.diff(chosen) > 0).all() and chosen[0] >= 0 and chosen[-1] < count
    assert len(np.unique(features[chosen], axis=0)) == len(chosen)
    if len(chosen) < num:
        assert left_over(features, chosen).max() <= 1e-4 + 1e-10


@pytest.mark.parametrize(
    ("features", "num", "error", "message"),
    [
        ([1.0, 2.0], 2, ValueError, r"features has shape \(2,\), not \(point, feature\)"),
        (np.zeros((0, 2)), 2, ValueError, r"features has shape \(0, 2\)"),
        ([[1.0], [np.nan]], 2, ValueError, r"features\[1, 0\] is not finite"),
        ([[1.0], [2.0]], 0, ValueError, "num must be at least 1, not 0"),
    ],
)
def test_what_has_no_representative_points_is_refused_by_name(features, num, error, message):
    with pytest.raises(error, match=message):
        representative_points(features, num)


def line(count, num_actions=2):
    """States in a row, with one feature of states and one of pairs."""
    state = np.arange(count)
    world = MDP.deterministic((state[:, None] + np.arange(num_actions)) % count, discount=0.9)
    place = np.linspace(0, 1, count)
    return world, place[:, None], place[:, None, None] + np.arange(num_actions)[:, None]


@pytest.mark.parametrize(
    ("count", "pairs", "family", "conditional"),
    [
        (500, False, "direct", None), (501, False, "inducing", "full"), (2001, False, "inducing", "independent"),
        (250, True, "direct", None), (251, True, "inducing", "full"), (1001, True, "inducing", "independent"),
    ],
)  # fmt: skip
def test_defaults_of_many_points(count, pairs, family, conditional):
    world, of_states, of_pairs = line(count)
    features = of_pairs if pairs else of_states
    model = GPIRL(world, features)
    assert (model.family, model.conditional) == (family, conditional)
    if family == "direct":
        assert model.inducing is None and model.num_white == count * features[0].size
        return
    flat = features.reshape(-1, 1)
    np.testing.assert_array_equal(model.inducing, representative_points(flat))
    assert model.num_white == len(model.inducing) < 20  # on a line, and few lengthscales
    assert left_over(flat, np.asarray(model.inducing)).max() <= 1e-4 + 1e-10
    explicit = GPIRL(world, features, inducing=[0, count - 1], conditional="independent")
    assert explicit.inducing.tolist() == [0, count - 1] and explicit.conditional == "independent"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"family": "direct", "conditional": "independent"}, "conditional is 'independent', but family is \"direct\""),
        ({"family": "inducing", "conditional": "diagonal"}, "conditional must be 'full' or 'independent'"),
        ({"family": "inducing", "conditional": "full"}, r"10000 points: .* bytes, .* conditional=\"independent\""),
        ({"inducing": np.arange(9000)}, "10000 points: .* bytes, .* Pass fewer inducing points"),
        ({"inducing": [0, 10_000]}, r"inducing has 10000, outside the points 0..9999"),
    ],
)  # fmt: skip
def test_what_does_not_go_with_many_points_is_refused_by_name(settings, message):
    world, features, _ = line(10_000)
    with pytest.raises(ValueError, match=message):
        GPIRL(world, features, **settings)


@pytest.mark.slow
def test_a_pair_model_is_fitted_by_default_points():
    """The evidence by 40 000 draws of the prior: the ELBO is below it, beyond 5 errors, and lacks under 0.1 nats."""
    world, _, features = line(3)
    counts = np.array([[4, 0], [1, 2], [0, 3]])
    hypers = {"scale_prior": 2.0, "relevance_prior": 1.0, "noise": NOISE}
    model = GPIRL(world, features, family="inducing", conditional="independent", **hypers)
    flat, points = features.reshape(6, 1), np.asarray(model.inducing)
    assert len(points) == len(np.unique(flat)) == 5
    fit = fit_reward(jax.random.key(0), model, counts, hyper="fixed", progress_bar=False)
    assert fit.converged
    random, hypers = np.random.default_rng(0), (2.0, np.ones(1))
    half = np.linalg.solve(
        np.linalg.cholesky(prior(flat[points], *hypers)), smooth(flat, flat[points], *hypers).T
    )
    rewards = random.normal(size=(40_000, 5)) @ half
    rewards += random.normal(size=(40_000, 6)) * np.sqrt(2.0 - np.sum(half**2, axis=0))
    rewards, following = rewards.reshape(-1, 3, 2), np.array([[0, 1], [1, 2], [2, 0]])
    values = np.zeros((40_000, 3))
    for _ in range(120):
        ahead = rewards + 0.9 * values[:, following]
        values = np.logaddexp(ahead[..., 0], ahead[..., 1])
    chance = np.exp(((ahead - values[..., None]) * counts).sum((1, 2)))
    error = chance.std() / chance.mean() / np.sqrt(40_000)
    slack = 5 * np.hypot(error, fit.elbo_se)
    assert -0.1 - slack < fit.elbo - np.log(chance.mean()) < slack
