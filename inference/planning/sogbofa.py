r"""SOGBOFA: online planning by gradient ascent on the value of forward marginals, many restarts at a time.

Ascents start at random probabilities of the first action, follow the gradient of the plan's value with the authors'
line search, and restart where they have converged. Actions after the first are those of a random policy
(``"original"``), or are searched too (``"conformant"``). Points that ascents visit are rounded to actions that the
rules allow; the answer is the best of these by value. The fractional optimum is not rounded, because its value may
exceed that of every action.

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
from ethogram.models.arguments import read_array, require_integer, require_key, require_number, require_one_of
from ethogram.models.planning import ActionRules, PlanningProblem
from ethogram.models.planning.fluent_program import FluentProgram
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = ["DEPTHS", "MODES", "Plan", "plan"]

MODES = ("original", "conformant")
DEPTHS = (4, 8, 16, 32)
"""Steps ahead for which programs are compiled; other depths are rounded up, rewards beyond them are left out."""
STEPS_PER_CHECK = 5
"""Steps of all restarts between two checks of the clock."""
LINE_SEARCH_ROUNDS = 2
"""Ascents are many and short: smaller steps for a few of them would make all wait."""
CONVERGED_CHANGE = 0.01
"""Root mean square change of the probabilities at which an ascent has converged."""
TIME_SHARE = 0.95
"""Of the time limit that is used."""
CALLS = 4000
"""How often the numbers of a problem are handled by evaluations: 8 steps ahead, 12 times a decision, 40 decisions."""


@short_repr
class Plan(NamedTuple):
    """What to do now, and what is expected of it.

    Attributes
    ----------
    action : names of the actions to take, as pyRDDLGym's environments take them.
    vector : (action,) the same as 0 and 1.
    value : of the plan by forward marginals, an estimate of the sum of `depth` rewards.
    marginals : (time, action) probabilities that the plan is made of; the first row is the action taken.
    depth : steps that it looks ahead, no more than are left of the episode.
    num_steps : of every restart.
    finished : whether `max_steps` were made before the time was over.
    seconds : of wall time.
    """

    action: dict[str, bool]
    vector: Float[np.ndarray, " action"]
    value: float
    marginals: Float[np.ndarray, "time action"]
    depth: int
    num_steps: int
    finished: bool
    seconds: float


class _Search(NamedTuple):
    """The search of one decision as arrays: the problem's program, the state, and the limits of the actions in it."""

    program: FluentProgram
    state: Array  # (fluent,)
    low: Array  # (time, action) of the actions that are searched
    high: Array
    weights: Array  # (sum, action)
    bounds: Array  # (sum,), or (time, sum) where they depend on the state
    threshold: Array  # (action,) marginals of the random policy now
    policy: Array  # (action,) marginals of the random policy after the first step
    steps_left: Array
    discount: Array
    limits: tuple[Array, Array, FluentProgram] | None  # of the steps after the first

    def inside(self, position: Array) -> Array:
        """Probabilities within the limits."""
        return project(position, self.low, self.high, self.weights, self.bounds)

    def least(self) -> Array:
        """No action (time, action, 1), or as little as must be done: what is not allowed may be worth more."""
        nothing = jax.device_put(np.zeros((*self.low.shape, 1), self.low.dtype))
        return self.inside(nothing) if np.any(np.asarray(self.weights) < 0) else nothing

    def values(self, position: Array, depth: int) -> Array:
        """Values (restart,) of actions (time, action, restart); those that are not searched are random."""
        later = jnp.broadcast_to(
            self.policy[:, None], (depth - position.shape[0], len(self.policy), position.shape[2])
        )
        actions = jnp.concatenate((position, later))
        given = {"discount": self.discount, "steps_left": self.steps_left, "limits": self.limits}
        return rollout(self.program, self.state, actions, **given)


class _Climbs(NamedTuple):
    """State of the ascents of all restarts."""

    position: Array  # (time, action, restart) of the actions that are searched
    begins: Array  # (restart,) whether an ascent begins at a random point
    converged: Array  # (time, action, restart) where the last ascent that converged was
    key: Array


