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

__all__ = ["ROUNDING", "Kind", "Layout", "Node", "lay_out", "lay_out_nodes", "sliced_families"]

ROUNDING = 1e-3
"""Deviation of a row's sum from one up to which it counts as a distribution."""
MOST_PADDING = 4
"""Factor by which a table may be padded to share a kind with larger ones."""
MOST_KINDS = 3
"""Kinds of blocks; each adds to the compilation."""
BLOCK_CELLS = 2**10
ZERO, ONE = 0, 1
"""Rows of the values that hold the constants zero and one."""


class Kind(NamedTuple):
    """Static shape of a block: numbers of states of the parents, outputs of a node, and nodes in a block."""

    parents: tuple[int, ...]
    outputs: int
    width: int

    @property
    def cells(self) -> int:
        """Entries of a node's table."""
        return math.prod(self.parents) * self.outputs

    def holds(self, other: Kind) -> bool:
        """Whether a node of the other kind fits."""
        return _union(self, other)[:2] == self[:2]


class Layout(NamedTuple):
    """Arrays of a query.

    A node with C states has C - 1 rows of values, the probabilities of all states but the first. The values start with
    a row of zeros, a row of ones, and the weights (weight, state - 1), then come the outputs of the blocks.
    """

    tables: tuple[Any, ...]  # of each kind (block, node, states of parent 1, ..., output)
    reads: tuple[Any, ...]  # of each kind (block, node, parent), the first row of the parent's
    kind: Any  # (block,) its kind
    place: Any  # (block,) its position among the blocks of its kind
    row: Any  # (block,) the first row that it writes
    num_blocks: Any  # () number of blocks; the rest is padding
    fixed: Any  # (row,) values known in advance
    met: Any  # (evidence,) rows whose logs are summed
    prior: Any  # (weight, state - 1) rows of the forward marginals of the MAP variables
    present: Any  # (weight,) False in the padding of MAP variables
    states: Any  # (weight, state - 1) False in the padding of their states
    log_constant: Any  # ()


class Node(NamedTuple):
    """A multilinear function of the parents' marginals: their axes come first in the table."""

    parents: tuple[int, ...]
    table: np.ndarray


def lay_out(
    query: MarginalMAP, tables: tuple[np.ndarray, ...] | None = None
) -> tuple[Layout, tuple[Kind, ...]]:
    """Arrays of a query, and the static kinds of its blocks; `tables` replace the network's own."""
    network = query.network
    nodes, terms, constant = _cut(query, network.tables if tables is None else tables)
    kinds = _kinds([node for node in (*nodes.values(), *terms) if node.parents], network.num_variables)
    nodes, terms, known, folded = _fold(query, nodes, terms)
    return _pack(query, nodes, terms, known, constant + folded, kinds), kinds


def lay_out_nodes(
    query: MarginalMAP, nodes: dict[int, Node], terms: list[Node]
) -> tuple[Layout, tuple[Kind, ...]]:
    """Arrays of nodes and evidence terms as they are, none of them evaluated, and the kinds of their blocks."""
    kinds = _kinds([*nodes.values(), *terms], query.network.num_variables)
    return _pack(query, nodes, terms, {}, query.network.log_constant, kinds), kinds


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


def _cut(query: MarginalMAP, tables: tuple[np.ndarray, ...]) -> tuple[dict[int, Node], list[Node], float]:
    """Nodes by variable, evidence terms as nodes with one output, and a log constant; evidence is sliced in."""
    nodes: dict[int, Node] = {}
    terms: list[Node] = []
    constant = query.network.log_constant
    for number, observed, left, table in sliced_families(query, tables):
        if observed:
            terms.append(Node(left, table[..., None]))
            continue
        mass = table.sum(-1)
        if np.abs(mass - 1).max() > ROUNDING:
            terms.append(Node(left, mass[..., None]))
            share = np.where(mass > 0, mass, table.shape[-1])[..., None]
            table = np.where(mass[..., None] > 0, table, 1) / share
        nodes[number] = Node(left, table[..., 1:])
    for number, likelihoods in query.soft:
        constant += math.log(max(likelihoods))
        if number in nodes:  # else it has one state
            terms.append(Node((number,), np.array(likelihoods)[:, None] / max(likelihoods)))
    scaled = []
    for parents, table in terms:
        largest = float(table.max())
        constant += math.log(largest) if largest > 0 else 0.0
        scaled.append(Node(parents, table / largest if largest > 0 else table))
    return nodes, scaled, constant


def _fold(
    query: MarginalMAP, nodes: dict[int, Node], terms: list[Node]
) -> tuple[dict[int, Node], list[Node], dict[int, np.ndarray], float]:
    """Nodes and terms that depend on weights; marginals of all other nodes, and the log of the other terms."""
    known: dict[int, np.ndarray] = {}
    free: dict[int, Node] = {}
    maximised = set(query.map_variables)

    def contracted(node: Node) -> Node:
        parents, table = node
        for axis in reversed(range(len(parents))):
            if parents[axis] in known and parents[axis] not in maximised:
                rest = known[parents[axis]]
                table = np.tensordot(np.concatenate(([1 - rest.sum()], rest)), table, (0, axis))
        return Node(tuple(p for p in parents if p not in known or p in maximised), table)

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


def _needed(query: MarginalMAP, nodes: dict[int, Node], terms: list[Node]) -> dict[int, Node]:
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


def _kind(node: Node) -> Kind:
    return Kind(tuple(sorted(node.table.shape[:-1], reverse=True)), node.table.shape[-1], 1)


