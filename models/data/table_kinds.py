"""Tables of any kind as what has columns by name: a DataFrame of pandas or polars, or a mapping."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ethogram.models.data.file_names import NameRule, existing_file, find_files, is_path, label_of_file

__all__ = [
    "FILE",
    "NULLS",
    "Labels",
    "are_whole",
    "is_number",
    "number_hint",
    "open_table",
]

FILE = "name of the file"
"""Level of the index of a DataFrame of several files; the other is the row in the file."""

# Separator by the end of a file's name.
ENDINGS = {".csv": ",", ".tsv": "\t", ".parquet": None}
NULLS = ["", "#N/A N/A", *"NA N/A #N/A #NA n/a NaN nan -NaN -nan null NULL None <NA>".split()]
NULLS += "-1.#IND -1.#QNAN 1.#IND 1.#QNAN".split()
"""Words for nulls, those that pandas knows by default."""

# How pyarrow converts integers with nulls: not to floats.
EXACT = {"integer_object_nulls": True}

Labels = Callable[[Any], Collection[str] | None]
"""Of a column of identifiers or labels the names that they are known to have, perhaps none; None of others."""


def open_table(
    table: Any,
    labels: Labels = lambda name: None,
    text: Mapping[str, Any] | None = None,
    rules: Mapping[str, NameRule] | None = None,
) -> Any:
    """The table as a DataFrame of pandas or polars, or as a mapping from names to columns.

    Parameters
    ----------
    table : as in ``Trajectories.from_table``, whose kinds are recognised by duck type.
    labels : which columns hold identifiers or labels. In files of text these are text, or integers where all entries
        are whole numbers, written in one way, but for words for nulls that are no names.
    text : arguments of ``pandas.read_csv`` such as ``sep``, for files of text; those that are None do not count.
    rules : columns that are read from the names of files; ``file`` is the name itself.
    """
    kind = type(table)  # a column may have the name of a method
    text = {name: value for name, value in (text or {}).items() if value is not None}
    if is_path(table) or (isinstance(table, list | tuple) and table and all(map(is_path, table))):
        return _read_files(find_files(table, "table"), labels, text, rules or {})
    if given := [*text, *(rules or ())]:
        raise ValueError(f"{given[0]} is of files, and table is {kind.__name__}: give paths")
    if isinstance(table, list | tuple) and all(isinstance(row, Mapping) for row in table):
        names = dict.fromkeys(name for row in table for name in row)
        return {name: [row.get(name) for row in table] for name in names}
    if hasattr(kind, "collect_schema") and hasattr(kind, "collect"):
        return _run(table, kind.collect)
    if hasattr(kind, "column_names") and hasattr(kind, "to_pandas"):
        return _run(table, lambda table: table.to_pandas(**EXACT))
    if hasattr(kind, "fetchnumpy") and hasattr(kind, "df"):
        return _run(table, kind.df)
    if isinstance(table, Mapping):
        return {name: _column(column) for name, column in table.items()}
    if hasattr(table, "columns") and hasattr(kind, "__len__"):  # a lazy frame of Spark has no length
        return table
    raise TypeError(
        f"table is {kind.__name__}: give a DataFrame, a mapping of columns, a list of dictionaries, or a path"
    )


def _column(column: Any) -> Any:
    """A column of a mapping, an array of pyarrow as a series of pandas."""
    of_arrow = hasattr(type(column), "to_pylist") and hasattr(type(column), "to_pandas")
    return column.to_pandas(**EXACT) if of_arrow else column


def _run(table: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(table)
    except Exception as error:
        raise ValueError(f"table is {type(table).__name__}, and reading it fails: {error}") from error


def _read_files(
    paths: list[Path], labels: Labels, text: Mapping[str, Any], rules: Mapping[str, NameRule]
) -> Any:
    """Rows of the files one after the other, with the columns that all of them have and those of their names."""
    import pandas

    frames = [_read_file(path, labels, text) for path in paths]
    frame, number = frames[0], np.repeat(np.arange(len(paths)), list(map(len, frames)))
    if len(paths) > 1:
        frame = pandas.concat(frames, keys=[path.name for path in paths], names=[FILE, "row"], join="inner")
    own = [*frame.columns]
    for column, rule in ({} if "file" in own else {"file": "file"}).items() | rules.items():
        frame[column] = np.array([label_of_file(path, rule, column) for path in paths], object)[number]
    if paths[0].suffix != ".parquet":
        _read_labels(frame, lambda column: labels(column) if column in own else None)
    return frame


def _read_file(path: Path, labels: Labels, text: Mapping[str, Any]) -> Any:
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    fix = "read the file, and give the DataFrame, or pass sep= if it is text"
    known = ending in ENDINGS or "sep" in text
    existing_file(path, [""] if known else ENDINGS, fix, "table")
    try:
        if ending == ".parquet":
            return _read_parquet(path)
        return _read_text(path, {"sep": ENDINGS.get(ending)} | dict(text), labels)
    except ImportError as error:
        raise ImportError(f"table is {str(path)!r}: install pyarrow or polars to read it") from error
    except Exception as error:
        raise ValueError(f"table is {str(path)!r}, which cannot be read: {error}") from error


def _read_parquet(path: Path) -> Any:
    import pandas

    try:
        return pandas.read_parquet(path, dtype_backend="numpy_nullable")
    except ImportError:
        import polars

        columns = polars.read_parquet(path).to_dict(as_series=False)
        return pandas.DataFrame(columns, dtype=object).convert_dtypes()


def _read_text(path: Path, text: Mapping[str, Any], labels: Labels) -> Any:
    """The ``pandas.DataFrame`` of a file of text, whose columns of `labels` are text; errors are as in `open_table`.

    `text` are arguments of ``pandas.read_csv``, such as ``sep``.
    """
    import pandas

    try:
        header = pandas.read_csv(path, nrows=0, **text).columns
        mark = next((mark for mark in ";\t|," if mark in str(header[0])), None)
        if len(header) == 1 and mark:
            raise ValueError(f"its header is one column, {header[0]!r}: pass sep={mark!r}")
        names = [column for column in header if labels(column) is not None]
        frame = pandas.read_csv(
            path,
            dtype_backend="numpy_nullable",
            low_memory=False,
            dtype=dict.fromkeys(names, str),
            keep_default_na=False,
            skip_blank_lines=len(header) > 1,  # of one column, such a line is a row without a value
            na_values={column: [""] if column in names else NULLS for column in header},
            **text,
        )
    except UnicodeError as error:
        raise ValueError(f'{error}: pass encoding=, such as "latin-1" or "utf-16"') from error
    if len(header) == 1:  # empty lines at the end are no rows
        frame = frame.iloc[: int(np.flatnonzero(frame[header[0]].notna()).max(initial=-1)) + 1].copy()
    if len(frame) and not isinstance(frame.index, pandas.RangeIndex):
        raise ValueError("its rows have more entries than its header")
    return frame


def _read_labels(frame: Any, labels: Labels) -> Any:
    """The frame, of which columns of `labels` are text and become labels, as `open_table` says."""
    import pandas

    for column in frame:
        if (known := labels(column)) is not None:
            number, words = pandas.factorize(frame[column])
            entries = _labels(words.tolist(), known)
            kind = object if any(isinstance(entry, str) for entry in entries) else "Int64"
            frame[column] = pandas.Series(entries, dtype=kind).reindex(number).array
    return frame


def is_number(word: Any) -> bool:
    """Whether Python reads a word as a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True


