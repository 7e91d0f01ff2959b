"""Bayesian networks of pgmpy and pyAgrum, recognised by their methods: neither package is imported.

pgmpy's networks have ``nodes()`` and ``get_cpds(node)``, whose ``values`` have the child's axis first; pyAgrum's have
``names()`` and ``cpt(name)``, whose arrays have the child's axis last and parents in reverse order of its ``names``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.families import Family, network_by_name

__all__ = ["network_from"]


def network_from(other: Any) -> BayesNet:
    """BayesNet with the tables and names of a pgmpy or pyAgrum network.

    Raises
    ------
    TypeError : `other` is neither a pgmpy nor a pyAgrum network.
    ValueError : a variable has no table; or as :class:`~ethogram.models.networks.BayesNet`.
    """
    if hasattr(other, "get_cpds") and hasattr(other, "nodes"):
        return network_by_name("other", _pgmpy_families(other))
    if hasattr(other, "cpt") and hasattr(other, "names") and hasattr(other, "variable"):
        return network_by_name("other", _pyagrum_families(other))
    raise TypeError(
        "other must be a pgmpy network (get_cpds, nodes) or a pyAgrum network (cpt, names, variable), not "
        f"{type(other).__name__}"
    )


def _pgmpy_families(other: Any) -> Iterator[Family]:
    for node in other.nodes():
        found = other.get_cpds(node)
        if found is None:
            raise ValueError(f"variable {node!r} of the pgmpy network has no table")
        states, axes = list(map(str, found.state_names[node])), list(map(str, found.variables))
        yield Family(str(node), states, axes[1:], np.asarray(found.values, np.float64), axes=axes)


def _pyagrum_families(other: Any) -> Iterator[Family]:
    for name in sorted(map(str, other.names())):
        found = other.cpt(name)
        states, parents = list(map(str, other.variable(name).labels())), list(map(str, found.names))[:0:-1]
        yield Family(name, states, parents, np.asarray(found.toarray(), np.float64))
