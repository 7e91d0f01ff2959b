"""GP-IRL's kernel, likelihood and prior against dense algebra, and its bound and evidence against quadrature."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.infer import Predictive
from numpyro.infer.util import log_density
from scipy import stats

from ethogram.domains import small_mdps
from ethogram.models.conjugate_model import log_likelihood
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.mdps.demonstrations import demonstration_counts
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.soft_policy import ActionCounts, SoftPolicy
from ethogram.models.mdps.values import soft_values
from ethogram.models.rewards import kernel as reward_kernel
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.inducing_points import select_inducing_points

MEAN = np.array([-0.4, 0.8, -0.1])
ROOT = np.array([[1.2, 0, 0], [0.3, 0.9, 0], [-0.2, 0.1, 1.1]])
NEXT = np.array([[1, 2], [0, 2], [0, 1]])


def three_state(**settings):
    """The three-state world with scale 5 and relevance 1, and its two demonstrations."""
    settings = {"scale_prior": 5.0, "relevance_prior": 1.0} | settings
    model = GPIRL(small_mdps.three_state(), np.array([[1.0], [2.0], [3.0]]), **settings)
    return model, small_mdps.three_state_demonstrations(1, 1)


def hermite(nodes=24, axes=3):
    x, w = np.polynomial.hermite_e.hermegauss(nodes)
    grid = np.stack(np.meshgrid(*[x] * axes, indexing="ij"), -1).reshape(-1, axes)
    weights = np.stack(np.meshgrid(*[w / w.sum()] * axes, indexing="ij"), -1).reshape(-1, axes).prod(1)
    return grid, weights


def dense_kernel(features, others, scale, relevance, noise, same):
    """The covariance entry by entry, as printed."""
    table = np.empty((len(features), len(others)))
    for i, x in enumerate(features):
        for j, y in enumerate(others):
            apart = 0.0 if same and i == j else noise * relevance.sum()
            table[i, j] = scale * np.exp(-0.5 * (relevance * (x - y) ** 2).sum() - apart)
    return table


@jax.jit
def mapping_of(model, scale, relevance):
    return model.reward_map(scale, relevance)


@jax.jit
def log_policies(model, rewards):
    return model.agent(rewards).log_policy


def density(model, data, **values):
    return jax.jit(lambda values: log_density(model, (data,), {}, values)[0])(values)


def test_kernel_entry_by_entry():
    random = np.random.default_rng(0)
    features, others = random.normal(size=(6, 3)) + 100, random.normal(size=(4, 3)) + 100
    features[3] = features[2]
    relevance = np.array([0.5, 2.0, 0.0])
    with jax.enable_x64(True):

        @jax.jit
        def kernels(features, others, relevance):
            own = reward_kernel.covariance(features, 3.0, relevance, 0.005)
            cross = reward_kernel.cross_covariance(features, others, 3.0, relevance, 0.005)
            return own, cross, reward_kernel.white_share(relevance, 0.005)

        own, cross, share = map(np.asarray, kernels(features, others, relevance))
        np.testing.assert_allclose(
            own, dense_kernel(features, features, 3.0, relevance, 0.005, True), rtol=1e-11
        )
        np.testing.assert_allclose(
            cross, dense_kernel(features, others, 3.0, relevance, 0.005, False), rtol=1e-11
        )
        # A squared exponential and white noise of the share that is reported.
        smooth = dense_kernel(features, features, 3.0, relevance, 0.0, True)
        np.testing.assert_allclose(own, (1 - share) * smooth + 3 * share * np.eye(6), rtol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("relevance", [1e-4, 0.3, 30.0])
def test_single_precision_takes_two_hundred_points(relevance):
    """From rewards that are nearly one to rewards that are nearly noise: the prior's covariance, and a gradient."""
    features = np.random.default_rng(0).normal(size=(200, 1))
    world = MDP.deterministic((np.arange(200)[:, None] + [1, 7]) % 200, discount=0.9)
    with jax.enable_x64(False):
        model = GPIRL(world, features.astype(np.float32), scale_prior=4.0, relevance_prior=relevance)
        weights = model.reward_map(4.0, jnp.array([relevance])).weights
        assert weights.dtype == np.float32
        weights = np.asarray(weights, float)
        expected = dense_kernel(features, features, 4.0, np.array([relevance]), 0.005, True)
        np.testing.assert_allclose(weights @ weights.T, expected, atol=4e-4)
        counts = np.ones((200, 2), int)
        gradient = jax.grad(lambda white: log_density(model, (counts,), {}, {"reward_white": white})[0])
        assert np.isfinite(gradient(jnp.ones(200))).all()


