"""Paired, interleaved timing of contenders that compute the same result in one process.

The measure is the ratio of CPU times of one round: load on a shared machine affects both sides. Rounds run ABC, CBA,
ABC, ..., each timing repeats its contender until it lasts long enough for the clock, and blocks until the result is
ready. Thread settings belong in the environment, and are reported.
"""

from __future__ import annotations

import ctypes
import gc
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

__all__ = ["Contender", "Ratio", "Timing", "compare", "peak_memory", "ratio", "speed_row"]


class Contender(NamedTuple):
    """A function and its data; the data are arguments, so that the compiler cannot fold them away."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()


class Timing(NamedTuple):
    """Seconds of one contender: CPU (all threads) and wall time of a call in each round; its first call."""

    cpu: np.ndarray
    wall: np.ndarray
    first_call: float
    repeats: int


class Ratio(NamedTuple):
    """Median, smallest and largest per-round ratio of CPU times, peer / ours: above 1, ours is faster."""

    median: float
    low: float
    high: float


def compare(
    contenders: Mapping[str, Contender], *, rounds: int = 9, seconds: float = 0.03
) -> dict[str, Timing]:
    """Timings of every contender over interleaved rounds.

    Parameters
    ----------
    contenders : by name; all are called twice before the first round, so compilation stays apart.
    rounds : timings of each; at least 5 for a published number.
    seconds : duration of one timing, reached by repeating the call; 0.02 to 0.05 is a good choice.

    Raises
    ------
    ValueError
        Fewer than one round, or no contender.
    """
    if rounds < 1 or not contenders:
        raise ValueError(f"rounds is {rounds}, with {len(contenders)} contenders: give at least one of each")
    first_call = {name: _time(contender, 1)[1] for name, contender in contenders.items()}
    repeats = {}
    for name, contender in contenders.items():
        steady = _time(contender, 1)[1]
        repeats[name] = max(1, math.ceil(seconds / max(steady, 1e-7)))
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in contenders}
    order = list(contenders)
    for _ in range(rounds):
        for name in order:
            taken[name].append(_time(contenders[name], repeats[name]))
        order.reverse()
    clocks = {name: np.asarray(pairs) for name, pairs in taken.items()}
    return {
        name: Timing(both[:, 0], both[:, 1], first_call[name], repeats[name]) for name, both in clocks.items()
    }


def _time(contender: Contender, repeats: int) -> tuple[float, float]:
    """CPU and wall seconds of one call, averaged over `repeats` blocking calls."""
    function, arguments = contender
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        jax.block_until_ready(function(*arguments))
    cpu_end, wall_end = time.process_time(), time.perf_counter()
    return (cpu_end - cpu) / repeats, (wall_end - wall) / repeats


def ratio(ours: Timing, peer: Timing) -> Ratio:
    """Peer / ours by CPU time, round by round: the median and the range of the rounds."""
    rounds = peer.cpu / ours.cpu
    return Ratio(float(np.median(rounds)), float(rounds.min()), float(rounds.max()))


def speed_row(
    size: str,
    peer: str,
    dtype: str,
    ours: Timing,
    theirs: Timing,
    *,
    target: float | None = None,
    error: float | None = None,
    peak_mb: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Row of a speed table, with the raw timings of both sides.

    Parameters
    ----------
    target : ratio to reach; the row then has `reached`.
    error : largest relative error of ours against a float64 reference, computed outside the timing.
    peak_mb : of ours, by `peak_memory`.
    more : further columns.
    """
    pair = ratio(ours, theirs)
    row = {
        "size": size,
        "peer": peer,
        "dtype": dtype,
        "ours_ms": 1e3 * float(np.median(ours.cpu)),
        "peer_ms": 1e3 * float(np.median(theirs.cpu)),
        "ours_wall_ms": 1e3 * float(np.median(ours.wall)),
        "peer_wall_ms": 1e3 * float(np.median(theirs.wall)),
        "ratio": pair.median,
        "ratio_low": pair.low,
        "ratio_high": pair.high,
        "compile_s": ours.first_call,
        "peak_mb": peak_mb,
        "error": error,
        **more,
    }
    if target is not None:
        row |= {"target": target, "reached": pair.median >= target}
    return row | {"timings": {"ours": ours._asdict(), "peer": theirs._asdict()}}


def peak_memory(contender: Contender) -> float | None:
    """Megabytes by which one warm call raises the process's resident memory at its peak.

    Counts results, not arguments and compiled code. Free memory is returned to the system first, so that an earlier
    call hides nothing. None if the system has no resettable high-water mark (Linux has `clear_refs`).
    """
    jax.block_until_ready(contender.function(*contender.arguments))
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
    except (AttributeError, OSError):
        return None
    before = _resident_kilobytes("VmRSS")
    result = jax.block_until_ready(contender.function(*contender.arguments))
    peak = _resident_kilobytes("VmHWM")
    del result
    return max(0.0, (peak - before) / 1024)


def _resident_kilobytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1])
    raise OSError(f"/proc/self/status has no {field}")
