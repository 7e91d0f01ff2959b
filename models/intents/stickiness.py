r"""Stickiness of intents: prior pseudo-counts of staying, and their variational step.

.. math:: T_{x,s,a} \mid \beta \sim Dir(\alpha\beta + \kappa e_x), \qquad x = 1..K

The prior mean of staying is :math:`(\kappa + \alpha\beta_x) / (\alpha + \kappa)`. The first intent has no predecessor,
and its row no stickiness. In q a learned kappa is a point, under :math:`Gamma(a, c)` with rate c. With q of the rows
profiled out, for counts n of rows r with own entry x,

.. math:: \frac{dL}{d\kappa} = \sum_r [\psi(\alpha\beta_x + \kappa + n_{rx}) - \psi(\alpha\beta_x + \kappa)]
          - \sum_r [\psi(\alpha + \kappa + n_r) - \psi(\alpha + \kappa)] + \frac{a - 1}{\kappa} - c,

which is neither concave in kappa nor in its logarithm: Newton's method fails. The multiplicative step

.. math:: \kappa \leftarrow \frac{a - 1 + \kappa \sum_r [\psi(\alpha\beta_x + \kappa + n_{rx}) -
          \psi(\alpha\beta_x + \kappa)]}{c + \sum_r [\psi(\alpha + \kappa + n_r) - \psi(\alpha + \kappa)]}

is one of minorisation for counts of 0 or of at least 1 (Minka 2000); others occur, and it is slow near the maximum. It
is therefore taken with a share that is doubled after a gain and halved after a loss, and losses are not accepted.

Fox, Sudderth, Jordan, Willsky (2011), A sticky HDP-HMM; :math:`\kappa w_r`, the numerator's terms, are the expected
tables that they override by stickiness.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import xlogy

from ethogram.models.arguments import concretely, is_concrete, read_reals, require, require_one_of
from ethogram.models.families.conjugate_block import ConjugateBlock
from ethogram.models.families.polygamma import log_gamma_and_digamma
from ethogram.models.intents.point_mass import PointMass
from ethogram.models.model_object import model_object

__all__ = ["Stickiness", "StickinessPrior", "fit_stickiness", "read_stickiness"]

STEPS = 6
"""Points tried in one step of a fit, warm-started at the last."""

LEAST = 1e-3
"""Smallest stickiness: a multiplicative step does not leave 0."""


@model_object
class StickinessPrior:
    """Gamma prior of a stickiness that is learned, by shape >= 1 and rate > 0; fits begin at `start`, or its mean.

    Examples
    --------
    >>> prior = StickinessPrior()
    >>> float(prior.start)
    20.0
    """

    shape: Any = 1.0
    rate: Any = 0.05
    start: Any = None

    def __post_init__(self):
        shape, rate = read_reals(shape=self.shape, rate=self.rate)
        mean = concretely(lambda xp, shape, rate: shape / rate, shape, rate)
        (start,) = read_reals(start=mean if self.start is None else self.start)
        for name, value in {"shape": shape, "rate": rate, "start": start}.items():
            if value.ndim:
                raise ValueError(f"{name} must be a scalar, not of shape {value.shape}")
        if is_concrete(shape, rate):
            require(np.asarray(shape) >= 1, "shape", shape, "is below 1", "its density is infinite at 0")
            require(np.asarray(rate) > 0, "rate", rate, "is not above 0", "give a larger one")
        if is_concrete(start):
            require(
                np.asarray(start) > 0, "start", start, "is not above 0", "multiplicative steps do not leave 0"
            )
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "rate", rate)


def read_stickiness(value: Any) -> Any:
    """A prior, a scalar above 0, or None for 0; a ValueError for anything else."""
    if isinstance(value, str):
        require_one_of("stickiness", value, ("learn",))
        return StickinessPrior()
    if value is None or isinstance(value, StickinessPrior):
        return value
    (kappa,) = read_reals(stickiness=value)
    if kappa.ndim or (is_concrete(kappa) and np.asarray(kappa) < 0):
        raise ValueError(f'stickiness must be a scalar >= 0, or "learn", not {value!r}')
    if is_concrete(kappa) and not np.asarray(kappa):
        return None  # the same programs as without
    return kappa


@functools.partial(jax.tree_util.register_dataclass, data_fields=("natural", "shape", "rate"), meta_fields=())
@dataclasses.dataclass(frozen=True, eq=False)
class Stickiness(PointMass, ConjugateBlock):
    """A point mass on kappa under a Gamma prior."""

    natural: Any  # ()
    shape: Any  # ()
    rate: Any  # ()

    @classmethod
    def at_start(cls, prior: StickinessPrior) -> Stickiness:
        """Where fits begin."""
        return cls(prior.start, prior.shape, prior.rate)

    def log_density(self) -> Array:
        """Log density of the Gamma prior, relative to its largest value, in nats."""
        more = self.shape - 1
        return (
            xlogy(more, self.natural * self.rate / jnp.maximum(more, 1e-9)) + more - self.rate * self.natural
        )


def fit_stickiness(block: Stickiness, alpha: Any, weights: Array, rows: Any) -> Stickiness:
    """Stickiness at which the ELBO, with q of all free rows profiled out, is at least as large as at the block's.

    Parameters
    ----------
    alpha, weights : concentration, and weights (state + 1,), of the rows.
    rows : their :class:`~ethogram.models.intents.row_counts.CountedRows`; those without an own entry have no part.
    """
    own = rows.own[:, :-1]
    sticky = own.any(1)
    stayed = jnp.sum(jnp.where(own, rows.counts, 0), axis=1)
    total = jnp.where(sticky, jnp.sum(rows.counts, axis=1), 0)
    base = alpha * weights[:-1]
    held = held_log = held_base = base[:0]
    if rows.logs is not None:
        held = (rows.taken & rows.held_own.any(1)).astype(base.dtype)
        taken = (held > 0)[:, None] & rows.held_own
        held_log = jnp.sum(jnp.where(taken, rows.logs, 0), axis=1)
        held_base = jnp.where(held > 0, rows.held_own @ (alpha * weights), 1)
    num_held = jnp.sum(held)

    def look(log_kappa):
        """Objective, and the multiplicative step in logs."""
        kappa = jnp.exp(log_kappa)
        places = [
            jnp.where(sticky, own @ base, 1) + kappa + stayed,
            base + kappa,
            alpha + kappa + total,
            held_base + kappa,
        ]
        flat = jnp.concatenate([*places, (alpha + kappa)[None]])
        cuts = np.cumsum([len(place) for place in places])
        logs, slopes = (jnp.split(values, cuts) for values in log_gamma_and_digamma(flat))
        for each in (logs, slopes):
            each[1] = own @ each[1]  # of the intent that each row leaves
        gained = jnp.where(sticky, logs[0] - logs[1] - logs[2] + logs[4], 0)
        from_held = num_held * logs[4][0] - jnp.sum(held * (logs[3] - kappa * held_log))
        prior = dataclasses.replace(block, natural=kappa).log_density()
        up = jnp.sum(jnp.where(sticky, slopes[0] - slopes[1], 0))
        up += num_held * slopes[4][0] - jnp.sum(held * slopes[3])
        down = jnp.sum(jnp.where(sticky, slopes[2] - slopes[4], 0)) - jnp.sum(held * held_log)
        ratio = (jnp.maximum(up, 0) + (block.shape - 1) / kappa) / (block.rate + down)
        size = jnp.sum(jnp.abs(gained)) + jnp.abs(from_held) + 1
        return jnp.sum(gained) + from_held + prior, jnp.log(jnp.maximum(ratio, 1e-6)), size

    def attempt(_, state):
        point, value, ahead, share = state
        trial = jnp.maximum(point + jnp.clip(share * ahead, -2, 2), jnp.log(LEAST))
        new, direction, size = look(trial)
        # A decrease within rounding is accepted: near the maximum such steps still approach it.
        gains = new >= value - 8 * jnp.finfo(new.dtype).eps * size
        moved = (
            jnp.where(gains, trial, point),
            jnp.where(gains, new, value),
            jnp.where(gains, direction, ahead),
        )
        return *moved, jnp.where(gains, 2 * share, share / 4)

    point = jnp.log(jnp.maximum(block.natural, LEAST))
    # The first attempt is the point itself, and sets off from there.
    start = (point, jnp.full_like(point, -jnp.inf), jnp.zeros_like(point), jnp.full_like(point, 0.5))
    point, *_ = lax.fori_loop(0, STEPS + 1, attempt, start)
    return dataclasses.replace(block, natural=jnp.exp(point))
