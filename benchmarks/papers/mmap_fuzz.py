"""Small random marginal MAP queries for bounds and proofs, and their answers by enumeration."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ethogram.inference.networks.anytime import Clock
from ethogram.inference.networks.staged_search import StagedSearch
from ethogram.inference.networks.zero_propagation import propagate_zeros, query_factors
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["Verdict", "draw_query", "judge", "log_table"]

CELLS = (6, 9, 18)
TOLERANCE = 1e-9


class Verdict(NamedTuple):
    """What was found false, empty where nothing was; and whether the query was closed, its gap and its steps."""

    faults: list[str]
    closed: bool
    steps: int


def draw_query(seed: int) -> MarginalMAP:
    """A network of 7 to 11 variables with 2 or 3 states, every other one with 30 % zeros, every fifth query an MPE."""
    random = np.random.default_rng(seed)
    count = int(random.integers(7, 12))
    sizes = random.integers(2, 4, count)
    tables, parents = [], []
    for i in range(count):
        above = random.permutation(i)[: int(random.integers(0, min(i, 3) + 1))]
        table = random.dirichlet(np.full(sizes[i], 0.5), tuple(sizes[above]))
        if seed % 2:
            table = table * (random.random(table.shape) > 0.3)
            table[..., 0] += table.sum(-1) == 0
            table = table / table.sum(-1, keepdims=True)
        tables.append(table)
        parents.append(tuple(above.tolist()))
    order = random.permutation(count).tolist()
    known = order[: int(random.integers(0, 3))]
    evidence: dict[int, Any] = {v: int(random.integers(sizes[v])) for v in known}
    left = [v for v in order if v not in known]
    many = len(left) if seed % 5 == 0 else int(random.integers(1, len(left) + 1))
    return MarginalMAP(BayesNet(tuple(tables), tuple(parents)), evidence, left[:many])


def log_table(query: MarginalMAP) -> np.ndarray:
    """Log of p(d, e), one axis per MAP variable, by summing the full joint."""
    network = query.network
    letters = "abcdefghijklmn"[: network.num_variables]
    words = ["".join(letters[v] for v in (*each, i)) for i, each in enumerate(network.parents)]
    seen = [np.eye(network.sizes[v])[state] for v, state in query.observed]
    words += [letters[v] for v, _ in query.observed]
    asked = "".join(letters[v] for v in query.map_variables)
    with np.errstate(divide="ignore"):
        return np.log(np.einsum(",".join(words) + "->" + asked, *network.tables, *seen, optimize="greedy"))


def judge(seed: int) -> Verdict:
    """Bounds, proofs and the answer of one query, with mini-buckets of few cells, beside enumeration."""
    query = draw_query(seed)
    table = log_table(query)
    truth = float(table.max())
    possible = propagate_zeros(query_factors(query))
    if possible.impossible:
        return Verdict([] if truth == -math.inf else ["propagation of zeros removed the answer"], True, 0)
    search = StagedSearch(possible, query.map_variables, Clock(None), CELLS[seed % 3])
    faults, steps = [], 0
    while not search.closed and not search.exhausted:
        search.step()
        steps += 1
        if search.upper_bound < truth - TOLERANCE:
            faults.append(f"bound {search.upper_bound} below the answer {truth}")
            break
    if search.closed and abs(search.value - truth) > TOLERANCE and search.value != truth:
        faults.append(f"proved {search.value} where the answer is {truth}")
    places = search.news()
    if places is not None:
        states = [int(possible.states[v][places.get(v, 0)]) for v in query.map_variables]
        if abs(table[tuple(states)] - search.value) > TOLERANCE:
            faults.append(f"assignment of {table[tuple(states)]} said to have {search.value}")
    return Verdict(faults, search.closed, steps)
