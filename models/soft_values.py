r"""Values of an agent that is soft about a discounted return without end, their policy, and derivatives of both.

.. math:: Q(s, a) = r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s'), \quad
          V(s) = \ln \sum_a \exp Q(s, a), \quad \pi(a \mid s) = \exp(Q(s, a) - V(s))

Newton's method for the residual T V - V of one backup evaluates the policy of V:
:math:`V \leftarrow V + (I - \gamma P_\pi)^{-1} (T V - V)`. T is convex and monotone, so that it converges from
everywhere, and from below after one step (soft policy iteration). Derivatives are those of the fixed point,
:math:`dV = (I - \gamma P_\pi)^{-1} \sum_a \pi(a \mid \cdot)\, dQ(\cdot, a)` with V held in dQ.

Values are kept as a level and what states differ from it: with a discount near one the level is large and known to a
few digits in single precision, and policies ask for differences only.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import sequential_vmap
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.blocks.conjugate_block import Reals, common_batch, is_concrete, read_reals
from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP
from ethogram.models.policy_chain import PolicySystem, add_up

__all__ = ["SoftSolution", "soft_values"]

METHODS = {"newton": 100, "direct": 100, "value_iteration": 1_000_000}
"""Ways to solve, and the most steps each takes unless told."""

DIRECT_AT_MOST = 128
LOOSEST = 0.05
"""Linear systems are solved to this residual, and to its product with the square of a residual below one."""


class SoftSolution(NamedTuple):
    """A soft-optimal agent without a horizon.

    Attributes
    ----------
    values : V(s), (..., state), the reward of the state included.
    action_values : Q(s, a), (..., state, action); -inf where an action is not available.
    log_policy : ln pi(a | s), (..., state, action); -inf where an action is not available.
    residual : largest |T V - V| of what the last step began with, (...).
    steps : Newton steps or sweeps that were taken, (...).
    converged : whether the values are as near to the fixed point as was asked, or as rounding lets them, (...).
    """

    values: Float[Array, "*batch state"]
    action_values: Float[Array, "*batch state action"]
    log_policy: Float[Array, "*batch state action"]
    residual: Float[Array, "*batch"]
    steps: Int[Array, "*batch"]
    converged: Bool[Array, "*batch"]

    @property
    def policy(self) -> Float[Array, "*batch state action"]:
        """Probabilities pi(a | s), (..., state, action)."""
        return jnp.exp(self.log_policy)


def soft_values(
    mdp: MDP,
    reward: Reals,
    *,
    method: str = "newton",
    tol: float | int = 1e-12,
    max_steps: int | None = None,
    initial: Reals | None = None,
) -> SoftSolution:
    r"""Soft-optimal values and policy of a world without end.

    Steps end where :math:`|T V - V| \gamma / (1 - \gamma)`, which bounds the error of V, is at most `tol` times the
    largest |V| (or one, if that is more), or at what rounding lets be known. Values that are not there after
    `max_steps`, or are NaN, have ``converged`` False.

    The result can be differentiated with respect to `reward`, the discount and the probabilities of `mdp`, forward
    and in reverse, again and again, and mapped by `jax.vmap`.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1).
    reward : r (..., state), or (..., state, action): one of the latter where the last two axes are (S, A), be S = A
        or not. (..., state, 1) is a reward of states always.
    method : ``"newton"``, whose linear systems are factored up to 128 states, and above that solved by BiCGSTAB, more
        and more closely, with plain sweeps where it stalls; ``"direct"``, which factors always; or
        ``"value_iteration"``, backups that are each shifted to the middle of MacQueen's bounds.
    tol : relative error of the values, and relative residual of the linear systems behind derivatives; above 0.
    max_steps : most Newton steps (100) or sweeps (a million).
    initial : values (..., state) to start from; without them a constant. It has no derivative.

    Raises
    ------
    TypeError, ValueError
        `mdp` is no MDP, or its discount is 1, which takes a horizon; `reward` or `initial` is not of finite floats or
        does not fit; `method` is none, `tol` no number above 0, `max_steps` no integer above 0.

    References
    ----------
    Ziebart, Bagnell, Dey (2010), "Modeling interaction via the principle of maximum causal entropy"; Rust (1987),
    "Optimal replacement of GMC bus engines", whose polyalgorithm is Newton's method for the same equation; MacQueen
    (1966), "A modified dynamic programming method for Markovian decision problems".

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> solution = soft_values(corridor, [0.0, 0.0, 1.0])
    >>> print(solution.policy[:, 1].round(2), bool(solution.converged))
    [0.71 0.76 0.78] True
    """
    if not isinstance(mdp, MDP):
        raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
    if is_concrete(mdp.discount) and not mdp.discount < 1:
        raise ValueError(
            f"mdp.discount is {mdp.discount}: without a horizon it must be below 1; soft_policy_by_step has a horizon"
        )
    if method not in METHODS:
        raise ValueError(f"method must be one of {tuple(METHODS)}, not {method!r}")
    if isinstance(tol, bool) or not isinstance(tol, float | int | np.floating):
        raise TypeError(f"tol must be a number, not {tol!r}")
    if not 0 < tol < np.inf:
        raise ValueError(f"tol must be a number above 0, not {tol!r}")
    max_steps = METHODS[method] if max_steps is None else max_steps
    whole_number("max_steps", max_steps, 1)
    (reward,) = read_reals(reward=reward)
    reward, batch = _with_state_last(mdp, reward)
    if initial is not None:
        (initial,) = read_reals(initial=initial)
        mdp._fits("initial", initial, (mdp.num_states,))
        came = f"reward has batch axes {batch}, initial {initial.shape[:-1]}"
        batch = common_batch(came, batch, initial.shape[:-1])
    transitions = mdp.transitions.for_solvers()
    dtype = jnp.result_type(reward.dtype, *(x for x in [transitions.probabilities, initial] if x is not None))
    world = _World(transitions, mdp.discount, mdp.action_mask)
    # Of the discount as it was given: 1 - 0.9999 in single precision has three digits.
    interest = 1 - (np.float64(mdp.discount) if is_concrete(mdp.discount) else mdp.discount)
    controls = _Controls(interest, initial, tol, max_steps)
    return _solve(world, reward.astype(dtype), controls, method, batch)


class _World(NamedTuple):
    transitions: Any
    discount: Any
    mask: Any


class _Controls(NamedTuple):
    """What steers the way to the solution, which does not depend on it."""

    interest: Any
    initial: Any
    tol: Any
    max_steps: Any


class _Solved(NamedTuple):
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
    residual: Array
    wanted: Array
    rounding: Array


def _with_state_last(mdp: MDP, reward: Array) -> tuple[Array, tuple[int, ...]]:
    """Rewards (..., action or 1, state) and their batch axes."""
    count, num_actions = mdp.num_states, mdp.num_actions
    if reward.shape[-2:] in ((count, num_actions), (count, 1)):
        return jnp.swapaxes(reward, -2, -1), reward.shape[:-2]
    if reward.shape[-1:] == (count,):
        return reward[..., None, :], reward.shape[:-1]
    raise ValueError(
        f"reward has shape {reward.shape}: the last axis must be the states of the world, ({count},), "
        f"or the last two its states and actions, ({count}, {num_actions})"
    )


@functools.partial(jax.jit, static_argnames=("method", "batch"))
def _solve(world, reward, controls, method, batch):
    dtype = reward.dtype
    world = world._replace(
        discount=jnp.asarray(world.discount, dtype),
        mask=None if world.mask is None else world.mask.T,
        transitions=jax.tree.map(
            lambda x: x.astype(dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x, world.transitions
        ),
    )
    if method == "newton" and reward.shape[-1] <= DIRECT_AT_MOST:
        method = "direct"

    def solve(reward, initial):
        of_this = controls._replace(interest=jnp.asarray(controls.interest, dtype), initial=initial)
        return _agent(world, reward, _fixed_point(method, world, reward, of_this))

    if not batch:
        return solve(reward, controls.initial)
    rows = jnp.broadcast_to(reward, (*batch, *reward.shape[-2:])).reshape(-1, *reward.shape[-2:])
    start = controls.initial
    if start is not None:
        start = jnp.broadcast_to(start, (*batch, start.shape[-1])).reshape(-1, start.shape[-1])
    found = jax.vmap(solve)(rows, start)
    return jax.tree.map(lambda x: x.reshape(*batch, *x.shape[1:]), found)


def _agent(world, reward, solved):
    relative, action_values = _action_values(world, reward, solved.level, solved.relative)
    log_policy = _soft_max(relative)[1]
    return SoftSolution(
        solved.level + solved.relative,
        action_values.T,
        log_policy.T,
        solved.residual,
        solved.steps,
        solved.converged,
    )


def _action_values(world, reward, level, relative):
    """Q (action, state), first less what the level is worth after a step, then whole."""
    after = world.transitions.ahead(relative) + level * world.transitions.excess()
    values = reward + world.discount * after
    if world.mask is not None:
        values = jnp.where(world.mask, values, -jnp.inf)
    return values, values + world.discount * level


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _fixed_point(method, world, reward, controls):
    """Values of one agent: rewards (action or 1, state)."""
    climb = _climb if method == "direct" else _ONE_BY_ONE[method]
    return climb(world, reward, controls)


def _climb(world, reward, controls, method="direct"):
    interest, initial, tol, max_steps = controls
    discount, eps = world.discount, jnp.finfo(reward.dtype).eps
    lift = discount / interest
    excess = world.transitions.excess()
    largest_reward = jnp.max(jnp.abs(reward))

    def backup(level, relative):
        after = _action_values(world, reward, level, relative)[0]
        best, log_policy = _soft_max(after)
        change = best - relative - interest * level
        size = jnp.max(jnp.abs(relative))
        wanted = jnp.maximum(tol * jnp.maximum(jnp.abs(level) + size, 1), 8 * eps * (jnp.abs(level) + size))
        return _Backup(
            jnp.exp(log_policy),
            change,
            jnp.max(jnp.abs(change)),
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
        return 0.5 * lift * (jnp.max(now.change) + jnp.min(now.change)), now.change

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
            level, relative = _centred(level + up, relative + rest)
            now = backup(level, relative)
            return level, relative, now, sweep(now), count + 1

        level, relative, now, _, _ = lax.while_loop(more, move, (level, relative, before, change, 0))
        return level, relative, now, before.residual, steps + 1

    if initial is None:
        level, relative = _first_level(world.mask, reward, interest, len(excess)), jnp.zeros_like(reward[0])
    else:
        level, relative = _centred(jnp.zeros((), reward.dtype), initial.astype(reward.dtype))
    far = jnp.full((), jnp.inf, reward.dtype)
    start = (level, relative, backup(level, relative), far, jnp.zeros((), int))
    level, relative, last, before, steps = lax.while_loop(unfinished, step, start)
    reached = last.residual <= jnp.maximum(last.wanted, last.rounding)
    return _Solved(level, relative + last.change, last.residual, steps, reached)


# A batch of loops runs until its slowest is through, and gathers worse; small factored systems do not mind.
_ONE_BY_ONE = {
    method: sequential_vmap(functools.partial(_climb, method=method))
    for method in ("newton", "value_iteration")
}


@functools.partial(_fixed_point.defjvp, symbolic_zeros=True)
def _fixed_point_jvp(method, primals, tangents):
    world, reward, controls = primals
    solved = _fixed_point(method, world, reward, controls)
    leaves, shape = jax.tree.flatten((world, reward))
    along = jax.tree.leaves(tangents[:2], is_leaf=lambda x: isinstance(x, SymbolicZero))
    moving = [i for i, tangent in enumerate(along) if not isinstance(tangent, SymbolicZero)]

    def at_these_values(*moved):
        filled = list(leaves)
        for i, leaf in zip(moving, moved, strict=True):
            filled[i] = leaf
        return _action_values(*jax.tree.unflatten(shape, filled), solved.level, solved.relative)

    (relative, _), (_, moved) = jax.jvp(
        at_these_values, [leaves[i] for i in moving], [along[i] for i in moving]
    )
    policy = jnp.exp(_soft_max(relative)[1])
    change = add_up(lambda a: policy[a] * moved[a], len(policy))
    values = _evaluate(method, world, controls, policy, change)
    still = jax.tree.map(_no_tangent, solved)
    return solved, still._replace(relative=values)


def _evaluate(method, world, controls, policy, gain):
    r"""Discounted sums (state,) of what a policy gains at each state, :math:`(I - \gamma P_\pi)^{-1} g`."""
    chain = world.transitions.chain(policy)
    times = chain.forward()
    still = jax.tree.map(lax.stop_gradient, (chain, world.discount, world.transitions.excess(), policy))
    fixed, discount, excess, weight = still
    along = add_up(lambda a: weight[a] * excess[a], len(excess))
    system, direct = PolicySystem(fixed, discount, controls.interest, along), method == "direct"

    return lax.custom_linear_solve(
        lambda x: x - world.discount * times(x),
        gain,
        lambda _, b: system.solve(b, controls.tol, direct),
        lambda _, b: system.solve_transposed(b, controls.tol, direct),
    )


def _no_tangent(x):
    return (
        jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0)
    )


def _centred(level, relative):
    middle = 0.5 * (jnp.max(relative) + jnp.min(relative))
    return level + middle, relative - middle


def _first_level(mask, reward, interest, num_actions):
    """The value of everything where every state is worth the mean reward and has the mean entropy."""
    if mask is None:
        return (jnp.mean(reward) + np.log(num_actions)) / interest
    choices = jnp.sum(mask, 0)
    mean = jnp.sum(jnp.where(mask, reward, 0)) / jnp.sum(choices)
    return (mean + jnp.mean(jnp.log(choices.astype(reward.dtype)))) / interest


def _soft_max(values):
    """Log of the summed exponentials over actions of (action, state), and the log shares of the actions.

    Shares are worked out from differences, and sum to one however large the values are.
    """
    top = values[0]
    for i in range(1, len(values)):
        top = jnp.maximum(top, values[i])
    top = lax.stop_gradient(top)
    below = values - top[None]
    rest = jnp.log(add_up(lambda i: jnp.exp(below[i]), len(values)))
    return top + rest, below - rest[None]
