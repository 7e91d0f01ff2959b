"""Emissions against textbook formulas, scipy densities and draws from their own priors."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy import stats

from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import (
    BinomialEmission,
    CategoricalEmission,
    GaussianEmission,
    GaussianMixtureEmission,
    KnownCovarianceEmission,
)
from ethogram.models.families.exponential_family import Known, PartlyKnown, expected_statistics, natural_step
from ethogram.models.hooks import overrides

FAMILIES = ("gaussian", "known_covariance", "categorical", "binomial", "mixture")
NAN = float("nan")


@pytest.fixture(params=FAMILIES)
def name(request):
    return request.param


def close(actual, desired, rtol=1e-9, atol=1e-9):
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol)


def frames_of(cases, name, shape, seed=0):
    """Frames (..., feature)."""
    return cases.random_frames(np.random.default_rng(seed), name, shape)


def arranged(emission, frames):
    """Frames (..., feature) in the form that the expected log likelihood takes."""
    flat = np.asarray(emission.arrange(data_of(frames.reshape(1, -1, frames.shape[-1]))))
    return flat.reshape(frames.shape[:-1] + flat.shape[2:])


@jax.jit
def value_and_statistics(emission, blocks, frames, weight):
    """E log p(x), and the gradient of its weighted sum."""
    expected = expected_statistics(blocks)
    value, pullback = jax.vjp(lambda e: emission.expected_log_likelihood(e, frames), expected)
    return value, pullback(weight.astype(value.dtype))[0]


def fitted(cases, oracle, name):
    """An emission, the oracle's q of it, and the same as blocks."""
    case = cases.make(name)
    q = cases.start(case)
    own = {
        key: block
        for key, block in cases.blocks(case.model, q).items()
        if key not in ("initial", "transition")
    }
    return case.model.emission, q, own


@pytest.mark.parametrize(
    "double", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["float64", "float32"]
)
def test_expected_log_likelihood_and_its_gradient(cases, oracle, name, double):
    """Textbook E log p(x | phi_k); its gradient are the weighted sums of the frames."""
    tolerance = 1e-9 if double else 2e-4
    with jax.enable_x64(double), jax.numpy_rank_promotion("raise"):
        emission, q, blocks = fitted(cases, oracle, name)
        if not double:
            blocks = jax.tree.map(lambda x: x.astype(np.float32), blocks)
        frames = frames_of(cases, name, (3, 4))
        num_states = len(q.initial)
        weight = np.random.default_rng(1).random((3, 4, num_states))
        given = arranged(emission, frames.astype(np.float64 if double else np.float32))
        value, statistics = value_and_statistics(emission, blocks, given, weight)
    assert {x.dtype for x in jax.tree.leaves((value, statistics))} == {
        np.dtype(np.float64 if double else np.float32)
    }
    x = frames.reshape(12, -1).astype(float)
    each = q.family.log_likelihood(q.emission, x)
    flat = weight.reshape(12, num_states)
    if name == "mixture":
        parts, each = each, np.logaddexp.reduce(each, axis=-1)
        flat = flat[..., None] * np.exp(parts - each[..., None])
    close(value.reshape(12, -1), each, tolerance, tolerance)
    for key, sums in q.family.sums(x, flat, cases.origin_of(emission)).items():
        for actual, desired in zip(statistics[key], sums, strict=True):
            close(actual, desired, tolerance, tolerance)


@jax.jit
def density(emission, parameters, x):
    """Distribution at the parameters, and its log density."""
    distribution = emission.distribution(parameters)
    return distribution, distribution.log_prob(x)


def test_distribution_is_scipys(cases, oracle, name):
    """Densities at a point drawn from the prior, states on the last batch axis."""
    with jax.enable_x64(True):
        case = cases.make(name)
        emission, num_states = case.model.emission, case.model.num_roles
        frames = frames_of(cases, name, (5,), seed=3)
        p = cases.draw_emission(name, case.prior.emission, np.random.default_rng(9), 1)
        p = {key: x[0] for key, x in p.items()}
        assert {key: x.ndim for key, x in p.items()} == {
            key: len(dims) for key, dims in emission.site_dims.items()
        }
        distribution, actual = density(emission, p, frames[:, None])
        assert distribution.batch_shape == (num_states,)
        assert distribution.event_shape == (emission.num_features,)
    normal = stats.multivariate_normal.logpdf
    scipys = {
        "gaussian": lambda k: normal(frames, p["mean"][k], p["covariance"][k]),
        "known_covariance": lambda k: normal(frames, p["mean"][k], cases.COVARIANCE),
        "categorical": lambda k: np.log(p["probability"][k, frames[:, 0]]),
        "binomial": lambda k: stats.binom.logpmf(frames, cases.TOTAL, p["probability"][k]).sum(1),
        "mixture": lambda k: np.logaddexp.reduce(
            [
                np.log(p["weight"][k, m]) + normal(frames, p["mean"][k, m], p["covariance"][k, m])
                for m in range(2)
            ]
        ),
    }[name]
    close(actual, np.stack([scipys(k) for k in range(num_states)], 1))


