r"""Climbs by flips of MAP variables, for networks in which not even the sum of one assignment is affordable.

Every MAP variable has one more factor, one at its state and :math:`\epsilon` elsewhere. Its belief divided by that
factor is proportional to :math:`p(d_i, d_{-i}, e)` in trees, and an estimate of it else: one run of belief propagation
tells for every variable what changing it alone would gain. Flips that gain and share no table are made together, or the
best one alone where all together lose.

Park and Darwiche (2004), "Complexity results and approximation strategies for MAP explanations", climb by single flips
with exact sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from ethogram.inference.networks.mixed_product import Propagated, propagate_beliefs
from ethogram.inference.networks.zero_propagation import Factor, query_factors
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["ROUNDS", "EstimatedFlips"]

HELD = 1e-9
"""The factor of a MAP variable at other states than its own."""
GAIN = 1e-6
"""Nats that a flip must gain."""
DAMPING = 0.3
FINE, COARSE = (60, 1e-4), (20, 1e-2)
"""Sweeps of a run at most and its tolerance: of climbs, and of sequences, whose next run goes on from there."""
STEPS, ROUNDS = 30, 64
"""Runs of belief propagation of a climb, and of a sequence, at most."""


class EstimatedFlips:
    """Assignments of one query by runs of belief propagation, each of which begins with the messages of the last.

    Attributes
    ----------
    hidden : modes of the hidden variables in the last run, the surest first.
    """

    def __init__(self, query: MarginalMAP):
        self.sizes, self.factors, self.maximised = (
            query.network.sizes,
            query_factors(query),
            query.map_variables,
        )
        self.near: dict[int, set[int]] = {v: set() for v in self.maximised}
        for scope, _ in self.factors:
            for v in self.near.keys() & set(scope):
                self.near[v].update(scope)
        self.messages: np.ndarray | None = None
        self.hidden: dict[int, int] = {}

    def run(
        self, states: Mapping[int, int], stop: Callable[[], bool], accuracy: tuple[int, float] = FINE
    ) -> Propagated:
        """Beliefs with some MAP variables held at their states."""
        held = []
        for v in self.maximised:
            table = np.ones(self.sizes[v])
            if v in states:
                table[np.arange(len(table)) != states[v]] = HELD
            held.append(Factor((v,), table))
        found = propagate_beliefs(
            [*self.factors, *held],
            max_sweeps=accuracy[0],
            damping=DAMPING,
            tol=accuracy[1],
            stop=stop,
            messages=self.messages,
        )
        self.messages = found.messages
        self.hidden = _modes({v: each for v, each in found.beliefs.items() if v not in self.near})
        return found

    def modes(self, stop: Callable[[], bool]) -> dict[int, int]:
        """The mode of every MAP variable, the surest first."""
        return _modes({v: each for v, each in self.run({}, stop).beliefs.items() if v in self.near})

    def one_by_one(self, stop: Callable[[], bool], rounds: int = ROUNDS) -> dict[int, int]:
        """MAP variables at their modes, the surest few first, given those before; all that are left once stopped."""
        states: dict[int, int] = {}
        while len(states) < len(self.maximised):
            beliefs = self.run(states, stop, COARSE).beliefs
            left = _modes({v: beliefs[v] for v in self.maximised if v not in states})
            many = len(left) if stop() else math.ceil(len(self.maximised) / rounds)
            states |= dict(list(left.items())[:many])
        return states

    def climb(self, states: Mapping[int, int], stop: Callable[[], bool]) -> dict[int, int]:
        """MAP variables after a climb from some states."""
        current = best = dict(states)
        best_value = -math.inf
        gains: list[tuple[float, int, int]] = []
        for step in range(STEPS):
            found = self.run(current, stop)
            better = found.log_evidence > best_value + GAIN
            if better or not step:
                best, best_value = current, found.log_evidence
                gains = sorted(self._gains(best, found.beliefs), reverse=True)
            if not gains or stop():
                break
            flips: dict[int, int] = {}
            for _, v, state in gains if better else gains[:1]:
                if self.near[v].isdisjoint(flips):
                    flips[v] = state
            current = best | flips
            if not better:
                del gains[0]
        return best

    def _gains(
        self, states: Mapping[int, int], beliefs: Mapping[int, np.ndarray]
    ) -> Iterator[tuple[float, int, int]]:
        """Nats that changing one variable alone would gain, the variable, and its state."""
        for v, own in states.items():
            odds = beliefs[v] / np.where(np.arange(len(beliefs[v])) == own, 1.0, HELD)
            best = int(odds.argmax())
            gain = math.log(odds[best]) - math.log(max(odds[own], HELD))
            if best != own and gain > GAIN:
                yield gain, v, best


def _modes(beliefs: Mapping[int, np.ndarray]) -> dict[int, int]:
    return {v: int(beliefs[v].argmax()) for v in sorted(beliefs, key=lambda v: -beliefs[v].max())}
