r"""Gradient ascent on forward marginals: many restarts at once climb the surrogate of a marginal MAP question.

A climb starts at random weights of the MAP variables' states and follows the gradient of ln V. After the start and
after every step the states of largest weight are tried as an answer, by the surrogate's value there: between answers
the surrogate may be larger than at any of them, so that where a climb ends says little, and what it passed says more.

Three ways to step:

* ``"paper"``, the authors' own, in :mod:`ethogram.inference.ags_step`. A climb ends where weights change by a root
  mean square of at most 0.01.
* ``"adam"`` on the weights' logits.
* ``"expgrad"``, exponentiated gradient: a weight is multiplied by the exponential of its gradient, scaled so that the
  largest exponent is one.

Section 3 of Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP", and the program that its
authors released, whose step is not in the paper.
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

from ethogram.inference.ags_step import ags_step
from ethogram.inference.forward_layout import Kind, Layout, lay_out
from ethogram.inference.forward_marginals import fixed_values, log_value_over, value_and_gradient_over
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["OPTIMIZERS", "Climbers", "Vertices", "ascend", "seconds_to_begin"]

OPTIMIZERS = ("adam", "expgrad", "paper")
CHUNK = 10
"""Steps between two looks at the clock."""
STILL = 0.01
LEARNING_RATE, LONGEST, QUIET = 0.3, 100, 0.01
ADAM = optax.scale_by_adam()
MOST_CELLS = 2**29
EQUAL = 1e-9
"""Nats by which surrogates differ, and no less."""
COMPILATION = 5.0
"""Seconds of a first compilation, on a slow day."""


class Climbers(NamedTuple):
    """Restarts on their way, one a copy.

    Attributes
    ----------
    position : (weight, state - 1, copy) weights, or logits for the optimisers that step on these.
    moments : of the optimiser.
    steps : (copy,) of this climb.
    climb_value, climb_vertex : (copy,), (weight, copy) the best answer of this climb.
    best_value, best_vertex : the best answer of this copy when climbs last began anew.
    num_climbs : () that have ended.
    key : for restarts.
    """

    position: Array
    moments: Any
    steps: Array
    climb_value: Array
    climb_vertex: Array
    best_value: Array
    best_vertex: Array
    num_climbs: Array
    key: Array


class Vertices(NamedTuple):
    """Answers that were passed, the best by the surrogate first; of several best, that which was met first.

    Attributes
    ----------
    states : (answer, map) all different.
    log_values : (answer,) ln V of each, which is no probability.
    num_steps : of every copy.
    num_climbs : that ended.
    """

    states: np.ndarray
    log_values: np.ndarray
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
    """Answers of the largest surrogate among those that climbs pass.

    Parameters
    ----------
    key : typed; the same key and number of steps give the same answers.
    optimizer : one of :data:`OPTIMIZERS`.
    num_restarts : climbs at a time.
    max_steps : of every copy, in tens.
    tables : of the network, others than its own where they are smoothed.
    stop : asked every ten steps, with what was found so far, whether that is enough.

    Raises
    ------
    ValueError
        There is no such optimiser, a number is below 1, or restarts of the largest table would take over 4 gibibytes.
    """
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"optimizer is {optimizer!r}: take one of {', '.join(OPTIMIZERS)}")
    for name, value in (("num_restarts", num_restarts), ("max_steps", max_steps)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} is {value!r}: give an integer of at least 1")
    layout, kinds = lay_out(query, tables)
    count, pool = len(query.map_variables), _Pool()
    shape = _shape(layout, kinds, optimizer, num_restarts)
    if (cells := _cells(kinds, num_restarts)) > MOST_CELLS:
        raise ValueError(
            f"num_restarts is {num_restarts}: a table of {kinds[0].cells} numbers would take {8 * cells:.3g} bytes: "
            "take fewer, or write families of many parents as chains (noisy_or_network)"
        )
    with jax.enable_x64(True):
        layout = jax.tree.map(jnp.asarray, layout)
        climbers = _start(layout, kinds, key, num_restarts, optimizer)
        pool.add(climbers, count)
        for step in range(CHUNK, max_steps + CHUNK, CHUNK):
            climbers = _advance(layout, kinds, climbers, optimizer)
            pool.add(climbers, count)
            _RUN.add(shape)
            found = pool.sorted(step, int(climbers.num_climbs))
            if stop is not None and stop(found):
                break
    return found


def seconds_to_begin(
    query: MarginalMAP, tables: tuple[np.ndarray, ...] | None, optimizer: str, num_restarts: int
) -> float:
    """About how long climbs of a question take to begin.

    No time where their like has run in this process, infinity where tables are too large, else that of a compilation.
    """
    layout, kinds = lay_out(query, tables)
    if _cells(kinds, num_restarts) > MOST_CELLS:
        return math.inf
    return 0.0 if _shape(layout, kinds, optimizer, num_restarts) in _RUN else COMPILATION


def _cells(kinds: tuple[Kind, ...], num_restarts: int) -> int:
    """Numbers that a block's slopes in all parents make, of the largest kind."""
    return max(kind.cells * kind.width * max(len(kind.parents), 1) for kind in kinds) * num_restarts