def plan(
    key: Array,
    problem: Any,
    state: Mapping[str, Any] | np.ndarray | None = None,
    time_limit: float | int | None = 0.05,
    *,
    mode: str = "conformant",
    depth: int = 8,
    num_restarts: int = 32,
    max_steps: int = 30,
    steps_left: int | None = None,
    start: np.ndarray | None = None,
    precision: str = "float32",
) -> Plan:
    """The action to take in a state, by gradient ascent on forward marginals.

    Actions after the first count with the probability that their preconditions hold by then. The same key gives the
    same plan, unless the time is over before `max_steps`. A first call compiles for about three seconds, which the time
    limit does not count.

    Parameters
    ----------
    key : typed PRNG key.
    problem : of :func:`ethogram.models.planning.read_rddl`.
    state : values of the fluents by name, or an array (fluent,) of 0 and 1; the initial state by default.
    time_limit : seconds of wall time for this decision; None for no limit.
    mode : ``"conformant"``, in which all actions of the plan are searched, or ``"original"``, in which those after the
        first are random, in a bit over half the time.
    depth : steps that are looked ahead; programs are compiled for 4, 8, 16 and 32.
    num_restarts : ascents at a time.
    max_steps : of every restart, rounded up to fives.
    steps_left : of the episode; rewards after it do not count.
    start : (time, action) probabilities at which one ascent begins, such as the marginals of the last plan shifted.
    precision : ``"float32"`` or ``"float64"``.

    Raises
    ------
    TypeError, ValueError
        An argument is not of its kind or range, the state lacks a fluent, no action is allowed in it, or no plan has a
        finite value.
    """
    begin = time.perf_counter()
    require_key(key)
    require_one_of("mode", mode, MODES)
    require_one_of("precision", precision, ("float32", "float64"))
    require_integer("depth", depth, 1, DEPTHS[-1])
    require_integer("num_restarts", num_restarts, 1)
    require_integer("max_steps", max_steps, 1)
    if steps_left is not None:
        require_integer("steps_left", steps_left, 1)
    if not isinstance(problem, PlanningProblem):
        raise TypeError(
            f"problem is {type(problem).__name__}: expected a PlanningProblem, as read_rddl returns"
        )
    if time_limit is not None:
        time_limit = require_number("time_limit", time_limit, above=0)
    known = problem.initial if state is None else problem.encode_state(state)
    bucket = next(each for each in DEPTHS if each >= depth)
    left_steps = min(depth, problem.horizon if steps_left is None else steps_left)
    with jax.enable_x64(precision == "float64"):
        search = _search(problem, known, mode, bucket, left_steps, precision)
        climbs = _climbs(key, search, num_restarts, start)
        decision = _Decision(search, problem.rules, known, bucket)
        shape = _shape(search, climbs, bucket)
        if shape not in _TIMERS:
            decision.consider(decision.advanced(climbs, STEPS_PER_CHECK))
            _TIMERS[shape] = StepTimer.measured(decision, climbs)
            begin, decision = time.perf_counter(), _Decision(search, problem.rules, known, bucket)
        steps, taken = 0, STEPS_PER_CHECK
        while steps < max_steps and taken == STEPS_PER_CHECK:
            if time_limit is not None:
                left = TIME_SHARE * time_limit - (time.perf_counter() - begin)
                taken = _TIMERS[shape].steps_within(left)
            if taken or not steps:
                now = time.perf_counter()
                climbs = decision.advanced(climbs, taken) if taken else climbs
                then = time.perf_counter()
                decision.consider(climbs)
                measured = (then - now) / taken if taken else None
                _TIMERS[shape] = _TIMERS[shape].updated(measured, time.perf_counter() - then)
            steps += taken
    if not math.isfinite(decision.value):
        raise ValueError(
            "no plan has a finite value in this state: the reward or a probability is not finite"
        )
    marginals = decision.marginals[:left_steps]
    return Plan(
        problem.decode_action(marginals[0]),
        marginals[0],
        decision.value,
        marginals,
        left_steps,
        steps,
        steps >= max_steps,
        time.perf_counter() - begin,
    )


