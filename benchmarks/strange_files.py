"""Strange files for the readers of the package, and strange arguments of its commands, as calls."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import ethogram
from benchmarks.strange_calls import Call
from benchmarks.strange_values import changed_text
from ethogram import planning
from ethogram.commands.command_line import main
from ethogram.commands.fit import GROUPS, flag

__all__ = [
    "DOMAIN",
    "GARDEN",
    "TABLE_TEXT",
    "TETRIS",
    "commands",
    "files",
    "read_content",
    "read_domain",
    "records",
]

GARDEN = Path(__file__).parents[1] / "tests" / "models" / "networks" / "garden_files"
"""One small network in each format."""


def read_content(reader: Callable[..., Any], ending: str, content: bytes, **options: Any) -> Any:
    with tempfile.TemporaryDirectory(prefix="fuzz") as folder:
        path = Path(folder) / f"file{ending}"
        path.write_bytes(content)
        return reader(path, **options)


def files(
    reader: Callable[..., Any], content: bytes | str, ending: str = "", **options: Any
) -> st.SearchStrategy[Call]:
    """Calls of a reader with changed files, which any error of the package may be about."""
    content = content.encode() if isinstance(content, str) else content
    function = functools.partial(read_content, reader, ending)
    return changed_text(content).map(lambda text: Call(function, (text,), options))


def records(packed: bytes) -> st.SearchStrategy[Call]:
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

    function = functools.partial(read_content, ethogram.load, "")
    contents = st.builds(written, st.integers(0, 150), st.sampled_from(plain))
    return contents.map(lambda content: Call(function, (content,)))


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


def read_domain(path: Path) -> Any:
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


def commands() -> st.SearchStrategy[Call]:
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
