"""Rows of an agent Markov model that occur in the data: Unhelkar and Shah (2019), eq. 9-14; bounds: eq. 19."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ethogram.models.arguments import concretely, require
from ethogram.models.chains.conjugate_chain import ChainData
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.state_action_steps import AgentSteps
from ethogram.models.families.constrained_dirichlet import mean_within
from ethogram.models.intents.constraints import bounds_of

__all__ = [
    "RowBounds",
    "Visited",
    "arranged",
    "carried_rows",
    "check_shared_rows",
    "check_visited",
    "refuse_changes",
    "row_coords",
]


MOST = 0.5
"""Share of the states and of the pairs from which a fit carries all rows: other data then share its programs."""


class RowBounds(NamedTuple):
    """Rows of a table whose means have bounds, on the host."""

    rows: Any  # (bounded row,): index in the table, its batch axes flattened
    lower: Any  # (bounded row, entry)
    upper: Any
    mean: Any  # some mean within the bounds


class Visited(NamedTuple):
    """The rows that a fit carries, in order, on the host: those that occur in its data, or all where most of them do.

    A pair is a state and an action, ``state * (num_actions + 1) + action``, the action after the last for a missing
    one. The rows of the pairs are followed by spare ones, one for each kind of bounds that pairs without data have.
    """

    states: Any  # (visited state,)
    pairs: Any  # (pair,)
    row_pair: Any  # (row,): the pair of every kind of step; a kind is a pair with a stay label
    row_stay: Any  # (row,): 1 the intent stayed, 0 it changed, -1 unknown
    never: Any  # (pair + spare,): whether the intent never changes
    row_of: Any  # (state, action + 1): pair or spare; -1 the prior's row, -2 never switch
    pair_bounds: RowBounds | None = None
    policy_bounds: RowBounds | None = None
    forbidden: Any = None  # (intent, visited state, action): never taken

    @property
    def num_rows(self) -> int:
        """Pairs and spares."""
        return self.never.shape[0]


def carried_rows(model: Any, steps: AgentSteps | None) -> Visited:
    """The rows that `model` carries for some steps; all of them, without stay labels, where None."""
    num_states, num_actions = model.num_states, model.num_actions
    labels = np.array([-1]) if model.stay_accuracy is None or steps is None else np.array([-1, 0, 1])
    states, shared = np.arange(num_states), model.rows == "shared"
    pairs = (
        np.zeros(1, int) if shared else (states[:, None] * (num_actions + 1) + np.arange(num_actions)).ravel()
    )
    carries_all = model.rows == "all"
    if steps is not None:
        occurring = np.unique(steps.pair[steps.leaving])
        visited = np.unique(steps.state[steps.inside])
        if model.rows == "visited":
            known = np.isin(pairs, occurring)
            carries_all = known.mean() >= MOST and len(visited) >= MOST * num_states
        if carries_all:
            pairs = np.union1d(pairs, occurring)  # the rows of missing actions, where some are
        else:
            states, pairs = visited, occurring
        if not len(pairs):  # traces of one step have no transition: one row without counts
            pairs = steps.pair[steps.inside][:1]
    if steps is None or carries_all:
        kinds = np.stack([x.ravel() for x in np.meshgrid(pairs, labels, indexing="ij")], axis=-1)
    else:
        kinds = np.unique(np.stack([steps.pair, steps.stay], axis=-1)[steps.leaving], axis=0)
        if not len(kinds):
            kinds = np.array([[pairs[0], -1]])
    row_of = np.full(num_states * (num_actions + 1), 0 if shared else -1)
    never = np.zeros(len(pairs), bool)
    pair_bounds = policy_bounds = forbidden = None
    if model.constraints:
        never, pair_bounds = _bounded_pairs(model, pairs, row_of)
        policy_bounds, forbidden = _bounded_policies(model, states)
    row_of[pairs] = np.arange(len(pairs))
    return Visited(
        states=states,
        pairs=pairs,
        row_pair=np.searchsorted(pairs, kinds[:, 0]),
        row_stay=kinds[:, 1],
        never=never,
        row_of=row_of.reshape(num_states, num_actions + 1).astype(np.int32),
        pair_bounds=pair_bounds,
        policy_bounds=policy_bounds,
        forbidden=forbidden,
    )


def check_visited(model: Any, rows: Visited) -> None:
    """Raise ValueError unless rows, such as those of a file, are of the shapes and numbers that the model has."""
    if not isinstance(rows, Visited):
        raise TypeError(f"visited is {type(rows).__name__}: call model.bind(data)")
    count, cells = model.truncation, model.num_states * (model.num_actions + 1)
    sizes = {
        name: len(np.atleast_1d(getattr(rows, name))) for name in ("states", "pairs", "row_pair", "never")
    }
    total = sizes["never"]
    for name, shape, kinds, low, high in (
        ("states", (sizes["states"],), "iu", 0, model.num_states),
        ("pairs", (sizes["pairs"],), "iu", 0, cells),
        ("row_pair", (sizes["row_pair"],), "iu", 0, sizes["pairs"]),
        ("row_stay", (sizes["row_pair"],), "iu", -1, 2),
        ("never", (max(total, sizes["pairs"]),), "b", 0, 2),
        ("row_of", (model.num_states, model.num_actions + 1), "iu", -2, total),
        ("forbidden", (count, sizes["states"], model.num_actions), "b", 0, 2),
    ):
        value = getattr(rows, name)
        if value is not None or name != "forbidden":
            _check_numbers(f"visited.{name}", value, shape, kinds, low, high)
    for name, entries, most in (
        ("pair_bounds", count + 1, total * count),
        ("policy_bounds", model.num_actions, count * sizes["states"]),
    ):
        bounds = getattr(rows, name)
        if bounds is None:
            continue
        num_rows = len(np.atleast_1d(bounds.rows))
        _check_numbers(f"visited.{name}.rows", bounds.rows, (num_rows,), "iu", 0, most)
        for part in ("lower", "upper", "mean"):
            where = f"visited.{name}.{part}"
            _check_numbers(where, getattr(bounds, part), (num_rows, entries), "f", 0, 1 + 1e-6)


def _check_numbers(name: str, value: Any, shape: tuple[int, ...], kinds: str, low: Any, high: Any) -> None:
    array = np.asarray(value)
    if array.dtype.kind not in kinds or array.shape != shape:
        raise ValueError(
            f"{name} is {array.dtype} of shape {array.shape}, expected shape {shape}: bind again"
        )
    require((array >= low) & (array < high), name, array, f"is not in [{low}, {high})", "bind again")


def _bounded_pairs(model: Any, pairs: np.ndarray, row_of: np.ndarray) -> tuple[np.ndarray, RowBounds | None]:
    """Which rows never switch, and bounds of the others; rows of pairs without data are written into `row_of`."""
    count = model.truncation
    cells = np.arange(len(row_of))
    never, lower, upper = bounds_of(model.constraints, "intents", cells, model.num_actions, count)
    each = ((lower > 0) | (upper < 1)).any(2) & ~never[:, None]  # (pair, intent)
    bounded = each.any(1)
    row_of[never] = -2
    away = np.flatnonzero(bounded & ~np.isin(np.arange(len(row_of)), pairs))
    if len(away):  # pairs without data and with equal bounds share a row
        kinds = np.concatenate([lower[away], upper[away]], axis=1).reshape(len(away), -1)
        _, first, which = np.unique(kinds, axis=0, return_index=True, return_inverse=True)
        row_of[away] = len(pairs) + which.reshape(-1)
        away = away[first]
    cells = np.concatenate([pairs, away])
    here = each[cells]
    if not here.any():
        return never[cells], None
    start = np.full((here.sum(), count + 1), 1 / (count + 1))
    return never[cells], _row_bounds(np.flatnonzero(here), lower[cells][here], upper[cells][here], start)


def _bounded_policies(model: Any, states: np.ndarray) -> tuple[RowBounds | None, np.ndarray | None]:
    count, num_actions = model.truncation, model.num_actions
    _, *bounds = bounds_of(model.constraints, "actions", states, num_actions, count)
    lower, upper = (np.moveaxis(bound, 0, 1) for bound in bounds)
    never = upper == 0
    bounded = ((lower > 0) | ((upper < 1) & ~never)).any(-1)
    forbidden = never if never.any() else None
    if not bounded.any():
        return None, forbidden
    rho = np.broadcast_to(np.asarray(model.rho), (model.num_states, num_actions))[states]
    rho = np.where(never, 0, rho)
    mean = rho / rho.sum(-1, keepdims=True)
    place = np.flatnonzero(bounded.ravel())
    return _row_bounds(place, lower[bounded], upper[bounded], mean[bounded]), forbidden


def _row_bounds(rows: np.ndarray, lower: np.ndarray, upper: np.ndarray, base: np.ndarray) -> RowBounds:
    lower, upper = (x.reshape(len(rows), -1) for x in (lower, upper))
    return RowBounds(rows, lower, upper, mean_within(base, lower, upper))


def arranged(steps: AgentSteps, rows: Visited, actions: int, lengths: Any) -> ChainData:
    """Traces as the chain kernel reads them, renumbered as rows are carried; ValueError where one is not."""
    states, pairs = np.asarray(rows.states), np.asarray(rows.pairs)
    kinds = pairs[np.asarray(rows.row_pair)] * 3 + np.asarray(rows.row_stay) + 1
    sought = steps.pair * 3 + steps.stay + 1
    order = np.argsort(kinds, kind="stable")
    place = np.minimum(np.searchsorted(kinds[order], sought), len(kinds) - 1)
    row = order[place]
    state = np.minimum(np.searchsorted(states, steps.state), len(states) - 1)
    lost = (steps.inside & (states[state] != steps.state)) | (steps.leaving & (kinds[row] != sought))
    for at in np.argwhere(lost)[:1].tolist():
        raise ValueError(
            f"data{at} has a state, action or stay label that the model was not bound to: call model.bind(data)"
        )
    known = steps.action >= 0
    symbol = np.where(steps.inside & known, state * actions + steps.action, 0)
    row = np.where(steps.leaving, row, 0)
    symbol, row = symbol.astype(np.int32), row.astype(np.int32)
    return ChainData(*concretely(lambda xp, *x: x, symbol, steps.inside & known, lengths, None, row))


def refuse_changes(model: Any, steps: AgentSteps, rows: Visited) -> None:
    """Raise ValueError where a label of accuracy 1 says that the intent changed and it cannot."""
    if model.stay_accuracy is None or float(model.stay_accuracy) < 1:
        return
    place = np.minimum(np.searchsorted(rows.pairs, steps.pair), len(rows.pairs) - 1)
    alone = model.truncation == 1
    wrong = steps.leaving & (steps.stay == 0) & (np.asarray(rows.never)[place] | alone)
    for trace, step in np.argwhere(wrong)[:1].tolist():
        why = "truncation=1 allows one intent" if alone else "constraints rule out a change"
        raise ValueError(
            f"data.stay[{trace}, {step}] says that the intent changed at state {steps.state[trace, step]}, where "
            f"{why}: this has probability 0 with stay_accuracy=1; lower the accuracy, or correct the label"
        )


def row_coords(model: Any, names: Metadata) -> dict[str, list[Any]]:
    """Coordinates of the rows of `model`, by the names of states and actions where there is one for each."""
    rows = model.rows_carried()
    states: list[Any] = list(range(model.num_states))
    actions: list[Any] = list(range(model.num_actions))
    if names.state_names is not None and len(names.state_names) == len(states):
        states = list(names.state_names)
    coords: dict[str, list[Any]] = {}
    if names.action_names is not None and len(names.action_names) == len(actions):
        coords["action"] = actions = list(names.action_names)
    before, taken = np.divmod(np.asarray(rows.pairs), model.num_actions + 1)
    pairs = [f"{states[s]},{[*actions, '-'][a]}" for s, a in zip(before, taken, strict=True)]
    pairs = ["any"] if model.rows == "shared" else pairs
    spare = [f"spare {number}" for number in range(rows.num_rows - len(pairs))]
    return coords | {"pair": pairs + spare, "visited_state": [states[s] for s in np.asarray(rows.states)]}


def check_shared_rows(constraints: Any) -> None:
    """Raise ValueError where constraints are of the intents at some states and actions only."""
    if constraints is not None and any(rule.kind != "action" for rule in constraints.rules):
        raise ValueError(
            'rows="shared" has one row over intents for all states and actions, and constraints on intents '
            'hold at some: leave them out, or give rows="visited"'
        )
