r"""Next probabilities of fluents and expected reward, as rows that XLA evaluates level by level.

A row is one of the inputs, or

.. math:: x_r = c_r + \sum_i k_{ri}\, x_{a_{ri}} x_{b_{ri}}

of rows of lower levels (:math:`x_0 = 1`), or a function of one. Derivatives of such rows are such rows again, so that
the reverse pass is a second list of levels, made once on the host. Restarts are on the last axis, along which the
processor's vector units run.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ethogram.models.planning.expression_graph import ExpressionGraph, Function, Input, Node, Variable
from ethogram.models.printing import short_repr

__all__ = ["FluentProgram", "Level", "compile_program", "step"]

MOST_TERMS = 16
"""Terms of a row; longer sums are sums of rows."""
MOST_PADDING = 128
"""Padded terms above which a level is split."""
ONE = 0


@jax.tree_util.register_dataclass
@dataclass(frozen=True, eq=False)
class Level:
    """Rows of one shape that depend on earlier rows alone.

    Attributes
    ----------
    left, right : (row, term) rows that are multiplied.
    weight : (row, term) coefficients; 0 in padding.
    constant : (row,).
    function : name of a function of the rows `left`, in place of the polynomial.
    """

    left: Any
    right: Any
    weight: Any
    constant: Any
    function: str | None = field(default=None, metadata={"static": True})


@short_repr
class FluentProgram(NamedTuple):
    """Rows 0 (one), then state, then action, then those of `levels`; in reverse those of `adjoint_levels` after them.

    Attributes
    ----------
    levels : rows of the forward pass.
    next_fluents : (fluent,) rows of the next probabilities.
    reward, end : rows of the expected reward, and of the probability that the episode is over in this state.
    adjoint_levels : rows of the reverse pass. Their inputs, the derivatives by `next_fluents`, `reward` and `end`, come
        first.
    adjoint : (row,) row of the derivative by each row of the forward pass.
    """

    levels: tuple[Level, ...]
    next_fluents: Any
    reward: Any
    end: Any
    adjoint_levels: tuple[Level, ...]
    adjoint: Any

    @property
    def num_rows(self) -> int:
        """Rows of the forward pass."""
        return len(self.adjoint)

    def expectations(self, state: Any, action: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What `step` returns, in float64 on the host, where nothing is compiled."""
        inputs = [np.ones((1, np.shape(state)[1])), np.asarray(state, float), np.asarray(action, float)]
        known = _evaluate(self.levels, inputs, np)
        return known[self.next_fluents], known[self.reward], known[self.end]


class _Row(NamedTuple):
    """A row before it is laid out: terms (weight, left, right), or a function of a row."""

    constant: float
    terms: tuple[tuple[float, int, int], ...]
    function: str | None = None


INPUT = _Row(0.0, (), "input")


class _Rows:
    """Rows by number, equal ones once."""

    def __init__(self, num_inputs: int):
        self.rows = [INPUT] * num_inputs
        self.known: dict[_Row, int] = {}

    def row(self, made: _Row) -> int:
        if made.function is None and made.constant == 0 and len(made.terms) == 1:
            weight, left, right = made.terms[0]
            if weight == 1 and right == ONE:
                return left
        if made == _Row(1.0, ()):
            return ONE
        if made not in self.known:
            self.known[made] = len(self.rows)
            self.rows.append(made)
        return self.known[made]

    def product(self, factors: Sequence[int]) -> int:
        while len(factors) > 1:
            pairs = [tuple(factors[i : i + 2]) for i in range(0, len(factors), 2)]
            factors = [
                pair[0] if len(pair) == 1 else self.row(_Row(0.0, ((1.0, pair[0], pair[1]),)))
                for pair in pairs
            ]
        return factors[0]

    def sum(self, constant: float, terms: Iterable[tuple[float, int, int]]) -> int:
        gathered: dict[tuple[int, int], float] = {}
        for weight, left, right in terms:
            pair = (max(left, right), min(left, right))
            if pair == (ONE, ONE):
                constant += weight
            else:
                gathered[pair] = gathered.get(pair, 0.0) + weight
        every = [(weight, *pair) for pair, weight in gathered.items()]
        while len(every) > MOST_TERMS:
            parts = [every[i : i + MOST_TERMS] for i in range(0, len(every), MOST_TERMS)]
            every = [
                part[0] if len(part) == 1 else (1.0, self.row(_Row(0.0, tuple(part))), ONE) for part in parts
            ]
        return self.row(_Row(constant, tuple(every)))


