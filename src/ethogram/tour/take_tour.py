"""The tour: every system fitted on its embedded data, with a table, a figure and an ArviZ file each.

A system is one line in `SYSTEMS`: a module with the sizes `QUICK` and `FULL`, and a function
``tour(guide, sizes) -> TourReport``. Systems run one after the other, or side by side in processes of their own; never
in threads, since two XLA programs of one process may wait for each other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from multiprocessing import connection
from pathlib import Path
from typing import Any, NamedTuple

from ethogram.tour.board import live_board
from ethogram.tour.guide import Guide, TourReport, format_table

__all__ = ["SYSTEMS", "System", "available_cores", "take_tour", "unknown_systems"]


class System(NamedTuple):
    """A system of the tour, with the expected seconds of either form on one core, if nothing is compiled yet."""

    module: str  # whose ``tour`` is called
    quick: float
    full: float


SYSTEMS = {
    "role-hmm": System("ethogram.tour.roles", 39, 75),
    "agent-markov": System("ethogram.tour.intents", 40, 70),
    "noisy-mdp": System("ethogram.tour.choices", 75, 180),
    "gp-irl": System("ethogram.tour.rewards", 45, 100),
    "marginal-map": System("ethogram.tour.networks", 30, 55),
    "planning": System("ethogram.tour.planning", 15, 55),
}
"""The tour of each system by name, imported when it is taken."""

LONGEST_WAIT = 1.0
"""Seconds: Ctrl-C just before a wait, or in another thread, does not end it, and is seen only after it."""


def unknown_systems(names: Iterable[str]) -> list[str]:
    """The names that no system has."""
    return [name for name in names if name not in SYSTEMS]


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def take_tour(
    systems: Sequence[str] = (),
    out: str | os.PathLike[str] = "tour",
    *,
    full: bool = False,
    seed: int = 0,
    processes: int = 1,
    prepare: Callable[[], object] | None = None,
    say: Callable[[str], None] | None = None,
) -> dict[str, TourReport]:
    """Report of each system; prints progress, and a table once a system is done.

    Parameters
    ----------
    systems : names from `SYSTEMS`; all of them where none is given.
    out : folder for a figure and a ``.nc`` file a system; made if it is not there.
    full : the long form, with more restarts, iterations and draws.
    seed : of every random draw.
    processes : that run systems side by side; 1 runs all of them in this one.
    prepare : called before the first import of each process that fits; a function of a module, not a closure.
    say : takes a line; standard output, flushed, by default.

    Raises
    ------
    ValueError
        If a system is not known.
    OSError
        If `out` cannot be made or written to.
    """
    wrong = unknown_systems(systems)
    if wrong:
        raise ValueError(f"systems has {wrong[0]!r}: choose from {', '.join(SYSTEMS)}")
    names = list(dict.fromkeys(systems or SYSTEMS))
    processes = max(1, min(processes, len(names)))
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    expected = {name: SYSTEMS[name].full if full else SYSTEMS[name].quick for name in names}
    seconds = max(max(expected.values()), sum(expected.values()) / processes)
    noun = "process" if processes == 1 else "processes"
    bar = processes == 1 and sys.stderr.isatty()
    shared = (folder, full, seed, bar, prepare)
    plans = {name: partial(_take, SYSTEMS[name].module, name, *shared) for name in names}
    reports = {}
    with live_board(expected, live=say is None and processes > 1) as board:
        write = board.write if say is None else say

        def tell(name: str, line: str) -> None:
            write(f"[{time.perf_counter() - start:5.1f} s] {name}: {line}")
            board.update(name, line)

        about = f"about {seconds:.0f} s if nothing is compiled yet"
        tell("tour", f"{', '.join(names)} in {processes} {noun}: {about}")
        one_by_one = ((name, plan(partial(tell, name))) for name, plan in plans.items())
        for name, report in one_by_one if processes == 1 else _side_by_side(plans, processes, tell):
            reports[name] = report
            board.done(name)
            write("\n".join(["", name, format_table(report.rows), *report.notes, ""]))
        tell("tour", f"{len(reports)} of {len(names)} done, figures and ArviZ files are in {folder}")
    return {name: reports[name] for name in names}


def _take(
    module_name: str,
    name: str,
    out: Path,
    full: bool,
    seed: int,
    progress_bar: bool,
    prepare: Callable[[], object] | None,
    say: Callable[[str], None],
) -> TourReport:
    say("importing packages")
    if prepare is not None:
        prepare()
    module = import_module(module_name)
    guide = Guide(name, out, say, full=full, seed=seed, progress_bar=progress_bar)
    return module.tour(guide, module.FULL if full else module.QUICK)


def _side_by_side(
    plans: Mapping[str, Callable[..., TourReport]], processes: int, tell: Callable[[str, str], None]
) -> Iterator[tuple[str, TourReport]]:
    """Reports in the order in which they are done; what goes wrong in one process ends all."""
    context = multiprocessing.get_context("spawn")
    waiting = list(plans.items())
    running: dict[Any, tuple[str, Any]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                name, plan = waiting.pop(0)
                reader, writer = context.Pipe(duplex=False)
                child = context.Process(target=_take_beside, args=(writer, plan), daemon=True)
                with _interrupts_ignored():
                    child.start()
                writer.close()
                running[reader] = name, child
            ready: list[Any] = connection.wait(list(running), LONGEST_WAIT)
            for reader in ready:
                name, child = running[reader]
                try:
                    message = reader.recv()
                except EOFError:
                    child.join()
                    raise RuntimeError(f"the tour of {name} ended with exit code {child.exitcode}") from None
                if isinstance(message, str):
                    tell(name, message)
                elif isinstance(message, BaseException):
                    raise message
                else:
                    child.join()
                    del running[reader]
                    yield name, message
    finally:
        for _, child in running.values():
            child.terminate()


def _take_beside(writer: Any, plan: Callable[..., TourReport]) -> None:
    """Sends lines, and then the report or the error."""
    # Processes share an accelerator: none may take all of its memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with writer:
        try:
            writer.send(plan(writer.send))
        except BrokenPipeError:
            pass  # nobody waits for this tour any more
        except Exception as error:
            error.add_note(traceback.format_exc())
            writer.send(error)


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
