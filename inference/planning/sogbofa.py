r"""SOGBOFA: online planning by gradient ascent on the value of forward marginals, many restarts at a time.

Climbs start at random probabilities of the first action, follow the gradient of the plan's value with the authors' line
search, and restart where they have come to rest. Actions after the first are those of a random policy (``"original"``),
or are searched too (``"conformant"``). Points that climbs visit are rounded to actions that the rules allow; the answer
is the best of these by value, never a rounded optimum of the interior, where the value may be larger than at any
action.

Cui, Khardon (2016), "Online symbolic gradient-based optimization for factored action MDPs"; Cui, Marinescu, Khardon
(2018), "From stochastic planning to marginal MAP", section 3, and the programs released with it.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.inference.line_search import line_search
from ethogram.inference.planning.action_limits import project, random_policy_marginals, round_actions
from ethogram.inference.planning.rollout_marginals import rollout
from ethogram.models.arguments import require_integer, require_key, require_one_of
from ethogram.models.planning import PlanningProblem
from ethogram.models.planning.fluent_program import FluentProgram

__all__ = ["DEPTHS", "MODES", "Plan", "plan"]

MODES = ("original", "conformant")
DEPTHS = (4, 8, 16, 32)
"""Steps ahead for which programs are compiled; other depths are rounded up, rewards beyond them are left out."""
CHUNK = 5
"""Steps of all climbs between two looks at the clock."""
ROUNDS = 2
"""Rounds of the line search: climbs are many and short, so that ever smaller steps of a few are not waited for."""
STILL = 0.01
"""Root mean square change below which a climb has come to rest."""
SHARE = 0.95
"""Of the time limit that is used."""


class Plan(NamedTuple):
    """What to do now, and what is expected of it.

    Attributes
    ----------
    action : names of the actions to take, as pyRDDLGym's environments take them.
    vector : (action,) the same as 0 and 1.
    value : of the plan by forward marginals, an estimate of the sum of `depth` rewards.
    marginals : (time, action) probabilities that the plan is made of; the first row is the action taken.
    depth : steps that it looks ahead.
    num_steps, num_climbs : steps of all climbs, and climbs that came to rest.
    finished : whether `max_steps` were made before the time was over.
    seconds : of wall time.
    """

    action: dict[str, bool]
    vector: Float[np.ndarray, " action"]
    value: float
    marginals: Float[np.ndarray, "time action"]
    depth: int
    num_steps: int
    num_climbs: int
    finished: bool
    seconds: float


class _Limits(NamedTuple):
    """Limits of the actions in one state, as arrays."""

    low: Array  # (time, action)
    high: Array
    weights: Array  # (sum, action)
    bounds: Array  # (sum,)
    policy: Array  # (action,) marginals of the random policy


class _Climbs(NamedTuple):
    position: Array  # (time, action, copy) of the actions that are searched
    resting: Array  # (time, action, copy) where the last climb that came to rest was
    num_climbs: Array
    key: Array


def plan(
    key: Array,
    problem: PlanningProblem,
    state: Mapping[str, Any] | np.ndarray | None = None,
    time_limit: float = 0.05,
    *,
    mode: str = "original",
    depth: int = 8,
    num_restarts: int = 32,
    max_steps: int = 30,
    steps_left: int | None = None,
    start: np.ndarray | None = None,
    precision: str = "float32",
) -> Plan:
    """The action to take in a state, by gradient ascent on forward marginals.

    The same key gives the same plan, unless the time is over before `max_steps`. A first call compiles for about three
    seconds, which the time limit does not count.

    Parameters
    ----------
    key : typed PRNG key.
    problem : of :func:`ethogram.models.planning.read_rddl`.
    state : values of the fluents by name, or an array (fluent,) of 0 and 1; the initial state by default.
    time_limit : seconds of wall time for this decision.
    mode : ``"original"``, in which later actions are random, or ``"conformant"``, in which they are planned too.
    depth : steps that are looked ahead, rounded up to 4, 8, 16 or 32 for compilation.
    num_restarts : climbs at a time.
    max_steps : of every climb, rounded up to fives.
    steps_left : of the episode; rewards after it do not count.
    start : (time, action) probabilities at which one climb begins, such as the marginals of the last plan shifted.
    precision : ``"float32"`` or ``"float64"``.

    Raises
    ------
    TypeError, ValueError
        An argument is not of its kind or range, the state lacks a fluent, or no action is allowed in it.
    """
    begin = time.perf_counter()
    require_key(key)
    require_one_of("mode", mode, MODES)
    require_one_of("precision", precision, ("float32", "float64"))
    require_integer("depth", depth, 1)
    require_integer("num_restarts", num_restarts, 1)
    require_integer("max_steps", max_steps, 1)
    if steps_left is not None:
        require_integer("steps_left", steps_left, 1)
    if not isinstance(problem, PlanningProblem):
        raise TypeError(
            f"problem is {type(problem).__name__}: expected a PlanningProblem, as read_rddl returns"
        )
    if not (isinstance(time_limit, (int, float)) and time_limit > 0):
        raise ValueError(f"time_limit = {time_limit!r}: expected a positive number of seconds")
    known = _state(problem, state)
    if depth > DEPTHS[-1]:
        raise ValueError(f"depth = {depth}: expected at most {DEPTHS[-1]}")
    bucket = next(each for each in DEPTHS if each >= depth)
    left = min(depth, problem.horizon if steps_left is None else steps_left)
    with jax.enable_x64(precision == "float64"):
        return _plan(
            key,
            problem,
            known,
            begin,
            time_limit,
            mode,
            bucket,
            left,
            num_restarts,
            max_steps,
            start,
            precision,
        )


def _state(problem: PlanningProblem, state: Any) -> np.ndarray:
    if state is None:
        return problem.initial
    if isinstance(state, Mapping):
        return problem.encode_state(state)
    known = np.asarray(state)
    if known.shape != (len(problem.fluents),) or not np.isin(known, (0, 1)).all():
        raise ValueError(
            f"state has shape {known.shape}: expected values by name, or ({len(problem.fluents)},) of 0 and 1"
        )
    return known.astype(float)


def _plan(
    key: Array,
    problem: PlanningProblem,
    state: np.ndarray,
    begin: float,
    time_limit: float,
    mode: str,
    depth: int,
    steps_left: int,
    copies: int,
    max_steps: int,
    start: np.ndarray | None,
    precision: str,
) -> Plan:
    rules, free = problem.rules, 1 if mode == "original" else depth
    low, high = rules.range(state)
    bounds = rules.bounds(state)
    policy = random_policy_marginals(rules.weights, bounds)
    first = np.arange(free)[:, None] == 0
    limits = _Limits(
        *(
            jnp.asarray(each, precision)
            for each in (np.where(first, low, 0), np.where(first, high, 1), rules.weights, bounds, policy)
        )
    )
    program = _on_device(problem, precision)
    given = (
        jnp.zeros((free, len(low)), precision) if start is None else _given(start, free, len(low), precision)
    )
    traced = (
        jnp.asarray(state, precision),
        limits,
        jnp.asarray(steps_left, jnp.int32),
        jnp.asarray(problem.discount, precision),
    )
    warm = _shape(program, limits, depth, copies, free, precision)
    climbs = _start(key, given, limits, copies, start is not None)
    best: tuple[float, np.ndarray] | None = None
    tried: set[bytes] = set()
    steps = 0
    if warm not in _RUN:
        _advance(program, *traced, climbs, depth=depth).position.block_until_ready()
        _RUN.add(warm)
        begin = time.perf_counter()
    nothing = np.zeros((len(low), 1))
    while True:
        points = np.concatenate((np.asarray(climbs.position), np.asarray(climbs.resting)), -1).astype(float)
        if best is None:
            points = np.concatenate((points, np.repeat(nothing[None], free, 0)), -1)
        best = _best(program, traced, rules, state, policy, points, depth, tried, best, precision)
        spent = time.perf_counter() - begin
        if steps >= max_steps or spent + (spent / max(steps, CHUNK)) * CHUNK > SHARE * time_limit:
            break
        climbs = _advance(program, *traced, climbs, depth=depth)
        steps += CHUNK
    value, marginals = best
    return Plan(
        problem.decode_action(marginals[0]),
        marginals[0],
        value,
        marginals,
        depth,
        steps,
        int(climbs.num_climbs),
        steps >= max_steps,
        time.perf_counter() - begin,
    )


@functools.lru_cache(maxsize=16)
def _on_device(problem: PlanningProblem, precision: str) -> FluentProgram:
    """The program of a problem as arrays of JAX."""

    def moved(leaf: np.ndarray) -> Array:
        return jnp.asarray(leaf, precision if np.issubdtype(leaf.dtype, np.floating) else None)

    return jax.tree.map(moved, problem.program)


_RUN: set[Any] = set()
"""Shapes that are compiled in this process."""


def _shape(*parts: Any) -> Any:
    leaves, tree = jax.tree.flatten(parts)
    return tree, tuple(getattr(leaf, "shape", leaf) for leaf in leaves)


def _given(start: Any, free: int, count: int, precision: str) -> Array:
    """The point at which one climb begins, with its last row repeated."""
    found = np.asarray(start, float)
    if found.ndim != 2 or found.shape[1] != count or not len(found) or not np.isfinite(found).all():
        raise ValueError(f"start has shape {found.shape}: expected (time, {count}) probabilities")
    rows = np.minimum(np.arange(free), len(found) - 1)
    return jnp.asarray(found[rows], precision)


@functools.partial(jax.jit, static_argnames=("copies", "warm"))
def _start(key: Array, given: Array, limits: _Limits, copies: int, warm: bool) -> _Climbs:
    key, now = jax.random.split(key)
    position = jax.random.uniform(now, (*given.shape, copies), given.dtype)
    if warm:
        position = position.at[..., 0].set(given)
    position = project(position, *limits[:4])
    return _Climbs(position, position, jnp.zeros((), jnp.int32), key)


def _actions(limits: _Limits, position: Array, depth: int) -> Array:
    """Probabilities of all actions (time, action, copy): those searched, then those of the random policy."""
    later = jnp.broadcast_to(limits.policy[:, None], (depth - position.shape[0], *position.shape[1:]))
    return jnp.concatenate((position, later))


def _values(
    program: FluentProgram,
    state: Array,
    limits: _Limits,
    steps_left: Array,
    discount: Array,
    position: Array,
    depth: int,
) -> Array:
    return rollout(
        program, state, _actions(limits, position, depth), discount=discount, steps_left=steps_left
    )


@functools.partial(jax.jit, static_argnames="depth")
def _advance(
    program: FluentProgram,
    state: Array,
    limits: _Limits,
    steps_left: Array,
    discount: Array,
    climbs: _Climbs,
    depth: int,
) -> _Climbs:
    """Climbs after some steps; those that have come to rest begin again."""

    def value(position: Array) -> Array:
        return _values(program, state, limits, steps_left, discount, position, depth)

    def inside(position: Array) -> Array:
        return project(position, *limits[:4])

    def one(_: Any, climbs: _Climbs) -> _Climbs:
        gradient = jax.grad(lambda position: value(position).sum())(climbs.position)
        position = line_search(value, gradient, climbs.position, inside, rounds=ROUNDS)
        moved = jnp.sqrt(jnp.mean(jnp.square(position - climbs.position), (0, 1)))
        ended = moved <= STILL
        key, now = jax.random.split(climbs.key)
        fresh = inside(jax.random.uniform(now, position.shape, position.dtype))
        return _Climbs(
            jnp.where(ended, fresh, position),
            jnp.where(ended, position, climbs.resting),
            climbs.num_climbs + ended.sum(dtype=jnp.int32),
            key,
        )

    return lax.fori_loop(0, CHUNK, one, climbs)


@functools.partial(jax.jit, static_argnames="depth")
def _evaluate(
    program: FluentProgram,
    state: Array,
    limits: _Limits,
    steps_left: Array,
    discount: Array,
    position: Array,
    depth: int,
) -> Array:
    return _values(program, state, limits, steps_left, discount, position, depth)


def _best(
    program: FluentProgram,
    traced: tuple[Array, _Limits, Array, Array],
    rules: Any,
    state: np.ndarray,
    policy: np.ndarray,
    points: np.ndarray,
    depth: int,
    tried: set[bytes],
    best: tuple[float, np.ndarray] | None,
    precision: str,
) -> tuple[float, np.ndarray]:
    """Value and probabilities (time, action) of the best plan whose first action is allowed."""
    points = points.copy()
    points[0] = round_actions(rules, state, points[0], policy)
    fresh = []
    for copy in range(points.shape[-1]):
        mark = points[..., copy].tobytes()
        if mark not in tried:
            tried.add(mark)
            fresh.append(copy)
    if fresh:
        size = 2 ** math.ceil(math.log2(len(fresh)))
        chosen = points[..., (fresh + [fresh[0]] * (size - len(fresh)))]
        values = np.asarray(_evaluate(program, *traced, jnp.asarray(chosen, precision), depth=depth))
        at = int(np.argmax(values))
        if best is None or values[at] > best[0]:
            best = float(values[at]), chosen[..., at]
    assert best is not None
    return best
