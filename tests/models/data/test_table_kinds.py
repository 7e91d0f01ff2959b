"""Tables of every kind against one written by hand, random ones against their rows, and what cannot be read."""

import datetime
import gzip
import sys
import types

import numpy as np
import pandas
import polars
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ethogram import Trajectories
from ethogram.models.data.table_kinds import open_table

ROWS = {
    "herd": ["b", "b", "a", "b"],
    "iso": [f"2024-03-31T{time}:00" for time in ("01:40:00+01", "01:50:00+01", "05:00:00+02", "03:10:00+02")],
    "n": [1, None, 3, 4],
    "x": [0.5, 1.5, 2.5, None],
    "act": ["up", None, "up", "down"],
    "kept": [True, False, None, None],
}


def arrow(columns):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return pyarrow.table(dict(columns))


def relation(columns):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    frame = pandas.DataFrame(columns).convert_dtypes()
    return duckdb.connect().from_df(frame)


def arrow_columns(columns):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    return {name: pyarrow.array(column) for name, column in columns.items()}


def arrow_types(columns):
    return arrow(columns).to_pandas(types_mapper=pandas.ArrowDtype)


def rows_of(columns):
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def csv(columns, folder, name="table.csv"):
    path = folder / name
    frame = pandas.DataFrame(columns).astype({"n": "Int64"})
    frame.to_csv(path, index=False, sep="\t" if name.startswith("table.tsv") else ",")
    return path


def parquet(columns, folder):
    path = folder / "table.parquet"
    polars.DataFrame(columns).write_parquet(path)
    return path


KINDS = {
    "mapping": lambda columns, folder: dict(columns),
    "rows": lambda columns, folder: rows_of(columns),
    "pandas": lambda columns, folder: pandas.DataFrame(columns).convert_dtypes(),
    "polars": lambda columns, folder: polars.DataFrame(columns),
    "lazy": lambda columns, folder: polars.LazyFrame(columns),
    "csv": csv,
    "csv as text": lambda columns, folder: str(csv(columns, folder)),
    "tsv, gzipped": lambda columns, folder: csv(columns, folder, "table.tsv.gz"),
    "parquet": parquet,
    "pyarrow": lambda columns, folder: arrow(columns),
    "pyarrow columns": lambda columns, folder: arrow_columns(columns),
    "pyarrow in pandas": lambda columns, folder: arrow_types(columns),
    "duckdb": lambda columns, folder: relation(columns),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_gives_the_same_trajectories(kind, tmp_path):
    def read(columns, **options):
        table = KINDS[kind](columns, tmp_path)
        return Trajectories.from_table(
            table, sequence="herd", features="n", actions="act", stay="kept", step="10min", missing="nan",
            **options,
        )  # fmt: skip

    data = read(ROWS, time="iso")
    nan = np.nan
    np.testing.assert_array_equal(data.observations[..., 0], [[1, nan, nan, 4], [3, 0, 0, 0]])
    assert data.observations.dtype == float
    assert data.observed.tolist() == [[True, False, False, True], [True, False, False, False]]
    assert data.actions.tolist() == [[1, -1, -1, 0], [1, -1, -1, -1]]
    assert data.stay.tolist() == [[1, 0, -1, -1], [-1, -1, -1, -1]]
    assert data.lengths.tolist() == [4, 1] and data.metadata.action_names == ("down", "up")
    first = np.datetime64("2024-03-31T00:40", "ns").astype(int)  # clocks were put forward at 01:00 UTC
    assert ((data.times[0] - first) / 6e11).tolist()[::3] == [0, 3] and data.metadata.time_zone == "UTC"
    if not kind.startswith(("csv", "tsv")):  # files of text have no dates
        dates = [datetime.datetime.fromisoformat(time).astimezone(datetime.UTC) for time in ROWS["iso"]]
        again = read(ROWS | {"date": dates}, time="date")
        for one, other in zip(tuple(again)[:-1], tuple(data)[:-1], strict=True):
            np.testing.assert_array_equal(one, other)
        assert again.metadata.time_zone.endswith("UTC")


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_rows_come_back_from_any_kind(data, tmp_path):
    count = data.draw(st.integers(1, 6))

    def column(entry):
        return data.draw(st.lists(entry, min_size=count, max_size=count))

    name = data.draw(st.sampled_from(["x", "columns", "collect", "df", "time"]))
    columns = {
        "n": column(st.none() | st.integers(-(2**53), 2**53)),
        name: column(st.floats(-1e6, 1e6).map(lambda x: round(x, 3)) | st.none()),
        "act": ["a, b", *column(st.sampled_from(["rest", "a, b", 'a "b"', "ä"]))[1:]],
    }
    for kind in ("mapping", "rows", "polars", "lazy", "csv", "tsv, gzipped", "parquet"):
        table = KINDS[kind](columns, tmp_path)
        for given_column in ("n", name):
            values = columns[given_column]
            if any(value is not None for value in values):
                read = Trajectories.from_table(table, features=given_column, actions="act", missing="nan")
                assert read.observed[0].tolist() == [value is not None for value in values]
                assert read.observations[read.observed][:, 0].tolist() == [v for v in values if v is not None]
                assert [read.metadata.action_names[code] for code in read.actions[0]] == columns["act"]


def test_a_name_that_a_row_lacks_is_null():
    table = [{"x": 1.0}, {"x": 2.0, "act": 3}]
    data = Trajectories.from_table(table, features="x", actions="act", missing="nan")
    assert data.actions.tolist() == [[-1, 3]]
    with pytest.raises(ValueError, match="actions of sequence 0, step 0 is missing"):
        Trajectories.from_table(table, features="x", actions="act")


def test_durations_of_python_are_times():
    table = {"t": [datetime.timedelta(minutes=m) for m in (0, 10, 30)], "x": [1.0, 2.0, 3.0]}
    data = Trajectories.from_table(table, time="t", features="x", step="10min")
    assert data.observed.tolist() == [[True, True, False, True]] and data.metadata.time_kind == "duration"


@pytest.mark.parametrize(
    ("first", "error", "message"),
    [
        (datetime.timedelta.max, TypeError, "column 't' has durations of more than 106751 days"),
        (np.timedelta64(200_000, "D"), ValueError, "times has 200000 days: nanoseconds of 64 bits hold"),
        ("1500-01-01", ValueError, "times has 1500-01-01T00:00:00.000000: nanoseconds of 64 bits hold"),
        (
            "0001-01-01T00:00+05:00",
            ValueError,
            "times has 0000-12-31T19:00:00.000000: nanoseconds of 64 bits hold",
        ),
        (
            datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=5))),
            ValueError,
            "column 't' has dates that are before the year 1 or after 9999",
        ),
    ],
)
def test_times_that_do_not_fit_are_named(first, error, message):
    with pytest.raises(error, match=message):
        Trajectories.from_table({"t": [first], "x": [1.0]}, time="t", features="x")


