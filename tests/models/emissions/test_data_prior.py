"""Priors of location and scale from the data: equivariance, textbook moments, warnings, and roles found anywhere."""

from __future__ import annotations

import warnings

import jax
import numpy as np
import pytest

from benchmarks import two_roles
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.roles import infer_roles
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission, GaussianMixtureEmission, KnownCovarianceEmission
from ethogram.models.emissions.data_prior import data_moments
from ethogram.models.roles import RoleHMM, role_hmm


def simulated(seed, offset=0.0, scale=1.0):
    return two_roles.simulate(jax.random.key(seed), offset, scale)


def fitted(data, emission, number=0, **options):
    model = RoleHMM(2, emission)
    return ConjugateSVI(model).run(
        jax.random.key(number), data, 100, restarts=3, progress_bar=False, **options
    )


@pytest.mark.slow
@pytest.mark.parametrize(("offset", "scale"), [(0, 1), (300, 1), (-4e3, 1e3), (1e6, 1e-3)])
def test_roles_are_found_wherever_the_data_lie(offset, scale):
    """By default arguments, in single precision; with a prior at 0 half of the frames were wrong from 300 on."""
    found = []
    for number in range(2):
        data, roles = simulated(number, offset, scale)
        path = infer_roles(fitted(data, GaussianEmission(2), number), data).probability.argmax(-1)
        found.append(max((path == roles).mean(), (path != roles).mean()))
    assert min(found) > 0.95


def test_moments_of_many_frames_far_from_zero_keep_their_digits():
    x = (1e4 + np.random.default_rng(0).standard_normal((4000, 100, 1))).astype(np.float32)
    data = Trajectories(x, None, None, np.full(4000, 100, np.int32), np.ones((4000, 100), bool))
    mean, covariance = data_moments(data, np.float64)
    assert float(mean[0]) == pytest.approx(x.astype(float).mean(), abs=1e-6)
    assert float(covariance[0, 0]) == pytest.approx(x.astype(float).var(), rel=1e-6)


def test_moments_are_those_of_the_observed_frames():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 8, 3)) * [1.0, 5.0, 0.0] + [0.0, 7.0, 2.0]
    x[..., 1] += x[..., 0]
    observed = rng.random((3, 8)) < 0.7
    data = Trajectories.from_list(list(x), observed=list(observed))
    moments = data_moments(data, np.float64)
    seen = x[observed]
    np.testing.assert_allclose(moments.mean, seen.mean(0), rtol=1e-6)
    expected = np.cov(seen.T, bias=True)
    expected[2, 2] = 1.0  # a feature that never varies
    off = ~np.eye(3, dtype=bool)
    covariance = np.asarray(moments.covariance)
    np.testing.assert_allclose(covariance[~off], expected[~off], rtol=1e-5)
    np.testing.assert_allclose(covariance[off], 0.999 * expected[off], rtol=1e-5, atol=1e-9)
    nothing = data._replace(observed=np.zeros_like(data.observed))
    np.testing.assert_array_equal(data_moments(nothing, np.float64).mean, np.zeros(3))
    np.testing.assert_array_equal(data_moments(nothing, np.float64).covariance, np.eye(3))
    jitted = jax.jit(lambda d: data_moments(d, np.float32))(
        data._replace(metadata=Trajectories.from_list([[[0.0]]]).metadata)
    )
    np.testing.assert_allclose(jitted.covariance, moments.covariance, rtol=1e-4, atol=1e-5)


def test_features_that_depend_on_one_another_leave_a_proper_prior():
    data, _ = simulated(0)
    twice = data._replace(observations=data.observations[..., [0, 0]])
    assert np.linalg.eigvalsh(GaussianEmission(2).bind(twice, 2).scale)[0] > 0


