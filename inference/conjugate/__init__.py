"""Coordinate ascent and natural-gradient variational inference of conjugate models."""

from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.posterior import (
    ConjugatePosterior,
    ConjugateResult,
    load_posterior,
    posterior_of,
)
from ethogram.inference.conjugate.score_curve import (
    PeerScore,
    ScoreCurve,
    heldout_log_likelihood,
    heldout_score_curve,
)
from ethogram.inference.conjugate.side_by_side import fit_side_by_side, lanes_for
from ethogram.inference.conjugate.starts import start_blocks
from ethogram.inference.conjugate.step_sizes import constant_then_average, robbins_monro

__all__ = [
    "ConjugatePosterior",
    "ConjugateResult",
    "ConjugateSVI",
    "PeerScore",
    "ScoreCurve",
    "constant_then_average",
    "fit_side_by_side",
    "heldout_log_likelihood",
    "heldout_score_curve",
    "lanes_for",
    "load_posterior",
    "posterior_of",
    "robbins_monro",
    "start_blocks",
]
