"""Fits of Gaussian-process rewards: which states are worth going to, and which policy follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpyro.distributions import Distribution

from ethogram.fits.estimates import entries_of, estimates
from ethogram.fits.systems import System, draws_by_site, log_likelihood_of
from ethogram.inference.rewards import (
    RewardIntents,
    ThreePolicies,
    infer_reward_intents,
    policies,
    predictive_agent,
)
from ethogram.inference.rewards.max_entropy import MaxEntropyFit
from ethogram.models.data import Trajectories
from ethogram.models.mdps.soft_policy import num_experts, read_demonstrations
from ethogram.plots import rewards as plots
from ethogram.plots.colours import SERIES, category_colours
from ethogram.plots.intents import intent_timeline

__all__ = ["RewardFits"]

MOST_BARS = 40


class RewardFits(System):
    """Fits of a `GPIRL`."""

    def states(self, fit: Any, data: Any) -> RewardIntents:
        if not fit.model.switches:
            raise TypeError("a GPIRL of one reward has no hidden states: give it num_intents > 1")
        return infer_reward_intents(fit._key, fit.result, data)

    def predict(self, fit: Any, data: Any, settings: Mapping[str, int]) -> ThreePolicies | Any:
        if isinstance(fit.result, MaxEntropyFit):
            return fit.result.policy
        if fit.model.switches:
            return predictive_agent(fit._key, fit.result).next_actions(data)
        draws = draws_by_site(fit, 200)
        times = draws.get("rationality", fit.model.rationality)
        return policies(fit.model.mdp, draws["reward"], rationality=times, pairs=fit.model.features.ndim == 3)

    def log_densities(self, fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
        fit.model.check(data)
        counts = fit.model.counts(data)
        experts, fitted = num_experts(data), num_experts(fit.data)
        if (experts is None) != (fitted is None) or (experts or 0) > (fitted or 0):
            raise ValueError(
                f"data have {experts or 'no'} experts (subjects), and those of the fit {fitted or 'none'}: number the "
                "subjects as in the fit, or leave them out of both"
            )
        if isinstance(fit.result, MaxEntropyFit):
            with np.errstate(divide="ignore"):
                log_policy = np.log(np.asarray(fit.result.policy, float))
            if isinstance(data, Trajectories):
                steps, known = _known_steps(fit, data)
                each = np.where(known, log_policy[steps.state * known, steps.action * known], 0)
                return each.sum(1)[None], known.sum(1).astype(float)
            scores = np.where(np.asarray(counts) > 0, counts * log_policy, 0).sum(-1)
            return scores[None], np.asarray(counts).sum(-1)
        values = log_likelihood_of(fit, data, num_draws)
        if isinstance(data, Trajectories):
            return values, _known_steps(fit, data)[1].sum(1).astype(float)
        return values, np.asarray(counts, float).sum(-1)

    def draw(self, fit: Any, figure: Any) -> None:
        if fit.model.switches:
            return self._draw_intents(fit, figure)
        single = isinstance(fit.result, MaxEntropyFit)
        held = not isinstance(fit.model.relevance_prior, Distribution)  # no relevances are learned
        axes = figure.subplots(1, 1 if single or held else 2, squeeze=False)[0]
        if single:
            table = estimates(fit, 0.9)
            _reward_intervals(
                table.index.tolist(), (table["mean"] - table["mean"].mean()).to_numpy()[None], axes[0]
            )
            axes[0].set_title("rewards of the linear baseline")
            return
        names, draws = entries_of(fit)
        rewards = [at for at, name in enumerate(names) if name.startswith("centred_reward[")]
        values = draws.reshape(-1, len(names))
        _reward_intervals([names[at].removeprefix("centred_") for at in rewards], values[:, rewards], axes[0])
        axes[0].set_title("rewards: mean and 90 % interval")
        if held:
            return
        relevance = [at for at, name in enumerate(names) if name.startswith("relevance[")]
        used = [at for at in relevance if (values[:, at] > 0).all()]  # Levine's estimate has zeros
        axes[1].set_title("relevance of the features")
        if used:
            inside = [names[at].removeprefix("relevance[").removesuffix("]") for at in used]
            plots.relevance_forest(values[:, used], axes[1], names=inside)
        else:
            axes[1].set(xticks=[], yticks=[], xlabel="all are 0")

    def _draw_intents(self, fit: Any, figure: Any) -> None:
        """Rewards of every intent, and the intents of the longest demonstration."""
        left, right = figure.subplots(1, 2, width_ratios=(1, 2))
        names, draws = entries_of(fit)
        rewards = [at for at, name in enumerate(names) if name.startswith("centred_reward[")]
        values = draws.reshape(-1, len(names))[:, rewards]
        values = values.reshape(len(values), fit.model.num_intents, -1)
        firsts = [names[at] for at in rewards[: values.shape[-1]]]
        _intent_rewards(
            [name.removeprefix("centred_reward[").partition(", ")[2][:-1] for name in firsts], values, left
        )
        left.set_title("rewards by intent: mean and 90 % interval")
        left.set_ylabel(", ".join(("state", "action")[: fit.model.features.ndim - 1]))
        found, lengths = self.states(fit, fit.data), np.asarray(fit.data.lengths)
        longest = int(lengths.argmax())
        intent_timeline(found.probability[longest, : lengths[longest]], right)
        right.set_title("intents along the longest demonstration")


def _known_steps(fit: Any, data: Trajectories) -> tuple[Any, np.ndarray]:
    """Checked steps of demonstrations, and which of them have an action."""
    steps = read_demonstrations(fit.model.mdp, data, fit.model.check_transitions)
    return steps, steps.inside & (steps.action >= 0)


def _reward_intervals(names: list[str], values: np.ndarray, axes: Any) -> None:
    """Means and 90 % intervals of rewards (draw, reward), the highest first."""
    mean = values.mean(0)
    low, high = np.percentile(values, [5, 95], axis=0)
    shown = np.argsort(-mean, kind="stable")[:MOST_BARS]
    places = np.arange(len(shown))[::-1]
    axes.hlines(places, low[shown], high[shown], color=SERIES[0], linewidth=2)
    axes.plot(mean[shown], places, "o", color=SERIES[0], markersize=4)
    axes.set_yticks(places, [names[at] for at in shown], fontsize="small")
    axes.set_xlabel("reward, deviation from its mean")


def _intent_rewards(names: list[str], values: np.ndarray, axes: Any) -> None:
    """Means and 90 % intervals of rewards (draw, intent, reward), those with the highest of an intent first."""
    mean, (low, high) = values.mean(0), np.percentile(values, [5, 95], axis=0)
    count = len(mean)
    shown = np.argsort(-mean.max(0), kind="stable")[: max(1, MOST_BARS // count)]
    places = np.arange(len(shown))[::-1]
    beside = np.linspace(0.3, -0.3, count) * (count - 1) / count
    for intent, colour in enumerate(category_colours(count)):
        at = places + beside[intent]
        axes.hlines(at, low[intent, shown], high[intent, shown], color=colour, linewidth=2)
        axes.plot(mean[intent, shown], at, "o", color=colour, markersize=4)
    axes.set_yticks(places, [names[at] for at in shown], fontsize="small")
    axes.set(xlabel="reward, deviation from its mean", ylim=(-0.5, len(shown) - 0.5))
