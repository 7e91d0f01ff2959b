r"""Exact inference by bucket elimination.

.. math:: \ln p(d, e) = \ln \sum_s p(d, s, e), \qquad \max_d \ln p(d, e)

The first sums out all hidden variables; the second sums first and maximises then (a constrained order), since sums and
maxima do not commute. Zeros are propagated before, parity checks are substituted where tables would be large,
independent components are eliminated separately, and the elimination order is min-fill. The sizes of all tables are
known before any is made: where the induced width is too large there is an error, never an approximation. Products that
span more than float64 holds are sums of logarithms.

Dechter (1999), "Bucket elimination: a unifying framework for reasoning", algorithm elim-map; Park and Darwiche (2004),
"Complexity results and approximation strategies for MAP explanations", for constrained orders.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Int

from ethogram.inference.networks.parity_checks import substituted
from ethogram.inference.networks.zero_propagation import (
    Factor,
    Possible,
    bit_places,
    propagate_zeros,
    query_factors,
)
from ethogram.models.arguments import require_integer
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = [
    "ExactAnswer",
    "Message",
    "Order",
    "Plan",
    "WidthError",
    "aligned",
    "carry_out",
    "constrained_order",
    "eliminate",
    "elimination_order",
    "exact_log_probability",
    "exact_map",
    "guard_width",
    "independent_parts",
    "log_product",
    "plan_elimination",
    "product",
    "reduced",
]

NEAR = 100.0
"""Nats from one within which products of tables are not rescaled, and beyond which they are."""
DOUBLE = 600.0
"""Nats between the largest and the least product of entries up to which float64 holds both."""
MANY = 4096
"""Maxima from which on comparing states one by one is faster than NumPy's reductions over one axis."""
WORTH = 2**16
"""Cells of all tables together from which on it is worth to look for parity checks."""
NONE = np.empty(0)
UNKNOWN = 2**62
"""Cells of an order that was not completed."""
MOST_CELLS = 2**27
"""Default limit of one table: a gibibyte."""


class WidthError(ValueError):
    """Elimination would make a table with more cells than allowed: the induced width is too large."""


class ExactAnswer(NamedTuple):
    """The optimal assignment of the MAP variables.

    Attributes
    ----------
    states : (map,) integers, in the order of the query.
    log_probability : ln p(d, e), in nats; -inf where the evidence is impossible.
    """

    states: Int[np.ndarray, "map"]
    log_probability: float


class Order(NamedTuple):
    """An elimination order, the cells of its largest table, and of all its tables together."""

    variables: list[int]
    cells: int
    work: int


class Plan(NamedTuple):
    """Components of the factors and their orders; cells of the largest table, and of all tables together.

    Where parity checks were substituted, also the variables that are tied to others by them, and the log of what the
    factors lack.
    """

    parts: list[list[Factor]]
    orders: list[Order]
    cells: int
    work: int
    tied: Mapping[int, tuple[tuple[int, ...], int]] = {}
    log_constant: float = 0.0


def exact_log_probability(
    query: MarginalMAP,
    assignment: Int[np.ndarray | Array, "map"] | Sequence[Any] | Mapping[Any, Any] | None = None,
    *,
    most_cells: int = MOST_CELLS,
) -> float:
    """Exact ln p(d, e), or ln p(e) without an assignment; -inf where impossible.

    Parameters
    ----------
    query : network, evidence and MAP variables.
    assignment : states (map,) of the MAP variables, by number or name: a list in the order of the query, or a dict by
        variable; None for none.
    most_cells : largest table allowed.

    Raises
    ------
    ValueError : `assignment` is not one state a MAP variable.
    WidthError : a table would have more than `most_cells` cells.
    """
    require_integer("most_cells", most_cells, 1)
    states = None if assignment is None else query.states(assignment)
    possible = propagate_zeros(query_factors(query, states))
    return _exactly(query, possible, (), most_cells)[1]


