"""The role HMM as a numpyro model: sites, densities, predictive draws, simulation."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpyro.handlers import seed, trace
from numpyro.infer import Predictive, log_likelihood
from numpyro.infer.util import log_density
from scipy import stats

from ethogram.models.data.trajectories import Trajectories, check
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.families.exponential_family import Known, expected_statistics, total_kl
from ethogram.models.roles.role_hmm import RoleHMM

NAN = float("nan")


def close(actual, desired, rtol=1e-9, atol=1e-9):
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol)


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def chain_evidence(chain_oracle, parameters, steps, lengths):
    """Log evidence of each sequence at given parameters, by enumeration."""
    log_initial, log_transition = np.log(parameters["initial"]), np.log(parameters["transition"])
    return np.array(
        [
            chain_oracle.enumerate_chain(log_initial, log_transition, one, length).log_normalizer
            for one, length in zip(steps, lengths, strict=True)
        ]
    )


@pytest.mark.slow
def test_log_density_is_prior_times_evidence(cases, chain_oracle, double):
    """At parameters drawn from the prior; NaN at missing frames harms neither the value nor the gradient."""
    case = cases.make("gaussian")
    model, data = case.model, case.data
    assert np.isnan(data.observations).any()
    at = {name: x[0] for name, x in cases.draw("gaussian", case.prior, np.random.default_rng(0), 1).items()}
    assert {name: x.ndim for name, x in at.items()} == {
        name: len(dims) for name, dims in model.site_dims().items()
    }

    @jax.jit
    @jax.value_and_grad
    def density(parameters):
        return log_density(model, (data,), {}, parameters)[0]

    value, gradient = density(at)
    prior = stats.dirichlet.logpdf(at["initial"], case.prior.initial)
    rows = zip(at["transition"], case.prior.transition, strict=True)
    prior += sum(stats.dirichlet.logpdf(row / row.sum(), concentration) for row, concentration in rows)
    steps = np.zeros((*data.observed.shape, 3))
    for k, (mean, covariance) in enumerate(zip(at["mean"], at["covariance"], strict=True)):
        prior += stats.invwishart.logpdf(covariance, cases.DOF, cases.SCALE)
        prior += stats.multivariate_normal.logpdf(mean, cases.MEAN, covariance / cases.STRENGTH)
        inside = stats.multivariate_normal.logpdf(data.observations[data.observed], mean, covariance)
        steps[data.observed, k] = inside
    evidence = chain_evidence(chain_oracle, at, steps, data.lengths)
    close(value, prior + evidence.sum(), rtol=1e-8)
    assert all(np.isfinite(part).all() for part in gradient.values())
    each = jax.jit(lambda at: log_likelihood(model, at, data)["observations"])
    close(each({name: x[None] for name, x in at.items()}), evidence[None])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gaussian", "categorical"])
def test_predictive_keeps_shapes_and_lengths(cases, name):
    """``condition=False`` samples what ``condition=True`` looks at, zero beyond a length."""
    case = cases.make(name)
    parameters = cases.draw(name, case.prior, np.random.default_rng(1), 3)
    parameters = {site: np.float32(x) for site, x in parameters.items()}
    draws = Predictive(case.model, parameters)(jax.random.key(0), case.data, condition=False)
    assert "observations" in draws
    value = np.asarray(draws["observations"])
    shape = case.model.entries(case.data).value.shape
    assert value.shape == (3, *shape)
    assert value.dtype.kind == case.data.observations.dtype.kind
    beyond = np.arange(shape[1]) >= case.data.lengths[:, None]
    assert np.all(value[:, beyond] == 0)


def known_model():
    """Two roles of which all is known but the second row of the transitions."""
    means, covariances = np.array([[0.0, 0.0], [2.0, 1.0]]), np.array([np.eye(2), 0.5 * np.eye(2)])
    emission = GaussianEmission(2, known=Known((means, covariances)))
    return RoleHMM(2, emission, Known(np.array([0.3, 0.7])), Known(np.array([[0.9, 0.1], [NAN, NAN]])), 1.0)


@pytest.mark.slow
def test_where_all_is_known_the_bound_is_the_log_likelihood(cases, double):
    """No divergence is left, and the potentials are the true ones."""
    base, data = known_model(), cases.make("gaussian").data
    transition = np.array([[0.9, 0.1], [0.4, 0.6]])
    model = RoleHMM(2, base.emission, base.initial, Known(transition))
    prior = model.prior()
    assert float(total_kl(prior, prior)) == 0
    parameters = {
        "initial": jnp.array([0.3, 0.7]),
        "transition": jnp.asarray(transition),
        "mean": base.emission.known.value[0],
        "covariance": base.emission.known.value[1],
    }
    bound = cases.sweep(model, prior, prior, model.arrange(data), 1.0, 1.0).bound
    exact = jax.jit(lambda at: model.likelihood(at, data).log_prob(model.entries(data).value))(parameters)
    close(bound, exact.sum())
    close(exact[3], 0.0)  # never seen: evidence one


@pytest.mark.slow
def test_a_model_as_argument_of_jit_keeps_what_is_forbidden(cases):
    """The same density from a traced model as from a concrete one, at sites of the same names."""
    case = cases.make("categorical")
    concentration = np.array([[2.0, 3.0, 0.0], [1.0, 1.0, 1.0], [0.0, 0.0, 4.0]])
    model = RoleHMM(3, case.model.emission, transition=concentration)

    @jax.jit
    def sites(key):
        found = trace(seed(model, key)).get_trace(case.data).values()
        return {x["name"]: x["value"] for x in found if x["type"] == "sample" and not x["is_observed"]}

    at = sites(jax.random.key(0))
    assert "transition_free" in at
    density = jax.jit(lambda model, at: log_density(model, (case.data,), {}, at)[0])(model, at)
    assert np.isfinite(density)
    close(density, jax.jit(lambda at: log_density(model, (case.data,), {}, at)[0])(at), rtol=1e-5)


def test_sticky_is_added_to_staying():
    """Once to every row's own entry, also beside known rows."""
    model = RoleHMM(3, CategoricalEmission(2), transition=0.5, sticky=4.0)
    close(model.prior()["transition"].natural.concentration, 0.5 + 4 * np.eye(3))
    close(model.prior()["initial"].natural.concentration, np.ones(3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "exclusive"),
    [
        *((name, None) for name in ("gaussian", "binomial", "mixture")),
        ("known_covariance", "per_sequence"),
        ("categorical", "per_sequence"),
    ],
)
def test_simulated_data_pass_the_checks(cases, name, exclusive):
    """Shapes, groups, lengths, and the truth behind them; parameters are drawn where none are given."""
    case = cases.make(name)
    model = RoleHMM(case.model.num_roles, case.model.emission, exclusive=exclusive)
    given = None
    if name != "known_covariance":
        given = {
            site: np.float32(x[0])
            for site, x in cases.draw(name, case.prior, np.random.default_rng(2), 1).items()
        }
    lengths = np.array([3, 5, 2, 5])
    data, states, parameters = model.simulate(jax.random.key(4), 4, 2, lengths, parameters=given)
    check(data)
    model.check(data)
    assert data.lengths.tolist() == np.repeat(lengths, 2).tolist()
    assert data.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert data.agent.tolist() == [0, 1] * 4
    assert data.observations.dtype.kind == case.data.observations.dtype.kind
    states = np.asarray(states)
    assert states.shape == (8, 5)
    assert np.array_equal(states >= 0, data.observed)
    assert set(parameters) >= set(model.site_dims())
    if exclusive:
        assert all(len(set(states[data.group == group, 0])) == 2 for group in range(4))
        assert np.array_equal(states, np.where(data.observed, states[:, :1], -1))


