"""CSV files of the command, and columns of numbers and of names; errors name argument, file, column and row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ethogram.models.data.table_kinds import Labels, read_labels, read_text_file

if TYPE_CHECKING:
    import pandas

__all__ = ["label_texts", "named", "numeric", "read_csv", "refuse_rows", "require_columns"]


def read_csv(argument: str, path: Path, labels: Labels) -> pandas.DataFrame:
    """A table with a header and at least one row; ValueError where the file has none.

    Columns of `labels` are text, or integers where all entries are; see `open_table`.
    """
    if not path.is_file():
        what = "a folder" if path.is_dir() else "no file"
        raise ValueError(f"{argument} is {path}, which is {what}: give a CSV file with a header")
    try:
        table = read_labels(read_text_file(path, {}, labels), labels)
    except ValueError as error:
        raise ValueError(f"{argument} is {path}, which cannot be read as CSV: {error}") from error
    if table.empty:
        raise ValueError(f"{argument} is {path}, which has no rows below its header: give at least one")
    return table


def require_columns(path: Path, table: pandas.DataFrame, given: Mapping[str, Any]) -> None:
    """Raise ValueError unless the columns that arguments name are there."""
    for argument, names in given.items():
        for name in [names] if isinstance(names, str) else names or []:
            if name not in table.columns:
                found = ", ".join(map(str, table.columns))
                raise ValueError(f"{argument}: {path} has no column {name!r}: its columns are {found}")


def refuse_rows(argument: str, column: pandas.Series, wrong: pandas.Series, fault: str) -> None:
    """Raise ValueError with the first row in which a column is wrong, if there is one."""
    import pandas

    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        value = column[row]
        shown = "empty" if pandas.isna(value) else repr(value) if isinstance(value, str) else value
        raise ValueError(f"{argument}: column {column.name!r} is {shown} in row {row}{fault}")


def numeric(table: pandas.DataFrame, argument: str, names: Sequence[str]) -> pandas.DataFrame:
    """The table with these columns as floats; ValueError where one holds a word."""
    import pandas

    columns = {}
    for name in names:
        read = pandas.to_numeric(table[name], errors="coerce")
        refuse_rows(argument, table[name], read.isna() & table[name].notna(), ": expected numbers")
        columns[name] = read.astype(float)
    return table.assign(**columns)


def label_texts(column: pandas.Series) -> pandas.Series:
    """Labels as texts, None where there is none."""
    return column.astype(object).map(str, na_action="ignore").where(column.notna(), None)


def named(
    table: pandas.DataFrame, argument: str, name: str, known: Sequence[str], source: Path
) -> pandas.Series:
    """Labels of a column, validated against those in a file."""
    texts = label_texts(table[name])
    some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    refuse_rows(
        argument,
        texts,
        texts.notna() & ~texts.isin(known),
        f", which is not in {source}: its labels are {some}",
    )
    return texts
