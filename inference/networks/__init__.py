"""Marginal MAP: AGS, exact elimination, search, message passing, and marginals."""

from ethogram.inference.networks.ags import Vertices, ascend
from ethogram.inference.networks.best_assignments import RankedAssignment, best_assignments, single_flips
from ethogram.inference.networks.elimination import (
    ExactAnswer,
    WidthError,
    exact_log_probability,
    exact_map,
)
from ethogram.inference.networks.forward_value import forward_value
from ethogram.inference.networks.incumbent import TracePoint
from ethogram.inference.networks.marginals import VariablePosteriors, variable_posteriors
from ethogram.inference.networks.mixed_product import smoothed_tables
from ethogram.inference.networks.solve_mmap import ImpossibleEvidenceError, MarginalMAPResult, solve_mmap

__all__ = [
    "ExactAnswer",
    "ImpossibleEvidenceError",
    "MarginalMAPResult",
    "RankedAssignment",
    "TracePoint",
    "VariablePosteriors",
    "Vertices",
    "WidthError",
    "ascend",
    "best_assignments",
    "exact_log_probability",
    "exact_map",
    "forward_value",
    "single_flips",
    "smoothed_tables",
    "solve_mmap",
    "variable_posteriors",
]
