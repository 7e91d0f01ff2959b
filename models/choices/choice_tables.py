"""Readers of tables of choices: long ones with a row per option, wide ones with a row per decision."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ethogram.models.arguments import as_list, require, require_integer, warn_user
from ethogram.models.choices.choice_formulas import encode_options, read_formula
from ethogram.models.data.columns import Columns, as_names, label_columns, number_groups
from ethogram.models.data.covariates import covariate_columns
from ethogram.models.data.labels import label_texts, look_up
from ethogram.models.data.metadata import Metadata, read_metadata
from ethogram.models.data.padding import Column
from ethogram.models.data.trajectories import ColumnName

__all__ = ["Fields", "read_long", "read_wide"]

Fields = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None, Metadata]
"""Features, legal options, choices, subjects, weights and metadata, in the order of ``Decisions``."""


def read_long(
    table: Any,
    decision: ColumnName | Iterable[ColumnName],
    features: ColumnName | Iterable[ColumnName] | None,
    metadata: Metadata | None,
    text: Mapping[str, Any],
    chosen: ColumnName | None,
    option: ColumnName | None,
    subject: ColumnName | None,
    weight: ColumnName | None,
    available: ColumnName | None,
    formula: str | None,
    base_option: str | None,
) -> Fields:
    """Fields of the decisions of a long table; see :meth:`~ethogram.models.choices.Decisions.from_table`."""
    terms = read_formula(formula, features, metadata)
    names: list[ColumnName] = as_names(features) if terms is None else [*terms.variables]
    columns = Columns(table, label_columns([*as_names(decision), option, subject], [], names), text)
    keys = {name: columns.identifiers(name) for name in as_names(decision)}
    if not keys or not (names or terms):
        raise ValueError("decision and features must each name at least one column")
    number, first_row = number_groups(keys, columns.num_rows)
    count = len(first_row)

    def place(index: int) -> str:
        return f"decision {index} ({', '.join(str(values[first_row[index]]) for values in keys.values())})"

    metadata = read_metadata(metadata)
    slot, metadata = _slots(columns, option, number, metadata)
    named = None if option is None else metadata.action_names
    width = len(named) if named else int(slot.max()) + 1
    cell = number * width + slot
    twice = np.bincount(cell, minlength=count * width) > 1
    if twice.any():
        index, which = divmod(int(twice.argmax()), width)
        raise ValueError(
            f"{place(index)} repeats option {_name(metadata, which)}: pass one row per option, and all columns that "
            "identify a decision, such as person and task"
        )
    there = np.ones(columns.num_rows, bool)
    if available is not None:
        there = _truths(columns.complete(available), available)
    legal = np.zeros((count, width), bool)
    legal[number, slot] = there
    if terms is not None:
        given = covariate_columns(columns, names, None, False)
        padded, metadata = encode_options(
            terms, given, number, slot, there, metadata, base_option, columns.row
        )
    else:
        metadata = _with_names(metadata, feature_names=[str(name) for name in names])
        values, null = columns.features(names, np.arange(columns.num_rows))
        gaps = np.argwhere(null & there[:, None])
        if len(gaps):
            row, which = gaps[0].tolist()
            raise ValueError(
                f"column {names[which]!r} is null in row {row}: every option that is available needs a value"
            )
        padded = np.zeros((count, width, len(names)))
        padded[number, slot] = np.where(there[:, None], values, 0)
    choice = np.full(count, -1)
    if chosen is not None:
        taken = _truths(columns.complete(chosen), chosen)
        if (taken & ~there).any():
            row = int((taken & ~there).argmax())
            raise ValueError(
                f"{place(int(number[row]))} has chosen an option that column {available!r} says is not available, in "
                f"row {row}: correct one of them"
            )
        many = np.bincount(number[taken], minlength=count) > 1
        if many.any():
            raise ValueError(
                f"{place(int(many.argmax()))} has more than one row with {chosen!r} true: mark one chosen option"
            )
        choice[number[taken]] = slot[taken]
        if (choice < 0).any():
            warn_user(
                f"{(choice < 0).sum()} of {count} decisions have no row with {chosen!r} true, such as "
                f"{place(int((choice < 0).argmax()))}: their choices count as unknown"
            )

    def constant(name: ColumnName) -> np.ndarray:
        values = columns.complete(name)
        changed = values != values[first_row][number]
        if changed.any():
            row = int(changed.argmax())
            raise ValueError(f"column {name!r} changes in row {row}, within {place(int(number[row]))}")
        return values[first_row]

    who, often = None, None if weight is None else constant(weight)
    if subject is not None:
        who, metadata = _subjects(constant(subject), metadata)
    return padded, legal, choice, who, often, metadata


def read_wide(
    table: Any,
    features: dict[str, Sequence[ColumnName | None]],
    metadata: Metadata | None,
    text: Mapping[str, Any],
    choice: ColumnName | None,
    base: int | None,
    legal: Sequence[ColumnName] | None,
    subject: ColumnName | None,
    weight: ColumnName | None,
    formula: str | None,
    base_option: str | None,
) -> Fields:
    """Fields of the decisions of a wide table; see :meth:`~ethogram.models.choices.Decisions.from_wide`."""
    known = None if metadata is None or base is not None else metadata.action_names
    columns = Columns(table, label_columns([subject], [(choice, known)]), text)
    if not isinstance(features, Mapping):
        raise TypeError(
            f"features is {type(features).__name__}: give a dictionary from names to a column per option"
        )
    features = {
        name: as_list(f"features[{name!r}]", slots, "one column per option")
        for name, slots in features.items()
    }
    if legal is not None:
        legal = as_list("legal", legal, "one column per option")
    widths = {name: len(slots) for name, slots in features.items()}
    if not widths or len(set(widths.values())) != 1 or 0 in widths.values():
        raise ValueError(
            f"features have {widths} options: list one column, or None, an option for every feature"
        )
    width = next(iter(widths.values()))
    metadata, terms = read_metadata(metadata), None
    if formula is not None or metadata.formula is not None:
        terms = read_formula(formula, None, metadata)
    else:
        metadata = _with_names(metadata, feature_names=list(map(str, features)))
    if metadata.action_names is not None and len(metadata.action_names) != width:
        raise ValueError(
            f"metadata.action_names has {len(metadata.action_names)} names, features {width} options"
        )
    padded = np.zeros((columns.num_rows, width, len(features)))
    null = np.zeros(padded.shape, bool)
    for number, slots in enumerate(features.values()):
        for slot, name in enumerate(slots):
            if name is not None:
                values = columns.features([name], np.arange(columns.num_rows))
                padded[:, slot, number], null[:, slot, number] = values.values[:, 0], values.null[:, 0]
    if legal is None:
        allowed = np.logical_not(null.any(axis=-1))
    else:
        if len(legal) != width:
            raise ValueError(f"legal names {len(legal)} columns, features {width} options")
        allowed = np.stack([_truths(columns.complete(name), name) for name in legal], axis=1)
        missing = np.argwhere(allowed[..., None] & null)
        if len(missing):
            row, slot, number = missing[0].tolist()
            name = list(features.values())[number][slot]
            raise ValueError(f"column {name!r} is null in row {row}, where its option is legal")
    padded[null] = 0
    if terms is not None:
        decision, place = np.indices(allowed.shape).reshape(2, -1)
        given: dict[str, Any] = {
            str(name): (Column(padded[..., at].ravel(), null[..., at].ravel()), None)
            for at, name in enumerate(features)
        }
        others = [name for name in terms.variables if name not in given]
        for name, (column, levels) in covariate_columns(columns, others, None, False).items():
            given[name] = column.take(decision), levels
        padded, metadata = encode_options(
            terms,
            given,
            decision,
            place,
            allowed.ravel(),
            metadata,
            base_option,
            lambda at: columns.row(at // width),
        )
    chosen = np.full(columns.num_rows, -1)
    if choice is not None:
        chosen = _choices(*columns[choice], choice, base, width, metadata)
    who, often = None, None if weight is None else columns.complete(weight)
    if subject is not None:
        who, metadata = _subjects(columns.complete(subject), metadata)
    return padded, allowed, chosen, who, often, metadata


def _with_names(metadata: Metadata | None, **names: Any) -> Metadata:
    """The metadata, with these names where it has none."""
    metadata = read_metadata(metadata)
    missing = {field: value for field, value in names.items() if getattr(metadata, field) is None}
    return dataclasses.replace(metadata, **missing)


def _slots(
    columns: Columns, option: ColumnName | None, number: np.ndarray, metadata: Metadata
) -> tuple[np.ndarray, Metadata]:
    """Slot of each row's option, and the metadata with the slots' names."""
    if option is None:
        order = np.argsort(number, kind="stable")
        slot = np.empty(len(number), int)
        slot[order] = np.arange(len(order)) - np.searchsorted(number[order], number[order])
        return slot, metadata
    labels = label_texts(columns.complete(option), f"column {option!r}, row ")
    metadata, rows = _with_names(metadata, action_names=sorted(set(labels.tolist()))), np.arange(len(labels))
    names, source = metadata.action_names or (), "metadata.action_names"
    return look_up(labels, names, f"column {option!r}", source, rows=rows), metadata


def _subjects(values: np.ndarray, metadata: Metadata) -> tuple[np.ndarray, Metadata]:
    metadata = _with_names(metadata, subject_names=label_texts(np.unique(values), "subject").tolist())
    return look_up(values, metadata.subject_names or (), "subject", "metadata.subject_names"), metadata


def _choices(
    values: np.ndarray, null: np.ndarray, column: ColumnName, base: int | None, width: int, metadata: Metadata
) -> np.ndarray:
    numbers = values.dtype.kind in "iu" or (values.dtype.kind == "f" and (values[~null] % 1 == 0).all())
    if numbers and (base is not None or metadata.action_names is None):
        unknown = null | (values == -1)
        if base == 1 and (zero := ~unknown & (values == 0)).any():
            warn_user(
                f"column {column!r} is 0 in {zero.sum()} of {len(values)} rows, and base=1 is the first option: they "
                "count as unknown choices"
            )
            unknown = unknown | zero
        known = values[~unknown]
        if base is None and known.size and known.min() > 0:
            raise ValueError(
                f"column {column!r} has integers from {known.min()} to {known.max()}, and never 0: pass base=1 if they "
                "number the options from 1, or base=0 if nobody chose the first option"
            )
        first = 0 if base is None else require_integer("base", base)
        wrong = ~unknown & ((values < first) | (values >= first + width))
        fix = f": options are {first} to {first + width - 1}, or -1"
        fix += "; pass base=1 if they count from 1, and 0 is an unknown choice" if base is None else ""
        require(~wrong, f"column {column!r}, row ", values, fix)
        return np.where(unknown, -1, np.where(unknown, first, values).astype(int) - first)
    if metadata.action_names is None:
        raise TypeError(
            f"column {column!r} has dtype {values.dtype}: pass integers, or metadata with action_names"
        )
    if numbers and "-1" not in metadata.action_names:
        null = null | (values == -1)
    chosen = np.full(len(values), -1)
    fix = ", or pass base=0 or base=1, the number of the first option"
    known = np.flatnonzero(~null)
    names, source = metadata.action_names, "metadata.action_names"
    chosen[known] = look_up(values[known], names, f"column {column!r}", source, fix, known)
    return chosen


def _truths(values: np.ndarray, column: ColumnName) -> np.ndarray:
    if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise TypeError(f"column {column!r} must be boolean, or 1 and 0")
    return values.astype(bool)


def _name(metadata: Metadata, slot: int) -> str:
    return str(slot) if metadata.action_names is None else repr(metadata.action_names[slot])
