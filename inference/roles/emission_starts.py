"""Where the search for the mode of regressions by state begins: the best of several climbs, in one compiled program.

The posterior of regressions by state has several maxima. Each climb begins at slopes, and intercepts, drawn from their
prior, and ascends the log joint density, states summed out, by Adam: Kingma and Ba (2015), "Adam: a method for
stochastic optimization", whose step sizes fall to zero along half a cosine.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax

from ethogram.inference.roles.covariate_problem import (
    Layout,
    Problem,
    log_joints,
    unconstrained,
    with_latent,
)
from ethogram.models.quick_jit import quick_jit

__all__ = ["best_start"]

STEPS = 100
"""Of each climb."""
STEP_SIZE = 0.2
"""Of Adam, at first; coordinates have prior standard deviations about 1."""


def best_start(
    key: Array, problem: Problem, parameters: dict[str, Any], restarts: int, log_scales: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The highest place (shared,) of several climbs, and the log joint densities (restart,) that they reach.

    Parameters
    ----------
    parameters : of a fit without covariates, from which starts have the sites that are not drawn.
    log_scales : of splines, as of `Problem.prior`.

    Raises
    ------
    RuntimeError : no climb has a finite density.
    """
    first, _ = problem.start(parameters)
    own = with_latent(problem.model, {name: x for name, x in parameters.items() if name != "transition"})
    drawn = _draws(problem.model, jax.random.split(key, restarts), own)
    starts = np.tile(first, (restarts, 1))
    starts[:, : problem.layout.conjugate] = np.asarray(drawn)
    precision, _ = problem.prior(log_scales)
    prior = jnp.asarray(problem.centre), jnp.asarray(precision)
    heights, places = problem.found(_climbs, prior, jnp.asarray(starts), num_rows=problem.num_rows)
    heights = np.where(np.isnan(heights), -np.inf, heights)
    if not (heights > -np.inf).any():
        raise RuntimeError(
            "no climb of the regressions has a finite density: see whether values or covariates are far from all others"
        )
    return np.asarray(places)[int(np.argmax(heights))], heights


@quick_jit
def _draws(model: Any, keys: Array, parameters: dict[str, Any]) -> Array:
    """Coordinates (restart, coordinate) of initial state and emission, slopes and intercepts drawn from the prior."""

    def one(key: Array) -> Array:
        return unconstrained(model, {**parameters, **model.drawn_emission(key)})

    return jax.vmap(one)(keys)


@quick_jit(calls=10 * STEPS, static_argnames=("layout", "num_rows", "quick"))
def _climbs(
    model: Any,
    data: Any,
    layout: Layout,
    prior: tuple[Array, Array],
    starts: Array,
    num_rows: int,
    quick: bool,
) -> tuple[Array, Array]:
    """Log joint densities (restart,) after all steps of climbs side by side, and places (restart, shared) there."""
    centre, precision = prior

    def log_posterior(phi: Array) -> Array:
        every = jnp.pad(phi, ((0, 0), (0, layout.size - layout.shared)))[:, None]
        rows = jnp.broadcast_to(every, (len(phi), num_rows, layout.size))
        return log_joints(model, data, layout, quick)(rows) - ((phi - centre) ** 2 @ precision) / 2

    optimiser = optax.adam(optax.cosine_decay_schedule(STEP_SIZE, STEPS))
    slope = jax.grad(lambda phi: jnp.sum(log_posterior(phi)))

    def step(carry: Any, _: None) -> tuple[Any, None]:
        phi, state = carry
        moves, state = optimiser.update(-jnp.nan_to_num(slope(phi)), state)
        return (phi + moves, state), None

    (places, _), _ = lax.scan(step, (starts, optimiser.init(starts)), length=STEPS)
    return log_posterior(places), places
