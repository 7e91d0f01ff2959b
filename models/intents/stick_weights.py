r"""Shared weights of a truncated hierarchical Dirichlet process, and their variational step.

.. math:: v_k \sim Beta(1, \gamma), \quad \beta_k = v_k \prod_{l<k} (1 - v_l), \quad
          \theta_r \mid \beta \sim Dir(\alpha\beta), \qquad k = 1..K,

with one more entry, :math:`\beta_{K+1} = 1 - \beta_1 - \dots - \beta_K`, for all states beyond the truncation. In q
the weights are a point mass. Unhelkar and Shah (2019), eq. 2-3 and the step after eq. 14, maximise the *density of
beta*, which is unbounded above for :math:`K > \gamma` (all weight on one state gives
:math:`-(K - \gamma) \ln \epsilon \to \infty`). The density of the sticks is bounded and invariant under relabelling:

.. math:: p(v) = \prod_k \gamma (1 - v_k)^{\gamma - 1} = \gamma^K \beta_{K+1}^{\gamma - 1}, \qquad
          \ln \frac{p(v)}{p(0)} = (\gamma - 1) \ln \beta_{K+1}.

The second is used. A state that no step uses has :math:`v_k \to 0`, where its factor of p(v) is the *density*
:math:`\gamma`, though integrated over v it is the *probability* 1: with p(v), the ELBO would rise by
:math:`\ln\gamma` for every unused state. Relative to its largest value, p(0), the factor of an unused state is 1, and
ELBOs compare across truncations. The paper's density is available as ``"gem"``, for comparison; as a density of beta it
has no such limit, :math:`\ln\gamma - \ln\beta_{K+1}` an unused state, and no comparison across truncations, and
neither have ``"fixed"`` weights, which change with K.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import digamma, gammaln

from ethogram.models.arguments import require_distributions, require_one_of
from ethogram.models.families.conjugate_block import ConjugateBlock, require_finite
from ethogram.models.families.polygamma import trigamma
from ethogram.models.intents.point_mass import PointMass

__all__ = ["SMALLEST_WEIGHT", "StickWeights", "fit_to_counts", "fit_to_rows", "weights_of_sticks"]

SMALLEST_WEIGHT = 1e-8
"""Lower bound of the weights: a state without counts would go to 0, where its rows have no density."""

SWEEPS = 4
"""Newton iterations of one step, warm-started at the last: the next step makes up for what these leave."""


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("natural", "gamma"), meta_fields=("density",)
)
@dataclasses.dataclass(frozen=True, eq=False)
class StickWeights(PointMass, ConjugateBlock):
    """A point mass on weights beta, which enters the ELBO by the log of their prior density."""

    natural: Any  # (state + 1,), sums to one
    gamma: Any  # ()
    density: str

    @classmethod
    def uniform(cls, truncation: int, gamma: Array, density: str) -> StickWeights:
        """Equal weights for `truncation` states and the rest."""
        weights = jnp.full(truncation + 1, 1 / (truncation + 1), gamma.dtype)
        return cls(weights, gamma, density)

    def validate(self, name: str) -> None:
        """Raise ValueError unless the weights are probabilities, and gamma a positive number."""
        require_finite(name, (self.natural, self.gamma))
        require_distributions(name, self.natural)
        require_one_of(f"{name}.density", self.density, ("stick", "gem", "fixed"))
        if np.shape(self.gamma) or not np.asarray(self.gamma) > 0:
            raise ValueError(f"{name}.gamma must be one positive number, not {self.gamma!r}")

    def log_density(self) -> Array:
        """Log prior density in nats: of the sticks, relative to its largest; of beta; or 0 for fixed weights."""
        return _log_density(self.natural, self.gamma, self.density)


def _log_density(weights: Array, gamma: Array, density: str) -> Array:
    if density == "fixed":
        return jnp.zeros_like(gamma)
    value = (gamma - 1) * jnp.log(weights[-1])
    if density == "gem":
        count = weights.shape[-1] - 1
        # Summed from the small end: what is left is not lost to rounding.
        left = jnp.cumsum(weights[::-1])[::-1]
        value += count * jnp.log(gamma) - jnp.sum(jnp.log(left[1:count]))
    return value


def weights_of_sticks(sticks: Array) -> Array:
    """Stick-breaking weights (state + 1,) of sticks (state,); the remainder is last."""
    left = jnp.concatenate([jnp.ones_like(sticks[:1]), jnp.cumprod(1 - sticks)])
    return jnp.concatenate([sticks * left[:-1], left[-1:]])


class _Terms(NamedTuple):
    """A concave function of each weight: its value, slope and curvature."""

    value: Array  # (state + 1,)
    slope: Array
    curvature: Array


def fit_to_counts(
    block: StickWeights,
    alpha: Any,
    counts: Array,
    log_rows: Array | None = None,
    taken: Any = None,
    stickiness: Any = None,
    own: Array | None = None,
    held_own: Array | None = None,
) -> StickWeights:
    r"""Weights that maximise the ELBO with q of all free rows profiled out: the exact block step.

    .. math:: \ln p(\beta) + \sum_r \big[\ln B(d_r + n_r) - \ln B(d_r)\big], \qquad d_r = \alpha\beta + \kappa e_{x_r}

    for counts n (row, state) of rows whose prior is :math:`Dir(d_r)`; state K+1 has none. Rows that q holds elsewhere,
    such as constrained ones, enter as in :func:`fit_to_rows`. The stickiness kappa moves the argument of the Gamma
    functions only, and the objective stays concave.

    Parameters
    ----------
    stickiness : kappa, a scalar; None for 0.
    own : (row, state + 1), booleans, the entry of each row that it adds to, if any.
    held_own : the same for `log_rows`.
    """
    if block.density == "fixed":
        return block
    shape = (counts.shape[0], counts.shape[1] + 1)
    counts = jnp.zeros_like(counts, shape=shape).at[:, :-1].set(counts)
    held = None if log_rows is None else _terms_of_rows(alpha, log_rows, taken, stickiness, held_own)

    def terms(weights):
        after = alpha * weights + counts + (0 if stickiness is None else stickiness * own)

        def gained(function):
            before = _at_prior(function, alpha * weights, stickiness, own)
            return jnp.sum(function(after) - before, axis=0)

        free = _Terms(gained(gammaln), alpha * gained(digamma), alpha**2 * gained(trigamma))
        return free if held is None else jax.tree.map(jnp.add, free, held(weights))

    return _maximised(block, terms)


def _at_prior(function: Callable[[Array], Array], prior: Array, stickiness: Any, own: Any) -> Array:
    """A function at the concentrations of the rows before data, evaluated once for all rows."""
    if stickiness is None:
        return function(prior)
    return jnp.where(own, function(prior + stickiness), function(prior))


def fit_to_rows(
    block: StickWeights,
    alpha: Any,
    log_rows: Array,
    taken: Any = None,
    stickiness: Any = None,
    own: Array | None = None,
) -> StickWeights:
    r"""Weights that maximise the ELBO with q of the rows held: the coordinate step.

    .. math:: \ln p(\beta) + \sum_r \big[-\ln B(d_r) + d_r \cdot E \ln\theta_r\big], \qquad
              d_r = \alpha\beta + \kappa e_{x_r}

    for expected logs (row, state + 1) of rows whose prior is :math:`Dir(d_r)`, where `taken` (row,). Stickiness and own
    entries are as in :func:`fit_to_counts`. Unhelkar and Shah (2019) print "minimise"; the ELBO is maximised.
    """
    if block.density == "fixed":
        return block
    return _maximised(block, _terms_of_rows(alpha, log_rows, taken, stickiness, own))


def _terms_of_rows(
    alpha: Any, log_rows: Array, taken: Any, stickiness: Any, own: Array | None
) -> Callable[[Array], _Terms]:
    taken = jnp.ones(len(log_rows), bool) if taken is None else taken
    total = jnp.sum(jnp.where(taken[:, None], log_rows, 0), axis=0)
    sticky = 0 if stickiness is None or own is None else jnp.sum(taken[:, None] & own, axis=0)
    plain = jnp.sum(taken) - sticky

    def terms(weights):
        prior = alpha * weights

        def normaliser(function):
            each = plain * function(prior)
            return each if stickiness is None else each + sticky * function(prior + stickiness)

        return _Terms(
            prior * total - normaliser(gammaln),
            alpha * (total - normaliser(digamma)),
            -(alpha**2) * normaliser(trigamma),
        )

    return terms


def _maximised(block: StickWeights, terms_of: Callable[[Array], _Terms]) -> StickWeights:
    """Weights at which the terms plus the log prior density are at least as large as at the block's.

    A Newton step that matches each concave term by ``m ln b + d b`` keeps weights positive and ends on the simplex; the
    density of beta, convex but for its last entry, is replaced by its tangent. Steps are halved until the objective
    does not decrease.
    """

    def objective(weights):
        return jnp.sum(terms_of(weights).value) + _log_density(weights, block.gamma, block.density)

    def tangent(weights):
        whole = jax.grad(_log_density)(weights, block.gamma, block.density)
        return whole.at[-1].add(-(block.gamma - 1) / weights[-1])

    def sweep(_, weights):
        terms = terms_of(weights)
        strength = -terms.curvature * weights**2
        drift = terms.slope - strength / weights + tangent(weights)
        strength = strength.at[-1].add(block.gamma - 1)
        target = _on_simplex(jnp.maximum(strength, 0), drift)
        before = objective(weights)
        # A decrease within rounding is accepted: near the maximum such steps still approach it.
        terms_size = 1 + jnp.sum(jnp.abs(terms.value)) + jnp.abs(before)
        enough = before - 64 * jnp.finfo(before.dtype).eps * terms_size

        def mixed(share):
            return weights + share * (target - weights)

        def gains(share):
            return objective(mixed(share)) >= enough

        # The verdict is carried, not recomputed: with other rounding the loop would not end.
        share, gained = lax.while_loop(
            lambda tried: ~tried[1] & (tried[0] > 1e-3),
            lambda tried: (tried[0] / 2, gains(tried[0] / 2)),
            (jnp.ones_like(before), gains(jnp.ones_like(before))),
        )
        return jnp.where(gained, mixed(share), weights)

    return dataclasses.replace(block, natural=lax.fori_loop(0, SWEEPS, sweep, block.natural))


def _on_simplex(strength: Array, drift: Array) -> Array:
    """Maximum of ``sum(strength * log b + drift * b)`` over weights b that sum to one, none below the smallest.

    The multiplier nu of the sum has ``b = strength / (nu - drift)``; it is found by bisection, since the sum falls
    as nu grows.
    """
    least = SMALLEST_WEIGHT

    def weights_at(nu):
        gap = nu - drift
        return jnp.where(gap > 0, jnp.maximum(strength / jnp.where(gap > 0, gap, 1), least), jnp.inf)

    low = jnp.max(drift)
    high = low + 2 * jnp.sum(strength) + jnp.abs(low) * 1e-6 + 1

    def halve(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        above = jnp.sum(weights_at(middle)) > 1
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    _, high = lax.fori_loop(0, 100, halve, (low, high))
    weights = jnp.minimum(weights_at(high), 1)
    return weights / jnp.sum(weights)
