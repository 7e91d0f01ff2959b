"""Bounds and proofs of marginal MAP: what is proved in 5 s, gaps of what is not, MPEs, fuzz, first answers, deadlines.

Sections, each of which may be run alone with --only:

* ``proofs``: the 17 queries whose optima are known from branch and bound of another program, at 5 s;
* ``bounds``: bounds of two grids after 1 and 2 s;
* ``gaps``: upper bound minus answer, at 5 s, of set 0 of the queries without a known optimum;
* ``mpe``: every variable of each stored network maximised, at 5 s, beside the stored results of toulbar2;
* ``fuzz``: small random queries with mini-buckets of 6, 9 or 18 cells, against enumeration;
* ``deadlines``: time beyond limits of 0.1, 1 and 5 s, and time to the first possible answer.

Seconds are CPU time of all threads from the call on, on one core where the system allows it. Stored values are compared
with the answers afterwards. Sections of an existing record that are not run again stay in it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from typing import Any

import jax

from benchmarks import report
from benchmarks.one_core import one_core
from benchmarks.papers import mmap_fuzz
from benchmarks.papers import network_files as files
from ethogram.inference.networks.solve_mmap import solve_mmap
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["SECTIONS", "measure"]

LIMIT = 5.0
SIX_DIGITS = 2e-5
LIMITS = (0.1, 1.0, 5.0)
GRIDS = (("50-12-5", 1.0, -15.8), ("50-15-5", 2.0, -22.7))
TIMED = ("50-12-5", "50-20-10", "90-20-1", "comm_p01_5", "BN_42", "BN_30", "mastermind_03_08_03-0001", "pedigree1",
         "students_03_02-0015", "promedas_or_chain_10")  # fmt: skip
QUESTIONS, QUICK_QUESTIONS = 10_000, 200


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default=None, metavar="SECTIONS", help="comma-separated names of sections")


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all sections, or of some with those of an existing record."""
    wanted = list(SECTIONS) if settings.only is None else settings.only.split(",")
    rows = []
    if settings.json is not None and settings.json.is_file():
        stored = json.loads(settings.json.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in stored if row["section"] not in wanted]
    with one_core():
        for name in wanted:
            if name != "fuzz" and files.folder() is None:
                rows.append({"section": name, "note": "skipped: no folder bayes_nets under ETHOGRAM_DATA"})
            else:
                rows += [{"section": name} | row for row in SECTIONS[name](settings)]
    return rows


def _solved(
    query: MarginalMAP, settings: argparse.Namespace, limit: float, method: str = "hybrid"
) -> dict[str, Any]:
    """Columns that a result fills."""
    started = time.process_time()
    found = solve_mmap(jax.random.key(settings.seed), query, method, time_limit=limit, clock="cpu")
    seconds = time.process_time() - started
    gap = found.upper_bound - found.log_probability
    row = {"limit": limit, "log_probability": found.log_probability, "kind": found.kind}
    row |= {"upper_bound": found.upper_bound, "gap": gap, "proved": found.proved_optimal}
    first = round(found.trace[0].cpu_s, 3) if found.trace else None
    return row | {"seconds": round(seconds, 3), "first_s": first}


def _row(query: files.StoredQuery, settings: argparse.Namespace, limit: float) -> dict[str, Any]:
    row = {"instance": query.instance, "fraction": query.fraction, "set": query.number}
    return row | _solved(files.load(query), settings, limit)


def _check(name: str, value: float, target: float, reached: bool) -> dict[str, Any]:
    return {"check": name, "value": value, "target": target, "reached": reached}


