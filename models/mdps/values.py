r"""Values and policies of an MDP: soft-optimal, optimal, and those of a given policy.

.. math:: Q(s, a) = r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s')

with :math:`V(s) = \ln \sum_a \exp Q(s, a)` of a soft-optimal (maximum-entropy) agent, whose policy is
:math:`\pi(a \mid s) = \exp(Q(s, a) - V(s))`, with :math:`V(s) = \max_a Q(s, a)` of an optimal one (Puterman 1994,
"Markov decision processes", eq. 6.2.2), and :math:`V_\pi = (I - \gamma P_\pi)^{-1} r_\pi` of a policy (eq. 6.1.9).

Over an infinite horizon the fixed point of the soft backup T is found by Newton's method (soft policy iteration). T is
convex and monotone, so that Newton converges from everywhere, and from below after one step. Derivatives are those of
the fixed point, :math:`dV = (I - \gamma P_\pi)^{-1} \sum_a \pi(a \mid \cdot)\, dQ(\cdot, a)` with V held fixed in dQ.
With a finite horizon the backup is iterated from V = 0: Ziebart, Maas, Bagnell and Dey (2008), Algorithm 1, in log
space and with a policy at each step.

Ziebart, Bagnell and Dey (2010), "Modeling interaction via the principle of maximum causal entropy"; Howard (1960) for
optimal values. `bellman.py` has the algorithm and its sources.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.arguments import (
    Reals,
    common_batch,
    concretely,
    is_concrete,
    read_reals,
    require,
    require_distributions,
    require_flag,
    require_integer,
    require_number,
    require_one_of,
)
from ethogram.models.mdps.bellman import (
    Solved,
    Status,
    action_values,
    require_converged,
    soft_max,
    solve_bellman,
)
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.policy_system import evaluate
from ethogram.models.mdps.tabular import Tabular, mapped, read_reward, require_discounted, tabular
from ethogram.models.mdps.transitions import unrolled_sum
from ethogram.models.printing import short_repr
from ethogram.models.quick_jit import quick_jit

__all__ = [
    "OptimalSolution", "SoftSolution", "expected_value", "expected_value_difference", "optimal_values", "policy_values",
    "soft_policy", "soft_values",
]  # fmt: skip

CALLS = 1000
"""How often a typical use goes through the numbers of an MDP: some ten Newton steps in each of some ten to a hundred
calls. Solutions of 16 states take .4 instead of 1.3 s to compile then, and .7 instead of .5 ms to run."""


@short_repr
class SoftSolution(NamedTuple):
    """Values and policy of a soft-optimal agent; with ``all_steps=True`` they have an axis ``time`` before ``state``.

    Attributes
    ----------
    values : V(s), (..., state), the reward of the state included.
    action_values : Q(s, a), (..., state, action); -inf where an action is not available.
    log_policy : ln pi(a | s), (..., state, action); -inf where an action is not available.
    residual : largest |T V - V| before the last iteration, (...); with a horizon, the largest difference between the
        values of its first two steps.
    steps : Newton steps, (...); the horizon where there is one.
    status : integers (...), a :class:`~ethogram.models.mdps.Status` each: ``CONVERGED`` within `tol` of the fixed point
        (with a horizon, finite); ``ROUNDED`` at the limit of rounding: in single precision probabilities of actions are
        then off by 1e-6 to 1e-4 at discounts up to .99, and by up to .02 at .9999 in mazes and object worlds;
        ``IMPRECISE`` at that limit where rounding changes values by over .02, as in single precision where they differ
        by over 2e4; ``TOO_FEW_STEPS``; ``NOT_FINITE``.
    """

    values: Float[Array, "*batch state"]
    action_values: Float[Array, "*batch state action"]
    log_policy: Float[Array, "*batch state action"]
    residual: Float[Array, "*batch"]
    steps: Int[Array, "*batch"]
    status: Int[Array, "*batch"]

    @property
    def converged(self) -> Bool[Array, "*batch"]:
        """Whether the status is ``CONVERGED`` or ``ROUNDED``, (...)."""
        return _converged(self.status)

    @property
    def policy(self) -> Float[Array, "*batch state action"]:
        """Probabilities pi(a | s), (..., state, action)."""
        return jnp.exp(self.log_policy)


@short_repr
class OptimalSolution(NamedTuple):
    """Optimal values and a greedy policy.

    Attributes
    ----------
    values : V(s), (..., state), the reward of the state included.
    action_values : Q(s, a), (..., state, action); -inf where an action is not available.
    actions : (..., state) integers, the first of the best.
    residual : largest Bellman residual |T V - V| before the last step, (...).
    steps : policies that were evaluated, (...).
    status : integers (...), a :class:`~ethogram.models.mdps.Status` each, as of :class:`SoftSolution`; values are never
        ``IMPRECISE``.
    """

    values: Float[Array, "*batch state"]
    action_values: Float[Array, "*batch state action"]
    actions: Int[Array, "*batch state"]
    residual: Float[Array, "*batch"]
    steps: Int[Array, "*batch"]
    status: Int[Array, "*batch"]

    @property
    def converged(self) -> Bool[Array, "*batch"]:
        """Whether the status is ``CONVERGED`` or ``ROUNDED``, (...)."""
        return _converged(self.status)

    @property
    def policy(self) -> Float[Array, "*batch state action"]:
        """The deterministic policy (..., state, action), as probabilities."""
        num_actions, dtype = self.action_values.shape[-1], self.values.dtype
        return concretely(lambda xp, x: (x[..., None] == xp.arange(num_actions)).astype(dtype), self.actions)


def _converged(status: Array) -> Array:
    return concretely(lambda xp, x: x <= int(Status.ROUNDED), status)


def soft_values(
    mdp: MDP,
    reward: Reals,
    *,
    pairs: bool | None = None,
    tol: float | int = 1e-12,
    max_steps: int | None = None,
    initial: Reals | None = None,
    horizon: int | None = None,
    all_steps: bool = False,
) -> SoftSolution:
    r"""Soft-optimal values and policy, over an infinite horizon or a finite one.

    Iterations stop when :math:`|T V - V| \gamma / (1 - \gamma)`, which bounds the error of V, is at most `tol` times
    the largest |V| (or one, if that is more), or at the limit of rounding: the `status` says which. Linear systems are
    factored up to 128 states, and above that solved by BiCGSTAB to tightening tolerances, with sweeps where it stalls.

    The result is differentiable with respect to `reward`, and the discount and the probabilities of `mdp`, in forward
    and reverse mode and to any order, and can be mapped by `jax.vmap`.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1), or in [0, 1] with a horizon.
    reward : r (..., state), or (..., state, action) where the last two axes are (S, A). (state,) and (..., state, 1)
        are always rewards of states.
    pairs : whether rewards are of pairs (state, action). None reads it from the shape, where S and A differ.
    tol : relative error of the values, and relative residual of the linear systems behind derivatives; > 0.
    max_steps : largest number of Newton steps; 100 by default.
    initial : values (..., state) to start from; a constant by default. It has no derivative.
    horizon : H >= 1 steps to go, this one included, with value zero after the last; None for an infinite horizon. It
        replaces `max_steps` and `initial` by H backups.
    all_steps : with a horizon, whether to return every step, (..., time, state), instead of the first one. Policies
        depend on the steps to go only: for a shorter horizon take the last entries.

    Raises
    ------
    TypeError, ValueError
        The discount is 1 without a horizon, or `reward` has one of two readings without `pairs`.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.9)
    >>> solution = soft_values(corridor, [0.0, 0.0, 1.0])
    >>> print((100 * solution.policy[:, 1]).round(), bool(solution.converged))
    [67. 85. 74.] True
    >>> ahead = soft_values(MDP.deterministic([[0, 1], [0, 2], [1, 2]]), [0.0, 0.0, 1.0], horizon=3, all_steps=True)
    >>> print((100 * ahead.policy[:, 1, 1]).round())
    [83. 73. 50.]
    """
    reward, batch = read_reward(mdp, reward, pairs=pairs)
    require_number("tol", tol, above=0)
    require_flag("all_steps", all_steps)
    if horizon is not None:
        require_integer("horizon", horizon, 1)
        if max_steps is not None or initial is not None:
            raise ValueError(
                f"horizon is {horizon}, which replaces max_steps and initial: leave those out, or horizon"
            )
        return _backward(tabular(mdp), reward, int(horizon), batch, all_steps)
    if all_steps:
        raise ValueError("all_steps is True without a horizon: pass horizon=, the number of steps")
    require_discounted(mdp, "pass an MDP with a discount below 1, or horizon=, the number of steps")
    max_steps = require_integer("max_steps", 100 if max_steps is None else max_steps, 1)
    if initial is not None:
        (initial,) = read_reals(initial=initial)
        if initial.shape[-1:] != (mdp.num_states,):
            raise ValueError(
                f"initial has shape {initial.shape}: the last axis must be states, ({mdp.num_states},)"
            )
        shapes = f"reward has batch axes {batch}, initial {initial.shape[:-1]}"
        batch = common_batch(shapes, batch, initial.shape[:-1])
    return _soft(tabular(mdp), reward, initial, tol, max_steps, batch)


def soft_policy(
    mdp: MDP, reward: Reals, *, horizon: int | None = None, pairs: bool | None = None
) -> Float[Array, "*batch state action"]:
    """``soft_values(...).policy`` with the same arguments; RuntimeError where the values have not converged."""
    return require_converged("soft_values", soft_values(mdp, reward, horizon=horizon, pairs=pairs)).policy


@quick_jit(calls=CALLS, static_argnames=("horizon", "batch", "all_steps"))
def _backward(table, reward, horizon, batch, all_steps):
    table, reward = table.cast(jnp.swapaxes(reward, -2, -1))

    def backup(reward, later):
        whole = action_values(table, reward, 0, later)[1]
        values, _, log_policy = soft_max(whole)
        return values, whole.T, log_policy.T

    def solve(reward):
        def step(later, _):
            found = backup(reward, later)
            return found[0], found if all_steps else None

        second, later = lax.scan(step, jnp.zeros_like(reward[0]), None, length=horizon - 1, reverse=True)
        first = backup(reward, second)
        residual = jnp.max(jnp.abs(first[0] - second))
        finite = jnp.all(jnp.isfinite(first[0]))
        status = jnp.where(finite, int(Status.CONVERGED), int(Status.NOT_FINITE))
        if all_steps:
            first = jax.tree.map(lambda now, after: jnp.concatenate([now[None], after]), first, later)
        return SoftSolution(*first, residual, jnp.asarray(horizon), status)

    return mapped(solve, batch, (reward, 2))


@quick_jit(calls=CALLS, static_argnames="batch")
def _soft(table, reward, initial, tol, max_steps, batch):
    table, reward, initial = table.cast(jnp.swapaxes(reward, -2, -1), initial)

    def solve(reward, initial):
        solved = _fixed_point(table, reward, initial, tol, max_steps)
        relative, whole = action_values(table, reward, solved.level, solved.relative)
        return SoftSolution(solved.level + solved.relative, whole.T, soft_max(relative)[2].T, *solved[2:])

    return mapped(solve, batch, (reward, 2), (initial, 1))


@jax.custom_jvp
def _fixed_point(table: Tabular, reward: Array, initial: Array | None, tol: Any, max_steps: Any) -> Solved:
    """Soft values of one agent for rewards (action or 1, state)."""
    return solve_bellman(table, reward, initial, tol, max_steps, temperature=1)


@functools.partial(_fixed_point.defjvp, symbolic_zeros=True)
def _fixed_point_jvp(primals, tangents):
    table, reward, _, tol, _ = primals
    solved = _fixed_point(*primals)
    leaves, shape = jax.tree.flatten((table, reward))
    along = jax.tree.leaves(tangents[:2], is_leaf=lambda x: isinstance(x, SymbolicZero))
    moving = [i for i, tangent in enumerate(along) if not isinstance(tangent, SymbolicZero)]

    def at_these_values(*moved):
        filled = list(leaves)
        for i, leaf in zip(moving, moved, strict=True):
            filled[i] = leaf
        return action_values(*jax.tree.unflatten(shape, filled), solved.level, solved.relative)

    (relative, _), (_, moved) = jax.jvp(
        at_these_values, [leaves[i] for i in moving], [along[i] for i in moving]
    )
    policy = soft_max(relative)[1]
    change = unrolled_sum(lambda a: policy[a] * moved[a], len(policy))
    still = jax.tree.map(_no_tangent, solved)
    return solved, still._replace(relative=evaluate(table, policy, change, tol))


def _no_tangent(x):
    real = jnp.issubdtype(x.dtype, jnp.floating)
    return jnp.zeros_like(x) if real else np.zeros(x.shape, jax.dtypes.float0)


def optimal_values(
    mdp: MDP, reward: Reals, *, pairs: bool | None = None, tol: float | int = 1e-12, max_steps: int = 1000
) -> OptimalSolution:
    r"""Optimal values of a discounted MDP over an infinite horizon, and the first of the best actions in every state.

    Iterations stop when :math:`|T V - V| \gamma / (1 - \gamma)`, which bounds the error of V, is at most `tol` times
    the largest |V|, or at the limit of rounding: the `status` says which. Multiplying the rewards by a positive number
    multiplies the values, and changes no action.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1).
    reward : r (..., state), or (..., state, action) where the last two axes are (S, A): of one that depends on the next
        state, its mean. Batches are solved one after the other above 128 states.
    pairs : whether rewards are of pairs (state, action). None reads it from the shape, where S and A differ.
    tol : relative error of the values, > 0. Actions whose values are within that, or within rounding, of the best
        count as equal to it.
    max_steps : largest number of policy evaluations; they use factored systems up to 128 states, BiCGSTAB above.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> best = optimal_values(corridor, [0.0, 0.0, 1.0])
    >>> print(best.values, best.actions)
    [0.5 1.  2. ] [1 1 1]
    """
    reward, batch = read_reward(mdp, reward, pairs=pairs)
    require_discounted(mdp)
    require_number("tol", tol, above=0)
    require_integer("max_steps", max_steps, 1)
    return _optimal(tabular(mdp), reward, tol, max_steps, batch)


@quick_jit(calls=CALLS, static_argnames="batch")
def _optimal(table, reward, tol, max_steps, batch):
    table, reward = table.cast(jnp.swapaxes(reward, -2, -1))

    def solve(reward):
        solved = solve_bellman(table, reward, None, tol, max_steps, temperature=0)
        after, whole = action_values(table, reward, solved.level, solved.relative)
        rewarded = jnp.max(jnp.where(jnp.isfinite(after), jnp.abs(reward), 0))
        size = jnp.max(jnp.abs(solved.relative)) + rewarded
        slack = jnp.maximum(tol, 64 * jnp.finfo(after.dtype).eps) * size
        actions = jnp.argmax(after >= (jnp.max(after, axis=0) - slack)[None], axis=0)
        return OptimalSolution(jnp.max(whole, axis=0), whole.T, actions, *solved[2:])

    return mapped(solve, batch, (reward, 2))


def policy_values(
    mdp: MDP, reward: Reals, policy: Reals, *, pairs: bool | None = None, tol: float | int = 1e-12
) -> Float[Array, "*batch state"]:
    r"""Values (..., state) of a policy: expected discounted returns, without an entropy bonus.

    .. math:: V(s) = \sum_a \pi(a \mid s) \Bigl( r(s, a) + \gamma \sum_{s'} P(s' \mid s, a) V(s') \Bigr)

    The result is differentiable with respect to rewards, policy and MDP, and can be mapped by `jax.vmap`.

    Parameters
    ----------
    mdp : S states, A actions, a discount in [0, 1).
    reward : r (..., state), or (..., state, action) where the last two axes are (S, A).
    policy : pi (..., state, action), probabilities of actions that are available. Rows sum to one within 1e-6, float32
        1e-4, and are divided by what they sum to. Batch axes broadcast against those of the reward.
    pairs : whether rewards are of pairs (state, action). None reads it from the shape, where S and A differ.
    tol : relative residual of the linear system above 128 states, which is factored up to that.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> always_right = jnp.array([[0.0, 1.0]] * 3)
    >>> print(policy_values(corridor, [0.0, 0.0, 1.0], always_right).round(3))
    [0.5 1.  2. ]
    """
    reward, batch = read_reward(mdp, reward, pairs=pairs)
    require_discounted(mdp)
    require_number("tol", tol, above=0)
    policy = _read_policy(mdp, policy)
    shapes = f"reward has batch axes {batch}, policy {policy.shape[:-2]}"
    batch = common_batch(shapes, batch, policy.shape[:-2])
    return _of_policy(tabular(mdp), reward, policy, tol, batch)


@quick_jit(calls=CALLS, static_argnames="batch")
def _of_policy(table, reward, policy, tol, batch):
    table, reward, policy = table.cast(reward, policy)

    def solve(reward, policy):
        share = policy / jnp.sum(policy, axis=-1, keepdims=True)
        return evaluate(table, share.T, jnp.sum(share * reward, axis=-1), tol)

    return mapped(solve, batch, (reward, 2), (policy, 2))


def _read_policy(mdp: MDP, policy: Any) -> Array:
    """Checked probabilities (..., state, action)."""
    (policy,) = read_reals(policy=policy)
    lead = (mdp.num_states, mdp.num_actions)
    if policy.shape[-2:] != lead:
        raise ValueError(
            f"policy has shape {policy.shape}: the last two axes must be (state, action), which is {lead}"
        )
    if not is_concrete(policy, mdp.action_mask):
        return policy
    host = np.asarray(policy)
    if mdp.action_mask is not None:
        allowed = np.asarray(mdp.action_mask) | (host == 0)
        require(allowed, "policy", host, "is of an action that is not available", "give it zero")
    require_distributions("policy", host)
    return policy


def expected_value(
    mdp: MDP, reward: Reals, policy: Reals, *, pairs: bool | None = None
) -> Float[Array, "*batch"]:
    """Expected values (...) of a policy under the start distribution of the MDP, uniform where it has none.

    Parameters
    ----------
    mdp, reward, policy, pairs : as for :func:`policy_values`.
    """
    return _mean(policy_values(mdp, reward, policy, pairs=pairs), mdp.start)


@jax.jit
def _mean(values: Array, start: Array | None) -> Array:
    return jnp.mean(values, -1) if start is None else values @ start.astype(values.dtype)


def expected_value_difference(
    mdp: MDP,
    true_reward: Reals,
    reward: Reals | None = None,
    *,
    policy: Reals | None = None,
    kind: str = "standard",
    pairs: bool | None = None,
) -> Float[Array, "*batch"]:
    r"""Expected value difference: the value of the best policy under the true reward, minus that of a learned one.

    .. math:: \sum_s p(s) \bigl( V^{\pi^\star}(s) - V^{\hat\pi}(s) \bigr)

    Levine, Popovic and Koltun (2011), "Nonlinear inverse reinforcement learning with Gaussian processes", section 6.

    Both values are expected discounted returns of the true reward, without an entropy bonus, over the start
    distribution (uniform where the MDP has none). Nothing is clipped. The standard difference is nonnegative up to
    rounding. The soft one can be negative, since a soft-optimal policy does not maximise the return.

    Parameters
    ----------
    mdp : S states, A actions, a discount below 1.
    true_reward : r (state,) or (state, action), or (..., state) and (..., state, action).
    reward : the learned reward, (..., state) or (..., state, action). Draws give one difference each. Batch axes
        broadcast against those of the true reward.
    policy : the learned policy (..., state, action), probabilities, in place of a reward.
    kind : ``"standard"``, optimal policies for both rewards, with the first action where several are; or ``"soft"``,
        soft-optimal policies. A given policy is used as it is.
    pairs : whether rewards are of pairs (state, action), except those of one axis and (..., state, 1), which are of
        states. None reads it from the shapes, where S and A differ.

    Raises
    ------
    RuntimeError : values have not converged. Traced values are not checked.

    Examples
    --------
    >>> corridor = MDP.deterministic([[0, 1], [0, 2], [1, 2]], discount=0.5)
    >>> print(expected_value_difference(corridor, [0.0, 0.0, 3.0], [1.0, 0.0, 0.0]))
    2.5
    >>> print(expected_value_difference(corridor, [0.0, 0.0, 3.0], [0.0, 0.0, 5.0]))
    0.0
    """
    require_one_of("kind", kind, ("standard", "soft"))
    if (reward is None) == (policy is None):
        given = "neither" if reward is None else "both"
        raise ValueError(f"give either a learned reward or a learned policy, not {given}")
    read_reward(mdp, true_reward, "true_reward", pairs)
    best = _policy(mdp, true_reward, kind, pairs)
    learned = _policy(mdp, reward, kind, pairs) if policy is None else policy
    most = expected_value(mdp, true_reward, best, pairs=pairs)
    return most - expected_value(mdp, true_reward, learned, pairs=pairs)


def _policy(mdp: MDP, reward: Any, kind: str, pairs: bool | None) -> Array:
    """Policy (..., state, action) of a kind for a reward."""
    if kind == "soft":
        return soft_policy(mdp, reward, pairs=pairs)
    return require_converged("optimal_values", optimal_values(mdp, reward, pairs=pairs)).policy
