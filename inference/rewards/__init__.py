"""Reward inference: GP-IRL posteriors, Levine's estimate, maximum entropy, predictions and transfer."""

from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.heldout import (
    PolicyScore,
    heldout_policy_scores,
    heldout_reward_curve,
    reward_peers,
)
from ethogram.inference.rewards.levine import LevineEstimate, levine_map
from ethogram.inference.rewards.max_entropy import MaxEntropyFit, fit_max_entropy
from ethogram.inference.rewards.predictions import (
    PolicySummary,
    RewardPrediction,
    RewardTransfer,
    difference_coverage,
    feature_rewards,
    policies,
    predict_reward,
    transfer_reward,
)
from ethogram.inference.rewards.reward_posterior import RewardFit, RewardPosterior
from ethogram.inference.rewards.search_status import Status
from ethogram.inference.rewards.switching_fit import fit_switching
from ethogram.inference.rewards.switching_predictions import (
    PredictiveAgent,
    RewardIntents,
    infer_reward_intents,
    predictive_agent,
)

__all__ = [
    "LevineEstimate",
    "MaxEntropyFit",
    "PolicyScore",
    "PolicySummary",
    "PredictiveAgent",
    "RewardFit",
    "RewardIntents",
    "RewardPosterior",
    "RewardPrediction",
    "RewardTransfer",
    "Status",
    "difference_coverage",
    "feature_rewards",
    "fit_max_entropy",
    "fit_reward",
    "fit_switching",
    "heldout_policy_scores",
    "heldout_reward_curve",
    "infer_reward_intents",
    "levine_map",
    "policies",
    "predict_reward",
    "predictive_agent",
    "reward_peers",
    "transfer_reward",
]
