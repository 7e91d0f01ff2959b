"""Tasks of many fits by an executor: in this process, in spawned processes, or wherever a given executor runs them."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any

from ethogram.fits.fit_tasks import here, jax_config, run_packed, run_task
from ethogram.fits.task_types import Failure, Item, Outcome, Task, failure_of
from ethogram.models.arguments import require_integer

__all__ = ["check_executor", "run_tasks"]

MOST_TASKS = 400
"""Tasks after which a process of our own is replaced by a new one, and its memory freed."""
AHEAD = 2
"""Tasks in flight per process."""
MANY_PROCESSES = 128
"""Processes that an executor is taken to have which does not say how many."""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
ENDED = "its process ended without a word: it was killed, or used more memory than there is"
Done = Callable[[list[Outcome]], None]


def check_executor(executor: Any) -> None:
    """Raise TypeError or ValueError unless an executor is None, a number of processes, or one that does not fork."""
    if executor is None:
        return
    if isinstance(executor, int) and not isinstance(executor, bool):
        require_integer("executor", executor, 1)
        return
    if not callable(getattr(executor, "submit", None)):
        raise TypeError(
            f"executor is {type(executor).__name__}: give None, a number of processes, or an executor of "
            "concurrent.futures, such as ProcessPoolExecutor or Client.get_executor() of Dask"
        )
    context = getattr(executor, "_mp_context", None)
    if context is not None and context.get_start_method() == "fork":
        raise ValueError(
            "executor forks this process, and a process that is forked after JAX has started may hang: give "
            'ProcessPoolExecutor(n, mp_context=multiprocessing.get_context("spawn")), or executor=n'
        )


def run_tasks(phases: Sequence[Iterator[Task]], executor: Any, retries: int, done: Done) -> bool:
    """Run tasks, hand their outcomes to `done`, and tell whether all were run.

    Those of a phase are run by an executor before the next begins: the programs that they compile are then in the
    compilation cache. Where a process ends, the items that it may have had are run again one by one, and those whose
    processes end too fail. An executor that was given and breaks leaves the rest undone.
    """
    if executor is None:
        for task in itertools.chain(*phases):
            done(run_task(task))
        return True
    if not isinstance(executor, int):
        processes = getattr(executor, "_max_workers", MANY_PROCESSES)
        ended: list[Task] = []
        for tasks in phases:
            ended += [] if ended else _flow(executor, tasks, AHEAD * processes, done)
        for task in ended:
            done(_failed(task))
        return not ended
    started = False
    while True:
        with _spawned(executor) as pool:
            ended = []
            for tasks in phases:
                ended += [] if ended else _flow(pool, tasks, AHEAD * executor, done)
        if not ended:
            return True
        if not started:
            _require_start(executor)
            started = True
        for task in (single for each in ended for single in _singles(each)):
            _alone(task, max(retries, 1), done)


def _flow(pool: Executor, tasks: Iterator[Task], most: int, done: Done) -> list[Task]:
    """Run tasks, at most so many in flight, until there are none or the pool is broken; those that got no answer."""
    running: dict[Future[Any], Task] = {}
    ended: list[Task] = []
    broken = False
    ready = _packed(tasks, done)
    while True:
        for task, packed in itertools.islice(ready, 0 if broken else most - len(running)):
            try:
                running[pool.submit(run_packed, packed, jax_config(), here())] = task
            except BrokenProcessPool:
                ended.append(task)
                broken = True
                break
        if not running:
            return ended
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            task = running.pop(future)
            try:
                done(future.result())
            except (BrokenProcessPool, CancelledError):
                ended.append(task)
                broken = True
            except Exception as error:
                if type(error).__name__ != "KilledWorker":  # Dask's, which goes on with other workers
                    raise
                done(_failed(task))


def _packed(tasks: Iterator[Task], done: Done) -> Iterator[tuple[Task, bytes]]:
    """Tasks and what is sent of them; items whose data do not pickle fail."""
    for task in tasks:
        try:
            packed = pickle.dumps(task)
        except Exception:
            failed = {item.name: failure for item in task.items if (failure := _unpicklable(item))}
            if not failed:
                raise
            done([Outcome(name, failure, ()) for name, failure in failed.items()])
            task = task._replace(items=tuple(item for item in task.items if item.name not in failed))
            packed = pickle.dumps(task)
        if task.items:
            yield task, packed


def _unpicklable(item: Item) -> Failure | None:
    try:
        pickle.dumps(item.data)
    except Exception as error:
        return failure_of(item.name, error)
    return None


def _alone(task: Task, tries: int, done: Done) -> None:
    """Run a task of one item in a process of its own, so often that it may end."""
    for _ in range(tries):
        with _spawned(1) as pool:
            if not _flow(pool, iter([task]), 1, done):
                return
    done(_failed(task))


def _singles(task: Task) -> list[Task]:
    return [task._replace(items=(item,)) for item in task.items]


def _failed(task: Task) -> list[Outcome]:
    return [Outcome(item.name, Failure(item.name, ENDED, ""), ()) for item in task.items]


@contextlib.contextmanager
def _spawned(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Spawned processes with one thread of BLAS each, which end with the block, or with this process."""
    context = multiprocessing.get_context("spawn")
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update({name: "1" for name, value in before.items() if value is None})
    pool = ProcessPoolExecutor(processes, context, _begin, max_tasks_per_child=MOST_TASKS)
    try:
        yield pool
    except BaseException:  # Ctrl-C above all: what is in flight is dropped
        children = [*(pool._processes or {}).values()]
        pool.shutdown(wait=False, cancel_futures=True)
        for child in children:
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def _begin() -> None:
    """In a new process: Ctrl-C is for its parent, and it ends when that does, be it killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            connection.wait([parent.sentinel])
            os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _require_start(processes: int) -> None:
    """Raise RuntimeError where new processes end before they begin."""
    with _spawned(1) as pool:
        try:
            pool.submit(here).result()
        except BrokenProcessPool:
            raise RuntimeError(
                f"executor={processes} starts processes, which end before they begin: in a script, call map_fits below "
                'if __name__ == "__main__":, since every process imports the script'
            ) from None
