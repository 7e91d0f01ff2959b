"""Posterior intents of traces and of agents that act."""

from ethogram.inference.intents.infer_intents import USED, InferredIntents, infer_intents
from ethogram.inference.intents.intent_belief import BeliefReport, IntentBelief
from ethogram.inference.intents.intent_forecasts import IntentForecast, forecast_intents

__all__ = [
    "USED",
    "BeliefReport",
    "InferredIntents",
    "IntentBelief",
    "IntentForecast",
    "forecast_intents",
    "infer_intents",
]