def exact_map(
    query: MarginalMAP, *, most_cells: int = MOST_CELLS, possible: Possible | None = None
) -> ExactAnswer:
    """The optimal assignment of the MAP variables, proved; one of them where several are optimal.

    Parameters
    ----------
    query : network, evidence and MAP variables.
    most_cells : largest table allowed.
    possible : the query's factors after propagation of zeros, where that has been done.

    Raises
    ------
    WidthError : a table would have more than `most_cells` cells.
    """
    require_integer("most_cells", most_cells, 1)
    possible = propagate_zeros(query_factors(query)) if possible is None else possible
    states, value = _exactly(query, possible, query.map_variables, most_cells)
    return ExactAnswer(np.array([states.get(variable, 0) for variable in query.map_variables]), value)


def _exactly(
    query: MarginalMAP, possible: Possible, maximised: tuple[int, ...], most_cells: int
) -> tuple[dict[int, int], float]:
    """Optimal states of the maximised variables, and the log probability."""
    if possible.impossible:
        return {}, -math.inf
    plan = plan_elimination(possible, maximised)
    guard_width(plan.cells, most_cells)
    states, value = carry_out(possible, plan, maximised)
    return states, query.network.log_constant + value


def plan_elimination(
    possible: Possible,
    maximised: Iterable[int],
    most_cells: int | float = math.inf,
    stop: Callable[[], bool] = lambda: False,
) -> Plan:
    """Components and their constrained orders; incomplete beyond `most_cells`, and where `stop` ends the planning.

    Parity checks are substituted where that makes less work.
    """
    plan = _plan(possible.live, possible.sizes, maximised, most_cells, stop)
    if plan.cells <= most_cells and plan.work < WORTH:
        return plan
    found = None if stop() else substituted(possible.live, maximised, most_cells)
    if found is None:
        return plan
    other = _plan(
        [Factor(scope, NONE) for scope in found.scopes], possible.sizes, maximised, most_cells, stop
    )
    if other.cells > min(most_cells, UNKNOWN - 1) or (plan.cells <= most_cells and plan.work <= other.work):
        return plan
    factors = list(map(Factor, found.scopes, found.tables()))
    return other._replace(parts=independent_parts(factors), tied=found.tied, log_constant=found.log_constant)


def _plan(
    factors: list[Factor],
    sizes: Mapping[int, int],
    maximised: Iterable[int],
    most_cells: int | float,
    stop: Callable[[], bool],
) -> Plan:
    parts, orders = independent_parts(factors), list[Order]()
    for part in parts:
        orders.append(constrained_order(part, sizes, maximised, most_cells, stop))
        if orders[-1].cells > most_cells or orders[-1].cells == UNKNOWN:
            break
    cells, work = max((order.cells for order in orders), default=1), sum(order.work for order in orders)
    return Plan(parts, orders, cells, work)


def carry_out(possible: Possible, plan: Plan, maximised: Iterable[int]) -> tuple[dict[int, int], float]:
    """Optimal states of the maximised variables, and of all with one possible state, and the log of the optimum."""
    if possible.impossible:
        return {}, -math.inf
    total, places = possible.log_constant + plan.log_constant, dict[int, int]()
    for part, order in zip(plan.parts, plan.orders, strict=True):
        found, log_value = eliminate(part, order.variables, set(maximised))
        if log_value == -math.inf:
            return {}, -math.inf
        total, places = total + log_value, places | found
    for variable, (others, constant) in plan.tied.items():
        if all(other in places for other in others):
            places[variable] = (sum(places[other] for other in others) + constant) % 2
    return possible.whole(places), float(total)


def independent_parts(factors: list[Factor]) -> list[list[Factor]]:
    """Connected components of the factors."""
    home: dict[int, int] = {}

    def root(variable: int) -> int:
        while home.setdefault(variable, variable) != variable:
            home[variable] = home[home[variable]]
            variable = home[variable]
        return variable

    for scope, _ in factors:
        for variable in scope[1:]:
            home[root(variable)] = root(scope[0])
    parts: dict[int, list[Factor]] = {}
    for factor in factors:
        parts.setdefault(root(factor.scope[0]), []).append(factor)
    return list(parts.values())


def constrained_order(
    part: list[Factor],
    sizes: Mapping[int, int],
    maximised: Iterable[int],
    most_cells: int | float = math.inf,
    stop: Callable[[], bool] = lambda: False,
) -> Order:
    """Min-fill order of the summed variables, then of the maximised ones."""
    variables = {variable for scope, _ in part for variable in scope}
    last = variables & set(maximised)
    stages = [sorted(variables - last), sorted(last)]
    return elimination_order([scope for scope, _ in part], sizes, stages, most_cells, stop)


