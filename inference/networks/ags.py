r"""AGS: gradient ascent on the surrogate of forward marginals, many restarts at a time.

A climb starts at random weights of the MAP variables' states and follows the gradient of ln V. After the start and
after every step the vertex of largest weights is evaluated: in the interior the surrogate may be larger than at every
vertex, so that the best vertex visited counts, not the last point.

Three optimisers:

* ``"paper"``, the authors' line search (`ags_step`). A climb ends where weights change by at most 0.01 (root mean
  square).
* ``"adam"`` on the logits: Kingma, Ba (2015), "Adam: a method for stochastic optimization", algorithm 1.
* ``"expgrad"``, exponentiated gradient with its largest exponent scaled to one: Kivinen, Warmuth (1997), "Exponentiated
  gradient versus gradient descent for linear predictors".

Section 3 of Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP", and the authors' released
program, whose line search is not in the paper.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jaxtyping import Float, Int

from ethogram.inference.networks.ags_step import ags_step
from ethogram.inference.networks.forward_layout import Kind, Layout, lay_out
from ethogram.inference.networks.forward_marginals import (
    fixed_values,
    log_value_over,
    value_and_gradient_over,
)
from ethogram.models.arguments import require_integer, require_key, require_one_of
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["OPTIMIZERS", "Climbers", "Vertices", "ascend"]

OPTIMIZERS = ("adam", "expgrad", "paper")
CHUNK = 10
"""Steps between two checks of the clock."""
STILL = 0.01
LEARNING_RATE, LONGEST, QUIET = 0.3, 100, 0.01
ADAM = optax.scale_by_adam()
MOST_CELLS = 2**29
EQUAL = 1e-9
"""Nats within which surrogates count as equal."""


class Climbers(NamedTuple):
    """State of all climbs, one a copy; those that have finished leave their best vertex."""

    position: Array  # (weight, state - 1, copy) weights, or logits for the optimisers that use these
    moments: Any  # of the optimiser
    steps: Array  # (copy,) of the current climb
    climb_value: Array  # (copy,)
    climb_vertex: Array  # (weight, copy)
    best_value: Array
    best_vertex: Array
    num_climbs: Array  # () finished
    key: Array  # for restarts


class Vertices(NamedTuple):
    """Distinct vertices that climbs visited, the largest surrogate first; of equal ones, the first visited.

    Attributes
    ----------
    states : (vertex, map) assignments.
    log_values : (vertex,) their surrogates ln V, which are not log probabilities.
    num_steps : steps of every copy.
    num_climbs : number of finished climbs.
    """

    states: Int[np.ndarray, "vertex map"]
    log_values: Float[np.ndarray, " vertex"]
    num_steps: int
    num_climbs: int


def ascend(
    key: Array,
    query: MarginalMAP,
    *,
    optimizer: str = "adam",
    num_restarts: int = 128,
    max_steps: int = 200,
    tables: tuple[np.ndarray, ...] | None = None,
    stop: Callable[[Vertices], bool] | None = None,
) -> Vertices:
    """Vertices that gradient ascent visits, sorted by their surrogate.

    Parameters
    ----------
    key : typed PRNG key; the same key and number of steps give the same vertices.
    query : network, evidence and MAP variables.
    optimizer : one of :data:`OPTIMIZERS`.
    num_restarts : climbs at a time.
    max_steps : of every copy, rounded up to tens.
    tables : in place of the network's own, such as smoothed ones.
    stop : called every ten steps with the vertices so far; True ends the ascent.

    Raises
    ------
    TypeError, ValueError
        `key` is not a typed key, there is no such optimiser, a number is not an integer of at least 1, or restarts of
        the largest table would take over 4 gibibytes.
    """
    require_key(key)
    require_one_of("optimizer", optimizer, OPTIMIZERS)
    require_integer("num_restarts", num_restarts, 1)
    require_integer("max_steps", max_steps, 1)
    layout, kinds = lay_out(query, tables)
    count, pool = len(query.map_variables), _Pool()
    if (cells := _cells(kinds, num_restarts)) > MOST_CELLS:
        raise ValueError(
            f"num_restarts = {num_restarts} of a table with {kinds[0].cells} entries need {8 * cells:.3g} bytes: use "
            "fewer restarts, or write families of many parents as chains (noisy_or_network)"
        )
    with jax.enable_x64(True):
        layout = jax.tree.map(jnp.asarray, layout)
        climbers = _start(layout, kinds, key, num_restarts, optimizer)
        pool.add(climbers, count)
        for step in range(CHUNK, max_steps + CHUNK, CHUNK):
            climbers = _advance(layout, kinds, climbers, optimizer)
            pool.add(climbers, count)
            found = pool.sorted(step, int(climbers.num_climbs))
            if stop is not None and stop(found):
                break
    return found


def _cells(kinds: tuple[Kind, ...], num_restarts: int) -> int:
    """Entries of the largest kind's derivatives in all parents, for all restarts."""
    return max(kind.cells * kind.width * max(len(kind.parents), 1) for kind in kinds) * num_restarts