def _search(
    problem: PlanningProblem, state: np.ndarray, mode: str, depth: int, steps_left: int, precision: str
) -> _Search:
    rules, lookahead = problem.rules, problem.lookahead
    least, most = rules.range(state)
    signed, limits = rules.sums(state)
    low, high, bounds = np.zeros(len(least)), np.ones(len(least)), limits
    first = np.arange(1 if mode == "original" else depth)[:, None] == 0
    if lookahead is not None:
        low, high, bounds = lookahead.low, lookahead.high, np.where(first, limits, lookahead.bounds)
    random = [
        _random_policy(rules, signed, each, precision)
        for each in (limits, limits if lookahead is None else lookahead.bounds)
    ]

    def moved(numbers: Any) -> Array:
        return jax.device_put(np.asarray(numbers, precision))

    program, limits_later = _on_device(problem, precision)
    return _Search(
        program,
        moved(state),
        moved(np.where(first, least, low)),
        moved(np.where(first, most, high)),
        moved(signed),
        moved(bounds),
        moved(random[0]),
        moved(np.clip(random[1], low, high)),
        jax.device_put(np.int32(steps_left)),
        moved(problem.discount),
        limits_later,
    )


def _random_policy(rules: ActionRules, signed: np.ndarray, limits: np.ndarray, precision: str) -> np.ndarray:
    """Marginals (action,) of the random policy where sums have some limits."""
    random = random_policy_marginals(rules.weights, limits[: len(rules.weights)])
    if not len(rules.least):
        return random
    # Of an action that must be taken, the random policy takes a share too.
    given = random[None, :, None], np.zeros((1, len(random))), np.ones((1, len(random))), signed, limits
    return np.asarray(project(*(each.astype(precision) for each in given)))[0, :, 0]


@functools.lru_cache(maxsize=16)
def _on_device(
    problem: PlanningProblem, precision: str
) -> tuple[FluentProgram, tuple[Array, Array, FluentProgram] | None]:
    """The program of a problem, and the limits of steps after the first, as arrays of JAX."""

    def moved(leaf: Any) -> Array:
        return jax.device_put(np.asarray(leaf, precision if np.issubdtype(leaf.dtype, np.floating) else None))

    lookahead = problem.lookahead
    if lookahead is None:
        return jax.tree.map(moved, problem.program), None
    program = lookahead.limits
    limits = None if program is None else (lookahead.weights, lookahead.members, program)
    return jax.tree.map(moved, (lookahead.program, limits))


