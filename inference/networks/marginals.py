"""Posterior marginals of single variables, exact where that is affordable.

From the messages of one bucket tree, as elim-bel of Dechter (1999), "Bucket elimination: a unifying framework for
reasoning"; else loopy belief propagation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import plan_elimination
from ethogram.inference.networks.mixed_product import normalised, propagate_beliefs
from ethogram.inference.networks.zero_propagation import Possible, propagate_zeros, query_factors
from ethogram.models.arguments import require_integer
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["VariablePosteriors", "factor_posteriors", "variable_posteriors"]


class VariablePosteriors(NamedTuple):
    """Posterior marginals of the MAP variables, the other MAP variables summed out.

    Attributes
    ----------
    probabilities : by name, (state,); all zero where the evidence is impossible.
    kind : ``"exact"``, or ``"estimate"`` by loopy belief propagation.
    """

    probabilities: dict[str, Float[np.ndarray, " state"]]
    kind: str


def variable_posteriors(query: MarginalMAP, *, most_cells: int = 2**22) -> VariablePosteriors:
    """Posterior marginals p(D = s | e) of every MAP variable.

    They say how certain each variable is by itself; their modes need not be the most probable joint assignment.

    Parameters
    ----------
    query : network, evidence and MAP variables.
    most_cells : largest table allowed; where more is needed, the marginals are estimates.
    """
    require_integer("most_cells", most_cells, 1)
    possible = propagate_zeros(query_factors(query))
    sizes, names = query.network.sizes, query.network.names
    probabilities = {names[variable]: np.zeros(sizes[variable]) for variable in query.map_variables}
    if possible.impossible:
        return VariablePosteriors(probabilities, "exact")
    found, kind = factor_posteriors(possible, query.map_variables, most_cells)
    for variable, each in zip(query.map_variables, found, strict=True):
        probabilities[names[variable]][possible.states[variable]] = each
    return VariablePosteriors(probabilities, kind)


def factor_posteriors(
    possible: Possible, variables: Sequence[int], most_cells: int
) -> tuple[list[np.ndarray], str]:
    """Marginals of variables over their possible states, and whether they are exact or estimates."""
    live, sizes = possible.live, possible.sizes
    alone = {v: np.ones(sizes[v]) / max(sizes[v], 1) for v in variables}
    if plan_elimination(possible, (), most_cells).cells > most_cells:
        beliefs = propagate_beliefs(live, max_sweeps=50, damping=0.3).beliefs
        return [beliefs.get(variable, alone[variable]) for variable in variables], "estimate"
    tree = BucketTree(live, sizes, ())
    if tree.settle({}) == -np.inf:
        return [np.zeros(sizes[variable]) for variable in variables], "exact"
    return [normalised(tree.belief(v)) if v in tree.rank else alone[v] for v in variables], "exact"