def test_bound_of_a_gaussian_by_quadrature():
    """Anchors of the three-state world: divergence, expected log likelihood and bound through inducing points."""
    with jax.enable_x64(True):
        model, data = three_state(inducing=np.arange(3))
        mapping, direct = jax.tree.map(np.asarray, mapping_of(model, 5.0, np.ones(1))), three_state()[0]
        low = np.asarray(mapping_of(direct, 5.0, np.ones(1)).weights)
        mean, rest = mapping.weights @ np.linalg.inv(low), mapping.noise @ mapping.noise.T
        inner, spread = low @ low.T, ROOT @ ROOT.T
        divergence = 0.5 * (
            np.trace(np.linalg.solve(inner, spread)) + MEAN @ np.linalg.solve(inner, MEAN) - 3
            + np.linalg.slogdet(inner)[1] - np.linalg.slogdet(spread)[1]
        )  # fmt: skip
        grid, weights = hermite()
        rewards = mean @ MEAN + grid @ np.linalg.cholesky(mean @ spread @ mean.T + rest).T
        expected_likelihood = weights @ (np.asarray(log_policies(direct, rewards)) * model.counts(data)).sum(
            (-2, -1)
        )
    np.testing.assert_allclose([divergence, expected_likelihood], [1.1452297354, -0.9942047453], rtol=1e-9)
    np.testing.assert_allclose(expected_likelihood - divergence, -2.1394344807, rtol=1e-9)


def test_evidence_and_posterior_by_quadrature():
    with jax.enable_x64(True):
        model, data = three_state()
        grid, weights = hermite()
        rewards = grid @ np.asarray(mapping_of(model, 5.0, np.ones(1)).weights).T
        log_policy = np.asarray(log_policies(model, rewards))
        likelihood = np.exp((log_policy * model.counts(data)).sum((-2, -1)))
        mass, policy = weights * likelihood, np.exp(log_policy)
    np.testing.assert_allclose(np.log(mass.sum()), -1.3577403816, rtol=1e-7)
    mean = mass @ rewards / mass.sum()
    np.testing.assert_allclose(mean, [0.0826816, 0.9062176, 0.0826816], atol=1e-6)
    np.testing.assert_allclose(mass @ policy[:, 0, 0] / mass.sum(), 0.6110380759, rtol=1e-6)


def test_log_likelihood_of_ragged_demonstrations_with_missing_actions():
    with jax.enable_x64(True):
        model, _ = three_state()
        data = Trajectories.from_list(states=[[0, 1, 2], [2]], actions=[[0, -1, 1], [1]])
        reward = np.array([0.3, -1.0, 2.0])
        log_policy = np.asarray(soft_values(model.mdp, reward).log_policy)
        value = np.stack([data.states, data.actions], -1)
        found = SoftPolicy(model.mdp, reward, length=3, lengths=data.lengths).log_prob(value)
        np.testing.assert_allclose(found, [log_policy[0, 0] + log_policy[2, 1], log_policy[2, 1]], rtol=1e-12)
        counts = demonstration_counts(model.mdp, data, check_transitions=False)
        rows = ActionCounts(jnp.asarray(log_policy), counts.sum(1)).log_prob(counts)
        np.testing.assert_allclose(rows.sum(), found.sum(), rtol=1e-12)


