"""Messages along chains of hidden states: potentials, filtering, paths, and hidden Markov models."""

from ethogram.models.chains.hidden_markov import Forecast, HiddenMarkov, LatentChain
from ethogram.models.chains.log_space import logsumexp, safe_log
from ethogram.models.chains.markov_chain import (
    ExpectedCounts,
    Filtered,
    Marginals,
    Path,
    entropy,
    expected_counts,
    filter_states,
    forecast_states,
    log_normalizer,
    marginals,
    most_likely_path,
    sample_path,
)

__all__ = [
    "ExpectedCounts",
    "Filtered",
    "Forecast",
    "HiddenMarkov",
    "LatentChain",
    "Marginals",
    "Path",
    "entropy",
    "expected_counts",
    "filter_states",
    "forecast_states",
    "log_normalizer",
    "logsumexp",
    "marginals",
    "most_likely_path",
    "safe_log",
    "sample_path",
]
