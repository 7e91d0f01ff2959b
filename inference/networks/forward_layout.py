r"""Array layout of a marginal MAP query for forward marginals: blocks of nodes for one compiled loop.

Edges out of evidence and MAP variables are cut. Every variable left is a node whose marginal is multilinear in those of
its parents; children of MAP variables read the weights instead. Nodes with constant parents are evaluated here, and
nodes that no term depends on are dropped. The others are packed into blocks of nodes that do not read each other,
parents before children.

Shapes are padded so that other MAP variables of the same network need no new compilation. The reduction is that of
section 3 and proposition 5 of Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP".
"""

from __future__ import annotations

import collections
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = [
    "ROW_SUM_TOLERANCE",
    "BlockShape",
    "Layout",
    "Multilinear",
    "lay_out",
    "lay_out_nodes",
    "sliced_families",
]

ROW_SUM_TOLERANCE = 1e-3
"""Deviation of a row's sum from one up to which it counts as a distribution."""
MOST_PADDING = 4
"""Factor by which a table may be padded to share a shape with larger ones."""
MOST_SHAPES = 3
"""Shapes of blocks; each adds to the compilation."""
BLOCK_CELLS = 2**10
ZERO, ONE = 0, 1
"""Rows of the values that hold the constants zero and one."""


class BlockShape(NamedTuple):
    """Static shape of a block: numbers of states of the parents, outputs of a node, and nodes in a block."""

    parents: tuple[int, ...]
    outputs: int
    width: int

    @property
    def cells(self) -> int:
        """Entries of a node's table."""
        return math.prod(self.parents) * self.outputs

    def holds(self, other: BlockShape) -> bool:
        """Whether a node of the other shape fits."""
        return _union(self, other)[:2] == self[:2]


class Layout(NamedTuple):
    """Arrays of a query.

    A node with C states has C - 1 rows of values, the probabilities of all states but the first. The values start with
    a row of zeros, a row of ones, and the weights (weight, state - 1), then come the outputs of the blocks.
    """

    tables: tuple[Any, ...]  # of each shape (block, node, states of parent 1, ..., output)
    parent_rows: tuple[Any, ...]  # of each shape (block, node, parent), the first row of the parent's
    shape_of_block: Any  # (block,) number of its shape
    index_in_shape: Any  # (block,) its position among the blocks of its shape
    first_row: Any  # (block,) the first row that it writes
    num_blocks: Any  # () number of blocks; the rest is padding
    initial_values: Any  # (row,) values known in advance
    evidence_rows: Any  # (evidence,) rows whose logs are summed
    prior_rows: Any  # (weight, state - 1) rows of the forward marginals of the MAP variables
    valid_variables: Any  # (weight,) False in the padding of MAP variables
    valid_states: Any  # (weight, state - 1) False in the padding of their states
    log_constant: Any  # ()


class Multilinear(NamedTuple):
    """A multilinear function of the parents' marginals: their axes come first in the table."""

    parents: tuple[int, ...]
    table: np.ndarray


def lay_out(
    query: MarginalMAP, tables: tuple[np.ndarray, ...] | None = None
) -> tuple[Layout, tuple[BlockShape, ...]]:
    """Arrays of a query, and the static shapes of its blocks; `tables` replace the network's own."""
    network = query.network
    nodes, terms, constant = _cut(query, network.tables if tables is None else tables)
    shapes = _block_shapes(
        [node for node in (*nodes.values(), *terms) if node.parents], network.num_variables
    )
    nodes, terms, known, folded = _fold(query, nodes, terms)
    return _pack(query, nodes, terms, known, constant + folded, shapes), shapes


def lay_out_nodes(
    query: MarginalMAP, nodes: dict[int, Multilinear], terms: list[Multilinear]
) -> tuple[Layout, tuple[BlockShape, ...]]:
    """Arrays of nodes and evidence terms as they are, none of them evaluated, and the shapes of their blocks."""
    shapes = _block_shapes([*nodes.values(), *terms], query.network.num_variables)
    return _pack(query, nodes, terms, {}, query.network.log_constant, shapes), shapes


