"""The role HMM against variational Bayes by enumeration, exact evidence, NUTS, and what must change nothing."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import pytest
from numpyro.infer import MCMC, NUTS, Predictive, log_likelihood

from ethogram.inference.conjugate_svi import ConjugateSVI
from ethogram.models.emissions import CategoricalEmission, GaussianEmission, KnownCovarianceEmission
from ethogram.models.exponential_family import Known, expected_statistics, total_kl
from ethogram.models.hidden_markov import HiddenMarkov
from ethogram.models.markov_chain import marginals
from ethogram.models.role_hmm import RoleHMM
from ethogram.models.trajectories import check

FAMILIES = ("gaussian", "known_covariance", "categorical", "binomial", "mixture")
CHAIN_ERRORS = ("first_likelihood", "expected_initial", "initial_count", "transition_from_one")
DOUBLE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=FAMILIES)
def case(request, cases, double):
    return cases.make(request.param)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **(tolerance or DOUBLE))


def same_parameters(cases, model, blocks, q, **tolerance):
    """Every block's usual parameters are the oracle's."""
    for name, parts in cases.parameters(model, q).items():
        for actual, desired in zip(blocks[name].standard(), parts, strict=True):
            close(actual, desired, **tolerance)


def gap(cases, model, blocks, q):
    """Largest difference of a usual parameter."""
    return max(
        np.max(np.abs(actual - desired))
        for name, parts in cases.parameters(model, q).items()
        for actual, desired in zip(blocks[name].standard(), parts, strict=True)
    )


@jax.jit
def posterior(model, q, chains):
    """State and pair marginals of the local step."""
    expected = expected_statistics(q)
    steps = model.step_potentials(expected, chains)
    initial, transition = expected["initial"].concentration, expected["transition"].concentration
    return marginals(initial, transition, steps, chains.lengths)


def test_local_step_equals_enumeration(case, cases, oracle):
    """Log evidence, marginals and statistics."""
    model, data, prior, problem = case
    q = cases.start(case)
    batch, blocks = model.arrange(data), cases.blocks(model, q)
    value, statistics, _, _ = cases.sweep(model, blocks, model.prior(), batch, 1.0, 1.0)
    local = oracle.local_step(q, problem)
    close(value, local.log_normalizer.sum())
    result = posterior(model, blocks, batch)
    close(result.log_normalizer, local.log_normalizer)
    close(result.state, local.state.sum(-1))
    close(result.pair, local.pair)
    first, pairs = oracle.chain_counts(q, problem, local)
    close(statistics["initial"].concentration, first)
    close(statistics["transition"].concentration, pairs)
    x, weight = problem.x[problem.observed].astype(float), oracle.frame_weights(prior, problem, local)
    for name, sums in prior.family.sums(x, weight, cases.origin(model)).items():
        for actual, desired in zip(statistics[name], sums, strict=True):
            close(actual, desired)


def test_coordinate_ascent_equals_enumeration(case, cases, oracle):
    """The bound after 0, 1, 2, 5 and 50 steps, and the parameters; it never falls."""
    model, data, prior, problem = case
    q = cases.start(case)
    batch, blocks = model.arrange(data), cases.blocks(model, q)
    bounds = []
    for count in range(51):
        _, _, bound, moved = cases.sweep(model, blocks, model.prior(), batch, 1.0, 1.0)
        bounds.append(float(bound))
        if count in (0, 1, 2, 5, 50):
            close(bound, oracle.elbo(q, prior, problem))
            same_parameters(cases, model, blocks, q)
        blocks, q = moved, oracle.step(q, prior, problem)
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:]))


@pytest.mark.parametrize(("rows", "scale"), [([0, 1, 3, 4], 2.0), (range(6), 1.0)], ids=["half", "all"])
def test_a_natural_gradient_step_equals_enumeration(case, cases, oracle, rows, scale):
    """Step size 0.3; half of the groups stand for all of them."""
    model, data, prior, problem = case
    q = cases.start(case)
    batch = model.arrange(cases.only(data, rows))
    _, _, _, blocks = cases.sweep(model, cases.blocks(model, q), model.prior(), batch, scale, 0.3)
    same_parameters(cases, model, blocks, oracle.step(q, prior, problem.only(list(rows)), 0.3, scale))


def test_misprints_would_show(case, cases, oracle):
    """Each printed error, were it built, moves the bound or the parameters by more than 1e-3."""
    model, data, prior, problem = case
    q = cases.start(case)
    batch, half = model.arrange(data), model.arrange(cases.only(data, [0, 1, 3, 4]))
    blocks = cases.blocks(model, q)
    _, _, bound, moved = cases.sweep(model, blocks, model.prior(), batch, 1.0, 1.0)
    _, _, _, mixed = cases.sweep(model, blocks, model.prior(), half, 2.0, 0.3)
    family, gaussian = cases.family_of(model), ("gaussian", "known_covariance", "mixture")
    for error in oracle.ERRORS:
        if error in ("first_likelihood", "expected_initial", "transition_from_one", "two_pi"):
            off = abs(bound - oracle.elbo(q, prior, problem, error))
            if error == "two_pi":  # a constant of every seen frame, or of none
                wanted = problem.observed.sum() * np.log(2 * np.pi) if family in gaussian else 0
                close(off, wanted)
                continue
            assert off > 1e-3, error
        if error in ("usual_mixing", "scalar_scale"):
            wrong = oracle.step(q, prior, problem.only([0, 1, 3, 4]), 0.3, 2.0, error)
            off = gap(cases, model, mixed, wrong)
            if error == "usual_mixing" and family not in gaussian:  # usual parameters are the natural ones
                close(off, 0.0)
                continue
        else:
            off = gap(cases, model, moved, oracle.step(q, prior, problem, error=error))
        assert off > 1e-3, error


def test_the_bound_lies_below_the_exact_evidence(cases, oracle, case):
    """All labellings of nine frames or fewer, parameters integrated out."""
    model, _, prior, _ = case
    name = cases.family_of(model)
    rng = np.random.default_rng(5)
    lengths = [3, 2] if name in ("mixture", "gaussian") else [3, 2, 2]
    problem = cases.random_problem(name, rng, lengths, np.arange(len(lengths)), [(1, 0)])
    batch = model.arrange(cases.trajectories(problem))
    evidence = oracle.exact_evidence(prior, problem).log_evidence
    for seed in range(3):
        q = cases.start(cases.Case(model, None, prior, problem), seed)
        blocks = cases.blocks(model, q)
        for _ in range(30):
            _, _, bound, blocks = cases.sweep(model, blocks, model.prior(), batch, 1.0, 1.0)
            assert bound <= evidence + 1e-9
        assert bound > evidence - 10


@pytest.mark.parametrize("name", FAMILIES)
def test_with_one_role_the_bound_is_the_evidence(cases, oracle, double, name):
    """A mixture of one component in one role, too."""
    rng = np.random.default_rng(6)
    problem = cases.random_problem(name, rng, [4, 3], [0, 1], [(0, 1)])
    emission = cases.emission(name)
    if name == "mixture":
        emission = type(emission)(2, 1, 1.3, cases.MEAN, cases.STRENGTH, cases.DOF, cases.SCALE)
    model = RoleHMM(1, emission, 0.7, 1.1)
    family, rows = cases.oracle_emission(name, 1, 1)
    prior = oracle.Prior(np.array([0.7]), np.array([[1.1]]), rows, family)
    batch = model.arrange(cases.trajectories(problem))
    _, _, _, blocks = cases.sweep(model, model.prior(), model.prior(), batch, 1.0, 1.0)
    _, _, bound, _ = cases.sweep(model, blocks, model.prior(), batch, 1.0, 1.0)
    close(bound, oracle.exact_evidence(prior, problem).log_evidence, rtol=1e-8)
