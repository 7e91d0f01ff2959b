"""Switching autoregressions against sums over all paths in NumPy, closed forms of one state, and simulated truth."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer.util import log_density
from scipy import stats

from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.roles import infer_roles
from ethogram.models.chains import HiddenMarkov
from ethogram.models.data.trajectories import Metadata, Trajectories
from ethogram.models.emissions import AutoregressiveGaussianEmission, ProductEmission
from ethogram.models.emissions.autoregressive_gaussian import AutoregressiveGaussian
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.roles import RoleHMM

RNG = np.random.default_rng(1)
ORDER, LENGTHS = 2, (6, 5, 5, 2)
PARAMETERS = {
    "initial": np.array([0.3, 0.7]),
    "transition": np.array([[0.8, 0.2], [0.3, 0.7]]),
    "coefficients": 0.4 * RNG.normal(size=(2, 2, 5)),
    "covariance": stats.invwishart.rvs(6, np.eye(2), 2, RNG),
}


def small_data():
    """Four sequences of two features; a frame in the middle of the first is missing. Two groups of two agents."""
    data = Trajectories.from_list([3 + RNG.normal(size=(length, 2)) for length in LENGTHS])
    observed, x = np.array(data.observed), np.array(data.observations)
    observed[0, 2], x[0, 2] = False, np.nan
    group, agent = np.array([0, 0, 1, 1], np.int32), np.array([0, 1, 0, 1], np.int32)
    return data._replace(observed=observed, observations=x, group=group, agent=agent)


DATA = small_data()


def log_emissions(emission, data):
    """Log density (sequence, time, state) of the frames at the parameters, in NumPy; 0 where missing."""
    mean, start = np.asarray(emission.mean), np.asarray(emission.covariance)
    x, seen = np.asarray(data.observations), np.asarray(data.observed)
    found = np.zeros((*seen.shape, 2))
    for n, t in np.argwhere(seen):
        if t >= ORDER and seen[n, t - ORDER : t].all():
            past = np.concatenate([*(x[n, t - lag] - mean for lag in range(1, ORDER + 1)), [1.0]])
            for k in range(2):
                centre = mean + PARAMETERS["coefficients"][k] @ past
                found[n, t, k] = stats.multivariate_normal(centre, PARAMETERS["covariance"][k]).logpdf(
                    x[n, t]
                )
        else:
            found[n, t] = stats.multivariate_normal(mean, start).logpdf(x[n, t])
    return found


def log_chain(path):
    steps = itertools.pairwise(path)
    initial, transition = np.log(PARAMETERS["initial"]), np.log(PARAMETERS["transition"])
    return initial[path[0]] + sum(transition[i, j] for i, j in steps)


def test_evidence_is_a_sum_over_paths():
    """As the conjugate engine has it, at a point; as numpyro has it, with the prior, and with finite differences."""
    model = RoleHMM(2, AutoregressiveGaussianEmission(2, ORDER)).bind(DATA)
    each = log_emissions(model.emission, DATA)
    against = [
        np.logaddexp.reduce(
            [
                log_chain(path) + sum(each[n, t, k] for t, k in enumerate(path))
                for path in itertools.product(range(2), repeat=length)
            ]
        )
        for n, length in enumerate(LENGTHS)
    ]
    prior = model.prior()
    block = prior["coefficients_covariance"]
    own = np.asarray(jax.jit(block.whitened)(PARAMETERS["coefficients"]))

    @jax.jit
    def values(own, covariance):
        def engine(covariance):
            expected = {
                name: type(prior[name].natural)(jnp.log(PARAMETERS[name]))
                for name in ("initial", "transition")
            }
            point = (block.in_units(own), covariance)
            expected["coefficients_covariance"] = block.statistics(*point)
            return model.log_normalizer(expected, model.arrange(DATA))

        sites = {name: PARAMETERS[name] for name in ("initial", "transition")}
        sites |= {"coefficients_white": own, "covariance": covariance}
        scored = jax.value_and_grad(
            lambda own: log_density(model, (DATA,), {}, sites | {"coefficients_white": own})[0]
        )
        return engine(covariance), *scored(own)

    with numpyro.validation_enabled(False):  # whose checks of the prior would compile one by one
        engine, total, gradient = values(own, PARAMETERS["covariance"])
    np.testing.assert_allclose(engine, sum(against), rtol=1e-10)
    of_prior = sum(
        stats.invwishart.logpdf(s, 4, np.asarray(model.emission.scale))
        + stats.matrix_normal.logpdf(b, np.zeros((2, 5)), s, np.eye(5))
        for s, b in zip(PARAMETERS["covariance"], own, strict=True)
    )
    of_prior += 3 * stats.dirichlet.logpdf([0.5, 0.5], [1, 1])  # flat
    np.testing.assert_allclose(total, sum(against) + of_prior, rtol=1e-10)
    direction = RNG.normal(size=own.shape)
    ends = [float(values(own + step * direction, PARAMETERS["covariance"])[1]) for step in (-1e-5, 1e-5)]
    np.testing.assert_allclose(
        (ends[1] - ends[0]) / 2e-5, np.sum(np.asarray(gradient) * direction), rtol=1e-6
    )


@pytest.mark.parametrize("exclusive", ["per_sequence", "per_frame"])
def test_exclusive_roles_sum_over_maps(exclusive):
    """Two agents in two roles: in every frame, or once, they have one order or the other."""
    model = RoleHMM(2, AutoregressiveGaussianEmission(2, ORDER), exclusive=exclusive).bind(DATA)
    each = log_emissions(model.emission, DATA)
    against = []
    for one, other in ((0, 1), (2, 3)):
        frames = max(LENGTHS[one], LENGTHS[other])
        paths = itertools.product(range(2), repeat=frames if exclusive == "per_frame" else 1)
        total = []
        for path in paths:
            path = np.array(path) if exclusive == "per_frame" else np.full(frames, path[0])
            weight = np.log(0.5) if exclusive == "per_sequence" else log_chain(path) + log_chain(1 - path)
            steps = np.arange(frames)
            total.append(weight + each[one, steps, path].sum() + each[other, steps, 1 - path].sum())
        against.append(np.logaddexp.reduce(total))
    value = model.entries(DATA).value
    found = jax.jit(lambda p: model.likelihood(p, DATA).log_prob(value))(PARAMETERS)
    np.testing.assert_allclose(found, against, rtol=1e-10)


def test_expected_log_density_is_a_mean_over_draws():
    """Within four standard errors of 4000 draws of q; statistics of labelled frames are those of its gradient."""
    emission = AutoregressiveGaussianEmission(2, ORDER, strength=3.0, dof=9.0).bind(DATA, 2)
    prior = emission.prior(2)
    labels, rows = RNG.integers(2, size=DATA.observed.shape), emission.arrange(DATA)
    weight = np.eye(2)[labels] * DATA.observed[..., None]

    @jax.jit
    def likelihood(prior, rows):
        expected = expected_statistics(prior)
        value, pull = jax.vjp(lambda e: emission.expected_log_likelihood(e, rows), expected)
        return value, pull(weight)[0]

    rows = np.where(DATA.observed[..., None], rows, 0)
    value, statistics = likelihood(prior, rows)
    own = emission.label_statistics(RNG, rows[DATA.observed], labels[DATA.observed], 2)
    for one, other in zip(jax.tree.leaves(own), jax.tree.leaves(statistics), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)
    found = np.asarray(value)[1, 2:4]
    block, x = prior["coefficients_covariance"], np.asarray(DATA.observations)[1] - np.asarray(emission.mean)
    coefficients, covariance = block.sample_numpy(np.random.default_rng(0), 4000)
    for t in (2, 3):
        past = np.concatenate([x[t - 1], x[t - 2], [1.0]])
        gap = x[t] - coefficients @ past
        square = np.einsum("nki,nkij,nkj->nk", gap, np.linalg.inv(covariance), gap)
        each = -0.5 * square - 0.5 * np.linalg.slogdet(2 * np.pi * covariance)[1]
        assert (np.abs(each.mean(0) - found[t - 2]) < 4 * each.std(0) / np.sqrt(4000)).all()


def test_forecasts_of_one_state_are_gaussian():
    """Means and variances three steps ahead in closed form; N(m, S) where the last frame is missing."""
    coefficients, covariance = PARAMETERS["coefficients"][:1], PARAMETERS["covariance"][:1]
    mean, start = np.array([3.0, 4.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
    x = 3 + RNG.normal(size=(2, 4, 2))
    observed = np.array([[True] * 4, [True, True, True, False]])

    @jax.jit
    def forecast(key, y):
        emission = AutoregressiveGaussian(coefficients, covariance, mean, start)
        chain = HiddenMarkov(np.ones(1), np.ones((1, 1)), emission, np.array([4, 4]), observed)
        return chain.forecast(key, y, 3).observations

    drawn = np.asarray(forecast(jax.random.key(0), np.broadcast_to(x, (4000, *x.shape))))
    shift = np.zeros((5, 5))  # of the state (y_t, y_{t-1}, 1)
    shift[:2], shift[2:4, :2], shift[4, 4] = coefficients[0], np.eye(2), 1
    now, spread = np.concatenate([x[0, 3] - mean, x[0, 2] - mean, [1.0]]), np.zeros((5, 5))
    for step in range(3):
        now, spread = shift @ now, shift @ spread @ shift.T
        spread[:2, :2] += covariance[0]
        draws = drawn[:, 0, step]
        error = np.sqrt(np.diag(spread)[:2] / 4000)
        assert (np.abs(draws.mean(0) - mean - now[:2]) < 4.5 * error).all()
        np.testing.assert_allclose(draws.var(0), np.diag(spread)[:2], rtol=4.5 * np.sqrt(2 / 4000))
    fresh = drawn[:, 1, 1]  # the second frame has no past either, of order 2
    np.testing.assert_allclose(np.cov(fresh.T), start, atol=0.15)


def test_the_prior_follows_origin_and_units():
    """Rows that the engine sees are the same, also at an offset of a million in single precision."""
    x = np.cumsum(np.random.default_rng(0).normal(size=(3, 50, 2)), axis=1)

    def rows(x, dtype):
        with jax.enable_x64(dtype == np.float64):
            data = Trajectories.from_list(list(x))
            emission = AutoregressiveGaussianEmission(2, ORDER).bind(data, 3)
            found = np.array(emission.arrange(data))
            return found / [*np.sqrt(np.diagonal(emission.scale)), *np.ones(6), 1], emission

    there, _ = rows(x, np.float64)
    moved, bound = rows(x * [1e-3, 50.0] + 1e6 * np.array([1e-3, 50.0]), np.float64)
    np.testing.assert_allclose(moved[..., :-1], there[..., :-1], rtol=1e-6, atol=1e-7)
    single, _ = rows(x + 1e6, np.float32)
    np.testing.assert_allclose(
        single[..., :-1], there[..., :-1], atol=0.05
    )  # a mean of 1e6 is rounded to 0.06
    assert bound.with_prior_of(bound) is bound and bound.bind(DATA, 3) is bound


def switching_rotations(num_sequences=6, num_steps=120):
    """Two states that turn one way or the other: their frames have one and the same stationary distribution."""
    rng = np.random.default_rng(0)
    cosine, sine = 0.95 * np.cos(0.5), 0.95 * np.sin(0.5)
    turn = np.array([[[cosine, -sine], [sine, cosine]], [[cosine, sine], [-sine, cosine]]])
    states = np.zeros((num_sequences, num_steps), int)
    x = rng.normal(size=(num_sequences, num_steps, 2))
    for n, t in np.ndindex(num_sequences, num_steps):
        states[n, t] = states[n, t - 1] ^ (rng.random() < 0.04) if t else rng.integers(2)
        if t:
            x[n, t] = turn[states[n, t]] @ x[n, t - 1] + np.sqrt(1 - 0.95**2) * x[n, t]
    return Trajectories.from_list(list(x), metadata=Metadata(feature_names=("x", "y"))), states, turn


@pytest.mark.slow
def test_states_that_differ_in_dynamics_alone():
    """Which Gaussians of single frames cannot tell apart: `docs/emissions.md` has both numbers."""
    data, states, turn = switching_rotations()
    model = RoleHMM(2, AutoregressiveGaussianEmission(2), sticky=5.0)
    fit = ConjugateSVI(model).run(jax.random.key(0), data, 40, restarts=2, progress_bar=False)
    right = np.mean(infer_roles(fit.posterior, data).path == states)
    assert max(right, 1 - right) > 0.95
    found = np.asarray(fit.posterior.mean()["coefficients"])[..., :2]
    np.testing.assert_allclose(found[np.argsort(found[:, 0, 1])], turn, atol=0.1)


def test_names_of_regressors():
    data, *_ = switching_rotations(1, 5)
    dims, coords = RoleHMM(2, AutoregressiveGaussianEmission(2, 2)).site_layout(data)
    assert dims["coefficients"] == ("state", "feature", "regressor")
    assert coords["regressor"] == ["x lag 1", "y lag 1", "x lag 2", "y lag 2", "intercept"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AutoregressiveGaussianEmission(2, 0), "order"),
        (lambda: AutoregressiveGaussianEmission(2, strength=0.0), "strength is not positive"),
        (lambda: AutoregressiveGaussianEmission(2, coefficients=np.eye(2)), r"must be a number or of shape \(2, 3\)"),
        (lambda: AutoregressiveGaussianEmission(2, covariance=-1.0), "covariance is not positive definite"),
        (
            lambda: RoleHMM(2, AutoregressiveGaussianEmission(2)).check(
                DATA._replace(observations=np.where(np.arange(2) == 1, np.nan, np.asarray(DATA.observations)))
            ),
            "complete frames",
        ),
        (lambda: ProductEmission({"pose": AutoregressiveGaussianEmission(2)}), "has lags"),
    ],
)  # fmt: skip
def test_bad_input(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
