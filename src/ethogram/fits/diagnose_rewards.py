"""What is wrong with a fit of rewards: transitions, policies, tables of actions, and features that explain nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
from numpyro.distributions import Distribution

from ethogram.fits.diagnose import LONG, of_actions, of_peers
from ethogram.inference.diagnostics import Finding, Level
from ethogram.inference.diagnostics.actions import of_policy, of_transitions
from ethogram.inference.draws import flat_draws
from ethogram.models.data import Trajectories
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["of_rewards"]

LARGE = 2**24
"""Steps times states from which on transitions are not looked at."""
MOST_POINTS = 500
"""Rewards of features, from which on independent ones are not fitted."""
SCALES = (1.0, 5.0, 25.0)
"""Variances of independent rewards."""
LEAST_GAIN = 3.0
"""Nats of the ELBO that features have to gain over independent rewards."""


def of_rewards(fit: Any, thorough: bool) -> Iterator[Finding]:
    """Findings of one reward, or of those of several experts."""
    from ethogram.models.mdps.demonstrations import num_experts, read_demonstrations

    yield from of_actions(fit, thorough)
    if isinstance(fit.data, Trajectories):
        steps = read_demonstrations(fit.model.mdp, fit.data, False)
        yield from _of_transitions(fit.model.mdp, steps)
        if fit.has_draws and num_experts(fit.data) is None:
            known = steps.inside & (steps.action >= 0)
            policy = np.asarray(flat_draws(fit.draws(200).sites)["policy"], float).mean(0)
            rng = numpy_generator(fit._key)
            yield from of_policy(rng, steps.state[known], steps.action[known], policy)
    if thorough or fit.seconds < LONG:
        yield from _of_features(fit)
    if thorough:
        from ethogram.inference.rewards import heldout_reward_curve

        yield from of_peers(fit, heldout_reward_curve)


def _of_transitions(mdp: Any, steps: Any) -> Iterator[Finding]:
    leaving = steps.leaving & (steps.action >= 0)
    if leaving.sum() * mdp.num_states > LARGE or not leaving.any():
        return
    at = steps.state[leaving][:, None], steps.action[leaving][:, None], np.arange(mdp.num_states)[None]
    following = np.roll(steps.state, -1, axis=1)[leaving]
    yield from of_transitions(np.asarray(mdp.probability(*at), float), following)


def _of_features(fit: Any) -> Iterator[Finding]:
    """Whether rewards that are independent a priori explain the actions as well as those of the features."""
    from ethogram.inference.rewards import fit_reward
    from ethogram.models.rewards import GPIRL

    model, elbo = fit.model, float(getattr(fit.result, "elbo", np.nan))
    count = model.num_points
    if not np.isfinite(elbo) or count > MOST_POINTS:
        return
    features = np.eye(count).reshape(*model.features.shape[:-1], count)
    rationality = 1.0 if isinstance(model.rationality, Distribution) else model.rationality
    bounds = []
    for scale in SCALES:
        other = GPIRL(
            model.mdp,
            features,
            noise=model.noise,
            scale_prior=scale,
            relevance_prior=50.0,
            rationality=rationality,
            check_transitions=model.check_transitions,
        )
        key = jax.random.fold_in(fit._key, 1)
        bounds.append(fit_reward(key, other, fit.data, method="laplace", progress_bar=False).elbo)
    gain = elbo - max(bounds)
    if gain < LEAST_GAIN:
        yield Finding(
            "features",
            Level.WARNING,
            "Rewards that are independent from state to state explain the actions as well as these features: their "
            f"ELBO is {abs(gain):.1f} nats {'lower' if gain > 0 else 'higher'}.",
            "Do not interpret relevances, nor rewards of states that were not visited; look for other features.",
            float(LEAST_GAIN - gain),
        )
