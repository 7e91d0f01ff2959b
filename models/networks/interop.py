"""Bayesian networks of pgmpy and pyAgrum, recognised by their methods: neither package is imported.

pgmpy's networks have ``nodes()`` and ``get_cpds(node)``, whose ``values`` have the child's axis first; pyAgrum's have
``names()`` and ``cpt(name)``, whose arrays have the child's axis last and parents in reverse order of its ``names``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet

__all__ = ["network_from"]


def network_from(other: Any) -> BayesNet:
    """BayesNet with the tables and names of a pgmpy or pyAgrum network.

    Raises
    ------
    TypeError : `other` has the methods of neither.
    ValueError : a variable has no table; or as :class:`~ethogram.models.networks.BayesNet`.
    """
    if hasattr(other, "get_cpds") and hasattr(other, "nodes"):
        families = list(_pgmpy_families(other))
    elif hasattr(other, "cpt") and hasattr(other, "names") and hasattr(other, "variable"):
        families = list(_pyagrum_families(other))
    else:
        raise TypeError(
            "other must be a pgmpy network (get_cpds, nodes) or a pyAgrum network (cpt, names, variable), not "
            f"{type(other).__name__}"
        )
    number = {name: i for i, (name, _, _, _) in enumerate(families)}
    names, states, parents, tables = zip(*families, strict=True)
    numbers = tuple(tuple(number[parent] for parent in each) for each in parents)
    return BayesNet(tables, numbers, names=names, state_names=states)


Family = tuple[str, tuple[str, ...], list[str], np.ndarray]
"""Name and states of a variable, its parents, and its table with the child's axis last."""


def _pgmpy_families(other: Any) -> Iterator[Family]:
    for node in other.nodes():
        found = other.get_cpds(node)
        if found is None:
            raise ValueError(f"variable {node!r} of the pgmpy network has no table")
        states = tuple(str(state) for state in found.state_names[node])
        parents = [str(parent) for parent in list(found.variables)[1:]]
        yield str(node), states, parents, np.moveaxis(np.asarray(found.values, np.float64), 0, -1)


def _pyagrum_families(other: Any) -> Iterator[Family]:
    for name in sorted(str(name) for name in other.names()):
        found = other.cpt(name)
        states = tuple(str(label) for label in other.variable(name).labels())
        parents = [str(each) for each in reversed(found.names) if str(each) != name]
        yield name, states, parents, np.asarray(found.toarray(), np.float64)