def compile_program(
    graph: ExpressionGraph,
    fluents: Sequence[str],
    actions: Sequence[str],
    next_fluents: Sequence[Node],
    reward: Node,
    end: Node,
) -> FluentProgram:
    """The program of the nodes of `next_fluents`, `reward` and `end`; inputs are named by `fluents` and `actions`."""
    names = {name: 1 + i for i, name in enumerate((*fluents, *actions))}
    rows = _Rows(1 + len(names))
    outputs = _lower(graph, rows, names, [*next_fluents, reward, end])
    count = len(rows.rows)
    adjoint, inputs = _adjoint(rows, outputs, count)
    levels, moved, _ = _laid_out(rows, 1 + len(names), 1 + len(names), count, {})
    start = {number: count + i for i, number in enumerate(inputs)}
    adjoint_levels, places, _ = _laid_out(
        rows, count + len(inputs), count + len(inputs), len(rows.rows), {**moved, **start}
    )
    order = np.zeros(count, np.int32)
    for number in range(count):
        order[moved.get(number, number)] = places.get(adjoint[number], adjoint[number])
    next_rows = np.array([moved.get(each, each) for each in outputs], np.int32)
    return FluentProgram(
        levels,
        next_rows[:-2],
        next_rows[-2],
        next_rows[-1],
        adjoint_levels,
        order,
    )


def _lower(graph: ExpressionGraph, rows: _Rows, names: dict[str, int], wanted: Sequence[Node]) -> list[int]:
    """Rows of nodes; in the order of the graph, in which a node comes after what it is made of."""
    found: dict[Node, int] = {}
    for node in graph.reachable(wanted):
        made = graph.nodes[node]
        if isinstance(made, Input):
            found[node] = names[made.name]
        elif isinstance(made, Variable):
            found[node] = found[made.argument]
        elif isinstance(made, Function):
            found[node] = rows.row(_Row(0.0, ((1.0, found[made.argument], ONE),), made.name))
        else:
            terms = []
            for weight, factors in made.terms:
                lowered = sorted(found[factor] for factor in factors)
                half = (len(lowered) + 1) // 2
                right = rows.product(lowered[half:]) if len(lowered) > 1 else ONE
                terms.append((weight, rows.product(lowered[:half]), right))
            found[node] = rows.sum(made.constant, terms)
    return [found[node] for node in wanted]


def _adjoint(rows: _Rows, outputs: Sequence[int], count: int) -> tuple[list[int], list[int]]:
    """Rows of the derivatives by rows 0 to count - 1, and the input rows that stand for those by the outputs."""
    inputs = []
    gathered: list[list[tuple[float, int, int]]] = [[] for _ in range(count)]
    for output in outputs:
        inputs.append(len(rows.rows))
        rows.rows.append(INPUT)
        gathered[output].append((1.0, inputs[-1], ONE))
    nothing = rows.row(_Row(0.0, ()))
    adjoint = [nothing] * count
    for number in range(count - 1, 0, -1):
        made = rows.rows[number]
        if not gathered[number]:
            continue
        own = adjoint[number] = rows.sum(0.0, gathered[number])
        if made is INPUT:
            continue
        if made.function is not None:
            argument = made.terms[0][1]
            weight, slope = _slope(rows, made.function, number, argument)
            gathered[argument].append((weight, own, slope))
            continue
        for weight, left, right in made.terms:
            gathered[left].append((weight, own, right))
            if right != ONE:
                gathered[right].append((weight, own, left))
    return adjoint, inputs


def _slope(rows: _Rows, function: str, value: int, argument: int) -> tuple[float, int]:
    """Factor and row of a function's derivative."""
    if function == "exp":
        return 1.0, value
    if function == "log":
        return 1.0, rows.row(_Row(0.0, ((1.0, argument, ONE),), "reciprocal"))
    if function == "sqrt":
        return 0.5, rows.row(_Row(0.0, ((1.0, value, ONE),), "reciprocal"))
    return -1.0, rows.row(_Row(0.0, ((1.0, value, value),)))


def _laid_out(
    rows: _Rows, first: int, next_row: int, last: int, moved: dict[int, int]
) -> tuple[tuple[Level, ...], dict[int, int], int]:
    """Levels of the rows from `first` to `last`, and the places of all rows that are moved."""
    depth: dict[int, int] = {}
    kinds: dict[tuple[int, str], list[int]] = {}
    for number in range(first, last):
        made = rows.rows[number]
        if made is INPUT or number in moved:
            continue
        depth[number] = 1 + max(
            (max(depth.get(left, 0), depth.get(right, 0)) for _, left, right in made.terms), default=0
        )
        kinds.setdefault((depth[number], made.function or ""), []).append(number)
    moved, levels = dict(moved), []
    for (_, function), members in sorted(kinds.items()):
        for group in _groups(rows, members):
            width = max(max(len(rows.rows[number].terms) for number in group), 1)
            shape = len(group), width
            left, right = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
            weight, constant = np.zeros(shape), np.zeros(len(group))
            for i, number in enumerate(group):
                made = rows.rows[number]
                constant[i] = made.constant
                for j, (factor, a, b) in enumerate(made.terms):
                    weight[i, j], left[i, j], right[i, j] = factor, moved.get(a, a), moved.get(b, b)
            for number in group:
                moved[number] = next_row
                next_row += 1
            levels.append(Level(left, right, weight, constant, function or None))
    return tuple(levels), moved, next_row


