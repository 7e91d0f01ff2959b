r"""Tables for MDPs, read from gymnasium's dictionaries and from counts of transitions; as plain arrays.

Counts n(s, a, s') under a symmetric Dirichlet prior of concentration c on the possible next states give rows
:math:`P(\cdot \mid s, a) \sim \mathrm{Dirichlet}(n(s, a, \cdot) + c)`: Gelman et al. (2013), "Bayesian data analysis",
section 3.4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import (
    read_array,
    require,
    require_flag,
    require_integer,
    require_kind,
    require_number,
    require_one_of,
)
from ethogram.models.memory_bound import require_room

__all__ = ["SPARSE_WAY", "Counts", "concentrations", "read_counts", "read_gymnasium"]

SPARSE_WAY = "give counts (state, action, slot) with successors of the same shape"


class Counts(NamedTuple):
    """Counts (state, action, slot) as floats, which slots are possible, and the next states; None for all in order."""

    counts: np.ndarray
    possible: np.ndarray
    successors: np.ndarray | None


def read_gymnasium(
    P: Any, terminal_actions: str, end_state: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Next states and probabilities (state, action, slot), rewards and mask (state, action), or None for no mask.

    Arguments and errors are those of ``MDP.from_gymnasium``.
    """
    require_one_of("terminal_actions", terminal_actions, ("one", "all"))
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
    successors = np.tile(np.arange(num_states)[:, None, None], (1, num_actions, slots))
    probabilities = np.zeros(successors.shape)
    probabilities[..., 0] = 1
    for at, row in listed.items():
        probabilities[at] = 0
        for slot, (p, s, _, _) in enumerate(row):
            successors[at][slot], probabilities[at][slot] = s, p
        reward[at] = math.fsum(p * r for p, _, r, _ in row)
    return successors, probabilities, reward, None if available.all() else available


def concentrations(read: Counts, prior: float | int) -> np.ndarray:
    """Counts and prior (state, action, slot), zero where impossible; rows that sum to zero have ones."""
    weights = np.where(read.possible, read.counts + prior, 0)
    nothing = (weights.sum(-1, keepdims=True) == 0) & read.possible
    return np.where(nothing, 1, weights)


Entry = tuple[float, int, float, bool]


def _read_rows(P: Any) -> dict[tuple[int, int], list[Entry]]:
    """Checked entries of each state and action that is listed."""
    if not isinstance(P, Mapping | Sequence) or isinstance(P, str) or not len(P):
        raise TypeError(
            f"P is {type(P).__name__}: give the dictionary env.unwrapped.P, with at least one state"
        )
    rows = {}
    for state in range(len(P)):
        try:
            actions = P[state]
        except (KeyError, IndexError):
            raise ValueError(f"P has {len(P)} states and no P[{state}]: number them from 0") from None
        if not isinstance(actions, Mapping | Sequence) or not len(actions):
            raise ValueError(f"P[{state}] is {actions!r}: every state needs an action")
        for action in actions if isinstance(actions, Mapping) else range(len(actions)):
            if isinstance(action, bool) or not isinstance(action, int | np.integer) or action < 0:
                raise ValueError(f"P[{state}] has the action {action!r}: number them from 0")
            rows[state, int(action)] = _read_row(actions[int(action)], f"P[{state}][{action}]", len(P))
    return rows


def _read_row(row: Any, place: str, num_states: int) -> list[Entry]:
    if not isinstance(row, Sequence) or not len(row):
        raise ValueError(f"{place} is {row!r}: give a list of (probability, next state, reward, terminated)")
    found = []
    for number, entry in enumerate(row):
        at = f"{place}[{number}]"
        if not isinstance(entry, Sequence) or len(entry) != 4:
            raise TypeError(f"{at} is {entry!r}, not (probability, next state, reward, terminated)")
        probability, state, reward, ends = entry
        require_flag(f"terminated of {at}", ends)
        found.append(
            (
                require_number(f"the probability of {at}", probability, least=0),
                require_integer(f"the next state of {at}", state, 0, num_states - 1),
                require_number(f"the reward of {at}", reward),
                bool(ends),
            )
        )
    total = math.fsum(probability for probability, *_ in found)
    if abs(total - 1) > 1e-6:
        raise ValueError(
            f"{place} has probabilities that sum to {total:.6g}, not 1: divide them by their sum"
        )
    return found