def test_polars_reads_parquet_where_pyarrow_is_not_installed(monkeypatch, tmp_path):
    columns = {"n": [1, None, 3], "x": [0.5, None, 1.5]}
    path = parquet(columns, tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    read = open_table(path)
    for name, values in columns.items():
        assert read[name].tolist()[::2] == values[::2] and read[name].isna().tolist() == [False, True, False]
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(
        ImportError, match=r"table is '.*table.parquet': install pyarrow or polars to read it"
    ):
        open_table(path)


@pytest.mark.parametrize(
    ("name", "content", "error", "message"),
    [
        ("absent.csv", None, FileNotFoundError, r"table is '.*absent.csv': there is no such file"),
        ("table.xlsx", b"", ValueError, r"ends in none of \.csv, \.tsv, \.parquet: read the file"),
        ("empty.csv", b"", ValueError, r"table is '.*empty.csv', which cannot be read: No columns"),
        ("header.csv", b"t,x\n", ValueError, "table has no rows"),
        ("torn.csv", b"t,x\n1,2\n3,4,5\n", ValueError, "which cannot be read: .*Expected 2 fields in line 3, saw 3"),
        ("longer.csv", b"t,x\n1,2,\n3,4,\n", ValueError, "its rows have more entries than its header"),
        ("latin.csv", "t,x\n1,ä\n".encode("latin-1"), ValueError, "which cannot be read: 'utf-8' codec"),
        ("false.csv.gz", b"t,x\n1,2\n", ValueError, "which cannot be read: Not a gzipped file"),
        ("false.parquet", b"t,x\n1,2\n", ValueError, "which cannot be read"),
        ("other.csv.gz", gzip.compress(b"t,y\n1,2\n", mtime=0), ValueError, r"no column 'x': its columns are \['t',"),
    ],
)  # fmt: skip
def test_files_that_cannot_be_read_are_named(tmp_path, name, content, error, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(error, match=message):
        Trajectories.from_table(tmp_path / name, features="x")


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: polars.LazyFrame({"y": [1]}).select("x"), ValueError, "table is LazyFrame, and reading it fails"),
        (lambda: polars.scan_csv("absent.csv"), ValueError, "table is LazyFrame, and reading it fails: .*absent"),
        (lambda: polars.LazyFrame({"y": [1]}), ValueError, r"no column 'x': its columns are \['y'\]"),
        (list, ValueError, "table has no rows"),
        (lambda: {"x": []}, ValueError, "table has no rows"),
        (lambda: {"y": [1.0, 2.0], "x": [1.0]}, ValueError, r"column 'x' has shape \(1,\), not \(2,\)"),
        (lambda: [{"x": 1.0}, 2], TypeError, "table is list: give a DataFrame, a mapping of columns, a list of dict"),
        (lambda: types.SimpleNamespace(columns=["x"]), TypeError, "table is SimpleNamespace: give a DataFrame"),
        (lambda: arrow({"x": []}), ValueError, "table has no rows"),
        (lambda: relation({"y": [1]}), ValueError, r"no column 'x': its columns are \['y'\]"),
    ],
)  # fmt: skip
def test_what_gives_no_rows_is_named(make, error, message):
    with pytest.raises(error, match=message):
        Trajectories.from_table(make(), features="x")
