"""Exclusive roles against enumeration of all maps, exact evidence, and games of predators and prey."""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from numpyro.handlers import seed, trace
from numpyro.infer import log_likelihood
from numpyro.infer.util import log_density
from scipy import stats
from scipy.special import logsumexp

from ethogram.models.roles.per_sequence import ExclusiveRoles, log_num_maps
from ethogram.models.roles.role_hmm import RoleHMM

FAMILIES = [
    *("known_covariance", "mixture"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("gaussian", "categorical", "binomial")),
]
NAN = float("nan")
MEAN, SPREAD = np.array([-1.0, 0.0, 2.0, 0.5]), np.array([1.0, 0.5, 1.5, 2.0])


def close(actual, desired, tolerance=1e-9):
    np.testing.assert_allclose(actual, desired, rtol=tolerance, atol=tolerance)


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def groups(num_agents):
    """Two groups of agents with gaps and uneven lengths, NaN where nothing is to be looked at."""
    rng = np.random.default_rng(num_agents)
    lengths = rng.integers(0, 4, (2, num_agents))
    observed = (np.arange(3) < lengths[..., None]) & (rng.random((2, num_agents, 3)) < 0.8)
    y = np.where(observed, rng.normal(size=(2, num_agents, 3)), NAN)
    return y, lengths, observed


def by_maps(y, observed, allowed=None):
    """Log evidence of each group and the probability of every agent-role pair: all maps, one by one."""
    each = stats.norm.logpdf(np.nan_to_num(y)[..., None], MEAN, SPREAD)
    potentials = np.where(observed[..., None], each, 0).sum(2)
    if allowed is not None:
        potentials = np.where(allowed, potentials, -np.inf)
    num_agents = y.shape[1]
    maps = np.array(list(itertools.permutations(range(4), num_agents)))
    weight = potentials[:, np.arange(num_agents), maps].sum(-1)
    share = np.exp(weight - logsumexp(weight, axis=1, keepdims=True))
    pairs = np.einsum("gm,mak->gak", share, maps[..., None] == np.arange(4))
    return logsumexp(weight, axis=1) - np.log(len(maps)), pairs


@jax.jit
def value_and_pairs(roles, y):
    def total(mean):
        emission = dist.Normal(mean, roles.emission.scale)
        return jnp.sum(ExclusiveRoles(emission, roles.lengths, roles.observed, roles.states).log_prob(y))

    return roles.log_prob(y), roles.smooth(y), jax.grad(total)(roles.emission.loc)


@pytest.mark.parametrize("num_agents", [*(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4)), 3])
def test_log_prob_equals_enumeration_of_all_maps(double, num_agents):
    """Fewer agents than roles and as many; NaN at missing frames harms neither value nor gradient."""
    y, lengths, observed = groups(num_agents)
    emission = dist.Normal(MEAN, SPREAD, validate_args=False)
    roles = ExclusiveRoles(emission, lengths, observed)
    assert roles.batch_shape == (2,)
    assert roles.event_shape == (num_agents, 3)
    value, pairs, gradient = value_and_pairs(roles, y)
    evidence, truth = by_maps(y, observed)
    close(value, evidence)
    close(pairs, truth)
    gap = np.where(observed[..., None], (np.nan_to_num(y)[..., None] - MEAN) / SPREAD**2, 0)
    close(gradient, np.einsum("gak,gatk->k", truth, gap))


def test_known_roles_leave_fewer_maps(double):
    """Maps still count as uniform over all; two agents known in one role are impossible, without NaN."""
    y, lengths, observed = groups(3)
    lengths = np.maximum(lengths, 2)
    states = np.full((2, 3, 3), -1)
    states[0, 1, 0] = 2
    states[1, :2, 1] = 3
    allowed = np.ones((2, 3, 4), bool)
    allowed[0, 1], allowed[1, :2] = np.arange(4) == 2, np.arange(4) == 3
    emission = dist.Normal(MEAN, SPREAD, validate_args=False)
    roles = ExclusiveRoles(emission, lengths, observed, states)
    value, pairs, gradient = value_and_pairs(roles, y)
    evidence, truth = by_maps(y[:1], observed[:1], allowed[:1])
    close(value, [evidence[0], -np.inf])
    close(pairs, np.stack([truth[0], np.zeros((3, 4))]))
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("num_agents", [1, 3, 4])
def test_number_of_maps(num_agents):
    close(log_num_maps(num_agents, 4), np.log(math.perm(4, num_agents)))


