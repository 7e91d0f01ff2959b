"""Bayesian networks of other packages, told by what they can do: neither package is imported here.

pgmpy's networks have ``nodes()`` and ``get_cpds(node)``, whose ``values`` have the child's axis first; pyAgrum's have
``names()`` and ``cpt(name)``, whose arrays have the child's axis last and parents in reverse order of its ``names``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ethogram.models.bayes_net import BayesNet

__all__ = ["network_from"]


def network_from(other: Any) -> BayesNet:
    """The same network as one of pgmpy's or pyAgrum's, with the names of variables and states.

    Raises
    ------
    TypeError : it can do neither what pgmpy's networks can, nor what pyAgrum's can.
    ValueError : as :class:`~ethogram.models.bayes_net.BayesNet`; or a variable has no table.
    """
    if hasattr(other, "get_cpds") and hasattr(other, "nodes"):
        return _from_pgmpy(other)
    if hasattr(other, "cpt") and hasattr(other, "names") and hasattr(other, "variable"):
        return _from_pyagrum(other)
    raise TypeError(
        f"network is {type(other).__name__}: give one with get_cpds, nodes (pgmpy), or cpt, names, variable (pyAgrum)"
    )


def _from_pgmpy(other: Any) -> BayesNet:
    names = [str(node) for node in other.nodes()]
    number = {name: i for i, name in enumerate(names)}
    tables, parents, states = [], [], []
    for node in other.nodes():
        found = other.get_cpds(node)
        if found is None:
            raise ValueError(f"network has no table of {node!r}")
        tables.append(np.moveaxis(np.asarray(found.values, np.float64), 0, -1))
        parents.append(tuple(number[str(parent)] for parent in list(found.variables)[1:]))
        states.append(tuple(str(state) for state in found.state_names[node]))
    return BayesNet(tuple(tables), tuple(parents), names=tuple(names), state_names=tuple(states))


def _from_pyagrum(other: Any) -> BayesNet:
    names = sorted(str(name) for name in other.names())
    number = {name: i for i, name in enumerate(names)}
    tables, parents, states = [], [], []
    for name in names:
        found = other.cpt(name)
        own = [str(each) for each in found.names]
        table = np.asarray(found.toarray(), np.float64)
        parents.append(tuple(number[each] for each in reversed(own) if each != name))
        tables.append(table)
        states.append(tuple(str(label) for label in other.variable(name).labels()))
    return BayesNet(tuple(tables), tuple(parents), names=tuple(names), state_names=tuple(states))
