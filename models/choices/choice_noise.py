r"""Noise of choices beside the normal: Gumbel errors (conditional logit), and lapses.

.. math:: P(a) = \frac{e^{\mu_a}}{\sum_{j\ \mathrm{legal}} e^{\mu_j}}, \qquad
          P(a) = (1 - g)\, P_0(a) + g / M

with the lapse probability g, at which each of the M legal options is equally probable. McFadden (1974), "Conditional
logit analysis of qualitative choice behavior". No factor turns coefficients of one noise into those of another: compare
probabilities, elasticities and ratios.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array
from numpyro.distributions import Beta, Distribution

from ethogram.models.choices.choice_distribution import ChoiceNoise
from ethogram.models.model_object import model_object

__all__ = ["GumbelNoise", "LapseNoise"]


@model_object
class GumbelNoise(ChoiceNoise):
    """Independent standard Gumbel errors, of variance pi^2 / 6."""

    no_augmentation = (
        "the chances of one option against the rest contain theta in their offset, so that Polya-Gamma variables leave "
        "theta no normal conditional where decisions have more than two options"
    )

    def log_probability(self, gaps: Array, others: Array, num_nodes: int | None = None) -> Array:
        """Log probability (...), in closed form."""
        terms = jnp.where(others, -gaps, -jnp.inf)
        return -logsumexp(jnp.concatenate([jnp.zeros_like(gaps, shape=(1, *gaps.shape[1:])), terms]), axis=0)

    def probabilities(self, utilities: Any, legal: Any) -> Array:
        """Probability of every option (..., option)."""
        return jax.nn.softmax(jnp.where(legal, utilities, -jnp.inf), axis=-1)

    def perturbed(self, key: Array, utilities: Array) -> Array:
        """Utilities with an error each."""
        return utilities + jax.random.gumbel(key, utilities.shape, utilities.dtype)

    def in_words(self) -> str:
        """What a summary calls it."""
        return "Gumbel noise (conditional logit)"


@model_object
class LapseNoise(ChoiceNoise):
    """A noise, and a probability at which the choice is made at random among the legal options."""

    base: Any
    lapse: Any

    log_concave = False

    @property
    def no_augmentation(self) -> str:
        """Lapses are augmented beside normal noise, with a number or a beta prior."""
        if reason := self.base.no_augmentation or self.base.no_lapses:
            return reason
        beta = isinstance(self.lapse, Beta) or not isinstance(self.lapse, Distribution)
        return "" if beta else "the prior of lapse is not a Beta"

    def _mixed(self, log_base: Array, others: Array) -> Array:
        count = jnp.sum(others, axis=0)
        several = count > 0
        mixed = jnp.logaddexp(jnp.log1p(-self.lapse) + log_base, jnp.log(self.lapse) - jnp.log1p(count))
        return jnp.where(several, mixed, 0).astype(log_base.dtype)

    def log_probability(self, gaps: Array, others: Array, num_nodes: int | None = None) -> Array:
        """Log probability (...): 0 where the decision has one option."""
        return self._mixed(self.base.log_probability(gaps, others, num_nodes), others)

    def probabilities(self, utilities: Any, legal: Any) -> Array:
        """Probability of every option (..., option)."""
        chance = legal / jnp.sum(legal, axis=-1, keepdims=True)
        mixed = (1 - self.lapse) * self.base.probabilities(utilities, legal) + self.lapse * chance
        return mixed.astype(utilities.dtype)

    def perturbed(self, key: Array, utilities: Array) -> Array:
        """Utilities with noise, in their place random numbers where the decision has a lapse."""
        key_base, key_lapse, key_choice = jax.random.split(key, 3)
        lapsed = jax.random.bernoulli(key_lapse, self.lapse, (*utilities.shape[:-1], 1))
        uniform = jax.random.uniform(key_choice, utilities.shape, utilities.dtype)
        return jnp.where(lapsed, uniform, self.base.perturbed(key_base, utilities))

    def given_choice(self, chosen: Array) -> ChoiceNoise:
        """Lapses beside the noise where these options are chosen."""
        return LapseNoise(self.base.given_choice(chosen), self.lapse)

    def refined(self, count: int) -> ChoiceNoise | None:
        """Lapses beside the noise with twice the points."""
        base = self.base.refined(count)
        return None if base is None else LapseNoise(base, self.lapse)

    def in_words(self) -> str:
        """What a summary calls it."""
        known = "" if isinstance(self.lapse, Distribution) else f" of probability {float(self.lapse):.3g}"
        return f"{self.base.in_words()}, and lapses{known}"

    def placed(self, gaps: Any, others: Any, num_nodes: int) -> Any:
        """What the noise without lapses needs."""
        return self.base.placed(gaps, others, num_nodes)

    def on_nodes(self, gaps: Array, others: Array, nodes: Any, near: bool) -> Array:
        """Log probability (...) by the quadrature of the noise without lapses."""
        return self._mixed(self.base.on_nodes(gaps, others, nodes, near), others)

    def concave(self) -> ChoiceNoise:
        """That of the noise without lapses."""
        return self.base.concave()
