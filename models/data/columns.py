"""Columns of a table of any kind, by name: read once, and their groups of rows numbered."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ethogram.models.arguments import as_list, require_kind
from ethogram.models.data.file_names import NameRule
from ethogram.models.data.labels import refuse_merged
from ethogram.models.data.metadata import ColumnName
from ethogram.models.data.padding import Column, read_column
from ethogram.models.data.table_kinds import (
    FILE,
    NULLS,
    Labels,
    is_number,
    number_hint,
    open_table,
)
from ethogram.models.data.times import Times, read_times

__all__ = ["Columns", "as_names", "label_columns", "number_groups"]


class Columns:
    """Columns by name, read once; `labels` as in `open_table`."""

    def __init__(
        self,
        table: Any,
        labels: Labels = lambda name: None,
        text: Mapping[str, Any] | None = None,
        rules: Mapping[str, NameRule] | None = None,
    ) -> None:
        self.table = table = open_table(table, labels, text, rules)
        index = None if isinstance(table, Mapping) else getattr(table, "index", None)
        self.several_files: bool = getattr(index, "names", [None])[0] == FILE
        self.names: list[Any] = list(table) if isinstance(table, Mapping) else list(table.columns)
        self.read: dict[ColumnName, Column] = {}
        self.num_rows = self._count_rows()
        if self.num_rows == 0:
            raise ValueError("table has no rows: it needs at least one")

    def _count_rows(self) -> int:
        if not self.names:
            return 0
        if not isinstance(self.table, Mapping):
            return len(self.table)
        first = self.table[self.names[0]]
        if isinstance(first, str | bytes | Mapping | set | frozenset) or not hasattr(first, "__len__"):
            raise TypeError(f"column {self.names[0]!r} is {type(first).__name__}: give a list or an array")
        if getattr(first, "shape", None) == ():
            raise TypeError(f"column {self.names[0]!r} is a single value: give one per row")
        return len(first)

    def require(self, name: ColumnName) -> None:
        """Raise ValueError unless there is one column of this name."""
        if not isinstance(name, ColumnName):
            raise TypeError(f"{name!r} is no column name: give a string or an integer")
        if name not in self.names:
            every = "those of every file" if self.several_files else "its columns"
            raise ValueError(f"table has no column {name!r}: {every} are {self.names}")
        if self.names.count(name) > 1:
            raise ValueError(f"table has several columns {name!r}: rename them")

    def __getitem__(self, name: ColumnName) -> Column:
        self.require(name)
        if name not in self.read:
            column = read_column(self.table[name], f"column {name!r}")
            if column.null.shape != (self.num_rows,):
                raise ValueError(
                    f"column {name!r} has shape {column.null.shape}, not ({self.num_rows},), one entry per row"
                )
            self.read[name] = column
        return self.read[name]

    def row(self, number: int | np.integer) -> str:
        """How messages call a row: by its place in the table, or in its file where there are several."""
        if not self.several_files:
            return f"row {number}"
        file, row = self.table.index[number]
        return f"row {row} of {file}"

    def complete(self, name: ColumnName) -> np.ndarray:
        """Values of a column that may not have nulls."""
        values, null = self[name]
        if null.any():
            raise ValueError(f"column {name!r} is null in {self.row(null.argmax())}: every row needs a value")
        return values

    def identifiers(self, name: ColumnName) -> np.ndarray:
        """Values of a column that tell rows apart, without nulls."""
        values = self.complete(name)
        refuse_merged(values, f"column {name!r}, row ")
        return values

    def times(self, name: ColumnName, day_first: bool | None = None) -> Times:
        """Times of a column, and their zone; see `read_times`."""
        self.require(name)
        return read_times(self.table[name], f"column {name!r}", self.num_rows, day_first)

    def features(self, names: list[ColumnName], order: np.ndarray) -> Column:
        """Numeric columns in this order of rows, one per feature."""
        for name in names:
            values, null = self[name]
            rows = np.flatnonzero(~null) if values.dtype.kind == "U" else ()
            row = next((row for row in rows if not is_number(values[row])), None)
            word = "" if row is None else str(values[row])
            came = "" if row is None else f", and {self.row(row)} is {word!r}{number_hint(word)}"
            require_kind(f"column {name!r}", values, "biuf", f"features must be numbers{came}")
        parts = [self[name].take(order) for name in names]
        return Column(*(np.stack(each, axis=1) for each in zip(*parts, strict=True)))


def label_columns(
    identifiers: Iterable[Any], labels: Iterable[tuple[Any, Iterable[str] | None]], others: Iterable[Any] = ()
) -> Labels:
    """Columns of identifiers, none of which is missing, and of labels with their names or None, for `Columns`."""
    names: dict[Any, list[str]] = {}
    for column, known in (*((each, NULLS) for each in identifiers), *labels):
        if isinstance(column, str) and column not in [*others]:
            names.setdefault(column, []).extend(known or ())
    return names.get


def as_names(names: ColumnName | Iterable[ColumnName] | None) -> list[ColumnName]:
    """One name or several, as a list."""
    if names is None:
        return []
    if isinstance(names, ColumnName):
        return [names]
    several = as_list("column names", names, "column names")
    for name in several:
        if not isinstance(name, ColumnName):
            raise TypeError(f"{name!r} is no column name: give a string or an integer")
    return several


def number_groups(keys: dict[ColumnName, np.ndarray], num_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Number of each row's group, in the order of first rows, and each group's first row."""
    import pandas

    number = np.zeros(num_rows, np.int64)
    if keys:
        number = pandas.DataFrame(keys).groupby([*keys], sort=False).ngroup().to_numpy()
    number = number.astype(np.int32 if num_rows < 2**31 else np.int64)
    return number, np.flatnonzero(np.diff(np.maximum.accumulate(number), prepend=-1))
