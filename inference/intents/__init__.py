"""Posterior intents of traces and of agents that act, and error measures of learned agents."""

from ethogram.inference.intents.infer_intents import USED, InferredIntents, infer_intents
from ethogram.inference.intents.intent_belief import BeliefReport, IntentBelief
from ethogram.inference.intents.intent_errors import IntentErrors, intent_errors
from ethogram.inference.intents.intent_forecasts import IntentForecast, forecast_intents
from ethogram.inference.intents.weight_evidence import weight_evidence

__all__ = [
    "USED",
    "BeliefReport",
    "InferredIntents",
    "IntentBelief",
    "IntentErrors",
    "IntentForecast",
    "forecast_intents",
    "infer_intents",
    "intent_errors",
    "weight_evidence",
]