def _groups(rows: _Rows, members: list[int]) -> list[list[int]]:
    """Members of a level by their number of terms, apart where padding would cost more than another operation."""
    members = sorted(members, key=lambda number: len(rows.rows[number].terms))
    groups: list[list[int]] = [[]]
    filled = 0
    for number in members:
        width = len(rows.rows[number].terms)
        if width * len(groups[-1]) - filled > MOST_PADDING:
            groups.append([])
            filled = 0
        groups[-1].append(number)
        filled += width
    return groups


def _evaluate(levels: Sequence[Level], values: Sequence[Any], array: Any) -> Any:
    """All rows (row, restart), given those before the levels; `array` is jax.numpy, or numpy on the host."""
    first = sum(len(each) for each in values)
    count = sum(len(level.left) for level in levels)
    # Levels are written into one array: with concatenations, each would be copied by all that follow.
    known = array.concatenate([*values, array.zeros((count, values[0].shape[1]), values[0].dtype)])
    for level in levels:
        made = _rows_of_level(level, known, array)
        if array is np:
            known[first : first + len(made)] = made
        else:
            known = lax.dynamic_update_slice(known, made, (first, 0))
        first += len(made)
    return known


def _rows_of_level(level: Level, known: Any, array: Any) -> Any:
    if level.function is not None:
        read = _read(known, level.left[:, 0])
        return 1 / read if level.function == "reciprocal" else getattr(array, level.function)(read)
    weight = array.asarray(level.weight, known.dtype)
    constant = array.asarray(level.constant, known.dtype)[:, None]
    start = array.broadcast_to(constant, (len(constant), known.shape[1]))

    def with_term(j: Any, total: Any) -> Any:
        left, right = _read(known, level.left[:, j]), _read(known, level.right[:, j])
        return total + weight[:, j, None] * left * right

    if array is np:
        return functools.reduce(lambda total, j: with_term(j, total), range(weight.shape[1]), start)
    # Written out, the terms of a level take XLA a third longer, and run no faster.
    return lax.fori_loop(0, weight.shape[1], with_term, start)


@jax.jit  # traced once for all of its uses in a program
def _rows(levels: Sequence[Level], values: Sequence[Array]) -> Array:
    return _evaluate(levels, values, jnp)


def _read(known: Any, rows: Any) -> Any:
    if isinstance(known, np.ndarray):
        return known[rows]
    return known.at[rows].get(mode="promise_in_bounds", wrap_negative_indices=False)


@jax.custom_vjp
def step(
    program: FluentProgram,
    state: Float[Array | np.ndarray, "fluent restart"],
    action: Float[Array | np.ndarray, "action restart"],
) -> tuple[Float[Array, "fluent restart"], Float[Array, " restart"], Float[Array, " restart"]]:
    """Probabilities of the next state, the expected reward, and the probability that the state ends the episode.

    It has gradients by the state and the action; the program counts as a constant.
    """
    return _step(program, jnp.asarray(state), jnp.asarray(action))[0]


def _step(program: FluentProgram, state: Array, action: Array) -> tuple[tuple[Array, Array, Array], Array]:
    one = jnp.ones((1, state.shape[1]), state.dtype)
    known = _rows(program.levels, [one, state, action])
    read = functools.partial(_read, known)
    return (read(program.next_fluents), read(program.reward), read(program.end)), known


def _step_forward(program: FluentProgram, state: Array, action: Array) -> Any:
    made, known = _step(program, state, action)
    return made, (program, known, state, action)


def _step_backward(
    saved: tuple[FluentProgram, Array, Array, Array], cotangents: Any
) -> tuple[None, Array, Array]:
    program, known, state, action = saved
    next_fluents, reward, end = cotangents
    every = _rows(program.adjoint_levels, [known, next_fluents, reward[None], end[None]])
    of_state, of_action = jnp.split(program.adjoint[1 : 1 + len(state) + len(action)], [len(state)])
    return None, _read(every, of_state), _read(every, of_action)


step.defvjp(_step_forward, _step_backward)
