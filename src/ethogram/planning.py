"""Planning: problems in RDDL or built in Python, SOGBOFA, and episodes."""

from ethogram.inference import planning as _inference
from ethogram.inference.planning import *  # noqa: F403
from ethogram.models import planning as _models
from ethogram.models.planning import *  # noqa: F403

__all__ = sorted([*_models.__all__, *_inference.__all__])
