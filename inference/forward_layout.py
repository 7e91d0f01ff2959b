r"""A marginal MAP question laid out for forward marginals: arrays of blocks that one compiled loop goes through.

In the network that is left once the arrows out of evidence and of MAP variables are cut, every variable is a node
whose probabilities are a polynomial, linear in those of each parent; children of MAP variables read weights instead.
Nodes whose parents are all known are worked out here, and what nothing depends on is dropped. The others stand in
blocks of nodes that do not read each other, parents before children.

Padding keeps shapes the same for other MAP variables of the same network, so that they need no further compilation.
Section 3 of Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP".
"""

from __future__ import annotations

import collections
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.bayes_net import MarginalMAP

__all__ = ["Kind", "Layout", "lay_out"]

ROUNDING = 1e-3
"""By how much a row may miss one and be a distribution all the same."""
MOST_PADDING = 4
"""By how much a table may grow to stand in blocks with larger ones."""
MOST_KINDS = 3
"""Each is compiled by itself."""
BLOCK_CELLS = 2**10
ZERO, ONE = 0, 1
"""Rows of the values that hold these numbers."""


class Kind(NamedTuple):
    """What nodes of a block have in common.

    Attributes
    ----------
    parents : number of states of every parent.
    outputs : of numbers that a node gives.
    width : nodes of a block.
    """

    parents: tuple[int, ...]
    outputs: int
    width: int

    @property
    def cells(self) -> int:
        """Of one node's table."""
        return math.prod(self.parents) * self.outputs

    def holds(self, other: Kind) -> bool:
        """Whether a node of the other kind can stand here."""
        longer = len(self.parents) >= len(other.parents)
        return (
            longer
            and self.outputs >= other.outputs
            and all(a >= b for a, b in zip(self.parents, other.parents, strict=False))
        )


class Layout(NamedTuple):
    """Arrays of a question.

    A node with C states has C - 1 rows of values, the probabilities of all states but the first. Values begin with a
    row of zeros and one of ones, weights (weight, state - 1), then what blocks write.

    Attributes
    ----------
    tables : of each kind (block, node, states of parent 1, ..., output).
    reads : of each kind (block, node, parent), the first row of the parent's.
    kind : (block,) which kind it is.
    place : (block,) which block of its kind.
    row : (block,) the first row that it writes.
    num_blocks : () of them that are there; what follows is padding.
    fixed : (row,) what values begin with, where they are known.
    met : (evidence,) rows whose logarithms are added.
    prior : (weight, state - 1) rows of the probabilities that a MAP variable has by itself.
    asked : (weight,) whether there is such a variable.
    states : (weight, state - 1) whether there is such a state.
    log_constant : ().
    """

    tables: tuple[Any, ...]
    reads: tuple[Any, ...]
    kind: Any
    place: Any
    row: Any
    num_blocks: Any
    fixed: Any
    met: Any
    prior: Any
    asked: Any
    states: Any
    log_constant: Any


class _Node(NamedTuple):
    """Polynomial of the probabilities of parents, whose axes come first."""

    parents: tuple[int, ...]
    table: np.ndarray