def sliced_families(
    query: MarginalMAP, tables: Sequence[np.ndarray]
) -> Iterator[tuple[int, bool, tuple[int, ...], np.ndarray]]:
    """Every variable, whether it is observed, the parents that are not, and its table at the evidence."""
    network = query.network
    known = {v: 0 for v, size in enumerate(network.sizes) if size == 1} | dict(query.observed)
    for number, (table, parents) in enumerate(zip(tables, network.parents, strict=True)):
        left = tuple(parent for parent in parents if parent not in known)
        yield (
            number,
            number in known,
            left,
            table[tuple(known.get(each, slice(None)) for each in (*parents, number))],
        )


def _cut(
    query: MarginalMAP, tables: tuple[np.ndarray, ...]
) -> tuple[dict[int, Multilinear], list[Multilinear], float]:
    """Nodes by variable, evidence terms as nodes with one output, and a log constant; evidence is sliced in."""
    nodes: dict[int, Multilinear] = {}
    terms: list[Multilinear] = []
    constant = query.network.log_constant
    for number, observed, left, table in sliced_families(query, tables):
        if observed:
            terms.append(Multilinear(left, table[..., None]))
            continue
        mass = table.sum(-1)
        if np.abs(mass - 1).max() > ROW_SUM_TOLERANCE:
            terms.append(Multilinear(left, mass[..., None]))
            share = np.where(mass > 0, mass, table.shape[-1])[..., None]
            table = np.where(mass[..., None] > 0, table, 1) / share
        nodes[number] = Multilinear(left, table[..., 1:])
    for number, likelihoods in query.soft:
        constant += math.log(max(likelihoods))
        if number in nodes:  # else it has one state
            terms.append(Multilinear((number,), np.array(likelihoods)[:, None] / max(likelihoods)))
    scaled = []
    for parents, table in terms:
        largest = float(table.max())
        constant += math.log(largest) if largest > 0 else 0.0
        scaled.append(Multilinear(parents, table / largest if largest > 0 else table))
    return nodes, scaled, constant


def _fold(
    query: MarginalMAP, nodes: dict[int, Multilinear], terms: list[Multilinear]
) -> tuple[dict[int, Multilinear], list[Multilinear], dict[int, np.ndarray], float]:
    """Nodes and terms that depend on weights; marginals of all other nodes, and the log of the other terms."""
    known: dict[int, np.ndarray] = {}
    free: dict[int, Multilinear] = {}
    maximised = set(query.map_variables)

    def contracted(node: Multilinear) -> Multilinear:
        parents, table = node
        for axis in reversed(range(len(parents))):
            if parents[axis] in known and parents[axis] not in maximised:
                rest = known[parents[axis]]
                table = np.tensordot(np.concatenate(([1 - rest.sum()], rest)), table, (0, axis))
        return Multilinear(tuple(p for p in parents if p not in known or p in maximised), table)

    for number in query.network.order:
        if number in nodes:
            node = contracted(nodes[number])
            if node.parents:
                free[number] = node
            else:
                known[number] = node.table
    left, constant = [], 0.0
    for term in map(contracted, terms):
        if term.parents:
            left.append(term)
        else:
            constant += math.log(float(term.table[0])) if term.table[0] > 0 else -math.inf
    return free, left, known, constant


def _needed(
    query: MarginalMAP, nodes: dict[int, Multilinear], terms: list[Multilinear]
) -> dict[int, Multilinear]:
    """Nodes that some term depends on."""
    maximised = set(query.map_variables)
    waiting = [parent for term in terms for parent in term.parents if parent not in maximised]
    waiting += [variable for variable in query.map_variables if variable in nodes]
    found: set[int] = set()
    while waiting:
        variable = waiting.pop()
        if variable not in found:
            found.add(variable)
            waiting += [parent for parent in nodes[variable].parents if parent not in maximised]
    return {variable: nodes[variable] for variable in query.network.order if variable in found}


def _shape_of(node: Multilinear) -> BlockShape:
    return BlockShape(tuple(sorted(node.table.shape[:-1], reverse=True)), node.table.shape[-1], 1)


