"""The distribution of the chosen option, whatever the noise of utilities, and what a noise has to say for it."""

from __future__ import annotations

import abc
import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax import lax
from jaxtyping import Array, Float, Int
from numpyro.distributions import constraints

from ethogram.models.arguments import common_batch, is_concrete, read_part, require
from ethogram.models.choices.checks import namespace

__all__ = ["ChoiceDistribution", "ChoiceNoise"]


class ChoiceNoise(abc.ABC):
    r"""What is added to the utilities of the options, of which the largest is chosen; a pytree of its parameters.

    Gaps are :math:`d_j = \mu_a - \mu_j` (option, ...), how much better the chosen option is than each other one, and
    others (option, ...) booleans, which of them there are.
    """

    log_concave: ClassVar[bool] = True
    """Whether log probabilities are concave in the utilities, so that a proper posterior has one mode."""
    no_lapses: ClassVar[str] = "lapses are drawn beside normal noise alone"
    """Why PX-DA does not sample it with lapses."""

    @property
    def no_augmentation(self) -> str:
        """Why PX-DA does not sample it; empty where it does."""
        return ""

    @abc.abstractmethod
    def log_probability(self, gaps: Array, others: Array, num_nodes: int | None = None) -> Array:
        """Log probability (...) of the chosen option; nodes are those of a quadrature, where there is one."""

    @abc.abstractmethod
    def probabilities(self, utilities: Any, legal: Any) -> Array:
        """Probability of every option (..., option), zero where not legal; sums to one."""

    @abc.abstractmethod
    def perturbed(self, key: Array, utilities: Array) -> Array:
        """Draws of utilities (..., option) with noise; the largest of the legal ones is chosen."""

    @abc.abstractmethod
    def in_words(self) -> str:
        """What a summary calls it."""

    def given_choice(self, chosen: Array) -> ChoiceNoise:
        """The noise where these options (...) are chosen, and gaps are to the others in their order."""
        return self

    def placed(self, gaps: Any, others: Any, num_nodes: int) -> Any:
        """What `on_nodes` needs of a place near the gaps that it is called with."""
        return num_nodes

    def on_nodes(self, gaps: Array, others: Array, nodes: Any, near: bool) -> Array:
        """Log probability (...) by a quadrature that was placed before; `near`: no gap is far below zero."""
        return self.log_probability(gaps, others, nodes)

    def refined(self, count: int) -> ChoiceNoise | None:
        """The noise with twice the points, where probabilities of so many options are simulated; None elsewhere."""
        return None

    def concave(self) -> ChoiceNoise:
        """A log-concave noise, whose mode is one of the starts of a search for modes of this one."""
        return self