class StepTimer(NamedTuple):
    """Seconds of one step of all restarts, and of a check: rounding and comparing the points that they have reached."""

    step: float
    check: float

    @classmethod
    def measured(cls, decision: _Decision, climbs: _Climbs) -> StepTimer:
        """The least of three measurements: other work on the machine only adds to them."""
        steps, checks = [], []
        for _ in range(3):
            begin = time.perf_counter()
            climbs = decision.advanced(climbs, STEPS_PER_CHECK)
            then = time.perf_counter()
            decision.consider(climbs)
            steps.append((then - begin) / STEPS_PER_CHECK)
            checks.append(time.perf_counter() - then)
        return cls(min(steps), min(checks))

    def steps_within(self, seconds: float) -> int:
        """Steps that fit into some seconds with a check after them; at most those between two checks."""
        return int(min(max((seconds - self.check) // self.step, 0), STEPS_PER_CHECK))

    def updated(self, step: float | None, check: float) -> StepTimer:
        """Exponential moving averages that react faster to slowdowns.

        Where no step fitted, none was measured: its time then shrinks, so that a slow one does not count forever.
        """

        def average(old: float, new: float) -> float:
            share = 0.5 if new > old else 0.1
            return (1 - share) * old + share * new

        step = 0.98 * self.step if step is None else average(self.step, step)
        return StepTimer(step, average(self.check, check))


_TIMERS: dict[Any, StepTimer] = {}
"""Of every shape that has run in this process."""


def _shape(*parts: Any) -> Any:
    leaves, tree = jax.tree.flatten(parts)
    return tree, tuple((leaf.shape, str(leaf.dtype)) if hasattr(leaf, "shape") else leaf for leaf in leaves)


def _climbs(key: Array, search: _Search, num_restarts: int, start: Any) -> _Climbs:
    """Ascents before their first step: one at `start`, if any, whose last row is repeated, the others at random."""
    free, count = search.low.shape
    position = np.zeros((free, count, num_restarts))
    if start is not None:
        found = read_array("start", start)
        if found.ndim != 2 or found.shape[1] != count or not len(found) or found.dtype.kind not in "biuf":
            raise ValueError(
                f"start has shape {found.shape} of {found.dtype}: expected (time, {count}) probabilities"
            )
        if not np.all((found >= -1e-6) & (found <= 1 + 1e-6)):
            raise ValueError("start has numbers that are no probabilities: expected 0 to 1")
        position[..., 0] = found[np.minimum(np.arange(free), len(found) - 1)]
    given = position.astype(search.low.dtype)
    converged = np.broadcast_to(np.asarray(search.least()), given.shape)
    begins = np.arange(num_restarts) >= (0 if start is None else 1)
    given, begins, converged = jax.device_put((given, begins, converged))
    return _Climbs(given, begins, converged, key)


@functools.partial(jax.jit, static_argnames="depth")
def _advance(search: _Search, climbs: _Climbs, steps: Any, depth: int) -> _Climbs:
    """Ascents after some steps; those that have converged begin again at a random point."""
    value = functools.partial(search.values, depth=depth)

    def one(_: Any, climbs: _Climbs) -> _Climbs:
        key, now = jax.random.split(climbs.key)
        # Flat: numbers by three indices would be the same, and take XLA half a second.
        fresh = jax.random.uniform(now, (climbs.position.size,), climbs.position.dtype)
        fresh = fresh.reshape(climbs.position.shape)
        before = search.inside(jnp.where(climbs.begins, fresh, climbs.position))
        gradient = jax.grad(lambda position: value(position).sum())(before)
        gradient = jnp.where(jnp.isfinite(gradient), gradient, 0)
        position = line_search(value, gradient, before, search.inside, rounds=LINE_SEARCH_ROUNDS)
        ended = jnp.sqrt(jnp.mean(jnp.square(position - before), (0, 1))) <= CONVERGED_CHANGE
        converged = jnp.where(ended, position, climbs.converged)
        return _Climbs(position, ended, converged, key)

    return lax.fori_loop(0, steps, one, climbs)


@quick_jit(calls=CALLS, static_argnames="depth")
def _evaluate(search: _Search, position: Array, depth: int) -> Array:
    return search.values(position, depth)


class _Decision:
    """The best plan so far whose first action is allowed."""

    def __init__(self, search: _Search, rules: ActionRules, state: np.ndarray, depth: int):
        self.search, self.rules, self.state, self.depth = search, rules, state, depth
        self.threshold = np.asarray(search.threshold, float)
        self.value, self.marginals = -math.inf, np.zeros(search.low.shape)
        self.seen: set[bytes] = set()

    def advanced(self, climbs: _Climbs, steps: int) -> _Climbs:
        """Ascents after some steps, which are waited for."""
        return jax.block_until_ready(_advance(self.search, climbs, np.int32(steps), depth=self.depth))

    def consider(self, climbs: _Climbs) -> None:
        """Round the points of ascents, and doing nothing, and keep the best by value."""
        position = np.asarray(climbs.position, float)
        points = np.concatenate((position, np.asarray(climbs.converged, float)), -1)
        if not self.seen:
            points = np.concatenate((points, np.asarray(self.search.least(), float)), -1)
        points[0] = round_actions(self.rules, self.state, points[0], self.threshold)
        fresh = []
        for number, mark in enumerate(each.tobytes() for each in np.moveaxis(points, -1, 0)):
            if mark not in self.seen:
                self.seen.add(mark)
                fresh.append(number)
        size = position.shape[-1]  # one size, so that one program evaluates all
        for i in range(0, len(fresh), size):
            chosen = points[..., np.resize(fresh[i : i + size], size)]
            values = np.asarray(
                _evaluate(self.search, chosen.astype(self.search.low.dtype), depth=self.depth)
            )
            at = int(np.argmax(np.where(np.isfinite(values), values, -np.inf)))
            if np.isfinite(values[at]) and values[at] > self.value:
                self.value, self.marginals = float(values[at]), chosen[..., at]
