"""An anytime search: its clock, its incumbent (Zilberstein 1996), and what a method of `solve_mmap` is given.

A method is entered in :data:`solve_mmap.METHODS` by its name. It offers assignments to ``task.incumbent`` as it finds
them, certified upper bounds and proofs too, and returns when it is done or ``task.incumbent.clock`` is over.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax import Array
from jaxtyping import Int

from ethogram.inference.networks.elimination import WidthError, exact_log_probability
from ethogram.inference.networks.mixed_product import propagate_beliefs
from ethogram.inference.networks.zero_propagation import ReducedFactors, query_factors
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = [
    "SCHEDULE",
    "Answer",
    "Bound",
    "Clock",
    "Closed",
    "Event",
    "Incumbent",
    "Schedule",
    "Task",
    "TracePoint",
    "score_states",
    "until",
]

LEAST_GAIN = 1e-12
"""Nats by which an assignment must be better to replace the incumbent."""


class Schedule(NamedTuple):
    """How the searches share time, cells and steps; `benchmarks/papers/mmap_*` measure what a change does."""

    planned_seconds: float = 60.0  # at most that plans count with, however much is left
    # exact elimination
    elimination_share: float = 0.4  # of the time limit
    cells_per_second: float = 1e7  # a cautious rate of elimination
    usual_cells_per_second: float = 4e7
    mpe_cells_per_second: float = 2e7  # of an exact MPE; seconds are those left
    immediate_cells: float = 2e6  # of an elimination that is done before anything else
    negligible_cells: int = 2**20  # of a table
    marginal_cells: int = 2**16  # of a table of the posterior modes that a search starts from
    # before the search
    large_network_variables: int = 300  # above which planning takes longer than a first sample
    marginals_min_seconds: float = 0.25  # left, for posterior modes
    sample_conflicts: int = 500  # after which a sample is given up, until the next one goes on
    # turns of bounds and proofs
    proof_share: float = 0.5  # of the time
    stale_proof_share: float = 0.75  # where the answer is as old as half of the time
    wide_proof_share: float = 0.4  # where the gap is wide
    wide_gap_nats: float = 3.0
    estimate_bound_share: float = 0.25  # where there are estimates alone
    mpe_proof_share: float = 0.5
    mpe_first_proof_share: float = 0.8  # before there is a possible explanation
    # slices of the time left, for one candidate
    short_slice_share: float = 0.05
    slice_share: float = 0.15
    long_slice_share: float = 0.35
    overshoot_seconds: float = 0.05  # of the last answer, where there are estimates alone
    certified_cells_per_second: float = 2e5  # of a certified sum; seconds are those left
    # neighbourhoods
    neighbourhood_cells: int = 2**17  # of the largest table, or eight times those of one sum if that is more
    path_share: float = 0.4  # of neighbourhoods that follow a path instead of growing on all sides
    perturbed_share: float = 0.5  # of neighbourhoods in climbs from perturbed incumbents, not from new starts
    mpe_rounds: int = 200
    completion_rounds: int = 100
    sequential_rounds: int = 64
    # stages of mini-buckets, and branch and bound under them
    stage_cells: tuple[int, ...] = (2**11, 2**13, 2**15, 2**17, 2**19, 2**21, 2**23)
    first_stage_passes: int = 12
    planned_passes: int = 12  # that there must be time for in a later stage
    most_passes: int = 100
    pass_seconds_per_cell: float = 3e-8
    pass_seconds_per_table: float = 4e-5
    chunk_seconds: float = 2e-4  # of branch and bound, beside its sums
    node_seconds: float = 1e-6
    stage_share: float = 0.25  # of the time left for the passes of a stage
    wide_stage_share: float = 0.5
    skipped_stage_share: float = 0.1  # of one that makes the stage before it needless
    near_gap_nats: float = 1.5  # above which branch and bound has less time before larger mini-buckets
    far_branch_share: float = 0.25  # of that time, then
    bytes_per_cell: int = 32
    most_bytes: int = 2**31


SCHEDULE = Schedule()


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
    """An upper bound of a proof."""

    value: float


class Closed(NamedTuple):
    """The last answer is optimal, or none is possible."""


Event = Answer | Bound | Closed | None
"""What a search yields; None where it may be left, or be given a better answer."""


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

    def planned(self) -> float:
        """Seconds left that plans count with."""
        return min(self.left(), SCHEDULE.planned_seconds)

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
            rival = kind == self.kind and log_probability > self.log_probability + LEAST_GAIN
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
        if not same or abs(log_probability - self.log_probability) > LEAST_GAIN or kind != self.kind:
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
    failed, done = list[BaseException](), threading.Event()

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)
        done.set()

    threading.Thread(target=run).start()  # a daemon thread would crash in XLA when the process ends
    while not (done.is_set() or clock.over()):
        done.wait(min(max(clock.left(), 0.001), 0.05))  # Ctrl-C in a join would count the thread as ended
    if failed:
        raise failed[0]


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
