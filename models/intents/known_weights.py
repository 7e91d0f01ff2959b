"""Known weights of the intents of an agent Markov model, in place of learned or equal ones."""

from __future__ import annotations

import numpy as np
from jax import Array

from ethogram.models.arguments import is_concrete, require, require_distributions

__all__ = ["check_weights"]


def check_weights(weights: Array, truncation: int, beta_prior: str) -> None:
    """Raise ValueError unless known weights are a distribution over the intents and the rest, and not learned."""
    if beta_prior != "fixed":
        raise ValueError(
            f'weights are given, and beta_prior="{beta_prior}" learns them: give beta_prior="fixed", or no weights'
        )
    if weights.shape != (truncation + 1,):
        raise ValueError(
            f"weights has shape {weights.shape}: give one for each of the {truncation} intents and one for all others"
        )
    if is_concrete(weights):
        require(np.asarray(weights) > 0, "weights", weights, "is not above 0", "leave out unused intents")
        require_distributions("weights", weights)
