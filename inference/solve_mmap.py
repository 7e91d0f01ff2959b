r"""Marginal MAP: which states of some variables of a network are most probable together, all others summed out.

Joint: the one most probable setting of all MAP variables at once, which is neither every variable's own most probable
state nor a part of the most probable explanation of everything.

* ``"hybrid"``, for use. Zeros are propagated; where elimination in the constrained order is affordable the answer is
  exact, and says so; else neighbourhoods are searched exactly from many starts: draws of the network, explanations of
  everything, answers that gradient ascent on the surrogate passes, and the best so far, shaken.
* ``"ags"``, the paper's algorithm and nothing else: gradient ascent on forward marginals with the authors' step, on
  smoothed tables; the surrogate chooses, and only what it has chosen is scored.
* ``"exact"``, by elimination or not at all.
* ``"mpbp"`` and ``"mpbp-cavity"``, mixed-product belief propagation on smoothed tables.
* ``"mpe"``, the most probable explanation of everything, of which the MAP variables are taken.
* ``"sequential"``, the most probable state of one variable after the other, given those before.
* ``"marginal"``, of every variable alone.

Log probabilities are of the tables as they are. They are exact where the sum over the hidden variables is affordable
once MAP variables are known, which is most often so; else they are Bethe estimates, and say so.

Park and Darwiche (2004), "Complexity results and approximation strategies for MAP explanations"; Cui, Marinescu,
Khardon (2018), "From Stochastic Planning to Marginal MAP".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jax import Array

from ethogram.inference import mmap_methods
from ethogram.inference.hybrid_mmap import hybrid
from ethogram.inference.incumbent import Clock, Incumbent, TracePoint
from ethogram.inference.zero_propagation import contradiction
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["METHODS", "ImpossibleEvidenceError", "MarginalMAPResult", "solve_mmap"]

METHODS = {
    "hybrid": hybrid,
    "ags": mmap_methods.ags,
    "exact": mmap_methods.exact,
    "mpbp": mmap_methods.mpbp,
    "mpbp-cavity": mmap_methods.mpbp_cavity,
    "mpe": mmap_methods.mpe,
    "sequential": mmap_methods.sequential,
    "marginal": mmap_methods.marginal,
}


class ImpossibleEvidenceError(ValueError):
    """The evidence has probability zero."""


class MarginalMAPResult(NamedTuple):
    """An answer to a marginal MAP question.

    Attributes
    ----------
    assignment : states of the MAP variables by name, as names where the network has some.
    states : (map,) their numbers, in the order of the query.
    log_probability : ln p(d, e) in nats; -inf where no answer that is possible was found.
    kind : ``"exact"``, or ``"estimate"`` for the Bethe estimate.
    log_probability_smoothed : of the same answer in the network whose zeros are 1e-4, where that was asked for.
    upper_bound : no answer has a larger log probability; inf where no bound was affordable.
    proved_optimal : whether no answer is better, but for rounding.
    method : that was asked for.
    seconds : of the wall clock.
    trace : better and better answers, and when they were found.
    """

    assignment: dict[str, Any]
    states: np.ndarray
    log_probability: float
    kind: str
    log_probability_smoothed: float | None
    upper_bound: float
    proved_optimal: bool
    method: str
    seconds: float
    trace: tuple[TracePoint, ...]


def solve_mmap(
    key: Array,
    query: MarginalMAP,
    method: str = "hybrid",
    *,
    time_limit: float | None = 10.0,
    max_steps: int | None = None,
    callback: Callable[[TracePoint], Any] | None = None,
    clock: str = "wall",
    most_cells: int = 2**25,
    smoothed_score: bool = False,
) -> MarginalMAPResult:
    """The best answer found within a time; interrupted (Ctrl-C), the best so far.

    The first answer comes before anything is compiled, but for ``"ags"``.

    Parameters
    ----------
    key : typed. The same key and `max_steps` without a time limit give the same answer.
    method : one of :data:`METHODS`. ``"exact"``, ``"marginal"`` and the last score of any answer take what they take.
    time_limit : seconds from the call; None for none.
    max_steps : neighbourhoods of ``"hybrid"`` and ``"mpe"``, steps of ``"ags"``, sweeps of ``"mpbp"``.
    callback : told of every answer that is better than all before, as it is found.
    clock : whose seconds: ``"wall"``, or ``"cpu"`` for those of all threads of this process.
    most_cells : of one table; it bounds the memory, 8 bytes a cell and a few tables at a time.
    smoothed_score : whether to score the answer in the smoothed network of the paper too, once the search has ended:
        an elimination more, on top of `time_limit`, and a wider one, since no zero is left.

    Raises
    ------
    ImpossibleEvidenceError
        The evidence has probability zero: with what cannot be together where propagation of zeros finds it, else
        where elimination or a bound has.
    WidthError
        ``"exact"`` would need a table with more than `most_cells` cells.
    TypeError, ValueError
        `query` is no MarginalMAP, there is no such method, there is neither a time limit nor a number of steps for a
        method that goes on, or a number is not positive.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from ethogram.models.bayes_net import BayesNet
    >>> rain, wet = np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> garden = BayesNet((rain, wet), ((), (0,)), names=("rain", "wet"), state_names=(("no", "yes"),) * 2)
    >>> found = solve_mmap(jax.random.key(0), MarginalMAP(garden, {"wet": "yes"}, ["rain"]))
    >>> found.assignment, round(float(np.exp(found.log_probability)), 2), found.proved_optimal
    ({'rain': 'yes'}, 0.16, True)
    """
    timer = Clock(time_limit, clock)
    _check(query, method, time_limit, max_steps, clock, most_cells)
    impossible = contradiction(query)
    if impossible is not None:
        told = ", ".join(_told(query, variable) for variable in impossible)
        raise ImpossibleEvidenceError(
            f"evidence has probability zero: {told or 'the tables'} cannot be together"
        )
    incumbent = Incumbent(query, timer, callback)
    try:
        METHODS[method](key, query, incumbent, max_steps, most_cells)
    except KeyboardInterrupt:
        if incumbent.states is None:
            raise
    if incumbent.upper_bound == -math.inf:
        told = ", ".join(_told(query, variable) for variable in [*dict(query.observed), *dict(query.soft)])
        raise ImpossibleEvidenceError(f"evidence has probability zero: {told or 'the tables'}")
    if incumbent.states is None:
        incumbent.offer(np.zeros(len(query.map_variables), int), -math.inf, "exact")
    assert incumbent.states is not None
    smoothed = mmap_methods.smoothed_score(query, incumbent.states, most_cells) if smoothed_score else None
    return MarginalMAPResult(
        query.named(incumbent.states),
        incumbent.states,
        incumbent.log_probability,
        incumbent.kind,
        smoothed,
        incumbent.upper_bound,
        incumbent.proved,
        method,
        timer.wall_s(),
        tuple(incumbent.trace),
    )


def _told(query: MarginalMAP, variable: int) -> str:
    """Evidence of a variable, for a message."""
    network, states = query.network, dict(query.observed)
    if variable not in states:
        return f"likelihoods of {network.names[variable]}"
    known, state = network.state_names, states[variable]
    return f"{network.names[variable]} = {state if known is None else known[variable][state]}"


def _check(
    query: Any, method: str, time_limit: float | None, max_steps: int | None, clock: str, most_cells: int
) -> None:
    if not isinstance(query, MarginalMAP):
        raise TypeError(f"query is {type(query).__name__}: give a MarginalMAP")
    if method not in METHODS:
        raise ValueError(f"method is {method!r}: take one of {', '.join(METHODS)}")
    if clock not in ("wall", "cpu"):
        raise ValueError(f"clock is {clock!r}: take wall or cpu")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"time_limit is {time_limit}: give seconds above 0, or None")
    for name, value in (("max_steps", max_steps), ("most_cells", most_cells)):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}: give an integer of at least 1")
    if time_limit is None and max_steps is None and method in ("hybrid", "ags"):
        raise ValueError(f"time_limit and max_steps are both None: {method!r} would go on for ever")
