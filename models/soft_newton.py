"""The way to soft values: Newton's method, or sweeps, for one agent and rewards (action or 1, state).

Values are kept as a level and what states differ from it: with a discount near one the level is large, in single
precision too large for the differences beside it, and policies depend on those alone.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_batching import sequential_vmap

from ethogram.models.policy_chain import WRITTEN_OUT, PolicySystem, add_up

__all__ = ["Controls", "Solved", "World", "action_values", "climb", "soft_max"]

LOOSEST = 0.05
"""Linear systems are solved to this residual, and to its product with the square of a residual below one."""


class World(NamedTuple):
    transitions: Any
    discount: Any
    mask: Any


class Controls(NamedTuple):
    """What steers the way to the solution, which does not depend on it."""

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
    """One backup: what it changes, and the residuals that are wanted and that rounding allows."""

    policy: Array
    change: Array
    middle: Array
    residual: Array
    wanted: Array
    rounding: Array


def action_values(world, reward, level, relative):
    """Q (action, state), first less what the level is worth after a step, then whole."""
    after = world.transitions.ahead(relative) + level * world.transitions.excess()
    values = reward + world.discount * after
    if world.mask is not None:
        values = jnp.where(world.mask, values, -jnp.inf)
    return values, values + world.discount * level


def climb(method: str, world: World, reward: Array, controls: Controls) -> Solved:
    """Values by a method; where it is mapped, one after the other unless systems are factored.

    A batch of loops runs until its slowest is through, and gathers worse; small factored systems do not mind.
    """
    return (
        _climb(world, reward, controls)
        if method == "direct"
        else _ONE_BY_ONE[method](world, reward, controls)
    )


def _climb(world, reward, controls, method="direct"):
    interest, initial, tol, max_steps = controls
    discount, eps = world.discount, jnp.finfo(reward.dtype).eps
    lift = discount / interest
    excess = world.transitions.excess()
    largest_reward = jnp.max(jnp.abs(reward))

    def backup(level, relative, size):
        after = action_values(world, reward, level, relative)[0]
        best, policy, _ = soft_max(after)
        change = best - relative - interest * level
        high, low = jnp.max(change), jnp.min(change)
        wanted = jnp.maximum(tol * jnp.maximum(jnp.abs(level) + size, 1), 8 * eps * (jnp.abs(level) + size))
        return _Backup(
            policy,
            change,
            0.5 * (high + low),
            jnp.maximum(high, -low),
            jnp.where(lift > 0, wanted / jnp.where(lift > 0, lift, 1), jnp.inf),
            8 * eps * (size + largest_reward),
        )

    def finished(now, before):
        """Whether the residual is small enough, or down to rounding and no longer falling."""
        return (now.residual <= now.wanted) | ((now.residual <= now.rounding) & (now.residual > 0.5 * before))

    def unfinished(state):
        _, _, now, before, steps = state
        return ~finished(now, before) & (steps < max_steps) & jnp.isfinite(now.residual)

    def newton(now):
        """Change of the values, and whether its linear system was solved."""
        along = add_up(lambda a: now.policy[a] * excess[a], len(excess))
        system = PolicySystem(world.transitions.chain(now.policy), discount, interest, along)
        if method == "direct":
            change = system.factored(now.change)
            return change, jnp.all(jnp.isfinite(change[1]))
        least = 0.1 * jnp.maximum(now.wanted, now.rounding) / now.residual
        inner = LOOSEST * jnp.minimum(1 / now.residual, jnp.maximum(now.residual, least))
        return system.roughly(now.change, inner)

    def sweep(now):
        return lift * now.middle, now.change

    def step(state):
        """A Newton step, and sweeps after it where it failed or ended far off; or a sweep."""
        level, relative, before, _, steps = state
        if method == "value_iteration":
            change, most, enough = sweep(before), 0, 0
        else:
            change, solved = newton(before)
            change = jax.tree.map(lambda x: jnp.where(solved, x, 0), change)
            # A sweep carries news one state further, and Newton's own steps hardly more: where there are many,
            # agents wander from one good place to the next, and sweeps save most of the steps.
            most = jnp.where(solved, jnp.minimum(2.0 ** (steps - 2), 1 / interest), 4 / interest)
            enough = jnp.where(solved, 1, 0.1 * before.residual)

        def more(state):
            _, _, now, _, count = state
            return (count == 0) | ((count <= most) & (now.residual > jnp.maximum(enough, now.wanted)))

        def move(state):
            level, relative, _, (up, rest), count = state
            level, relative, size = _centred(level + up, relative + rest)
            now = backup(level, relative, size)
            return level, relative, now, sweep(now), count + 1

        level, relative, now, _, _ = lax.while_loop(more, move, (level, relative, before, change, 0))
        return level, relative, now, before.residual, steps + 1

    if initial is None:
        level, relative = _first_level(world.mask, reward, interest, len(excess)), jnp.zeros_like(reward[0])
        size = jnp.zeros_like(level)
    else:
        level, relative, size = _centred(jnp.zeros((), reward.dtype), initial.astype(reward.dtype))
    far = jnp.full((), jnp.inf, reward.dtype)
    start = (level, relative, backup(level, relative, size), far, jnp.zeros((), int))
    level, relative, last, _, steps = lax.while_loop(unfinished, step, start)
    reached = last.residual <= jnp.maximum(last.wanted, last.rounding)
    return Solved(level, relative + last.change, last.residual, steps, reached)


_ONE_BY_ONE = {
    method: sequential_vmap(functools.partial(_climb, method=method))
    for method in ("newton", "value_iteration")
}


def _centred(level, relative):
    """Values with their middle in the level, and the most that is left beside it."""
    high, low = jnp.max(relative), jnp.min(relative)
    middle = 0.5 * (high + low)
    return level + middle, relative - middle, 0.5 * (high - low)


def _first_level(mask, reward, interest, num_actions):
    """The value of everything where every state is worth the mean reward and has the mean entropy."""
    if mask is None:
        return (jnp.mean(reward) + np.log(num_actions)) / interest
    choices = jnp.sum(mask, 0)
    mean = jnp.sum(jnp.where(mask, reward, 0)) / jnp.sum(choices)
    return (mean + jnp.mean(jnp.log(choices.astype(reward.dtype)))) / interest


def soft_max(values):
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