@pytest.mark.slow
@pytest.mark.parametrize("exclusive", [None, "per_sequence"])
def test_known_roles_in_the_padding_mean_nothing(exclusive):
    """For the bound, the evidence and the checks alike, whatever number stands there."""
    x = np.random.default_rng(0).integers(2, size=(2, 5, 1))
    inside = np.arange(5) < np.array([[3], [5]])
    labels = {"agent": np.array([0, 1]), "group": np.array([0, 0])}
    known = np.where(inside, -1, 0)
    known[1, 4] = 1

    def data(padding):
        states = np.where(inside, known, padding)
        return Trajectories(x, states, None, np.array([3, 5], np.int32), inside, **labels)

    model = RoleHMM(2, CategoricalEmission(2), exclusive=exclusive, known_roles=True)
    expected = jax.jit(expected_statistics)(model.prior())
    local, evidence = jax.jit(model.log_normalizer), jax.jit(lambda density, x: density.log_prob(x).sum())
    parameters = {"initial": np.full(2, 0.5), "transition": np.full((2, 2), 0.5)}
    parameters["probability"] = np.array([[0.7, 0.3], [0.4, 0.6]])
    results = []
    for padding in (-1, 0, 1, 7):
        one = data(padding)
        density = model.likelihood(parameters, one)
        total = evidence(density, model.entries(one).value)
        results.append((float(local(expected, model.arrange(one))), float(total)))
        model.check(one)
    assert np.isfinite(results).all()
    np.testing.assert_array_equal(results, [results[0]] * 4)


@pytest.mark.slow
@pytest.mark.parametrize("exclusive", [None, "per_sequence"])
def test_replicates_keep_the_known_roles(exclusive):
    """Role 0 speaks 0, role 1 speaks 1: what is drawn shows the roles that are known, and only these are fixed."""
    states = np.array([[0, 0, -1, 0], [-1, -1, -1, -1]])
    labels = {"agent": np.array([0, 1]), "group": np.array([0, 0])}
    data = Trajectories(
        np.zeros((2, 4, 1), int), states, None, np.full(2, 4, np.int32), np.ones((2, 4), bool), **labels
    )
    model = RoleHMM(2, CategoricalEmission(2), exclusive=exclusive, known_roles=True)
    parameters = {"initial": np.full(2, 0.5), "transition": np.full((2, 2), 0.5), "probability": np.eye(2)}
    density = model.likelihood(parameters, data)
    draws = np.asarray(jax.jit(lambda density, key: density.sample(key, (200,)))(density, jax.random.key(0)))
    draws = draws.reshape(200, 2, 4)
    assert (draws[:, 0, [0, 1, 3]] == 0).all()
    if exclusive:
        assert (draws[:, 0] == 0).all() and (draws[:, 1] == 1).all()
    else:  # four standard errors of 200 fair coins
        assert (np.abs(draws[:, 1].mean(axis=0) - 0.5) < 0.15).all()
        assert abs(draws[:, 0, 2].mean() - 0.5) < 0.15


def test_sticky_makes_nothing_possible_that_is_forbidden():
    model = RoleHMM(2, CategoricalEmission(2), transition=np.array([[0.0, 1.0], [1.0, 2.0]]), sticky=5.0)
    np.testing.assert_array_equal(model.prior()["transition"].natural.concentration, [[0, 1], [1, 7]])


def test_a_model_can_be_changed_in_part():
    model = RoleHMM(2, CategoricalEmission(2), transition=Known(np.eye(2)))
    other = dataclasses.replace(model, emission=CategoricalEmission(3))
    assert other.emission.num_categories == 3 and isinstance(other.transition, Known)
