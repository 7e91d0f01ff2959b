"""The choice models of econometrics by their names: constructors of `NoisyMDP`."""

from __future__ import annotations

from typing import Any

from ethogram.models.choices.noisy_mdp import NoisyMDP

__all__ = ["Logit", "Probit"]


def Probit(kappa: Any = 25.0, **fields: Any) -> NoisyMDP:
    """A :class:`NoisyMDP` of kind ``"features"`` with normal noise: the multinomial probit; other fields by name."""
    return NoisyMDP(kappa, "features", **fields)


def Logit(kappa: Any = 25.0, **fields: Any) -> NoisyMDP:
    """A :class:`NoisyMDP` of kind ``"features"`` with Gumbel noise: the conditional logit; other fields by name."""
    if "noise" in fields:
        raise TypeError(
            "a Logit has Gumbel noise: leave noise out, or give NoisyMDP(kind='features', noise=...)"
        )
    return NoisyMDP(kappa, "features", noise="gumbel", **fields)
