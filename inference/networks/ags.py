r"""AGS: gradient ascent on the surrogate of forward marginals, many restarts at a time.

An ascent starts at random weights of the MAP variables' states and follows the gradient of ln V by the authors' line
search. After the start and after every step the vertex of largest weights is evaluated: in the interior the surrogate
may be larger than at every vertex, so that the best vertex visited counts, not the last point. An ascent has converged
where weights change by at most 0.01 (root mean square); it then begins anew.

Section 3 of Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP", and the authors' released
program, whose line search is not in the paper. Projection onto the simplex for more than two states: Duchi et al.
(2008), "Efficient projections onto the l1-ball", figure 1.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int

from ethogram.inference.line_search import line_search
from ethogram.inference.networks.forward_layout import BlockShape, Layout, lay_out
from ethogram.inference.networks.forward_marginals import log_value
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.printing import short_repr

__all__ = ["Climbers", "Vertices", "ascend"]

STEPS_PER_CHECK = 10
"""Steps between two checks of the clock."""
CONVERGED_CHANGE = 0.01
"""Root mean square change of the weights at which an ascent has converged."""
MOST_CELLS = 2**29
SAME_VALUE = 1e-9
"""Nats within which surrogates count as equal."""


class Climbers(NamedTuple):
    """State of the ascents of all restarts; those that have converged leave their best vertex."""

    weights: Array  # (weight, state - 1, restart)
    climb_value: Array  # (restart,) of the current ascent
    climb_vertex: Array  # (weight, restart)
    best_value: Array
    best_vertex: Array
    num_climbs: Array  # () converged
    key: Array  # for restarts


@short_repr
class Vertices(NamedTuple):
    """Distinct vertices that ascents visited, the largest surrogate first; of equal ones, the first visited.

    Attributes
    ----------
    states : (vertex, map) assignments.
    log_values : (vertex,) their surrogates ln V, which are not log probabilities.
    num_steps : steps of every restart.
    num_climbs : number of ascents that have converged.
    """

    states: Int[np.ndarray, "vertex map"]
    log_values: Float[np.ndarray, " vertex"]
    num_steps: int
    num_climbs: int


def ascend(
    key: Array,
    query: MarginalMAP,
    *,
    num_restarts: int = 16,
    max_steps: int = 200,
    tables: tuple[np.ndarray, ...] | None = None,
    stop: Callable[[Vertices], bool] | None = None,
) -> Vertices:
    """Vertices that gradient ascent visits, sorted by their surrogate.

    Parameters
    ----------
    key : typed PRNG key; the same key and number of steps give the same vertices.
    query : network, evidence and MAP variables.
    num_restarts : ascents at a time.
    max_steps : of every restart, rounded up to tens.
    tables : in place of the network's own, such as smoothed ones.
    stop : called every ten steps with the vertices so far; True ends the ascent.

    Raises
    ------
    TypeError, ValueError
        `key` is not a typed key, a number is not an integer of at least 1, or restarts of the largest table would take
        over 4 gibibytes.
    """
    require_key(key)
    require_integer("num_restarts", num_restarts, 1)
    require_integer("max_steps", max_steps, 1)
    layout, shapes = lay_out(query, tables)
    pool = _Pool(len(query.map_variables))
    if (cells := _cells(shapes, num_restarts)) > MOST_CELLS:
        raise ValueError(
            f"num_restarts = {num_restarts} of a table with {shapes[0].cells} entries need {8 * cells:.3g} bytes: use "
            "fewer restarts, or write families of many parents as chains (noisy_or_network)"
        )
    with jax.enable_x64(True):
        layout = jax.tree.map(jnp.asarray, layout)
        climbers = _start(layout, shapes, key, num_restarts)
        pool.add(climbers)
        for step in range(STEPS_PER_CHECK, max_steps + STEPS_PER_CHECK, STEPS_PER_CHECK):
            climbers = _advance(layout, shapes, climbers)
            pool.add(climbers)
            found = pool.sorted(step, int(climbers.num_climbs))
            if stop is not None and stop(found):
                break
    return found


def _cells(shapes: tuple[BlockShape, ...], num_restarts: int) -> int:
    """Entries of the derivatives of the largest block by all parents, for all restarts."""
    return max(shape.cells * shape.width * max(len(shape.parents), 1) for shape in shapes) * num_restarts


class _Pool:
    """Distinct vertices and their surrogates, roughly in the order of their first visit."""

    def __init__(self, num_variables: int):
        self.num_variables = num_variables
        self.known: dict[bytes, float] = {}

    def add(self, climbers: Climbers) -> None:
        """Add vertices of converged ascents, then of current ones; an impossible one only if there is no other."""
        converged = climbers.best_value, climbers.best_vertex
        current = climbers.climb_value, climbers.climb_vertex
        for values, vertices in (converged, current):
            states = np.asarray(vertices)[: self.num_variables].T.astype(np.int32)
            for value, each in zip(np.asarray(values).tolist(), states, strict=True):
                if value > -math.inf:
                    self.known.setdefault(each.tobytes(), value)
        if not self.known:
            self.known[states[0].tobytes()] = -math.inf

    def sorted(self, num_steps: int, num_climbs: int) -> Vertices:
        """Vertices by surrogate; of those equal to the largest, the first visited comes first."""
        top = max(self.known.values())
        first = next(each for each, value in self.known.items() if value >= top - SAME_VALUE)
        ranked = sorted(self.known.items(), key=lambda item: (item[0] != first, -item[1]))
        states = np.stack([np.frombuffer(each, np.int32) for each, _ in ranked])
        return Vertices(states, np.array([value for _, value in ranked]), num_steps, num_climbs)


@functools.partial(jax.jit, static_argnames=("shapes", "num_restarts"))
def _start(layout: Layout, shapes: tuple[BlockShape, ...], key: Array, num_restarts: int) -> Climbers:
    """Ascents at random weights; the first starts at ones for binary variables, as in the authors' program."""
    key, key_weights = jax.random.split(key)
    weights = _draw(key_weights, layout, num_restarts)
    binary = layout.valid_states.sum(1, keepdims=True) == 1
    weights = weights.at[:, :, 0].set(jnp.where(binary, layout.valid_states, weights[:, :, 0]))
    vertex_type = np.min_scalar_type(layout.valid_states.shape[1])  # the smallest that holds every state
    vertex = jnp.zeros((len(layout.valid_variables), num_restarts), vertex_type)
    worst = jnp.full(num_restarts, -jnp.inf)
    climbers = Climbers(weights, worst, vertex, worst, vertex, jnp.zeros((), jnp.int32), key)
    last = layout.valid_states.sum(1, dtype=vertex_type)[:, None] + jnp.zeros_like(vertex)
    return _try(layout, shapes, _try_vertex(layout, shapes, climbers, last))