def _kinds(nodes: list[Node], count: int) -> tuple[Kind, ...]:
    """A few kinds that fit all nodes, whichever of their parents turn out constant; largest first."""
    number = collections.Counter(map(_kind, nodes))
    kept: dict[Kind, int] = {}
    for kind in sorted(number, key=lambda kind: -kind.cells):
        near = (one for one in kept if one.holds(kind) and one.cells <= MOST_PADDING * kind.cells)
        roomy = next(near, kind)
        kept[roomy] = kept.get(roomy, 0) + number[kind]
    while len(kept) > MOST_KINDS:
        pairs = [pair for pair in itertools.permutations(kept, 2) if pair[0].cells >= pair[1].cells]
        one, other = min(pairs, key=lambda pair: _dearer(pair[0], pair[1], kept))
        both = kept.pop(one) + kept.pop(other)
        union = _union(one, other)
        kept[union] = kept.get(union, 0) + both
    widest = min(max(_power(count // 25), 8), 64)
    ordered = sorted(kept or [Kind((2,), 1, 1)], key=lambda kind: -kind.cells)
    return tuple(kind._replace(width=max(1, min(widest, BLOCK_CELLS // kind.cells))) for kind in ordered)


def _union(one: Kind, other: Kind) -> Kind:
    """The smallest kind that fits all that fit either."""
    parents = itertools.zip_longest(one.parents, other.parents, fillvalue=1)
    return Kind(tuple(max(pair) for pair in parents), max(one.outputs, other.outputs), 1)


def _dearer(one: Kind, other: Kind, number: dict[Kind, int]) -> int:
    """Padding, in cells, of merging two kinds."""
    union = _union(one, other).cells
    return (union - one.cells) * number[one] + (union - other.cells) * number[other]


def _power(number: int) -> int:
    """The least power of two at or above a number."""
    return 1 << max(number - 1, 0).bit_length()


def _multiple(number: int, of: int) -> int:
    """The least positive multiple at or above a number."""
    return of * max(-(-number // of), 1)


def _pack(
    query: MarginalMAP,
    nodes: dict[int, Node],
    terms: list[Node],
    known: dict[int, np.ndarray],
    constant: float,
    kinds: tuple[Kind, ...],
) -> Layout:
    """Arrays of the blocks, packed by list scheduling: nodes with long paths below them first."""
    network, maximised = query.network, query.map_variables
    nodes = _needed(query, nodes, terms)
    deep = max(1, max(network.sizes[variable] for variable in maximised) - 1)
    deep = max(deep, max(network.sizes) - 1) if max(network.sizes) <= 4 else deep
    half = _multiple(network.num_variables // 2, 8)
    capacity = half if len(maximised) <= half else _power(len(maximised))
    first = 2 + capacity * deep
    home = {variable: 2 + i * deep for i, variable in enumerate(maximised)}
    prior = np.zeros((capacity, deep), int)
    own: dict[int, int] = {}
    fixed = [0.0, 1.0]
    for i, variable in enumerate(maximised):
        if variable in known:
            prior[i, : len(known[variable])] = first + len(fixed) - 2 + np.arange(len(known[variable]))
            fixed += known[variable].tolist()
    row = first + len(fixed) - 2
    everything: list[tuple[int | None, Node]] = [*nodes.items(), *((None, term) for term in terms)]
    wanted = [_kind(node) for _, node in everything]  # the smallest kind that fits goes to each
    smallest = sorted(range(len(kinds)), key=lambda k: kinds[k].cells)
    which = [next(k for k in smallest if kinds[k].holds(one)) for one in wanted]
    children: dict[int, list[int]] = {}
    waiting = [0] * len(everything)
    for i, (_, node) in enumerate(everything):
        for parent in node.parents:
            if parent not in home:
                children.setdefault(parent, []).append(i)
                waiting[i] += 1
    height = [0] * len(everything)  # of the longest path from a node to a sink
    for i, variable in reversed(list(enumerate(nodes))):
        height[i] = 1 + max((height[child] for child in children.get(variable, ())), default=0)
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
            owner = everything[i][0]
            if owner is None:
                met.append(rows[i])
                continue
            own[owner] = rows[i]
            for child in children.get(owner, ()):
                waiting[child] -= 1
                if not waiting[child]:
                    ready[which[child]].append(child)
        row += kind.width * kind.outputs
    for i, variable in enumerate(maximised):
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
    for i, variable in enumerate(maximised):
        there[i, : network.sizes[variable] - 1] = True
    kind_of, block_of, row_of = padded
    used, total_log = np.int32(len(blocks)), np.float64(constant)
    weights = prior.astype(np.int32), np.arange(capacity) < len(maximised), there
    return Layout(tables, reads, kind_of, block_of, row_of, used, begin, evidence, *weights, total_log)


def _fill(
    everything: list[tuple[int | None, Node]],
    blocks: list[tuple[int, list[int], int]],
    kinds: tuple[Kind, ...],
    rows: dict[int, int],
    count: int,
) -> tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...], list[int]]:
    """Tables and parents' rows, kind by kind, and the position of every block in its kind."""
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
            for axis, want in enumerate(kinds[k].parents):
                # Copies of the first state, so that padding changes nothing.
                first = np.repeat(np.take(table, [0], axis), want - table.shape[axis], axis)
                table = np.concatenate((table, first), axis)
            tables[k][(used[k], at)][..., : table.shape[-1]] = table
            reads[k][used[k], at, : len(parents)] = [rows[parents[axis]] for axis in axes]
        places.append(used[k])
        used[k] += 1
    return tuple(tables), tuple(reads), places
