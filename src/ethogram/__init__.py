"""Probabilistic models of agents that decide in sequence, on numpyro and JAX.

>>> import ethogram
>>> ethogram.RoleHMM
<class 'ethogram.models.role_hmm.RoleHMM'>
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ethogram.inference.alignment import align_states
    from ethogram.inference.arviz_export import to_arviz
    from ethogram.inference.assignment import assign_roles, infer_roles
    from ethogram.inference.choice_effects import (
        choice_shares,
        elasticities,
        marginal_effects,
        willingness_to_pay,
    )
    from ethogram.inference.choice_predictions import predict_choice, predict_probabilities
    from ethogram.inference.choice_summary import find_mode, summarize_choices
    from ethogram.inference.conjugate_svi import ConjugateSVI
    from ethogram.inference.intent_errors import intent_errors
    from ethogram.inference.intents import infer_intents
    from ethogram.inference.linear_reward import fit_linear_reward
    from ethogram.inference.max_entropy import fit_max_entropy
    from ethogram.inference.posterior import Posterior, load
    from ethogram.inference.px_da import PXDA
    from ethogram.inference.reward_guide import RewardGuide
    from ethogram.inference.reward_posterior import fit_reward
    from ethogram.inference.reward_predictions import predict_reward, transfer
    from ethogram.inference.score_curve import score_curve
    from ethogram.inference.solve_mmap import solve_mmap
    from ethogram.inference.step_sizes import robbins_monro
    from ethogram.models import markov_chain
    from ethogram.models.agent_markov import AgentMarkov, Constraints
    from ethogram.models.agent_trace import AgentTrace
    from ethogram.models.bayes_net import BayesNet, MarginalMAP
    from ethogram.models.choice import ProbitChoice
    from ethogram.models.decisions import Decisions
    from ethogram.models.emissions import (
        BinomialEmission,
        CategoricalEmission,
        GaussianEmission,
        GaussianMixtureEmission,
        KnownCovarianceEmission,
    )
    from ethogram.models.exponential_family import Known
    from ethogram.models.gp_irl import GPIRL
    from ethogram.models.hard_values import optimal_values
    from ethogram.models.hidden_markov import HiddenMarkov
    from ethogram.models.inducing_points import inducing_points
    from ethogram.models.mdp import MDP
    from ethogram.models.noisy_mdp import NoisyMDP
    from ethogram.models.policy_values import policy_values
    from ethogram.models.role_hmm import RoleHMM
    from ethogram.models.soft_policy import SoftPolicy
    from ethogram.models.soft_values import soft_policy, soft_values
    from ethogram.models.trajectories import Metadata, Trajectories
    from ethogram.models.value_difference import expected_value_difference
    from ethogram.models.world_tables import mdp_from_counts, mdp_from_gymnasium

_HOMES = {
    "AgentMarkov": "ethogram.models.agent_markov",
    "AgentTrace": "ethogram.models.agent_trace",
    "BayesNet": "ethogram.models.bayes_net",
    "BinomialEmission": "ethogram.models.emissions",
    "CategoricalEmission": "ethogram.models.emissions",
    "ConjugateSVI": "ethogram.inference.conjugate_svi",
    "Constraints": "ethogram.models.agent_markov",
    "Decisions": "ethogram.models.decisions",
    "GPIRL": "ethogram.models.gp_irl",
    "GaussianEmission": "ethogram.models.emissions",
    "GaussianMixtureEmission": "ethogram.models.emissions",
    "HiddenMarkov": "ethogram.models.hidden_markov",
    "Known": "ethogram.models.exponential_family",
    "KnownCovarianceEmission": "ethogram.models.emissions",
    "MDP": "ethogram.models.mdp",
    "MarginalMAP": "ethogram.models.bayes_net",
    "Metadata": "ethogram.models.trajectories",
    "NoisyMDP": "ethogram.models.noisy_mdp",
    "PXDA": "ethogram.inference.px_da",
    "Posterior": "ethogram.inference.posterior",
    "ProbitChoice": "ethogram.models.choice",
    "RewardGuide": "ethogram.inference.reward_guide",
    "RoleHMM": "ethogram.models.role_hmm",
    "SoftPolicy": "ethogram.models.soft_policy",
    "Trajectories": "ethogram.models.trajectories",
    "align_states": "ethogram.inference.alignment",
    "assign_roles": "ethogram.inference.assignment",
    "choice_shares": "ethogram.inference.choice_effects",
    "elasticities": "ethogram.inference.choice_effects",
    "expected_value_difference": "ethogram.models.value_difference",
    "find_mode": "ethogram.inference.choice_summary",
    "fit_linear_reward": "ethogram.inference.linear_reward",
    "fit_max_entropy": "ethogram.inference.max_entropy",
    "fit_reward": "ethogram.inference.reward_posterior",
    "inducing_points": "ethogram.models.inducing_points",
    "infer_intents": "ethogram.inference.intents",
    "infer_roles": "ethogram.inference.assignment",
    "intent_errors": "ethogram.inference.intent_errors",
    "load": "ethogram.inference.posterior",
    "marginal_effects": "ethogram.inference.choice_effects",
    "markov_chain": "ethogram.models",
    "mdp_from_counts": "ethogram.models.world_tables",
    "mdp_from_gymnasium": "ethogram.models.world_tables",
    "optimal_values": "ethogram.models.hard_values",
    "policy_values": "ethogram.models.policy_values",
    "predict_choice": "ethogram.inference.choice_predictions",
    "predict_probabilities": "ethogram.inference.choice_predictions",
    "predict_reward": "ethogram.inference.reward_predictions",
    "robbins_monro": "ethogram.inference.step_sizes",
    "score_curve": "ethogram.inference.score_curve",
    "soft_policy": "ethogram.models.soft_values",
    "solve_mmap": "ethogram.inference.solve_mmap",
    "soft_values": "ethogram.models.soft_values",
    "summarize_choices": "ethogram.inference.choice_summary",
    "to_arviz": "ethogram.inference.arviz_export",
    "transfer": "ethogram.inference.reward_predictions",
    "willingness_to_pay": "ethogram.inference.choice_effects",
}
"""Public names and the modules they live in, imported when first asked for: `import ethogram` stays cheap."""

__version__ = "0.1.0"

__all__ = [
    "GPIRL",
    "MDP",
    "PXDA",
    "AgentMarkov",
    "AgentTrace",
    "BayesNet",
    "BinomialEmission",
    "CategoricalEmission",
    "ConjugateSVI",
    "Constraints",
    "Decisions",
    "GaussianEmission",
    "GaussianMixtureEmission",
    "HiddenMarkov",
    "Known",
    "KnownCovarianceEmission",
    "MarginalMAP",
    "Metadata",
    "NoisyMDP",
    "Posterior",
    "ProbitChoice",
    "RewardGuide",
    "RoleHMM",
    "SoftPolicy",
    "Trajectories",
    "align_states",
    "assign_roles",
    "choice_shares",
    "elasticities",
    "expected_value_difference",
    "find_mode",
    "fit_linear_reward",
    "fit_max_entropy",
    "fit_reward",
    "inducing_points",
    "infer_intents",
    "infer_roles",
    "intent_errors",
    "load",
    "marginal_effects",
    "markov_chain",
    "mdp_from_counts",
    "mdp_from_gymnasium",
    "optimal_values",
    "policy_values",
    "predict_choice",
    "predict_probabilities",
    "predict_reward",
    "robbins_monro",
    "score_curve",
    "soft_policy",
    "soft_values",
    "solve_mmap",
    "summarize_choices",
    "to_arviz",
    "transfer",
    "willingness_to_pay",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ethogram' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    value = import_module(f"{home.__name__}.{name}") if name == "markov_chain" else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
