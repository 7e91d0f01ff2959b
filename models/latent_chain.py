"""What every distribution over latent chains offers, from the log potentials of its chain."""

from __future__ import annotations

import abc
from typing import Any

from jax import Array
from numpyro.distributions import Distribution

from ethogram.models import markov_chain
from ethogram.models.markov_chain import Filtered, Marginals, Path

__all__ = ["LatentChain"]


class LatentChain(Distribution):
    """A distribution whose latent states, a Markov chain a batch entry, are summed out inside."""

    @abc.abstractmethod
    def _chain(self, value: Any) -> tuple[Array, Array, Array, Array]:
        """Log potentials and lengths given a value: the arguments of `markov_chain.log_normalizer`."""

    @abc.abstractmethod
    def informative(self, value: Any) -> Array:
        """Whether a step (..., time) tells anything, by the value or by what is known beside it."""

    def log_prob(self, value: Any) -> Array:
        r"""Log evidence :math:`\ln p(y)`, one entry a sequence; with what is known of the states z, of both."""
        return markov_chain.log_normalizer(*self._chain(value))

    def filter(self, value: Any) -> Filtered:
        r"""Filtered and predicted state probabilities; ``log_increment`` is :math:`\ln p(y_t \mid y_{<t})`."""
        return markov_chain.filter_states(*self._chain(value))

    def smooth(self, value: Any) -> Marginals:
        """Posterior state and pair marginals given the whole sequence."""
        return markov_chain.marginals(*self._chain(value))

    def most_likely_path(self, value: Any) -> Path:
        """Viterbi path; -1 beyond the length."""
        return markov_chain.most_likely_path(*self._chain(value))

    def sample_path(self, key: Array, value: Any) -> Path:
        """One exact posterior draw of the states; -1 beyond the length."""
        return markov_chain.sample_path(key, *self._chain(value))
