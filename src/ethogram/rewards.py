"""GP-IRL: the model, its inference, predictions and transfer; maximum-entropy rewards."""

from ethogram.inference import rewards as _inference
from ethogram.inference.rewards import *  # noqa: F403
from ethogram.models import rewards as _models
from ethogram.models.rewards import *  # noqa: F403

__all__ = sorted([*_models.__all__, *_inference.__all__])
