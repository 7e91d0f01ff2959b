"""When a natural-gradient search of a reward posterior has converged, or what speaks against it."""

from __future__ import annotations

import numpy as np

__all__ = [
    "FIRST_STEPS", "MOST_CHUNKS", "NOISE", "PRECISE", "UNTRIED", "WINDOW", "chunks_of", "open_question", "rises",
]  # fmt: skip

FIRST_STEPS = 6
WINDOW = 5
"""Steps whose mean ELBO is compared with that of as many before."""

PRECISE = 1.0
"""Largest standard error of the ELBO, in nats, that may be called converged."""

MOST_CHUNKS = 16
"""Most chunks of `num_evaluations` draws for an ELBO whose standard error is above `PRECISE`."""

AHEAD, MOST_AHEAD = 10, 50
"""Steps ahead in the expected remaining gain: of full size, with which q(w) covers 94 % of its way to the optimum and
the logarithms of hyper-parameters move by up to 1; and at most of the present size."""

NOISE = "the standard error of the ELBO"
UNTRIED = f"fewer than {2 * FIRST_STEPS} steps were done"


def _halves(trace: list[float]) -> tuple[float, float]:
    """Change of the mean ELBO from one window to the next, and its standard error from the scatter within both."""
    before, recent = np.array(trace[-2 * WINDOW : -WINDOW]), np.array(trace[-WINDOW:])
    error = np.sqrt((before.var(ddof=1) + recent.var(ddof=1)) / WINDOW)
    return float(recent.mean() - before.mean()), float(error)


def _remaining(trace: list[float], factor: float) -> float:
    """Expected remaining gain: that of the steps ahead at the upper standard error of the present rate."""
    ahead = min(AHEAD / factor, MOST_AHEAD)
    return ahead / WINDOW * sum(_halves(trace))


def rises(trace: list[float], tol: float) -> bool:
    change, error = _halves(trace)
    return change > max(tol, 2 * error)


def chunks_of(error: float) -> int:
    """Number of chunks of `num_evaluations` draws that bring a standard error down to `PRECISE`."""
    return int(np.ceil(1.2 * (error / PRECISE) ** 2)) if np.isfinite(error) and error > PRECISE else 1


def open_question(trace: list[float], step: int, factor: float, error: float, tol: float) -> str:
    """What speaks against convergence, in words; empty where nothing does.

    ELBOs of the trace are on the same draws, so that what scatters is the steps. A gap of d nats to the optimum is
    about KL(q || optimum), and moves no posterior mean by more than sqrt(2 d) standard deviations: the limit is in
    nats, however large the ELBO. The expected remaining gain must be within it; no ELBO may jump or fall by more than
    twice that; there may be no downward trend; and the standard error of the ELBO must not exceed `PRECISE`.

    Parameters
    ----------
    trace : ELBOs so far, one more than steps.
    step, factor : steps done, and the factor of their size.
    error : standard error of the latest ELBO.
    tol : in nats.
    """
    from scipy import stats

    if step < 2 * FIRST_STEPS:
        return UNTRIED
    latest = np.array(trace[-2 * WINDOW :])
    if not np.isfinite(latest).all():
        return "ELBOs are not finite"
    limit = max(tol, 0.25 * min(error, PRECISE))
    (change, _), remaining = _halves(trace), _remaining(trace, factor)
    slope, slope_error = stats.linregress(np.arange(len(latest)), latest)[::4]
    falls = slope < -2 * slope_error and -slope * len(latest) > 2 * limit
    before = max(trace[: -len(latest)], default=-np.inf)
    if falls or change < -2 * limit or before - latest[-WINDOW:].mean() > 2 * limit:
        return "the ELBO has fallen"
    if change > limit or remaining > limit:
        return f"the ELBO still increases, with an expected gain of {max(change, remaining):.2g} nats"
    if np.ptp(latest) > 2 * limit:
        return "the ELBO jumps from step to step"
    if error > PRECISE:
        return f"{NOISE} is {error:.2g} nats, above {PRECISE:g}"
    return ""
