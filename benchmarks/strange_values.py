"""Strange values for hypothesis: of wrong types, empty, without axes, huge, NaN, masked, ragged; and changed files."""

from __future__ import annotations

import datetime
import re
import types
from typing import Any

import jax
import numpy as np
import pandas
import polars
import xarray
from hypothesis import strategies as st

__all__ = ["ANY", "EPISODES", "NAMES", "TABLE", "changed", "changed_text", "datasets", "near", "optional"]

DAY = datetime.datetime(2024, 1, 1)
LEAVES = [
    None, "a", "", "2024-01-01", b"x", True, False, 0, 1, -1, 2, 2**31, 2**64, -(2**70), 0.5, 1.0, np.inf, np.nan, 1j,
    DAY, DAY.date(), DAY.replace(tzinfo=datetime.UTC), datetime.timedelta(1), np.datetime64("NaT"), pandas.NaT,
    pandas.NA, {1}, {"a": 1}, object(), np.float32(1), np.float16(1), np.longdouble(1), np.int8(1), np.array(1.0),
    np.array("a"), 10**400, "a" * 5000,
]  # fmt: skip
WHOLE = [
    lambda: (number for number in (0, 1)), lambda: np.ma.masked_array([0.0, 1.0], [0, 1]),
    lambda: np.array([[1, "a"], [None, 2]], object), lambda: np.zeros((0, 2)), lambda: np.zeros((2, 2, 2, 2)),
    lambda: np.array([0, 2**63], np.uint64), lambda: np.array(["a", "b"]), lambda: np.zeros(2, "V4"),
    lambda: np.array([1, 2], "M8[D]"), lambda: pandas.Series(["a", None]), lambda: pandas.Categorical(["a", "b"]),
    lambda: pandas.DataFrame({"x": [1.0, 2.0]}), lambda: polars.Series([[1], [2, 3]]), lambda: range(2),
    lambda: [[], []], lambda: polars.Series(["a", "b"]), lambda: pandas.array([1, None]),
    lambda: {0: {0: [(1.0, 0, 0.0, True)]}}, lambda: np.eye(2)[None], lambda: np.ones((1, 2, 1)), lambda: len,
    lambda: [[0.0, 1.0], [1.0, 0.0]], lambda: [[[1.0]]], lambda: [[[0.0, 1.0]], [[1.0, 0.0]]], lambda: [[0], [0]],
    lambda: types.SimpleNamespace(observations=[[0.0]], actions=[0]), lambda: np.zeros(2, [("a", int)]),
    lambda: jax.random.key(0), lambda: np.longdouble([1, 2]), lambda: np.float16([1, 2]), lambda: dict,
]  # fmt: skip
ANY: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.sampled_from(LEAVES), st.sampled_from(WHOLE).map(lambda make: make())),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from("ab"), inner),
    ),
    max_leaves=5,
)  # fmt: skip
PAIRS: list[st.SearchStrategy[Any]] = [
    st.lists(st.sampled_from([0, 1, True]), min_size=2, max_size=2),
    st.lists(st.sampled_from([0.0, 1.0, 0.5]), min_size=2, max_size=2),
    st.lists(st.sampled_from(LEAVES), min_size=2, max_size=2), st.sampled_from([["a", "b"], [True, False]]),
]  # fmt: skip
SHAPED = [st.lists(pair, min_size=2, max_size=2) for pair in PAIRS]
ANY = st.one_of(ANY, *PAIRS, *SHAPED, *(st.lists(pair, min_size=2, max_size=2) for pair in SHAPED))
COLUMN = st.one_of(st.lists(st.sampled_from(LEAVES), min_size=2, max_size=2), ANY)
NAMES = st.one_of(
    st.sampled_from(["x", "t", "g", "a"]), st.lists(st.sampled_from(["x", "t", "g"]), max_size=2), ANY
)


