"""Coordinate ascent by family: the bound against NumPy, that it never falls, and roles that lose their data."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import jax
import numpy as np
import pytest
from scipy.special import digamma, gammaln, logsumexp, multigammaln

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.steps import settled
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import (
    BinomialEmission,
    CategoricalEmission,
    GaussianEmission,
    GaussianMixtureEmission,
    KnownCovarianceEmission,
)
from ethogram.models.roles.role_hmm import RoleHMM

COVARIANCE = np.array([[0.5, 0.2], [0.2, 0.4]])
TOTAL = np.array([6, 3])


class Family(NamedTuple):
    """How a family's models and data are made."""

    model: object  # () -> model
    observations: object  # rng, states -> observations


def gaussian_observations(rng, states):
    return (2.5 * states[..., None] + rng.normal(size=(*states.shape, 2))).astype(float)


def symbols(rng, states):
    noise = rng.random(states.shape) < 0.3
    return np.where(noise, rng.integers(4, size=states.shape), states)[..., None]


def counts(rng, states):
    return rng.binomial(TOTAL, np.array([0.2, 0.5, 0.9])[states][..., None])


FAMILIES = {
    "gaussian": Family(
        lambda: RoleHMM(3, GaussianEmission(2, mean=[1.0, 0.5], strength=0.3, dof=4.5), sticky=1.0),
        gaussian_observations,
    ),
    "known covariance": Family(
        lambda: RoleHMM(3, KnownCovarianceEmission(COVARIANCE, mean=1.0, mean_covariance=4.0), initial=0.7),
        gaussian_observations,
    ),
    "categorical": Family(
        lambda: RoleHMM(
            3,
            CategoricalEmission(4, concentration=0.8),
            transition=np.array([[1.0, 1.0, 0.0], [0.5, 1.0, 0.5], [0.0, 1.0, 1.0]]),
        ),
        symbols,
    ),
    "binomial": Family(
        lambda: RoleHMM(3, BinomialEmission(TOTAL, successes=0.9, failures=1.2, num_features=2), sticky=0.5),
        counts,
    ),
    "mixture": Family(
        lambda: RoleHMM(3, GaussianMixtureEmission(2, 2, concentration=0.6, strength=0.2)),
        gaussian_observations,
    ),
    "exclusive": Family(
        lambda: RoleHMM(3, GaussianEmission(2, strength=0.3), exclusive="per_sequence"), gaussian_observations
    ),
}


def make_data(family, seed):
    """Three groups of two agents, ragged, with missing frames, one sequence empty and one all missing."""
    rng = np.random.default_rng(seed)
    lengths = np.array([7, 7, 5, 3, 0, 6], dtype=np.int32)
    states = np.cumsum(rng.random((6, 7)) < 0.3, axis=1) % 3
    observed = (np.arange(7) < lengths[:, None]) & (rng.random((6, 7)) < 0.9)
    observed[3] = False
    group = np.repeat(np.arange(3, dtype=np.int32), 2)
    x = FAMILIES[family].observations(rng, states)
    return Trajectories(x, None, None, lengths, observed, None, group)


def dirichlet_log(a):
    """E log p of Dirichlet rows, -inf where an entry is 0."""
    safe = np.where(a > 0, a, 1)
    return np.where(a > 0, digamma(safe) - digamma(a.sum(-1, keepdims=True)), -np.inf)


def dirichlet_kl(q, p):
    total = 0.0
    for one, other in zip(q.reshape(-1, q.shape[-1]), p.reshape(-1, p.shape[-1]), strict=True):
        one, other = one[other > 0], other[other > 0]
        total += gammaln(one.sum()) - gammaln(one).sum() - gammaln(other.sum()) + gammaln(other).sum()
        total += (one - other) @ (digamma(one) - digamma(one.sum()))
    return total


def wishart_log(x, mean, strength, dof, scale):
    """E ln N(x | mu, Sigma) (...,) under one normal-inverse-Wishart."""
    size = len(mean)
    log_precision = (
        digamma((dof - np.arange(size)) / 2).sum() + size * math.log(2) - np.linalg.slogdet(scale)[1]
    )
    away = x - mean
    square = np.einsum("...d,de,...e->...", away, np.linalg.inv(scale), away)
    return 0.5 * (-size * math.log(2 * math.pi) + log_precision - size / strength - dof * square)


