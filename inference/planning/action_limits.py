"""Projection of action probabilities into the limits of a problem, and rounding to actions that are allowed.

A projection clips every action to its range by the rules that are about it alone, as the authors' program does, and
then shifts a sum that is too large, or too small, by one multiple of its coefficients: where there is one sum, that is
the point nearest to the clipped one. Rounding adds the most probable action first, as long as it is more probable than
under the random policy and no rule of the problem is broken; where that leads nowhere, since some actions must be taken
together, sets of actions are searched. An action that is not allowed cannot leave this file.

Program released with Cui, Marinescu, Khardon (2018); projections as in Duchi et al. (2008), "Efficient projections onto
the l1-ball".
"""

from __future__ import annotations

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ethogram.models.planning.action_rules import ActionRules

__all__ = ["project", "random_policy_marginals", "round_actions"]

MOST_STEPS = 50
"""Steps of the search for a shift; each drops the actions that the shift has brought to their least."""
MOST_UNITS = 2**11
"""Units of a bound in which coefficients that are no integers are counted, rounded up."""
MOST_SETS = 2**12
"""Sets of actions that are tried where adding one action after the other leads to none that is allowed."""
SWEEPS = 2
"""Passes over all sums, where there are several."""


def random_policy_marginals(weights: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    r"""Probability (action,) of each action under the uniform policy over the sets of actions that sums allow.

    .. math:: p = \sum_{j \le k} \frac{j}{n} \binom{n}{j} \Big/ \sum_{j \le k} \binom{n}{j}

    for at most k of n actions; one half without a limit. With several sums, the least of the probabilities under each;
    coefficients that are no integers are rounded up to 1/2048 of the bound.

    Parameters
    ----------
    weights : (sum, action) coefficients.
    bounds : (sum,) upper bounds.
    """
    found = np.full(weights.shape[1], 0.5)
    for coefficients, bound in zip(weights, bounds, strict=True):
        members = np.flatnonzero(coefficients > 0)
        for size in np.unique(coefficients[members]):
            group = members[coefficients[members] == size]
            found[group] = np.minimum(found[group], _share(coefficients[members], float(size), float(bound)))
    return found


def _share(coefficients: np.ndarray, size: float, bound: float) -> float:
    """Share of the allowed sets that an action with coefficient `size` is in."""
    if bound < 0:
        return 0.0
    if (coefficients == size).all():
        count = len(coefficients)
        most = min(count, math.floor(bound / size + 1e-9))
        whole = sum(math.comb(count, j) for j in range(most + 1))
        return sum(math.comb(count - 1, j - 1) for j in range(1, most + 1)) / whole
    unit = 1.0
    if bound > MOST_UNITS or (coefficients != np.round(coefficients)).any():
        unit = bound / MOST_UNITS or 1.0
    units = np.ceil(coefficients / unit - 1e-9).astype(int)
    rest, own = np.delete(units, np.flatnonzero(coefficients == size)[0]), math.ceil(size / unit - 1e-9)
    ways = np.zeros(math.floor(bound / unit + 1e-9) + 1)
    ways[0] = 1
    for each in rest[rest < len(ways)]:
        ways[each:] += ways[: len(ways) - each].copy()
        ways /= 2  # shares stay, and large numbers do not overflow
    with_it = ways[: max(len(ways) - own, 0)].sum()
    return float(with_it / (with_it + ways.sum()))


@jax.jit
def project(position: Array, low: Array, high: Array, weights: Array, bounds: Array) -> Array:
    """Probabilities of actions (time, action, ...) within limits.

    Parameters
    ----------
    position : (time, action, ...), of any number of restarts.
    low, high : (time, action) or (1, action) range of each action.
    weights, bounds : (sum, action) and (sum,), or (time, sum), coefficients of sums with upper bounds, of one sign in
        each sum: negative ones are of a bound from below.
    """
    shape = position.shape
    position = position.reshape(*shape[:2], math.prod(shape[2:]))
    low, high = low[..., None], high[..., None]
    position = jnp.clip(position, low, high)
    count = len(weights)
    for i in [i for _ in range(SWEEPS if count > 1 else 1) for i in range(count)]:
        position = _shifted(position, low, high, weights[i], bounds[..., i])
    return position.reshape(shape)


def _shifted(position: Array, low: Array, high: Array, weights: Array, bound: Array) -> Array:
    """Projection to where one sum is at most its bound, by Newton's steps for the shift, which come from below."""
    bound = jnp.atleast_1d(bound)[:, None]
    near = 8 * jnp.finfo(position.dtype).eps * (1 + jnp.abs(bound))

    def total(values: Array, weights: Array) -> Array:
        return jnp.einsum("a,tac->tc", weights, values)  # as a matrix product many times faster than a sum

    def newton(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        count, shift, _ = state
        moved = position - weights[:, None] * shift[:, None]
        excess = total(jnp.clip(moved, low, high), weights) - bound
        free = jnp.where(weights[:, None] > 0, moved > low, moved < high)
        slope = total(free.astype(position.dtype), jnp.square(weights))
        over = (excess > near) & (slope > 0)
        return count + 1, shift + jnp.where(over, excess / jnp.where(slope > 0, slope, 1), 0), jnp.any(over)

    start = jnp.zeros((), jnp.int32), jnp.zeros_like(position[:, 0]), jnp.ones((), bool)
    shift = lax.while_loop(lambda state: (state[0] < MOST_STEPS) & state[2], newton, start)[1]
    return jnp.clip(position - weights[:, None] * shift[:, None], low, high)


def round_actions(
    rules: ActionRules, state: np.ndarray, marginals: np.ndarray, threshold: np.ndarray
) -> np.ndarray:
    """Allowed actions (action, restart) of 0 and 1 near probabilities.

    Parameters
    ----------
    rules : of the problem.
    state : (fluent,) of 0 and 1.
    marginals : (action, restart) probabilities.
    threshold : (action,) probabilities under the random policy; actions at or below it are not taken.

    Raises
    ------
    ValueError : no allowed set of actions was found in this state.
    """
    low, high = rules.range(state)
    made = np.repeat(low[:, None], marginals.shape[1], 1)
    unmet = rules.unmet(state, made)
    score = np.where((high[:, None] > 0) & (made == 0), marginals - threshold[:, None], -np.inf)
    made, unmet = _added(rules, state, made, unmet, score, (score > 1e-6) | (unmet > 0))
    bad = unmet > 0
    if bad.any() and not bad.all():
        made[:, bad] = made[:, np.flatnonzero(~bad)[:1]]
    elif bad.any():
        allowed = _allowed_sets(rules, state, low, high, marginals.mean(1) - threshold)
        if not allowed.shape[1]:
            raise ValueError(
                "no allowed set of actions was found in this state: the preconditions may contradict"
            )
        made = allowed[:, np.argmax(allowed.T @ (marginals - threshold[:, None]), 0)]
    return made


def _allowed_sets(
    rules: ActionRules, state: np.ndarray, low: np.ndarray, high: np.ndarray, score: np.ndarray
) -> np.ndarray:
    """Sets of actions (action, set) that no rule forbids: of all, or of :data:`MOST_SETS`, small and of large score."""
    free = sorted(np.flatnonzero(high > low), key=lambda action: -score[action])
    sizes = (itertools.combinations(free, size) for size in range(len(free) + 1))
    chosen = list(itertools.islice(itertools.chain.from_iterable(sizes), MOST_SETS))
    every = np.repeat(np.stack((high, low), 1), (1, len(chosen)), 1)
    for number, members in enumerate(chosen, 1):
        every[list(members), number] = 1
    return every[:, rules.unmet(state, every) == 0]


def _added(
    rules: ActionRules,
    state: np.ndarray,
    made: np.ndarray,
    unmet: np.ndarray,
    score: np.ndarray,
    wanted: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Actions with those of largest score added, each where it breaks no rule or reduces what is unmet."""
    order = np.argsort(-score, 0, kind="stable")
    made, restarts = made.copy(), np.arange(made.shape[1])
    for at in order:
        open_ = wanted[at, restarts] & np.isfinite(score[at, restarts])
        going = open_ & ((unmet > 0) | (score[at, restarts] > 1e-6))
        if not open_.any():
            break
        tried = made.copy()
        tried[at[going], restarts[going]] = 1
        left = rules.unmet(state, tried)
        taken = going & ((left == 0) | (left < unmet))
        made[:, taken], unmet = tried[:, taken], np.where(taken, left, unmet)
    return made, unmet
