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
ELBOs compare across truncations. Those of ``"fixed"`` weights, which change with K, do not.
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

from ethogram.models.families.conjugate_block import ConjugateBlock
from ethogram.models.families.polygamma import log_gamma_and_digamma
from ethogram.models.intents.point_mass import PointMass

__all__ = [
    "SMALLEST_WEIGHT",
    "StickWeights",
    "Terms",
    "fit_to_counts",
    "maximised",
    "terms_of_rows",
    "weights_of_sticks",
]

SMALLEST_WEIGHT = 1e-8
"""Lower bound of the weights: a state without counts would go to 0, where its rows have no density."""

STEPS = 3
"""Points tried in one step of a fit, warm-started at the last: the next step makes up for what these leave."""


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
        weights = np.full(truncation + 1, 1 / (truncation + 1), gamma.dtype)
        return cls(weights, gamma, density)

    def log_density(self) -> Array:
        """Log prior density of the sticks in nats, relative to its largest; 0 for fixed weights."""
        if self.density == "fixed":
            return jnp.zeros_like(self.gamma)
        return (self.gamma - 1) * jnp.log(self.natural[-1])


def weights_of_sticks(sticks: Array) -> Array:
    """Stick-breaking weights (state + 1,) of sticks (state,); the remainder is last."""
    left = jnp.concatenate([jnp.ones_like(sticks[:1]), jnp.cumprod(1 - sticks)])
    return jnp.concatenate([sticks * left[:-1], left[-1:]])


class Terms(NamedTuple):
    """A function of each weight: its value, slope and curvature."""

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

    for counts n (row, state) of rows whose prior is :math:`Dir(d_r)`; state K+1 has none. Constrained rows, which q
    holds elsewhere, enter by :func:`terms_of_rows`. The stickiness kappa moves the argument of the Gamma functions
    only, and the objective stays concave.

    Parameters
    ----------
    log_rows, taken : of the rows that q holds, as in :func:`terms_of_rows`.
    stickiness : kappa, a scalar; None for 0.
    own : (row, state + 1), booleans, the entry of each row that it adds to, if any.
    held_own : the same for `log_rows`.
    """
    if block.density == "fixed":
        return block
    held = None if log_rows is None else terms_of_rows(alpha, log_rows, taken, stickiness, held_own)
    sticky = None if stickiness is None or own is None else own[:, :-1]

    def terms(weights):
        prior = alpha * weights[None, :-1]
        before = prior if sticky is None else jnp.concatenate([prior, prior + stickiness])
        after = prior + counts + (0 if sticky is None else stickiness * sticky)

        def gained(values):
            after, before = jnp.split(values, (len(counts),))
            before = before if sticky is None else jnp.where(sticky, before[1], before[0])
            return jnp.pad(jnp.sum(after - before, axis=0), (0, 1))

        # Each function is evaluated, and compiled, once.
        value, slope, curvature = map(gained, _gamma_functions(jnp.concatenate([after, before])))
        free = Terms(value, alpha * slope, alpha**2 * curvature)
        return free if held is None else jax.tree.map(jnp.add, free, held(weights))

    return maximised(block, terms)


def _gamma_functions(x: Array) -> tuple[Array, Array, Array]:
    """Log Gamma, digamma, and trigamma within .2 %: that is for the direction of a step alone."""
    far = 1 / (x + 2)
    near_trigamma = 1 / x**2 + 1 / (x + 1) ** 2 + far * (1 + far * (0.5 + far / 6))
    return *log_gamma_and_digamma(x), near_trigamma


def terms_of_rows(
    alpha: Any, log_rows: Array, taken: Any = None, stickiness: Any = None, own: Array | None = None
) -> Callable[[Array], Terms]:
    r"""Terms of the ELBO in the weights where q of the rows is held.

    .. math:: \sum_r \big[-\ln B(d_r) + d_r \cdot E \ln\theta_r\big], \qquad d_r = \alpha\beta + \kappa e_{x_r}

    for expected logs (row, state + 1) of rows whose prior is :math:`Dir(d_r)`, where `taken` (row,). Stickiness and own
    entries are as in :func:`fit_to_counts`.
    """
    taken = jnp.ones(len(log_rows), bool) if taken is None else taken
    total = jnp.sum(jnp.where(taken[:, None], log_rows, 0), axis=0)
    sticky = jnp.zeros_like(total) if own is None else jnp.sum(taken[:, None] & own, axis=0)
    kappa = 0 if stickiness is None else stickiness
    rows = jnp.stack([jnp.sum(taken) - sticky, sticky])

    def terms(weights):
        prior = alpha * weights
        functions = _gamma_functions(jnp.stack([prior, prior + kappa]))
        value, slope, curvature = (jnp.sum(rows * each, axis=0) for each in functions)
        return Terms(prior * total - value, alpha * (total - slope), -(alpha**2) * curvature)

    return terms


def maximised(block: StickWeights, terms_of: Callable[[Array], Terms]) -> StickWeights:
    """Weights at which the terms plus the log density of the sticks are at least as large as at the block's.

    A Newton step that matches each concave term by ``m ln b + d b`` keeps weights positive and ends on the simplex.
    Steps are halved until the objective does not decrease.
    """
    shape = block.gamma - 1  # of the log density of the sticks, shape * ln(last weight)

    def look(weights):
        """Objective, the end of a Newton step, and the size of what the objective sums."""
        terms = terms_of(weights)
        value = jnp.sum(terms.value) + shape * jnp.log(weights[-1])
        strength = -terms.curvature * weights**2
        drift = terms.slope - strength / weights
        strength = strength.at[-1].add(shape)
        target = _on_simplex(jnp.maximum(strength, 0), drift)
        return value, target, 1 + jnp.sum(jnp.abs(terms.value)) + jnp.abs(value)

    def attempt(_, state):
        weights, value, target, share = state
        trial = weights + share * (target - weights)
        new, ahead, size = look(trial)
        # A decrease within rounding is accepted: near the maximum such steps still approach it.
        gains = new >= value - 64 * jnp.finfo(new.dtype).eps * size
        moved = (jnp.where(gains, x, y) for x, y in ((trial, weights), (new, value), (ahead, target)))
        return *moved, jnp.where(gains, 1, share / 2)

    # The first attempt is the point itself, and sets off from there.
    nowhere = jnp.full((), -jnp.inf, block.natural.dtype)
    start = block.natural, nowhere, block.natural, jnp.ones_like(nowhere)
    weights, *_ = lax.fori_loop(0, STEPS + 1, attempt, start)
    return dataclasses.replace(block, natural=weights)


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

    _, high = lax.fori_loop(0, jnp.finfo(low.dtype).nmant + 20, halve, (low, high))
    weights = jnp.minimum(weights_at(high), 1)
    return weights / jnp.sum(weights)
