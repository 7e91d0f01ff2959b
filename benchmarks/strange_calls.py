"""Calls of every public entry point with strange arguments and files, and what is wrong with how they end.

A call may succeed, or raise an error of the package's own that names an argument or a file. Anything else is a leak: an
exception from NumPy, JAX or Python that the package let through, a warning of theirs, more than two CPU seconds, or
more than a GiB.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import io
import itertools
import json
import linecache
import os
import re
import resource
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jaxtyping
import numpy as np
from hypothesis import strategies as st

import ethogram
from benchmarks.strange_values import ANY, EPISODES, NAMES, TABLE, changed, changed_text, datasets, optional
from ethogram import mdps, networks, planning, rewards, roles, tracking
from ethogram.commands.command_line import main
from ethogram.domains import tetris
from ethogram.inference import storage
from ethogram.models import emissions

__all__ = ["Call", "Outcome", "entry_points", "outcome"]

MOST_SECONDS, MOST_BYTES = 2.0, 2**30
"""CPU time and growth of the process that a call may take."""

GARDEN = Path(__file__).parents[1] / "tests" / "models" / "networks" / "garden_files"
"""One small network in each format."""


class Call(NamedTuple):
    """A call of an entry point; `words` may stand in its messages in place of the names of arguments."""

    function: Callable[..., Any]
    values: tuple[Any, ...] = ()
    options: dict[str, Any] = {}
    words: tuple[str, ...] = ()


class Outcome(NamedTuple):
    """How a call ended: accepted, named or leak; of a leak the exception, its place in the package and its message."""

    kind: str
    error: str = ""
    place: str = ""
    message: str = ""


class TooSlow(BaseException):
    """A call took more than its time; nothing in the package catches it."""


def outcome(call: Call) -> Outcome:
    """How a call ends, within its time and memory; file messages may name the folder of the call."""
    try:
        with _limits(), warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", UserWarning)
            before = _resident()
            call.function(*call.values, **call.options)
            grown = _resident() - before
    except jaxtyping.TypeCheckError:  # types of annotations, where tests check them
        return Outcome("named")
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return _of_error(call, error)
    return Outcome("leak", "memory", "", f"{grown} bytes") if grown > MOST_BYTES else Outcome("accepted")


def _of_error(call: Call, error: BaseException) -> Outcome:
    place, own, trace = "", False, error.__traceback__
    while trace is not None:
        own = False
        if trace.tb_frame.f_globals.get("__name__", "").startswith("ethogram."):
            path = trace.tb_frame.f_code.co_filename
            own = linecache.getline(path, trace.tb_lineno).strip().startswith("raise")
            place = f"{Path(path).name}:{trace.tb_lineno}"
        trace = trace.tb_next
    message = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return Outcome("named")
    words = [name.lstrip("*") for name in inspect.signature(call.function).parameters] + list(call.words)
    named = any(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", message) for word in words)
    if own and named and isinstance(error, ValueError | TypeError | OSError | ImportError):
        return Outcome("named")
    return Outcome("leak", type(error).__name__, place, message[:160])


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    """An alarm after the CPU time that a call may take, and no more memory than twice what it may."""

    def stop(*_: object) -> None:
        raise TooSlow(f"{MOST_SECONDS} CPU seconds")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    bound, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (size + 2 * MOST_BYTES, hard))
    signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
        signal.signal(signal.SIGPROF, handler)


FIELDS = (
    *ethogram.Trajectories._fields, "observations", "column", "metadata", "episode", "dataset", "start", "state_names",
    "action_names", "features", "transitions", "discount", "table", "constraints", "num_steps", "restarts",
)  # fmt: skip
"""Words of messages besides the arguments of a function: parts of what these hold."""


LEFT_OUT = (
    "self",
    "args",
    "kwargs",
    "parts",
    "settings",
    "progress_bar",
    "validate_args",
    "checkpoint",
    "visited",
)
"""Arguments that are not drawn: of any name, or of no meaning to what is read."""


def _made(function: Callable[..., Any], valid: dict[str, Any], **others: Any) -> st.SearchStrategy[Call]:
    """Calls by name with valid arguments, of which some are strange, and others that are optional."""
    options = dict.fromkeys(inspect.signature(function).parameters.keys() - valid.keys(), ANY)
    options = {name: value for name, value in options.items() if name not in LEFT_OUT}
    drawn = changed(valid, **(options | others))
    return drawn.map(lambda options: Call(function, (), options, FIELDS))


def _by_place(function: Callable[..., Any], values: Any, **options: Any) -> st.SearchStrategy[Call]:
    return st.builds(
        lambda values, options: Call(function, values, options, FIELDS), values, optional(**options)
    )


def _read_content(reader: Callable[..., Any], ending: str, content: bytes, **options: Any) -> Any:
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        path = Path(folder) / f"file{ending}"
        path.write_bytes(content)
        return reader(path, **options)


def _files(
    reader: Callable[..., Any], content: bytes | str, ending: str = "", **options: Any
) -> st.SearchStrategy[Call]:
    """Calls of a reader with changed files; their errors name the file."""
    content = content.encode() if isinstance(content, str) else content
    function = functools.partial(_read_content, reader, ending)
    return changed_text(content).map(lambda text: Call(function, (text,), options, ("file", "column", "table", "row", "rows", "observations", "time", "instance")))


def _records(packed: bytes) -> st.SearchStrategy[Call]:
    """Calls of `load` with archives whose record was changed at one place, and whose arrays are whole."""
    with np.load(io.BytesIO(packed)) as archive:
        arrays = {name: archive[name] for name in archive.files}
    record = json.loads(str(arrays.pop("structure")))
    plain = [None, True, -1, 2**40, 1e300, "a", [], {}, {"array": "array_0", "device": False}, {"dict": [[1, 2]]},
             {"list": [1]}, {"object": "ethogram.models.data.Metadata", "fields": {}}, {"array": "b"}]  # fmt: skip

    def written(place: int, value: Any) -> bytes:
        count = itertools.count()

        def walk(node: Any) -> Any:
            if next(count) == place:
                return value
            if isinstance(node, dict):
                return {name: walk(item) for name, item in node.items()}
            return [walk(item) for item in node] if isinstance(node, list) else node

        file = io.BytesIO()
        np.savez(file, structure=np.array(json.dumps(walk(record))), **arrays)
        return file.getvalue()

    function = functools.partial(_read_content, ethogram.load, "")
    contents = st.builds(written, st.integers(0, 150), st.sampled_from(plain))
    return contents.map(lambda content: Call(function, (content,), {}, ("file",)))


def _command(*words: str) -> int:
    """What a command does up to the fit: exit codes of bad arguments and data are no errors."""
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder, contextlib.redirect_stdout(io.StringIO()):
        table = Path(folder) / "data.csv"
        table.write_text(TABLE_TEXT)
        (Path(folder) / "net.uai").write_bytes((GARDEN / "UAI").read_bytes())
        here = os.getcwd()
        os.chdir(folder)
        try:
            code = main([*words])
        except SystemExit as stop:
            code = int(str(stop.code or 0))
        finally:
            os.chdir(here)
    if code not in (0, 2, 3, 4):
        raise RuntimeError(f"exit code {code}")
    return code


TETRIS = """\
game,board,piece,action,drop
0,....../....../....../......,T,"2,0",
0,....../....../.#..../###...,I,,"0,2"
"""
DOMAIN = """\
domain d {
 types { o : object; c : {@low, @high}; };
 pvariables {
  N(o, o) : { non-fluent, bool, default = false };
  P : { non-fluent, real, default = 0.9 };
  s(o) : { state-fluent, bool, default = true };
  a(o) : { action-fluent, bool, default = false };
 };
 cpfs { s'(?x) = if (a(?x)) then KronDelta(true)
  else Bernoulli(P * (1 + (sum_{?y : o} (N(?y, ?x) ^ s(?y)))) / 3); };
 reward = sum_{?x : o} [s(?x) - 0.75 * a(?x)];
}
"""
INSTANCE = """\
non-fluents n { domain = d; objects { o : {p, q}; }; non-fluents { N(p, q); }; }
instance i { domain = d; non-fluents = n; max-nondef-actions = 1; horizon = 5; discount = 1.0; }
"""


def _read_domain(path: Path) -> Any:
    instance = path.with_name("instance.rddl")
    instance.write_text(INSTANCE)
    return planning.read_rddl(path, instance)


TABLE_TEXT = "id,time,x,y,s,a,chosen,taken\n" + "".join(
    f"{i // 4},{i % 4},{i / 7:.3f},{i % 3},{i % 2},{i % 3 % 2},{int(i % 4 == 1)},{i % 2}\n" for i in range(16)
)
NUMBERS = [
    "0", "-1", "2", "1e400", "nan", "3000000000", "99999999999999999999999", "1:2", "2:1", "1:1000000000", "x", "", " ",
    "x,y", "x,x", "true", "restarts=1000000000", "num_steps=0", "a=", "=", "file:(", "../..", "id", "s", "a", "time",
    "chosen", "gaussian", "gaussian:3", "categorical:99999999999", "\x00", "é", "yes", "no", "km,rad", "data.csv",
]  # fmt: skip


def _commands() -> st.SearchStrategy[Call]:
    from ethogram.commands.fit import GROUPS, flag

    flags = [flag(name) for options in GROUPS.values() for name in options]
    flags += [
        "--by",
        "--workers",
        "--method",
        "--setting",
        "--read",
        "--seed",
        "--model",
        "--out",
        "--overwrite",
    ]
    own = st.sampled_from([
        ["--model", "roles", "--features", "x,y"], ["--model", "intents", "--states", "s", "--actions", "a"],
        ["--model", "choices", "--decision", "id", "--chosen", "chosen", "--features", "x,y"],
        ["--model", "rewards", "--states", "s", "--actions", "a", "--transitions", "data.csv", "--discount", ".9"], [],
    ])  # fmt: skip
    pair = st.tuples(st.sampled_from(flags), st.sampled_from(NUMBERS)).map(list)
    more = st.lists(st.one_of(pair, pair.map(lambda words: words[:1])), min_size=1, max_size=4).map(
        lambda pairs: [word for words in pairs for word in words]
    )
    # A method that there is not ends what would be fitted, after all else was read.
    fits = st.builds(
        lambda own, more: ["fit", "data.csv", "--out", "out", *own, *more, "--method", "none"], own, more
    )
    queries = st.lists(
        st.sampled_from([
            "--evidence", "--map", "--sample", "--names", "--method", "--time-limit", "--seed", "--format", "--json",
            "exact", "0=0", "0", "1", "all", "net.uai", "data.csv", *NUMBERS,
        ]), max_size=6,
    ).map(lambda words: ["mmap", "net.uai", "--time-limit", "0.05", *words])  # fmt: skip
    others = st.lists(
        st.sampled_from(["plan", "play", "--list", "--quick", "--seed", "--help", *NUMBERS]), max_size=5
    )
    return st.one_of(fits, fits, queries, others).map(lambda words: Call(_command, tuple(words)))


def entry_points() -> dict[str, st.SearchStrategy[Call]]:
    """Strange calls of every public entry point, by its name."""
    key = jax.random.key(0)
    corridor = mdps.MDP.deterministic([[0, 1], [0, 1]], discount=0.5, features=np.eye(2))
    rain = ethogram.BayesNet(([0.5, 0.5], [[0.5, 0.5], [0.25, 0.75]]), ((), (0,)))
    gaussian = ethogram.GaussianEmission(1)
    walk = ethogram.Trajectories.from_list([np.arange(12.0).reshape(6, 2)] * 2)
    acts = ethogram.Trajectories.from_list(states=[[0, 1, 0, 1]] * 2, actions=[[1, 0, 1, 1]] * 2)
    rows = ethogram.Decisions.from_list([np.eye(2), np.eye(2)], [0, 1])
    never = ethogram.IntentConstraints.never_switch
    numerals = st.just(
        ethogram.Metadata(
            state_names=["1", "a"], action_names=["2", "1"], agent_names=["7"], subject_names=["1", "0"]
        )
    )
    lists = dict.fromkeys(
        [
            "states",
            "actions",
            "stay",
            "observed",
            "agent",
            "group",
            "subject",
            "time",
            "step",
            "snap",
            "codes",
        ],
        ANY,
    )
    of_table = dict.fromkeys(["features", "sequence", "time", "states", "agent", "group"], NAMES)
    of_decisions = ["decision", "features", "chosen", "option", "subject", "weight", "available"]
    of_mdp = dict.fromkeys(
        ["discount", "action_mask", "start", "features", "state_names", "action_names"], ANY
    )
    from_list, from_table = ethogram.Trajectories.from_list, ethogram.Trajectories.from_table
    chain = {"log_initial": np.log([0.5, 0.5]), "log_transition": np.log(np.full((2, 2), 0.5))}
    saved = {
        "model": storage.pack({"model": ethogram.RoleHMM(2, gaussian)}),
        "agent": storage.pack(ethogram.AgentMarkov(2, 2)),
    }
    scores = "scorer,a,a,a\nbodyparts,n,n,n\ncoords,x,y,likelihood\n0,1,2,0.9\n1,1,2,0.9\n"
    tracks = (
        "timestamp,location-long,location-lat,individual-local-identifier\n"
        + "".join(f"2024-01-01 0{i}:00:00.000,{i}.5,50.{i},a\n" for i in range(5))
    )  # fmt: skip
    points: dict[str, st.SearchStrategy[Call]] = {
        "GaussianEmission": _made(emissions.GaussianEmission, {"num_features": 2}),
        "GaussianMixtureEmission": _made(
            emissions.GaussianMixtureEmission, {"num_features": 2, "num_components": 2}
        ),
        "KnownCovarianceEmission": _made(emissions.KnownCovarianceEmission, {"covariance": np.eye(2)}),
        "AutoregressiveGaussianEmission": _made(
            emissions.AutoregressiveGaussianEmission, {"num_features": 2}
        ),
        "CategoricalEmission": _made(emissions.CategoricalEmission, {"num_categories": 3}),
        "BernoulliEmission": _made(emissions.BernoulliEmission, {"num_features": 2}),
        "BinomialEmission": _made(emissions.BinomialEmission, {"total_count": 5}),
        "PoissonEmission": _made(emissions.PoissonEmission, {"num_features": 2}),
        "GammaEmission": _made(emissions.GammaEmission, {"num_features": 2}),
        "VonMisesEmission": _made(emissions.VonMisesEmission, {"num_features": 2}),
        "ProductEmission": _made(
            emissions.ProductEmission, {"emissions": [gaussian, emissions.PoissonEmission(1)]}
        ),
        "RoleHMM": _made(ethogram.RoleHMM, {"num_roles": 2, "emission": gaussian}),
        "AgentMarkov": _made(
            ethogram.AgentMarkov, {"num_states": 2, "num_actions": 2, "constraints": never(states=[1])}
        ),
        "IntentConstraints.never_switch": _made(never, {"states": [0]}),
        "IntentConstraints.stay": _made(ethogram.IntentConstraints.stay, {"states": [0], "at_least": 0.5}),
        "IntentConstraints.entry": _made(
            ethogram.IntentConstraints.entry, {"intent": 0, "next_intent": 1, "at_least": 0.5}
        ),
        "IntentConstraints.action": _made(
            ethogram.IntentConstraints.action, {"action": 0, "intent": 1, "at_least": 0.5}
        ),
        "NoisyMDP": _made(ethogram.NoisyMDP, {"kappa": 4.0}),
        "PXDA": _made(ethogram.PXDA, {"model": ethogram.NoisyMDP()}),
        "GPIRL": _made(ethogram.GPIRL, {"mdp": corridor, "features": np.eye(2), "inducing": [0]}),
        "SwitchingGPIRL": _made(ethogram.SwitchingGPIRL, {"base": ethogram.GPIRL(corridor), "num_intents": 2}),
        "BayesNet": _made(ethogram.BayesNet, {"tables": rain.tables, "parents": rain.parents}),
        "MarginalMAP": _made(
            ethogram.MarginalMAP, {"network": rain, "evidence": {0: 1}, "map_variables": [1]}
        ),
        "Metadata": _made(ethogram.Metadata, {"state_names": ["a", "b"]}),
        "memory_bound": _made(lambda most_bytes: ethogram.memory_bound(most_bytes).__enter__(), {"most_bytes": 2**31}),
        "from_list": _by_place(from_list, st.tuples(ANY), **lists, metadata=numerals),
        "from_table": st.builds(
            lambda table, options: Call(from_table, (table,), {"features": "x"} | options, FIELDS),
            TABLE,
            optional(**of_table, step=ANY, snap=ANY, codes=ANY, metadata=numerals),
        ),
        "from_episodes": _by_place(
            ethogram.Trajectories.from_episodes, st.tuples(EPISODES),
            agent=ANY, group=ANY, time=ANY, as_states=st.one_of(st.booleans(), ANY),
            with_actions=st.one_of(st.booleans(), ANY),
        ),
        "from_xarray": _by_place(
            ethogram.Trajectories.from_xarray, st.tuples(st.one_of(datasets(), ANY)),
            sequence=NAMES, agent=NAMES, time=NAMES, features=NAMES,
        ),
        "Decisions.from_list": _by_place(
            ethogram.Decisions.from_list, st.tuples(ANY), choice=ANY, subject=ANY, weight=ANY, metadata=numerals
        ),
        "Decisions.from_list of decisions": _made(
            ethogram.Decisions.from_list,
            {"features": [np.eye(2)] * 2, "choice": [0, 1], "subject": [0, 1], "weight": [1, 2]},
        ),
        "Decisions.from_table": st.builds(
            lambda table, options: Call(
                ethogram.Decisions.from_table, (table,), {"decision": "g", "features": "x"} | options, FIELDS
            ),
            TABLE, optional(**dict.fromkeys(of_decisions, NAMES)),
        ),
        "Decisions.from_wide": st.builds(
            lambda table, options: Call(
                ethogram.Decisions.from_wide, (table,), {"features": {"x": ["x", "t"]}} | options, FIELDS
            ),
            TABLE,
            optional(features=st.one_of(st.dictionaries(st.sampled_from("xt"), NAMES), ANY), choice=NAMES, base=ANY,
                     legal=NAMES, subject=NAMES, weight=NAMES, metadata=numerals),
        ),
        "Decisions.from_mdp": _by_place(
            ethogram.Decisions.from_mdp, st.tuples(st.just(corridor), ANY),
            actions=ANY, legal=ANY, features=ANY, subject=ANY, weight=ANY,
        ),
        "MDP.dense": _by_place(mdps.MDP.dense, st.tuples(ANY), **of_mdp),
        "MDP.deterministic": _by_place(mdps.MDP.deterministic, st.tuples(ANY), **of_mdp),
        "MDP.deterministic of states": _made(mdps.MDP.deterministic, {"next_state": [[0, 1], [0, 1]]}, **of_mdp),
        "MDP.sparse": _by_place(mdps.MDP.sparse, st.tuples(ANY, ANY), discount=ANY),
        "MDP.from_counts": st.builds(
            lambda counts, options: Call(
                mdps.MDP.from_counts, (counts,), {"prior": 1.0, "discount": 0.5} | options, FIELDS
            ),
            ANY, optional(prior=ANY, discount=ANY, successors=ANY, support=ANY, action_mask=ANY),
        ),
        "MDP.from_gymnasium": st.builds(
            lambda table, options: Call(mdps.MDP.from_gymnasium, (table,), {"discount": 0.5} | options, FIELDS),
            ANY, optional(discount=ANY, terminal_actions=ANY),
        ),
        "MDP.with_history": _made(corridor.with_history, {"k": 1}),
        "step_and_turn": _made(ethogram.step_and_turn, {"positions": walk}),
        "interpolate": _made(tracking.interpolate, {"data": walk, "max_gap": 2}),
        "egocentric": _made(tracking.egocentric, {"data": walk, "centre": "x", "heading": "y"}),
        "soft_values": _made(mdps.soft_values, {"mdp": corridor, "reward": np.array([0.0, 1.0])}, max_steps=st.just(3)),
        "optimal_values": _made(
            mdps.optimal_values, {"mdp": corridor, "reward": np.array([0.0, 1.0])}, max_steps=st.just(3)
        ),
        "soft_policy": _made(mdps.soft_policy, {"mdp": corridor, "reward": np.array([0.0, 1.0])}, horizon=st.just(2)),
        "policy_values": _made(
            mdps.policy_values, {"mdp": corridor, "reward": np.array([0.0, 1.0]), "policy": np.full((2, 2), 0.5)}
        ),
        "representative_points": _made(rewards.representative_points, {"features": np.eye(3), "num": 2}),
        "select_inducing_points": _made(ethogram.select_inducing_points, {"demonstrations": acts, "mdp": corridor}),
        "align_states": _made(
            ethogram.align_states, {"reference": np.array([0, 1, 1]), "estimate": np.array([1, 0, 0])}
        ),
        "optimal_assignment": _made(roles.optimal_assignment, {"cost": np.eye(2)}),
        "HiddenMarkov": _made(
            ethogram.HiddenMarkov,
            {
                "initial": np.full(2, 0.5), "transition": np.full((2, 2), 0.5),
                "emission": ethogram.RoleHMM(2, gaussian).emission.distribution(
                    {"mean": np.zeros((2, 1)), "covariance": np.ones((2, 1, 1))}
                ),
                "num_steps": 2,
            },
        ),
        "ProbitChoice": _made(ethogram.ProbitChoice, {"utilities": np.eye(2)}),
        "log_normalizer": _made(
            ethogram.markov_chain.log_normalizer, chain | {"step_log_likelihood": np.zeros((3, 2))}
        ),
        "fit": _made(
            ethogram.fit,
            {"key": key, "model": ethogram.RoleHMM(1, emissions.GaussianEmission(2)), "data": walk, "method": "cavi"},
            num_steps=st.sampled_from([0, -1, None, 1.5, "a"]), restarts=st.sampled_from([0, 10**12, None, "a"]),
        ),
        "fit of choices": _made(
            ethogram.fit, {"key": key, "model": ethogram.NoisyMDP(4.0, kind="features"), "data": rows, "method": "none"}
        ),
        "solve_mmap": _made(
            ethogram.solve_mmap, {"key": key, "query": ethogram.MarginalMAP(rain, {}, [1]), "max_steps": 1},
            method=st.sampled_from(["hybrid", "a", None, 1]), callback=st.sampled_from([None, 1, "a"]),
        ),
        "network file": st.sampled_from(sorted(path.name for path in GARDEN.iterdir())).flatmap(
            lambda name: _files(networks.read, (GARDEN / name).read_bytes())
        ),
        "evidence file": _files(lambda path: networks.read_evidence(path, rain), "1 0 1"),
        "evidence list": _files(lambda path: networks.read_evidence(path, rain), "x0 = 1\nx1 = 0\n"),
        "MAP file": _files(lambda path: networks.read_map_variables(path, rain), "2 0 1"),
        "table file": _files(lambda path: from_table(path, features=["x", "y"], sequence="id", time="time"),
                             TABLE_TEXT, ".csv"),
        "MDP file": _files(functools.partial(mdps.read_mdp, discount=0.5),
                           "state,action,next_state,probability\n0,0,1,1\n1,0,0,0.5\n1,0,1,0.5\n", ".csv"),
        "state features file": _files(lambda path: mdps.read_state_features(path, corridor), "state,x\n0,1\n1,2\n",
                                      ".csv"),
        "DeepLabCut file": _files(tracking.read_deeplabcut, scores, ".csv"),
        "Movebank file": _files(functools.partial(tracking.read_movebank, step="1h"), tracks, ".csv"),
        "Tetris file": _files(tetris.load_games, TETRIS, ".csv"),
        "Tetris table": _made(tetris.load_games, {"table": {"game": [0], "board": ["0"], "piece": [1]}}),
        "fit file": st.sampled_from(sorted(saved)).flatmap(lambda name: _files(ethogram.load, saved[name])),
        "fit record": _records(saved["model"]),
        "command": _commands(),
    }  # fmt: skip
    if importlib.util.find_spec("pyRDDLGym"):
        points["RDDL file"] = _files(_read_domain, DOMAIN, ".rddl")
    return points
