r"""Anytime solver of marginal MAP queries.

The answer is one joint assignment of all MAP variables, which is neither every variable's own posterior mode nor the
restriction of the most probable explanation (MPE).

* ``"hybrid"``, the default. Zeros are propagated; where constrained elimination is affordable the answer is exact and
  proved optimal; else large-neighbourhood search from ancestral samples, MPEs and perturbed incumbents, and beside it
  branch and bound under weighted mini-buckets, which gives the upper bound and the proof.
* ``"ags"``, the algorithm of Cui, Marinescu and Khardon and nothing else: gradient ascent on forward marginals with the
  authors' step, on smoothed tables; the surrogate chooses the answer, and only that answer is scored.
* ``"exact"``, constrained elimination or a `WidthError`.
* ``"mpbp"`` and ``"mpbp-cavity"``, mixed-product belief propagation on smoothed tables.
* ``"mpe"``, the most probable explanation, restricted to the MAP variables; where all variables are, it is proved
  optimal by elimination or branch and bound, or has an upper bound.
* ``"sequential"``, greedy: one variable after the other, at its posterior mode given those before.
* ``"marginal"``, every variable at its own posterior mode.

Log probabilities are those of the tables as given. They are exact where the sum over hidden variables is affordable
given an assignment, which is most often so; else they are Bethe estimates, marked as such. Samples are possible by a
search that learns from conflicts, which also proves evidence impossible where propagation of zeros does not see it.

Park and Darwiche (2004), "Complexity results and approximation strategies for MAP explanations", for
constrained elimination and the baselines; Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP",
section 3, for AGS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np
from jax import Array
from jaxtyping import Int

from ethogram.inference.networks import methods
from ethogram.inference.networks.anytime import Clock, Incumbent, Task, TracePoint
from ethogram.inference.networks.hybrid import hybrid
from ethogram.inference.networks.zero_propagation import minimal_conflict, propagate_zeros, query_factors
from ethogram.models.arguments import (
    require_flag,
    require_integer,
    require_key,
    require_number,
    require_one_of,
)
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.printing import short_repr

__all__ = ["METHODS", "ImpossibleEvidenceError", "MarginalMAPResult", "solve_mmap"]

METHODS: dict[str, Callable[[Task], None]] = {
    "hybrid": hybrid,
    "ags": methods.ags,
    "exact": methods.exact,
    "mpbp": methods.mpbp,
    "mpbp-cavity": methods.mpbp_cavity,
    "mpe": methods.mpe,
    "sequential": methods.sequential,
    "marginal": methods.marginal,
}


class ImpossibleEvidenceError(ValueError):
    """The evidence has probability zero."""


@short_repr
class MarginalMAPResult(NamedTuple):
    """The best assignment found for a marginal MAP query.

    Attributes
    ----------
    assignment : states of the MAP variables by name, with state names where the network has some; None where the hybrid
        found no possible one. Answers of the other methods may be impossible.
    states : (map,) their numbers, in the order of the query; None likewise.
    log_probability : ln p(d, e) in nats; -inf where no possible assignment was found.
    kind : ``"exact"``, or ``"estimate"`` for a Bethe estimate, or for a lower bound: the joint log probability of all
        variables in the first sample.
    log_probability_smoothed : of the same assignment in the smoothed network (zeros are 1e-4); None unless requested.
    upper_bound : on the optimal log probability, never below an exact `log_probability`; inf where there is none.
    proved_optimal : whether the assignment is optimal, up to rounding.
    method : that was run.
    seconds : wall-clock time.
    trace : successive incumbents and when they were found.
    lower_bound : certified, on the log probability of this assignment, which equals it if that is exact; -inf where
        there is none.
    """

    assignment: dict[str, Any] | None
    states: Int[np.ndarray, "map"] | None
    log_probability: float
    kind: str
    log_probability_smoothed: float | None
    upper_bound: float
    proved_optimal: bool
    method: str
    seconds: float
    trace: tuple[TracePoint, ...]
    lower_bound: float = -math.inf

    def draws_for_export(self, key: Array, num_draws: int) -> NoReturn:
        """Raise TypeError: an assignment has no draws for ``to_arviz``."""
        raise TypeError(
            "result is a MarginalMAPResult, one assignment and no draws: read .assignment, .log_probability and .trace"
        )


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
    """The best assignment found within a time limit; on Ctrl-C, the incumbent.

    The first incumbent comes before anything is compiled, except with ``"ags"``.

    Parameters
    ----------
    key : typed PRNG key. Without a time limit, the same key and `max_steps` give the same result.
    query : network, evidence and MAP variables.
    method : one of :data:`METHODS`. ``"exact"``, ``"marginal"`` and the final score do not check the time limit.
    time_limit : seconds from the call; None for no limit.
    max_steps : neighbourhoods of ``"hybrid"`` and ``"mpe"``, ascent steps of ``"ags"``, sweeps of ``"mpbp"``.
    callback : called with every new incumbent.
    clock : ``"wall"``, or ``"cpu"`` for the CPU time of all threads of this process.
    most_cells : cells of the largest table allowed; bounds the memory, 8 bytes per cell and a few tables at a time.
    smoothed_score : whether to score the answer in the smoothed network of the paper as well, after the search: one
        more elimination on top of `time_limit`, and a wider one, since no zeros are left.

    Raises
    ------
    ImpossibleEvidenceError
        The evidence has probability zero; the message has a minimal conflict where propagation of zeros or
        the parity checks show one.
    WidthError
        ``"exact"`` would need a table with more than `most_cells` cells.
    TypeError, ValueError
        `query` is not a MarginalMAP, `key` is not a typed key, the method or clock does not exist, a number is not
        positive, or a search that never ends by itself has neither a time limit nor a number of steps.

    Examples
    --------
    >>> import jax, numpy as np
    >>> from ethogram.models.networks import BayesNet
    >>> rain, wet = np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> garden = BayesNet((rain, wet), ((), (0,)), names=("rain", "wet"), state_names=(("no", "yes"),) * 2)
    >>> found = solve_mmap(jax.random.key(0), MarginalMAP(garden, {"wet": "yes"}, ["rain"]))
    >>> found.assignment, round(float(np.exp(found.log_probability)), 2), found.proved_optimal
    ({'rain': 'yes'}, 0.16, True)
    """
    timer = Clock(time_limit, clock)
    require_key(key)
    if not isinstance(query, MarginalMAP):
        raise TypeError(f"query must be a MarginalMAP, not {type(query).__name__}")
    require_one_of("method", method, tuple(METHODS))
    require_one_of("clock", clock, ("wall", "cpu"))
    if time_limit is not None:
        timer.limit = require_number("time_limit", time_limit, above=0)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be callable, not {type(callback).__name__}")
    if max_steps is not None:
        require_integer("max_steps", max_steps, 1)
    require_integer("most_cells", most_cells, 1)
    require_flag("smoothed_score", smoothed_score)
    if time_limit is None and max_steps is None and method in ("hybrid", "ags"):
        raise ValueError(
            f"time_limit and max_steps are both None, and {method!r} never ends by itself: give one"
        )
    possible = propagate_zeros(query_factors(query))
    if possible.impossible:
        conflict = _described(query, minimal_conflict(query) or ())
        raise ImpossibleEvidenceError(f"evidence has probability zero: {conflict} contradict each other")
    incumbent = Incumbent(query, timer, callback)
    try:
        METHODS[method](Task(key, query, possible, incumbent, max_steps, most_cells))
    except KeyboardInterrupt:
        if incumbent.states is None:
            raise
    if incumbent.upper_bound == -math.inf:
        evidence = minimal_conflict(query) or (*dict(query.observed), *dict(query.soft))
        raise ImpossibleEvidenceError(f"evidence has probability zero: {_described(query, evidence)}")
    states = incumbent.states
    if incumbent.log_probability == -math.inf and method == "hybrid":
        states = None
    value, upper_bound = incumbent.log_probability, incumbent.upper_bound
    if incumbent.kind == "exact":
        upper_bound = max(upper_bound, value)
    else:
        value = min(value, upper_bound)  # which may have become less since it was estimated
    scored = states is not None and smoothed_score
    smoothed = methods.smoothed_score(query, states, most_cells) if scored else None
    return MarginalMAPResult(
        None if states is None else query.named(states),
        states,
        value,
        incumbent.kind,
        smoothed,
        upper_bound,
        incumbent.proved,
        method,
        timer.wall_s(),
        tuple(incumbent.trace),
        incumbent.lower_bound,
    )


def _described(query: MarginalMAP, variables: Sequence[int]) -> str:
    """Evidence of some variables, for a message."""
    network, states = query.network, dict(query.observed)
    described = []
    for variable in variables:
        known, name = network.state_names, network.names[variable]
        state = states.get(variable)
        named = state if known is None or state is None else known[variable][state]
        described.append(f"likelihoods of {name}" if state is None else f"{name} = {named}")
    return ", ".join(described) or "entries of the tables"
