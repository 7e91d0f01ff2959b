"""Exact sums of the components into which hidden variables fall once the maximised variables are held, cached.

Marinescu, Dechter, Ihler (2014), "AND/OR search for marginal MAP", conditioned summation subproblems; caching by
context as in Dechter, Mateescu (2007), "AND/OR search spaces for graphical models".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ethogram.inference.networks.bucket_tree import BucketTree
from ethogram.inference.networks.elimination import independent_parts
from ethogram.inference.networks.zero_propagation import Factor

__all__ = ["ComponentSum", "component_sums"]

MOST_SUMS = 2**17
"""Cached sums of a component; the oldest go first."""
SECONDS_A_MESSAGE, SECONDS_A_CELL = 2e-5, 2e-9


class ComponentSum:
    """Log sum of one component, given its context: the maximised variables beside its hidden ones.

    Attributes
    ----------
    hidden, context : variables, ascending.
    seconds : that a sum is expected to take.
    """

    def __init__(self, factors: Sequence[Factor], sizes: Mapping[int, int], maximised: Iterable[int]):
        held = set(maximised)
        seen = {variable for scope, _ in factors for variable in scope}
        self.hidden, self.context = tuple(sorted(seen - held)), tuple(sorted(seen & held))
        self.tree = BucketTree(factors, sizes, self.context)
        self.cache: dict[tuple[int, ...], float] = {}
        self.seconds = SECONDS_A_MESSAGE * len(self.tree.order) + SECONDS_A_CELL * self.tree.work

    def known(self, places: tuple[int, ...]) -> float | None:
        """The sum at these places of the context, where it has been computed."""
        return self.cache.get(places)

    def compute(self, places: tuple[int, ...]) -> float:
        """The sum at these places of the context."""
        value = self.tree.move(dict(zip(self.context, places, strict=True)))
        if len(self.cache) >= MOST_SUMS:
            del self.cache[next(iter(self.cache))]
        self.cache[places] = value
        return value


def component_sums(
    factors: Sequence[Factor], sizes: Mapping[int, int], maximised: Iterable[int]
) -> list[ComponentSum]:
    """Components of the hidden variables."""
    held = frozenset(maximised)
    links = [Factor(tuple(v for v in scope if v not in held), table) for scope, table in factors]
    number: dict[int, int] = {}
    for i, part in enumerate(independent_parts([factor for factor in links if factor.scope])):
        for scope, _ in part:
            number.update(dict.fromkeys(scope, i))
    parts: dict[int, list[Factor]] = {}
    for factor, link in zip(factors, links, strict=True):
        if link.scope:
            parts.setdefault(number[link.scope[0]], []).append(factor)
    return [ComponentSum(part, sizes, held) for part in parts.values()]