def test_forms_of_the_model_have_one_density():
    """Of trajectories or of counts, the joint density is that of normal rewards and the volume that whitens them."""
    with jax.enable_x64(True):
        model, data = three_state(scale_prior=dist.LogNormal(1.0, 0.5))
        white = np.array([0.3, -0.4, 1.1])
        low = np.asarray(mapping_of(model, 4.0, np.ones(1)).weights)
        one = density(model, data, scale=4.0, reward_white=white)
        log_policy = np.asarray(soft_values(model.mdp, low @ white).log_policy)
        counts = model.counts(data).astype(int)
        expected = stats.norm.logpdf(white).sum() + (counts * log_policy).sum()
        expected += stats.lognorm(0.5, scale=np.e).logpdf(4.0)
        np.testing.assert_allclose(one, expected, rtol=1e-10)
        third = density(model, counts, scale=4.0, reward_white=white)
        np.testing.assert_allclose(one, third, rtol=1e-12)


def test_scores_of_draws_take_the_rationality_into_account():
    """The likelihood, by which exported draws are scored, of two experts."""
    model, _ = three_state(rationality=2.0)
    data = Trajectories.from_list(states=[[0], [2]], actions=[[0], [1]], subject=[0, 1])
    rewards = np.array([[0.3, -1.0, 2.0], [1.0, 0.0, 0.5]])
    table = np.eye(3)[NEXT]
    policies = []
    for reward in 2 * rewards:
        values = np.zeros(3)
        for _ in range(400):
            ahead = reward[:, None] + 0.9 * table @ values
            values = np.logaddexp.reduce(ahead, axis=1)
        policies.append(ahead - values[:, None])
    entries = model.entries(data)
    assert entries.unit == "trajectory" and entries.batch.num_experts == 2
    found = jax.jit(log_likelihood)(model, {"reward": rewards}, entries.batch, entries.value).sum()
    np.testing.assert_allclose(found, policies[0][0, 0] + policies[1][2, 1], rtol=1e-10)


def test_what_is_no_state_or_action_has_no_probability():
    acts = SoftPolicy(small_mdps.three_state(), np.zeros(3), length=1)
    value = np.array([[[0, 0]], [[7, 0]], [[0, 5]], [[-1, -1]]])
    np.testing.assert_allclose(acts.log_prob(value), [np.log(0.5), -np.inf, -np.inf, 0], rtol=1e-6)


def test_features_of_the_world_are_taken_where_none_are_given():
    model = GPIRL(small_mdps.three_state())
    np.testing.assert_array_equal(model.features, [[1.0], [2.0], [3.0]])


@pytest.mark.slow
def test_new_counts_are_drawn_beside_those_that_were_seen():
    model, _ = three_state()
    counts = np.array([[4, 1], [0, 0], [2, 2]])
    new = Predictive(model, num_samples=3)(jax.random.key(0), counts, condition=False)["demonstrations"]
    assert (np.asarray(new).sum(-1) == [5, 0, 4]).all()


def test_several_experts_share_hyper_parameters_and_nothing_else():
    model, _ = three_state(scale_prior=dist.LogNormal(1.0, 0.5))
    data = Trajectories.from_list(
        states=[[0, 1], [2, 1], [1, 0]], actions=[[0, 1], [1, 0], [0, 0]], subject=[0, 1, 1]
    )
    drawn = Predictive(model, num_samples=5)(jax.random.key(0), data, condition=False)
    assert drawn["reward"].shape == (5, 2, 3) and drawn["demonstrations"].shape == (5, 3, 2, 2)
    assert (np.asarray(drawn["demonstrations"])[:, :, 0, 0] == [0, 2, 1]).all()
    assert model.counts(data)[1].sum() == 4


def test_names_of_the_demonstrations_are_those_of_the_world():
    world = MDP.deterministic([[0, 1], [1, 0]], state_names=("home", "away"), action_names=("stay", "go"))
    steps = {"states": [["home", "away"]], "actions": [["go", "stay"]]}
    names = Metadata(state_names=world.state_names, action_names=world.action_names)
    counts = [[0, 1], [1, 0]]
    assert demonstration_counts(world, Trajectories.from_list(**steps, metadata=names)).tolist() == counts
    with pytest.raises(ValueError, match=r"state_names\[0\] is 'away', and mdp.state_names\[0\] is 'home'"):
        demonstration_counts(world, Trajectories.from_list(**steps))
    bare = Trajectories.from_list(states=[[0, 1]], actions=[[1, 0]])
    assert demonstration_counts(world, bare).tolist() == counts
    numbered, numerals = dataclasses.replace(world, state_names=("1", "2")), r"mdp\.state_names are numerals"
    with pytest.raises(ValueError, match=numerals):
        demonstration_counts(numbered, bare)
    with pytest.raises(ValueError, match=numerals):
        numbered.with_history(2).rewrite(bare)
    counted = dataclasses.replace(world, state_names=("0", "1"))
    assert demonstration_counts(counted, bare).tolist() == counts