@pytest.mark.slow
def test_draws_are_uniform_over_maps():
    """All 24 maps of three agents to four roles (chi-square, p > 1e-3); observations follow their role."""
    emission = dist.Normal(jnp.arange(4.0) * 100, 1.0)
    roles = ExclusiveRoles(emission, jnp.array([[3, 1, 3]]), jnp.ones((1, 3, 3), bool))
    y, held = jax.jit(lambda key: roles.sample_with_roles(key, (5000,)))(jax.random.key(0))
    y, held = np.asarray(y), np.asarray(held)
    assert y.shape == (5000, 1, 3, 3)
    assert held.shape == (5000, 1, 3)
    maps = [one for one in itertools.permutations(range(4), 3)]
    code = held[:, 0] @ [16, 4, 1]
    counts = [(code == one @ np.array([16, 4, 1])).sum() for one in np.array(maps)]
    assert sum(counts) == 5000
    assert stats.chisquare(counts).pvalue > 1e-3
    assert (y[:, 0, 1, 1:] == 0).all()
    assert np.abs(y[:, 0, 0] - 100 * held[:, 0, :1]).max() < 6


def test_more_agents_than_roles_are_refused():
    two = dist.Normal(MEAN[:2], SPREAD[:2], validate_args=False)
    with pytest.raises(ValueError, match="3 agents in 2 exclusive roles: give num_roles >= 3"):
        ExclusiveRoles(two, np.ones((1, 3)), np.ones((1, 3, 2), bool))


def exclusive_case(cases, oracle, name):
    """Two groups of two agents in three roles (a mixture: two)."""
    num_roles = 2 if name == "mixture" else 3
    lengths = [2, 1, 2, 2]
    problem = cases.random_problem(name, np.random.default_rng(3), lengths, [0, 0, 1, 1], [(2, 0)], 3)
    model = RoleHMM(num_roles, cases.emission(name), exclusive="per_sequence")
    family, rows = cases.oracle_emission(name, num_roles)
    prior = oracle.Prior(np.ones(num_roles), np.ones((num_roles, num_roles)), rows, family)
    return cases.Case(model, cases.trajectories(problem), prior, problem)


@pytest.mark.parametrize("name", FAMILIES)
def test_updates_equal_enumeration_and_stay_below_the_evidence(cases, oracle, double, name):
    """Log normaliser, statistics, bound and blocks over 10 updates; agents in another order change nothing."""
    case = exclusive_case(cases, oracle, name)
    model, data, prior, problem = case
    q, start = cases.start(case, 2), model.prior()
    blocks, batch = cases.blocks(model, q), model.arrange(data)
    turned = model.arrange(data.take(np.array([1, 0, 3, 2])))
    evidence = oracle.exclusive_evidence(prior, problem)
    x = problem.x[problem.observed].astype(float)
    sequence = np.nonzero(problem.observed)[0]
    last = -np.inf
    for _ in range(10):
        result = cases.sweep(model, blocks, start, batch, 1.0, 1.0)
        total, marginals = oracle.exclusive_local(q, problem)
        close(result.log_normalizer, total.sum())
        bound = total.sum() - prior.family.kl(q.emission, prior.emission)
        close(result.bound, bound)
        assert last - 1e-9 <= bound <= evidence + 1e-9
        weight = marginals[sequence]
        if name == "mixture":
            parts = prior.family.log_likelihood(q.emission, x)
            weight = weight[..., None] * np.exp(parts - logsumexp(parts, axis=-1, keepdims=True))
        for key, sums in prior.family.sums(x, weight, cases.origin_of(model.emission)).items():
            for actual, desired in zip(result.statistics[key], sums, strict=True):
                close(actual, desired)
        jax.tree.map(close, cases.sweep(model, blocks, start, turned, 1.0, 1.0), result)
        blocks, last = result.blocks, bound
        q = q._replace(emission=prior.family.update(prior.emission, x, weight))


@pytest.mark.slow
def test_as_a_numpyro_model(cases, oracle, double):
    """Only the emission's sites; groups in any order; one log likelihood a group."""
    model, data, _, problem = exclusive_case(cases, oracle, "known_covariance")
    mixed = data.take(np.array([2, 0, 3, 1]))

    def sites(key):
        return {name: site["value"] for name, site in trace(seed(model, key)).get_trace(mixed).items()}

    assert set(jax.eval_shape(sites, jax.random.key(0))) == {"mean", "group", "observations"}
    mean = np.random.default_rng(4).normal(size=(3, 2))
    each = np.stack(
        [stats.multivariate_normal.logpdf(np.nan_to_num(problem.x), one, cases.COVARIANCE) for one in mean],
        -1,
    )
    potentials = np.where(problem.observed[..., None], each, 0).sum(1)
    maps = np.array(list(itertools.permutations(range(3), 2)))
    wanted = [logsumexp(potentials[[a, a + 1], maps].sum(1)) - np.log(6) for a in (0, 2)]
    each = jax.jit(lambda mean: log_likelihood(model, {"mean": mean}, mixed)["observations"])(mean[None])
    close(each, [wanted])
    value = jax.jit(lambda mean: log_density(model, (mixed,), {}, {"mean": mean})[0])(mean)
    prior = sum(stats.multivariate_normal.logpdf(one, cases.MEAN, cases.SPREAD) for one in mean)
    close(value, prior + sum(wanted))