def _require_one_way(rows: dict[tuple[int, int], list[Entry]], terminal: set[int]) -> None:
    """Raise ValueError where a terminal state is entered from another without termination."""
    for (state, action), row in rows.items():
        for probability, after, _, ends in row:
            if state not in terminal and after in terminal and not ends and probability > 0:
                raise ValueError(
                    f"P[{state}][{action}] enters the terminal state {after} without termination: pass end_state=True, "
                    "which adds one state that all episodes end in"
                )


def read_counts(counts: Any, prior: Any, successors: Any, support: Any, action_mask: Any) -> Counts:
    """Checked counts; arguments and errors are those of ``MDP.from_counts``."""
    require_number("prior", prior, least=0)
    counts = read_array("counts", counts)
    require_kind("counts", counts, "iuf", "give numbers")
    if counts.ndim != 3 or 0 in counts.shape or (successors is None and counts.shape[0] != counts.shape[2]):
        last = "next state" if successors is None else "slot"
        raise ValueError(f"counts has shape {counts.shape}, not (state, action, {last})")
    require_room("counts", counts.shape, np.float64, SPARSE_WAY)
    require(np.isfinite(counts), "counts", counts, "is not finite", "give finite counts")
    require(counts >= 0, "counts", counts, "is negative", "give counts of at least 0")
    possible = np.ones(counts.shape, bool)
    if successors is not None:
        possible, successors = _read_successors(successors, counts.shape)
    if support is not None:
        support = read_array("support", support)
        if support.dtype != bool or support.shape != counts.shape:
            raise ValueError(
                f"support is {support.dtype} {support.shape}: give booleans of the shape {counts.shape}"
            )
        possible &= support
    fix = "correct the counts or the support"
    require(possible | (counts == 0), "counts", counts, "is outside the support", fix)
    require(possible.any(-1), "counts", counts, "has no possible next state", "give it one, if only to stay")
    if action_mask is not None and np.shape(action_mask) != counts.shape[:2]:
        raise ValueError(
            f"action_mask has shape {np.shape(action_mask)}, not {counts.shape[:2]}, (state, action)"
        )
    if prior == 0:
        available = True if action_mask is None else np.asarray(action_mask)
        fault = "sums to 0 and prior is 0, so that the row has no probabilities"
        fix = "give a prior above 0, or make the action unavailable by action_mask"
        require((counts.sum(-1) > 0) | ~np.asarray(available), "counts", counts, fault, fix)
    return Counts(counts.astype(np.float64), possible, successors)


def _read_successors(successors: Any, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Which slots are used, and next states, unused slots repeating the first used one."""
    successors = read_array("successors", successors)
    require_kind("successors", successors, "iu", "give integers, numbers of states")
    if successors.shape != shape:
        raise ValueError(f"successors has shape {successors.shape}, counts {shape}: give one for each")
    inside = (successors >= -1) & (successors < shape[0])
    fix = f"states are 0 to {shape[0] - 1}, -1 marks an unused slot"
    require(inside, "successors", successors, "is not a state", fix)
    used = successors >= 0
    ordered = np.sort(successors, axis=-1)
    twice = ((np.diff(ordered, axis=-1) == 0) & (ordered[..., 1:] >= 0)).any(-1)
    for at in np.argwhere(twice)[:1].tolist():
        raise ValueError(f"successors{at} has a state twice: add up its counts")
    first = np.take_along_axis(successors, used.argmax(-1)[..., None], axis=-1)
    return used, np.where(used, successors, np.maximum(first, 0))
