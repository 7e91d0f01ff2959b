"""Base class of distributions over latent chains: filtering, smoothing, paths (Rabiner 1989, section III)."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

from jax import Array
from numpyro.distributions import Distribution

from ethogram.models.chains import markov_chain
from ethogram.models.chains.markov_chain import Filtered, Marginals, Path
from ethogram.models.quick_jit import quick_jit

__all__ = ["LatentChain"]


class LatentChain(Distribution):
    """A distribution with latent Markov chains, one a batch entry, that are summed out.

    Attributes
    ----------
    num_rest : how many of the last states have no label to permute, such as the remainder of a truncation.
    """

    num_rest: ClassVar[int] = 0

    @abc.abstractmethod
    def _chain(self, value: Any) -> tuple[Array, Array, Array, Array]:
        """Log potentials and lengths given a value: the arguments of `markov_chain.log_normalizer`."""

    def within_truncation(self) -> Any:
        """The distribution without paths through its rest. Default: itself, which has none."""
        return self

    def check_value(self, value: Any) -> None:
        """Raise ValueError where a value that is not traced cannot be one of these. Default: all can."""

    def log_prob(self, value: Any) -> Array:
        r"""Log evidence :math:`\ln p(y)`, one entry per sequence; where states z are known, of both."""
        return markov_chain.log_normalizer(*_chain_of(self, value))

    def filter(self, value: Any) -> Filtered:
        r"""Filtered and predicted state probabilities; ``log_increment`` is :math:`\ln p(y_t \mid y_{<t})`."""
        return markov_chain.filter_states(*_chain_of(self, value))

    def smooth(self, value: Any) -> Marginals:
        """Posterior state and pair marginals given the whole sequence."""
        return markov_chain.marginals(*_chain_of(self, value))

    def most_likely_path(self, value: Any) -> Path:
        """Viterbi path; -1 beyond the length."""
        return markov_chain.most_likely_path(*_chain_of(self, value))

    def sample_path(self, key: Array, value: Any) -> Path:
        """One exact posterior draw of the states; -1 beyond the length."""
        return markov_chain.sample_path(key, *_chain_of(self, value))


def _chain_of(chain: LatentChain, value: Any) -> tuple[Array, Array, Array, Array]:
    """The arguments of `markov_chain.log_normalizer`, of a checked value."""
    chain.check_value(value)
    return _in_one_program(chain, value)


@quick_jit(inline=True)
def _in_one_program(chain: LatentChain, value: Any) -> tuple[Array, Array, Array, Array]:
    return chain._chain(value)
