r"""Random networks in which possible assignments are rare: grids and k-trees with deterministic rows and tables.

Grids are those of the UAI evaluations: every variable has the one above and the one to the left as parents, and a row
of its table is deterministic with a given chance, so that this is the share of entries that are zero or one. In k-trees
every variable is attached to a clique of k earlier ones, some of which are its parents; its table is a noisy-or of
them, or deterministic. Evidence is the end of an ancestral sample, and so possible by construction.

Sang, Beame, Kautz (2005), "Performing Bayesian inference by weighted model counting", section 5, for grids; Rose
(1974), "On simple characterizations of k-trees"; Pearl (1988), "Probabilistic Reasoning in Intelligent Systems",
section 4.3.2, for noisy-or.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jax import Array

from ethogram.inference.networks.samples import draw_states
from ethogram.models.arguments import require_integer, require_key
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["grid", "k_tree", "late_query"]

STRENGTHS, LEAK = (0.3, 0.95), 0.02
"""Range of the strengths of noisy-or causes, and the chance of an effect without cause."""


def grid(key: Array, side: int, deterministic: float) -> BayesNet:
    """A square grid of binary variables, row by row.

    Parameters
    ----------
    key : typed PRNG key.
    side : variables per row and per column.
    deterministic : chance of every row of a table to have a zero and a one; other rows are uniform on the simplex.

    Raises
    ------
    TypeError, ValueError
        `key` is not a typed key, `side` is not an integer of at least 1, or `deterministic` is not in [0, 1].

    Examples
    --------
    >>> import jax
    >>> network = grid(jax.random.key(0), 3, 0.9)
    >>> network.num_variables, network.parents[4]
    (9, (1, 3))
    """
    require_key(key)
    require_integer("side", side, 1)
    _require_share("deterministic", deterministic)
    random = numpy_generator(key)
    tables, parents = [], []
    for row in range(side):
        for column in range(side):
            number = row * side + column
            parents.append((number - side,) * (row > 0) + (number - 1,) * (column > 0))
            shape = (2,) * len(parents[-1])
            loose, certain = random.random(shape), random.integers(0, 2, shape).astype(float)
            chance = np.where(random.random(shape) < deterministic, certain, loose)
            tables.append(np.stack((1 - chance, chance), -1))
    return BayesNet(tuple(tables), tuple(parents))


def k_tree(key: Array, num_variables: int, width: int, deterministic: float) -> BayesNet:
    """A network of binary variables on a random k-tree, with noisy-or and deterministic tables.

    Parameters
    ----------
    key : typed PRNG key.
    num_variables : in the order of their construction, parents before children.
    width : k, the treewidth; a variable has at most as many parents.
    deterministic : chance of a table to be a random function of the parents; the other tables are noisy-or.

    Raises
    ------
    TypeError, ValueError
        `key` is not a typed key, `num_variables` or `width` is not an integer of at least 1, or `deterministic` is not
        in [0, 1].

    Examples
    --------
    >>> import jax
    >>> network = k_tree(jax.random.key(0), 50, 4, 0.5)
    >>> network.num_variables, max(map(len, network.parents))
    (50, 4)
    """
    require_key(key)
    require_integer("num_variables", num_variables, 1)
    require_integer("width", width, 1)
    _require_share("deterministic", deterministic)
    random = numpy_generator(key)
    tables, parents = [], []
    cliques: list[tuple[int, ...]] = []
    for number in range(num_variables):
        clique = tuple(range(number))
        if number > width:
            clique = cliques[int(random.integers(len(cliques)))]
        if number >= width:
            cliques += [(*clique[:i], *clique[i + 1 :], number) for i in range(len(clique))] or [(number,)]
        many = int(random.integers(1, len(clique) + 1)) if clique else 0
        parents.append(tuple(sorted(random.permutation(clique)[:many].astype(int).tolist())))
        shape = (2,) * many
        if many and random.random() < deterministic:
            chance = random.integers(0, 2, shape).astype(float)
        elif many:
            strengths = random.uniform(*STRENGTHS, many)
            causes = np.moveaxis(np.indices(shape), 0, -1)
            chance = 1 - (1 - LEAK) * np.prod(np.where(causes, 1 - strengths, 1.0), -1)
        else:
            chance = random.random(shape)
        tables.append(np.stack((1 - chance, chance), -1))
    return BayesNet(tuple(tables), tuple(parents))


def late_query(key: Array, network: BayesNet, observed: float, maximised: float) -> MarginalMAP:
    """A marginal MAP query whose evidence is the end of an ancestral sample.

    Leaves are observed before others, which are of the later half in topological order.

    Parameters
    ----------
    key : typed PRNG key.
    network : whose rows sum to one.
    observed : share of the variables that is observed, at least one.
    maximised : share of the others that is maximised over, at least one.

    Raises
    ------
    TypeError, ValueError
        `key` is not a typed key, `network` is not a BayesNet, or has a single variable, or a share is not in [0, 1], or
        more than half of the variables are observed.

    Examples
    --------
    >>> import jax
    >>> network = grid(jax.random.key(0), 3, 0.9)
    >>> query = late_query(jax.random.key(1), network, 0.2, 0.5)
    >>> len(query.observed), len(query.map_variables)
    (1, 4)
    """
    require_key(key)
    if not isinstance(network, BayesNet):
        raise TypeError(f"network must be a BayesNet, not {type(network).__name__}")
    if network.num_variables < 2:
        raise ValueError(
            "network has a single variable: at least one to observe and one to maximise are needed"
        )
    _require_share("observed", observed, 0.5)
    _require_share("maximised", maximised)
    random, order = numpy_generator(key), network.order
    inner = {parent for above in network.parents for parent in above}
    late = order[len(order) // 2 :]
    leaves = random.permutation([v for v in order if v not in inner]).tolist()
    others = random.permutation([v for v in late if v in inner]).astype(int).tolist()
    known = [*leaves, *others][: max(1, math.floor(observed * len(order)))]
    states = draw_states(random, MarginalMAP(network, None, [order[0]]))
    left = random.permutation([v for v in range(len(order)) if v not in set(known)])
    many = max(1, math.floor(maximised * len(left)))
    return MarginalMAP(network, {v: states[v] for v in known}, sorted(left[:many].tolist()))


def _require_share(name: str, value: Any, most: float = 1.0) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value <= most:
        raise ValueError(f"{name} must be a share in [0, {most:g}], not {value!r}")
