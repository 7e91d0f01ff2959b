r"""Mixed-product belief propagation for marginal MAP, and the ordinary one, its case without MAP variables.

Messages go between the factors of a network and their variables, all of them at once in every sweep. A variable that is
summed out sends to a factor the product of what the others sent it; a MAP variable does too, but only for its best
states, and zero for the others. Which states are best is read in one of two ways that have different fixed points:

* ``"belief"``, from all that was sent to it (Liu and Ihler, and the program of Cui and others);
* ``"cavity"``, from the message itself, which leaves out what the receiver sent (the text of Cui and others).

Without MAP variables sums of messages give marginals, exact in trees, and the Bethe estimate of the log evidence.

Liu, Ihler (2013), "Variational algorithms for marginal MAP", algorithm 5; section 5 of Cui, Marinescu, Khardon (2018).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ethogram.inference.zero_propagation import Factor, query_factors
from ethogram.models.bayes_net import BayesNet, MarginalMAP

__all__ = ["READINGS", "MixedProduct", "Propagated", "mixed_product", "propagate_beliefs", "smoothed_tables"]

READINGS = ("belief", "cavity")


class Propagated(NamedTuple):
    """Where messages settled, or were when sweeps ended.

    Attributes
    ----------
    beliefs : by variable, (state,) that sum to one; zero everywhere where the factors contradict each other.
    log_evidence : the Bethe estimate, which is no bound; meant where no variable is maximised.
    num_sweeps : that were made.
    converged : whether no entry of a message changed by more than the tolerance in the last.
    """

    beliefs: dict[int, np.ndarray]
    log_evidence: float
    num_sweeps: int
    converged: bool


class MixedProduct(NamedTuple):
    """An answer by mixed-product belief propagation.

    Attributes
    ----------
    states : (map,) in the order of the query; of equal beliefs, the first.
    num_sweeps, converged : as of :class:`Propagated`.
    """

    states: np.ndarray
    num_sweeps: int
    converged: bool


def smoothed_tables(network: BayesNet, amount: float = 1e-4) -> tuple[np.ndarray, ...]:
    """Tables of a network whose zeros are `amount` of their row's sum, which other entries are scaled down to keep.

    Of two states, 0 and 1 become `amount` and 1 - `amount`. It is another network: what is probable in it may be
    impossible in the first. Rows of zeros alone stay.

    Raises
    ------
    ValueError : the amount is not between 0 and 1.
    """
    if not 0 < amount < 1:
        raise ValueError(f"amount is {amount}: give a number between 0 and 1")
    made = []
    for table in network.tables:
        mass, zero = table.sum(-1, keepdims=True), table == 0
        made.append(
            np.where(
                zero, amount * mass, table * np.maximum(1 - amount * zero.sum(-1, keepdims=True), amount)
            )
        )
    return tuple(made)


def mixed_product(
    query: MarginalMAP, *, reading: str = "belief", tables: tuple[np.ndarray, ...] | None = None,
    max_sweeps: int = 1000, tol: float = 1e-4, stop: Callable[[], bool] | None = None,
) -> MixedProduct:  # fmt: skip
    """An answer by mixed-product belief propagation.

    Parameters
    ----------
    reading : one of :data:`READINGS`, from what the best states of a MAP variable are read.
    tables : of the network, others than its own where they are smoothed, which the authors do.
    max_sweeps, tol : sweeps end where no message changes by more.
    stop : asked after every sweep.

    Raises
    ------
    ValueError : there is no such reading.
    """
    if reading not in READINGS:
        raise ValueError(f"reading is {reading!r}: take one of {', '.join(READINGS)}")
    factors = query_factors(query, tables=tables)
    found = propagate_beliefs(
        factors, query.map_variables, reading=reading, max_sweeps=max_sweeps, tol=tol, stop=stop
    )
    states = [int(found.beliefs[variable].argmax()) for variable in query.map_variables]
    return MixedProduct(np.array(states), found.num_sweeps, found.converged)


def propagate_beliefs(
    factors: Sequence[Factor], maximised: Sequence[int] = (), *, reading: str = "belief", max_sweeps: int = 1000,
    tol: float = 1e-6, damping: float = 0.0, stop: Callable[[], bool] | None = None,
) -> Propagated:  # fmt: skip
    """Beliefs of every variable of some factors, from messages that are uniform at first.

    Parameters
    ----------
    maximised : variables that send their best states alone.
    damping : share of the old message that a new one keeps.
    """
    graph = _Graph([factor for factor in factors if factor.scope], set(maximised))
    received = np.where(graph.there[:, None], graph.uniform[:, None], 1.0)
    received = np.broadcast_to(received, (*graph.linked.shape, graph.there.shape[1])).copy()
    converged, sweeps = not len(graph.linked), 0
    while not converged and sweeps < max_sweeps:
        sent = graph.send(received, reading)
        fresh = graph.reply(sent)
        if damping:
            fresh = (1 - damping) * fresh + damping * received
        converged = float(np.abs(fresh - received)[graph.linked].max(initial=0.0)) < tol
        received, sweeps = fresh, sweeps + 1
        if stop is not None and stop():
            break
    with np.errstate(divide="ignore"):
        logs = np.where(graph.there, np.log(received).sum(1), -np.inf)
    top = logs.max(1, keepdims=True, initial=-np.inf)
    beliefs = _normalised(np.exp(logs - np.where(np.isfinite(top), top, 0)))
    constants = [float(factor.table) for factor in factors if not factor.scope]
    estimate = (
        graph.bethe(received, beliefs) + float(np.sum(np.log(constants))) if all(constants) else -np.inf
    )
    told = {v: beliefs[i, : graph.sizes[i]] for i, v in enumerate(graph.variables)}
    return Propagated(told, estimate, sweeps, converged)


class _Group(NamedTuple):
    """Factors whose tables have one shape: (factor, states...), and variable and link of every axis (factor, axis)."""

    tables: np.ndarray
    variable: np.ndarray
    link: np.ndarray


class _Graph:
    """Factors and variables with their links; messages are (variable, link, state), one where nothing is."""

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
        self.groups = [
            _Group(
                np.stack([t for t, _, _ in each]),
                np.array([r for _, r, _ in each]),
                np.array([s for _, _, s in each]),
            )
            for each in shaped.values()
        ]
        self.linked = np.arange(max(degree, default=0)) < np.array(degree, int)[:, None]
        sizes = np.array(self.sizes, int)
        self.there = np.arange(max(self.sizes, default=0)) < sizes[:, None]
        self.uniform = self.there / np.maximum(sizes, 1)[:, None]
        self.maximised = np.array([variable in maximised for variable in self.variables], bool)

    def send(self, received: np.ndarray, reading: str) -> np.ndarray:
        """From variables to factors: the product of what all others sent."""
        before = np.ones_like(received)
        after = np.ones_like(received)
        for link in range(1, received.shape[1]):
            before[:, link] = before[:, link - 1] * received[:, link - 1]
            after[:, -link - 1] = after[:, -link] * received[:, -link]
            scale = np.maximum(before[:, link].max(1, keepdims=True), np.finfo(float).tiny)
            before[:, link] /= scale
            scale = np.maximum(after[:, -link - 1].max(1, keepdims=True), np.finfo(float).tiny)
            after[:, -link - 1] /= scale
        sent = before * after * self.there[:, None]
        if self.maximised.any():
            judged = sent * received if reading == "belief" else sent
            best = judged >= judged.max(-1, keepdims=True) * (1 - 1e-12)
            sent = np.where(self.maximised[:, None, None] & ~best, 0, sent)
        return _normalised(sent)

    def reply(self, sent: np.ndarray) -> np.ndarray:
        """From factors to variables: sums over all others of the table and what they sent."""
        received = np.ones_like(sent)
        for tables, variable, link in self.groups:
            came = [sent[variable[:, a], link[:, a], :n] for a, n in enumerate(tables.shape[1:])]
            for a in range(len(came)):
                made = tables
                for other in reversed(
                    range(len(came))
                ):  # from the last, so that the axes before keep their places
                    if other != a:
                        shape = [len(tables), *(1,) * (made.ndim - 1)]
                        shape[other + 1] = tables.shape[other + 1]
                        made = (made * came[other].reshape(shape)).sum(other + 1)
                whole = np.zeros((len(tables), sent.shape[-1]))
                whole[:, : tables.shape[a + 1]] = made
                received[variable[:, a], link[:, a]] = _normalised(whole)
        return np.where(self.linked[..., None] & self.there[:, None], received, 1.0)

    def bethe(self, received: np.ndarray, beliefs: np.ndarray) -> float:
        """The Bethe estimate of the log of the sum of the product of all factors."""
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


def _normalised(messages: np.ndarray) -> np.ndarray:
    """Entries (..., state) that sum to one, or are all zero."""
    mass = messages.sum(-1, keepdims=True)
    return messages / np.where(mass > 0, mass, 1)
