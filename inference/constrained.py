r"""Dirichlet rows under constraints on their means: the projection that a constrained sweep makes.

For a row whose free posterior is :math:`Dir(\eta)`, an observer who knows the means of some entries,
:math:`E[\theta_k] = t_k`, asks for

.. math:: \max_\lambda \; \ln B(\eta) - KL(Dir(\lambda) \,\|\, Dir(\eta)) \quad
          \text{with } \lambda_k = t_k \sum_i \lambda_i .

Unhelkar and Shah (2019), eq. 11 and 19, solve it by SLSQP, row by row. With the constrained entries written as
:math:`\lambda_k = t_k n`, the Hessian in the logs of the free entries is diagonal plus rank one for any number of
equalities, so that a Newton step costs O(K), and all rows are one compiled call. The objective is not concave: two
starts are taken, and the better end is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy.special import digamma, gammaln, polygamma

__all__ = ["Projection", "check_targets", "project_rows", "row_objective"]

MAX_STEPS = 100
TOLERANCE = {"float64": 1e-10, "float32": 1e-5}
"""Size of the gradient in log coordinates, relative to that of its terms, at which a row has converged."""


class Projection(NamedTuple):
    """Constrained rows, and what the constraints did to them."""

    concentration: Array  # (row, entry)
    inflation: Array  # (row,): sum of a row over that of its free posterior; far above one it invents data
    converged: Array  # (row,) bool


def row_objective(concentration: Array, free: Array) -> Array:
    r""":math:`\ln B(\eta) - KL(Dir(\lambda) \| Dir(\eta))` of every row (..., entry), in nats."""
    total = jnp.sum(concentration, -1)
    away = jnp.sum((concentration - free) * (digamma(concentration) - digamma(total)[..., None]), -1)
    return jnp.sum(gammaln(concentration), -1) - gammaln(total) - away


def check_targets(name: str, target: Any) -> None:
    """Raise ValueError naming the first row of means (row, entry), NaN where free, that no Dirichlet has.

    Means lie strictly between 0 and 1; those given leave something to the free entries, or sum to one.
    """
    target = np.asarray(target, float)
    held = ~np.isnan(target)
    total = np.where(held, target, 0).sum(-1)
    whole = held.all(-1)
    faults = {
        "has a mean that is not strictly between 0 and 1 (to forbid an entry, leave it out of the support)": (
            held & ~((target > 0) & (target < 1))
        ).any(-1),
        "leaves nothing to its free entries": ~whole & (total >= 1),
        "gives all means, which do not sum to one": whole & (np.abs(total - 1) > 1e-6),
    }
    for fault, where in faults.items():
        if where.any():
            row = np.argwhere(where)[0].tolist()
            raise ValueError(f"{name}{row} {fault}: {target[tuple(row)]}")


@jax.jit
def project_rows(free: Array, target: Array) -> Projection:
    """Concentrations that maximise the objective with these means.

    Parameters
    ----------
    free : eta (row, entry), > 0.
    target : means (row, entry), NaN where free; :func:`check_targets` tells whether a row has them.

    Unhelkar and Shah (2019), eq. 19; Newton's method in place of their SLSQP.
    """

    def one(free, target):
        row, converged = _with_equalities(free, ~jnp.isnan(target), jnp.nan_to_num(target))
        return Projection(row, jnp.sum(row) / jnp.sum(free), converged & jnp.all(jnp.isfinite(row)))

    return jax.vmap(one)(free, target)


def _with_equalities(free: Array, held: Array, target: Array) -> tuple[Array, Array]:
    """The best row whose held entries have exactly these means, and whether Newton's method converged."""
    target = jnp.where(held, target, 0)
    rest = 1 - jnp.sum(target)
    loose = jnp.where(held, 0, free)
    # Free entries as they stand; or as many in all as the largest held entry wants, the surplus on the largest.
    wanted = jnp.max(jnp.where(held, free / jnp.where(held, target, 1), 0))
    size = jnp.maximum(jnp.sum(free), wanted)
    largest = jnp.argmax(loose)
    surplus = jnp.maximum(size * rest - jnp.sum(loose), 0)
    starts = jnp.stack([jnp.where(held, 1, free), jnp.where(held, 1, free).at[largest].add(surplus)])
    ends, converged = jax.vmap(lambda start: _newton(free, held, target, rest, start))(starts)
    scores = row_objective(ends, free[None])
    best = jnp.argmax(jnp.where(jnp.isnan(scores), -jnp.inf, scores))
    ray, on_ray = _along_ray(free, target)
    everything = jnp.all(held)
    return jnp.where(everything, ray, ends[best]), jnp.where(everything, on_ray, converged[best])


