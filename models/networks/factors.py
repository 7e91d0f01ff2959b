r"""Markov networks (products of factors) as Bayesian networks with evidence.

A factor that sums to one over one of its variables is a conditional table of that variable, if no cycle results. Any
other factor :math:`\phi` becomes a binary child of its variables, :math:`p(1 \mid x) = \phi(x) / \max \phi`, observed
in state 1, and :math:`\max \phi` goes into the constant. Variables without a table become uniform roots, their number
of states in the constant as well: the function is the same to the last digit.

The binary child is the virtual evidence of Pearl (1988), "Probabilistic Reasoning in Intelligent Systems".
"""

from __future__ import annotations

import graphlib
import heapq
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet, NumberedStates
from ethogram.models.networks.uai import SUM_TOLERANCE, UAIFile

__all__ = ["FactorNetwork", "network_of_factors"]


class FactorNetwork(NamedTuple):
    """A Bayesian network and the evidence with which it equals a product of factors.

    Attributes
    ----------
    network : variables 0 to N - 1 are those of the factors; one more for every factor that is not a conditional table.
    evidence : observed states of the latter; empty where the network has only conditional tables.
    """

    network: BayesNet
    evidence: dict[int, int]


def network_of_factors(
    factors: UAIFile, names: Sequence[str] | None = None, state_names: Sequence[Sequence[str]] | None = None
) -> FactorNetwork:
    """Bayesian network whose joint log probability with its evidence is the sum of the log factors.

    Parameters
    ----------
    factors : content of a UAI file, as :func:`read_factors` returns it.
    names, state_names : of the factors' variables.

    Raises
    ------
    ValueError : a factor is zero everywhere.
    """
    sizes, count = factors.sizes, len(factors.sizes)
    child = _children(factors)
    tables: dict[int, np.ndarray] = {}
    parents: list[tuple[int, ...]] = [()] * count
    evidence = NumberedStates()
    constant = 0.0
    extra: list[tuple[str, np.ndarray, tuple[int, ...]]] = []
    for i, (scope, table) in enumerate(zip(factors.scopes, factors.tables, strict=True)):
        if not table.any():
            fault = "is zero everywhere: every assignment is impossible"
            raise ValueError(f"factor {i}, of variables {scope}, {fault}")
        if not scope:
            constant += math.log(float(table))
        elif i in child:
            tables[child[i]] = np.moveaxis(table, scope.index(child[i]), -1)
            parents[child[i]] = tuple(variable for variable in scope if variable != child[i])
        else:
            largest = float(table.max())
            constant += math.log(largest)
            share = table / largest
            evidence[count + len(extra)] = 1
            extra.append((f"factor{i}", np.stack((1 - share, share), -1), scope))
    for variable, size in enumerate(sizes):
        if variable not in tables:
            constant += math.log(size)
            tables[variable] = np.full(size, 1 / size)
    given = tuple(names) if names is not None else tuple(f"x{i}" for i in range(count))
    taken = set(given)
    states = None if state_names is None else (*map(tuple, state_names), *[("no", "yes")] * len(extra))
    network = BayesNet(
        (*(tables[variable] for variable in range(count)), *(table for _, table, _ in extra)),
        (*parents, *(scope for _, _, scope in extra)),
        names=(*given, *(_free(name, taken) for name, _, _ in extra)),
        state_names=states,
        log_constant=constant,
    )
    return FactorNetwork(network, evidence)


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _children(factors: UAIFile) -> dict[int, int]:
    """Child variable of every factor that is read as a conditional table, without cycles.

    The last variables of the scopes, as in a file of a Bayesian network, where that fits. Else variables are placed one
    by one: by the largest factor all of whose other variables are placed, or as a root where there is none. A factor
    that is left over may have been a conditional table too; as virtual evidence it is the same function.
    """
    claims: list[set[int]] = []
    for scope, table in zip(factors.scopes, factors.tables, strict=True):
        deviations = [np.abs(table.sum(axis) - 1).max() for axis in range(len(scope))]
        claims.append({v for v, off in zip(scope, deviations, strict=True) if off <= SUM_TOLERANCE})
    last = {i: scope[-1] for i, scope in enumerate(factors.scopes) if scope and scope[-1] in claims[i]}
    if len(set(last.values())) == len(factors.sizes) == len(last) and _is_acyclic(factors, last):
        return last
    child: dict[int, int] = {}
    unplaced = [set(scope) for scope in factors.scopes]  # variables of every factor
    factors_of: list[list[int]] = [[] for _ in factors.sizes]
    for i, scope in enumerate(factors.scopes):
        for variable in scope:
            factors_of[variable].append(i)
    claimed = set().union(*claims)
    roots = iter(sorted(range(len(factors.sizes)), key=lambda variable: (variable in claimed, variable)))
    placed: set[int] = set()
    ready = [(-len(scope), i) for i, scope in enumerate(factors.scopes) if len(scope) == 1]
    heapq.heapify(ready)
    while len(placed) < len(factors.sizes):
        if ready:
            _, i = heapq.heappop(ready)
            if unplaced[i].isdisjoint(claims[i]):
                continue  # its variable was placed, or is none that it sums to one over
            child[i] = variable = next(iter(unplaced[i]))
        else:
            variable = next(root for root in roots if root not in placed)
        placed.add(variable)
        for i in factors_of[variable]:
            unplaced[i].discard(variable)
            if len(unplaced[i]) == 1:
                heapq.heappush(ready, (-len(factors.scopes[i]), i))
    return child


def _is_acyclic(factors: UAIFile, child: dict[int, int]) -> bool:
    """Whether the graph of these children has no cycle."""
    parents = {v: [u for u in factors.scopes[i] if u != v] for i, v in child.items()}
    try:
        graphlib.TopologicalSorter(parents).prepare()
    except graphlib.CycleError:
        return False
    return True
