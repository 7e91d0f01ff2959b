r"""The best that can be had in a world without end, and which actions get it.

.. math:: Q(s, a) = r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s'), \quad V(s) = \max_a Q(s, a)

Howard's policy iteration is Newton's method for the residual T V - V of one backup: it evaluates the policy that is
greedy for V, :math:`V \leftarrow V + (I - \gamma P_\pi)^{-1} (T V - V)`. Sweeps in between carry news of better
actions further, as in modified policy iteration (Puterman and Shin 1978).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.blocks.conjugate_block import Reals
from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP, read_reward
from ethogram.models.policy_chain import PolicySystem, add_up
from ethogram.models.policy_values import (
    DIRECT_AT_MOST,
    of_type,
    policy_values,
    read_interest,
    read_world,
    require_tolerance,
)
from ethogram.models.soft_newton import World, action_values

__all__ = ["OptimalSolution", "optimal_values", "policy_values"]

LOOSEST = 0.05
"""Linear systems are solved to this relative residual, or more closely."""


class OptimalSolution(NamedTuple):
    """An agent that gets the most there is.

    Attributes
    ----------
    values : V(s), (..., state), the reward of the state included.
    action_values : Q(s, a), (..., state, action); -inf where an action is not available.
    actions : (..., state) integers, the first of the best.
    residual : largest |T V - V| of what the last step began with, (...).
    steps : policies that were evaluated, (...).
    converged : whether the values are as near to the fixed point as was asked, or as rounding lets them, (...).
    """

    values: Float[Array, "*batch state"]
    action_values: Float[Array, "*batch state action"]
    actions: Int[Array, "*batch state"]
    residual: Float[Array, "*batch"]
    steps: Int[Array, "*batch"]
    converged: Bool[Array, "*batch"]

    @property
    def policy(self) -> Float[Array, "*batch state action"]:
        """Probabilities (..., state, action), one for the action that is taken and zero for others."""
        num_actions = self.action_values.shape[-1]
        return jax.nn.one_hot(self.actions, num_actions, dtype=self.values.dtype)


def optimal_values(
    mdp: MDP, reward: Reals, *, tol: float | int = 1e-12, max_steps: int = 1000
) -> OptimalSolution:
    r"""Optimal values of a world without end, and the first of the best actions in every state.

    Steps end where :math:`|T V - V| \gamma / (1 - \gamma)`, which bounds the error of V, is at most `tol` times the
    largest |V|, or at what rounding lets be known. Values that are not there after `max_steps`, or are NaN, have
    ``converged`` False. Multiplying the rewards by a positive number multiplies the values, and changes no action.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1).
    reward : r (..., state), or (..., state, action): one of the latter where the last two axes are (S, A), be S = A
        or not. Batches are solved one after the other above 128 states.
    tol : relative error of the values, above 0. Actions whose values are nearer to the best than that, or than
        rounding is in worlds that are worth so much, count as equal to it.
    max_steps : most policies that are evaluated, up to 128 states by factored systems, above that by BiCGSTAB.

    Raises
    ------
    TypeError, ValueError
        `mdp` is no MDP, or its discount is 1; `reward` is not of finite floats or does not fit; `tol` is no number
        above 0, `max_steps` no integer above 0.

    References
    ----------
    Howard (1960), "Dynamic programming and Markov processes"; Puterman and Shin (1978), "Modified policy iteration
    algorithms for discounted Markov decision problems"; Puterman (1994), "Markov decision processes", section 6.4.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> best = optimal_values(corridor, [0.0, 0.0, 1.0])
    >>> print(best.values, best.actions)
    [0.5 1.  2. ] [1 1 1]
    """
    reward, batch = read_reward(mdp, reward)
    interest = read_interest(mdp)
    require_tolerance(tol)
    whole_number("max_steps", max_steps, 1)
    world, dtype = read_world(mdp, reward)
    return _solve(world, jnp.swapaxes(reward, -2, -1).astype(dtype), interest, tol, max_steps, batch)


class _Backup(NamedTuple):
    """One backup of values: the greedy policy (action, state), what it changes, and residuals."""

    policy: Array
    change: Array
    residual: Array
    wanted: Array
    rounding: Array


@functools.partial(jax.jit, static_argnames="batch")
def _solve(world, reward, interest, tol, max_steps, batch):
    world, direct = of_type(world, reward.dtype), reward.shape[-1] <= DIRECT_AT_MOST
    interest = jnp.asarray(interest, reward.dtype)

    def solve(reward):
        return _iterate(world, reward, interest, tol, max_steps, direct)

    if not batch:
        return solve(reward)
    rows = reward.reshape(-1, *reward.shape[-2:])
    # A batch of loops runs until its slowest is through, and gathers worse; small factored systems do not mind.
    found = jax.vmap(solve)(rows) if direct else lax.map(solve, rows)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), found)


def _iterate(
    world: World, reward: Array, interest: Array, tol: Any, max_steps: Any, direct: bool
) -> OptimalSolution:
    """Policy iteration for rewards (action or 1, state); values are a level and what states differ from it."""
    discount, eps = world.discount, jnp.finfo(reward.dtype).eps
    excess, lift = world.transitions.excess(), world.discount / interest
    available = reward if world.mask is None else jnp.where(world.mask, reward, 0)
    largest = jnp.max(jnp.abs(available))

    def backup(level, relative):
        after = action_values(world, reward, level, relative)[0]
        best = jnp.argmax(after, axis=0)
        policy = (jnp.arange(len(after))[:, None] == best[None]).astype(after.dtype)
        change = jnp.max(after, axis=0) - relative - interest * level
        size = jnp.max(jnp.abs(relative))
        whole = jnp.abs(level) + size
        wanted = jnp.maximum(tol, 8 * eps) * whole
        wanted = jnp.where(lift > 0, wanted / jnp.where(lift > 0, lift, 1), jnp.inf)
        return _Backup(policy, change, jnp.max(jnp.abs(change)), wanted, 8 * eps * (size + largest))

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
        if direct:
            change = system.factored(now.change)
            return change, jnp.all(jnp.isfinite(change[1]))
        far = now.residual / largest
        least = 0.1 * jnp.maximum(now.wanted, now.rounding) / now.residual
        return system.roughly(now.change, LOOSEST * jnp.minimum(1 / far, jnp.maximum(far, least)))

    def sweep(now):
        high, low = jnp.max(now.change), jnp.min(now.change)
        return lift * 0.5 * (high + low), now.change

    def step(state):
        """A Newton step, and sweeps after it: more of them in later steps, and where the step failed."""
        level, relative, before, _, steps = state
        change, solved = newton(before)
        change = jax.tree.map(lambda x: jnp.where(solved, x, 0), change)
        most = jnp.where(solved, jnp.minimum(2.0 ** (steps - 2), 1 / interest), 4 / interest)
        enough = jnp.where(solved, 0, 0.1 * before.residual)

        def more(state):
            _, _, now, _, count = state
            return (count == 0) | ((count <= most) & (now.residual > jnp.maximum(enough, now.wanted)))

        def move(state):
            level, relative, _, (up, rest), count = state
            relative = relative + rest
            middle = 0.5 * (jnp.max(relative) + jnp.min(relative))
            level, relative = level + up + middle, relative - middle
            now = backup(level, relative)
            return level, relative, now, sweep(now), count + 1

        level, relative, now, _, _ = lax.while_loop(more, move, (level, relative, before, change, 0))
        return level, relative, now, before.residual, steps + 1

    level, relative = jnp.mean(available) / interest, jnp.zeros_like(reward[0])
    far = jnp.full((), jnp.inf, reward.dtype)
    start = (level, relative, backup(level, relative), far, jnp.zeros((), int))
    level, relative, last, _, steps = lax.while_loop(unfinished, step, start)
    reached = last.residual <= jnp.maximum(last.wanted, last.rounding)
    return _agent(world, reward, tol, (level, relative + last.change, last.residual, steps, reached))


def _agent(world, reward, tol, solved):
    level, relative, residual, steps, reached = solved
    after, whole = action_values(world, reward, level, relative)
    best = jnp.max(after, axis=0)
    size = jnp.max(jnp.abs(relative)) + jnp.max(jnp.where(jnp.isfinite(after), jnp.abs(reward), 0))
    slack = jnp.maximum(tol, 64 * jnp.finfo(after.dtype).eps) * size
    actions = jnp.argmax(after >= (best - slack)[None], axis=0)
    return OptimalSolution(jnp.max(whole, axis=0), whole.T, actions, residual, steps, reached)
