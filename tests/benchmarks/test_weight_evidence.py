"""Weights integrated out, against quadrature and importance sampling of the integral over the weights."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize, stats
from scipy.special import gammaln, logsumexp

from benchmarks.papers.weight_evidence import LEAST_COUNT, _log_integral, _row_terms
from ethogram.models.intents.row_counts import CountedRows

ALPHA, GAMMA, PAIRS = 3.0, 3.0, 60


def rows_of(num_used, kappa=0.0):
    """Counts (row, intent) as sixty pairs give them, about forty steps each, and pseudo-counts of staying."""
    random = np.random.default_rng(0)
    own = np.concatenate([np.zeros((1, num_used)), np.tile(np.eye(num_used), (PAIRS, 1))])
    weights = random.dirichlet(np.full(num_used, 3.0))
    rows = np.stack([random.dirichlet(ALPHA * weights + kappa * each) for each in own])
    counts = np.stack([random.multinomial(40 // num_used, row) for row in rows[1:]])
    return np.concatenate([np.eye(num_used)[:1], counts]), own


def log_rows(weights, counts, more):
    prior = ALPHA * np.asarray(weights)[..., None, :] + more
    return (gammaln(prior + counts) - gammaln(prior)).sum((-2, -1))


def laplace(counts, own, kappa=0.0, unused=0):
    """With this many more intents, which no step uses."""
    counts, own = np.pad(counts, ((0, 0), (0, unused))), np.pad(own > 0, ((0, 0), (0, unused + 1)))
    size = counts.shape[1]
    terms = _row_terms(CountedRows(counts, own=own), ALPHA, kappa)
    weights = np.append(np.full(size - unused, 0.9 / (size - unused)), [*np.full(unused, 1e-8), 0.1])
    return _log_integral(terms, weights, counts.sum(0) > LEAST_COUNT, GAMMA)


def test_one_intent_equals_quadrature():
    counts, own = rows_of(1)
    found = laplace(counts, own)

    def integrand(weight):  # of the weight itself: d ln b = d b / b
        logs = np.log(GAMMA) + (GAMMA - 1) * np.log1p(-weight) - np.log(weight)
        return np.exp(logs + log_rows([weight], counts, 0) - found)

    share, _ = integrate.quad(integrand, 0, 1, epsabs=1e-12, limit=200)
    assert abs(np.log(share)) < 0.1


def stiffness(integrand, peak, step=0.01):
    """Minus the Hessian, by finite differences."""
    size = len(peak)
    one, other = (step * np.eye(size)[index] for index in np.indices((size, size)).reshape(2, -1))
    corners = sum(a * b * integrand(peak + a * one + b * other) for a in (1, -1) for b in (1, -1))
    return -corners.reshape(size, size) / (4 * step**2)


@pytest.mark.parametrize(("num_used", "kappa"), [(2, 0.0), (3, 20.0)])
def test_more_intents_equal_importance_sampling(num_used, kappa):
    """Draws are from a Student distribution as wide as the integrand, in logits of the weights."""
    counts, own = rows_of(num_used, kappa)

    def integrand(logits):
        logs = np.pad(logits, ((0, 0), (0, 1)))
        logs = logs - logsumexp(logs, axis=1, keepdims=True)
        prior = num_used * np.log(GAMMA) + GAMMA * logs[:, -1]  # the Jacobian is one more factor of the rest
        return log_rows(np.exp(logs[:, :-1]), counts, kappa * own) + prior

    peak = optimize.minimize(lambda x: -integrand(x[None])[0], np.zeros(num_used)).x
    student = stats.multivariate_t(peak, 1.5 * np.linalg.inv(stiffness(integrand, peak)), df=6, seed=1)
    draws = student.rvs(4000).reshape(-1, num_used)
    logs = np.concatenate([integrand(part) for part in np.array_split(draws, 10)]) - student.logpdf(draws)
    found = laplace(counts, own, kappa)
    assert abs(found - logsumexp(logs) + np.log(len(draws))) < 0.1
    np.testing.assert_allclose(laplace(counts, own, kappa, unused=3), found, atol=1e-4)
