"""The tour: an example of every system, with a table, a figure and an ArviZ file each.

A system is one line in `SYSTEMS`: a module with an `EXAMPLE`. Systems run one after the other, or side by side in a
pool of processes; never in threads, since two XLA programs of one process may wait for each other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from ethogram.terminal import format_table
from ethogram.tour.guide import TourReport, run

__all__ = ["SYSTEMS", "take_tour", "unknown_systems"]

SYSTEMS = {
    "planning": "ethogram.tour.planning",
    "marginal-map": "ethogram.tour.networks",
    "role-hmm": "ethogram.tour.roles",
    "gp-irl": "ethogram.tour.rewards",
    "agent-markov": "ethogram.tour.intents",
    "noisy-mdp": "ethogram.tour.choices",
}
"""The module of each system's example by name, imported when it is taken; the quickest first."""

LONGEST_WAIT = 1.0
"""Seconds: Ctrl-C just before a wait, or in another thread, does not end it, and is seen only after it."""

SECONDS_TO_CLEAN_UP = 1.0
"""That processes have to remove unfinished files before they are killed."""


def unknown_systems(names: Iterable[str]) -> list[str]:
    """The names that no system has."""
    return [name for name in names if name not in SYSTEMS]


def take_tour(
    systems: Sequence[str] = (),
    out: str | os.PathLike[str] = "tour",
    *,
    full: bool = False,
    seed: int = 0,
    processes: int = 1,
    prepare: Callable[[], object] | None = None,
) -> dict[str, TourReport]:
    """Report of each system; prints progress, and a table once a system is done.

    Parameters
    ----------
    systems : names from `SYSTEMS`; all of them where none is given.
    out : folder for a figure and a ``.nc`` file per system; made if it is not there.
    full : the long form, with more data and restarts.
    seed : of every random draw.
    processes : that run systems side by side; 1 runs all of them in this one.
    prepare : called in each process before its first fit; a function of a module, not a closure.

    Raises
    ------
    ValueError
        If a system is not known.
    OSError
        If `out` cannot be made or written to.
    RuntimeError
        If a process dies.
    """
    wrong = unknown_systems(systems)
    if wrong:
        raise ValueError(f"systems has {wrong[0]!r}: choose from {', '.join(SYSTEMS)}")
    names = list(dict.fromkeys(systems or SYSTEMS))
    processes = max(1, min(processes, len(names)))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    start = time.time()
    _say(start, "tour", f"{', '.join(names)}; processes: {processes}")
    jobs = {name: partial(_take, name, SYSTEMS[name], folder, full, seed, start) for name in names}
    if processes == 1 and prepare is not None:
        prepare()
    reports = {}
    one_by_one = ((name, job()) for name, job in jobs.items())
    for name, report in one_by_one if processes == 1 else _side_by_side(jobs, processes, prepare):
        reports[name] = report
        print(f"\n{name}\n{format_table(report.rows)}\n", flush=True)
    _say(start, "tour", f"{len(reports)} of {len(names)} done, figures and ArviZ files are in {folder}")
    return {name: reports[name] for name in names}


def _say(start: float, name: str, line: str) -> None:
    print(f"[{time.time() - start:5.1f} s] {name}: {line}", flush=True)


def _take(name: str, module: str, out: Path, full: bool, seed: int, start: float) -> TourReport:
    say = partial(_say, start, name)
    example = import_module(module).EXAMPLE
    return run(example, name, out, say, full=full, seed=seed)


def _side_by_side(
    jobs: Mapping[str, Callable[[], TourReport]], processes: int, prepare: Callable[[], object] | None
) -> Iterator[tuple[str, TourReport]]:
    """Reports in the order in which they are done; what goes wrong in one process ends all."""
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = futures.ProcessPoolExecutor(processes, context, _begin, (prepare,))
    try:
        with _interrupts_ignored():
            waiting = {pool.submit(_in_process, job): name for name, job in jobs.items()}
        while waiting:
            done, _ = futures.wait(waiting, LONGEST_WAIT, futures.FIRST_COMPLETED)
            for future in done:
                report = future.result()
                yield waiting.pop(future), report
    except BaseException as error:
        children = set(multiprocessing.active_children()) - before
        for child in children:
            child.terminate()
        latest = time.monotonic() + SECONDS_TO_CLEAN_UP
        for child in children:
            child.join(max(0.0, latest - time.monotonic()))
            child.kill()
        if isinstance(error, BrokenProcessPool):
            left = ", ".join(waiting.values())
            raise RuntimeError(f"a process of the tour died; not done: {left}") from None
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _begin(prepare: Callable[[], object] | None) -> None:
    """Set up a process of the pool, which ends when the one that started it ends it or is killed."""
    from tqdm import tqdm

    threading.Thread(target=_end_with_parent, daemon=True).start()
    tqdm.set_lock(
        threading.RLock()
    )  # its own is a semaphore of all processes, which outlives those that are ended
    if prepare is not None:
        prepare()
    # Last: the pool would report its SystemExit as an exception of this function.
    signal.signal(signal.SIGTERM, _end)


def _end(*_: object) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a pool that breaks sends it again
    sys.exit(1)


def _in_process(job: Callable[[], TourReport]) -> TourReport:
    """The report of a job; where SIGTERM ends it, its unfinished files are removed, and the process ends."""
    try:
        return job()
    except SystemExit:
        os._exit(1)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ctrl-C reaches all processes of a terminal; those started here ignore it, and are ended by this one."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)
