r"""Worlds made of other tables: gymnasium's dictionaries, and counts of what was seen to follow what.

Counts n(s, a, s') of transitions under a symmetric Dirichlet prior of concentration c on the next states that are
possible give rows :math:`P(\cdot \mid s, a) \sim \mathrm{Dirichlet}(n(s, a, \cdot) + c)`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ethogram.models.blocks.conjugate_block import require, require_reals
from ethogram.models.emissions.emission import whole_number
from ethogram.models.mdp import MDP, require_room

__all__ = ["draw_transitions", "mdp_from_counts", "mdp_from_gymnasium"]

SPARSE_WAY = "give counts (state, action, slot) with successors of the same shape"


def mdp_from_gymnasium(
    P: Any, *, discount: float | int, terminal_actions: str = "one", end_state: bool = False, **parts: Any
) -> tuple[MDP, Float[Array, "state action"]]:
    """The world and the expected rewards (state, action) in gymnasium's table of a toy text environment.

    Probabilities of a next state that is listed twice are added. An action that a state does not list is not available
    there. A state that an episode ends in becomes absorbing with reward zero, whatever the table says of leaving it.

    Parameters
    ----------
    P : ``P[state][action]`` is a list of ``(probability, next state, reward, terminated)``, as `env.unwrapped.P` is;
        states and actions are numbered from 0, in dictionaries or sequences. gymnasium itself is not needed.
    discount : gamma in [0, 1].
    terminal_actions : ``"one"``, all but action 0 become unavailable in terminal states; ``"all"``, they stay
        available, and an agent that is soft about its return is paid for their number for ever: ln A / (1 - gamma).
    end_state : whether episodes end in one more state, the last, instead of in the states of the table, which are then
        left as they are. It is needed where a state is also entered without an end.
    parts : `start`, `features`, `state_names` and `action_names` of the :class:`~ethogram.models.mdp.MDP`.

    Raises
    ------
    TypeError : an entry is not made of four, or not of numbers.
    ValueError : a state or action is missing or is no number from 0 on, a next state is none; probabilities are
        negative, NaN or do not sum to one, a reward is not finite; a terminal state is also entered without an end.
        The message has the place.

    Examples
    --------
    >>> ahead = [(0.5, 1, 1.0, True), (0.25, 0, 0.0, False), (0.25, 0, 0.0, False)]
    >>> world, reward = mdp_from_gymnasium({0: {0: ahead}, 1: {0: [(1.0, 1, 0.0, True)]}}, discount=0.9)
    >>> world.probability(0, 0, [0, 1]).tolist(), reward.tolist()
    ([0.5, 0.5], [[0.5], [0.0]])
    """
    if terminal_actions not in ("one", "all"):
        raise ValueError(f'terminal_actions must be "one" or "all", not {terminal_actions!r}')
    rows = _read_rows(P)
    count = len(P)
    num_states, num_actions = count + end_state, 1 + max(action for _, action in rows)
    if end_state:
        terminal = {count}
        rows = {at: [(p, count if ends else s, r, ends) for p, s, r, ends in row] for at, row in rows.items()}
    else:
        terminal = {s for row in rows.values() for p, s, _, ends in row if ends and p > 0}
        _require_one_way(rows, terminal)
    stays = {(s, a): [(1.0, s, 0.0, True)] for s in terminal for a in range(num_actions)}
    listed = {**rows, **stays}
    available = np.zeros((num_states, num_actions), bool)
    available[tuple(np.array(list(listed)).T)] = True
    if terminal_actions == "one":
        available[sorted(terminal), 1:] = False
    reward = np.zeros((num_states, num_actions))
    slots = max(len(row) for row in listed.values())
    successors = np.broadcast_to(
        np.arange(num_states)[:, None, None], (num_states, num_actions, slots)
    ).copy()
    chances = np.zeros(successors.shape)
    chances[..., 0] = 1
    for at, row in listed.items():
        chances[at] = 0
        for slot, (p, s, _, _) in enumerate(row):
            successors[at][slot], chances[at][slot] = s, p
        reward[at] = math.fsum(p * r for p, _, r, _ in row)
    dtype = jnp.result_type(float)
    mask = None if available.all() else available
    world = MDP.sparse(successors, chances.astype(dtype), discount=discount, action_mask=mask, **parts)
    return world, jnp.asarray(reward, dtype)


Entry = tuple[float, int, float, bool]


def _read_rows(P: Any) -> dict[tuple[int, int], list[Entry]]:
    """Entries of each state and action that is listed, once they are found in order."""
    if not isinstance(P, Mapping | Sequence) or isinstance(P, str) or not len(P):
        raise TypeError(
            f"P is {type(P).__name__}: give the dictionary env.unwrapped.P, with a state at least"
        )
    rows = {}
    for state in range(len(P)):
        actions = _entry(P, state, f"P has {len(P)} states and no P[{state}]: number them from 0")
        if not isinstance(actions, Mapping | Sequence) or not len(actions):
            raise ValueError(f"P[{state}] is {actions!r}: every state needs an action")
        for action in actions if isinstance(actions, Mapping) else range(len(actions)):
            if isinstance(action, bool) or not isinstance(action, int | np.integer) or action < 0:
                raise ValueError(f"P[{state}] has the action {action!r}: number them from 0")
            rows[state, int(action)] = _read_row(actions[int(action)], f"P[{state}][{action}]", len(P))
    return rows


def _entry(table: Any, place: int, message: str) -> Any:
    try:
        return table[place]
    except (KeyError, IndexError):
        raise ValueError(message) from None


def _read_row(row: Any, place: str, num_states: int) -> list[Entry]:
    if not isinstance(row, Sequence) or not len(row):
        raise ValueError(f"{place} is {row!r}: give a list of (probability, next state, reward, terminated)")
    found = []
    for number, entry in enumerate(row):
        at = f"{place}[{number}]"
        if not isinstance(entry, Sequence) or len(entry) != 4:
            raise TypeError(f"{at} is {entry!r}, not (probability, next state, reward, terminated)")
        chance, state, reward, ends = entry
        for name, value in (("probability", chance), ("reward", reward)):
            if isinstance(value, bool) or not isinstance(value, float | int | np.floating | np.integer):
                raise TypeError(f"{at} has the {name} {value!r}: give a number")
            if not np.isfinite(value):
                raise ValueError(f"{at} has the {name} {value}, which is not finite")
        if chance < 0:
            raise ValueError(f"{at} has the probability {chance}, which is negative")
        if isinstance(state, bool) or not isinstance(state, int | np.integer) or not 0 <= state < num_states:
            raise ValueError(f"{at} leads to {state!r}, which is no state: states are 0 to {num_states - 1}")
        if not isinstance(ends, bool | np.bool_):
            raise TypeError(f"{at} has {ends!r} for terminated: give True or False")
        found.append((float(chance), int(state), float(reward), bool(ends)))
    total = math.fsum(chance for chance, *_ in found)
    if abs(total - 1) > 1e-6:
        raise ValueError(
            f"{place} has probabilities that sum to {total:.6g}, not 1: divide them by their sum"
        )
    return found


def _require_one_way(rows: dict[tuple[int, int], list[Entry]], terminal: set[int]) -> None:
    """Raise ValueError where a state that episodes end in is entered, from another, by one that goes on."""
    for (state, action), row in rows.items():
        for chance, after, _, ends in row:
            if state not in terminal and after in terminal and not ends and chance > 0:
                raise ValueError(
                    f"P[{state}][{action}] leads to state {after} without an end, in which other episodes end: "
                    "pass end_state=True, for one more state that all of them end in"
                )


class _Counts(NamedTuple):
    """Counts (state, action, slot) as floats, which slots are possible, and the next states; None for all in order."""

    counts: np.ndarray
    possible: np.ndarray
    successors: np.ndarray | None


def mdp_from_counts(
    counts: Any,
    *,
    prior: float | int,
    discount: float | int,
    successors: Any = None,
    support: Any = None,
    action_mask: Any = None,
    **parts: Any,
) -> MDP:
    r"""World of the posterior mean transitions after counts of transitions, :math:`(n + c) / \sum (n + c)`.

    Rows without a count have the prior's mean, all possible next states alike. With a prior of zero, which gives the
    shares that were counted, they are refused, unless the action is not available.

    Parameters
    ----------
    counts : n (state, action, next state), not negative; or (state, action, slot) with `successors`.
    prior : c >= 0, what is added to the count of every next state that is possible.
    discount : gamma in [0, 1].
    successors : (state, action, slot) integers, the next states that are possible, -1 in slots that are not used. The
        world is then sparse, and nothing of the size (state, action, state) is made.
    support : booleans of the shape of `counts`, which of them are possible; None for all.
    action_mask, parts : of the :class:`~ethogram.models.mdp.MDP`.

    Raises
    ------
    TypeError, ValueError : counts are no numbers, negative or not finite, or of what is not possible; a row has no
        possible next state, or with a prior of zero no count; shapes do not fit; a next state is none or stands in its
        row twice; the table would take more than 2 GiB. The message has the place.

    Examples
    --------
    >>> world = mdp_from_counts([[[5, 1]], [[0, 0]]], prior=1.0, discount=0.9)
    >>> world.probability(0, 0, [0, 1]).tolist(), world.probability(1, 0, [0, 1]).tolist()
    ([0.75, 0.25], [0.5, 0.5])
    """
    read = _read_counts(counts, prior, successors, support, action_mask)
    weights = np.where(read.possible, read.counts + prior, 0)
    nothing = (weights.sum(-1, keepdims=True) == 0) & read.possible
    weights = np.where(nothing, 1, weights)
    mean = weights / weights.sum(-1, keepdims=True)
    return _world(read, mean.astype(jnp.result_type(float)), discount, action_mask, parts)


def draw_transitions(
    key: Any,
    counts: Any,
    *,
    prior: float | int,
    num_draws: int,
    discount: float | int,
    successors: Any = None,
    support: Any = None,
    action_mask: Any = None,
    **parts: Any,
) -> list[MDP]:
    """Worlds drawn from the posterior of the transitions, a list, to carry what is not known of them through.

    All are of one structure: what is compiled for one serves all. Inside `jax.vmap` over keys, draw one at a time.

    Parameters
    ----------
    key : typed PRNG key.
    counts, prior, discount, successors, support, action_mask, parts : as for :func:`mdp_from_counts`, which has the
        mean of the draws. Rows without a count are drawn from the prior; with a prior of zero, next states that were
        never counted have probability zero.
    num_draws : worlds, 1 or more.

    Raises
    ------
    TypeError, ValueError : as for :func:`mdp_from_counts`; `num_draws` is no integer above 0.

    Examples
    --------
    >>> import jax
    >>> from ethogram.models.soft_values import soft_values
    >>> worlds = draw_transitions(jax.random.key(0), [[[3, 1]], [[0, 2]]], prior=1.0, num_draws=50, discount=0.9)
    >>> values = jnp.stack([soft_values(world, [0.0, 1.0]).values for world in worlds])
    >>> values.shape
    (50, 2)
    """
    whole_number("num_draws", num_draws, 1)
    read = _read_counts(counts, prior, successors, support, action_mask)
    dtype = jnp.result_type(float)
    require_room("draws", (num_draws, *read.counts.shape), dtype, f"draw fewer at a time, or {SPARSE_WAY}")
    weights = read.counts + prior
    weights = np.where(read.possible & ~(weights.sum(-1, keepdims=True) == 0), weights, read.possible)
    some = jnp.asarray(weights > 0)[None]
    shapes = jnp.asarray(np.where(weights > 0, weights, 1), dtype)
    logs = jax.random.loggamma(key, shapes, (num_draws, *shapes.shape))
    drawn = jax.nn.softmax(jnp.where(some, logs, -jnp.inf), axis=-1)
    return [_world(read, one, discount, action_mask, parts) for one in drawn]


def _world(read: _Counts, chances: Any, discount: Any, action_mask: Any, parts: dict[str, Any]) -> MDP:
    settings = {"discount": discount, "action_mask": action_mask, **parts}
    if read.successors is None:
        return MDP.dense(chances, **settings)
    return MDP.sparse(read.successors, chances, **settings)


def _read_counts(counts: Any, prior: Any, successors: Any, support: Any, action_mask: Any) -> _Counts:
    """Counts and what is possible, once they are found in order."""
    require_reals("prior", prior)
    if np.ndim(prior) or not 0 <= prior < np.inf:
        raise ValueError(f"prior must be a number, 0 or more, not {prior!r}")
    counts = np.asarray(counts)
    if counts.dtype.kind not in "iuf":
        raise TypeError(f"counts has dtype {counts.dtype}: give numbers")
    if counts.ndim != 3 or 0 in counts.shape or (successors is None and counts.shape[0] != counts.shape[2]):
        came = f"counts has shape {counts.shape}, not (state, action, next state)"
        raise ValueError(
            came if successors is None else f"counts has shape {counts.shape}, not (state, action, slot)"
        )
    require_room("counts", counts.shape, np.float64, SPARSE_WAY)
    require(np.isfinite(counts), "counts", counts, "is not finite", "count again")
    require(counts >= 0, "counts", counts, "is negative", "count again")
    possible = np.ones(counts.shape, bool)
    if successors is not None:
        possible, successors = _read_successors(successors, counts.shape)
    if support is not None:
        support = np.asarray(support)
        if support.dtype != bool or support.shape != counts.shape:
            raise ValueError(
                f"support is {support.dtype} {support.shape}: give booleans of the shape {counts.shape}"
            )
        possible &= support
    require(
        possible | (counts == 0),
        "counts",
        counts,
        "is of what is not possible",
        "mend the counts or the support",
    )
    empty = np.argwhere(~possible.any(-1))
    if len(empty):
        raise ValueError(
            f"counts{empty[0].tolist()} has no possible next state: give it one, if only to stay"
        )
    if action_mask is not None and np.shape(action_mask) != counts.shape[:2]:
        raise ValueError(
            f"action_mask has shape {np.shape(action_mask)}, not {counts.shape[:2]}, (state, action)"
        )
    if prior == 0:
        available = True if action_mask is None else np.asarray(action_mask)
        unseen = np.argwhere((counts.sum(-1) == 0) & available)
        if len(unseen):
            raise ValueError(
                f"counts{unseen[0].tolist()} sums to 0, of which a prior of 0 makes nothing: "
                "give a prior above 0, or take the action off with action_mask"
            )
    return _Counts(counts.astype(np.float64), possible, successors)


def _read_successors(successors: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Which slots are used, and next states with those that are not repeating the first that is."""
    successors = np.asarray(successors)
    if successors.dtype.kind not in "iu":
        raise TypeError(f"successors has dtype {successors.dtype}: give integers, the number of a state")
    if successors.shape != shape:
        raise ValueError(f"successors has shape {successors.shape}, counts {shape}: give one for each")
    inside = (successors >= -1) & (successors < shape[0])
    require(inside, "successors", successors, "is no state", f"states are 0 to {shape[0] - 1}, -1 is no one")
    used = successors >= 0
    ordered = np.sort(successors, axis=-1)
    twice = np.argwhere(((np.diff(ordered, axis=-1) == 0) & (ordered[..., 1:] >= 0)).any(-1))
    if len(twice):
        raise ValueError(f"successors{twice[0].tolist()} has a state twice: add its counts up")
    first = np.take_along_axis(successors, used.argmax(-1)[..., None], axis=-1)
    return used, np.where(used, successors, np.maximum(first, 0))
