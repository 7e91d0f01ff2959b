"""Posterior probabilities of single variables of a Bayesian network, exact where that is affordable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ethogram.inference.bucket_tree import BucketTree
from ethogram.inference.elimination import plan_elimination
from ethogram.inference.mixed_product import propagate_beliefs
from ethogram.inference.zero_propagation import Factor, Possible, propagate_zeros, query_factors
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["VariablePosteriors", "factor_posteriors", "variable_posteriors"]


class VariablePosteriors(NamedTuple):
    """Of every MAP variable, how probable its states are given the evidence, the other MAP variables summed out.

    Attributes
    ----------
    probabilities : by name, (state,); zero everywhere where the evidence is impossible.
    kind : ``"exact"``, or ``"estimate"`` by loopy belief propagation.
    """

    probabilities: dict[str, np.ndarray]
    kind: str


def variable_posteriors(query: MarginalMAP, *, most_cells: int = 2**22) -> VariablePosteriors:
    """Posterior probabilities p(D = s | e) of every MAP variable by itself.

    They say how sure each state is; which states are most probable together is another question.

    Parameters
    ----------
    most_cells : of one table; where more would be needed, estimates are made.
    """
    possible = propagate_zeros(query_factors(query))
    sizes, names = query.network.sizes, query.network.names
    told = {names[variable]: np.zeros(sizes[variable]) for variable in query.map_variables}
    if possible.impossible or any(not factor.table.any() for factor in possible.factors):
        return VariablePosteriors(told, "exact")
    found, kind = factor_posteriors(possible, query.map_variables, most_cells)
    for variable, each in zip(query.map_variables, found, strict=True):
        told[names[variable]][possible.states[variable]] = each
    return VariablePosteriors(told, kind)


def factor_posteriors(
    possible: Possible, variables: Sequence[int], most_cells: int
) -> tuple[list[np.ndarray], str]:
    """Of every variable, probabilities of its possible states, and whether they are exact or estimates."""
    live = [factor for factor in possible.factors if factor.scope]
    sizes = {variable: len(each) for variable, each in possible.states.items()}
    alone = {v: np.ones(sizes[v]) / max(sizes[v], 1) for v in variables}
    if plan_elimination(possible, (), most_cells).cells > most_cells:
        beliefs = propagate_beliefs(live, max_sweeps=50, damping=0.3).beliefs
        return [beliefs.get(variable, alone[variable]) for variable in variables], "estimate"
    tree = BucketTree(live, sizes, ())
    if tree.settle({}) == -np.inf:
        return [np.zeros(sizes[variable]) for variable in variables], "exact"
    return [
        _of(tree, variable) if variable in tree.rank else alone[variable] for variable in variables
    ], "exact"


def _of(tree: BucketTree, variable: int) -> np.ndarray:
    belief: Factor = tree.belief(variable)
    mass = belief.table.sum()
    return belief.table / mass if mass > 0 else belief.table
