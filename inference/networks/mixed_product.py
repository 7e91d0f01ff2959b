r"""Mixed-product belief propagation for marginal MAP, and sum-product belief propagation as its special case.

Messages on the factor graph are updated synchronously. A summed variable sends a factor the product of the messages
from its other factors; a MAP variable does too, restricted to its argmax states. The argmax is taken in one of two ways
with different fixed points:

* ``"belief"``, over the product of all incoming messages (Liu and Ihler, and the program of Cui and others);
* ``"cavity"``, over the outgoing message, which leaves out the receiver's (the text of Cui and others).

Without MAP variables the beliefs are marginals, exact in trees, with the Bethe estimate of the log evidence.

Liu, Ihler (2013), "Variational algorithms for marginal MAP", algorithm 5; section 5 of Cui, Marinescu, Khardon (2018);
Yedidia, Freeman, Weiss (2005), "Constructing free-energy approximations", for the Bethe estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ethogram.inference.networks.zero_propagation import Factor, query_factors
from ethogram.models.arguments import require_one_of
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = [
    "ARGMAX_OF",
    "Propagated",
    "mixed_product",
    "normalised",
    "propagate_beliefs",
    "smoothed_tables",
]

ARGMAX_OF = ("belief", "cavity")


class Propagated(NamedTuple):
    """Beliefs after message passing.

    Attributes
    ----------
    beliefs : by variable, (state,), normalised; all zero where the factors contradict each other.
    log_evidence : Bethe estimate, which is not a bound; meaningful where no variable is maximised.
    converged : whether no message entry changed by more than the tolerance in the last sweep.
    messages : the last ones, to begin with where only entries of tables change.
    """

    beliefs: dict[int, np.ndarray]
    log_evidence: float
    converged: bool
    messages: np.ndarray


def smoothed_tables(network: BayesNet, amount: float = 1e-4) -> tuple[np.ndarray, ...]:
    """Tables whose zeros are replaced by `amount` of their row's sum, other entries scaled so that row sums stay.

    With two states, 0 and 1 become `amount` and 1 - `amount`. This is another network: an assignment that is probable
    in it may be impossible in the original. Rows of zeros stay.

    Raises
    ------
    ValueError : `amount` is not in (0, 1).
    """
    if not 0 < amount < 1:
        raise ValueError(f"amount must be in (0, 1), not {amount}")
    made = []
    for table in network.tables:
        mass, zero = table.sum(-1, keepdims=True), table == 0
        share = np.maximum(1 - amount * zero.sum(-1, keepdims=True), amount)
        made.append(np.where(zero, amount * mass, table * share))
    return tuple(made)


def mixed_product(
    query: MarginalMAP,
    *,
    argmax_of: str = "belief",
    tables: tuple[np.ndarray, ...] | None = None,
    **settings: Any,
) -> Int[np.ndarray, "map"]:
    """The modes of the beliefs of mixed-product belief propagation, the first of equal ones.

    Parameters
    ----------
    query : network, evidence and MAP variables.
    argmax_of : one of :data:`ARGMAX_OF`: what the argmax states of a MAP variable maximise.
    tables : in place of the network's own, such as smoothed ones, which the authors use.
    settings : `max_sweeps`, `tol` (1e-4 unless given) and `stop`, as of :func:`propagate_beliefs`.

    Raises
    ------
    ValueError : `argmax_of` is neither.
    """
    require_one_of("argmax_of", argmax_of, ARGMAX_OF)
    factors = query_factors(query, tables=tables)
    found = propagate_beliefs(factors, query.map_variables, argmax_of=argmax_of, **{"tol": 1e-4, **settings})
    return np.array([int(found.beliefs[variable].argmax()) for variable in query.map_variables])


def propagate_beliefs(
    factors: Sequence[Factor],
    maximised: Sequence[int] = (),
    *,
    argmax_of: str = "belief",
    max_sweeps: int = 1000,
    tol: float = 1e-6,
    damping: float = 0.0,
    stop: Callable[[], bool] | None = None,
    messages: np.ndarray | None = None,
) -> Propagated:
    """Beliefs of all variables of some factors by message passing.

    Parameters
    ----------
    factors : tables with their variables.
    maximised : variables that send their argmax states only.
    argmax_of : one of :data:`ARGMAX_OF`: what the argmax states maximise.
    max_sweeps, tol : sweeps end once no message changes by more than `tol`.
    damping : share of the old message in a new one.
    stop : called after every sweep; True ends the sweeps.
    messages : to begin with; uniform if None.
    """
    graph = _Graph([factor for factor in factors if factor.scope], set(maximised))
    received = (
        np.where(graph.valid_states[:, None], graph.uniform[:, None], 1.0) if messages is None else messages
    )
    received = np.broadcast_to(received, (*graph.linked.shape, graph.valid_states.shape[1])).copy()
    converged, sweeps = not len(graph.linked), 0
    while not converged and sweeps < max_sweeps:
        sent = graph.send(received, argmax_of)
        fresh = graph.reply(sent)
        if damping:
            fresh = (1 - damping) * fresh + damping * received
        converged = float(np.abs(fresh - received)[graph.linked].max(initial=0.0)) < tol
        received, sweeps = fresh, sweeps + 1
        if stop is not None and stop():
            break
    with np.errstate(divide="ignore"):
        logs = np.where(graph.valid_states, np.log(received).sum(1), -np.inf)
    top = logs.max(1, keepdims=True, initial=-np.inf)
    beliefs = normalised(np.exp(logs - np.where(np.isfinite(top), top, 0)))
    constants, estimate = [float(factor.table) for factor in factors if not factor.scope], -np.inf
    if all(constants):
        estimate = graph.bethe(received, beliefs) + float(np.sum(np.log(constants)))
    by_variable = {v: beliefs[i, : graph.sizes[i]] for i, v in enumerate(graph.variables)}
    return Propagated(by_variable, estimate, converged, received)


class _Graph:
    """A factor graph; messages are (variable, edge, state), one in the padding."""

    def __init__(self, factors: Sequence[Factor], maximised: set[int]):
        size = {v: n for scope, table in factors for v, n in zip(scope, table.shape, strict=True)}
        self.variables = sorted(size)
        self.sizes = [size[variable] for variable in self.variables]
        number = {variable: i for i, variable in enumerate(self.variables)}
        degree = [0] * len(number)
        shaped: dict[tuple[int, ...], list[tuple[np.ndarray, list[int], list[int]]]] = {}
        for scope, table in factors:
            rows = [number[variable] for variable in scope]
            shaped.setdefault(table.shape, []).append((table, rows, [degree[row] for row in rows]))
            for row in rows:
                degree[row] += 1
        # Of each table shape: tables (factor, states...), variable and edge of every axis (factor, axis).
        self.groups = [tuple(map(np.array, zip(*each, strict=True))) for each in shaped.values()]
        self.linked = np.arange(max(degree, default=0)) < np.array(degree, int)[:, None]
        sizes = np.array(self.sizes, int)
        self.valid_states = np.arange(max(self.sizes, default=0)) < sizes[:, None]
        self.uniform = self.valid_states / np.maximum(sizes, 1)[:, None]
        self.maximised = np.array([variable in maximised for variable in self.variables], bool)

    def send(self, received: np.ndarray, argmax_of: str) -> np.ndarray:
        """Messages from variables to factors: products of the messages from all other factors."""
        with np.errstate(divide="ignore"):
            logs = np.log(received)  # products of hundreds of messages would underflow
        others = np.zeros_like(logs)
        others[:, 1:] = logs[:, :-1].cumsum(1)
        others[:, :-1] += logs[:, :0:-1].cumsum(1)[:, ::-1]
        top = np.where(self.valid_states[:, None], others, -np.inf).max(-1, keepdims=True, initial=-np.inf)
        sent = np.exp(others - np.where(top > -np.inf, top, 0)) * self.valid_states[:, None]
        if self.maximised.any():
            judged = sent * received if argmax_of == "belief" else sent
            best = judged >= judged.max(-1, keepdims=True) * (1 - 1e-12)
            sent = np.where(self.maximised[:, None, None] & ~best, 0, sent)
        return normalised(sent)

    def reply(self, sent: np.ndarray) -> np.ndarray:
        """Messages from factors to variables: sums of the table times the other variables' messages."""
        received = np.ones_like(sent)
        for tables, variable, link in self.groups:
            came = [sent[variable[:, a], link[:, a], :n] for a, n in enumerate(tables.shape[1:])]
            for a in range(len(came)):
                made = tables
                for other in reversed(range(len(came))):  # the last first: axes before it keep their places
                    if other != a:
                        shape = [len(tables), *(1,) * (made.ndim - 1)]
                        shape[other + 1] = tables.shape[other + 1]
                        made = (made * came[other].reshape(shape)).sum(other + 1)
                whole = np.zeros((len(tables), sent.shape[-1]))
                whole[:, : tables.shape[a + 1]] = made
                received[variable[:, a], link[:, a]] = normalised(whole)
        return np.where(self.linked[..., None] & self.valid_states[:, None], received, 1.0)

    def bethe(self, received: np.ndarray, beliefs: np.ndarray) -> float:
        """Bethe estimate of the log partition function."""
        sent = self.send(received, "belief")
        total = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            for tables, variable, link in self.groups:
                joint = tables
                for a, n in enumerate(tables.shape[1:]):
                    shape = [len(tables), *(1,) * (tables.ndim - 1)]
                    shape[a + 1] = n
                    joint = joint * sent[variable[:, a], link[:, a], :n].reshape(shape)
                mass = joint.reshape(len(tables), -1).sum(1)
                if not mass.all():
                    return -np.inf
                joint = joint / mass.reshape(-1, *(1,) * (tables.ndim - 1))
                total += float(np.where(joint > 0, joint * (np.log(tables) - np.log(joint)), 0).sum())
            own = np.where(beliefs > 0, beliefs * np.log(beliefs), 0).sum(1)
        return total + float(((self.linked.sum(1) - 1) * own).sum())


def normalised(messages: np.ndarray) -> np.ndarray:
    """Messages (..., state) that sum to one, or are all zero."""
    mass = messages.sum(-1, keepdims=True)
    return messages / np.where(mass > 0, mass, 1)