def elimination_order(
    scopes: Iterable[Sequence[int]],
    sizes: Mapping[int, int],
    stages: Sequence[Sequence[int]],
    most_cells: int | float = math.inf,
    stop: Callable[[], bool] = lambda: False,
) -> Order:
    """Min-fill order of the variables, stage by stage, and its tables' sizes.

    It ends beyond `most_cells`, or where `stop` says so: then its cells are :data:`UNKNOWN`. Missing edges are counted
    anew only where a lower bound, the last count without all edges that an elimination adds or takes, is the least.
    """
    scopes = [tuple(scope) for scope in scopes]
    names = list(dict.fromkeys(variable for scope in scopes for variable in scope))
    place, size = {name: i for i, name in enumerate(names)}, [sizes[name] for name in names]
    near = [0] * len(names)  # sets of places, as the bits of whole numbers
    for scope in scopes:
        bits = sum(1 << place[variable] for variable in scope)
        for variable in scope:
            near[place[variable]] |= bits
    near = [bits & ~(1 << i) for i, bits in enumerate(near)]

    def fill(i: int) -> tuple[int, int]:
        others = left_over = near[i]
        missing, cells = -others.bit_count(), 1
        while left_over:  # bit_places inlined: planning spends its time here
            low = left_over & -left_over
            left_over ^= low
            j = low.bit_length() - 1
            missing += (others & ~near[j]).bit_count()
            cells *= size[j]
        return missing // 2, cells

    order, largest, work = [], 1, 0
    for stage in stages:
        here = [place[variable] for variable in stage if variable in place]
        latest = {i: (*fill(i), at) for at, i in enumerate(here)}
        waiting = sorted(latest.values())
        while latest:
            entry = heapq.heappop(waiting)
            missing, cells, at = entry
            i = here[at]
            if latest.get(i) != entry:
                continue
            if not cells:  # a lower bound
                latest[i] = (*fill(i), at)
                heapq.heappush(waiting, latest[i])
                continue
            del latest[i]
            order.append(names[i])
            largest, work = max(largest, size[i] * cells), work + size[i] * cells
            if largest > most_cells or stop():
                return Order(order, largest if largest > most_cells else UNKNOWN, work)
            others, grown, around, gone = near[i], 0, 0, {}
            for j in bit_places(others):
                gone[j] = (near[j] & ~others).bit_count() - 1
                joined = (near[j] | others) & ~(1 << i | 1 << j)
                if joined & ~near[j]:
                    grown |= 1 << j
                    around |= joined
                near[j] = joined
            for j in bit_places(others | around):  # of others, only those around a new edge may change
                if j in latest and (j in gone or (near[j] & grown).bit_count() > 1):
                    known, _, at = latest[j]
                    latest[j] = (max(0, known - missing - gone.get(j, 0)), 0, at)
                    heapq.heappush(waiting, latest[j])
    return Order(order, largest, work)


def guard_width(cells: int, most_cells: int) -> None:
    """WidthError where a table would have more cells than allowed."""
    if cells > most_cells:
        raise WidthError(
            f"elimination needs a table of 2**{math.log2(cells):.1f} cells ({8 * cells:.3g} bytes), more "
            f"than most_cells = 2**{math.log2(most_cells):.3g}: choose other MAP variables, add evidence, raise "
            'most_cells, or use solve_mmap with method="hybrid"'
        )


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


def eliminate(
    factors: list[Factor], order: Sequence[int], maximised: set[int]
) -> tuple[dict[int, int], float]:
    """Optimal places of the maximised variables, and the log of the optimum, by bucket elimination in this order."""
    live, total, choices = list(factors), 0.0, []
    for variable in order:
        touching = [factor for factor in live if variable in factor.scope]
        live = [factor for factor in live if variable not in factor.scope]
        message = reduced(touching, (variable,), variable in maximised)
        if message.log_scale == -math.inf:
            return {}, -math.inf
        total += message.log_scale
        live += message.factors
        if message.best is not None:
            scope = message.factors[0].scope if message.factors else ()
            choices.append((variable, scope, message.best))
    states: dict[int, int] = {}
    for variable, rest, best in reversed(choices):
        states[variable] = int(best[tuple(states[other] for other in rest)])
    return states, total
