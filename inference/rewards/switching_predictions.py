"""Intents of demonstrations, and predictions, under switching rewards.

Both are of one agent with posterior mean policies and a posterior mean chain, which is a normalised model.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from ethogram.inference.rewards.reward_posterior import RewardFit, RewardPosterior
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.mdps.demonstrations import demonstration_value
from ethogram.models.printing import short_repr
from ethogram.models.rewards.switching import IntentChain, SwitchingGPIRL, SwitchingPolicies

__all__ = ["PredictiveAgent", "RewardIntents", "infer_reward_intents", "predictive_agent"]


@short_repr
class RewardIntents(NamedTuple):
    """Posterior of the intents of demonstrations.

    Attributes
    ----------
    probability : posterior probability of each intent given the whole demonstration, zero beyond a length.
    filtered : the same given the actions up to each step.
    path : most likely path of intents, -1 beyond a length.
    log_increment : log predictive density of each action given those before it, in nats; zero where it is missing.
    """

    probability: Float[np.ndarray, "sequence time intent"]
    filtered: Float[np.ndarray, "sequence time intent"]
    path: Int[np.ndarray, "sequence time"]
    log_increment: Float[np.ndarray, "sequence time"]


@short_repr
class PredictiveAgent(NamedTuple):
    """An agent with posterior mean policies and a posterior mean chain: one normalised model, for predictions.

    Attributes
    ----------
    model : the model of the fit.
    policy : posterior mean of the policy of each intent.
    chain : posterior means of the probabilities of the first and of the next intent.
    """

    model: SwitchingGPIRL
    policy: Float[np.ndarray, "intent state action"]
    chain: IntentChain

    def observation(self, data: Trajectories) -> SwitchingPolicies:
        """Distribution of the actions of data, once these fit the model."""
        self.model.check(data)
        states, lengths = np.asarray(data.states), np.asarray(data.lengths)
        with np.errstate(divide="ignore"):
            log_policy = np.log(self.policy)
        parts = {"length": states.shape[1], "lengths": lengths, "start": states[:, 0]}
        return SwitchingPolicies(self.model.mdp, log_policy, self.chain, **parts)

    def log_prob(self, data: Trajectories) -> np.ndarray:
        """Log predictive density (sequence,) of the known actions, each given those before it, in nats."""
        return np.asarray(_log_prob(self.observation(data), demonstration_value(data)), float)

    def next_actions(self, data: Trajectories) -> np.ndarray:
        """Probability (sequence, time, action) of every action given those before it."""
        predicted = np.asarray(_predicted(self.observation(data), demonstration_value(data)))
        states = np.maximum(np.asarray(data.states), 0)
        return np.einsum("nti,inta->nta", predicted, self.policy[:, states])


def predictive_agent(key: Array, fit: Any, num_draws: int = 200) -> PredictiveAgent:
    """The agent of posterior means: of the policies, of the first intent, and of the next one.

    Parameters
    ----------
    key : typed PRNG key.
    fit : a `RewardFit` or `RewardPosterior` of a `SwitchingGPIRL`; or a `SampledPosterior`, all of whose draws are
        averaged: their labels have to agree, as those of ``ethogram.fit(key, model, data, "nuts").result`` do.
    num_draws : number of draws of the rewards, whose policies are averaged.
    """
    require_key(key)
    require_integer("num_draws", num_draws, 1)
    posterior = fit.posterior if isinstance(fit, RewardFit) else fit
    if not isinstance(posterior, RewardPosterior | SampledPosterior) or not isinstance(
        posterior.model, SwitchingGPIRL
    ):
        raise TypeError(
            f"fit is {type(fit).__name__} of a {type(getattr(posterior, 'model', None)).__name__}: give a RewardFit, a "
            "RewardPosterior or a SampledPosterior of a SwitchingGPIRL"
        )
    if isinstance(posterior, SampledPosterior):
        means = {name: np.asarray(site, float).mean((0, 1)) for name, site in posterior.sites.items()}
    else:
        means = {name: np.asarray(block.natural.concentration) for name, block in posterior.chain.items()}
        means["policy"] = np.asarray(posterior.sample(key, num_draws)["policy"], float).mean(0)
    rows = (means[name] for name in ("policy", "initial", "transition"))
    policy, *chain = (x / x.sum(-1, keepdims=True) for x in rows)
    return PredictiveAgent(posterior.model, policy, IntentChain(*chain))


def infer_reward_intents(key: Array, fit: Any, data: Trajectories, *, num_draws: int = 200) -> RewardIntents:
    """Posterior probabilities of the intents of demonstrations, under posterior mean policies and chain.

    Parameters
    ----------
    key : typed PRNG key, of the draws of the policies.
    fit : result of `fit_switching`, its posterior, or draws, as for `predictive_agent`.
    data : `Trajectories` in the same environment, those of the fit or others.
    num_draws : number of draws of the rewards, whose policies are averaged.
    """
    agent = predictive_agent(key, fit, num_draws)
    found = _intents(agent.observation(data), demonstration_value(data))
    smoothed, filtered, path, increment = (np.asarray(x) for x in found)
    inside = np.arange(path.shape[1]) < np.asarray(data.lengths)[:, None]
    return RewardIntents(
        np.where(inside[..., None], smoothed, 0), np.where(inside[..., None], filtered, 0), path, increment
    )


@jax.jit
def _log_prob(acts: SwitchingPolicies, value: Array) -> Array:
    return acts.log_prob(value)


@jax.jit
def _predicted(acts: SwitchingPolicies, value: Array) -> Array:
    return acts.filter(value).predicted


@jax.jit
def _intents(acts: SwitchingPolicies, value: Array) -> tuple[Array, ...]:
    filtered = acts.filter(value)
    return acts.smooth(value).state, filtered.state, acts.most_likely_path(value).path, filtered.log_increment