_RUN: set[Any] = set()


def _shape(layout: Layout, kinds: tuple[Kind, ...], optimizer: str, num_restarts: int) -> Any:
    return tuple(np.shape(leaf) for leaf in jax.tree.leaves(layout)), kinds, optimizer, num_restarts


class _Pool:
    """Different answers and their surrogates, roughly in the order in which they were met."""

    def __init__(self):
        self.known: dict[bytes, float] = {}

    def add(self, climbers: Climbers, count: int) -> None:
        """Answers of climbs before, then of those that go on; what has no chance only where nothing has."""
        for values, vertices in (
            (climbers.best_value, climbers.best_vertex), (climbers.climb_value, climbers.climb_vertex),
        ):  # fmt: skip
            states = np.asarray(vertices)[:count].T.astype(np.int32)
            for value, each in zip(np.asarray(values).tolist(), states, strict=True):
                if value > -math.inf:
                    self.known.setdefault(each.tobytes(), value)
        if not self.known:
            self.known[states[0].tobytes()] = -math.inf

    def sorted(self, num_steps: int, num_climbs: int) -> Vertices:
        """The largest first; of those as large as the largest, that which was met first."""
        top = max(self.known.values())
        first = next(each for each, value in self.known.items() if value >= top - EQUAL)
        ranked = sorted(self.known.items(), key=lambda item: (item[0] != first, -item[1]))
        states = np.stack([np.frombuffer(each, np.int32) for each, _ in ranked])
        return Vertices(states, np.array([value for _, value in ranked]), num_steps, num_climbs)


@functools.partial(jax.jit, static_argnames=("kinds", "copies", "optimizer"))
def _start(layout: Layout, kinds: tuple[Kind, ...], key: Array, copies: int, optimizer: str) -> Climbers:
    """Climbers at random weights; for the authors' rule, the first at all ones, but for variables of more states."""
    key, first = jax.random.split(key)
    position = _draw(first, layout, copies, optimizer)
    if optimizer == "paper":
        two = layout.states.sum(1) == 1
        ones = layout.states.astype(position.dtype)
        position = position.at[:, :, 0].set(jnp.where(two[:, None], ones, position[:, :, 0]))
    vertex = jnp.zeros((len(layout.asked), copies), _small(layout))
    worst = jnp.full(copies, -jnp.inf)
    climbers = Climbers(
        position, _no_moments(position, optimizer), jnp.zeros(copies, jnp.int32), worst, vertex, worst, vertex,
        jnp.zeros((), jnp.int32), key,
    )  # fmt: skip
    last = layout.states.sum(1, dtype=vertex.dtype)[:, None] + jnp.zeros_like(vertex)
    weights = _weights(layout, position, optimizer)
    climbers, values = _try_vertex(layout, kinds, climbers, last, fixed_values(layout, copies))
    return _try(layout, kinds, climbers, weights, values)[0]


@functools.partial(jax.jit, static_argnames=("kinds", "optimizer"))
def _advance(layout: Layout, kinds: tuple[Kind, ...], climbers: Climbers, optimizer: str) -> Climbers:
    """Climbers some steps on; those that ended begin anew: after every step of the authors', else after all of them."""

    def step(_: Any, walk: tuple[Climbers, Array, Array]) -> tuple[Climbers, Array, Array]:
        climbers, before, values = walk
        if optimizer == "paper":
            position, moments = ags_step(layout, kinds, before), ()
        else:
            _, gradient, values = value_and_gradient_over(values, layout, kinds, before)
            position, moments = _STEPS[optimizer](layout, climbers, before, gradient)
        weights = _weights(layout, position, optimizer)
        climbers = climbers._replace(position=position, moments=moments, steps=climbers.steps + 1)
        climbers, values = _try(layout, kinds, climbers, weights, values)
        if optimizer == "paper":
            climbers = _restart(layout, kinds, climbers, _moved(layout, before, weights) <= STILL, optimizer)
            weights = climbers.position
        return climbers, weights, values

    before = _weights(layout, climbers.position, optimizer)
    values = fixed_values(layout, before.shape[-1])  # one array, which all steps write over
    climbers, weights, _ = lax.fori_loop(0, CHUNK, step, (climbers, before, values))
    if optimizer == "paper":
        return climbers
    ended = (_moved(layout, before, weights) <= QUIET) | (climbers.steps >= LONGEST)
    return _restart(layout, kinds, climbers, ended, optimizer)


