"""Cold start: seconds of imports, and of a fresh process until the first result of a fit or a score.

Every number is the median over fresh processes. Imports are compared with `import numpyro, optax`, which no use
of ethogram can avoid: the bare import, and that of names in use, since the package imports them lazily. The first ELBO
is that of one step of `ethogram.fit` from three starts, from the end of the imports, once without a compilation
cache and once with a filled one, whose thresholds are off as in the command line. First results of small data, a fit of
roles (10 x 200 frames), of an `AgentMarkov` (20 x 50 steps), NUTS of a role HMM (8 x 30 frames) and of choices (800
decisions), and a held-out score, count CPU seconds of the process, with the programs compiled, and the seconds that JAX
says of tracing, lowering and compiling; the rest is running. Bytecode is kept apart from
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

FIRST_RESULT = """
import collections, json, time
import jax, numpy as np, numpyro, optax, ethogram
phases = collections.Counter()
def listen(event, seconds, **_):
    for phase in ("jaxpr_trace", "jaxpr_to_mlir_module", "backend_compile"):
        if event.endswith(phase + "_duration"):
            phases[phase] += seconds
            phases["programs"] += phase == "backend_compile"
jax.monitoring.register_event_duration_secs_listener(listen)
random, key = np.random.default_rng({seed}), jax.random.key({seed})
{data}
phases.clear()
wall, cpu = time.perf_counter(), time.process_time()
{work}
seconds = time.perf_counter() - wall, time.process_time() - cpu
names = "programs", "jaxpr_trace", "jaxpr_to_mlir_module", "backend_compile"
print(json.dumps([*seconds, *(phases[name] for name in names)]))
"""

ROLES = """
state = np.repeat(random.integers(0, 3, 40), 50)
frames = random.normal(size=(2000, 2)) + 3 * state[:, None]
data = ethogram.Trajectories.from_list(list(frames.reshape(10, 200, 2)))
model = ethogram.RoleHMM(3, ethogram.GaussianEmission(2))
"""
FIT = "fit = ethogram.fit(key, model, data, progress_bar=False)"
AGENTS = """
states = np.cumsum(random.integers(0, 2, (20, 50)), axis=1) % 6
data = ethogram.Trajectories.from_list(states=list(states), actions=list(random.integers(0, 3, (20, 50))))
model = ethogram.AgentMarkov(6, 3)
"""
FEW_ROLES = """
frames = random.normal(size=(8, 30, 1)) + 3 * random.integers(0, 2, (8, 3)).repeat(10, axis=1)[..., None]
data = ethogram.Trajectories.from_list(list(frames))
model = ethogram.RoleHMM(2, ethogram.GaussianEmission(1))
"""
CHOICES = """
features = random.normal(size=(800, 3, 2))
chosen = (features @ [1.0, -0.5] + random.normal(size=(800, 3))).argmax(axis=1)
data = ethogram.Decisions(features, np.ones((800, 3), bool), chosen)
model = ethogram.NoisyMDP(1.0, kind="features")
"""
FIRST_RESULTS = {
    "fit of roles": (ROLES, FIT),
    "fit of an agent": (AGENTS, FIT),
    "NUTS of roles": (FEW_ROLES, 'ethogram.fit(key, model, data, "nuts", progress_bar=False)'),
    "NUTS of choices": (
        CHOICES,
        'ethogram.fit(key, model, data, "nuts", num_warmup=50, num_samples=50, progress_bar=False)',
    ),
    "held-out score of roles": (ROLES + FIT, "fit.score(data)"),
}
"""What is made beforehand, and what is timed."""

FIRST_COLD_S, FIRST_CACHED_S = 4.0, 1.0


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of imports and of first ELBOs."""
    repeats = settings.rounds or (QUICK_REPEATS if settings.quick else REPEATS)
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        rows = [_imports(scratch, name, "filled", repeats) for name in STATEMENTS]
        if not settings.quick:
            rows.append(_imports(scratch, USED, "empty", 1))
        rows += _first_elbos(scratch, settings.seed, repeats)
        few = 1 if settings.quick else repeats
        return rows + [
            row for name in FIRST_RESULTS for row in _first_results(scratch, settings.seed, name, few)
        ]


def _imports(scratch: Path, name: str, bytecode: str, repeats: int) -> dict[str, Any]:
    ours, peer = IMPORT.format(statement=STATEMENTS[name]), IMPORT.format(statement=PEER)
    filled = scratch / "bytecode"
    taken: dict[str, list[tuple[float, ...]]] = {ours: [], peer: []}
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


def _first_results(scratch: Path, seed: int, name: str, repeats: int) -> list[dict[str, Any]]:
    """Rows of a first result with an empty cache and with a filled one; ratios are of CPU time to the budget."""
    data, work = FIRST_RESULTS[name]
    code = FIRST_RESULT.format(seed=seed, data=data, work=work)
    filled, cache = scratch / "bytecode", scratch / f"compiled {name}"
    _fresh(code, filled, cache)
    rows: list[dict[str, Any]] = []
    for state, place, target in (("empty", None, FIRST_COLD_S), ("filled", cache, FIRST_CACHED_S)):
        taken = [_fresh(code, filled, place)]
        while len(taken) < repeats and sum(each[0] for each in taken) < ENOUGH_S:
            taken.append(_fresh(code, filled, place))
        wall, cpu, programs, tracing, lowering, compiling = (
            statistics.median(each) for each in zip(*taken, strict=True)
        )
        ratios = [target / each[1] for each in taken]
        rows.append(
            {
                "size": f"first {name}",
                "peer": f"{target:g} CPU s",
                "bytecode": "filled",
                "cache": state,
                "processes": len(taken),
                "ours_ms": 1e3 * cpu,
                "ours_wall_ms": 1e3 * wall,
                "peer_ms": 1e3 * target,
                "programs": int(programs),
                "tracing_s": tracing,
                "lowering_s": lowering,
                "compile_s": compiling,
                "running_s": wall - tracing - lowering - compiling,
                "target": 1.0,
                "ratio": statistics.median(ratios),
                "ratio_low": min(ratios),
                "ratio_high": max(ratios),
                "reached": statistics.median(ratios) >= 1,
                "timings": {"ours": taken},
            }
        )
    return rows


def _milliseconds(side: str, taken: list[tuple[float, ...]]) -> dict[str, float]:
    return {
        f"{side}_ms": 1e3 * statistics.median(cpu for _, cpu in taken),
        f"{side}_wall_ms": 1e3 * statistics.median(wall for wall, _ in taken),
    }


def _fresh(code: str, bytecode: Path, cache: Path | None = None) -> tuple[float, ...]:
    """Wall and CPU seconds, and what else a fresh interpreter prints on its last line."""
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
    return tuple(json.loads(answer.stdout.splitlines()[-1]))


if __name__ == "__main__":
    raise SystemExit(report.run("cold_start", __doc__, measure, speed=True))