def test_label_statistics_are_sums_over_labelled_frames(cases, oracle, name):
    """An empty state has none; a mixture deals the frames of a state out to its components."""
    with jax.enable_x64(True):
        emission, q, _ = fitted(cases, oracle, name)
        frames = frames_of(cases, name, (40,), seed=4)
        labels = np.random.default_rng(5).integers(0, 2, 40)
        given = arranged(emission, frames)
        actual = emission.label_statistics(np.random.default_rng(6), given, labels, 3)
    weight = (labels[:, None] == np.arange(3)).astype(float)
    if name == "mixture":
        assert (actual["weight"].concentration[:2] > 0).all()
        actual = {"mean_covariance": [part.sum(1) for part in actual["mean_covariance"]]}
        q = q._replace(family=type(q.family).__base__())
    for key, sums in q.family.sums(frames.astype(float), weight, cases.origin_of(emission)).items():
        for one, other in zip(actual[key], sums, strict=True):
            close(one, other)
            assert not np.any(np.asarray(one)[2])


def test_starts_see_frames_as_points():
    """Features as they are; symbols by how often they occur in their sequence, gaps left out."""
    x = np.array([[[1.0], [2.0]]])
    assert np.array_equal(GaussianEmission(1).start_features(x, np.ones((1, 2), bool)), x)
    counts = np.array([[[1], [3]]])
    assert np.array_equal(BinomialEmission(4).start_features(counts, np.ones((1, 2), bool)), counts)
    symbols, observed = (
        np.array([[0, 0, 2, -1], [1, 1, 1, 1]]),
        np.array([[True, True, True, False], [True] * 4]),
    )
    share = CategoricalEmission(3).start_features(symbols, observed)
    assert share.shape == (2, 4, 3)
    close(share, np.broadcast_to([[[2 / 3, 0, 1 / 3]], [[0, 1, 0]]], (2, 4, 3)))


def test_far_from_zero_in_single_precision(cases):
    """The prior mean is the origin: pixels at 1e4 lose nothing that their own spacing keeps."""
    rng = np.random.default_rng(7)
    x = np.float32(1e4 + rng.normal(size=(200, 2)))
    emission = GaussianEmission(2, mean=1e4, strength=0.1, dof=4.0, scale=1.0)
    gaussian = cases.role_families.Gaussian()
    q = gaussian.update(
        {
            "mean": np.full((1, 2), 1e4),
            "strength": np.array([0.1]),
            "dof": np.array([4.0]),
            "scale": np.eye(2)[None],
        },
        x.astype(float),
        np.ones((200, 1)),
    )
    prior = emission.prior(1)
    near, weight = arranged(emission, x), np.ones((200, 1))
    _, statistics = value_and_statistics(emission, prior, near, weight)
    blocks = jax.jit(natural_step)(prior, prior, statistics, 1.0, 1.0)
    value, _ = value_and_statistics(emission, blocks, near, weight)
    close(value, gaussian.log_likelihood(q, x.astype(float)), 1e-3, 1e-3)


def test_defaults():
    """D + 2 degrees of freedom, numbers spread over features and matrices."""
    standard = jax.jit(lambda block: block.standard())
    mean, strength, dof, scale = standard(
        GaussianEmission(3, mean=1.0, scale=2.0).prior(2)["mean_covariance"]
    )
    close(mean, np.ones((2, 3)))
    close(strength, [0.01, 0.01])
    close(dof, [5.0, 5.0], 1e-6)
    close(scale, np.stack([2 * np.eye(3)] * 2), 1e-6)
    close(
        standard(KnownCovarianceEmission(np.eye(2), mean_covariance=3.0).prior(1)["mean"])[1],
        3 * np.eye(2)[None],
        1e-6,
    )
    a, b = BinomialEmission(4, successes=2.0, num_features=3).prior(2)["probability"].standard()
    close(a, np.full((2, 3), 2.0))
    close(b, np.ones((2, 3)))
    assert GaussianMixtureEmission(2, 3, 0.5).prior(4)["weight"].standard().concentration.shape == (4, 3)


