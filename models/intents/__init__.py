"""The agent Markov model: latent intents that drive actions in an observed environment."""

from ethogram.models.intents.agent_markov import AgentMarkov, SimulatedAgent
from ethogram.models.intents.agent_trace import AgentTrace
from ethogram.models.intents.constraints import IntentConstraints
from ethogram.models.intents.intent_agent import IntentAgent, Rollout, noisy_stay_labels, roll_out
from ethogram.models.intents.stickiness import StickinessPrior

__all__ = [
    "AgentMarkov",
    "AgentTrace",
    "IntentAgent",
    "IntentConstraints",
    "Rollout",
    "SimulatedAgent",
    "StickinessPrior",
    "noisy_stay_labels",
    "roll_out",
]
