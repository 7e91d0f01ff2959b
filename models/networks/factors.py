r"""Markov networks (products of factors) as Bayesian networks with evidence.

A factor that sums to one over one of its variables is a conditional table of that variable, if no cycle results. Any
other factor :math:`\phi` becomes a binary child of its variables, :math:`p(1 \mid x) = \phi(x) / \max \phi`, observed
in state 1, and :math:`\max \phi` goes into the constant. Variables without a table become uniform roots, their number
of states in the constant as well: the function is the same to the last digit.

The binary child is the virtual evidence of Pearl (1988), "Probabilistic Reasoning in Intelligent Systems".
"""

from __future__ import annotations

import graphlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet, NumberedStates
from ethogram.models.networks.uai import Factors
from ethogram.models.networks.uai_families import ROUNDING

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
    factors: Factors, names: Sequence[str] | None = None, state_names: Sequence[Sequence[str]] | None = None
) -> FactorNetwork:
    """Bayesian network whose joint log probability with its evidence is the sum of the log factors.

    Parameters
    ----------
    factors : of a UAI file, as :func:`read_factors` returns them.
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
    states = None if state_names is None else (*map(tuple, state_names), *[("no", "yes")] * len(extra))
    network = BayesNet(
        (*(tables[variable] for variable in range(count)), *(table for _, table, _ in extra)),
        (*parents, *(scope for _, _, scope in extra)),
        names=(*given, *(_free(name, given) for name, _, _ in extra)),
        state_names=states,
        log_constant=constant,
    )
    return FactorNetwork(network, evidence)


def _free(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _children(factors: Factors) -> dict[int, int]:
    """Child variable of every factor that can be a conditional table, without cycles."""
    claims: list[list[int]] = []
    for scope, table in zip(factors.scopes, factors.tables, strict=True):
        sums = [np.abs(table.sum(axis) - 1).max() for axis in range(len(scope))]
        claims.append([variable for variable, off in zip(scope, sums, strict=True) if off <= ROUNDING])
    last = {i: scope[-1] for i, scope in enumerate(factors.scopes) if scope and scope[-1] in claims[i]}
    if len(set(last.values())) == len(factors.sizes) == len(last) and _in_order(factors, last):
        return last  # as in a file of a Bayesian network
    matched = _matched(claims, sorted(range(len(claims)), key=lambda i: -len(factors.scopes[i])))
    return matched if _in_order(factors, matched) else _one_by_one(factors, claims)


def _matched(claims: list[list[int]], order: list[int]) -> dict[int, int]:
    """A maximum matching of factors to variables by augmenting paths; factors first in the order have priority."""
    owner: dict[int, int] = {}

    def place(factor: int) -> None:
        path, seen = [(factor, iter(claims[factor]))], dict[int, int]()
        while path:
            current, rest = path[-1]
            variable = next((v for v in rest if v not in seen), None)
            if variable is None:
                path.pop()
                continue
            seen[variable] = current
            if variable in owner:
                path.append((owner[variable], iter(claims[owner[variable]])))
                continue
            last = {held: v for v, held in seen.items()}  # the variable that each factor tried last
            owner.update((last[held], held) for held, _ in path)
            return

    for factor in order:
        place(factor)
    return {factor: variable for variable, factor in owner.items()}


def _in_order(factors: Factors, child: dict[int, int]) -> bool:
    """Whether the graph of these children has no cycle."""
    parents = {v: [u for u in factors.scopes[i] if u != v] for i, v in child.items()}
    try:
        graphlib.TopologicalSorter(parents).prepare()
    except graphlib.CycleError:
        return False
    return True


def _one_by_one(factors: Factors, claims: list[list[int]]) -> dict[int, int]:
    """Children added greedily, each from a factor whose other variables are placed; large factors first."""
    placed: set[int] = set()
    child: dict[int, int] = {}
    order = sorted(range(len(claims)), key=lambda i: -len(factors.scopes[i]))
    while len(placed) < len(factors.sizes):
        for i in order:
            left = [variable for variable in factors.scopes[i] if variable not in placed]
            if i not in child and len(left) == 1 and left[0] in claims[i]:
                child[i] = left[0]
                placed.add(left[0])
                break
        else:
            placed.add(min(variable for variable in range(len(factors.sizes)) if variable not in placed))
    return child
