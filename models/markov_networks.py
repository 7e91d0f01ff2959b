r"""Networks of factors that are no tables of children given parents, read as Bayesian networks with evidence.

A product of factors and a Bayesian network are two ways to write one function. A factor that sums to one over one of
its variables is the table of that variable, if no circle of arrows comes of it. Another factor :math:`\phi` becomes a
child with two states of its variables, :math:`p(1 \mid x) = \phi(x) / \max \phi`, observed at its second, and the
largest entry goes into the constant. Variables that are nobody's child get the same probability for every state, and
what that divides by goes into the constant too, so that the function is the same to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ethogram.models.bayes_net import BayesNet
from ethogram.models.uai import Factors

__all__ = ["FactorNetwork", "network_of_factors"]

ROUNDING = 2e-4
"""By how much sums of a factor may miss one where it is a table; files are rounded to four digits."""


class FactorNetwork(NamedTuple):
    """A Bayesian network, and the evidence with which it is the product of some factors.

    Attributes
    ----------
    network : variables 0 to N - 1 are those of the factors; one more for every factor that is no table.
    evidence : states of the latter.
    """

    network: BayesNet
    evidence: dict[int, int]


def network_of_factors(
    factors: Factors, names: Sequence[str] | None = None, state_names: Sequence[Sequence[str]] | None = None
) -> FactorNetwork:
    """The network whose log joint probability with its evidence is the sum of the factors' logarithms.

    Parameters
    ----------
    names, state_names : of the variables of the factors.

    Raises
    ------
    ValueError : a factor is zero everywhere.
    """
    sizes, count = factors.sizes, len(factors.sizes)
    child = _children(factors)
    tables: list[np.ndarray | None] = [None] * count
    parents: list[tuple[int, ...]] = [()] * count
    evidence: dict[int, int] = {}
    constant = 0.0
    extra: list[tuple[str, np.ndarray, tuple[int, ...]]] = []
    for i, (scope, table) in enumerate(zip(factors.scopes, factors.tables, strict=True)):
        if not table.any():
            raise ValueError(f"factor {i}, of variables {scope}, is zero everywhere: nothing is possible")
        if not scope:
            constant += math.log(float(table))
        elif i in child:
            others = tuple(variable for variable in scope if variable != child[i])
            tables[child[i]] = np.moveaxis(table, scope.index(child[i]), -1)
            parents[child[i]] = others
        else:
            largest = float(table.max())
            constant += math.log(largest)
            share = table / largest
            evidence[count + len(extra)] = 1
            extra.append((f"factor{i}", np.stack((1 - share, share), -1), scope))
    whole = []
    for variable, known in enumerate(tables):
        if known is None:
            constant += math.log(sizes[variable])
            known = np.full(sizes[variable], 1 / sizes[variable])
        whole.append(known)
    given = tuple(names) if names is not None else tuple(f"x{i}" for i in range(count))
    states = None
    if state_names is not None:
        states = (*(tuple(each) for each in state_names), *(("no", "yes") for _ in extra))
    network = BayesNet(
        (*whole, *(table for _, table, _ in extra)),
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
    """Of the factors that are tables, the child; the arrows go round nowhere."""
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
    """As many factors as can be have a variable each; those that come first in the order before others."""
    owner: dict[int, int] = {}

    def place(factor: int) -> bool:
        came: dict[int, int] = {}
        ways = [(factor, iter(claims[factor]))]
        seen: set[int] = set()
        while ways:
            current, rest = ways[-1]
            variable = next((v for v in rest if v not in seen), None)
            if variable is None:
                ways.pop()
                continue
            seen.add(variable)
            came[variable] = current
            if variable in owner:
                ways.append((owner[variable], iter(claims[owner[variable]])))
                continue
            while True:  # everybody on the way moves on
                current = came[variable]
                before = next((v for v, held in owner.items() if held == current), None)
                owner[variable] = current
                if current == factor:
                    return True
                assert before is not None
                variable = before
        return False

    for factor in order:
        place(factor)
    return {factor: variable for variable, factor in owner.items()}


def _in_order(factors: Factors, child: dict[int, int]) -> bool:
    """Whether the arrows go round nowhere."""
    waiting = {v: {u for u in factors.scopes[i] if u != v} for i, v in child.items()}
    while waiting:
        ready = [variable for variable, others in waiting.items() if not others & waiting.keys()]
        if not ready:
            return False
        for variable in ready:
            del waiting[variable]
    return True


def _one_by_one(factors: Factors, claims: list[list[int]]) -> dict[int, int]:
    """Children one after the other, each of a factor whose other variables stand already; large factors first."""
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
