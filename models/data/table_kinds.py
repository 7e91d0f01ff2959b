"""Tables of any kind as what has columns by name: a DataFrame of pandas or polars, or a mapping."""

import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["NULLS", "Labels", "are_whole", "open_table", "read_text_file"]

# Separator by the end of a file's name.
ENDINGS = {".csv": ",", ".tsv": "\t", ".parquet": None}
NULLS = ["", "#N/A N/A", *"NA N/A #N/A #NA n/a NaN nan -NaN -nan null NULL None <NA>".split()]
NULLS += "-1.#IND -1.#QNAN 1.#IND 1.#QNAN".split()
"""Words for nulls, those that pandas knows by default."""

# How pyarrow converts integers with nulls: not to floats.
EXACT = {"integer_object_nulls": True}

Labels = Callable[[Any], Collection[str] | None]
"""Of a column of identifiers or labels the names that they are known to have, perhaps none; None of others."""


def open_table(table: Any, labels: Labels = lambda name: None) -> Any:
    """The table as a DataFrame of pandas or polars, or as a mapping from names to columns.

    Parameters
    ----------
    table : such a DataFrame or mapping; a LazyFrame of polars, a Table of pyarrow or a relation of duckdb, by duck
        type; a list of dictionaries, one per row, where a name that a row lacks is null; or the path of a CSV, TSV or
        parquet file.
    labels : which columns hold identifiers or labels. In files of text these are text, or integers where all entries
        are whole numbers, written in one way, but for words for nulls that are no names.

    Raises
    ------
    FileNotFoundError, ImportError
        If there is no such file, or neither pandas nor polars can read it here.
    TypeError, ValueError
        If it is no table, the file cannot be read, or a lazy table fails.
    """
    kind = type(table)  # a column may have the name of a method
    if isinstance(table, str | Path):
        return _read_file(Path(table), labels)
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


def _read_file(path: Path, labels: Labels) -> Any:
    ending = Path(path.name.lower().removesuffix(".gz")).suffix
    if ending not in ENDINGS:
        raise ValueError(
            f"table is {str(path)!r}, whose name ends in none of {', '.join(ENDINGS)}: read the file, and give the "
            "DataFrame"
        )
    if not path.is_file():
        raise FileNotFoundError(f"table is {str(path)!r}: there is no such file")
    lacking = []
    for read in (_by_pandas, _by_polars):
        try:
            return read(path, ENDINGS[ending], labels)
        except ImportError as error:
            lacking.append(str(error))
        except Exception as error:
            raise ValueError(f"table is {str(path)!r}, which cannot be read: {error}") from error
    raise ImportError(f"table is {str(path)!r}: install pandas or polars to read it ({'; '.join(lacking)})")


def _by_pandas(path: Path, separator: str | None, labels: Labels) -> Any:
    import pandas

    if separator is None:
        return pandas.read_parquet(path, dtype_backend="numpy_nullable")
    return read_text_file(path, separator, labels)


def read_text_file(path: Path, separator: str, labels: Labels) -> Any:
    """The ``pandas.DataFrame`` of a file of text; `labels` and errors are as in `open_table`."""
    import pandas

    header = pandas.read_csv(path, sep=separator, nrows=0).columns
    names = {column: known for column in header if (known := labels(column)) is not None}
    frame = pandas.read_csv(
        path,
        sep=separator,
        dtype_backend="numpy_nullable",
        low_memory=False,
        dtype=dict.fromkeys(names, str),
        keep_default_na=False,
        skip_blank_lines=len(header) > 1,  # of one column, such a line is a row without a value
        na_values={column: [""] if column in names else NULLS for column in header},
    )
    if len(header) == 1:  # empty lines at the end are no rows
        frame = frame.iloc[: int(np.flatnonzero(frame[header[0]].notna()).max(initial=-1)) + 1].copy()
    if len(frame) and not isinstance(frame.index, pandas.RangeIndex):
        raise ValueError("its rows have more entries than its header")
    for column, known in names.items():
        number, words = pandas.factorize(frame[column])
        entries = _labels(words.tolist(), known)
        kind = object if any(isinstance(entry, str) for entry in entries) else "Int64"
        frame[column] = pandas.Series(entries, dtype=kind).reindex(number).array
    return frame


def _by_polars(path: Path, separator: str | None, labels: Labels) -> Any:
    import polars

    if separator is None:
        return polars.read_parquet(path)
    words = polars.read_csv(path, separator=separator, infer_schema_length=0)
    names = {column: known for column in words.columns if (known := labels(column)) is not None}
    frame = polars.read_csv(
        path,
        separator=separator,
        null_values=NULLS,
        infer_schema_length=None,
        schema_overrides=dict.fromkeys(names, polars.String),
    )
    read = {column: _labels(words[column].to_list(), known) for column, known in names.items()}
    return frame.with_columns(polars.Series(column, entries) for column, entries in read.items())


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
