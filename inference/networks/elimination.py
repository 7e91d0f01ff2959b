r"""Exact inference by bucket elimination.

.. math:: \ln p(d, e) = \ln \sum_s p(d, s, e), \qquad \max_d \ln p(d, e)

The first sums out all hidden variables; the second sums first and maximises then (a constrained order), since sums and
maxima do not commute. Zeros are propagated before, parity checks are substituted where tables would be large,
independent components are eliminated separately, and the elimination order is min-fill. The sizes of all tables are
known before any is made: where the induced width is too large there is an error, never an approximation.

Dechter (1999), "Bucket elimination: a unifying framework for reasoning", algorithm elim-map; Park and Darwiche (2004),
"Complexity results and approximation strategies for MAP explanations", for constrained orders.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Int

from ethogram.inference.networks.parity_checks import substituted
from ethogram.inference.networks.products import reduced
from ethogram.inference.networks.zero_propagation import (
    Factor,
    ReducedFactors,
    bit_places,
    independent_parts,
    propagate_zeros,
    query_factors,
)
from ethogram.models.arguments import require_integer
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.printing import short_repr

__all__ = [
    "EliminationPlan",
    "ExactAnswer",
    "Order",
    "WidthError",
    "carry_out",
    "eliminate",
    "elimination_order",
    "exact_log_probability",
    "exact_map",
    "guard_width",
    "hidden_order",
    "part_order",
    "plan_elimination",
]

WORTH = 2**16
"""Cells of all tables together from which on it is worth to look for parity checks."""
NONE = np.empty(0)
UNKNOWN = 2**62
"""Cells of an order that was not completed."""
MOST_CELLS = 2**27
"""Default limit of one table: a gibibyte."""


class WidthError(ValueError):
    """Elimination would make a table with more cells than allowed: the induced width is too large."""


@short_repr
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
    """An elimination order, the cells of its largest table, of all its tables together, and of each."""

    variables: list[int]
    cells: int
    work: int
    tables: list[int]


class EliminationPlan(NamedTuple):
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
    ValueError : `assignment` is not one state per MAP variable.
    WidthError : a table would have more than `most_cells` cells.
    """
    require_integer("most_cells", most_cells, 1)
    states = None if assignment is None else query.states(assignment)
    possible = propagate_zeros(query_factors(query, states))
    return _exactly(query, possible, (), most_cells)[1]


def exact_map(
    query: MarginalMAP, *, most_cells: int = MOST_CELLS, possible: ReducedFactors | None = None
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
    query: MarginalMAP, possible: ReducedFactors, maximised: tuple[int, ...], most_cells: int
) -> tuple[dict[int, int], float]:
    """Optimal states of the maximised variables, and the log probability."""
    if possible.impossible:
        return {}, -math.inf
    plan = plan_elimination(possible, maximised)
    guard_width(plan.cells, most_cells)
    states, value = carry_out(possible, plan, maximised)
    return states, query.network.log_constant + value


def plan_elimination(
    possible: ReducedFactors,
    maximised: Iterable[int],
    most_cells: int | float = math.inf,
    stop: Callable[[], bool] = lambda: False,
) -> EliminationPlan:
    """Components and their constrained orders; incomplete beyond `most_cells`, and where `stop` ends the planning.

    Parity checks are substituted where that makes less work.
    """
    plan = _plan(possible, maximised, most_cells, stop)
    if plan.cells <= most_cells and plan.work < WORTH:
        return plan
    found = None if stop() else substituted(possible.live, maximised, most_cells)
    if found is None:
        return plan
    scopes = ReducedFactors([Factor(scope, NONE) for scope in found.scopes], possible.states)
    other = _plan(scopes, maximised, most_cells, stop)
    if other.cells > min(most_cells, UNKNOWN - 1) or (plan.cells <= most_cells and plan.work <= other.work):
        return plan
    factors = list(map(Factor, found.scopes, found.tables()))
    return other._replace(parts=independent_parts(factors), tied=found.tied, log_constant=found.log_constant)


def _plan(
    possible: ReducedFactors,
    maximised: Iterable[int],
    most_cells: int | float,
    stop: Callable[[], bool],
) -> EliminationPlan:
    last, orders = frozenset(maximised), list[Order]()
    for number in range(len(possible.parts)):
        orders.append(part_order(possible, number, last, most_cells, stop))
        if orders[-1].cells > most_cells or orders[-1].cells == UNKNOWN:
            break
    cells, work = max((order.cells for order in orders), default=1), sum(order.work for order in orders)
    return EliminationPlan(possible.parts, orders, cells, work)


def part_order(
    possible: ReducedFactors,
    number: int,
    maximised: frozenset[int],
    most_cells: int | float = math.inf,
    stop: Callable[[], bool] = lambda: False,
) -> Order:
    """Min-fill order of a part's summed variables, then of its maximised ones, at least until `most_cells`.

    Orders are kept with the factors. Where all variables are summed, or all maximised, the order is the same.
    """
    part = possible.parts[number]
    variables = {variable for scope, _ in part for variable in scope}
    last = maximised & variables
    last = frozenset() if len(last) == len(variables) else last
    known = possible.orders.get((number, last))
    if known is None or (len(known.variables) < len(variables) and known.cells <= most_cells):
        stages = [sorted(variables - last), sorted(last)]
        known = elimination_order([scope for scope, _ in part], possible.sizes, stages, most_cells, stop)
        if known.cells != UNKNOWN:
            possible.orders[number, last] = known
    return known


def hidden_order(possible: ReducedFactors, held: Iterable[int]) -> list[int]:
    """Min-fill order of the variables that are summed where others are held; kept with the factors."""
    fixed = frozenset(held)
    if not fixed:
        orders = [part_order(possible, number, fixed) for number in range(len(possible.parts))]
        return [variable for order in orders for variable in order.variables]
    if fixed not in possible.orders:
        scopes = [[variable for variable in scope if variable not in fixed] for scope, _ in possible.live]
        stage = sorted({variable for scope in scopes for variable in scope})
        possible.orders[fixed] = elimination_order(scopes, possible.sizes, [stage]).variables
    return possible.orders[fixed]


def carry_out(
    possible: ReducedFactors, plan: EliminationPlan, maximised: Iterable[int]
) -> tuple[dict[int, int], float]:
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

    order, tables, largest = [], list[int](), 1
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
            tables.append(size[i] * cells)
            largest = max(largest, tables[-1])
            if largest > most_cells or stop():
                cells = largest if largest > most_cells else UNKNOWN
                return Order(order, cells, sum(tables), tables)
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
    return Order(order, largest, sum(tables), tables)


def guard_width(cells: int, most_cells: int) -> None:
    """WidthError where a table would have more cells than allowed."""
    if cells > most_cells:
        raise WidthError(
            f"elimination needs a table of 2**{math.log2(cells):.1f} cells ({8 * cells:.3g} bytes), more "
            f"than most_cells = 2**{math.log2(most_cells):.3g}: choose other MAP variables, add evidence, raise "
            'most_cells, or use solve_mmap with method="hybrid"'
        )


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
