"""Tables of any kind as what has columns by name: a DataFrame of pandas or polars, or a mapping."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["open_table"]

# Separator by the end of a file's name, and the words for nulls that pandas knows by default.
ENDINGS = {".csv": ",", ".tsv": "\t", ".parquet": None}
NULLS = ["", "NA", "N/A", "#N/A", "n/a", "NaN", "nan", "-NaN", "-nan", "null", "NULL", "None", "<NA>"]
# How pyarrow converts integers with nulls: not to floats.
EXACT = {"integer_object_nulls": True}


def open_table(table: Any) -> Any:
    """The table as a DataFrame of pandas or polars, or as a mapping from names to columns.

    Parameters
    ----------
    table : such a DataFrame or mapping; a LazyFrame of polars, a Table of pyarrow or a relation of duckdb, by duck
        type; a list of dictionaries, one a row, where a name that a row lacks is null; or the path of a CSV, TSV or
        parquet file.

    Raises
    ------
    FileNotFoundError, ImportError
        If there is no such file, or neither pandas nor polars can read it here.
    TypeError, ValueError
        If it is no table, the file cannot be read, or a lazy table fails.
    """
    kind = type(table)  # a column may have the name of a method
    if isinstance(table, str | Path):
        return _read_file(Path(table))
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


def _read_file(path: Path) -> Any:
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
            return read(path, ENDINGS[ending])
        except ImportError as error:
            lacking.append(str(error))
        except Exception as error:
            raise ValueError(f"table is {str(path)!r}, which cannot be read: {error}") from error
    raise ImportError(f"table is {str(path)!r}: install pandas or polars to read it ({'; '.join(lacking)})")


def _by_pandas(path: Path, separator: str | None) -> Any:
    import pandas

    if separator is None:
        return pandas.read_parquet(path, dtype_backend="numpy_nullable")
    frame = pandas.read_csv(path, sep=separator, dtype_backend="numpy_nullable", low_memory=False)
    if len(frame) and not isinstance(frame.index, pandas.RangeIndex):
        raise ValueError("its rows have more entries than its header")
    return frame


def _by_polars(path: Path, separator: str | None) -> Any:
    import polars

    if separator is None:
        return polars.read_parquet(path)
    return polars.read_csv(path, separator=separator, null_values=NULLS, infer_schema_length=None)