def number_hint(word: str) -> str:
    """What to do with a word that may be a number in another notation; empty where it is none."""
    if not re.fullmatch(r"\s*[+-]?\d+([.,' \u00a0\u202f]\d+)+\s*", word):
        return ""
    return ': pass decimal="," or thousands= with the path of a file, as it writes numbers, or convert them'


def _labels(words: list[str | None], names: Collection[str]) -> list[Any]:
    """Entries of a column of labels, as `open_table` says."""
    nulls, distinct = {*NULLS} - {*names}, {word for word in words if word and word.strip()}
    known = {word for word in distinct if word.strip() not in nulls}
    if known <= {*names} or not are_whole({word.strip() for word in known}):
        kept = known if names else distinct
        return [word if word in kept else None for word in words]
    number = {word: int(word.strip().partition(".")[0]) for word in known}
    return [number.get(word or "") for word in words]


def are_whole(words: Collection[str]) -> bool:
    """Whether there are words, and all are whole numbers of 32 bits, written in one way: ``"7"``, but not ``"007"``."""
    return any(
        bool(words) and all(re.fullmatch(r"(0|-?[1-9]\d{0,9})" + end, word) for word in words)
        for end in ("", r"\.0+")
    ) and all(abs(float(word)) < 2**31 for word in words)
