"""Findings of weights of draws: how far an approximation is from the posterior, and what a prior decides.

Yao, Vehtari, Simpson, Gelman (2018), "Yes, but did it work? Evaluating variational inference", section 2: weights by
the joint density over q, and their Pareto k.

Kallioinen, Paananen, Bürkner, Vehtari (2024), "Detecting and diagnosing prior and likelihood sensitivity with
power-scaling": weights by other priors over the prior, whose scale is halved and doubled. Where prior and posterior are
normal, the other posterior is known in closed form.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from ethogram.inference.diagnostics.finding import Finding, Level
from ethogram.inference.pareto_weights import smoothed_weights

__all__ = ["FAR", "SCALES", "of_ratios", "of_shifts", "shifts_of_normal", "shifts_of_weighted"]

FAR = 0.7
"""Pareto k from which on weights do not correct draws (Vehtari and others 2024, section 3.3)."""
ROUNDING = 1e-3
"""Standard deviation, in nats, of noise that breaks ties between log ratios: a Pareto tail cannot be fitted to ties."""
SCALES = (0.5, 2.0)
LEAST_SHIFT = 0.5
"""Least shift of a mean that matters, in posterior standard deviations."""


def of_ratios(log_ratios: Float[np.ndarray, "draw"], advice: str) -> Iterator[Finding]:
    """The Pareto k of log ratios of the posterior and an approximation, where it is large; NaN are not looked at."""
    k = smoothed_weights(log_ratios + ROUNDING * np.random.default_rng(0).normal(size=len(log_ratios)))[1]
    if k > FAR and not np.isnan(log_ratios).any():
        yield Finding(
            "search",
            Level.NOTE,
            f"The approximation is not the posterior: weights that correct its draws have a Pareto k of {k:.2f}, above "
            f"{FAR}, so that intervals may be too narrow.",
            advice,
            float(np.log(k / FAR)),
        )


def shifts_of_normal(
    mean: Float[np.ndarray, "parameter"], covariance: Any, deviation: Any, basis: Any = None
) -> Float[np.ndarray, "number"]:
    """Largest shifts of posterior means in posterior standard deviations, of normal priors about zero.

    Parameters
    ----------
    mean, covariance : of the posterior.
    deviation : (parameter,) of the prior.
    basis : (number, parameter), linear functions of the parameters that are looked at; these themselves where None.
    """
    basis = np.eye(len(mean)) if basis is None else basis
    precision = np.linalg.inv(covariance)
    sd = np.sqrt(np.einsum("np,pq,nq->n", basis, covariance, basis))
    shift = np.zeros(len(basis))
    for scale in SCALES:
        other = precision + np.diag((scale**-2 - 1) / deviation**2)
        if np.linalg.eigvalsh(other).min() > 0:
            moved = basis @ (np.linalg.solve(other, precision @ mean) - mean)
            shift = np.maximum(shift, np.abs(moved) / np.maximum(sd, 1e-300))
    return shift


def shifts_of_weighted(
    draws: Float[np.ndarray, "draw number"], log_weights: Sequence[Float[np.ndarray, "draw"]]
) -> Float[np.ndarray, "number"]:
    """Largest shifts of means in standard deviations of draws that are weighted by ratios of other priors to theirs."""
    shift = np.zeros(draws.shape[1])
    for each in log_weights:
        weights = (
            np.exp(each - each.max()) if np.ptp(each) == 0 else np.exp(smoothed_weights(each)[0] - each.max())
        )
        moved = weights @ draws / weights.sum() - draws.mean(0)
        shift = np.maximum(shift, np.abs(moved) / np.maximum(draws.std(0), 1e-300))
    return shift


def of_shifts(shift: Float[np.ndarray, "number"], names: Sequence[str], advice: str) -> Iterator[Finding]:
    """The largest shift, where it matters."""
    worst = int(shift.argmax())
    if shift[worst] > LEAST_SHIFT:
        yield Finding(
            "prior",
            Level.CAUTION,
            f"Priors of half or twice the scale move {names[worst]} by {shift[worst]:.2g} posterior deviations.",
            advice,
            float(np.log(shift[worst] / LEAST_SHIFT)),
        )