class _Pool:
    """Distinct vertices and their surrogates, roughly in the order of their first visit."""

    def __init__(self):
        self.known: dict[bytes, float] = {}

    def add(self, climbers: Climbers, count: int) -> None:
        """Add vertices of finished climbs, then of current ones; an impossible one only if there is no other."""
        finished = climbers.best_value, climbers.best_vertex
        current = climbers.climb_value, climbers.climb_vertex
        for values, vertices in (finished, current):
            states = np.asarray(vertices)[:count].T.astype(np.int32)
            for value, each in zip(np.asarray(values).tolist(), states, strict=True):
                if value > -math.inf:
                    self.known.setdefault(each.tobytes(), value)
        if not self.known:
            self.known[states[0].tobytes()] = -math.inf

    def sorted(self, num_steps: int, num_climbs: int) -> Vertices:
        """Vertices by surrogate; of those equal to the largest, the first visited comes first."""
        top = max(self.known.values())
        first = next(each for each, value in self.known.items() if value >= top - EQUAL)
        ranked = sorted(self.known.items(), key=lambda item: (item[0] != first, -item[1]))
        states = np.stack([np.frombuffer(each, np.int32) for each, _ in ranked])
        return Vertices(states, np.array([value for _, value in ranked]), num_steps, num_climbs)


@functools.partial(jax.jit, static_argnames=("kinds", "copies", "optimizer"))
def _start(layout: Layout, kinds: tuple[Kind, ...], key: Array, copies: int, optimizer: str) -> Climbers:
    """Climbs at random weights; with the authors' rule, the first starts at ones for binary variables."""
    key, first = jax.random.split(key)
    position = _draw(first, layout, copies, optimizer)
    if optimizer == "paper":
        two = layout.states.sum(1, keepdims=True) == 1
        position = position.at[:, :, 0].set(jnp.where(two, layout.states, position[:, :, 0]))
    vertex = jnp.zeros((len(layout.present), copies), _small(layout))
    worst = jnp.full(copies, -jnp.inf)
    moments = _no_moments(position, optimizer)
    steps, done = jnp.zeros(copies, jnp.int32), jnp.zeros((), jnp.int32)
    climbers = Climbers(position, moments, steps, worst, vertex, worst, vertex, done, key)
    last = layout.states.sum(1, dtype=vertex.dtype)[:, None] + jnp.zeros_like(vertex)
    weights = _weights(layout, position, optimizer)
    climbers, values = _try_vertex(layout, kinds, climbers, last, fixed_values(layout, copies))
    return _try(layout, kinds, climbers, weights, values)[0]


@functools.partial(jax.jit, static_argnames=("kinds", "optimizer"))
def _advance(layout: Layout, kinds: tuple[Kind, ...], climbers: Climbers, optimizer: str) -> Climbers:
    """Climbs after some steps; converged ones restart, after every step with the authors' rule, else after all."""

    def step(_: Any, walk: tuple[Climbers, Array, Array]) -> tuple[Climbers, Array, Array]:
        climbers, before, values = walk
        if optimizer == "paper":
            position, moments = ags_step(layout, kinds, before), ()
        else:
            _, gradient, values = value_and_gradient_over(values, layout, kinds, before)
            position, moments = _stepped(layout, climbers, before, gradient, optimizer)
        weights = _weights(layout, position, optimizer)
        climbers = climbers._replace(position=position, moments=moments, steps=climbers.steps + 1)
        climbers, values = _try(layout, kinds, climbers, weights, values)
        if optimizer == "paper":
            climbers = _restart(layout, kinds, climbers, _moved(layout, before, weights) <= STILL, optimizer)
            weights = climbers.position
        return climbers, weights, values

    before = _weights(layout, climbers.position, optimizer)
    values = fixed_values(layout, before.shape[-1])  # one array that all steps overwrite
    climbers, weights, _ = lax.fori_loop(0, CHUNK, step, (climbers, before, values))
    if optimizer == "paper":
        return climbers
    ended = (_moved(layout, before, weights) <= QUIET) | (climbers.steps >= LONGEST)
    return _restart(layout, kinds, climbers, ended, optimizer)


def _moved(layout: Layout, before: Array, weights: Array) -> Array:
    """Root mean square change of the weights (copy,)."""
    return jnp.sqrt(jnp.sum(jnp.square(weights - before), (0, 1)) / layout.states.sum())


