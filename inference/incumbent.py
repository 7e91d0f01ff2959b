"""The best answer so far of a search that may be stopped at any time, and the clock that stops it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.bayes_net import MarginalMAP

__all__ = ["Clock", "Incumbent", "TracePoint", "until"]

SAME = 1e-12


class TracePoint(NamedTuple):
    """An answer that was better than all before.

    Attributes
    ----------
    wall_s, cpu_s : seconds of the wall clock since the call, and of all threads of the process.
    log_probability : in nats.
    kind : ``"exact"`` or ``"estimate"``.
    source : what it came from.
    states : (map,) of the MAP variables.
    """

    wall_s: float
    cpu_s: float
    log_probability: float
    kind: str
    source: str
    states: np.ndarray


class Clock:
    """Seconds since it was made, and whether they are over.

    Parameters
    ----------
    limit : seconds; None for none.
    kind : ``"wall"``, or ``"cpu"`` for the time of all threads of the process, which other programs do not shorten.
    """

    def __init__(self, limit: float | None, kind: str = "wall"):
        self.limit, self.kind = limit, kind
        self.wall, self.cpu = time.monotonic(), time.process_time()

    def wall_s(self) -> float:
        return time.monotonic() - self.wall

    def cpu_s(self) -> float:
        return time.process_time() - self.cpu

    def left(self) -> float:
        return (
            math.inf
            if self.limit is None
            else self.limit - (self.wall_s() if self.kind == "wall" else self.cpu_s())
        )

    def over(self) -> bool:
        return self.left() <= 0


class Incumbent:
    """The best answer, how it was found, and what is known of better ones.

    Exact probabilities and estimates are never compared: the first exact one takes the place of any estimate. An answer
    that is impossible gives way to any that is not.
    """

    def __init__(self, query: MarginalMAP, clock: Clock, callback: Callable[[TracePoint], Any] | None = None):
        self.query, self.clock, self.callback = query, clock, callback
        self.states: np.ndarray | None = None
        self.log_probability, self.kind = -math.inf, "exact"
        self.upper_bound, self.proved = math.inf, False
        self.trace: list[TracePoint] = []

    def offer(self, states: Any, log_probability: float, kind: str, source: str = "") -> bool:
        """Take an answer if it is better; whether it was."""
        if self.states is not None:
            if log_probability == -math.inf:
                return False
            surer = kind == "exact" and self.kind == "estimate"
            rival = kind == self.kind and log_probability > self.log_probability + SAME
            if not (surer or rival or self.log_probability == -math.inf):
                return False
        self.states = np.array(states, int)
        self.log_probability, self.kind = float(log_probability), kind
        if log_probability > -math.inf:
            seconds = self.clock.wall_s(), self.clock.cpu_s()
            point = TracePoint(*seconds, self.log_probability, kind, source, self.states)
            self.trace.append(point)
            if self.callback is not None:
                self.callback(point)
        return True

    def prove(self) -> None:
        """Nothing is better."""
        self.proved = True
        self.upper_bound = self.log_probability


def until(work: Callable[[], None], clock: Clock) -> None:
    """Do something that looks at a clock, but may be compiling when that strikes: it is then left to end by itself.

    A compilation cannot be interrupted. Without a limit, work is done in the thread that calls.
    """
    if clock.limit is None:
        work()
        return
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)  # one that ends with the process would crash in XLA
    thread.start()
    while thread.is_alive() and not clock.over():
        thread.join(min(max(clock.left(), 0.001), 0.05))
    if failed:
        raise failed[0]
