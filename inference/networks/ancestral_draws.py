"""Ancestral samples of a Bayesian network on the host, to start searches from.

Henrion (1988), "Propagating uncertainty in Bayesian networks by probabilistic logic sampling"; with zeros propagated
after every choice and chronological backtracking, so that samples agree with the evidence.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from jax import Array

from ethogram.inference.networks.zero_propagation import Possible, Supports, bit_places
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["draw_possible", "draw_states", "generator"]

DEAD_ENDS = 25
"""Dead ends after which a sample is given up."""


def generator(key: Array) -> np.random.Generator:
    """NumPy generator seeded by a typed key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint32).tolist())


def draw_states(random: np.random.Generator, query: MarginalMAP) -> dict[int, int]:
    """An ancestral sample, states by variable, with observed variables clamped even where that is impossible."""
    network, states = query.network, dict(query.observed)
    uniform = random.random(network.num_variables)
    for number in network.order:
        if number not in states:
            row = network.tables[number][tuple(states[parent] for parent in network.parents[number])]
            total = np.cumsum(row)
            place = int(np.searchsorted(total, uniform[number] * total[-1], "right"))
            states[number] = min(place, len(row) - 1)
    return states


def draw_possible(
    random: np.random.Generator,
    query: MarginalMAP,
    possible: Possible,
    supports: Supports,
    wanted: Mapping[int, int],
) -> dict[int, int] | None:
    """An ancestral sample among states that propagation of zeros leaves; None after too many dead ends.

    Wanted states are assumed first, unless they have become impossible; `supports` are of the restricted factors.
    """
    network, states, alive = query.network, dict(query.observed), supports.first
    for number, state in wanted.items():
        at = np.flatnonzero(possible.states[number] == state)
        if number in alive and len(at) and alive[number] >> int(at[0]) & 1:
            alive = supports.assume(alive, number, int(at[0])) or alive
    order, sizes = [number for number in network.order if number not in states], network.sizes
    trail: list[tuple[dict[int, int], np.ndarray]] = []  # possible and untried states before every choice
    dead_ends = 0
    while len(trail) < len(order):
        number = order[len(trail)]
        untried = np.zeros(len(possible.states.get(number, range(sizes[number]))), bool)
        untried[bit_places(alive.get(number, (1 << len(untried)) - 1))] = True
        trail.append((alive, untried))
        while True:
            number = order[len(trail) - 1]
            here = possible.states.get(number, np.arange(sizes[number]))
            before, untried = trail[-1]
            if not untried.any():
                trail.pop()
                if not trail:
                    return None
                continue
            row = network.tables[number][tuple(states[parent] for parent in network.parents[number])][here]
            weights = np.where(untried, row, 0.0)
            total = np.cumsum(weights if weights.any() else untried)
            place = int(np.searchsorted(total, random.random() * total[-1], "right"))
            place = min(place, int(np.flatnonzero(untried)[-1]))
            after: dict[int, int] | None = before
            if number in before and before[number].bit_count() > 1:
                after = supports.assume(before, number, place)
            untried[place] = False
            if after is None:
                dead_ends += 1
                if dead_ends > DEAD_ENDS:
                    return None
                continue
            alive = after
            states[number] = int(here[place])
            break
    return states