def wishart_kl(q, p):
    (m, k, nu, psi), (m0, k0, nu0, psi0) = q, p
    size, inverse = len(m), np.linalg.inv(psi)
    mean_part = size * (k0 / k - 1 - math.log(k0 / k)) + k0 * nu * (m - m0) @ inverse @ (m - m0)
    logs = np.linalg.slogdet(psi)[1] - np.linalg.slogdet(psi0)[1]
    spread = nu0 / 2 * logs + nu / 2 * (np.trace(psi0 @ inverse) - size)
    gammas = multigammaln(nu0 / 2, size) - multigammaln(nu / 2, size)
    return 0.5 * mean_part + spread + gammas + (nu - nu0) / 2 * digamma((nu - np.arange(size)) / 2).sum()


def rows_of(block):
    """Usual parameters of a block in float64, one tuple per row."""
    parts = [np.asarray(part, dtype=float) for part in block.standard()]
    batch = parts[1].shape
    return [tuple(part[at] for part in parts) for at in np.ndindex(batch)]


def emission_terms(family, blocks, prior, x):
    """E log likelihood (sequence, time, role), and the KL of the emission's blocks."""
    if family in ("gaussian", "exclusive", "mixture"):
        q, p = rows_of(blocks["mean_covariance"]), rows_of(prior["mean_covariance"])
        kl = sum(wishart_kl(*pair) for pair in zip(q, p, strict=True))
        each = np.stack([wishart_log(x, *row) for row in q], axis=-1)
        if family != "mixture":
            return each, kl
        weight, start = (np.asarray(b["weight"].natural.concentration, dtype=float) for b in (blocks, prior))
        parts = each.reshape(*each.shape[:-1], *weight.shape) + dirichlet_log(weight)
        return logsumexp(parts, axis=-1), kl + dirichlet_kl(weight, start)
    if family == "known covariance":
        precision, each, kl = np.linalg.inv(COVARIANCE), [], 0.0
        pairs = [
            tuple(np.asarray(part, dtype=float) for part in b["mean"].standard()) for b in (blocks, prior)
        ]
        for mean, spread, mean0, spread0 in zip(*pairs[0], *pairs[1], strict=True):
            away = x - mean
            square = np.einsum("...d,de,...e->...", away, precision, away) + np.trace(precision @ spread)
            each.append(-0.5 * (2 * math.log(2 * math.pi) + np.linalg.slogdet(COVARIANCE)[1] + square))
            inverse = np.linalg.inv(spread0)
            kl += 0.5 * (np.trace(inverse @ spread) + (mean - mean0) @ inverse @ (mean - mean0) - 2)
            kl += 0.5 * (np.linalg.slogdet(spread0)[1] - np.linalg.slogdet(spread)[1])
        return np.stack(each, axis=-1), kl
    if family == "categorical":
        q, p = (np.asarray(b["probability"].natural.concentration, dtype=float) for b in (blocks, prior))
        return dirichlet_log(q).T[x[..., 0]], dirichlet_kl(q, p)
    q, p = (
        np.stack([np.asarray(n, dtype=float) for n in b["probability"].natural], -1) for b in (blocks, prior)
    )
    logs, x = dirichlet_log(q), x[..., None, :]
    choose = gammaln(TOTAL + 1) - gammaln(x + 1) - gammaln(TOTAL - x + 1)
    return (choose + x * logs[..., 0] + (TOTAL - x) * logs[..., 1]).sum(-1), dirichlet_kl(q, p)


