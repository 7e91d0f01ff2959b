"""Cold start: seconds of imports, and of a fresh process until the first ELBO of the football fit.

Every number is the median over fresh processes. Imports are compared with `import numpyro, optax`, which no use
of ethogram can avoid: the bare import, and that of names in use, since the package imports them lazily. The first ELBO
is that of one step of `ethogram.fit` from three starts, from the end of the imports, once without a compilation
cache and once with a filled one, whose thresholds are off as in the command line. Bytecode is kept apart from
the installation's own: "filled" means that an untimed run wrote it, "empty" that every module was compiled
anew, the standard library's too. Ratios are of wall time, and where there is no peer, relative to the target.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import report

__all__ = ["measure"]

REPEATS = 5
QUICK_REPEATS = 3
IMPORT_TARGET = 1.25
COLD_TARGET_S = 3.0
CACHED_TARGET_S = 1.0
ENOUGH_S = 15.0
"""Seconds after which a row starts no further process."""

PEER = "import numpyro, optax"
BARE = "import ethogram"
USED = "import of names in use"
STATEMENTS = {
    BARE: BARE,
    USED: "from ethogram import ConjugateSVI, GaussianEmission, RoleHMM, Trajectories",
}

IMPORT = """
import time
wall, cpu = time.perf_counter(), time.process_time()
{statement}
seconds = time.perf_counter() - wall, time.process_time() - cpu
import json
print(json.dumps(seconds))
"""

FIRST_ELBO = """
import json, time
import jax, numpyro, optax, ethogram
from ethogram.domains import football
fit = ethogram.fit
wall, cpu = time.perf_counter(), time.process_time()
model = ethogram.RoleHMM(10, ethogram.GaussianEmission(2, strength=0.01, dof=4.0, scale=25.0))
fit(jax.random.key({seed}), model, football.load("home").data, num_steps=1, restarts=3, progress_bar=False)
seconds = time.perf_counter() - wall, time.process_time() - cpu
print(json.dumps(seconds))
"""


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of imports and of first ELBOs."""
    repeats = settings.rounds or (QUICK_REPEATS if settings.quick else REPEATS)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        rows = [_imports(scratch, name, "filled", repeats) for name in STATEMENTS]
        if not settings.quick:
            rows.append(_imports(scratch, USED, "empty", 1))
        return rows + _first_elbos(scratch, settings.seed, repeats)


def _imports(scratch: Path, name: str, bytecode: str, repeats: int) -> dict[str, Any]:
    ours, peer = IMPORT.format(statement=STATEMENTS[name]), IMPORT.format(statement=PEER)
    filled = scratch / "bytecode"
    taken: dict[str, list[tuple[float, float]]] = {ours: [], peer: []}
    if bytecode == "filled":
        for code in taken:
            _fresh(code, filled)
    for repeat in range(repeats):
        for code in (ours, peer) if repeat % 2 == 0 else (peer, ours):
            place = filled if bytecode == "filled" else Path(tempfile.mkdtemp(dir=scratch))
            taken[code].append(_fresh(code, place))
    ratios = [other[0] / mine[0] for mine, other in zip(taken[ours], taken[peer], strict=True)]
    row = {
        "size": name,
        "peer": PEER,
        "bytecode": bytecode,
        "cache": None,
        "processes": repeats,
        **_milliseconds("ours", taken[ours]),
        **_milliseconds("peer", taken[peer]),
        "ratio": statistics.median(ratios),
        "ratio_low": min(ratios),
        "ratio_high": max(ratios),
        "compile_s": None,
    }
    if bytecode == "filled":
        row |= {"target": 1 / IMPORT_TARGET, "reached": row["ratio"] >= 1 / IMPORT_TARGET}
    return row | {"timings": {"ours": taken[ours], "peer": taken[peer]}}


def _first_elbos(scratch: Path, seed: int, repeats: int) -> list[dict[str, Any]]:
    code = FIRST_ELBO.format(seed=seed)
    filled, cache = scratch / "bytecode", scratch / "compiled"
    _fresh(code, filled, cache)
    rows: list[dict[str, Any]] = []
    for state, place, target in (("empty", None, COLD_TARGET_S), ("filled", cache, CACHED_TARGET_S)):
        taken = [_fresh(code, filled, place)]
        while len(taken) < repeats and sum(wall for wall, _ in taken) < ENOUGH_S:
            taken.append(_fresh(code, filled, place))
        row = {
            "size": "first ELBO of football roles",
            "peer": f"{target:g} s",
            "bytecode": "filled",
            "cache": state,
            "processes": len(taken),
            **_milliseconds("ours", taken),
            "peer_wall_ms": 1e3 * target,
            "target": 1.0,
        }
        ratios = [target / wall for wall, _ in taken]
        row |= {"ratio": statistics.median(ratios), "ratio_low": min(ratios), "ratio_high": max(ratios)}
        rows.append(row | {"reached": row["ratio"] >= 1, "timings": {"ours": taken}})
    cold, cached = (row["ours_wall_ms"] / 1e3 for row in rows)
    rows[0]["compile_s"] = cold - cached
    return rows


def _milliseconds(side: str, taken: list[tuple[float, float]]) -> dict[str, float]:
    return {
        f"{side}_ms": 1e3 * statistics.median(cpu for _, cpu in taken),
        f"{side}_wall_ms": 1e3 * statistics.median(wall for wall, _ in taken),
    }


def _fresh(code: str, bytecode: Path, cache: Path | None = None) -> tuple[float, float]:
    """Wall and CPU seconds, printed by a fresh interpreter on its last line."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("JAX_")}
    environment |= {"PYTHONPYCACHEPREFIX": str(bytecode)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if cache is not None:
        environment |= {
            "JAX_COMPILATION_CACHE_DIR": str(cache),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
    command = [sys.executable, "-P", "-c", code]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True)
    if answer.returncode != 0:
        raise RuntimeError(f"a timed process failed:\n{answer.stderr}")
    wall, cpu = json.loads(answer.stdout.splitlines()[-1])
    return wall, cpu


if __name__ == "__main__":
    raise SystemExit(report.run("cold_start", __doc__, measure, speed=True))
