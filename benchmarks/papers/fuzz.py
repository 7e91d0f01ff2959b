"""Strange calls of every public entry point: how many are accepted, named or leak, and the leaks."""

from __future__ import annotations

import argparse
import collections
import time

from hypothesis import HealthCheck, Phase, given, seed
from hypothesis import settings as profile
from hypothesis import strategies as st

from benchmarks import report
from benchmarks.entry_points import entry_points
from benchmarks.strange_calls import Call, outcome


def measure(settings: argparse.Namespace) -> list[report.Row]:
    """One row per entry point, with an example of each leak, told apart by exception and place."""
    points, rows = entry_points(), []
    share = 20 if settings.quick else settings.examples // len(points)
    for name in settings.points or points:
        start = time.process_time()
        counts, leaks = run(points[name], share, settings.seed)
        total = sum(counts.values())
        for error, example in leaks.items():
            print(name, *error, example, sep=" | ", flush=True)
        rows.append({
            "entry point": name, "calls": total, "accepted": counts["accepted"], "named": counts["named"],
            "leaks": counts["leak"], "distinct leaks": len(leaks), "CPU s": time.process_time() - start,
            "correct": not leaks, "examples": [f"{' '.join(error)}: {shown}" for error, shown in leaks.items()],
        })  # fmt: skip
    return rows


def run(calls: st.SearchStrategy[Call], count: int, number: int) -> tuple[collections.Counter[str], dict]:
    """Outcomes of `count` calls, and an example of each distinct leak."""
    counts: collections.Counter[str] = collections.Counter()
    leaks: dict[tuple[str, str], str] = {}

    def one(call: Call) -> None:
        found = outcome(call)
        counts[found.kind] += 1
        if found.kind == "leak" and (found.error, found.place) not in leaks:
            shown = f"{call.values!r} {call.options!r}"[:300]
            leaks[found.error, found.place] = f"{found.message} <- {shown}"

    quiet = profile(
        max_examples=count, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    seed(number)(quiet(given(calls)(one)))()
    return counts, leaks


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--examples", type=int, default=100_000, metavar="N", help="calls of all entry points"
    )
    parser.add_argument("--points", nargs="+", metavar="NAME", help="entry points (all)")


if __name__ == "__main__":
    raise SystemExit(report.run("fuzz", __doc__, measure, options=_options))