class ChoiceDistribution(dist.Distribution):
    r"""The index of the option with the largest utility, with noise.

    A batch entry is a decision, the value is the chosen option. ``log_prob`` has derivatives in the utilities, is
    finite for every legal option however improbable, and ``-inf`` for others.

    Parameters
    ----------
    utilities : mu (..., option); entries of options that are not legal are ignored, even NaN.
    legal : (..., option) booleans; None for all.
    noise : of the utilities.

    Raises
    ------
    TypeError, ValueError
        If a decision has no legal option, or a legal option has a utility that is not finite (the message names the
        decision); if shapes do not broadcast.
    """

    arg_constraints: ClassVar[dict] = {"utilities": constraints.real_vector}
    pytree_data_fields = ("utilities", "legal", "noise")

    def __init__(self, utilities: Any, legal: Any, noise: ChoiceNoise, *, validate_args: bool | None = None):
        utilities = read_part("utilities", utilities, "biuf", "give numbers")
        legal = read_part("legal", legal, "biuf", "give booleans (..., option)")
        xp = namespace(utilities, legal)
        if not np.ndim(utilities) or utilities.shape[-1] < 1:
            raise ValueError(
                f"utilities has shape {np.shape(utilities)}: pass (..., option), with at least one option"
            )
        dtype = jax.dtypes.canonicalize_dtype(jnp.promote_types(utilities.dtype, jnp.float32))
        mask = np.ones(utilities.shape, bool) if legal is None else xp.array(legal)
        if mask.dtype != bool or mask.shape[-1:] != utilities.shape[-1:]:
            raise ValueError(
                f"legal is {mask.dtype} {mask.shape}: pass booleans (..., {utilities.shape[-1]}), one per option"
            )
        came = f"utilities has shape {utilities.shape}, legal {mask.shape}"
        shape = common_batch(came, utilities.shape, mask.shape)
        if is_concrete(utilities, mask):
            given, allowed = np.broadcast_to(utilities, shape), np.broadcast_to(mask, shape)
            require(allowed.any(-1), "legal", allowed, "has no legal option", "drop such decisions")
            wrong = allowed & ~np.isfinite(given)
            require(~wrong, "utilities", given, ": pass finite utilities of legal options")
        self.legal = xp.broadcast_to(mask, shape)
        self.utilities = xp.where(mask, utilities, 0).astype(dtype)
        self.noise = noise
        super().__init__(shape[:-1], (), validate_args=bool(validate_args))  # they are checked above

    @property
    def support(self):
        """Indices of the options."""
        return constraints.integer_interval(0, self.utilities.shape[-1] - 1)

    @jax.jit
    def log_prob(self, value: Any) -> Float[Array, "..."]:
        """Log probability of the chosen options (...); ``-inf`` where one is not legal, or out of range."""
        value = jnp.asarray(value)
        batch, size = jnp.broadcast_shapes(self.batch_shape, value.shape), self.utilities.shape[-1]
        utilities, legal = (
            jnp.moveaxis(jnp.broadcast_to(x, (*batch, size)), -1, 0) for x in (self.utilities, self.legal)
        )
        # By selection: gathers, and the scatters of their gradients, take longer than the quadrature.
        options = np.arange(size).reshape(-1, *[1] * len(batch))
        chosen, before = options == value, options[:-1] < value
        allowed = jnp.any(chosen & legal, axis=0)
        others = jnp.where(before, legal[:-1], legal[1:]) & allowed
        rest = jnp.where(before, utilities[:-1], utilities[1:])
        gaps = jnp.where(others, jnp.sum(jnp.where(chosen, utilities, 0), axis=0) - rest, 0)
        return jnp.where(allowed, self.noise.given_choice(value).log_probability(gaps, others), -jnp.inf)

    @property
    @jax.jit
    def logits(self) -> Float[Array, "... option"]:
        """Normalised log probability of every option (..., option); ``-inf`` where not legal."""
        options = jnp.arange(self.utilities.shape[-1])
        # One option at a time: all at once would hold options squared times nodes of numbers per decision.
        each = lax.map(lambda option: self.log_prob(jnp.broadcast_to(option, self.batch_shape)), options)
        return jax.nn.log_softmax(jnp.moveaxis(each, 0, -1), axis=-1)

    @property
    def probs(self) -> Float[Array, "... option"]:
        """Probability of every option (..., option), zero where not legal; sums to one.

        With an absolute error of rounding; the exponential of ``logits`` has a relative one, at a cost that may be
        larger by the number of options.
        """
        return self.noise.probabilities(self.utilities, self.legal)

    @jax.jit
    def entropy(self) -> Float[Array, "..."]:
        """Entropy of the choice (...), in nats."""
        logits = jnp.where(self.legal, self.logits, 0)
        return -jnp.sum(jnp.where(self.legal, jnp.exp(logits) * logits, 0), axis=-1)

    def sample(self, key: Array, sample_shape: tuple[int, ...] = ()) -> Int[Array, "..."]:
        """Chosen options (*sample_shape, ...)."""
        return self._sample(key, tuple(sample_shape))

    @functools.partial(jax.jit, static_argnums=2)
    def _sample(self, key: Array, sample_shape: tuple[int, ...]) -> Array:
        utilities = jnp.broadcast_to(self.utilities, (*sample_shape, *self.utilities.shape))
        return jnp.argmax(jnp.where(self.legal, self.noise.perturbed(key, utilities), -jnp.inf), axis=-1)
