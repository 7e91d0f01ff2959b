"""PX-DA for the noisy MDP; summaries, predictions and marginal effects."""

from ethogram.inference.choices.effects import (
    Band,
    choice_shares,
    elasticities,
    marginal_effects,
    share_changes,
)
from ethogram.inference.choices.latent_class_fit import by_class
from ethogram.inference.choices.predictions import (
    Calibration,
    calibration,
    choice_error,
    noise_floor,
    predict_choice_probabilities,
)
from ethogram.inference.choices.px_da import PXDA
from ethogram.inference.choices.summary import ChoiceSummary, Mode, find_choice_mode, summarize_choices
from ethogram.inference.choices.welfare import (
    consumer_surplus,
    willingness_to_pay,
    wtp_space,
)

__all__ = [
    "PXDA",
    "Band",
    "Calibration",
    "ChoiceSummary",
    "Mode",
    "by_class",
    "calibration",
    "choice_error",
    "choice_shares",
    "consumer_surplus",
    "elasticities",
    "find_choice_mode",
    "marginal_effects",
    "noise_floor",
    "predict_choice_probabilities",
    "share_changes",
    "summarize_choices",
    "willingness_to_pay",
    "wtp_space",
]
