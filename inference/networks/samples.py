"""Samples that satisfy the evidence: one at a time by conflict-driven search, or many ancestral ones at once.

Every variable is drawn from its row, parents before children, among the states that propagation of zeros leaves.

Henrion (1988), "Propagating uncertainty in Bayesian networks by probabilistic logic sampling"; Fung, Chang (1990),
"Weighing and integrating evidence for stochastic simulation in Bayesian networks"; Shachter, Peot (1990), "Simulation
approaches to general probabilistic inference on belief networks": likelihood weighting.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ethogram.inference.networks.conflict_search import ConflictSearch
from ethogram.inference.networks.parity_checks import LEAST_TIED_SHARE
from ethogram.inference.networks.zero_propagation import ReducedFactors, bit_places
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["PossibleDraws", "draw_possible", "draw_states", "log_joint", "possible_draws"]

FEW_CONFLICTS = 50
"""Conflicts of a search after which parity checks are solved instead, where there are many."""


def log_joint(query: MarginalMAP, states: Mapping[int, int]) -> float:
    """Log of p(d, h, e), given the states of all variables: a lower bound on ln p(d, e)."""
    likely = [likelihoods[states[variable]] for variable, likelihoods in query.soft]
    if not all(likely):
        return -math.inf
    joint = query.network.log_joint([states[variable] for variable in range(query.network.num_variables)])
    return joint + math.fsum(map(math.log, likely))


def draw_states(random: np.random.Generator, query: MarginalMAP) -> dict[int, int]:
    """An ancestral sample, states by variable, with observed variables clamped even where that is impossible."""
    network, states = query.network, dict(query.observed)
    uniform = random.random(network.num_variables)
    for number in network.order:
        if number not in states:
            row = network.tables[number][tuple(states[parent] for parent in network.parents[number])]
            total = np.cumsum(row)
            place = int(np.searchsorted(total, uniform[number] * total[-1], "right"))
            states[number] = min(place, len(row) - 1)
    return states


def draw_possible(
    random: np.random.Generator,
    query: MarginalMAP,
    possible: ReducedFactors,
    search: ConflictSearch,
    wanted: Mapping[int, int],
    stop: Callable[[], bool] = lambda: False,
    most_conflicts: int | float = math.inf,
) -> dict[int, int] | None:
    """A possible sample, states of all variables; None where there is none (`search.impossible`), or none in time.

    States are drawn from their rows, parents before children, among those that the search leaves; it learns from dead
    ends, and keeps what it learns from call to call. Wanted states are assumed first, unless they have become
    impossible. Once a search was given up, a solution of the parity checks near them is assumed instead.

    Parameters
    ----------
    possible, search : factors of the query after propagation of zeros, and a search of them.
    wanted : states by variable.
    stop, most_conflicts : end the search.
    """
    network = query.network
    factors = possible.factors[: network.num_variables]  # the others are likelihoods
    order = [variable for variable in network.order if variable in search.number]
    assumed = []
    for variable, state in wanted.items():
        place = possible.place(variable, state) if variable in search.number else None
        if place is not None:
            assumed.append((variable, place))

    def pick(variable: int, left: int) -> int:
        scope, table = factors[variable]
        alive = [search.alive[search.number[parent]] for parent in scope[:-1]]
        if all(bits & (bits - 1) == 0 for bits in alive):
            row = table[tuple(bits.bit_length() - 1 for bits in alive)]
        else:
            row = table.reshape(-1, table.shape[-1]).sum(0)
        places = bit_places(left)
        weights = row[places]
        total = np.cumsum(weights if weights.any() else np.ones(len(places)))
        return places[min(int(np.searchsorted(total, random.random() * total[-1], "right")), len(places) - 1)]

    many_checks = len(search.parities.rows) > LEAST_TIED_SHARE * len(search.number)
    few = FEW_CONFLICTS if many_checks else most_conflicts
    found = None if search.linear else search.solve(order, pick, assumed, stop, min(few, most_conflicts))
    if found is None and many_checks and not (search.impossible or stop()):
        search.linear = True  # and the checks come first from now on
        found = search.solve(order, pick, _solution(random, possible, search, assumed), stop, most_conflicts)
    if found is None:
        return None
    return dict(query.observed) | possible.whole(found)


def _solution(
    random: np.random.Generator,
    possible: ReducedFactors,
    search: ConflictSearch,
    assumed: list[tuple[int, int]],
) -> list[tuple[int, int]]:
    """Assumed places, changed and completed to a solution of the parity checks; drawn ones, the surest first."""
    shares = {variable: np.ones(2) for variable in search.parities.variables}
    for scope, table in possible.factors:
        if len(scope) == 1 and scope[0] in shares:
            product = shares[scope[0]] * table
            shares[scope[0]] = product / product.sum()
    wanted = dict(assumed)
    for variable in sorted(shares, key=lambda v: -shares[v].max() / shares[v].sum()):
        wanted.setdefault(variable, int(random.random() * shares[variable].sum() >= shares[variable][0]))
    solution = search.parities.near({v: place for v, place in wanted.items() if v in shares})
    return [*(wanted | solution).items()]


NUM_DRAWS, MOST_KEPT = 200, 32


class PossibleDraws(NamedTuple):
    """Possible samples, each the best of those with its MAP part, the best first.

    Attributes
    ----------
    states : (draw, variable) of all variables.
    log_joint : (draw,) ln p(d, h, e), a lower bound on ln p(d, e).
    """

    states: Int[np.ndarray, "draw variable"]
    log_joint: Float[np.ndarray, " draw"]


def possible_draws(
    random: np.random.Generator, query: MarginalMAP, possible: ReducedFactors
) -> PossibleDraws:
    """Possible ones among many ancestral samples, given a query and its factors after propagation of zeros."""
    network = query.network
    states = np.zeros((NUM_DRAWS, network.num_variables), int)
    log_joint = np.full(NUM_DRAWS, network.log_constant)
    given = dict(query.observed)
    uniform = random.random((network.num_variables, NUM_DRAWS))
    with np.errstate(divide="ignore"):
        for number in network.order:
            parents = network.parents[number]
            rows = network.tables[number][tuple(states[:, parent] for parent in parents)]
            rows = np.broadcast_to(rows, (NUM_DRAWS, network.sizes[number]))
            state = given.get(number)
            if state is None:
                left = possible.states.get(number)
                if left is None or len(left) == network.sizes[number]:
                    left, among = np.arange(network.sizes[number]), rows
                else:
                    among = rows[:, left]
                total = among.cumsum(1)
                place = (total <= uniform[number][:, None] * total[:, -1:]).sum(1)
                state = left[np.minimum(place, len(left) - 1)]
            states[:, number] = state
            log_joint += np.log(rows[np.arange(NUM_DRAWS), states[:, number]])
        for number, likelihoods in query.soft:
            log_joint += np.log(np.array(likelihoods))[states[:, number]]
    order = np.argsort(-log_joint, kind="stable")
    order = order[log_joint[order] > -np.inf]
    _, first = np.unique(states[order][:, list(query.map_variables)], axis=0, return_index=True)
    kept = order[np.sort(first)][:MOST_KEPT]
    return PossibleDraws(states[kept], log_joint[kept])
