"""Tables of an MDP: transition probabilities, and features of states."""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np

from ethogram.models.data.columns import Columns
from ethogram.models.data.labels import label_texts, look_up
from ethogram.models.data.table_kinds import NULLS, are_whole
from ethogram.models.mdps.mdp import MDP
from ethogram.models.memory_bound import require_room

__all__ = ["read_mdp", "read_state_features"]

COLUMNS = ("state", "action", "next_state", "probability")
ROW_SUM_TOLERANCE = 1e-4
"""How far from one the probabilities of a state and action may sum."""


def read_mdp(table: Any, *, discount: float | int) -> MDP:
    """The MDP of a table with one row per transition of positive probability; states and actions are named.

    An action without a row in a state is not available there. A state where everything ends needs an action to stay.

    Parameters
    ----------
    table : of any kind that :meth:`Trajectories.from_table <ethogram.Trajectories.from_table>` takes, with the columns
        state, action, next_state and probability.
    discount : as of an `MDP`.
    """
    columns = Columns(table, lambda name: NULLS if _spelling(name) in COLUMNS[:3] else None)
    spelled = {_spelling(name): name for name in columns.names}
    state, action, following = (_labels(columns, spelled.get(name, name)) for name in COLUMNS[:3])
    name = spelled.get("probability", "probability")
    probability, null = columns.features([name], np.arange(columns.num_rows))
    for row in np.flatnonzero(null | ~((probability >= 0) & (probability <= 1)))[:1]:
        raise ValueError(
            f"column {name!r} is {probability[row, 0]} in row {row}: expected a probability, 0 to 1"
        )
    states, place = _coded(np.concatenate([state, following]))
    actions, action = _coded(action)
    state, following = place[: len(state)], place[len(state) :]
    fix = "leave out actions that few states have"
    require_room("transitions", (len(states), len(actions)), float, fix, copies=2)
    total = np.zeros((len(states), len(actions)))
    np.add.at(total, (state, action), probability[:, 0])
    rows = np.zeros(total.shape, int)
    np.add.at(rows, (state, action), 1)
    for one, other in np.argwhere((rows > 0) & (np.abs(total - 1) > ROW_SUM_TOLERANCE))[:1]:
        found = f"{total[one, other]:.6g}: expected 1"
        raise ValueError(
            f"probabilities of state {states[one]!r} and action {actions[other]!r} sum to {found}"
        )
    for one in np.flatnonzero(rows.sum(1) == 0)[:1]:
        raise ValueError(
            f"state {states[one]!r} is a next state without a row of its own: expected an action, if only to stay"
        )
    pair = state * len(actions) + action
    order = np.argsort(pair, kind="stable")
    slot = np.empty_like(order)
    slot[order] = np.arange(len(order)) - np.searchsorted(pair[order], pair[order])
    shape = (*total.shape, int(slot.max()) + 1)
    successors = np.broadcast_to(np.arange(len(states))[:, None, None], shape).copy()
    probabilities = np.zeros(shape)
    probabilities[rows == 0, 0] = 1  # of actions that are not available
    successors[state, action, slot], probabilities[state, action, slot] = following, probability[:, 0]
    available = None if rows.all() else rows > 0
    parts = {"discount": discount, "action_mask": available, "state_names": states, "action_names": actions}
    if shape[-1] == 1:
        return MDP.deterministic(successors[..., 0], **parts)
    return MDP.sparse(successors, probabilities.astype(jnp.result_type(float)), **parts)


def read_state_features(table: Any, mdp: MDP) -> np.ndarray:
    """Features (state, feature) of a table with a column `state`, one row per state, and one column per feature.

    Parameters
    ----------
    table : as of `read_mdp`.
    mdp : whose states the table names.
    """
    columns = Columns(table, {"state": NULLS}.get)
    labels = _labels(columns, "state").tolist()
    names = [name for name in columns.names if name not in ("state", "file")]  # a path is read with its name
    if not names:
        raise ValueError("table has the column state alone: expected one per feature")
    values, null = columns.features(names, np.arange(columns.num_rows))
    for row, feature in np.argwhere(null | ~np.isfinite(values))[:1]:
        raise ValueError(f"column {names[feature]!r} is empty or infinite in row {row}: expected a number")
    rows, row_of = Counter(labels), {label: row for row, label in enumerate(labels)}
    states = mdp.state_names or tuple(map(str, range(mdp.num_states)))
    for state in states:
        if rows[state] != 1:
            raise ValueError(f"table has {rows[state]} rows of state {state!r}: expected one per state")
    return values[[row_of[state] for state in states]].astype(float)


def _spelling(name: Any) -> str:
    return str(name).strip().lower().replace(" ", "_")


def _labels(columns: Columns, name: Any) -> np.ndarray:
    return label_texts(columns.complete(name), f"column {name!r}")


def _coded(texts: np.ndarray) -> tuple[tuple[str, ...], np.ndarray]:
    """The distinct labels in their order, and the number of each row's."""
    distinct = sorted({*texts.tolist()}, key=float if are_whole({*texts.tolist()}) else None)
    return tuple(distinct), look_up(texts, distinct, "state", "states")