def _moved(layout: Layout, before: Array, weights: Array) -> Array:
    """Root mean square of what weights changed by (copy,)."""
    return jnp.sqrt(jnp.sum(jnp.square(weights - before), (0, 1)) / layout.states.sum())


def _keep(climbers: Climbers) -> Climbers:
    """The best answers of climbs among those of all climbs."""
    better = climbers.climb_value > climbers.best_value
    return climbers._replace(
        best_value=jnp.where(better, climbers.climb_value, climbers.best_value),
        best_vertex=jnp.where(better, climbers.climb_vertex, climbers.best_vertex),
    )


def _restart(
    layout: Layout, kinds: tuple[Kind, ...], climbers: Climbers, ended: Array, optimizer: str
) -> Climbers:
    """Climbs that ended begin anew, their best answers kept."""

    def begin(climbers: Climbers) -> Climbers:
        climbers = _keep(climbers)
        key, now = jax.random.split(climbers.key)
        fresh = _draw(now, layout, len(ended), optimizer)
        clean = _no_moments(fresh, optimizer)
        moments = jax.tree.map(lambda new, old: jnp.where(ended, new, old), clean, climbers.moments)
        climbers = climbers._replace(
            position=jnp.where(ended, fresh, climbers.position),
            moments=moments,
            steps=jnp.where(ended, 0, climbers.steps),
            climb_value=jnp.where(ended, -jnp.inf, climbers.climb_value),
            num_climbs=climbers.num_climbs + ended.sum(dtype=jnp.int32),
            key=key,
        )
        weights, values = _weights(layout, climbers.position, optimizer), fixed_values(layout, len(ended))
        return _try(layout, kinds, climbers, weights, values)[0]

    return lax.cond(ended.any(), begin, lambda climbers: climbers, climbers)


def _draw(key: Array, layout: Layout, copies: int, optimizer: str) -> Array:
    """Random weights, uniform over the simplex, or their logits."""
    count, deep = layout.states.shape
    there = jnp.concatenate((layout.asked[:, None], layout.states), 1)[..., None]
    drawn = jnp.where(there, jax.random.exponential(key, (count, deep + 1, copies)), 0)
    if optimizer == "paper":
        return drawn[:, 1:] / jnp.maximum(drawn.sum(1, keepdims=True), jnp.finfo(drawn.dtype).tiny)
    tiny = jnp.finfo(drawn.dtype).tiny
    return jnp.where(layout.states[..., None], jnp.log(drawn[:, 1:] + tiny) - jnp.log(drawn[:, :1] + tiny), 0)


def _weights(layout: Layout, position: Array, optimizer: str) -> Array:
    """Weights (weight, state - 1, copy) where climbers are."""
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
    """The states of largest weight as an answer; of equal weights, the first. Values are written over."""
    largest = 1 - weights.sum(1)
    vertex = jnp.zeros(largest.shape, _small(layout))
    for state in range(weights.shape[1]):  # argmax is a reduction of pairs, which takes several times as long
        vertex = jnp.where(weights[:, state] > largest, state + 1, vertex)
        largest = jnp.maximum(largest, weights[:, state])
    return _try_vertex(layout, kinds, climbers, vertex, values)


def _small(layout: Layout) -> np.dtype:
    """Numbers of as few bytes as the largest state takes."""
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


def _step_adam(layout: Layout, climbers: Climbers, weights: Array, gradient: Array) -> tuple[Array, Any]:
    # A step does not depend on the scale, but the squares of a wall's gradient are beyond all numbers.
    gradient = jnp.clip(_by_logits(weights, gradient), -1e6, 1e6)
    gradient = jnp.where(layout.states[..., None], gradient, 0)
    change, moments = jax.vmap(ADAM.update, -1, -1)(gradient, climbers.moments)
    return climbers.position + LEARNING_RATE * change, moments


def _step_expgrad(layout: Layout, climbers: Climbers, weights: Array, gradient: Array) -> tuple[Array, Any]:
    gradient = jnp.where(layout.states[..., None], gradient, 0)
    scale = jnp.maximum(jnp.abs(gradient).max((0, 1)), 1)
    return climbers.position + gradient / scale, ()


def _by_logits(weights: Array, gradient: Array) -> Array:
    """Gradient by logits of a gradient by weights, the first state's taken off both."""
    return weights * (gradient - (weights * gradient).sum(1, keepdims=True))


_STEPS = {"adam": _step_adam, "expgrad": _step_expgrad}
