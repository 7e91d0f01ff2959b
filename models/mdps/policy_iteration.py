r"""Policy iteration for discounted values, soft or greedy: Newton's method for the residual T V - V of one backup.

.. math:: V \leftarrow V + (I - \gamma P_\pi)^{-1} (T V - V)

with the policy of V: the soft one at temperature 1 (soft policy iteration), the greedy one at temperature 0 (Howard).
Sweeps in between propagate values further, as in modified policy iteration.

Values are kept as a level and the states' differences from it: with a discount near one the level is large, in single
precision too large for the differences beside it, and policies depend on the differences alone.

Howard (1960), "Dynamic programming and Markov processes"; Puterman and Shin (1978), "Modified policy iteration
algorithms for discounted Markov decision problems"; both in Puterman (1994), "Markov decision processes", sections 6.4
and 6.5. Rust (1987), "Optimal replacement of GMC bus engines", whose polyalgorithm is the soft case; shifts of sweeps
are MacQueen's (1966).
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_batching import sequential_vmap

from ethogram.models.mdps.policy_system import WRITTEN_OUT, PolicySystem, add_up

__all__ = ["Controls", "Environment", "Solved", "action_values", "greedy_max", "iterate", "soft_max"]

LOOSEST = 0.05
"""Linear systems are solved to this relative residual, and to its product with a residual below one: the next residual
is of the order of the square of this one anyway."""

ENOUGH = 0.1
"""And never to less than this share of the residual that ends the iteration."""

ROUNDED_AT_MOST = 0.02
"""Bound of the rounding errors of values beyond which soft policies, which are their differences, have not converged:
values differ by 2e4 in single precision."""

FEW_STEPS = 5
"""Newton steps without sweeps; after that their number doubles with each step."""


class Environment(NamedTuple):
    transitions: Any
    discount: Any
    mask: Any


class Controls(NamedTuple):
    """What steers the iteration, and does not change the solution."""

    interest: Any
    initial: Any
    tol: Any
    max_steps: Any


class Solved(NamedTuple):
    """Values are ``level + relative``, (state,)."""

    level: Array
    relative: Array
    residual: Array
    steps: Array
    converged: Array


class _Backup(NamedTuple):
    """One backup: its policy and change, the residual, the target for it, and what rounding allows."""

    policy: Array
    change: Array
    middle: Array
    residual: Array
    target: Array
    rounding: Array


def action_values(
    environment: Environment, reward: Array, level: Any, relative: Array
) -> tuple[Array, Array]:
    """Q (action, state), first without the discounted level, then whole."""
    after = environment.transitions.ahead(relative) + level * environment.transitions.excess()
    values = reward + environment.discount * after
    if environment.mask is not None:
        values = jnp.where(environment.mask, values, -jnp.inf)
    return values, values + environment.discount * level


def iterate(
    method: str, environment: Environment, reward: Array, controls: Controls, temperature: int = 1
) -> Solved:
    """Values of one agent for rewards (action or 1, state), by a method.

    Under `jax.vmap` agents are solved one after the other unless systems are factored: a batch of loops runs until its
    slowest is through, and gathers worse; small factored systems do not mind.

    Parameters
    ----------
    method : ``"direct"``, Newton steps by factored systems; ``"newton"``, by BiCGSTAB; or ``"value_iteration"``.
    temperature : 1 for the soft backup, 0 for the greedy one.
    """
    solve = _iterate if method == "direct" else _ONE_BY_ONE[method, temperature]
    rest = (method, temperature) if method == "direct" else ()
    return solve(environment, reward, controls, *rest)


def _iterate(
    environment: Environment, reward: Array, controls: Controls, method: str, temperature: int
) -> Solved:
    interest, initial, tol, max_steps = controls
    discount, eps = environment.discount, jnp.finfo(reward.dtype).eps
    lift = discount / interest
    excess = environment.transitions.excess()
    available = reward if environment.mask is None else jnp.where(environment.mask, reward, 0)
    largest_reward = jnp.max(jnp.abs(available))
    # Differences of values matter by the temperature, or, where it is zero, by the size of rewards.
    unit = temperature if temperature else largest_reward

    def backup(level, relative, size):
        # Less the value of the state itself, which an absorbing state subtracts exactly: rounding errors of its own
        # value would be multiplied by 1 / (1 - discount).
        after = environment.transitions.ahead(relative) + level * excess
        rise = reward + ((after - relative[None]) - interest * after)
        rise = rise if environment.mask is None else jnp.where(environment.mask, rise, -jnp.inf)
        best, policy = (soft_max if temperature else greedy_max)(rise)[:2]
        change = best - interest * level
        high, low = jnp.max(change), jnp.min(change)
        whole = jnp.abs(level) + size
        target = jnp.maximum(tol * jnp.maximum(whole, temperature), 8 * eps * whole)
        return _Backup(
            policy,
            change,
            0.5 * (high + low),
            jnp.maximum(high, -low),
            jnp.where(lift > 0, target / jnp.where(lift > 0, lift, 1), jnp.inf),
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
        along = add_up(lambda a: now.policy[a] * excess[a], len(excess))
        system = PolicySystem(environment.transitions.chain(now.policy), discount, interest, along)
        if method == "direct":
            change = system.factored(now.change)
            return change, jnp.all(jnp.isfinite(change[1]))
        enough = ENOUGH * jnp.maximum(now.target, now.rounding)
        return system.roughly(now.change, LOOSEST * jnp.minimum(1, now.residual / unit), enough)

    def step(state):
        """A Newton step, and sweeps after it where it failed or ended far off; or a sweep."""
        level, relative, before, _, steps = state
        if method == "value_iteration":
            change, most, enough, shift = (lift * before.middle, before.change), 0, 0, 1
        else:
            change, solved = newton(before)
            change = jax.tree.map(lambda x: jnp.where(solved, x, 0), change)
            # A sweep propagates values one state further, and Newton's own steps hardly more: where there are many,
            # agents wander from one good place to the next, and sweeps save most of the steps.
            most = jnp.where(solved, jnp.minimum(2.0 ** (steps - FEW_STEPS), 1 / interest), 4 / interest)
            enough = jnp.where(solved, temperature, 0.1 * before.residual)
            # Residuals that a rough solution leaves have no common middle to shift by.
            shift = jnp.where(solved, 0, 1)

        def more(state):
            _, _, now, _, count = state
            return (count == 0) | ((count <= most) & (now.residual > jnp.maximum(enough, now.target)))

        def move(state):
            level, relative, _, (up, rest), count = state
            level, relative, size = _centred(level + up, relative + rest)
            now = backup(level, relative, size)
            return level, relative, now, (shift * lift * now.middle, now.change), count + 1

        level, relative, now, _, _ = lax.while_loop(more, move, (level, relative, before, change, 0))
        return level, relative, now, before.residual, steps + 1

    if initial is None:
        level = _first_level(environment.mask, available, interest, len(excess), temperature)
        relative, size = jnp.zeros_like(reward[0]), jnp.zeros_like(level)
    else:
        level, relative, size = _centred(jnp.zeros((), reward.dtype), initial.astype(reward.dtype))
    far = jnp.full((), jnp.inf, reward.dtype)
    start = (level, relative, backup(level, relative, size), far, jnp.zeros((), int))
    level, relative, last, _, steps = lax.while_loop(unfinished, step, start)
    reached = last.residual <= jnp.maximum(last.target, last.rounding)
    if temperature:
        reached &= last.rounding <= ROUNDED_AT_MOST
    return Solved(level, relative + last.change, last.residual, steps, reached)


_ONE_BY_ONE = {
    (method, temperature): sequential_vmap(
        functools.partial(_iterate, method=method, temperature=temperature)
    )
    for method in ("newton", "value_iteration")
    for temperature in (0, 1)
}


def _centred(level, relative):
    """Values with their middle in the level, and the most that is left beside it."""
    high, low = jnp.max(relative), jnp.min(relative)
    middle = 0.5 * (high + low)
    return level + middle, relative - middle, 0.5 * (high - low)


def _first_level(mask, available, interest, num_actions, temperature):
    """The value of everything where every state is worth the mean reward and has the mean entropy."""
    if mask is None:
        return (jnp.mean(available) + temperature * math.log(num_actions)) / interest
    choices = jnp.sum(mask, 0)
    entropy = jnp.mean(jnp.log(choices.astype(available.dtype)))
    return (jnp.sum(available) / jnp.sum(choices) + temperature * entropy) / interest


def soft_max(values: Array) -> tuple[Array, Array, Array]:
    """Log of the summed exponentials over actions of (action, state); the shares of actions, and their logs.

    Shares are worked out from differences, and sum to one however large the values are.
    """
    few = len(values) <= WRITTEN_OUT
    top = lax.stop_gradient(functools.reduce(jnp.maximum, values) if few else jnp.max(values, axis=0))
    below = values - top[None]
    weights = jnp.exp(below)
    total = add_up(lambda i: weights[i], len(values))
    rest = jnp.log(total)
    return top + rest, weights / total[None], below - rest[None]


def greedy_max(values: Array) -> tuple[Array, Array]:
    """Largest of the values (action, state), and the policy that takes the first of the best actions."""
    best = jnp.argmax(values, axis=0)
    policy = (jnp.arange(len(values))[:, None] == best[None]).astype(values.dtype)
    return jnp.max(values, axis=0), policy
