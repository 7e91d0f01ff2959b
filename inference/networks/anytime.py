"""An anytime search: its clock, its incumbent (Zilberstein 1996), and what a method of `solve_mmap` is given.

A method is entered in :data:`solve_mmap.METHODS` by its name. It offers assignments to ``task.incumbent`` as it finds
them, certified upper bounds and proofs too, and returns when it is done or ``task.incumbent.clock`` is over.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from jax import Array
from jaxtyping import Int

from ethogram.inference.networks.elimination import WidthError, exact_log_probability
from ethogram.inference.networks.mixed_product import propagate_beliefs
from ethogram.inference.networks.zero_propagation import ReducedFactors, query_factors
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = [
    "Answer",
    "Bound",
    "Clock",
    "Closed",
    "Incumbent",
    "Method",
    "Task",
    "TracePoint",
    "score_states",
    "until",
]

SAME = 1e-12


class TracePoint(NamedTuple):
    """A new incumbent.

    Attributes
    ----------
    wall_s, cpu_s : wall-clock seconds since the call, and CPU seconds of all threads of the process.
    log_probability : in nats.
    kind : ``"exact"`` or ``"estimate"``.
    source : the part of the search that found it.
    states : (map,) of the MAP variables.
    """

    wall_s: float
    cpu_s: float
    log_probability: float
    kind: str
    source: str
    states: Int[np.ndarray, "map"]

    def at(self, clock: str) -> float:
        """Seconds since the call of ``"wall"`` or ``"cpu"`` time."""
        return self.wall_s if clock == "wall" else self.cpu_s


class Answer(NamedTuple):
    """A better assignment of a search: places by variable, their log probability, and the part that found them."""

    places: dict[int, int]
    value: float
    source: str


class Bound(NamedTuple):
    """An upper bound of a proof, without the network's constant."""

    value: float


class Closed(NamedTuple):
    """The last answer is optimal, or none is possible."""


class Clock:
    """A stopwatch with a time limit in seconds, or none, of ``"wall"`` or ``"cpu"`` time.

    The latter is that of all threads of the process, and does not depend on the load.
    """

    def __init__(self, limit: float | None, kind: str = "wall"):
        self.limit, self.kind = limit, kind
        self.wall, self.cpu = time.monotonic(), time.process_time()

    def wall_s(self) -> float:
        return time.monotonic() - self.wall

    def cpu_s(self) -> float:
        return time.process_time() - self.cpu

    def passed(self) -> float:
        """Seconds of the kind that is limited."""
        return self.wall_s() if self.kind == "wall" else self.cpu_s()

    def left(self) -> float:
        return math.inf if self.limit is None else self.limit - self.passed()

    def over(self) -> bool:
        return self.left() <= 0


class Incumbent:
    """The best assignment so far, its trace, and an upper bound.

    Exact log probabilities and estimates are never compared: the first exact one replaces any estimate. An impossible
    assignment is replaced by any possible one.
    """

    def __init__(self, query: MarginalMAP, clock: Clock, callback: Callable[[TracePoint], Any] | None = None):
        self.query, self.clock, self.callback = query, clock, callback
        self.states: np.ndarray | None = None
        self.log_probability, self.kind = -math.inf, "exact"
        self.upper_bound, self.lower_bound, self.proved = math.inf, -math.inf, False
        self.trace: list[TracePoint] = []

    def offer(self, states: Any, log_probability: float, kind: str, source: str = "") -> bool:
        """Accept an assignment if it is better than the incumbent; whether it was."""
        if self.states is not None:
            if log_probability == -math.inf:
                return False
            surer = kind == "exact" and self.kind == "estimate"
            rival = kind == self.kind and log_probability > self.log_probability + SAME
            if not (surer or rival or self.log_probability == -math.inf):
                return False
        certain = log_probability if kind == "exact" else -math.inf
        self._take(states, log_probability, kind, source, certain)
        return True

    def replace(
        self, states: Any, log_probability: float, kind: str, source: str, lower_bound: float
    ) -> None:
        """Take an assignment in place of the incumbent, even if that seemed better, and a certified lower bound."""
        same = self.states is not None and np.array_equal(self.states, states)
        if not same or abs(log_probability - self.log_probability) > SAME or kind != self.kind:
            self._take(states, log_probability, kind, source, lower_bound)
        self.lower_bound = lower_bound

    def _take(self, states: Any, log_probability: float, kind: str, source: str, lower_bound: float) -> None:
        self.states, self.lower_bound = np.array(states, int), float(lower_bound)
        self.log_probability, self.kind = float(log_probability), kind
        if log_probability > -math.inf:
            seconds = self.clock.wall_s(), self.clock.cpu_s()
            point = TracePoint(*seconds, self.log_probability, kind, source, self.states)
            self.trace.append(point)
            if self.callback is not None:
                self.callback(point)

    def prove(self) -> None:
        """Mark the incumbent as optimal."""
        self.proved = True
        self.upper_bound = self.log_probability


def until(work: Callable[[], None], clock: Clock) -> None:
    """Run work that checks the clock itself, and return at the time limit even if it is still compiling.

    A compilation cannot be interrupted: it ends in its own thread. Without a limit the calling thread does the work.
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

    thread = threading.Thread(target=run)  # a daemon thread would crash in XLA when the process ends
    thread.start()
    while thread.is_alive() and not clock.over():
        thread.join(min(max(clock.left(), 0.001), 0.05))
    if failed:
        raise failed[0]


class Method(Protocol):
    """A method of `solve_mmap`."""

    def __call__(self, task: Task, /) -> None:
        """Better the incumbent of a task, and mark it as optimal where that is proved."""


class Task(NamedTuple):
    """What a method is given: a query with its factors after propagation of zeros, and the incumbent to better."""

    key: Array
    query: MarginalMAP
    possible: ReducedFactors
    incumbent: Incumbent
    max_steps: int | None
    most_cells: int

    def offer(self, states: Sequence[int] | np.ndarray, source: str) -> None:
        """Score an assignment and offer it to the incumbent."""
        self.incumbent.offer(states, *self.score(states), source)

    def score(self, states: Sequence[int] | np.ndarray) -> tuple[float, str]:
        """Log probability of an assignment and its kind."""
        return score_states(self.query, states, self.most_cells, self.incumbent.clock.over)

    def chosen(self, states: Mapping[int, int]) -> list[int]:
        """The states of the MAP variables, of states by variable."""
        return [states.get(variable, 0) for variable in self.query.map_variables]


def score_states(
    query: MarginalMAP, states: Any, most_cells: int, stop: Callable[[], bool] | None = None
) -> tuple[float, str]:
    """Log probability of an assignment and its kind: exact, or a Bethe estimate where the sum is too wide."""
    try:
        return exact_log_probability(query, np.asarray(states), most_cells=most_cells), "exact"
    except WidthError:
        found = propagate_beliefs(query_factors(query, states), max_sweeps=200, damping=0.3, stop=stop)
        return query.network.log_constant + found.log_evidence, "estimate"
