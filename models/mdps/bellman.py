r"""Discounted values, soft or greedy, by policy iteration: Newton's method for the residual T V - V of one backup.

.. math:: V \leftarrow V + (I - \gamma P_\pi)^{-1} (T V - V)

with the policy of V: the soft one at temperature 1 (soft policy iteration), the greedy one at temperature 0 (Howard).
Sweeps in between propagate values further, as in modified policy iteration. Without them, in a maze of 1600 states at
a discount of .9999, optimal values have not converged after 1000 steps, which are 13 with them.

Values are kept as a level and the states' differences from it: with a discount near one the level is large, in single
precision too large for the differences beside it, and policies depend on the differences alone.

Howard (1960), "Dynamic programming and Markov processes"; Puterman and Shin (1978), "Modified policy iteration
algorithms for discounted Markov decision problems"; both in Puterman (1994), "Markov decision processes", sections 6.4
and 6.5. Rust (1987), "Optimal replacement of GMC bus engines", whose polyalgorithm is the soft case; shifts of sweeps
are MacQueen's (1966).
"""

from __future__ import annotations

import enum
import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import sequential_vmap

from ethogram.models.arguments import is_concrete
from ethogram.models.mdps.policy_system import DIRECT_AT_MOST, PolicySystem
from ethogram.models.mdps.tabular import Tabular
from ethogram.models.mdps.transitions import UNROLL_AT_MOST, unrolled_sum

__all__ = [
    "Solved",
    "Status",
    "action_values",
    "greedy_max",
    "require_converged",
    "soft_max",
    "solve_bellman",
]

MAX_FORCING_TERM = 0.05
"""Linear systems are solved to this relative residual, and to its product with a residual below one: the next residual
is of the order of the square of this one anyway."""

MIN_FORCING_TERM = 0.1
"""And never to less than this share of the residual that ends the iteration."""

MAX_POLICY_ERROR = 0.02
"""Rounding errors of values beyond which soft policies, which are their differences, have not converged: values differ
by 2e4 in single precision."""

NEWTON_STEPS_BEFORE_SWEEPS = 5
"""Newton steps without sweeps; after that their number doubles with each step."""


class Status(enum.IntEnum):
    """How a solver ended; the values have converged up to `ROUNDED`."""

    CONVERGED = 0
    ROUNDED = 1
    TOO_FEW_STEPS = 2
    IMPRECISE = 3
    NOT_FINITE = 4


MEANING = {
    Status.CONVERGED: ("the values are within tol of the fixed point", ""),
    Status.ROUNDED: (
        "the values are at the limit of rounding, which is wider than tol",
        "set jax_enable_x64 for more digits",
    ),
    Status.TOO_FEW_STEPS: ("the residual is still above tol", "call {name} with a larger max_steps"),
    Status.IMPRECISE: (
        "values differ so much that rounding changes them by over 0.02",
        "set jax_enable_x64: single precision does not hold values that differ by over 2e4",
    ),
    Status.NOT_FINITE: ("values are not finite", "check the scale of the reward"),
}
"""What each status says, and what to do."""


class Solved(NamedTuple):
    """Values are ``level + relative``, (state,)."""

    level: Array
    relative: Array
    residual: Array
    steps: Array
    status: Array


class Backup(NamedTuple):
    """One backup of values: its policy (action, state) and the change (state,) of values.

    `middle` is that of the changes. The iteration ends at a residual of `target`, or where it no longer falls at
    `rounding`, its rounding error; `within_tol` is the target without regard to rounding.
    """

    policy: Array
    change: Array
    middle: Array
    residual: Array
    target: Array
    within_tol: Array
    rounding: Array


def action_values(table: Tabular, reward: Array, level: Any, relative: Array) -> tuple[Array, Array]:
    """Q (action, state), first without the discounted level, then whole."""
    after = table.transitions.expected_next(relative) + level * table.transitions.row_sum_error()
    values = table.where_available(reward + table.discount * after, -jnp.inf)
    return values, values + table.discount * level