def test_simulated_demonstrations_follow_the_policy_and_the_world():
    random = np.random.default_rng(3)
    world = MDP.sparse(random.integers(0, 4, (4, 2, 2)), random.dirichlet([1, 1], (4, 2)), discount=0.7)
    reward = np.array([0.0, 1.0, -1.0, 0.5], np.float32)
    model = GPIRL(world, np.eye(4, dtype=np.float32)[:, :3])
    made = model.simulate(jax.random.key(0), num_trajectories=2000, length=5, parameters={"reward": reward})
    counts = demonstration_counts(world, made.data)
    policy = np.asarray(soft_values(world, reward).policy)
    shares = counts / counts.sum(1, keepdims=True)
    error = np.sqrt(policy * (1 - policy) / counts.sum(1, keepdims=True))
    assert (np.abs(shares - policy) < 5 * error).all()  # eight shares: fails by chance in 1 of 200 000 runs


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda w: GPIRL("world", [[1.0]]), TypeError, "mdp is str"),
        (lambda w: GPIRL(w, np.zeros((2, 1)) + np.arange(2.0)[:, None]), ValueError, "features has shape"),
        (lambda w: GPIRL(w, [[1.0], [np.nan], [2.0]]), ValueError, r"features\[1, 0\] is not finite"),
        (
            lambda w: GPIRL(w, [[1.0], [2.0], [3.0]], inducing=[0], conditional="none"),
            ValueError,
            'inducing is given, but conditional is "none"',
        ),
        (
            lambda w: GPIRL(w, [[1.0], [2.0], [3.0]], inducing=[0, 0]),
            ValueError,
            "must be unique points; 0 appears twice",
        ),
        (lambda w: GPIRL(w, [[1.0], [2.0], [3.0]], inducing=[5]), ValueError, "inducing has 5"),
        (lambda w: GPIRL(w, [[1.0], [2.0], [3.0]], noise=0.0), ValueError, "noise must be"),
        (lambda w: GPIRL(w, [[1.0], [2.0], [3.0]], relevance_prior=[1.0, 1.0]), ValueError, "relevance_prior must be"),
        (lambda w: GPIRL(w, [[1.0], [2.0], [3.0]], rationality=dist.HalfNormal(1.0)), ValueError, "both distributions"),
        (lambda w: GPIRL(w, [[1.0], [2.0], [3.0]], scale_prior=dist.Uniform(1.0, 2.0)), ValueError, "positive reals"),
        (lambda w: GPIRL(w, [[1.0], [2.0], [3.0]], scale_prior=dist.Normal(0.0, 1.0)), ValueError, "positive reals"),
        (lambda w: GPIRL(MDP.deterministic(NEXT), [[1.0], [2.0], [3.0]]), ValueError, "mdp.discount is 1"),
        (lambda w: GPIRL(MDP.deterministic(NEXT, discount=0.9)), ValueError, "features is None, and mdp has none"),
        (
            lambda w: GPIRL(
                MDP.deterministic(np.zeros((10_000, 1), int), discount=0.9),
                np.arange(10_000.0)[:, None],
                conditional="none",
            ),
            ValueError,
            "10000 points: .* bytes",
        ),
        (
            lambda w: GPIRL(w, [[1.0], [2.0], [3.0]]).simulate(
                jax.random.key(0), num_trajectories=1, length=1, parameters={"rewards": 1.0}
            ),
            ValueError,
            "parameters have no reward",
        ),
        (lambda w: SoftPolicy(w, np.zeros(3), length=1, start=np.array([9])), ValueError, "start has 9"),
    ],
)  # fmt: skip
def test_bad_models_are_refused_by_name(make, error, message):
    with pytest.raises(error, match=message):
        make(small_mdps.three_state())


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ("data", TypeError, "demonstrations is str"),
        (Trajectories.from_list(states=[[0, 0]], actions=[[0, 0]]), ValueError, "never leads there"),
        (Trajectories.from_list(states=[[0]], actions=[[7]]), ValueError, r"actions\[0, 0\] is 7"),
        (Trajectories.from_list(states=[[0]], actions=[[-1]]), ValueError, "no observed action"),
        (
            Trajectories.from_list(states=[[0], [1]], actions=[[0], [1]], subject=[0, -1]),
            ValueError,
            r"subject\[1\] is -1",
        ),
        (np.zeros((3, 2), int), ValueError, "is all 0"),
        (np.full((3, 2), -1), ValueError, "a count is 0 or more"),
        (np.ones((3, 2)), TypeError, "give integer counts"),
        (np.ones((2, 2), int), ValueError, r"give counts \(state, action\)"),
    ],
)
def test_bad_demonstrations_are_refused_by_name(data, error, message):
    model, _ = three_state()
    with pytest.raises(error, match=message):
        model.check(data)
        model.counts(data)