def _slopes(row: Array, free: Array) -> tuple[Array, Array, Array, Array]:
    """Gradient of the objective, and what its Hessian is made of."""
    total, away = jnp.sum(row), free - row
    curve, curve_total = polygamma(1, row), polygamma(1, total)
    gradient = curve * away - curve_total * jnp.sum(away)
    return gradient, curve, curve_total, away


def _newton(free: Array, held: Array, target: Array, rest: Array, start: Array) -> tuple[Array, Array]:
    """Newton's method in the logs of the free entries."""
    tolerance = TOLERANCE[str(free.dtype)]

    def row_at(logs):
        entries = jnp.where(held, 0, jnp.exp(logs))
        return jnp.where(held, target * jnp.sum(entries) / rest, entries)

    def step_at(logs):
        """Step, slope along it, and the gradient beside the size of its terms."""
        row = row_at(logs)
        gradient, curve, curve_total, away = _slopes(row, free)
        loose = jnp.where(held, 0, row)
        shared = jnp.sum(target * gradient) / rest
        g = jnp.where(held, 0, (gradient + shared) * loose)
        scale = jnp.sum(jnp.abs(curve * away * row)) + 1

        def solved(diagonal, total, own):
            delta = jnp.where(held, 1, diagonal * loose**2 - own)
            kappa = (total - jnp.sum(jnp.where(held, diagonal * target**2, 0))) / rest**2
            share = jnp.sum(loose**2 / delta)
            step = g / delta + kappa * (loose / delta) * jnp.sum(loose * g / delta) / (1 - kappa * share)
            return step, jnp.all(delta > 0) & (1 - kappa * share > 0)

        exact, right = solved(
            curve - polygamma(2, row) * away, curve_total - polygamma(2, jnp.sum(row)) * jnp.sum(away), g
        )
        fisher, _ = solved(curve, curve_total, 0.0)
        step = jnp.clip(jnp.where(right, exact, fisher), -4, 4)
        return jnp.where(held, 0, step), jnp.sum(g * step), jnp.max(jnp.abs(g)) / scale

    def go_on(state):
        count, _, done, _ = state
        return (count < MAX_STEPS) & ~done

    def move(state):
        count, logs, _, _ = state
        step, slope, size = step_at(logs)
        before = row_objective(row_at(logs), free)
        least = 1e-14 if free.dtype == jnp.float64 else 1e-6

        def gains(share):
            after = row_objective(row_at(logs + share * step), free)
            return after >= before + 1e-4 * share * slope - least * jnp.abs(before)

        share, gained = lax.while_loop(
            lambda tried: ~tried[1] & (tried[0] > 1e-6),
            lambda tried: (tried[0] / 2, gains(tried[0] / 2)),
            (jnp.ones_like(slope), gains(jnp.ones_like(slope))),
        )
        small = size <= tolerance
        logs = jnp.where(gained & ~small, logs + share * step, logs)
        return count + 1, logs, small | ~gained, size <= 1e3 * tolerance  # stalled by rounding, but close

    never = jnp.zeros((), bool)
    _, logs, _, close = lax.while_loop(go_on, move, (jnp.zeros((), int), jnp.log(start), never, never))
    return row_at(logs), close


def _along_ray(free: Array, target: Array) -> tuple[Array, Array]:
    """The best row with all means given, by bisection of the slope in its sum."""
    target = jnp.maximum(target, jnp.finfo(free.dtype).tiny)

    def slope(log_size):
        return jnp.sum(target * _slopes(target * jnp.exp(log_size), free)[0])

    def halve(_, bounds):
        low, high = bounds
        middle = 0.5 * (low + high)
        rising = slope(middle) > 0
        return jnp.where(rising, middle, low), jnp.where(rising, high, middle)

    around = jnp.log(jnp.sum(free))
    low, high = lax.fori_loop(0, 80, halve, (around - 20, around + 20))
    return target * jnp.exp(0.5 * (low + high)), jnp.ones((), bool)