def numpy_bound(family, blocks, prior, data):
    """The bound right after a local step, in nats, from the usual formulas."""
    x = np.where(data.observed[..., None], data.observations, 0)
    each, kl = emission_terms(family, blocks, prior, x)
    each = np.where(data.observed[..., None], each, 0)
    if family == "exclusive":
        potentials = each.sum(axis=1).reshape(3, 2, 3)
        maps = list(itertools.permutations(range(3), 2))
        total = sum(
            logsumexp([w[[0, 1], one].sum() for one in maps]) - math.log(len(maps)) for w in potentials
        )
        return total - kl
    chain = {
        name: [np.asarray(b[name].natural.concentration, dtype=float) for b in (blocks, prior)]
        for name in ("initial", "transition")
    }
    total = -kl - sum(dirichlet_kl(*pair) for pair in chain.values())
    log_initial, log_transition = dirichlet_log(chain["initial"][0]), dirichlet_log(chain["transition"][0])
    for steps, length in zip(each, data.lengths, strict=True):
        if length == 0:
            continue
        forward = log_initial + steps[0]
        for t in range(1, length):
            forward = logsumexp(forward[:, None] + log_transition, axis=0) + steps[t]
        total += logsumexp(forward)
    return total


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "double"),
    [*((family, True) for family in FAMILIES), ("exclusive", False)],
)
def test_the_bound_is_right_and_never_falls(family, double):
    allowed, agreement = (1e-9, 1e-10) if double else (1e-5, 2e-5)
    with jax.enable_x64(double):
        model = FAMILIES[family].model()
        engine = ConjugateSVI(model)
        for seed in range(2):
            data = make_data(family, seed)
            if data.observations.dtype == float and not double:
                data = data._replace(observations=data.observations.astype(np.float32))
            fit = engine.run(jax.random.key(seed), data, 30, restarts=2, tol=0, progress_bar=False)
            assert fit.elbo.dtype == (np.float64 if double else np.float32)
            assert fit.restart_traces.shape == (2, 31)
            trace = np.asarray(fit.restart_traces, dtype=float)
            fall = -np.diff(trace, axis=1) / np.abs(trace[:, 1:])
            assert fall.max() <= allowed, (seed, fall.max())
            assert (trace[:, -1] - trace[:, 0]).max() > 0.1
            expected = numpy_bound(family, fit.posterior.blocks, fit.posterior.model.prior(), data)
            np.testing.assert_allclose(float(fit.elbo[-1]), expected, rtol=agreement)
            assert not fit.converged


@pytest.mark.slow
def test_roles_without_data_return_to_the_prior_exactly():
    with jax.enable_x64(True):
        closed = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
        emission = GaussianEmission(2, mean=3.0, strength=0.3, scale=1.0)
        model = RoleHMM(3, emission, initial=np.array([1.0, 1.0, 0.0]), transition=closed)
        data = make_data("gaussian", 0)
        fit = ConjugateSVI(model).run(
            jax.random.key(0), data, 5, init="kmeans++", restarts=4, progress_bar=False
        )
        blocks, prior = fit.posterior.blocks, model.prior()
        np.testing.assert_allclose(fit.elbo[-1], numpy_bound("gaussian", blocks, prior, data), rtol=1e-10)
        for name in ("mean_covariance", "transition"):
            for one, start in zip(blocks[name].natural, prior[name].natural, strict=True):
                np.testing.assert_array_equal(np.asarray(one)[2], np.asarray(start)[2])
                assert not np.array_equal(np.asarray(one)[0], np.asarray(start)[0])
        np.testing.assert_array_equal(np.asarray(blocks["transition"].natural.concentration)[closed == 0], 0)


def test_the_last_bound_is_that_of_the_posterior_in_numpy(symbol_model, symbols):
    stochastic = {"restarts": 1, "batch_size": 2}
    with jax.enable_x64(True):
        model, data = symbol_model(), symbols()
        for options in ({"restarts": 2}, stochastic, stochastic | {"evaluate_every": 4}):
            fit = ConjugateSVI(model).run(jax.random.key(0), data, 10, progress_bar=False, **options)
            expected = numpy_bound("categorical", fit.posterior.blocks, model.prior(), data)
            np.testing.assert_allclose(fit.elbo[-1], expected, rtol=1e-10)


def test_settled():
    elbo = np.array([-100.0, -100.0, -100.0, 0.0, -np.inf, np.nan])
    latest = np.array([-100.0, -100.05, -101.0, 0.0, -np.inf, -1.0])
    with np.errstate(invalid="ignore"):
        found = settled(elbo, latest, 1e-3)
        np.testing.assert_array_equal(found, [True, True, False, True, False, False])
        assert not np.any(settled(elbo, latest, 0.0))
        assert not np.any(settled(elbo, np.full(6, -np.inf), 1e9)[:4])
