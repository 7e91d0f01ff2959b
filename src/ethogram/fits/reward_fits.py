"""Fits of Gaussian-process rewards: which states are worth going to, and which policy follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpyro.distributions import Distribution

from ethogram.fits.systems import System, draws_by_site, log_likelihood_of
from ethogram.inference.rewards import ThreePolicies, policies
from ethogram.inference.rewards.max_entropy import MaxEntropyFit
from ethogram.models.data import Trajectories
from ethogram.plots import rewards as plots

__all__ = ["RewardFits"]

MOST_BARS = 40


class RewardFits(System):
    """Fits of a `GPIRL`."""

    def predict(self, fit: Any, data: Any, settings: Mapping[str, int]) -> ThreePolicies | Any:
        if isinstance(fit.result, MaxEntropyFit):
            return fit.result.policy
        draws = draws_by_site(fit, 200)
        return policies(
            fit.model.mdp, draws["reward"], rationality=draws.get("rationality", fit.model.rationality)
        )

    def log_densities(self, fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
        counts = fit.model.counts(data)
        if isinstance(fit.result, MaxEntropyFit):
            with np.errstate(divide="ignore"):
                log_policy = np.log(np.asarray(fit.result.policy, float))
            if isinstance(data, Trajectories):
                states, actions = np.asarray(data.states), np.asarray(data.actions)
                known = (states >= 0) & (actions >= 0)
                each = np.where(known, log_policy[states * known, actions * known], 0)
                return each.sum(1)[None], known.sum(1).astype(float)
            scores = np.where(np.asarray(counts) > 0, counts * log_policy, 0).sum(-1)
            return scores[None], np.asarray(counts).sum(-1)
        values = log_likelihood_of(fit, data, num_draws)
        if isinstance(data, Trajectories):
            known = (np.asarray(data.states) >= 0) & (np.asarray(data.actions) >= 0)
            return values, known.sum(1).astype(float)
        return values, np.asarray(counts, float).sum(-1)

    def draw(self, fit: Any, figure: Any) -> None:
        known = not isinstance(fit.model.relevance_prior, Distribution)
        alone = known or isinstance(fit.result, MaxEntropyFit)  # no relevances are learned
        left, *right = np.ravel(figure.subplots(1, 1 if alone else 2))
        names = fit.model.mdp.state_names
        if isinstance(fit.result, MaxEntropyFit):
            mean, low, high = (np.asarray(fit.result.reward).reshape(-1),) * 3
        else:
            rewards = draws_by_site(fit, 400)["reward"]
            rewards = rewards.reshape(len(rewards), -1)
            rewards = rewards - rewards.mean(1, keepdims=True)  # the level of rewards is not identified
            mean = rewards.mean(0)
            low, high = np.percentile(rewards, [5, 95], axis=0)
        shown = np.argsort(-mean)[:MOST_BARS]
        places = np.arange(len(shown))[::-1]
        left.hlines(places, low[shown], high[shown], color="C0", linewidth=2)
        left.plot(mean[shown], places, "o", color="C0", markersize=4)
        labels = [names[i] if names is not None and len(names) == len(mean) else str(i) for i in shown]
        left.set_yticks(places, labels, fontsize="small")
        left.set(xlabel="reward, deviation from its mean", title="rewards: mean and 90 % interval")
        if alone:
            return
        relevance = draws_by_site(fit, 400)["relevance"]
        relevance = relevance.reshape(-1, relevance.shape[-1])
        used = np.flatnonzero((relevance > 0).all(0))  # Levine's estimate has zeros
        if len(used):
            plots.relevance_forest(relevance[:, used], right[0], names=[str(feature) for feature in used])
        right[0].set_title("relevance of the features")