def _proofs(settings: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for query, truth in list(files.proofs().items())[: 3 if settings.quick else None]:
        row = _row(query, settings, LIMIT)
        right = abs(row["log_probability"] - truth) <= SIX_DIGITS * abs(truth)
        sound = row["upper_bound"] >= truth - SIX_DIGITS * abs(truth) and (right or not row["proved"])
        rows.append(row | {"optimum": truth, "found": right, "correct": sound})
    good = sum(row["proved"] and row["found"] for row in rows)
    target = min(15, len(rows))
    return [*rows, _check(f"proved at {LIMIT:g} s, of {len(rows)}", good, target, good >= target)]


def _bounds(settings: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for name, limit, target in GRIDS:
        query = files.StoredQuery(name, "0.5", 0)
        rows.append(_row(query, settings, limit))
        bound = rows[-1]["upper_bound"]
        rows.append(_check(f"bound of {name} after {limit:g} s", bound, target, bound <= target))
        rows[-1]["correct"] = bound >= files.proofs()[query] * (1 + SIX_DIGITS)
    rows.append(_row(files.StoredQuery(GRIDS[0][0], "0.5", 0), settings, 2.0))
    check = _check(f"{GRIDS[0][0]} proved in 2 s", rows[-1]["seconds"], 2.0, rows[-1]["proved"])
    return [*rows, check]


def _gaps(settings: argparse.Namespace) -> list[dict[str, Any]]:
    known = {*files.optima(), *files.proofs()}
    queries = [query for query in files.queries() if query not in known]
    rows = []
    for query in queries[: 2 if settings.quick else None]:
        rows.append(_row(query, settings, LIMIT))
    gaps = [row["gap"] for row in rows if not row["proved"]]
    middle = statistics.median(gaps) if gaps else 0.0
    name = f"median gap of {len(gaps)} of {len(rows)} not proved at {LIMIT:g} s, nats"
    return [*rows, _check(name, middle, 3.5, middle <= 3.5)]


def _mpe(settings: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for name, stored in list(files.stored_mpe().items())[: 4 if settings.quick else None]:
        known, truth = files.explanation(name), stored["mpe_log"]
        row = {"instance": name, "fraction": "1", "set": None} | _solved(known, settings, LIMIT, "mpe")
        near = 1e-6 * max(1.0, abs(truth))
        false = row["upper_bound"] < truth - near or (row["proved"] and row["log_probability"] < truth - near)
        rows.append(row | {"toulbar2": truth, "toulbar2_proved": stored["optimal"], "correct": not false})
        rows[-1]["not_below"] = row["log_probability"] >= truth - near
    good, above = sum(row["proved"] for row in rows), sum(row["not_below"] for row in rows)
    proved = _check(f"MPEs proved at {LIMIT:g} s, of {len(rows)}", good, 10, good >= min(10, len(rows)))
    return [*rows, proved, _check("MPEs not below toulbar2's", above, len(rows), above == len(rows))]


def _fuzz(settings: argparse.Namespace) -> list[dict[str, Any]]:
    many = QUICK_QUESTIONS if settings.quick else QUESTIONS
    false, closed, faults = 0, 0, []
    for seed in range(settings.seed, settings.seed + many):
        verdict = mmap_fuzz.judge(seed)
        false, closed = false + bool(verdict.faults), closed + verdict.closed
        faults += [f"{seed}: {fault}" for fault in verdict.faults]
    check = _check(f"false bounds, proofs or answers of {many} random queries", false, 0, false == 0)
    return [check | {"closed": closed, "correct": false == 0, "faults": faults[:20]}]


def _deadlines(settings: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for name in TIMED[: 2 if settings.quick else None]:
        query = files.StoredQuery(name, "0.2", 0)
        _row(query, settings, 0.1)  # what a process does once
        for limit in LIMITS:
            row = _row(query, settings, limit)
            late = max(0.0, row["seconds"] - limit)
            rows.append(row | {"late_s": round(late, 3), "on_time": late <= max(0.1 * limit, 0.1)})
    on_time = sum(row["on_time"] for row in rows)
    firsts = [row["first_s"] for row in rows if row["limit"] == LIMITS[-1]]
    slowest = max(math.inf if first is None else first for first in firsts)
    return [*rows, _check("limits overshot by at most 10 % or 0.1 s", on_time, len(rows), on_time == len(rows)),
            _check("slowest first possible answer, s", slowest, 0.2, slowest <= 0.2)]  # fmt: skip


SECTIONS = {
    "proofs": _proofs,
    "bounds": _bounds,
    "gaps": _gaps,
    "mpe": _mpe,
    "fuzz": _fuzz,
    "deadlines": _deadlines,
}


if __name__ == "__main__":
    raise SystemExit(report.run("mmap_bounds", __doc__, measure, options=options))
