"""Fit of a model with several intents, as `fit_reward` calls it: settings, checkpoint and search."""

from __future__ import annotations

import os
from typing import Any

import jax
import numpy as np
from jax import Array

from ethogram.inference import storage
from ethogram.inference.checkpoint import resumed
from ethogram.inference.rewards.intent_posterior import IntentFit
from ethogram.inference.rewards.intent_search import IntentSearch, IntentSearchState, check_saved_intents
from ethogram.inference.rewards.intent_steps import chain_data
from ethogram.inference.rewards.natural_gradient import RewardSearch
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.demonstrations import read_demonstrations
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.intent_chain import chain_prior

__all__ = ["HYPERS_OF_INTENTS", "RESTARTS", "fit_intents"]

HYPERS_OF_INTENTS = ("point", "fixed")
"""Treatments of the hyper-parameters with several intents."""

RESTARTS = 3
"""Default number of starts besides the first."""


def fit_intents(
    key: Array,
    model: GPIRL,
    demonstrations: Trajectories,
    hyper: str,
    start: Any,
    num_steps: int,
    num_draws: int,
    num_evaluations: int,
    num_restarts: int,
    tol: float,
    checkpoint: str | os.PathLike | None,
    progress_bar: bool,
) -> IntentFit:
    """Fit of a model in double precision; arguments as those of `fit_reward`."""
    steps = read_demonstrations(model.mdp, demonstrations, model.check_transitions)
    pooled = model.counts(demonstrations)
    base = RewardSearch(model, jax.device_put(pooled[None]), hyper, num_draws, num_evaluations, 0)
    prior = chain_prior(model.num_intents or 1, 0.0 if model.sticky is None else model.sticky)
    search = IntentSearch(base, chain_data(steps, model.mdp.num_actions), prior, 1 + num_restarts)
    key_hyper, key_fixed, key_starts, key_end = jax.random.split(key, 4)

    def signature() -> str:
        settings = [hyper, num_draws, num_evaluations, num_restarts]
        arrays = [steps.state, steps.action, np.asarray(steps.inside)]
        return storage.fingerprint(model, arrays, jax.random.key_data(key), settings, start)

    def check(path: str, state: IntentSearchState) -> None:
        check_saved_intents(path, search, state)

    state, save = resumed(checkpoint, signature, IntentSearchState, check, lambda: IntentSearchState([]))
    log_hyper = search.base.first(key_hyper, start)
    state, best = search.run(key_starts, key_fixed, log_hyper, state, num_steps, tol, progress_bar, save)
    return search.end(key_end, key_fixed, state, best)
