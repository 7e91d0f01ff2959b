r"""The bound of a fitted agent Markov model with its shared weights integrated out, for comparison across fits.

In a fit the weights beta are a point. An intent that is used has the measure :math:`\gamma\, d \ln\beta_k`, whatever
its label (the factorial moment density of a GEM, with all other intents integrated out):

.. math:: \int \gamma^k \beta_{rest}^{\gamma - 1} \prod_r \frac{B(\alpha\beta + n_r)}{B(\alpha\beta)}
          \prod_{i=1}^k d \ln\beta_i

over the k intents in use. It is taken by Laplace's method in the coordinates :math:`\ln(\beta_i / \beta_{rest})`, whose
Jacobian is :math:`\beta_{rest}`. Teh, Jordan, Beal, Blei (2006) have the prior; the integral is of this package.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
from scipy.special import digamma, gammaln, polygamma, softmax

from ethogram.inference.conjugate.posterior import ConjugateResult
from ethogram.models.intents.agent_markov import AgentMarkov
from ethogram.models.intents.row_counts import CountedRows, counted_rows
from ethogram.models.intents.updates import ROWS, prior_given, stickiness_of

__all__ = ["weight_evidence"]

GAMMAS = (gammaln, digamma, functools.partial(polygamma, 1))

LEAST_COUNT = 0.5
"""Expected arrivals from which an intent counts as used; others keep their weights, at which their factor is 1."""


def weight_evidence(result: ConjugateResult) -> float:
    """ELBO in nats with the weights integrated out, by Laplace's method, instead of at their density.

    The ELBO itself compares across truncations, and differs from this by an almost constant amount. Here the
    uncertainty of the weights is included, so that fits that use different numbers of intents compare more closely.

    Parameters
    ----------
    result : fit of an :class:`~ethogram.models.intents.AgentMarkov` with ``beta_prior="stick"`` that has converged.

    Raises
    ------
    TypeError, ValueError
        `result` is not such a fit.
    """
    if not isinstance(result, ConjugateResult) or not isinstance(result.posterior.model, AgentMarkov):
        raise TypeError(f"result is {type(result).__name__}: give the ConjugateResult of an AgentMarkov")
    model, blocks = result.posterior.model, result.posterior.blocks
    if model.beta_prior != "stick":
        raise ValueError(
            f'the fit has beta_prior="{model.beta_prior}": give one with "stick", whose weights have a density that '
            "can be integrated"
        )
    learned = blocks.get("stickiness")
    before = prior_given(model, blocks["weights"], learned)
    counts = {
        name: np.maximum(blocks[name].natural.concentration - before[name].natural.concentration, 0)
        for name in ROWS
    }
    rows = counted_rows(model, blocks, counts)
    arrivals = sum(
        np.asarray(each).reshape(-1, model.truncation + 1)[:, :-1].sum(0) for each in counts.values()
    )
    kappa = stickiness_of(model, learned and learned.natural)
    weights, gamma = np.asarray(blocks["weights"].natural, float), float(model.gamma)
    terms = _row_terms(rows, float(model.alpha), 0.0 if kappa is None else float(kappa))
    at_point = terms(weights)[0].sum() + (gamma - 1) * np.log(weights[-1])
    return float(result.elbo[-1]) - at_point + _log_integral(terms, weights, arrivals > LEAST_COUNT, gamma)


def _row_terms(rows: CountedRows, alpha: float, kappa: float) -> Callable[[np.ndarray], np.ndarray]:
    """The log likelihood of the rows, a sum over weights (intent + 1,) of functions, with slopes and curvatures."""
    counts = np.pad(np.asarray(rows.counts, float), ((0, 0), (0, 1)))
    more = kappa * np.asarray(rows.own, float)
    logs, more_held = np.zeros((0, counts.shape[1])), np.zeros((0, counts.shape[1]))
    if rows.logs is not None:
        taken = np.asarray(rows.taken)
        logs, more_held = np.asarray(rows.logs, float)[taken], kappa * np.asarray(rows.held_own, float)[taken]
    linear = logs.sum(0)

    def terms(weights: np.ndarray) -> np.ndarray:
        free, held = alpha * weights + more, alpha * weights + more_held
        found = [
            alpha**n * ((function(free + counts) - function(free)).sum(0) - function(held).sum(0))
            for n, function in enumerate(GAMMAS)
        ]
        return np.stack(found) + np.stack([alpha * weights * linear, alpha * linear, 0 * linear])

    return terms


def _log_integral(
    terms: Callable[[np.ndarray], np.ndarray], weights: np.ndarray, used: np.ndarray, gamma: float
) -> float:
    """Laplace's approximation over the used weights; the others stay where they are."""
    from scipy.optimize import minimize

    place = np.append(np.flatnonzero(used), len(used))
    mass, count = weights[place].sum(), len(place) - 1

    def derivatives(logits: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        """Log integrand, with its gradient and Hessian."""
        share = softmax(np.append(logits, 0))
        point = weights.copy()
        point[place] = mass * share
        value, slope, curvature = terms(point)
        value = value.sum() + gamma * np.log(point[-1]) + count * np.log(gamma)
        slope, curvature = slope[place] * mass, curvature[place] * mass**2
        slope[-1] += gamma / share[-1]
        curvature[-1] -= gamma / share[-1] ** 2
        first = np.diag(share) - np.outer(share, share)  # d share / d logit
        pull = slope * share - share * (slope @ share)
        second = np.diag(pull) - np.outer(pull, share) - np.outer(share, pull)
        hessian = first @ (curvature[:, None] * first) + second
        return value, pull[:-1], hessian[:-1, :-1]

    if not count:
        return derivatives(np.zeros(0))[0]
    found = minimize(
        lambda x: -derivatives(x)[0],
        np.log(weights[place[:-1]] / weights[-1]),
        jac=lambda x: -derivatives(x)[1],
        hess=lambda x: -derivatives(x)[2],
        method="trust-exact",
        options={"gtol": 1e-8},
    )
    value, _, hessian = derivatives(found.x)
    return value + 0.5 * count * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(-hessian)[1]
