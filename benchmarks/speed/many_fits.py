"""Many fits: `map_fits` against a loop, by two processes against one, and memory over many.

Sets of 25 frames have three roles; the loop calls `ethogram.fit` for each, in the same process, after both have
compiled. Unequal sets have 200 to 4000 frames; one and two processes find their programs in the compilation cache.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import resource
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ethogram
from benchmarks import report

__all__ = ["measure"]

MODEL = ethogram.RoleHMM(3, ethogram.GaussianEmission(2))
SIDE_BY_SIDE, TWO, MEMORY = 8.0, 1.6, 1.1
"""Targets: CPU time of the loop over that of `map_fits`, wall time of one process over that of two, and resident memory
after all fits over that after a tenth of them."""


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the loop, of processes, and of memory."""
    key = jax.random.key(settings.seed)
    small = {
        str(number): tracks(settings.seed + number, 25) for number in range(64 if settings.quick else 1000)
    }
    rows = [against_loop(key, small)]
    lengths = np.random.default_rng(settings.seed).integers(200, 4000, 6 if settings.quick else 40)
    unequal = {str(number): tracks(number, int(length)) for number, length in enumerate(lengths)}
    rows.append(by_processes(key, unequal))
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as pool:
        rows.append(pool.submit(resident, 300 if settings.quick else 10_000).result())
    return rows


def tracks(seed: int, length: int) -> ethogram.Trajectories:
    """One sequence about three centres, eight frames at each."""
    random = np.random.default_rng(seed)
    role = np.arange(length) // 8 % 3
    return ethogram.Trajectories.from_list([random.normal(size=(length, 2)) + 3 * role[:, None]])


def against_loop(key: Any, items: dict[str, Any]) -> dict[str, Any]:
    """CPU milliseconds of a fit in a loop and by `map_fits`, and the difference of their mean ELBOs, of other keys."""
    keys = list(jax.random.split(key, len(items)))
    for one, data in [*zip(keys, items.values(), strict=True)][:3]:
        ethogram.fit(one, MODEL, data, progress_bar=False)
    fits = ethogram.map_fits(MODEL, items, key=key, progress_bar=False)
    begin = time.process_time()
    pairs = zip(keys, items.values(), strict=True)
    alone = [ethogram.fit(one, MODEL, data, progress_bar=False) for one, data in pairs]
    middle = time.process_time()
    fits = ethogram.map_fits(MODEL, items, key=key, progress_bar=False)
    end = time.process_time()
    elbos = [np.mean([fit.result.elbo[-1] for fit in each]) for each in (alone, [*fits.values()])]
    ratio = (middle - begin) / (end - middle)
    return {
        "what": "against a loop",
        "fits": len(items),
        "loop_ms": 1e3 * (middle - begin) / len(items),
        "map_ms": 1e3 * (end - middle) / len(items),
        "mean_elbo_apart": float(elbos[1] - elbos[0]),
        **judged(ratio, SIDE_BY_SIDE, ratio >= SIDE_BY_SIDE),
    }


def by_processes(key: Any, items: dict[str, Any]) -> dict[str, Any]:
    """Wall seconds of one and of two spawned processes, after a run that fills the folder of compiled programs."""
    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        before = jax.config.jax_compilation_cache_dir
        jax.config.update("jax_compilation_cache_dir", folder)
        for processes in (2, 1, 2):
            begin = time.perf_counter()
            ethogram.map_fits(MODEL, items, key=key, executor=processes, progress_bar=False)
            seconds.append(time.perf_counter() - begin)
        jax.config.update("jax_compilation_cache_dir", before)
    ratio = seconds[1] / seconds[2]
    return {
        "what": "two processes",
        "fits": len(items),
        "one_s": seconds[1],
        "two_s": seconds[2],
        **judged(ratio, TWO, ratio >= TWO),
    }


def resident(count: int) -> dict[str, Any]:
    """Megabytes that a process holds when a tenth of so many fits are in the folder, and after all, in one run."""
    items, held = {str(each): tracks(each % 50, 25) for each in range(count)}, []

    def watch(out: Path) -> None:
        while not out.is_dir() or sum(1 for _ in out.iterdir()) < count // 10:
            time.sleep(0.1)
        held.append(megabytes())

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "runs"
        watcher = threading.Thread(target=watch, args=(out,), daemon=True)
        watcher.start()
        ethogram.map_fits(MODEL, items, key=jax.random.key(0), out=out, progress_bar=False)
        watcher.join()
        gc.collect()
        held.append(megabytes())
    ratio = held[1] / held[0]
    row = {"what": "memory", "fits": count, "tenth_mb": held[0], "all_mb": held[1]}
    return row | judged(ratio, MEMORY, ratio <= MEMORY)


def megabytes() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def judged(value: float, target: float, reached: bool) -> dict[str, Any]:
    """What a row says of its target."""
    return {"value": value, "target": target, "reached": reached}


if __name__ == "__main__":
    raise SystemExit(report.run("many_fits", __doc__, measure, speed=True))
