"""Missing features, against enumeration of paths, conditionals and integrals in NumPy."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import logsumexp

from ethogram.inference.conjugate.posterior import ConjugatePosterior, ConjugateResult
from ethogram.inference.conjugate.score_curve import heldout_log_likelihood
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import (
    AutoregressiveGaussianEmission,
    BinomialEmission,
    GaussianEmission,
    GaussianMixtureEmission,
    KnownCovarianceEmission,
)
from ethogram.models.emissions.data_prior import data_moments
from ethogram.models.emissions.emission import interpolated
from ethogram.models.emissions.missing_features import Gapped, MarginalNormal, blocks_of, filled_in, gapped
from ethogram.models.families.exponential_family import expected_statistics, natural_step, total_kl
from ethogram.models.roles.role_hmm import RoleHMM

NAN = np.nan


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


def with_gaps(data, share=0.2, seed=0):
    """The data with a share of every feature missing."""
    x = np.array(data.observations, float)
    x[np.random.default_rng(seed).random(x.shape) < share] = NAN
    return data._replace(observations=x, observed=np.asarray(data.observed) & ~np.isnan(x).all(-1))


def log_density(x, mean, covariance):
    there = ~np.isnan(x)
    if not there.any():
        return 0.0
    return stats.multivariate_normal(mean[there], covariance[np.ix_(there, there)]).logpdf(x[there])


def random_covariances(rng, *shape):
    root = rng.normal(size=(*shape, 3, 3))
    return root @ root.swapaxes(-1, -2) + np.eye(3)


EMISSIONS = {  # made in float64
    "gaussian": lambda: GaussianEmission(3, mean=0.0, scale=1.0),
    "mixture": lambda: GaussianMixtureEmission(3, 2, mean=0.0, scale=1.0),
    "known": lambda: KnownCovarianceEmission(np.diag([1.0, 0.5, 2.0]) + 0.3, mean=0.0, mean_covariance=1.0),
}
FRAMES = np.array([[0.3, NAN, -0.7], [NAN, 0.2, NAN], [1.0, -1.0, 0.5], [NAN, 0.4, 0.1], [2.0, NAN, NAN]])


@pytest.mark.parametrize(
    "name", ["gaussian", *(pytest.param(name, marks=pytest.mark.slow) for name in ("mixture", "known"))]
)
def test_log_evidence_is_the_sum_over_paths_of_conditionals(name):
    """Of two sequences, the second with a missing frame; slopes are finite, those of a mean also by differences."""
    emission = EMISSIONS[name]()
    model, rng = RoleHMM(2, emission), np.random.default_rng(1)
    pi, a, mean = np.array([0.3, 0.7]), np.array([[0.9, 0.1], [0.2, 0.8]]), rng.normal(size=(2, 2, 3))
    covariance, weight = random_covariances(rng, 2, 2), np.array([[0.4, 0.6], [0.9, 0.1]])
    sites = {"mean": mean, "covariance": covariance, "weight": weight}
    if name != "mixture":
        sites = {"mean": mean[:, 0], "covariance": covariance[:, 0]}
        weight = np.ones((2, 2))
    if name == "known":
        covariance = np.broadcast_to(np.asarray(emission.covariance), (2, 2, 3, 3))
    x = np.stack([FRAMES, FRAMES[::-1]])
    x[1, 1] = NAN
    data = Trajectories.from_list(x, missing="nan")
    step = np.zeros((2, 5, 2))
    for row, time, state in np.ndindex(step.shape):
        parts = zip(weight[state], mean[state], covariance[state], strict=True)
        own = [np.log(w) + log_density(x[row, time], m, c) for w, m, c in parts]
        step[row, time, state] = logsumexp(own[: 2 if name == "mixture" else 1])
    paths = list(itertools.product(range(2), repeat=5))
    walks = [np.log(pi[p[0]]) + sum(np.log(a[i, j]) for i, j in itertools.pairwise(p)) for p in paths]
    expected = [
        logsumexp([walk + own[range(5), path].sum() for walk, path in zip(walks, paths, strict=True)])
        for own in step
    ]
    parameters = {"initial": pi, "transition": a} | sites
    value = model.entries(data).value

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def densities(parameters):
        each = model.likelihood(parameters, data).log_prob(value)
        return each.sum(), each

    (total, each), slopes = densities(parameters)
    np.testing.assert_allclose(each, expected, rtol=1e-12)
    assert all(np.isfinite(slope).all() for slope in slopes.values())
    step = 1e-5 * (np.arange(sites["mean"].size) == sites["mean"].size - 1).reshape(sites["mean"].shape)
    rise = float(densities({**parameters, "mean": sites["mean"] + step})[0][0]) - float(total)
    np.testing.assert_allclose(np.asarray(slopes["mean"]).ravel()[-1], rise / 1e-5, rtol=1e-3)


def test_density_of_gaps_for_every_entry_of_a_batch():
    rng = np.random.default_rng(2)
    mean, covariance = rng.normal(size=(2, 3)), random_covariances(rng, 2)
    x = np.stack([FRAMES, FRAMES[::-1]], axis=1)
    expected = [[log_density(row[k], mean[k], covariance[k]) for k in range(2)] for row in x]
    found = jax.jit(lambda x: MarginalNormal(mean, covariance, 8).log_prob(x))(x)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_traced_data_may_or_may_not_have_gaps():
    """What is missing is not known when the density compiles."""
    rng = np.random.default_rng(2)
    sites = {"mean": rng.normal(size=(2, 3)), "covariance": random_covariances(rng, 2)}
    data, emission = Trajectories.from_list([FRAMES], missing="nan"), EMISSIONS["gaussian"]()

    @jax.jit
    def densities(x):
        return emission.distribution(sites, data._replace(observations=x[None])).log_prob(x[:, None])

    for x in (FRAMES, np.nan_to_num(FRAMES)):
        expected = [[log_density(row, *pair) for pair in zip(*sites.values(), strict=True)] for row in x]
        np.testing.assert_allclose(densities(x), expected, rtol=1e-12)


def fitted(emission, seed=3):
    """Expected statistics of a posterior of two states."""
    prior = emission.prior(2)
    rng = np.random.default_rng(seed)
    frames, labels = rng.normal(size=(12, 3)) + 1, np.arange(12) % 2
    statistics = emission.label_statistics(rng, frames, labels, 2)
    return jax.jit(lambda *x: expected_statistics(natural_step(*x, 1.0, 1.0)))(prior, prior, statistics)


@pytest.mark.parametrize("name", ["gaussian", "known", pytest.param("mixture", marks=pytest.mark.slow)])
def test_local_term_is_the_integral_over_missing_features(name):
    """By quadrature; its gradient by finite differences; and where nothing is missing, the usual term."""
    emission = EMISSIONS[name]()
    expected = fitted(emission)

    frames = gapped(FRAMES, np.ones(len(FRAMES), bool))
    weight = np.random.default_rng(4).random((len(FRAMES), 2))
    rng = np.random.default_rng(5)
    direction = jax.tree.map(lambda x: rng.normal(size=x.shape), expected)

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def score(step):
        along = jax.tree.map(lambda x, way: x + step * way, expected, direction)
        each = emission.expected_log_likelihood(along, frames)
        return jnp.sum(weight * each), each

    (_, value), slope = score(0.0)
    value, plain = np.asarray(value), jax.jit(emission.expected_log_likelihood)
    grid = np.linspace(-40, 40, 8001)
    for row in (0, 3):
        whole = np.where(np.isnan(FRAMES[row]), grid[:, None], FRAMES[row])
        both = np.asarray(plain(expected, jax.device_put(np.concatenate([whole, FRAMES[2:3]]))))
        np.testing.assert_allclose(value[2], both[-1], rtol=1e-12)
        integral = np.log(integrate.simpson(np.exp(both[:-1]), x=grid, axis=0))
        if name == "known":  # tighter: no trace of R^-1 V for what is missing
            assert (value[row] > integral).all()
            there = ~np.isnan(FRAMES[row])
            mean, square = map(np.asarray, expected["mean"])
            own = np.asarray(emission.covariance)[np.ix_(there, there)]
            spread = -2 * square - mean[:, :, None] * mean[:, None]
            integral = [
                log_density(FRAMES[row], np.asarray(m), np.asarray(emission.covariance))
                - 0.5 * np.trace(np.linalg.solve(own, np.asarray(v)[np.ix_(there, there)]))
                for m, v in zip(mean, spread, strict=True)
            ]
        np.testing.assert_allclose(value[row], integral, rtol=1e-9)
    above, below = (float(score(sign * 1e-6)[0][0]) for sign in (1, -1))
    np.testing.assert_allclose(slope, (above - below) / 2e-6, rtol=1e-6)


def test_blocks_hold_every_frame_once_beside_frames_with_the_same_gaps():
    missing = np.random.default_rng(6).random((50, 35)) < 0.5
    missing[:30] = missing[0]
    blocks = jax.jit(blocks_of, static_argnums=1)(missing, 32)
    frame, pattern = np.asarray(blocks.frame), np.asarray(blocks.pattern)
    assert sorted(frame[frame < 50]) == list(range(50))
    np.testing.assert_array_equal(frame.ravel()[np.asarray(blocks.slot)], np.arange(50))
    for members, number in zip(frame, pattern, strict=True):
        np.testing.assert_array_equal(
            missing[members[members < 50]], np.tile(blocks.missing[number], ((members < 50).sum(), 1))
        )


@jax.jit
def iteration(model, blocks, batch):
    """Blocks after one iteration of coordinate ascent, and the ELBO before."""
    prior = model.prior()
    expected = expected_statistics(blocks)
    value, statistics = jax.value_and_grad(lambda e: model.log_normalizer(e, batch))(expected)
    return natural_step(blocks, prior, statistics, 1.0, 1.0), value - total_kl(blocks, prior)


def ascend(model, data, num_steps):
    """A result, and its ELBOs."""
    batch = model.arrange(data)
    prior = model.prior()
    statistics = model.start_statistics(np.random.default_rng(0), "kmeans++", [batch])
    blocks, trace = jax.jit(natural_step)(prior, prior, statistics, 1.0, 1.0), []
    for _ in range(num_steps):
        blocks, value = iteration(model, blocks, batch)
        trace.append(float(value))
    return blocks, np.array(trace)


@pytest.mark.slow
def test_fits_with_gaps_are_closer_to_the_truth_than_without_their_frames():
    """ELBOs never fall; means are closer, and complete new data likelier."""
    mean = 1.2 * np.array([[-1, -1, -1, -1.0], [1, 1, 1, 1], [-1, 1, -1, 1]])
    covariance = np.tile(0.6 * np.eye(4) + 0.4, (3, 1, 1))
    truth = {"initial": np.ones(3) / 3, "transition": np.full((3, 3), 0.1) + 0.7 * np.eye(3)}
    truth = {**truth, "mean": mean, "covariance": covariance}
    model = RoleHMM(3, GaussianEmission(4, mean=0.0, scale=1.0))
    found = {"gaps": [], "dropped": []}
    test = model.simulate(jax.random.key(9), num_groups=16, lengths=40, parameters=truth).data
    for seed in range(2):
        whole = model.simulate(jax.random.key(seed), num_groups=8, lengths=20, parameters=truth).data
        data = with_gaps(whole, 0.3, seed)
        for name, given in {"gaps": data, "dropped": data.complete_frames()}.items():
            blocks, trace = ascend(model, given, 40)
            assert np.diff(trace).min() >= -1e-9 * abs(trace[-1])
            posterior = ConjugatePosterior(model, blocks)
            got = np.asarray(posterior.mean()["mean"])
            error = min(np.sum((got[list(order)] - mean) ** 2) for order in itertools.permutations(range(3)))
            result = ConjugateResult(posterior, *[None] * (len(ConjugateResult._fields) - 1))
            found[name].append((error, heldout_log_likelihood(result, test)))
    gaps, dropped = (np.mean(found[name], axis=0) for name in ("gaps", "dropped"))
    assert gaps[0] < 0.6 * dropped[0] and gaps[1] > dropped[1]


def test_priors_and_starts_use_what_is_there():
    rng = np.random.default_rng(8)
    x = rng.normal(size=(2, 200, 3)) @ np.array([[1.0, 0.9, 0], [0, 0.5, 0], [0, 0, 2]]) + 5
    data = with_gaps(Trajectories.from_list(x))
    found, whole = data_moments(data, float), data_moments(Trajectories.from_list(x), float)
    np.testing.assert_allclose(found.mean, np.nanmean(data.observations, axis=(0, 1)), rtol=1e-12)
    np.testing.assert_allclose(
        np.diag(found.covariance), np.nanvar(data.observations, axis=(0, 1)), rtol=1e-9
    )
    np.testing.assert_allclose(found.covariance, whole.covariance, atol=0.2)
    pairs = np.array([[[1.0, 1, NAN], [2, 2, NAN], [NAN, 1, 1], [NAN, 2, 2], [1, NAN, 2], [2, NAN, 1]]])
    odd = Trajectories.from_list(pairs, missing="nan")  # each pair agrees with no third
    assert np.linalg.eigvalsh(data_moments(odd, float).covariance).min() > 0
    line = np.array([[[0.0, NAN], [NAN, NAN], [2.0, NAN]], [[5.0, 7.0], [NAN, 7.0], [5.0, 7.0]]])
    filled = interpolated(line, np.ones((2, 3), bool))
    np.testing.assert_array_equal(filled, [[[0, 7], [1, 7], [2, 7]], [[5, 7]] * 3])
    np.testing.assert_array_equal(filled_in(line[0], np.array([0, 0, 1])), [[0, 0], [0, 0], [2, 0]])


def test_missing_counts_add_nothing():
    emission = BinomialEmission(np.array([5, 3]), num_features=2)
    both, first = np.array([[2.0, 3.0]]), np.array([[2.0, NAN]])

    @jax.jit
    def score(emission, x):
        return emission.expected_log_likelihood(expected_statistics(emission.prior(1)), x)

    second = float(score(emission, both)[0, 0]) - float(score(emission, first)[0, 0])
    np.testing.assert_allclose(second, score(BinomialEmission(np.array([3])), np.array([[3.0]]))[0, 0])
    density = jax.jit(lambda p, x: emission.distribution({"probability": p}).log_prob(x))
    np.testing.assert_allclose(density(np.full((1, 2), 0.3), first), stats.binom(5, 0.3).logpmf([2]))
    statistics = emission.label_statistics(np.random.default_rng(0), first, np.array([0]), 1)["probability"]
    np.testing.assert_array_equal(statistics, [[[2, 0]], [[3, 0]]])


def test_frames_without_features_are_missing_and_others_refuse_gaps():
    model = RoleHMM(2, GaussianEmission(3, mean=0.0, scale=1.0))
    x = np.concatenate([FRAMES, np.full((1, 3), NAN), FRAMES])
    data = Trajectories.from_list([x], missing="nan")
    assert data.observed.tolist() == [[True] * 5 + [False] + [True] * 5]
    assert isinstance(model.arrange(data).observations, Gapped)
    assert not isinstance(model.arrange(data.complete_frames()).observations, Gapped)

    with pytest.raises(
        ValueError, match=r"\[0, 0, 1\] is nan: a AutoregressiveGaussianEmission needs complete"
    ):
        RoleHMM(2, AutoregressiveGaussianEmission(3)).check(data)
