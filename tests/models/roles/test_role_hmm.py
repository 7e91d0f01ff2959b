"""The role HMM against variational Bayes by enumeration, exact evidence, and what must change nothing."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from ethogram.models.chains.markov_chain import marginals
from ethogram.models.families.exponential_family import expected_statistics
from ethogram.models.roles.role_hmm import RoleHMM

FAMILIES = [  # a chain with features of its own, and one with a table of symbols; others in the slow tier
    *("gaussian", "categorical"),
    *(pytest.param(name, marks=pytest.mark.slow) for name in ("known_covariance", "binomial", "mixture")),
]
DOUBLE = {"rtol": 1e-9, "atol": 1e-9}


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def labelled(cases, states=-1):
    """The Gaussian case as a model of known roles; none is known by default. One program for all its tests."""
    case = cases.make("gaussian")
    model, data = dataclasses.replace(case.model, known_roles=True), case.data
    return case._replace(model=model, data=data._replace(states=np.broadcast_to(states, data.observed.shape)))


@pytest.fixture(params=FAMILIES)
def case(request, cases, double):
    return labelled(cases) if request.param == "gaussian" else cases.make(request.param)


def close(actual, desired, **tolerance):
    np.testing.assert_allclose(actual, desired, **(tolerance or DOUBLE))


@jax.jit
def standards(blocks):
    return {name: tuple(block.standard()) for name, block in blocks.items()}


def same_parameters(cases, model, blocks, q, **tolerance):
    """Every block's usual parameters are the oracle's."""
    found = standards(blocks)
    for name, parts in cases.parameters(model, q).items():
        for actual, desired in zip(found[name], parts, strict=True):
            close(actual, desired, **tolerance)


def gap(cases, model, blocks, q):
    """Largest difference of a usual parameter."""
    found = standards(blocks)
    return max(
        np.max(np.abs(np.asarray(actual) - desired))
        for name, parts in cases.parameters(model, q).items()
        for actual, desired in zip(found[name], parts, strict=True)
    )


@jax.jit
def potentials(model, q, chains):
    """Expected log potentials of the chain."""
    expected = expected_statistics(q)
    steps = model.step_potentials(expected, chains)
    return expected["initial"].concentration, expected["transition"].concentration, steps, chains.lengths


marginals_of = jax.jit(marginals)


@pytest.mark.slow
def test_local_step_equals_enumeration(case, cases, oracle):
    """Log evidence, marginals and statistics."""
    model, data, prior, problem = case
    q = cases.start(case)
    batch, blocks = model.arrange(data), cases.blocks(model, q)
    value, statistics, *_ = cases.sweep(model, blocks, model.prior(), batch, 1.0, 1.0)
    local = oracle.local_step(q, problem)
    close(value, local.log_normalizer.sum())
    result = marginals_of(*potentials(model, blocks, batch))
    close(result.log_normalizer, local.log_normalizer)
    close(result.state, local.state.sum(-1))
    close(result.pair, local.pair)
    first, pairs = oracle.chain_counts(q, problem, local)
    close(statistics["initial"].concentration, first)
    close(statistics["transition"].concentration, pairs)
    x, weight = problem.x[problem.observed].astype(float), oracle.frame_weights(prior, problem, local)
    for name, sums in prior.family.sums(x, weight, cases.origin_of(model.emission)).items():
        for actual, desired in zip(statistics[name], sums, strict=True):
            close(actual, desired)


def test_coordinate_ascent_equals_enumeration(case, cases, oracle):
    """The bound after 0, 1, 2, 5 and 50 steps, and the parameters; it never falls."""
    model, data, prior, problem = case
    q = cases.start(case)
    batch, blocks = model.arrange(data), cases.blocks(model, q)
    bounds, start = [], model.prior()
    for count in range(51):
        _, _, bound, moved = cases.sweep(model, blocks, start, batch, 1.0, 1.0)
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
    """All labellings of up to seven frames, parameters integrated out."""
    model, _, prior, _ = case
    name = cases.family_of(model)
    lengths = [3, 2, 0 if name == "mixture" else 2, 0, 0, 0]
    problem = cases.random_problem(name, np.random.default_rng(5), lengths, [0, 0, 1, 2, 2, 3], [(1, 0)])
    unknown = np.full(problem.observed.shape, -1)
    batch = model.arrange(cases.trajectories(problem)._replace(states=unknown))
    start, evidence = model.prior(), oracle.exact_evidence(prior, problem).log_evidence
    for seed in range(2):
        q = cases.start(cases.Case(model, None, prior, problem), seed)
        blocks = cases.blocks(model, q)
        for _ in range(30):
            _, _, bound, blocks = cases.sweep(model, blocks, start, batch, 1.0, 1.0)
            assert float(bound) <= evidence + 1e-9
        assert bound > evidence - 10


@pytest.mark.slow
def test_with_one_role_the_bound_is_the_evidence(cases, oracle, case):
    """One role that can be reached, in which one component has weight: the others rest at the prior."""
    emission, count, name = case.model.emission, case.model.num_roles, cases.family_of(case.model)
    if name == "mixture":
        emission = type(emission)(
            2, 2, np.array([1.3, 0.0]), cases.MEAN, cases.STRENGTH, cases.DOF, cases.SCALE
        )
    model = RoleHMM(count, emission, 0.7 * np.eye(count)[0], 1.1 * np.eye(count), 0.0)
    problem = cases.random_problem(name, np.random.default_rng(6), [4, 3, 0, 0, 0, 0], np.arange(6), [(0, 1)])
    family, rows = cases.oracle_emission(name, 1, 1)
    prior = oracle.Prior(np.array([0.7]), np.array([[1.1]]), rows, family)
    batch, start = model.arrange(cases.trajectories(problem)), model.prior()
    fitted = cases.sweep(model, start, start, batch, 1.0, 1.0).blocks
    again = cases.sweep(model, fitted, start, batch, 1.0, 1.0)
    close(again.bound, oracle.exact_evidence(prior, problem).log_evidence, rtol=1e-8)
    for name in set(start) - {"initial", "transition"}:
        jax.tree.map(lambda x, y: np.testing.assert_array_equal(x[1:], y[1:]), fitted[name], start[name])


def test_known_roles_are_held(cases, oracle, double):
    """Paths that contradict a label drop out; a label may stand at a missing frame."""
    plain = cases.make("gaussian")
    states = np.full(plain.problem.observed.shape, -1)
    states[0, 1], states[1, :3], states[3, 2], states[4, 0] = 2, [0, 2, 1], 1, 0
    model, data, *_ = case = labelled(cases, states)
    problem = case.problem._replace(states=states)
    q = cases.start(case)
    result = cases.sweep(model, cases.blocks(model, q), model.prior(), model.arrange(data), 1.0, 1.0)
    close(result.bound, oracle.elbo(q, case.prior, problem))
    same_parameters(cases, model, result.blocks, oracle.step(q, case.prior, problem))
    assert plain.model.arrange(data).states is None, (
        "without known_roles the states of the world are not looked at"
    )


def test_a_sequence_never_seen_adds_nothing_to_the_emission(case, cases):
    """Not one bit; and its normaliser has no likelihood in it."""
    model, data, prior = case.model, case.data, case.model.prior()
    q = cases.start(case)
    blocks, rows = cases.blocks(model, q), [0, 1, 2, 4, 5]
    assert not data.observed[3].any()
    assert data.lengths[3] > 0
    whole, rest, alone = (
        cases.sweep(model, blocks, prior, model.arrange(one), 1.0, 1.0)
        for one in (data, cases.only(data, rows), cases.only(data, [3]))
    )
    for name in set(blocks) - {"initial", "transition"}:
        jax.tree.map(np.testing.assert_array_equal, whole.statistics[name], rest.statistics[name])
        jax.tree.map(lambda x: np.testing.assert_array_equal(x, np.zeros(x.shape)), alone.statistics[name])
    close(whole.log_normalizer, float(rest.log_normalizer) + float(alone.log_normalizer))
    weight, transition = (np.exp(cases.role_families.expected_log(x)) for x in (q.initial, q.transition))
    for _ in range(data.lengths[3] - 1):
        weight = weight @ transition
    close(alone.log_normalizer, np.log(weight.sum()))


def test_two_models_of_one_structure_share_a_compilation(cases, double):
    """Priors are leaves; the number of roles is not."""
    case = labelled(cases)
    prior, batch = case.model.prior(), case.model.arrange(case.data)
    cases.sweep(case.model, prior, prior, batch, 1.0, 1.0)
    compiled = cases.sweep._cache_size()
    emission = type(case.model.emission)(2, mean=cases.MEAN + 1, strength=0.5, dof=6.0, scale=2 * cases.SCALE)
    other = RoleHMM(3, emission, 2.0, 3.0, 0.1, known_roles=True)
    assert jax.tree.structure(other) == jax.tree.structure(case.model)
    cases.sweep(other, other.prior(), other.prior(), batch, 1.0, 1.0)
    assert cases.sweep._cache_size() == compiled
    assert jax.tree.structure(RoleHMM(4, emission)) != jax.tree.structure(case.model)
