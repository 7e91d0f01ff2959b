"""The noisy MDP: probit or logit choice over the values of actions."""

from ethogram.models.choices.choice_problem import ChoiceProblem
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.latent_classes import LatentClasses
from ethogram.models.choices.logit_probit import Logit, Probit
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import ProbitChoice
from ethogram.models.choices.separation import Separation, find_separation
from ethogram.models.choices.value_rewards import reward

__all__ = [
    "ChoiceProblem",
    "Decisions",
    "LatentClasses",
    "Logit",
    "NoisyMDP",
    "Probit",
    "ProbitChoice",
    "Separation",
    "find_separation",
    "reward",
]