def _block_shapes(nodes: list[Multilinear], num_variables: int) -> tuple[BlockShape, ...]:
    """A few shapes that fit all nodes, whichever of their parents turn out constant; largest first."""
    number = collections.Counter(map(_shape_of, nodes))
    kept: dict[BlockShape, int] = {}
    for shape in sorted(number, key=lambda shape: -shape.cells):
        near = (one for one in kept if one.holds(shape) and one.cells <= MOST_PADDING * shape.cells)
        roomy = next(near, shape)
        kept[roomy] = kept.get(roomy, 0) + number[shape]
    while len(kept) > MOST_SHAPES:
        pairs = [pair for pair in itertools.permutations(kept, 2) if pair[0].cells >= pair[1].cells]
        one, other = min(pairs, key=lambda pair: _added_padding(pair[0], pair[1], kept))
        both = kept.pop(one) + kept.pop(other)
        union = _union(one, other)
        kept[union] = kept.get(union, 0) + both
    widest = min(max(_power(num_variables // 25), 8), 64)
    ordered = sorted(kept or [BlockShape((2,), 1, 1)], key=lambda shape: -shape.cells)
    return tuple(shape._replace(width=max(1, min(widest, BLOCK_CELLS // shape.cells))) for shape in ordered)


def _union(one: BlockShape, other: BlockShape) -> BlockShape:
    """The smallest shape that fits all that fit either."""
    parents = itertools.zip_longest(one.parents, other.parents, fillvalue=1)
    return BlockShape(tuple(max(pair) for pair in parents), max(one.outputs, other.outputs), 1)


def _added_padding(one: BlockShape, other: BlockShape, number: dict[BlockShape, int]) -> int:
    """Padding, in cells, of merging two shapes."""
    union = _union(one, other).cells
    return (union - one.cells) * number[one] + (union - other.cells) * number[other]


def _power(number: int) -> int:
    """The least power of two at or above a number."""
    return 1 << max(number - 1, 0).bit_length()


def _multiple(number: int, of: int) -> int:
    """The least positive multiple at or above a number."""
    return of * max(-(-number // of), 1)


class _Block(NamedTuple):
    shape: int
    members: list[int]  # numbers of nodes and terms
    first_row: int


def _pack(
    query: MarginalMAP,
    nodes: dict[int, Multilinear],
    terms: list[Multilinear],
    known: dict[int, np.ndarray],
    constant: float,
    shapes: tuple[BlockShape, ...],
) -> Layout:
    """Arrays of the blocks; rows are the weights, known marginals of MAP variables, and outputs of nodes and terms."""
    network, maximised = query.network, query.map_variables
    depth = max(1, max(network.sizes[variable] for variable in maximised) - 1)
    depth = max(depth, max(network.sizes) - 1) if max(network.sizes) <= 4 else depth
    half = _multiple(network.num_variables // 2, 8)
    capacity = half if len(maximised) <= half else _power(len(maximised))
    first = 2 + capacity * depth
    weight_rows = {variable: 2 + i * depth for i, variable in enumerate(maximised)}
    prior_rows = np.zeros((capacity, depth), np.int32)
    valid_states = np.zeros((capacity, depth), bool)
    known_values: list[float] = []
    for i, variable in enumerate(maximised):
        valid_states[i, : network.sizes[variable] - 1] = True
        if variable in known:
            begin = first + len(known_values)
            prior_rows[i, : len(known[variable])] = begin + np.arange(len(known[variable]))
            known_values += known[variable].tolist()

    members: list[tuple[int | None, Multilinear]] = [*_needed(query, nodes, terms).items()]
    members += [(None, term) for term in terms]
    blocks, end = _schedule(members, shapes, set(maximised), first + len(known_values))
    rows: dict[int, int] = {}
    evidence: list[int] = []
    for shape, numbers, start in blocks:
        for position, number in enumerate(numbers):
            row, variable = start + position * shapes[shape].outputs, members[number][0]
            if variable is None:
                evidence.append(row)
            else:
                rows[variable] = row
    for i, variable in enumerate(maximised):
        if variable in rows:
            prior_rows[i, : network.sizes[variable] - 1] = rows[variable] + np.arange(
                network.sizes[variable] - 1
            )
    tables, parent_rows, index_in_shape = _fill(
        members, blocks, shapes, {**rows, **weight_rows}, network.num_variables
    )

    narrowest = min(shape.width for shape in shapes)
    padded = np.zeros((3, _power(max(len(blocks), 2 * -(-network.num_variables // narrowest)))), np.int32)
    padded[:, : len(blocks)] = [
        [block.shape for block in blocks],
        index_in_shape,
        [block.first_row for block in blocks],
    ]
    num_states = sum(network.sizes) - network.num_variables + len(query.observed)
    needed = end + max(network.sizes)
    usual = _multiple(first + 2 + num_states + num_states // 4 + max(network.sizes), 32)
    initial_values = np.zeros(usual if needed <= usual else _power(needed))
    initial_values[ONE] = 1
    initial_values[first : first + len(known_values)] = known_values
    num_terms = max(len(evidence), len(query.observed) + len(query.soft), 1)
    evidence_rows = np.full(_power(num_terms), ONE, np.int32)
    evidence_rows[: len(evidence)] = evidence
    shape_of_block, index_of_block, first_row = padded
    return Layout(
        tables,
        parent_rows,
        shape_of_block,
        index_of_block,
        first_row,
        np.int32(len(blocks)),
        initial_values,
        evidence_rows,
        prior_rows,
        np.arange(capacity) < len(maximised),
        valid_states,
        np.float64(constant),
    )


def _schedule(
    members: list[tuple[int | None, Multilinear]],
    shapes: tuple[BlockShape, ...],
    given: set[int],
    first_row: int,
) -> tuple[list[_Block], int]:
    """Blocks by list scheduling, nodes with long paths to a sink first, and the row after the last one.

    Members are nodes by variable, parents before children, then evidence terms; values of the variables in `given` are
    known from the start.
    """
    smallest = sorted(range(len(shapes)), key=lambda k: shapes[k].cells)
    shape_of = [
        next(k for k in smallest if shapes[k].holds(wanted))
        for wanted in (_shape_of(node) for _, node in members)
    ]
    children: dict[int, list[int]] = {}
    waiting = [0] * len(members)
    for i, (_, node) in enumerate(members):
        for parent in node.parents:
            if parent not in given:
                children.setdefault(parent, []).append(i)
                waiting[i] += 1
    height = [0] * len(members)  # of the longest path from a node to a sink
    for i, (variable, _) in reversed(list(enumerate(members))):
        if variable is not None:
            height[i] = 1 + max((height[child] for child in children.get(variable, ())), default=0)
    ready = [
        [i for i, left in enumerate(waiting) if not left and shape_of[i] == k] for k in range(len(shapes))
    ]
    blocks: list[_Block] = []
    while any(ready):
        k = max(range(len(shapes)), key=lambda k: max((height[i] for i in ready[k]), default=-1))
        ready[k].sort(key=lambda i: -height[i])
        chosen, ready[k] = ready[k][: shapes[k].width], ready[k][shapes[k].width :]
        blocks.append(_Block(k, chosen, first_row))
        first_row += shapes[k].width * shapes[k].outputs
        for i in chosen:
            variable = members[i][0]
            for child in children.get(variable, ()) if variable is not None else ():
                waiting[child] -= 1
                if not waiting[child]:
                    ready[shape_of[child]].append(child)
    return blocks, first_row


def _fill(
    members: list[tuple[int | None, Multilinear]],
    blocks: list[_Block],
    shapes: tuple[BlockShape, ...],
    rows: dict[int, int],
    num_variables: int,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], list[int]]:
    """Tables and parents' rows by shape, and the position of every block among those of its shape."""
    tables, parent_rows = [], []
    for k, shape in enumerate(shapes):
        number = sum(1 for block in blocks if block.shape == k)
        padded = _power(max(number, -(-2 * num_variables // shape.width) if len(shapes) == 1 else 1))
        tables.append(np.zeros((padded, shape.width, *shape.parents, shape.outputs)))
        parent_rows.append(np.full((padded, shape.width, len(shape.parents)), ZERO, np.int32))
    filled, index_in_shape = [0] * len(shapes), []
    for k, numbers, _ in blocks:
        for position, number in enumerate(numbers):
            parents, table = members[number][1]
            axes = sorted(range(len(parents)), key=lambda axis: -table.shape[axis])
            table = table.transpose(*axes, len(parents))
            missing = len(shapes[k].parents) - len(parents)
            table = table.reshape(*table.shape[:-1], *(1,) * missing, table.shape[-1])
            for axis, size in enumerate(shapes[k].parents):
                # Repeats of the first state, so that padding changes nothing.
                first = np.repeat(np.take(table, [0], axis), size - table.shape[axis], axis)
                table = np.concatenate((table, first), axis)
            tables[k][(filled[k], position)][..., : table.shape[-1]] = table
            parent_rows[k][filled[k], position, : len(parents)] = [rows[parents[axis]] for axis in axes]
        index_in_shape.append(filled[k])
        filled[k] += 1
    return tuple(tables), tuple(parent_rows), index_in_shape
