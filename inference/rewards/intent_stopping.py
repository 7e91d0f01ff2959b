"""When the rounds of a search for the rewards of several intents have converged, or what speaks against it.

A round alternates between the rewards, the hyper-parameters and q(z), and its steps do not average: the average of
earlier steps, by which the search for one reward stops, would be of other fractional counts.
"""

from __future__ import annotations

import numpy as np

from ethogram.inference.rewards.natural_gradient import PRECISE

__all__ = ["FIRST_STEPS", "NOISE", "UNTRIED", "WINDOW", "open_question", "rises"]

FIRST_STEPS = 6
"""Rounds with larger steps; no search stops before it has done twice as many."""

WINDOW = 5
"""Rounds whose mean ELBO is compared with that of as many before."""

AHEAD, MOST_AHEAD = 10, 50
"""Rounds ahead in the expected remaining gain: of full size, with which q(w) covers 94 % of its way to the optimum and
the logarithms of hyper-parameters move by up to 1; and at most of the present size."""

NOISE = "the standard error of the ELBO"
UNTRIED = f"fewer than {2 * FIRST_STEPS} steps were done"


def _halves(trace: list[float]) -> tuple[float, float]:
    """Change of the mean ELBO from one window to the next, and its standard error from the scatter within both."""
    before, recent = np.array(trace[-2 * WINDOW : -WINDOW]), np.array(trace[-WINDOW:])
    error = np.sqrt((before.var(ddof=1) + recent.var(ddof=1)) / WINDOW)
    return float(recent.mean() - before.mean()), float(error)


def _remaining(trace: list[float], factor: float) -> float:
    """Expected remaining gain: that of the rounds ahead at the upper standard error of the present rate."""
    ahead = min(AHEAD / factor, MOST_AHEAD)
    return ahead / WINDOW * sum(_halves(trace))


def rises(trace: list[float], tol: float) -> bool:
    """Whether the mean ELBO of a window exceeds that of the one before by more than `tol` and its noise."""
    change, error = _halves(trace)
    return change > max(tol, 2 * error)


def open_question(trace: list[float], step: int, factor: float, error: float, tol: float) -> str:
    """What speaks against convergence, in words; empty where nothing does.

    ELBOs of the trace are on the same draws, so that what scatters is the rounds. A gap of d nats to the optimum is
    about KL(q || optimum), and moves no posterior mean by more than sqrt(2 d) standard deviations: the limit is in
    nats, however large the ELBO. It is `tol`, or a quarter of the standard error of the ELBO, up to `PRECISE`, where
    that is more. The expected remaining gain must be within the limit; no ELBO may jump or fall by more than twice
    that; there may be no downward trend; and the standard error of the ELBO must not exceed `PRECISE`.

    Parameters
    ----------
    trace : ELBOs so far, one more than rounds.
    step, factor : rounds done, and the factor of the size of their steps.
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
