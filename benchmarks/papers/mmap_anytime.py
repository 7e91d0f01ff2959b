"""Anytime marginal MAP: incumbents of every method after 1, 5 and 10 seconds, beside optima and other programs.

Queries: set 0 of every fraction of 33 networks and the three that come with their networks; also sets 1 to 4 of the
paper's six networks, at 5 s; with --exact-only the queries whose optima are known. Seconds are CPU time of all threads
from the call on, on one core where the system allows it; kernels are compiled beforehand (`first_call_s`). Peers'
results are stored ones, of one thread. `relative_score` is (a - b) / a with the best value b of the pool named in
`pool`.

An existing record is continued: its rows are not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any

import jax

from benchmarks import report
from benchmarks.one_core import one_core
from benchmarks.papers import network_files as files
from ethogram.inference.networks.ags import ascend
from ethogram.inference.networks.mixed_product import smoothed_tables
from ethogram.inference.networks.solve_mmap import MarginalMAPResult, solve_mmap
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["CHECKPOINTS", "PAPER", "checks", "measure", "rows_of"]

PAPER = (
    "50-20-10", "90-20-1", "blockmap_05_01-0006", "fs-04", "mastermind_03_08_03-0001", "students_03_02-0015",
)  # fmt: skip
CHECKPOINTS = (1.0, 5.0, 10.0)
PAPER_LIMIT = 5.0
BASELINES = ("mpbp", "mpbp-cavity", "mpe", "sequential", "marginal")
AGS_SEEDS = 3
QUICK = (files.StoredQuery("BN_78", "0.3", 0), files.StoredQuery("50-12-5", "0.5", 0))
FIRST, SIX_DIGITS, NINETY = 1e-6, 1e-5, 0.9
POOL = "rows of this record and stored peers on the raw tables"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--exact-only", action="store_true", help="only the queries whose optima are known")
    parser.add_argument(
        "--limit", type=float, default=None, metavar="S", help="seconds instead of the last checkpoint"
    )
    parser.add_argument(
        "--only", default=None, metavar="TEXT", help="only instances whose name has this text"
    )


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of every query and method, then the checks against the targets."""
    if files.folder() is None:
        return [{"instance": "-", "note": "skipped: no folder bayes_nets under ETHOGRAM_DATA"}]
    with one_core():
        rows = _measured(settings)
    rows += _peer_rows({_query_of(row) for row in rows})
    relate(rows)
    return [*rows, *checks(rows)]