def lay_out(
    query: MarginalMAP, tables: tuple[np.ndarray, ...] | None = None
) -> tuple[Layout, tuple[Kind, ...]]:
    """Arrays of a question, and the kinds of its blocks, which are static.

    Parameters
    ----------
    tables : of the network, others than its own where they are smoothed.
    """
    network = query.network
    nodes, terms, constant = _cut(query, network.tables if tables is None else tables)
    kinds = _kinds([*nodes.values(), *terms], network.num_variables)
    nodes, terms, known, folded = _fold(query, nodes, terms)
    nodes = _needed(query, nodes, terms)
    deep = max(1, max(network.sizes[variable] for variable in query.map_variables) - 1)
    deep = max(deep, max(network.sizes) - 1) if max(network.sizes) <= 4 else deep
    half = _multiple(network.num_variables // 2, 8)
    capacity = half if len(query.map_variables) <= half else _power(len(query.map_variables))
    return _pack(query, nodes, terms, known, constant + folded, kinds, deep, capacity), kinds


def _cut(query: MarginalMAP, tables: tuple[np.ndarray, ...]) -> tuple[dict[int, _Node], list[_Node], float]:
    """Nodes by variable, evidence as nodes of one number, and a logarithm; evidence is sliced out of the tables."""
    network = query.network
    known = {v: 0 for v, size in enumerate(network.sizes) if size == 1} | dict(query.observed)
    nodes: dict[int, _Node] = {}
    terms: list[_Node] = []
    constant = network.log_constant
    for number, (table, parents) in enumerate(zip(tables, network.parents, strict=True)):
        left = tuple(parent for parent in parents if parent not in known)
        scope = (*parents, number)
        table = table[tuple(known.get(variable, slice(None)) for variable in scope)]
        if number in known:
            terms.append(_Node(left, table[..., None]))
            continue
        mass = table.sum(-1)
        if np.abs(mass - 1).max() > ROUNDING:
            terms.append(_Node(left, mass[..., None]))
            table = (
                np.where(mass[..., None] > 0, table, 1) / np.where(mass > 0, mass, table.shape[-1])[..., None]
            )
        nodes[number] = _Node(left, table[..., 1:])
    for number, likelihoods in query.soft:
        constant += math.log(max(likelihoods))
        if number in known:  # of its one state
            continue
        terms.append(_Node((number,), np.array(likelihoods)[:, None] / max(likelihoods)))
    scaled = []
    for parents, table in terms:
        largest = float(table.max())
        constant += math.log(largest) if largest > 0 else 0.0
        scaled.append(_Node(parents, table / largest if largest > 0 else table))
    return nodes, scaled, constant


def _fold(
    query: MarginalMAP, nodes: dict[int, _Node], terms: list[_Node]
) -> tuple[dict[int, _Node], list[_Node], dict[int, np.ndarray], float]:
    """Nodes and evidence that depend on weights; probabilities of the others, and the log of evidence that do not."""
    known: dict[int, np.ndarray] = {}
    free: dict[int, _Node] = {}
    asked = set(query.map_variables)

    def contracted(node: _Node) -> _Node:
        parents, table = node
        for axis in reversed(range(len(parents))):
            if parents[axis] in known and parents[axis] not in asked:
                rest = known[parents[axis]]
                table = np.tensordot(np.concatenate(([1 - rest.sum()], rest)), table, (0, axis))
        return _Node(tuple(p for p in parents if p not in known or p in asked), table)

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


def _needed(query: MarginalMAP, nodes: dict[int, _Node], terms: list[_Node]) -> dict[int, _Node]:
    """Nodes that the answer depends on."""
    asked = set(query.map_variables)
    waiting = [parent for term in terms for parent in term.parents if parent not in asked]
    waiting += [variable for variable in query.map_variables if variable in nodes]
    found: set[int] = set()
    while waiting:
        variable = waiting.pop()
        if variable not in found:
            found.add(variable)
            waiting += [parent for parent in nodes[variable].parents if parent not in asked]
    return {variable: nodes[variable] for variable in query.network.order if variable in found}


def _kind(node: _Node) -> Kind:
    return Kind(tuple(sorted(node.table.shape[:-1], reverse=True)), node.table.shape[-1], 1)


def _kinds(nodes: list[_Node], count: int) -> tuple[Kind, ...]:
    """Few kinds that hold all nodes, and so what is left of them when parents are worked out, largest first."""
    number = collections.Counter(_kind(node) for node in nodes if node.parents)
    kept: dict[Kind, int] = {}
    for kind in sorted(number, key=lambda kind: -kind.cells):
        roomy = next(
            (one for one in kept if one.holds(kind) and one.cells <= MOST_PADDING * kind.cells), kind
        )
        kept[roomy] = kept.get(roomy, 0) + number[kind]
    while len(kept) > MOST_KINDS:
        pairs = [
            (one, other) for one in kept for other in kept if one.cells >= other.cells and one is not other
        ]
        one, other = min(pairs, key=lambda pair: _dearer(pair[0], pair[1], kept))
        both = kept.pop(one) + kept.pop(other)
        union = _union(one, other)
        kept[union] = kept.get(union, 0) + both
    widest = min(max(_power(count // 25), 8), 64)
    ordered = sorted(kept or [Kind((2,), 1, 1)], key=lambda kind: -kind.cells)
    return tuple(kind._replace(width=max(1, min(widest, BLOCK_CELLS // kind.cells))) for kind in ordered)


def _union(one: Kind, other: Kind) -> Kind:
    """The smallest kind that holds what either holds."""
    parents = itertools.zip_longest(one.parents, other.parents, fillvalue=1)
    return Kind(tuple(max(pair) for pair in parents), max(one.outputs, other.outputs), 1)


def _dearer(one: Kind, other: Kind, number: dict[Kind, int]) -> int:
    """Cells that nodes of two kinds have more where they stand together."""
    union = _union(one, other).cells
    return (union - one.cells) * number[one] + (union - other.cells) * number[other]


def _power(number: int) -> int:
    """The least power of two that is not below a number."""
    return 1 << max(number - 1, 0).bit_length()


def _multiple(number: int, of: int) -> int:
    """The least multiple that is not below a number, one at least."""
    return of * max(-(-number // of), 1)


def _pack(
    query: MarginalMAP, nodes: dict[int, _Node], terms: list[_Node], known: dict[int, np.ndarray],
    constant: float, kinds: tuple[Kind, ...], deep: int, capacity: int,
) -> Layout:  # fmt: skip
    """Blocks of nodes, each as soon as its parents stand."""
    network, asked = query.network, query.map_variables
    first = 2 + capacity * deep
    home = {variable: 2 + i * deep for i, variable in enumerate(asked)}
    prior = np.zeros((capacity, deep), int)
    own: dict[int, int] = {}
    fixed = [0.0, 1.0]
    for i, variable in enumerate(asked):
        if variable in known:
            prior[i, : len(known[variable])] = first + len(fixed) - 2 + np.arange(len(known[variable]))
            fixed += known[variable].tolist()
    row = first + len(fixed) - 2
    everything: list[tuple[int | None, _Node]] = [*nodes.items(), *((None, term) for term in terms)]
    which = [_home_of(node, kinds) for _, node in everything]
    children: dict[int, list[int]] = {}
    waiting = [0] * len(everything)
    for i, (_, node) in enumerate(everything):
        for parent in node.parents:
            if parent not in home:
                children.setdefault(parent, []).append(i)
                waiting[i] += 1
    height = _heights(everything, children)
    ready = [[i for i, left in enumerate(waiting) if not left and which[i] == k] for k in range(len(kinds))]
    blocks: list[tuple[int, list[int], int]] = []
    rows: dict[int, int] = {}
    met: list[int] = []
    while any(ready):
        k = max(range(len(kinds)), key=lambda k: max((height[i] for i in ready[k]), default=-1))
        ready[k].sort(key=lambda i: -height[i])
        kind, here = kinds[k], ready[k][: kinds[k].width]
        ready[k] = ready[k][kind.width :]
        blocks.append((k, here, row))
        for place, i in enumerate(here):
            rows[i] = row + place * kind.outputs
            variable = everything[i][0]
            if variable is None:
                met.append(rows[i])
                continue
            own[variable] = rows[i]
            for child in children.get(variable, ()):
                waiting[child] -= 1
                if not waiting[child]:
                    ready[which[child]].append(child)
        row += kind.width * kind.outputs
    for i, variable in enumerate(asked):
        if variable in own:
            prior[i, : network.sizes[variable] - 1] = own[variable] + np.arange(network.sizes[variable] - 1)
    tables, reads, place_of = _fill(everything, blocks, kinds, {**own, **home}, network.num_variables)
    total = sum(network.sizes) - network.num_variables + len(query.observed)
    many = _power(max(len(blocks), 2 * -(-network.num_variables // min(kind.width for kind in kinds))))
    padded = np.zeros((3, many), np.int32)
    padded[:, : len(blocks)] = [[k for k, _, _ in blocks], place_of, [start for _, _, start in blocks]]
    room, usual = row + max(network.sizes), _multiple(first + 2 + total + total // 4 + max(network.sizes), 32)
    begin = np.zeros(usual if room <= usual else _power(room))
    begin[:2], begin[first : first + len(fixed) - 2] = fixed[:2], fixed[2:]
    evidence = np.full(_power(max(len(met), len(query.observed) + len(query.soft), 1)), ONE, np.int32)
    evidence[: len(met)] = met
    there = np.zeros((capacity, deep), bool)
    for i, variable in enumerate(asked):
        there[i, : network.sizes[variable] - 1] = True
    return Layout(
        tables, reads, padded[0], padded[1], padded[2], np.int32(len(blocks)), begin, evidence,
        prior.astype(np.int32), np.arange(capacity) < len(asked), there, np.float64(constant),
    )  # fmt: skip


def _home_of(node: _Node, kinds: tuple[Kind, ...]) -> int:
    """The smallest kind that holds a node."""
    wanted = _kind(node)
    return min((k for k, kind in enumerate(kinds) if kind.holds(wanted)), key=lambda k: kinds[k].cells)


def _heights(everything: list[tuple[int | None, _Node]], children: dict[int, list[int]]) -> list[int]:
    """Of every node, how long the longest way to the end is."""
    height = [0] * len(everything)
    for i in reversed(range(len(everything))):
        variable = everything[i][0]
        if variable is not None:
            height[i] = 1 + max((height[child] for child in children.get(variable, ())), default=0)
    return height


def _fill(
    everything: list[tuple[int | None, _Node]], blocks: list[tuple[int, list[int], int]], kinds: tuple[Kind, ...],
    rows: dict[int, int], count: int,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], list[int]]:  # fmt: skip
    """Tables and rows of parents, kind by kind, and the place of every block in its kind."""
    tables, reads = [], []
    number = [sum(1 for k, _, _ in blocks if k == wanted) for wanted in range(len(kinds))]
    for kind, blocks_here in zip(kinds, number, strict=True):
        many = _power(max(blocks_here, -(-2 * count // kind.width) if len(kinds) == 1 else 1))
        tables.append(np.zeros((many, kind.width, *kind.parents, kind.outputs)))
        reads.append(np.full((many, kind.width, len(kind.parents)), ZERO, np.int32))
    used, places = [0] * len(kinds), []
    for k, here, _ in blocks:
        for at, i in enumerate(here):
            parents, table = everything[i][1]
            axes = sorted(range(len(parents)), key=lambda axis: -table.shape[axis])
            table = table.transpose(*axes, len(parents))
            missing = len(kinds[k].parents) - len(parents)
            table = table.reshape(*table.shape[:-1], *(1,) * missing, table.shape[-1])
            wider = [(0, want - size) for want, size in zip(kinds[k].parents, table.shape[:-1], strict=True)]
            table = _first_again(table, wider)
            tables[k][(used[k], at)][..., : table.shape[-1]] = table
            reads[k][used[k], at, : len(parents)] = [rows[parents[axis]] for axis in axes]
        places.append(used[k])
        used[k] += 1
    return tuple(tables), tuple(reads), places


def _first_again(table: np.ndarray, wider: list[tuple[int, int]]) -> np.ndarray:
    """Table with its first state again for states that are not there: whatever their probability, nothing changes."""
    for axis, (_, more) in enumerate(wider):
        if more:
            first = np.repeat(np.take(table, [0], axis), more, axis)
            table = np.concatenate((table, first), axis)
    return table
