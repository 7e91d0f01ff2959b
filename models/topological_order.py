"""The order in which every variable of a network comes after its parents."""

from __future__ import annotations

import functools

__all__ = ["topological_order"]


@functools.lru_cache(maxsize=64)
def topological_order(parents: tuple[tuple[int, ...], ...], names: tuple[str, ...]) -> tuple[int, ...]:
    """Numbers of variables, parents before children, otherwise from the smallest.

    Raises
    ------
    ValueError : parents go round; the message names the circle.
    """
    waiting = [len(each) for each in parents]
    children: list[list[int]] = [[] for _ in parents]
    for number, each in enumerate(parents):
        for parent in each:
            children[parent].append(number)
    ready, order = [number for number, left in enumerate(waiting) if not left], []
    while ready:
        number = ready.pop(0)
        order.append(number)
        for child in children[number]:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    if len(order) < len(parents):
        raise ValueError(
            f"parents go round: {' -> '.join(names[number] for number in _circle(parents, waiting))}"
        )
    return tuple(order)


def _circle(parents: tuple[tuple[int, ...], ...], waiting: list[int]) -> list[int]:
    """Variables round a circle, in the direction of the arrows, the first again at the end."""
    walk = [next(number for number, left in enumerate(waiting) if left)]
    while walk[-1] not in walk[:-1]:
        walk.append(next(parent for parent in parents[walk[-1]] if waiting[parent]))
    return walk[: walk.index(walk[-1]) - 1 if walk.index(walk[-1]) else None : -1]
