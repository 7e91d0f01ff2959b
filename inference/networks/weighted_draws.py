"""Many ancestral samples at a time, evidence clamped, for a first possible answer.

Every variable is drawn from its row, parents before children, among the states that propagation of zeros leaves:
evidence and what it forces are clamped. A sample is possible where no row has lost all of its entries.

Fung, Chang (1990), "Weighing and integrating evidence for stochastic simulation in Bayesian networks"; Shachter, Peot
(1990), "Simulation approaches to general probabilistic inference on belief networks": likelihood weighting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ethogram.inference.networks.zero_propagation import Possible
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["PossibleDraws", "possible_draws"]

DRAWS, KEPT = 200, 32


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
    random: np.random.Generator,
    query: MarginalMAP,
    possible: Possible,
    num_draws: int = DRAWS,
    most_kept: int = KEPT,
) -> PossibleDraws:
    """Possible ones among many ancestral samples; none where all are impossible.

    Parameters
    ----------
    query : network, evidence and MAP variables.
    possible : its factors after propagation of zeros.
    num_draws, most_kept : samples drawn, and kept at most.
    """
    network = query.network
    states = np.zeros((num_draws, network.num_variables), int)
    log_joint = np.full(num_draws, network.log_constant)
    given = dict(query.observed)
    uniform = random.random((network.num_variables, num_draws))
    with np.errstate(divide="ignore"):
        for number in network.order:
            parents = network.parents[number]
            rows = network.tables[number][tuple(states[:, parent] for parent in parents)]
            rows = np.broadcast_to(rows, (num_draws, network.sizes[number]))
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
            log_joint += np.log(rows[np.arange(num_draws), states[:, number]])
        for number, likelihoods in query.soft:
            log_joint += np.log(np.array(likelihoods))[states[:, number]]
    order = np.argsort(-log_joint, kind="stable")
    order = order[log_joint[order] > -np.inf]
    _, first = np.unique(states[order][:, list(query.map_variables)], axis=0, return_index=True)
    kept = order[np.sort(first)][:most_kept]
    return PossibleDraws(states[kept], log_joint[kept])
