r"""Products of factors, and what is left of them when variables are summed out or maximised.

Where products of entries span more than float64 holds, they are sums of logarithms, and the message that is left is
several equal factors, each a root of it: tables stay nonnegative numbers, of which none underflows.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ethogram.inference.networks.zero_propagation import Factor

__all__ = ["Message", "aligned", "log_product", "product", "reduced"]

NEAR = 100.0
"""Nats from one within which products of tables are not rescaled, and beyond which they are."""
DOUBLE = 600.0
"""Nats between the largest and the least product of entries up to which float64 holds both."""
MANY = 4096
"""Maxima from which on comparing states one by one is faster than NumPy's reductions over one axis."""


class Message(NamedTuple):
    """What is left of some factors when a variable is eliminated.

    Attributes
    ----------
    factors : none where no variable is left; several equal ones, each a root of the message, where that spans more
        than float64 holds. Their largest entries are one.
    log_scale : log of the constant that belongs to them; -inf where all entries are zero.
    best : of a maximised variable, the place of the maximum.
    """

    factors: list[Factor]
    log_scale: float
    best: np.ndarray | None = None


def reduced(factors: list[Factor], gone: Container[int], maximise: bool = False) -> Message:
    """The product of factors with some variables summed out, or one maximised.

    Products that span more than float64 holds are sums of logarithms.
    """
    scope = tuple(dict.fromkeys(variable for factor in factors for variable in factor.scope))
    axes = tuple(axis for axis, variable in enumerate(scope) if variable in gone)
    rest = tuple(variable for variable in scope if variable not in gone)
    span, near = _span(factors)
    if span < DOUBLE:
        table, log_scale = product(factors, scope, near)
        message, best = _largest(table, *axes) if maximise else (table.sum(axes), None)
        scale = float(message.max())
        found = [Factor(rest, message / (scale or 1.0))] if rest else []
        return Message(found, log_scale + math.log(scale) if scale else -math.inf, best)
    logs = log_product(factors, scope)
    message, best = _largest(logs, *axes) if maximise else (_log_sum(logs, axes), None)
    scale = float(message.max())
    finite = message[message > -math.inf]
    roots = 1 + int((scale - finite.min()) / DOUBLE) if finite.size else 1
    shifted = message - scale if finite.size else message
    found = [Factor(rest, np.exp(shifted / roots))] * roots if rest else []
    return Message(found, scale, best)


def product(factors: list[Factor], scope: Sequence[int], near: bool = False) -> tuple[np.ndarray, float]:
    """Product of factors as one table, and the logarithm of its scale; unscaled where all products are `near` one."""
    place = {variable: axis for axis, variable in enumerate(scope)}
    total, log_scale = np.ones((1,) * len(scope)), 0.0
    for factor in sorted(factors, key=lambda factor: factor.table.size):
        table = aligned(factor, place)
        if not near:
            table, log_scale = _scaled(table, log_scale, 0.0)
        total = total * table
        if not near:  # hundreds of tables over one variable underflow together
            total, log_scale = _scaled(total, log_scale, NEAR)
    return total, log_scale


def log_product(
    factors: Sequence[Factor], scope: Sequence[int], shape: tuple[int, ...] | None = None
) -> np.ndarray:
    """Log of the product of factors as one table with these axes."""
    place = {variable: axis for axis, variable in enumerate(scope)}
    total = np.zeros((1,) * len(scope) if shape is None else shape)
    with np.errstate(divide="ignore"):
        for factor in factors:
            total = total + np.log(aligned(factor, place))
    return total


def _log_sum(logs: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Log of the sum of exponentials over some axes."""
    top = logs.max(axes, keepdims=True)
    top = np.where(top > -math.inf, top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(logs - top).sum(axes)) + top.squeeze(axes))


def aligned(factor: Factor, place: Mapping[int, int]) -> np.ndarray:
    """A factor's table with axes at the places of a scope's variables; those that it lacks are of length one."""
    places, shape = [place[variable] for variable in factor.scope], [1] * len(place)
    for at, size in zip(places, factor.table.shape, strict=True):
        shape[at] = size
    return factor.table.transpose(sorted(range(len(places)), key=places.__getitem__)).reshape(shape)


def _scaled(table: np.ndarray, log_scale: float, least: float) -> tuple[np.ndarray, float]:
    """A table rescaled to a largest entry of one if that is more than `least` nats off, and its new log scale."""
    largest = table.max()
    nats = float(np.log(largest)) if largest > 0 else 0.0
    return (table / largest, log_scale + nats) if abs(nats) > least else (table, log_scale)


def _span(factors: Sequence[Factor]) -> tuple[float, bool]:
    """Nats between the largest and the least product of positive entries, and whether all are near one."""
    nats = below = above = 0.0
    for _, table in factors:
        high, low = table.max(), table.min()
        if low == 0 < high:
            low = table[table > 0].min()
        if high > 0:
            lowest, highest = float(np.log(low)), float(np.log(high))
            nats += highest - lowest
            below += min(lowest, 0.0)
            above += max(highest, 0.0)
    return nats, max(-below, above) < NEAR


def _largest(table: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Maxima along an axis and their first positions, in the smallest integer type that holds them."""
    kind = np.min_scalar_type(table.shape[axis] - 1)
    if table.size < MANY * table.shape[axis]:
        return np.asarray(table.max(axis)), np.asarray(table.argmax(axis)).astype(kind)
    states = np.moveaxis(table, axis, 0)
    message, place = np.asarray(states[0]), np.zeros(states[0].shape, kind)
    for i in range(1, len(states)):
        place = np.where(states[i] > message, kind.type(i), place)
        message = np.maximum(states[i], message)
    return np.asarray(message), np.asarray(place)
