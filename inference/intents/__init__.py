"""Posterior intents of traces, and error measures of learned agents."""

from ethogram.inference.intents.infer_intents import USED, InferredIntents, infer_intents
from ethogram.inference.intents.intent_errors import IntentErrors, intent_errors

__all__ = ["USED", "InferredIntents", "IntentErrors", "infer_intents", "intent_errors"]
