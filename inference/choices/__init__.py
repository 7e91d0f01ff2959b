"""PX-DA for the noisy MDP; summaries, predictions and marginal effects."""

from ethogram.inference.choices.effects import (
    Band,
    choice_shares,
    elasticities,
    marginal_effects,
    willingness_to_pay,
)
from ethogram.inference.choices.predictions import (
    Calibration,
    calibration,
    choice_error,
    noise_floor,
    predict_choice_probabilities,
)
from ethogram.inference.choices.px_da import PXDA
from ethogram.inference.choices.summary import ChoiceSummary, Mode, find_choice_mode, summarize_choices

__all__ = [
    "PXDA",
    "Band",
    "Calibration",
    "ChoiceSummary",
    "Mode",
    "calibration",
    "choice_error",
    "choice_shares",
    "elasticities",
    "find_choice_mode",
    "marginal_effects",
    "noise_floor",
    "predict_choice_probabilities",
    "summarize_choices",
    "willingness_to_pay",
]