def optional(**parts: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Dictionaries with some of these entries."""
    return st.fixed_dictionaries({}, optional=parts)


EPISODES = st.one_of(
    st.lists(st.builds(types.SimpleNamespace, observations=ANY, actions=ANY), max_size=2),
    st.fixed_dictionaries(
        {"observations": ANY, "actions": st.one_of(st.just([0, 1]), ANY)},
        optional=dict.fromkeys(
            ["terminals", "timeouts", "next_observations"], st.one_of(st.just([0, 1]), ANY)
        ),
    ),
    ANY,
)
GOOD = {"x": [0.0, 1.0], "t": [0, 1], "g": ["a", "a"], "a": [0, 1]}


def _framed(table: Any) -> Any:
    try:
        return pandas.DataFrame(table)
    except Exception:
        return table


DRAWN = optional(**dict.fromkeys(GOOD, COLUMN)).map(lambda drawn: GOOD | drawn)
TABLE = st.one_of(
    DRAWN,
    DRAWN.map(_framed),
    st.sampled_from([
        pandas.DataFrame([[0.0, 1.0]], columns=["x", "x"]), pandas.DataFrame({("x", "y"): [1.0]}),
        pandas.DataFrame({"x": pandas.Categorical([1, 2]), "t": [0, 1], "g": pandas.Categorical(["a", "a"])}),
        pandas.DataFrame({"x": [1 + 1j, 0], "t": [0, 1]}), polars.DataFrame({"x": [[1], [2]], "t": [0, 1]}),
        polars.DataFrame(GOOD), polars.LazyFrame(GOOD).select("z"), pandas.DataFrame(GOOD).set_index(["g", "t"]),
    ]),
    st.lists(optional(**dict.fromkeys(GOOD, st.sampled_from(LEAVES))), max_size=2),
    ANY,
)  # fmt: skip


@st.composite
def datasets(draw: Any) -> xarray.Dataset:
    """Data sets of xarray with some of the fields of trajectories, of any kind and shape."""
    dims = {1: ["sequence"], 2: ["sequence", "time"], 3: ["sequence", "time", "feature"]}
    parts: dict[str, Any] = {}
    for name in draw(st.lists(st.sampled_from(["observations", "states", "actions", "lengths", "observed", "agent",
                                               "times", "stay", "agent_names"]), max_size=4)):  # fmt: skip
        values = draw(st.one_of(st.just(np.zeros((1, 2, 1))), st.just(np.ones((1, 2), int)), ANY))
        try:
            array = np.asarray(values)
            own = draw(st.permutations(dims.get(array.ndim, [f"d{axis}" for axis in range(array.ndim)])))
            xarray.Dataset(parts | {name: (own, array)})
            parts[name] = (own, array)
        except Exception:
            continue
    attrs = draw(
        st.dictionaries(st.sampled_from(["name", "time_unit", "frame_rate", "time_kind"]), ANY, max_size=1)
    )
    return xarray.Dataset(parts, attrs=attrs)


NEAR = [
    lambda x: -x, lambda x: x * 0, lambda x: x * np.nan, lambda x: x * 1e300, lambda x: x * 1e-300, lambda x: x + 2**40,
    lambda x: x.astype(object), lambda x: x.astype(np.longdouble), lambda x: x.astype(np.float16), lambda x: x.T,
    lambda x: x.astype(complex), lambda x: x.astype(str), lambda x: x.astype(np.uint64), lambda x: x.astype(bool),
    lambda x: x[None], lambda x: x[..., None], lambda x: x[:0], lambda x: x.tolist(), lambda x: jax.device_put(x),
    lambda x: np.ma.masked_array(x, x == x.flat[0]), lambda x: pandas.Series(list(x)), lambda x: polars.Series(x),
    lambda x: np.concatenate([x, x]), lambda x: x.ravel()[0], lambda x: iter(x), lambda x: x[::-1], lambda x: {*x},
]  # fmt: skip


def near(value: Any) -> st.SearchStrategy[Any]:
    """Values that differ from a valid one in one respect, such as its sign, dtype, or number of axes."""

    def of(change: Any) -> Any:
        try:
            with np.errstate(all="ignore"):
                return change(np.asarray(value))
        except Exception:  # not of this kind of array
            return None

    return st.sampled_from(NEAR).map(of)


def changed(valid: dict[str, Any], **others: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Arguments of a call that is valid, of which at most two are others; `others` are left out else."""
    parts = {name: st.one_of(ANY, near(value)) for name, value in valid.items()} | others

    def drawn(names: list[str]) -> st.SearchStrategy[dict[str, Any]]:
        return st.fixed_dictionaries({name: parts[name] for name in names}).map(lambda new: valid | new)

    return st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=2, unique=True).flatmap(drawn)


WORDS = [
    "", "0", "-1", "2", "1e400", "nan", "inf", "1e-320", "3000000000", "99999999999999999999", "0x1", "1_0", "\u0663",
    "a", '"', "\x00", "\ufeff", "(", ")", "{", "}", "|", ",", ";", "<a>", "#", "//", "/*", "\n", "\t", "\r", "true",
    "null", "[", "]", "[" * 2000, "9" * 5000, "a" * 5000, "../x", "*", "?x", "~", "é",
]  # fmt: skip
TOKEN = re.compile(rb"[\w.+-]+|[^\w\s]")


@st.composite
def changed_text(draw: Any, content: bytes) -> bytes:
    """A file in which words were replaced, parts deleted, repeated or swapped, or that ends too early."""
    for _ in range(draw(st.integers(1, 3))):
        tokens = [match.span() for match in TOKEN.finditer(content)] or [(0, len(content))]
        kind = draw(st.sampled_from(["word", "word", "word", "delete", "repeat", "end", "byte"]))
        first, last = sorted(draw(st.tuples(*[st.integers(0, len(tokens) - 1)] * 2)))
        start, stop = tokens[first][0], tokens[last if kind in ("delete", "repeat") else first][1]
        word = (
            draw(st.sampled_from(WORDS)).encode()
            if kind != "byte"
            else draw(st.binary(min_size=1, max_size=3))
        )
        middle = {"delete": b"", "repeat": 2 * content[start:stop]}.get(kind, word)
        content = content[:start] + (b"" if kind == "end" else middle + content[stop:])
    return content
