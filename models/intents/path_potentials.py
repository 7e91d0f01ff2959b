"""Expected log potentials of every step of an agent Markov model: Unhelkar and Shah (2019), eq. 7-8 and 15."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array

from ethogram.models.chains.conjugate_chain import ChainData
from ethogram.models.chains.relabelled_paths import PathPotentials

__all__ = ["intent_potentials"]


def intent_potentials(chain: dict[str, Any], log_stay: Array | None, batch: ChainData) -> PathPotentials:
    """Potentials of a batch, given the expected log potentials of its chain.

    Parameters
    ----------
    chain : ``initial``, ``transition`` (a row for every kind of step) and ``policy``.
    log_stay : (row,), log evidence that the intent stayed, over that it changed; None without stay labels.
    batch : arranged data, which name the row of every step.
    """
    policy = chain["policy"].concentration
    by_symbol = policy.reshape(len(policy), -1).T
    step = jnp.where(batch.observed[..., None], by_symbol[batch.observations], 0)
    assert batch.rows is not None
    row = batch.rows[:, :-1]
    return PathPotentials(
        chain["initial"].concentration,
        chain["transition"].concentration[row],
        step,
        batch.lengths,
        None if log_stay is None else log_stay[row],
    )
