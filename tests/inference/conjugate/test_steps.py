"""Coordinate ascent by family: the bound against NumPy, that it never falls, and roles that lose their data."""

from __future__ import annotations

import importlib
from pathlib import Path

import jax
import numpy as np
import pytest

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.steps import settled
from ethogram.models.roles.role_hmm import RoleHMM

FAMILIES = ("gaussian", "known_covariance", "categorical", "binomial", "mixture", "exclusive")


@pytest.fixture(scope="module")
def cases():
    """Small problems, one for each emission, and the enumerated bounds of the tests of models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[2] / "models")
        yield importlib.import_module("role_cases")


def exclusive_case(cases, seed):
    """Three groups of two agents in three roles, with gaps and a sequence that was never seen."""
    missing = [(0, 2), (4, 0), (3, slice(None))]
    problem = cases.random_problem(
        "gaussian", np.random.default_rng(seed), [5, 3, 2, 4, 5, 2], np.repeat(range(3), 2), missing
    )
    model = RoleHMM(3, cases.emission("gaussian"), exclusive="per_sequence")
    family, rows = cases.oracle_emission("gaussian", 3)
    prior = cases.role_oracle.Prior(np.ones(3), np.ones((3, 3)), rows, family)
    return cases.Case(model, cases.trajectories(problem), prior, problem)


def numpy_bound(cases, blocks, prior, problem, exclusive=False):
    """The bound of fitted blocks right after a local step, in nats, by enumeration of paths, or of maps."""
    oracle, standard = cases.role_oracle, {name: block.standard() for name, block in blocks.items()}
    emission = {}
    for name, part in standard.items():
        if name == "mean_covariance":
            emission |= dict(zip(("mean", "strength", "dof", "scale"), part, strict=True))
        elif name == "mean":
            emission |= dict(zip(("mean", "variance"), part, strict=True))
        elif name in ("weight", "probability"):
            emission |= dict(zip(("concentration",) if len(part) == 1 else "ab", part, strict=True))
    emission = {name: np.asarray(part, float) for name, part in emission.items()}
    if exclusive:
        q = prior._replace(emission=emission)
        return oracle.exclusive_local(q, problem)[0].sum() - q.family.kl(emission, prior.emission)
    chain = [np.asarray(standard[name].concentration, float) for name in ("initial", "transition")]
    return oracle.elbo(oracle.Prior(*chain, emission, prior.family), prior, problem)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "double"), [*((family, True) for family in FAMILIES), ("exclusive", False)]
)
def test_the_bound_is_right_and_never_falls(cases, family, double):
    allowed, agreement = (1e-9, 1e-10) if double else (1e-5, 2e-5)
    exclusive = family == "exclusive"
    with jax.enable_x64(double):
        for seed in range(2):
            case = exclusive_case(cases, seed) if exclusive else cases.make(family, seed)
            model, data, prior, problem = case
            if not double:
                data = data._replace(observations=data.observations.astype(np.float32))
            fit = ConjugateSVI(model).run(
                jax.random.key(seed), data, 30, restarts=2, tol=0, progress_bar=False
            )
            assert fit.elbo.dtype == (np.float64 if double else np.float32)
            assert fit.restart_traces.shape == (2, 31)
            trace = np.asarray(fit.restart_traces, dtype=float)
            fall = -np.diff(trace, axis=1) / np.abs(trace[:, 1:])
            assert fall.max() <= allowed, (seed, fall.max())
            assert (trace[:, -1] - trace[:, 0]).max() > 0.1
            expected = numpy_bound(cases, fit.posterior.blocks, prior, problem, exclusive)
            np.testing.assert_allclose(float(fit.elbo[-1]), expected, rtol=agreement)
            assert not fit.converged


@pytest.mark.slow
def test_roles_without_data_return_to_the_prior_exactly(cases):
    with jax.enable_x64(True):
        closed = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        _, data, prior, problem = cases.make("gaussian")
        model = RoleHMM(3, cases.emission("gaussian"), initial=np.array([1.0, 1.0, 0.0]), transition=closed)
        fit = ConjugateSVI(model).run(
            jax.random.key(0), data, 5, init="kmeans++", restarts=4, progress_bar=False
        )
        blocks, own = fit.posterior.blocks, model.prior()
        prior = prior._replace(initial=np.array([1.0, 1.0, 0.0]), transition=closed)
        np.testing.assert_allclose(fit.elbo[-1], numpy_bound(cases, blocks, prior, problem), rtol=1e-10)
        for name in ("mean_covariance", "transition"):
            for one, start in zip(blocks[name].natural, own[name].natural, strict=True):
                np.testing.assert_array_equal(np.asarray(one)[2], np.asarray(start)[2])
                assert not np.array_equal(np.asarray(one)[0], np.asarray(start)[0])
        np.testing.assert_array_equal(np.asarray(blocks["transition"].natural.concentration)[closed == 0], 0)


STOCHASTIC = {"restarts": 1, "batch_size": 2}


@pytest.mark.parametrize(
    "options",
    [
        STOCHASTIC | {"evaluate_every": 4},
        pytest.param(STOCHASTIC, marks=pytest.mark.slow),
        pytest.param({"restarts": 2}, marks=pytest.mark.slow),
    ],
)
def test_the_last_bound_is_that_of_the_posterior_in_numpy(cases, options):
    with jax.enable_x64(True):
        model, data, prior, problem = cases.make("categorical")
        fit = ConjugateSVI(model).run(jax.random.key(0), data, 10, progress_bar=False, **options)
        expected = numpy_bound(cases, fit.posterior.blocks, prior, problem)
        np.testing.assert_allclose(fit.elbo[-1], expected, rtol=1e-10)


def test_settled():
    elbo = np.array([-100.0, -100.0, -100.0, 0.0, -np.inf, np.nan])
    latest = np.array([-100.0, -100.05, -101.0, 0.0, -np.inf, -1.0])
    with np.errstate(invalid="ignore"):
        found = settled(elbo, latest, 1e-3, 10.0)
        np.testing.assert_array_equal(found, [True, True, False, True, False, False])
        assert not np.any(settled(elbo, latest, 0.0, 10.0))
        assert not np.any(settled(elbo, np.full(6, -np.inf), 1e9, 10.0)[:4])
        near_zero = settled(np.array([0.02, -0.02]), np.array([0.029, -0.031]), 1e-3, 10.0)
        np.testing.assert_array_equal(near_zero, [True, False])
