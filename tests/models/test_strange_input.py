"""Readers of data given anything: a valid object, or an error of our own that names an argument or a column."""

import datetime
import inspect
import linecache
import pathlib
import re
import types
import warnings

import jaxtyping
import numpy as np
import pandas
import polars
import pytest
import xarray
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ethogram import Decisions, Metadata, Trajectories
from ethogram.mdps import MDP

DAY = datetime.datetime(2024, 1, 1)
LEAVES = [
    None, "a", "", "2024-01-01", b"x", True, False, 0, 1, -1, 2, 2**64, -(2**70), 0.5, 1.0, np.inf, np.nan, 1j, DAY,
    DAY.date(), DAY.replace(tzinfo=datetime.UTC), datetime.timedelta(1), np.datetime64("NaT"), pandas.NaT, pandas.NA,
    {1}, {"a": 1}, object(), np.float32(1), np.int8(1), np.array(1.0), np.array("a"), 10**400,
]  # fmt: skip
WHOLE = [
    lambda: (number for number in (0, 1)), lambda: np.ma.masked_array([0.0, 1.0], [0, 1]),
    lambda: np.array([[1, "a"], [None, 2]], object), lambda: np.zeros((0, 2)), lambda: np.zeros((2, 2, 2, 2)),
    lambda: np.array([0, 2**63], np.uint64), lambda: np.array(["a", "b"]), lambda: np.zeros(2, "V4"),
    lambda: np.array([1, 2], "M8[D]"), lambda: pandas.Series(["a", None]), lambda: pandas.Categorical(["a", "b"]),
    lambda: pandas.DataFrame({"x": [1.0, 2.0]}), lambda: polars.Series([[1], [2, 3]]), lambda: range(2),
    lambda: [[], []],
    lambda: {0: {0: [(1.0, 0, 0.0, True)]}}, lambda: np.eye(2)[None], lambda: np.ones((1, 2, 1)), lambda: len,
    lambda: [[0.0, 1.0], [1.0, 0.0]], lambda: [[[1.0]]], lambda: [[[0.0, 1.0]], [[1.0, 0.0]]], lambda: [[0], [0]],
    lambda: types.SimpleNamespace(observations=[[0.0]], actions=[0]), lambda: np.zeros(2, [("a", int)]),
]  # fmt: skip
ANY = st.recursive(
    st.one_of(st.sampled_from(LEAVES), st.sampled_from(WHOLE).map(lambda make: make())),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.sampled_from("ab"), inner),
    ),
    max_leaves=5,
)  # fmt: skip
PAIRS = [
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
EPISODE = st.builds(types.SimpleNamespace, observations=ANY, actions=ANY)
FLAT = st.fixed_dictionaries(
    {"observations": ANY, "actions": st.one_of(st.just([0, 1]), ANY)},
    optional=dict.fromkeys(["terminals", "timeouts", "next_observations"], st.one_of(st.just([0, 1]), ANY)),
)
GOOD = {"x": [0.0, 1.0], "t": [0, 1], "g": ["a", "a"], "a": [0, 1]}


def framed(table):
    try:
        return pandas.DataFrame(table)
    except Exception:
        return table


TABLE = st.one_of(
    st.fixed_dictionaries({}, optional={name: COLUMN for name in GOOD}).map(lambda drawn: GOOD | drawn),
    st.fixed_dictionaries({}, optional={name: COLUMN for name in GOOD}).map(lambda drawn: framed(GOOD | drawn)),
    st.sampled_from([
        pandas.DataFrame([[0.0, 1.0]], columns=["x", "x"]), pandas.DataFrame({("x", "y"): [1.0]}),
        pandas.DataFrame({"x": pandas.Categorical([1, 2]), "t": [0, 1], "g": pandas.Categorical(["a", "a"])}),
        pandas.DataFrame({"x": [1 + 1j, 0], "t": [0, 1]}), polars.DataFrame({"x": [[1], [2]], "t": [0, 1]}),
        polars.DataFrame(GOOD), polars.LazyFrame(GOOD).select("z"), pandas.DataFrame(GOOD).set_index(["g", "t"]),
    ]),
    st.lists(st.fixed_dictionaries({}, optional=dict.fromkeys(GOOD, st.sampled_from(LEAVES))), max_size=2),
    ANY,
)  # fmt: skip


@st.composite
def datasets(draw):
    dims = {1: ["sequence"], 2: ["sequence", "time"], 3: ["sequence", "time", "feature"]}
    parts = {}
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


def optional(**parts):
    return st.fixed_dictionaries({}, optional=parts)


NUMERALS = Metadata(
    state_names=["1", "a"], action_names=["2", "1"], agent_names=["7"], subject_names=["1", "0"]
)
LISTS = dict.fromkeys(
    ["states", "actions", "stay", "observed", "agent", "group", "subject", "time", "step", "snap", "codes"],
    ANY,
) | {"metadata": st.just(NUMERALS)}
CALLS = {
    "from_list": (Trajectories.from_list, st.tuples(ANY), optional(**LISTS)),
    "from_table": (
        Trajectories.from_table,
        st.tuples(TABLE),
        st.builds(lambda base, more: base | more, st.just({"features": "x"}), optional(
            features=NAMES, sequence=NAMES, time=NAMES, states=NAMES, agent=NAMES, group=NAMES, step=ANY, snap=ANY,
            codes=ANY, metadata=st.just(NUMERALS))),
    ),
    "from_episodes": (
        Trajectories.from_episodes, st.tuples(st.one_of(st.lists(EPISODE, max_size=2), FLAT, ANY)),
        optional(agent=ANY, group=ANY, time=ANY, as_states=st.booleans(), with_actions=st.booleans()),
    ),
    "from_xarray": (
        Trajectories.from_xarray, st.tuples(st.one_of(datasets(), ANY)),
        optional(sequence=NAMES, agent=NAMES, time=NAMES, features=NAMES),
    ),
    "Decisions.from_list": (
        Decisions.from_list, st.tuples(ANY),
        optional(choice=ANY, subject=ANY, weight=ANY, metadata=st.just(NUMERALS))),
    "Decisions.from_table": (
        Decisions.from_table, st.tuples(TABLE),
        st.builds(lambda base, more: base | more, st.just({"decision": "g", "features": "x"}), optional(
            decision=NAMES, features=NAMES, chosen=NAMES, option=NAMES, subject=NAMES, weight=NAMES,
            available=NAMES)),
    ),
    "Decisions.from_wide": (
        Decisions.from_wide, st.tuples(TABLE),
        st.builds(lambda base, more: base | more, st.just({"features": {"x": ["x", "t"]}}), optional(
            features=st.one_of(st.dictionaries(st.sampled_from("xt"), NAMES), ANY), choice=NAMES, base=ANY,
            legal=NAMES, subject=NAMES, weight=NAMES, metadata=st.just(NUMERALS))),
    ),
    "Decisions.from_mdp": (
        Decisions.from_mdp, st.tuples(st.just(MDP.deterministic([[0, 1], [0, 1]])), ANY),
        optional(actions=ANY, legal=ANY, features=ANY, subject=ANY, weight=ANY),
    ),
    "MDP.dense": (MDP.dense, st.tuples(ANY), optional(
        discount=ANY, action_mask=ANY, start=ANY, features=ANY, state_names=ANY)),
    "MDP.deterministic": (MDP.deterministic, st.tuples(ANY), optional(
        discount=ANY, action_mask=ANY, start=ANY, features=ANY, action_names=ANY)),
    "MDP.sparse": (MDP.sparse, st.tuples(ANY, ANY), optional(discount=ANY)),
    "MDP.from_counts": (MDP.from_counts, st.tuples(ANY), st.builds(
        lambda base, more: base | more, st.just({"prior": 1.0, "discount": 0.5}),
        optional(prior=ANY, discount=ANY, successors=ANY, support=ANY, action_mask=ANY))),
    "MDP.from_gymnasium": (MDP.from_gymnasium, st.tuples(ANY), st.builds(
        lambda base, more: base | more, st.just({"discount": 0.5}), optional(discount=ANY, terminal_actions=ANY))),
}  # fmt: skip


def leak(function, values, options):
    """What is wrong with the outcome of a call, as (kind, place, message), or None."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)
            made = function(*values, **options)
        made = made[0] if function == MDP.from_gymnasium else made
        assert isinstance(made, Trajectories | Decisions | MDP)
    except jaxtyping.TypeCheckError:  # the tests' own check of annotations
        return None
    except Exception as error:
        last = error.__traceback__
        ours, within, raised = None, False, False
        while last is not None:
            path = pathlib.Path(last.tb_frame.f_code.co_filename)
            within = last.tb_frame.f_globals.get("__name__", "").startswith("ethogram.")
            if within:
                raised = linecache.getline(str(path), last.tb_lineno).strip().startswith("raise")
                ours = f"{path.name}:{last.tb_lineno}"
            last = last.tb_next
        words = [name.lstrip("*") for name in inspect.signature(function).parameters]
        words += ["observations", "column", "metadata", "episode", "dataset", *Trajectories._fields, "start"]
        words += ["state_names", "action_names", "features"]
        named = any(re.search(rf"\b{word}\b", str(error)) for word in words)
        if isinstance(error, ValueError | TypeError) and within and raised and named:
            return None
        return type(error).__name__, ours, str(error)[:120]
    return None


def tried(name, examples):
    function, values, options = CALLS[name]

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None,
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(values, options)
    def run(values, options):
        assert leak(function, values, options) is None

    run()


@pytest.mark.parametrize("name", CALLS)
def test_strange_input_is_refused_by_name(name):
    tried(name, 15)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_much_strange_input_is_refused_by_name(name):
    tried(name, 60)