def solve_bellman(
    table: Tabular, reward: Array, initial: Array | None, tol: Any, max_steps: Any, *, temperature: int
) -> Solved:
    """Values of one agent for rewards (action or 1, state), from `initial` (state,) or from a constant.

    Linear systems are factored up to 128 states, and else solved by BiCGSTAB to tightening tolerances. Under `jax.vmap`
    agents are then solved one after the other: a batch of loops runs until its slowest is through, and gathers worse;
    small factored systems do not mind.

    Parameters
    ----------
    tol : bound of the residual times discount / (1 - discount), relative to the largest value.
    temperature : 1 for the soft backup, 0 for the greedy one.
    """
    if reward.shape[-1] <= DIRECT_AT_MOST:
        return _iterate(table, reward, initial, tol, max_steps, temperature=temperature)
    return _ONE_BY_ONE[temperature](table, reward, initial, tol, max_steps)


def _iterate(
    table: Tabular, reward: Array, initial: Array | None, tol: Any, max_steps: Any, *, temperature: int
) -> Solved:
    direct, eps = reward.shape[-1] <= DIRECT_AT_MOST, jnp.finfo(reward.dtype).eps
    discount, one_minus_discount = table.discount, table.one_minus_discount
    ratio = discount / one_minus_discount
    row_sum_error = table.transitions.row_sum_error()
    available = table.where_available(reward, 0)
    largest_reward = jnp.max(jnp.abs(available))
    # Differences of values matter by the temperature, or, where it is zero, by the size of rewards.
    unit = temperature if temperature else largest_reward

    def backup(level, relative, size):
        # Less the value of the state itself, which an absorbing state subtracts exactly: rounding errors of its own
        # value would be multiplied by 1 / (1 - discount).
        after = table.transitions.expected_next(relative) + level * row_sum_error
        rise = reward + ((after - relative[None]) - one_minus_discount * after)
        best, policy = (soft_max if temperature else greedy_max)(table.where_available(rise, -jnp.inf))[:2]
        change = best - one_minus_discount * level
        high, low = jnp.max(change), jnp.min(change)
        whole = jnp.abs(level) + size
        goals = tol * jnp.maximum(whole, temperature), 8 * eps * whole
        within_tol, within_eps = (
            jnp.where(ratio > 0, x / jnp.where(ratio > 0, ratio, 1), jnp.inf) for x in goals
        )
        return Backup(
            policy,
            change,
            0.5 * (high + low),
            jnp.maximum(high, -low),
            jnp.maximum(within_tol, within_eps),
            within_tol,
            8 * eps * (size + largest_reward),
        )

    def finished(now, before):
        """Whether the residual is small enough, or down to rounding and no longer falling."""
        return (now.residual <= now.target) | ((now.residual <= now.rounding) & (now.residual > 0.5 * before))

    def unfinished(state):
        _, _, now, before, steps = state
        return ~finished(now, before) & (steps < max_steps) & jnp.isfinite(now.residual)

    def newton(now):
        """Change of the values, and whether its linear system was solved."""
        system = PolicySystem.of(table, now.policy)
        if direct:
            change = system.solve_direct(now.change)
            return change, jnp.all(jnp.isfinite(change[1]))
        least = MIN_FORCING_TERM * jnp.maximum(now.target, now.rounding)
        return system.solve_krylov(now.change, MAX_FORCING_TERM * jnp.minimum(1, now.residual / unit), least)

    def step(state):
        """A Newton step, and sweeps after it where it failed or ended far off."""
        level, relative, before, _, steps = state
        change, solved = newton(before)
        change = jax.tree.map(lambda x: jnp.where(solved, x, 0), change)
        # A sweep propagates values one state further, and Newton's own steps hardly more: where there are many,
        # agents wander from one good place to the next, and sweeps save most of the steps.
        doubled = 2.0 ** (steps - NEWTON_STEPS_BEFORE_SWEEPS)
        most = jnp.where(solved, jnp.minimum(doubled, 1 / one_minus_discount), 4 / one_minus_discount)
        enough = jnp.where(solved, temperature, 0.1 * before.residual)
        # Residuals that a rough solution leaves have no common middle to shift by.
        shift = jnp.where(solved, 0, ratio)

        def more(state):
            _, _, now, _, count = state
            return (count == 0) | ((count <= most) & (now.residual > jnp.maximum(enough, now.target)))

        def move(state):
            level, relative, _, (up, rest), count = state
            level, relative, size = _centred(level + up, relative + rest)
            now = backup(level, relative, size)
            return level, relative, now, (shift * now.middle, now.change), count + 1

        level, relative, now, _, _ = lax.while_loop(more, move, (level, relative, before, change, 0))
        return level, relative, now, before.residual, steps + 1

    if initial is None:
        level = _first_level(table.mask, available, one_minus_discount, len(row_sum_error), temperature)
        relative, size = jnp.zeros_like(reward[0]), jnp.zeros_like(level)
    else:
        level, relative, size = _centred(jnp.zeros((), reward.dtype), initial)
    far = jnp.full((), jnp.inf, reward.dtype)
    start = (level, relative, backup(level, relative, size), far, jnp.zeros((), int))
    level, relative, last, _, steps = lax.while_loop(unfinished, step, start)
    return Solved(level, relative + last.change, last.residual, steps, _status(last, temperature))