def test_a_step_of_probability_zero_is_taken_where_asked():
    model, _ = three_state(check_transitions=False)
    assert model.counts(Trajectories.from_list(states=[[0, 0]], actions=[[0, 0]])).sum() == 2


def test_a_constant_feature_is_told():
    with pytest.warns(UserWarning, match=r"1 features are constant, .*not identified"):
        GPIRL(small_mdps.three_state(), [[1.0, 2.0], [2.0, 2.0], [3.0, 2.0]])


def test_selected_points_by_kind():
    data = Trajectories.from_list(states=[[4, 2, 4]], actions=[[0, 1, 0]])
    world = MDP.deterministic(np.zeros((20, 2), int))
    assert select_inducing_points(data, world).tolist() == [2, 4]
    plus = select_inducing_points(data, world, kind="examplesplus", num=10, key=jax.random.key(0))
    assert len(plus) == 10 and {2, 4} <= set(plus.tolist()) and len(set(plus.tolist())) == 10
    assert len(select_inducing_points(data, world, kind="random", num=5, key=jax.random.key(0))) == 5
    assert len(select_inducing_points(data, world, kind="all")) == 20
    assert select_inducing_points(data).tolist() == [2, 4]
    assert select_inducing_points(data, world, pairs=True).tolist() == [
        5,
        8,
    ]  # state 2 by action 1, state 4 by action 0
    assert len(select_inducing_points(data, world, kind="all", pairs=True)) == 40
    with pytest.raises(TypeError, match="mdp is NoneType"):
        select_inducing_points(data, kind="all")
    with pytest.raises(ValueError, match="key is None"):
        select_inducing_points(data, world, kind="random", num=5)
    with pytest.raises(ValueError, match=r"kind must be 'examples', .* not 'best'"):
        select_inducing_points(data, world, kind="best")


@pytest.mark.parametrize("of_pairs", [False, True])
def test_features_far_from_zero_are_centred_before_they_are_rounded(of_pairs):
    """Covariances depend on differences; single precision knows none of 1e8 + (0, ..., 4)."""
    near = np.arange(5.0)[:, None]
    if of_pairs:
        near = np.stack([near, near[::-1] / 2], axis=1)
    corridor = MDP.deterministic(
        np.stack([np.maximum(np.arange(5) - 1, 0), np.minimum(np.arange(5) + 1, 4)], 1)
    )
    corridor = dataclasses.replace(corridor, discount=0.9)
    with jax.enable_x64(False):
        models = [GPIRL(corridor, features) for features in (near, near + 1e8)]
        points = [np.asarray(model.points) for model in models]
        assert points[0].dtype == np.float32 and models[1].dtype == np.float32
        np.testing.assert_array_equal(points[1], points[0])
        np.testing.assert_array_equal(models[1].centred().features, models[0].centred().features)
        if not of_pairs:
            inside = dataclasses.replace(corridor, features=near + 1e8)
            np.testing.assert_array_equal(GPIRL(inside).points, points[0])
            history = corridor.with_history(2)
            np.testing.assert_array_equal(np.ptp(history.features(near + 1e8), axis=0)[0], 4.0)