def test_parameters_that_are_given_stay():
    data, _ = simulated(0, offset=5.0)
    bound = GaussianEmission(2, mean=4.0).bind(data, 2)
    np.testing.assert_array_equal(bound.mean, [4.0, 4.0])
    moments = data_moments(data, np.float64)
    np.testing.assert_allclose(bound.scale, moments.covariance / 2, rtol=1e-5)
    np.testing.assert_allclose(
        GaussianEmission(2, dof=9.0).bind(data, 2).scale, 3 * moments.covariance, rtol=1e-5
    )
    mixture = GaussianMixtureEmission(2, 3, scale=2.0).bind(data, 2)
    np.testing.assert_array_equal(mixture.scale, 2 * np.eye(2))
    np.testing.assert_allclose(
        GaussianMixtureEmission(2, 3).bind(data, 2).scale, moments.covariance / 6, rtol=1e-5
    )
    np.testing.assert_allclose(mixture.mean, moments.mean, rtol=1e-6)
    known = KnownCovarianceEmission(np.eye(2), mean=np.array([4.0, 6.0])).bind(data, 2)
    np.testing.assert_array_equal(known.mean, [4.0, 6.0])
    np.testing.assert_allclose(known.mean_covariance, moments.covariance, rtol=1e-5)
    full = GaussianEmission(2, mean=4.0, scale=1.0)
    assert full.bind(data, 2) is full


@pytest.mark.parametrize(
    ("emission", "message"),
    [
        (lambda: GaussianEmission(2, mean=0.0, scale=1.0), "mean of feature 0 is 0, 30.* leave mean out"),
        (lambda: GaussianEmission(2, scale=1e4), "outweighs the data: scale of feature 1 is 10000"),
        (
            lambda: KnownCovarianceEmission(np.eye(2), mean=0.0, mean_covariance=1.0),
            "standard deviations of the prior from the mean 30",
        ),
    ],
)
def test_a_prior_far_from_the_data_warns(emission, message):
    data, _ = simulated(0, offset=300.0)
    with pytest.warns(UserWarning, match=message):
        emission().bind(data, 2)
    with pytest.warns(
        UserWarning, match=message
    ):  # as where "refresh" looks up the sites of the numpyro model
        jax.eval_shape(lambda: emission().bind(data, 2))


def test_a_prior_near_the_data_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for offset in (0.0, 40.0):
            GaussianEmission(2, mean=0.0, scale=1.0).bind(simulated(0, offset)[0], 2)


@pytest.mark.slow
def test_a_fit_continues_with_the_prior_it_began_with():
    """On other data too; the posterior carries what the prior was."""
    data, _ = simulated(0, offset=50.0)
    first = fitted(data, GaussianEmission(2))
    other, _ = simulated(1, offset=55.0)
    later = fitted(other, GaussianEmission(2), init=first)
    emissions = [result.posterior.model.emission for result in (first, later)]
    np.testing.assert_array_equal(emissions[0].mean, emissions[1].mean)
    np.testing.assert_array_equal(emissions[0].scale, emissions[1].scale)
    assert abs(float(emissions[0].mean[0]) - 51.5) < 1


def test_a_later_model_keeps_the_prior_of_an_earlier_one():
    bound = RoleHMM(2, GaussianEmission(2)).bind(simulated(0, offset=50.0)[0])
    later = RoleHMM(2, GaussianEmission(2)).bind(simulated(1, offset=55.0)[0], like=bound)
    np.testing.assert_array_equal(later.emission.mean, bound.emission.mean)
    np.testing.assert_array_equal(later.emission.scale, bound.emission.scale)
    assert abs(float(later.emission.mean[0]) - 51.5) < 1


def test_the_numpyro_model_takes_the_same_prior(monkeypatch):
    """Its sites are drawn from the prior that is bound to the data."""
    data, _ = simulated(0, offset=1e3)
    model, taken = RoleHMM(2, GaussianEmission(2)), []

    def take(prior, zeros):
        taken.append(prior)
        raise StopIteration

    monkeypatch.setattr(role_hmm, "sample_parameters", take)
    with pytest.raises(StopIteration):
        model(data)
    jax.tree.map(np.testing.assert_array_equal, taken[0], model.bind(data).prior())
    assert abs(np.mean(taken[0]["mean_covariance"].origin) - 1e3) < 50
