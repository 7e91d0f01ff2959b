"""Draws of a Bayesian network on the host, to start searches from."""

from __future__ import annotations

from collections.abc import Mapping

import jax
import numpy as np
from jax import Array

from ethogram.inference.zero_propagation import Possible, Supports, bit_places
from ethogram.models.bayes_net import MarginalMAP

__all__ = ["draw_possible", "draw_states", "generator"]

DEAD_ENDS = 25
"""Choices that lead nowhere before a draw is given up."""


def generator(key: Array) -> np.random.Generator:
    """A generator of NumPy's from a typed key."""
    return np.random.default_rng(np.asarray(jax.random.key_data(key)).astype(np.uint32).tolist())


def draw_states(random: np.random.Generator, query: MarginalMAP) -> dict[int, int]:
    """States by variable, drawn from parents to children, with the evidence where it is, whether it fits or not."""
    network, states = query.network, dict(query.observed)
    uniform = random.random(network.num_variables)
    for number in network.order:
        if number not in states:
            row = network.tables[number][tuple(states[parent] for parent in network.parents[number])]
            total = np.cumsum(row)
            states[number] = min(
                int(np.searchsorted(total, uniform[number] * total[-1], "right")), len(row) - 1
            )
    return states


def draw_possible(
    random: np.random.Generator, query: MarginalMAP, possible: Possible, supports: Supports,
    wanted: Mapping[int, int] | None = None,
) -> dict[int, int] | None:  # fmt: skip
    """States by variable, drawn from parents to children among those that propagation leaves; None where it runs dry.

    Parameters
    ----------
    possible, supports : of the query's factors, and of what is left of them.
    wanted : states that variables have unless that has become impossible; they are assumed first.
    """
    network, states, alive = query.network, dict(query.observed), supports.first
    for number, state in (wanted or {}).items():
        at = np.flatnonzero(possible.states[number] == state)
        if number in alive and len(at) and alive[number] >> int(at[0]) & 1:
            alive = supports.assume(alive, number, int(at[0])) or alive
    order, sizes = [number for number in network.order if number not in states], network.sizes
    trail: list[tuple[dict[int, int], np.ndarray]] = []  # before every choice: what was left, what is untried
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