@functools.partial(jax.jit, static_argnames="shapes")
def _advance(layout: Layout, shapes: tuple[BlockShape, ...], climbers: Climbers) -> Climbers:
    """Ascents after some steps; those that converge restart."""

    def step(_: Any, climbers: Climbers) -> Climbers:
        before = climbers.weights
        climbers = _try(layout, shapes, climbers._replace(weights=_step(layout, shapes, before)))
        change = jnp.sum(jnp.square(climbers.weights - before), (0, 1)) / layout.valid_states.sum()
        return _restart(layout, shapes, climbers, jnp.sqrt(change) <= CONVERGED_CHANGE)

    return lax.fori_loop(0, STEPS_PER_CHECK, step, climbers)


def _step(layout: Layout, shapes: tuple[BlockShape, ...], weights: Array) -> Array:
    """Weights after one step of the authors' line search."""

    def value(weights: Array) -> Array:
        return log_value(layout, shapes, weights)

    gradient = jax.grad(lambda weights: value(weights).sum())(weights)
    return line_search(value, jnp.where(layout.valid_states[..., None], gradient, 0), weights, _inside)


def _inside(weights: Array) -> Array:
    """Euclidean projection of weights: into [0, 1], and onto the simplex where those of a variable exceed one."""
    clipped = jnp.clip(weights, 0, 1)
    depth = weights.shape[1]
    if depth == 1:
        return clipped
    ordered = jnp.sort(weights, 1, descending=True)
    count = jnp.arange(1, depth + 1).reshape(-1, *(1,) * (weights.ndim - 2))
    shift = (jnp.cumsum(ordered, 1) - 1) / count
    last = jnp.sum(ordered > shift, 1, keepdims=True) - 1
    nearest = jnp.maximum(weights - jnp.take_along_axis(shift, last, 1), 0)
    return jnp.where(clipped.sum(1, keepdims=True) > 1, nearest, clipped)


def _restart(
    layout: Layout, shapes: tuple[BlockShape, ...], climbers: Climbers, converged: Array
) -> Climbers:
    """Restart ascents that have converged; their best vertices are kept."""

    def begin(climbers: Climbers) -> Climbers:
        better = climbers.climb_value > climbers.best_value
        key, key_weights = jax.random.split(climbers.key)
        climbers = climbers._replace(
            weights=jnp.where(converged, _draw(key_weights, layout, len(converged)), climbers.weights),
            climb_value=jnp.where(converged, -jnp.inf, climbers.climb_value),
            best_value=jnp.where(better, climbers.climb_value, climbers.best_value),
            best_vertex=jnp.where(better, climbers.climb_vertex, climbers.best_vertex),
            num_climbs=climbers.num_climbs + converged.sum(dtype=jnp.int32),
            key=key,
        )
        return _try(layout, shapes, climbers)

    return lax.cond(converged.any(), begin, lambda climbers: climbers, climbers)


def _draw(key: Array, layout: Layout, num_restarts: int) -> Array:
    """Weights drawn uniformly from the simplex."""
    count, depth = layout.valid_states.shape
    valid = jnp.concatenate((layout.valid_variables[:, None], layout.valid_states), 1)[..., None]
    drawn = jnp.where(valid, jax.random.exponential(key, (count, depth + 1, num_restarts)), 0)
    return drawn[:, 1:] / jnp.maximum(drawn.sum(1, keepdims=True), jnp.finfo(drawn.dtype).tiny)


def _try(layout: Layout, shapes: tuple[BlockShape, ...], climbers: Climbers) -> Climbers:
    """Evaluate the vertices of largest weights; the first of equal ones."""
    weights = climbers.weights
    largest = 1 - weights.sum(1)
    vertex = jnp.zeros_like(climbers.climb_vertex)
    for state in range(weights.shape[1]):  # several times as fast as argmax
        vertex = jnp.where(weights[:, state] > largest, state + 1, vertex)
        largest = jnp.maximum(largest, weights[:, state])
    return _try_vertex(layout, shapes, climbers, vertex)


def _try_vertex(
    layout: Layout, shapes: tuple[BlockShape, ...], climbers: Climbers, vertex: Array
) -> Climbers:
    states = jnp.arange(1, layout.valid_states.shape[1] + 1, dtype=vertex.dtype)[:, None]
    weights = (vertex[:, None] == states).astype(climbers.weights.dtype)
    value = log_value(layout, shapes, weights)
    better = value - climbers.climb_value > SAME_VALUE
    return climbers._replace(
        climb_value=jnp.where(better, value, climbers.climb_value),
        climb_vertex=jnp.where(better, vertex, climbers.climb_vertex),
    )
