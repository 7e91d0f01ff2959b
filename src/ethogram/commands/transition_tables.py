"""Tables of an MDP: transition probabilities, and features of states."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from ethogram.commands.typed_tables import label_texts, numeric, read_csv, refuse_rows, require_columns
from ethogram.models.data.labels import look_up
from ethogram.models.data.table_kinds import NULLS, are_whole
from ethogram.models.mdps import MDP

if TYPE_CHECKING:
    import pandas

__all__ = ["read_mdp", "read_state_features"]

COLUMNS = ("state", "action", "next_state", "probability")
ROW_SUM_TOLERANCE = 1e-4
"""How far from one the probabilities of a state and action may sum."""


def read_mdp(path: Path, discount: float | int) -> MDP:
    """The MDP of a table with one row per transition of positive probability; states and actions are named.

    An action without a row in a state is not available there.

    Raises
    ------
    ValueError : a column is missing, a cell is empty, a probability is not in [0, 1], those of a state and action do
        not sum to one, or a state has no action; the message has the place.
    """
    import pandas

    table = read_csv("--transitions", path, lambda name: NULLS if _spelling(name) in COLUMNS[:3] else None)
    table.columns = [_spelling(name) for name in table.columns]
    require_columns(path, table, {"--transitions": COLUMNS})
    table = numeric(table, "--transitions", ["probability"])
    for name in COLUMNS:
        refuse_rows("--transitions", table[name], table[name].isna(), ": expected a value")
    probability = table["probability"]
    refuse_rows("--transitions", probability, ~probability.between(0, 1), ": expected a probability, 0 to 1")
    states, place = _coded(pandas.concat([table["state"], table["next_state"]], ignore_index=True))
    actions, action = _coded(table["action"])
    state, following = place[: len(table)], place[len(table) :]
    total = np.zeros((len(states), len(actions)))
    np.add.at(total, (state, action), probability.to_numpy())
    rows = np.zeros(total.shape, int)
    np.add.at(rows, (state, action), 1)
    wrong = np.argwhere((rows > 0) & (np.abs(total - 1) > ROW_SUM_TOLERANCE))
    for one, other in wrong[:1]:
        raise ValueError(
            f"--transitions: probabilities of state {states[one]!r} and action {actions[other]!r} sum to "
            f"{total[one, other]:.6g}: expected 1"
        )
    for one in np.flatnonzero(rows.sum(1) == 0)[:1]:
        raise ValueError(
            f"--transitions: state {states[one]!r} is a next state without a row of its own: expected an action, "
            "if only to stay"
        )
    slot = table.groupby([state, action]).cumcount().to_numpy()
    shape = (*total.shape, int(slot.max()) + 1)
    successors = np.broadcast_to(np.arange(len(states))[:, None, None], shape).copy()
    probabilities = np.zeros(shape)
    probabilities[rows == 0, 0] = 1  # of actions that are not available
    successors[state, action, slot], probabilities[state, action, slot] = following, probability
    available = None if rows.all() else rows > 0
    parts = {"discount": discount, "action_mask": available, "state_names": states, "action_names": actions}
    if shape[-1] == 1:
        return MDP.deterministic(successors[..., 0], **parts)
    return MDP.sparse(successors, probabilities.astype(jnp.result_type(float)), **parts)


def read_state_features(path: Path, states: tuple[str, ...]) -> np.ndarray:
    """Features (state, feature) of a table with a column `state` and one per feature; ValueError unless complete."""
    table = read_csv("--state-features", path, {"state": NULLS}.get)
    require_columns(path, table, {"--state-features": "state"})
    names = [str(name) for name in table.columns if name != "state"]
    if not names:
        raise ValueError(f"--state-features: {path} has the column state alone: expected one per feature")
    table = numeric(table, "--state-features", names)
    for name in names:
        refuse_rows("--state-features", table[name], ~np.isfinite(table[name]), ": expected a finite number")
    labels = label_texts(table["state"])
    refuse_rows(
        "--state-features", labels, labels.duplicated(), ", a second time: expected one row per state"
    )
    values = table.set_index(labels)[names].reindex(states)
    for one in np.flatnonzero(values.isna().any(axis=1))[:1]:
        raise ValueError(
            f"--state-features: {path} has no row of state {states[one]!r}: expected one per state"
        )
    return values.to_numpy()


def _spelling(name: Any) -> str:
    return str(name).strip().lower().replace(" ", "_")


def _coded(column: pandas.Series) -> tuple[tuple[str, ...], np.ndarray]:
    """Names of the distinct labels, in their order, and the number of each row's."""
    texts = label_texts(column).tolist()
    distinct = sorted({*texts}, key=float if are_whole({*texts}) else None)
    return tuple(distinct), look_up(np.array(texts), distinct, "state", "states")
