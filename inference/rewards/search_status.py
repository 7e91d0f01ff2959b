"""How a search for a posterior of rewards ended: a status, the sentence that says it, and what to do about it."""

from __future__ import annotations

import enum
import re

__all__ = ["Status", "advice"]

ENOUGH_STEPS = 60
"""Fewest steps that are recommended; most searches need thirty or more."""


class Status(enum.StrEnum):
    """How a search ended; files hold the values."""

    CONVERGED = "converged"
    TOO_FEW_STEPS = "too_few_steps"
    ELBO_RISING = "elbo_rising"
    ELBO_FELL = "elbo_fell"
    UNSETTLED = "unsettled"
    NOISY = "noisy"
    NOT_FINITE = "not_finite"
    MODE_NOT_FOUND = "mode_not_found"
    HYPER_MODE_NOT_FOUND = "hyper_mode_not_found"
    OPEN_DIRECTION = "open_direction"

    @property
    def sentence(self) -> str:
        """What speaks against convergence; empty where nothing does."""
        return SENTENCES[self]

    @property
    def advice(self) -> str:
        """What to pass, in words."""
        return re.sub(r"(\w+)=\{\w+\}", r"a larger \1", ADVICE.get(self, LONGER))


SENTENCES = {
    Status.CONVERGED: "",
    Status.TOO_FEW_STEPS: "too few steps were done to judge what they gained",
    Status.ELBO_RISING: "the ELBO still increases",
    Status.ELBO_FELL: "the ELBO fell, or falls at steps of any size",
    Status.UNSETTLED: "the steps still move the Gaussian",
    Status.NOISY: "the standard error of the ELBO's gain exceeds the tolerance",
    Status.NOT_FINITE: "ELBOs or their gradients are not finite",
    Status.MODE_NOT_FOUND: "the search for the posterior mode did not end at a maximum",
    Status.HYPER_MODE_NOT_FOUND: "the search for the mode of the hyper-parameters did not end",
    Status.OPEN_DIRECTION: (
        "the posterior of the hyper-parameters has hardly a maximum in a direction, and nodes do not reach its ends"
    ),
}

LONGER = "num_steps={num_steps}"
ADVICE = {
    Status.ELBO_FELL: f"num_draws={{num_draws}} and {LONGER}",
    Status.NOISY: f"num_evaluations={{num_evaluations}} and {LONGER}",
    Status.NOT_FINITE: "smaller features, or start=",
    Status.MODE_NOT_FOUND: "another start or num_restarts, or check the scale of the prior and of the features",
    Status.HYPER_MODE_NOT_FOUND: 'start=, or hyper="fixed"',
    Status.OPEN_DIRECTION: 'priors of the hyper-parameters that are narrower, or hyper="fixed"',
}


def advice(status: Status, num_steps: int, num_draws: int, num_evaluations: int) -> str:
    """What to pass in place of these settings."""
    return ADVICE.get(status, LONGER).format(
        num_steps=max(2 * num_steps, ENOUGH_STEPS),
        num_draws=4 * num_draws,
        num_evaluations=4 * num_evaluations,
    )