def _measured(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of every query and method, those of an existing record first."""
    rows, started = _stored(settings), time.perf_counter()
    known = {_identity(row) for row in rows}
    limit = settings.limit or CHECKPOINTS[-1]
    for query, method, seed, seconds in _tasks(settings, limit):
        if settings.only is not None and settings.only not in query.instance:
            continue
        if (
            query.instance,
            query.fraction,
            query.number,
            method,
            settings.seed + seed,
            seconds,
        ) in known:
            continue
        rows += rows_of(query, method, settings.seed + seed, seconds)
        if settings.json is not None:
            record = report.make_record("mmap_anytime", settings, rows, time.perf_counter() - started)
            report.write_record(settings.json, record)
    return rows


def _stored(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Measured rows of an existing record."""
    if settings.json is None or not settings.json.is_file():
        return []
    rows = json.loads(settings.json.read_text(encoding="utf-8")).get("rows", [])
    return [row for row in rows if row.get("method") not in (None, "check") and not row.get("stored")]


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return (*_query_of(row), row["method"], row.get("seed"), row.get("limit"))


def _query_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["instance"], row["fraction"], row["set"]


def _tasks(settings: argparse.Namespace, limit: float) -> list[tuple[files.StoredQuery, str, int, float]]:
    """Query, method, seed and seconds."""
    if settings.quick:
        return [(query, method, 0, 2.0) for query in QUICK for method in ("hybrid", "ags", *BASELINES)]
    wanted = list(dict.fromkeys([*files.optima(), *files.proofs()]))
    if settings.exact_only:
        return [(query, "hybrid", 0, PAPER_LIMIT) for query in wanted]
    first = files.queries()
    tasks = [(query, "hybrid", 0, limit) for query in first]
    tasks += [(q, "hybrid", 0, PAPER_LIMIT) for name in PAPER for q in files.sets_of(name, range(1, 5))]
    compared = list(files.peers())
    tasks += [(query, "ags", seed, PAPER_LIMIT) for seed in range(AGS_SEEDS) for query in compared]
    tasks += [(query, method, 0, PAPER_LIMIT) for method in BASELINES for query in compared]
    return tasks + [(query, "hybrid", 0, PAPER_LIMIT) for query in wanted if query not in first]


def rows_of(query: files.StoredQuery, method: str, seed: int, limit: float) -> list[dict[str, Any]]:
    """Incumbents of a method at every checkpoint up to a limit."""
    mmap = files.load(query)
    warm = time.perf_counter()
    if method == "ags":
        tables = smoothed_tables(mmap.network)
        ascend(jax.random.key(0), mmap, max_steps=10, tables=tables)
    warm = time.perf_counter() - warm
    found = _solve(mmap, method, seed, limit)
    common = {
        "instance": query.instance,
        "fraction": query.fraction,
        "set": query.number,
        "method": method,
    }
    common |= {
        "seed": seed,
        "limit": limit,
        "num_map": len(mmap.map_variables),
        "first_call_s": round(warm, 3),
    }
    rows = []
    for checkpoint in [at for at in CHECKPOINTS if at < limit] + [limit]:
        last = checkpoint == limit
        points = [point for point in found.trace if last or point.cpu_s <= checkpoint]
        value = points[-1].log_probability if points else (found.log_probability if last else None)
        kind = points[-1].kind if points else found.kind
        row = common | {"seconds": checkpoint, "log_probability": value, "kind": kind}
        if last:
            row |= {
                "log_probability_smoothed": found.log_probability_smoothed,
                "proved": found.proved_optimal,
            }
            gap = found.upper_bound - found.log_probability
            row |= {"upper_bound": found.upper_bound, "gap": gap, "took_s": round(found.seconds, 3)}
            row |= {"first_s": found.trace[0].cpu_s if found.trace else None}
        rows.append(row)
    return rows


def _solve(query: MarginalMAP, method: str, seed: int, seconds: float) -> MarginalMAPResult:
    return solve_mmap(
        jax.random.key(seed), query, method, time_limit=seconds, clock="cpu", smoothed_score=True
    )


def _peer_rows(asked: set[tuple[Any, ...]]) -> list[dict[str, Any]]:
    rows = []
    for query, found in files.peers().items():
        if tuple(query) in asked:
            place = {"instance": query.instance, "fraction": query.fraction, "set": query.number}
            rows += [place | {"stored": True} | each for each in found]
    return rows


def relate(rows: list[dict[str, Any]]) -> None:
    """Add to every row its distance from the best of its query."""
    references = {tuple(q): value for q, value in {**files.proofs(), **files.optima()}.items()}
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        value = row.get("log_probability")
        if value is not None and row.get("raw", True) and row.get("kind", "exact") == "exact":
            best[_query_of(row)] = max(best.get(_query_of(row), -math.inf), value)
    for row in rows:
        top, value = best.get(_query_of(row), -math.inf), row.get("log_probability")
        row["pool"] = POOL
        if value is None or value == -math.inf:
            row["relative_score"], row["nats_to_best"] = 1.0, None
        else:
            row["relative_score"] = None if value == 0 else (value - top) / value
            row["nats_to_best"] = top - value
        row["optimum"] = references.get(_query_of(row))


def checks(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Targets, and the number of queries that reach them."""
    ours = [row for row in rows if not row.get("stored")]
    shortest_last = sorted(ours, key=lambda row: -row.get("limit", PAPER_LIMIT))
    at_five = {_query_of(row): row for row in shortest_last if row["method"] == "hybrid" and _up_to(row, 5.0)}
    checked = []

    def check(name: str, good: int, of: int, wanted: int) -> None:
        if of:
            row = {"instance": "-", "fraction": "-", "set": "-", "method": "check", "check": name}
            checked.append(
                row | {"good": good, "of": of, "target": min(wanted, of), "reached": good >= min(wanted, of)}
            )

    def value(row: dict[str, Any]) -> float:
        scored = row.get("log_probability") is not None and row.get("kind", "exact") == "exact"
        return row["log_probability"] if scored else -math.inf

    exact = [(value(at_five[tuple(q)]), truth) for q, truth in files.optima().items() if tuple(q) in at_five]
    check("hybrid at 5 s: optima within 1e-6", sum(v >= t - FIRST for v, t in exact), len(exact), len(exact))
    proved = [(value(at_five[tuple(q)]), truth) for q, truth in files.proofs().items() if tuple(q) in at_five]
    good = sum(v >= t - SIX_DIGITS * abs(t) for v, t in proved)
    check(
        "hybrid at 5 s: optima of branch and bound within 1e-5 of their size", good, len(proved), len(proved)
    )
    above = [(value(at_five[tuple(q)]), truth) for q, truth in files.optima().items() if tuple(q) in at_five]
    check(
        "hybrid at 5 s: none above its optimum", sum(v <= t + FIRST for v, t in above), len(above), len(above)
    )
    stored = files.peers()
    beside = []
    for query, found in stored.items():
        if tuple(query) in at_five:
            top = max((r["log_probability"] for r in found if r["raw"] and r["log_probability"] is not None),
                      default=-math.inf)  # fmt: skip
            beside.append(
                value(at_five[tuple(query)]) >= top - SIX_DIGITS * abs(top if top > -math.inf else 1)
            )
    check("hybrid at 5 s: at least the best raw peer", sum(beside), len(beside), max(len(beside) - 2, 0))
    mpe = [(value(at_five[tuple(q)]), v) for q, v in files.restricted_mpe().items() if tuple(q) in at_five]
    good = sum(v >= (-math.inf if t is None else t - FIRST) for v, t in mpe)
    check("hybrid at 5 s: not below the restricted MPE", good, len(mpe), len(mpe))
    six = [row for asked, row in at_five.items() if asked[0] in PAPER]
    check(
        "hybrid at 5 s: possible, paper's six networks",
        sum(value(r) > -math.inf for r in six),
        len(six),
        len(six),
    )
    for seed in sorted({row["seed"] for row in ours if row["method"] == "ags"}):
        runs = {_query_of(row): row for row in ours if row["method"] == "ags" and row["seed"] == seed}
        for kind in ("log_probability", "log_probability_smoothed"):
            pairs = []
            for query, found in stored.items():
                java = [r for r in found if r["method"] == "authors-ags" and r["seconds"] == 10]
                mine = runs.get(tuple(query), {}).get(kind)
                if (
                    java
                    and java[0].get(kind) is not None
                    and java[0][kind] > -math.inf
                    and tuple(query) in runs
                ):
                    pairs.append(mine is not None and mine >= java[0][kind] - FIRST)
            word = "raw" if kind == "log_probability" else "smoothed"
            check(f"ags at 5 s, seed {seed}: at least the authors' at 10 s, {word}", sum(pairs), len(pairs),
                  math.ceil(NINETY * len(pairs)))  # fmt: skip
    return checked


def _up_to(row: dict[str, Any], seconds: float) -> bool:
    """Whether a row is the last at or before a checkpoint; an early proof counts."""
    return row["seconds"] == seconds or (row["seconds"] < seconds and bool(row.get("proved")))


if __name__ == "__main__":
    raise SystemExit(report.run("mmap_anytime", __doc__, measure, options=options))