def _status(last: Backup, temperature: int) -> Array:
    """The `Status` of values whose last backup this is."""
    imprecise = last.rounding > MAX_POLICY_ERROR if temperature else False
    cases = [
        (~jnp.isfinite(last.residual), Status.NOT_FINITE),
        (last.residual > jnp.maximum(last.target, last.rounding), Status.TOO_FEW_STEPS),
        (imprecise, Status.IMPRECISE),
        (jnp.maximum(last.residual, last.rounding) > last.within_tol, Status.ROUNDED),
    ]
    status = jnp.full((), Status.CONVERGED, int)
    for case, value in reversed(cases):
        status = jnp.where(case, int(value), status)
    return status


_ONE_BY_ONE = [sequential_vmap(functools.partial(_iterate, temperature=one)) for one in (0, 1)]


def require_converged(name: str, solution: Any) -> Any:
    """The solution of `soft_values` or `optimal_values`; RuntimeError unless it has converged, where that is known."""
    if is_concrete(solution.status) and not np.all(solution.converged):
        worst = Status(int(np.max(solution.status)))
        sentence, advice = MEANING[worst]
        raise RuntimeError(
            f"{name} has not converged after {np.max(solution.steps)} steps (residual "
            f"{np.max(solution.residual):.3g}): {sentence}; {advice.format(name=name)}"
        )
    return solution


def _centred(level, relative):
    """Values with their middle in the level, and the most that is left beside it."""
    high, low = jnp.max(relative), jnp.min(relative)
    middle = 0.5 * (high + low)
    return level + middle, relative - middle, 0.5 * (high - low)


def _first_level(mask, available, one_minus_discount, num_actions, temperature):
    """The value of everything where every state is worth the mean reward and has the mean entropy."""
    if mask is None:
        return (jnp.mean(available) + temperature * math.log(num_actions)) / one_minus_discount
    choices = jnp.sum(mask, 1)
    entropy = jnp.mean(jnp.log(choices.astype(available.dtype)))
    return (jnp.sum(available) / jnp.sum(choices) + temperature * entropy) / one_minus_discount


def soft_max(values: Array) -> tuple[Array, Array, Array]:
    """Log of the summed exponentials over actions of (action, state); the shares of actions, and their logs.

    Shares are worked out from differences, and sum to one however large the values are.
    """
    few = len(values) <= UNROLL_AT_MOST
    top = lax.stop_gradient(functools.reduce(jnp.maximum, values) if few else jnp.max(values, axis=0))
    below = values - top[None]
    weights = jnp.exp(below)
    total = unrolled_sum(lambda i: weights[i], len(values))
    rest = jnp.log(total)
    return top + rest, weights / total[None], below - rest[None]


def greedy_max(values: Array) -> tuple[Array, Array]:
    """Largest of the values (action, state), and the policy that takes the first of the best actions."""
    best = jnp.argmax(values, axis=0)
    policy = (jnp.arange(len(values))[:, None] == best[None]).astype(values.dtype)
    return jnp.max(values, axis=0), policy