def _restart(
    layout: Layout, kinds: tuple[Kind, ...], climbers: Climbers, ended: Array, optimizer: str
) -> Climbers:
    """Restart climbs that have ended; their best vertices are kept."""

    def begin(climbers: Climbers) -> Climbers:
        better = climbers.climb_value > climbers.best_value
        key, now = jax.random.split(climbers.key)
        fresh = _draw(now, layout, len(ended), optimizer)
        clean = _no_moments(fresh, optimizer)
        climbers = climbers._replace(
            position=jnp.where(ended, fresh, climbers.position),
            moments=jax.tree.map(functools.partial(jnp.where, ended), clean, climbers.moments),
            steps=jnp.where(ended, 0, climbers.steps),
            climb_value=jnp.where(ended, -jnp.inf, climbers.climb_value),
            best_value=jnp.where(better, climbers.climb_value, climbers.best_value),
            best_vertex=jnp.where(better, climbers.climb_vertex, climbers.best_vertex),
            num_climbs=climbers.num_climbs + ended.sum(dtype=jnp.int32),
            key=key,
        )
        weights, values = _weights(layout, climbers.position, optimizer), fixed_values(layout, len(ended))
        return _try(layout, kinds, climbers, weights, values)[0]

    return lax.cond(ended.any(), begin, lambda climbers: climbers, climbers)


def _draw(key: Array, layout: Layout, copies: int, optimizer: str) -> Array:
    """Weights drawn uniformly from the simplex, or their logits."""
    count, deep = layout.states.shape
    there = jnp.concatenate((layout.present[:, None], layout.states), 1)[..., None]
    drawn = jnp.where(there, jax.random.exponential(key, (count, deep + 1, copies)), 0)
    tiny = jnp.finfo(drawn.dtype).tiny
    if optimizer == "paper":
        return drawn[:, 1:] / jnp.maximum(drawn.sum(1, keepdims=True), tiny)
    return jnp.where(layout.states[..., None], jnp.log(drawn[:, 1:] + tiny) - jnp.log(drawn[:, :1] + tiny), 0)


def _weights(layout: Layout, position: Array, optimizer: str) -> Array:
    """Weights (weight, state - 1, copy) of positions."""
    if optimizer == "paper":
        return position
    if position.shape[1] == 1:
        return jnp.where(layout.states[..., None], lax.logistic(position), 0)
    logits = jnp.where(layout.states[..., None], position, -jnp.inf)
    top = jnp.maximum(logits.max(1, keepdims=True), 0)
    odds = jnp.exp(logits - top)
    return odds / (odds.sum(1, keepdims=True) + jnp.exp(-top))


def _try(
    layout: Layout, kinds: tuple[Kind, ...], climbers: Climbers, weights: Array, values: Array
) -> tuple[Climbers, Array]:
    """Evaluate the vertex of largest weights; the first of equal ones. Values are overwritten."""
    largest = 1 - weights.sum(1)
    vertex = jnp.zeros(largest.shape, _small(layout))
    for state in range(weights.shape[1]):  # several times as fast as argmax
        vertex = jnp.where(weights[:, state] > largest, state + 1, vertex)
        largest = jnp.maximum(largest, weights[:, state])
    return _try_vertex(layout, kinds, climbers, vertex, values)


def _small(layout: Layout) -> np.dtype:
    """The smallest integer type that holds every state."""
    return np.min_scalar_type(layout.states.shape[1])


def _try_vertex(
    layout: Layout, kinds: tuple[Kind, ...], climbers: Climbers, vertex: Array, values: Array
) -> tuple[Climbers, Array]:
    states = jnp.arange(1, layout.states.shape[1] + 1, dtype=vertex.dtype)[:, None]
    weights = (vertex[:, None] == states).astype(climbers.position.dtype)
    value, values = log_value_over(values, layout, kinds, weights)
    better = value - climbers.climb_value > EQUAL
    climbers = climbers._replace(
        climb_value=jnp.where(better, value, climbers.climb_value),
        climb_vertex=jnp.where(better, vertex, climbers.climb_vertex),
    )
    return climbers, values


def _no_moments(position: Array, optimizer: str) -> Any:
    return jax.vmap(ADAM.init, -1, -1)(position) if optimizer == "adam" else ()


def _stepped(
    layout: Layout, climbers: Climbers, weights: Array, gradient: Array, optimizer: str
) -> tuple[Array, Any]:
    """Logits after a step of Adam or of exponentiated gradient, and the moments."""
    if optimizer == "adam":
        # By the logits. Steps do not depend on the gradient's scale, but near a zero its square would overflow.
        mean = (weights * gradient).sum(1, keepdims=True)
        gradient = jnp.clip(weights * (gradient - mean), -1e6, 1e6)
    gradient = jnp.where(layout.states[..., None], gradient, 0)
    if optimizer == "expgrad":
        return climbers.position + gradient / jnp.maximum(jnp.abs(gradient).max((0, 1)), 1), ()
    change, moments = jax.vmap(ADAM.update, -1, -1)(gradient, climbers.moments)
    return climbers.position + LEARNING_RATE * change, moments