def test_known_rows():
    """Parameters of a state that the user knows."""
    mean = np.array([[0.0, 1.0], [NAN, NAN]])
    covariance = np.stack([np.eye(2), np.full((2, 2), NAN)])
    given = {
        "gaussian": GaussianEmission(2, known=Known((mean, covariance))).prior(2)["mean_covariance"],
        "known covariance": KnownCovarianceEmission(np.eye(2), known=Known(mean)).prior(2)["mean"],
        "categorical": CategoricalEmission(2, known=Known(np.array([[0.2, 0.8], [NAN, NAN]]))).prior(2)[
            "probability"
        ],
        "binomial": BinomialEmission(
            3, num_features=2, known=Known(np.array([[0.2, 0.8], [NAN, NAN]]))
        ).prior(2)["probability"],
    }
    for name, block in given.items():
        assert isinstance(block, PartlyKnown), name
        assert np.asarray(block.known).reshape(2, -1).all(1).tolist() == [True, False], name


def data_of(x):
    shape = x.shape[:2]
    return Trajectories(x, None, None, np.full(shape[0], shape[1]), np.ones(shape, bool))


SYMBOLS = np.array([[[0], [1], [2]]])
TWO = np.array([[1.0, 2.0], [2.0, 1.0]])
"""No covariance, though symmetric."""


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: GaussianEmission(0), ValueError, "num_features must be at least 1"),
        (lambda: GaussianEmission(2, scale=TWO), ValueError, "scale is not positive definite"),
        (lambda: GaussianEmission(3, dof=2.0), ValueError, "dof is too small for 3 features"),
        (lambda: GaussianEmission(2, strength=0.0), ValueError, "strength is not positive"),
        (lambda: GaussianEmission(2, mean=np.zeros(2, int)), TypeError, "mean has dtype int64, not a float"),
        (lambda: GaussianEmission(2, mean=NAN), ValueError, "mean is not finite"),
        (lambda: GaussianEmission(2, mean=np.zeros(3)), ValueError, r"mean has shape \(3,\): .* of shape \(state, 2\)"),
        (lambda: GaussianEmission(2, scale=np.eye(3)), ValueError, r"scale has shape \(3, 3\): .* of shape \(2, 2\)"),
        (lambda: GaussianEmission(2, dof=np.ones((2, 2))), ValueError, r"dof has shape \(2, 2\): it must be a number"),
        (lambda: KnownCovarianceEmission(np.triu(TWO)), ValueError, "covariance is not symmetric"),
        (lambda: KnownCovarianceEmission(-np.eye(2)), ValueError, "^covariance is not positive definite"),
        (lambda: KnownCovarianceEmission(np.ones(2)), ValueError, "covariance must be a"),
        (lambda: KnownCovarianceEmission(np.ones((2, 3))), ValueError, "covariance must be a"),
        (lambda: KnownCovarianceEmission(np.eye(2), mean_covariance=-1.0), ValueError, "^mean_covariance is not pos"),
        (lambda: KnownCovarianceEmission(np.eye(2), mean=[0.0, 0.0, 0.0]), ValueError, "mean has shape"),
        (lambda: GaussianMixtureEmission(2, 0), ValueError, "num_components must be at least 1"),
        (lambda: GaussianMixtureEmission(3, 2, dof=1.0), ValueError, "dof is too small"),
        (lambda: GaussianMixtureEmission(2, 2, strength=np.array([1.0, 2.0])), ValueError, "it must be a number$"),
        (lambda: CategoricalEmission(0), ValueError, "num_categories must be at least 1"),
        (lambda: CategoricalEmission(2, -1.0), ValueError, "is negative"),
        (lambda: CategoricalEmission(3, concentration=[1.0, 1.0]), ValueError, "concentration has shape"),
        (lambda: BinomialEmission(0), ValueError, "total_count must hold integers of at least 1"),
        (lambda: BinomialEmission(2.5), ValueError, "total_count must hold integers"),
        (lambda: BinomialEmission([5, 5, 5]), ValueError, r"total_count has shape \(3,\): give a number, or 1"),
        (lambda: BinomialEmission(2, failures=0.0), ValueError, r"failures\[0\] is not positive"),
        (lambda: BinomialEmission(5, num_features=0), ValueError, "num_features must be at least 1"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("emission", "x", "error", "message"),
    [
        (CategoricalEmission(2), SYMBOLS, ValueError, r"observations\[0, 2, 0\] lies outside the 2 categories"),
        (CategoricalEmission(3), SYMBOLS - 1, ValueError, r"observations\[0, 0, 0\] lies outside"),
        (CategoricalEmission(3), SYMBOLS + 0.5, ValueError, r"lies outside the 3 categories \(it is 0.5\)"),
        (CategoricalEmission(3), np.zeros((1, 3, 2), int), ValueError, "has 2 features, but the emission has num_feat"),
        (BinomialEmission(1), SYMBOLS, ValueError, r"observations\[0, 2, 0\] lies outside total_count"),
        (BinomialEmission(2), SYMBOLS - 1, ValueError, r"lies outside total_count \(it is -1.\): use 0..\[2\], or NaN"),
        (GaussianEmission(1), SYMBOLS == 1, TypeError, "observations has dtype bool: this emission needs numbers"),
        (GaussianEmission(1), None, ValueError, "observations is None"),
        (KnownCovarianceEmission(np.eye(2)), SYMBOLS + 0.0, ValueError, "has 1 features, but the emission has num_"),
    ],
)  # fmt: skip
def test_data_that_do_not_fit_are_refused(emission, x, error, message):
    with pytest.raises(error, match=message):
        emission.read(data_of(SYMBOLS)._replace(observations=x))


