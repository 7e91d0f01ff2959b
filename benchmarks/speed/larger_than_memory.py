"""A role HMM of Gaussian features fitted to trajectories on disk, which are not read into memory.

Data are made in parts in a temporary folder. Each row is measured in a process of its own, which has first fitted a
tenth of the data (a fifth in the quick form), in the same shapes, so that programs are compiled. Peak memory is the
largest resident memory above what the process held then, pages of files included, over the raw size of the data. The
last row adds a limit on the memory of the process (RLIMIT_DATA) that the data themselves would exceed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ethogram
from benchmarks import report
from ethogram.inference.conjugate import conjugate_svi
from ethogram.models.data import Trajectories, parts

__all__ = ["measure"]

STEPS, FEATURES, ROLES = 100, 8, 5
FRAMES, QUICK = 10**7, 10**5
START_SECONDS, SHARE, SAME, GROWTH = 3.0, 0.5, 1e-6, 1.2
"""Targets: seconds of the starts; peak memory over raw data; relative difference from the fit in memory; cost of a
frame over that in the small data."""


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the fit, its states and score, the fit in memory, and, of large data, the fit under a limit."""
    frames = QUICK if settings.quick else FRAMES
    with tempfile.TemporaryDirectory() as folder:
        small, large = (str(Path(folder) / name) for name in ("small", "large"))
        write(small, frames // (5 if settings.quick else 10), settings.seed)
        begin = time.perf_counter()
        write(large, frames, settings.seed)
        seconds = time.perf_counter() - begin
        rows = [
            {
                "what": "write in parts",
                "frames": frames,
                "seconds": seconds,
                "ns_a_frame": 1e9 * seconds / frames,
            }
        ]
        spawn = multiprocessing.get_context("spawn")
        for job in (on_disk,) if settings.quick else (on_disk, under_limit):
            with ProcessPoolExecutor(1, mp_context=spawn) as pool:
                rows += pool.submit(job, small, large, settings.quick).result()
    return rows


def write(folder: str, frames: int, seed: int) -> None:
    """Roles that last ten frames on average, about centres of their own, a thousand sequences at a time."""
    centres = 3 * np.random.default_rng(seed).standard_normal((ROLES, FEATURES))

    def made() -> Iterator[Trajectories]:
        for start in range(0, frames // STEPS, 1000):
            rng = np.random.default_rng([seed, start])
            size = min(1000, frames // STEPS - start)
            changes = rng.random((size, STEPS)) < 0.1
            states = rng.integers(ROLES, size=(size, STEPS))
            last = np.maximum.accumulate(np.where(changes, np.arange(STEPS), 0), axis=1)
            x = centres[np.take_along_axis(states, last, axis=1)] + rng.standard_normal(
                (size, STEPS, FEATURES)
            )
            lengths = np.full(size, STEPS, np.int32)
            yield Trajectories(x.astype(np.float32), None, None, lengths, np.ones((size, STEPS), bool))

    Trajectories.save_parts(folder, made())


class Measured:
    """What a call took: its value, seconds, and the growth of resident memory at most, in bytes."""

    def __init__(self, function: Callable[[], Any]):
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        begin = time.perf_counter()
        self.value = function()
        self.seconds = time.perf_counter() - begin
        self.peak = max(memory("VmHWM") - before, 0)


def memory(field: str) -> int:
    """Bytes of a field of the status of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def fitted(data: Trajectories, quick: bool) -> Any:
    """A fit by the defaults of ``"svi"``; in the quick form of few steps."""
    model = ethogram.RoleHMM(ROLES, ethogram.GaussianEmission(FEATURES))
    few = {"num_steps": 40, "restarts": 2, "batch_size": 8} if quick else {}
    return ethogram.fit(jax.random.key(1), model, data, "svi", progress_bar=False, **few)


def read_part_by_part(quick: bool) -> None:
    """Small data of the quick form are read as large data are."""
    if quick:
        parts.LARGE, parts.PART = 2**16, 2**15


def on_disk(small: str, large: str, quick: bool) -> list[dict[str, Any]]:
    """Rows of the fit, states and score from disk, and of the difference from the fit in memory."""
    read_part_by_part(quick)
    few, data = Trajectories.open(small), Trajectories.open(large)
    frames, raw = data.observed.size, data.observations.nbytes
    first, starts = fitted(few, quick), []
    usual = conjugate_svi.start_blocks

    def timed(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        found = jax.block_until_ready(usual(*args, **kwargs))
        starts.append(time.perf_counter() - begin)
        return found

    conjugate_svi.start_blocks = timed
    fit = Measured(lambda: fitted(data, quick))
    rows = [row("fit", frames, fit, raw)]
    rows.append(
        {"what": "starts", "frames": frames, "seconds": starts[0], **target(starts[0], START_SECONDS)}
    )
    for what, work in {
        "states": lambda fit, data: fit.states(data),
        "score, 20 draws": lambda fit, data: fit.score(data, num_draws=20),
    }.items():
        work(first, few)  # compiles
        before = Measured(lambda work=work: work(first, few))
        found = Measured(lambda work=work: work(fit.value, data))
        growth = found.seconds / before.seconds * few.observed.size / frames
        rows.append(row(what, frames, found, raw))
        rows.append({"what": f"{what}: cost of a frame", "frames": frames, **target(growth, GROWTH)})
    rows.append(row("report", frames, Measured(lambda: fit.value.report(f"{large}.html")), raw))
    whole = data._replace(observations=np.array(data.observations), observed=np.array(data.observed))
    inside = Measured(lambda: fitted(whole, quick))
    pairs = zip(*(jax.tree.leaves(each.value.result.posterior.blocks) for each in (fit, inside)), strict=True)
    differs = max(float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1)) for a, b in pairs)
    same = target(differs, SAME)
    rows.append(row("fit in memory", frames, inside, raw, False))
    rows.append({"what": "difference from it", "frames": frames, **same, "correct": same["reached"]})
    return rows


def under_limit(small: str, large: str, quick: bool) -> list[dict[str, Any]]:
    """The row of a fit in a process that may take half of the raw size more, and in which the data do not fit."""
    read_part_by_part(quick)
    data = Trajectories.open(large)
    raw = data.observations.nbytes
    fitted(Trajectories.open(small), quick).states()
    most = memory("VmData") + max(raw // 2, 2**27)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        len([np.array(data.observations) for _ in range(2)])
        note = "the limit holds the data"
    except MemoryError:
        note = "a copy of the data raises MemoryError"
    found = Measured(lambda: fitted(data, quick).states())
    return [{**row("fit and states under a limit", data.observed.size, found, raw), "note": note}]


def row(what: str, frames: int, found: Measured, raw: int, judged: bool = True) -> dict[str, Any]:
    """Seconds, memory and their share of the raw data, which has a target where data are on disk."""
    share = found.peak / raw
    known = {
        "what": what,
        "frames": frames,
        "seconds": found.seconds,
        "ns_a_frame": 1e9 * found.seconds / frames,
    }
    known |= {"raw_mb": raw / 2**20, "peak_mb": found.peak / 2**20}
    # Programs and buffers of a part outweigh little data.
    return {**known, **(target(share, SHARE) if judged and frames >= FRAMES else {"value": share})}


def target(value: float, most: float) -> dict[str, Any]:
    """A value that should be at most `most`."""
    return {"value": value, "target": most, "reached": value <= most}


if __name__ == "__main__":
    raise SystemExit(report.run("larger_than_memory", __doc__, measure, speed=True))