def test_missing_frames_may_hold_anything():
    """Symbols and counts outside their range, where not observed."""
    data = data_of(SYMBOLS * 100 - 50)._replace(observed=np.zeros((1, 3), bool))
    assert CategoricalEmission(2).arrange(data).shape == (1, 3)
    assert BinomialEmission(2).read(data).shape == (1, 3, 1)


def test_a_probability_known_to_be_zero_or_one():
    """Counts that it allows have the limit of small probabilities; others are impossible, never NaN."""
    counts = np.array([[0], [3], [5]])

    @jax.jit
    def values(blocks, counts):
        return BinomialEmission(5).expected_log_likelihood(expected_statistics(blocks), counts)

    priors = [BinomialEmission(5, known=Known(np.array([[p], [1 - p], [NAN]]))).prior(3) for p in (0.0, 1e-6)]
    got, near = (np.asarray(values(prior, counts)) for prior in priors)
    assert np.isneginf(got).tolist() == [[False, True, False], [True, True, False], [True, False, False]]
    np.testing.assert_allclose(got[0, 0], near[0, 0], atol=1e-4)
    np.testing.assert_allclose(got[2, 1], near[2, 1], atol=1e-4)


def test_known_components_of_a_mixture_are_held():
    """One component of one state, and another state's weights."""
    weight = np.array([[NAN, NAN], [0.25, 0.75]])
    mean = np.array([[[1.0], [NAN]], [[NAN], [NAN]]])
    covariance = np.where(np.isnan(mean), NAN, 2.0)[..., None]
    emission = GaussianMixtureEmission(1, 2, known=Known((weight, mean, covariance)))
    means = jax.jit(lambda blocks: {name: block.mean() for name, block in blocks.items()})(emission.prior(2))
    means = jax.tree.map(np.asarray, means)
    np.testing.assert_allclose(means["weight"][1], [0.25, 0.75])
    np.testing.assert_allclose(means["mean_covariance"].mean[0, 0], [1.0])
    np.testing.assert_allclose(means["mean_covariance"].covariance[0, 0], [[2.0]])
    with pytest.raises(ValueError, match="weight, mean, covariance"):
        GaussianMixtureEmission(1, 2, known=Known(weight)).prior(2)


@pytest.mark.parametrize(
    ("emission", "own"),
    [
        (CategoricalEmission(3), {"symbol_table"}),
        (GaussianEmission(2), {"chain_features", "chain_weights"}),
        (BinomialEmission(5), set()),
        (KnownCovarianceEmission(np.eye(2)), {"chain_features", "chain_weights"}),
        (GaussianMixtureEmission(1, 2), set()),
    ],
)
def test_hooks_of_the_chain_are_optional(emission, own):
    """The chain asks only for those that an emission defines."""
    arguments = {
        "symbol_table": ({},),
        "chain_features": (jax.device_put(np.zeros(1)), jax.device_put(np.ones(1))),
        "chain_weights": ({},),
    }
    assert {hook for hook in arguments if overrides(emission, hook)} == own
    for hook in arguments.keys() - own:
        with pytest.raises(NotImplementedError, match=f"{type(emission).__name__} has no method {hook}"):
            getattr(emission, hook)(*arguments[hook])


def test_a_subclass_keeps_the_hooks_of_the_chain():
    class Symbols(CategoricalEmission):
        pass

    assert overrides(Symbols(3), "symbol_table") and not overrides(Symbols(3), "chain_features")
