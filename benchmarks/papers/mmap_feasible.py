"""First possible answers of marginal MAP: CPU time from the call, on stored and generated networks, and deadlines.

Sections, each of which may be run alone with --only:

* ``stored``: set 0 of every stored network, with half and a fifth of the variables that are not evidence maximised;
* ``generated``: grids of 40 x 40 variables whose rows are deterministic with chance 0.5 to 0.9, and k-trees of 1000
  variables with noisy-or and deterministic tables, both with more and less evidence, in the same two fractions;
* ``deadlines``: CPU time beyond limits of 0.1, 1 and 5 s, on stored and generated networks.

`first_s` is the time of the first answer that is possible, whose log probability may be a lower bound (kind
``estimate``), and `exact_s` that of the first one whose log probability is exact. Seconds are CPU time of all threads,
on one core where the system allows it.
"""

from __future__ import annotations

import argparse
import functools
import gc
import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from benchmarks import hard_networks, report
from benchmarks.one_core import one_core
from benchmarks.papers import network_files as files
from ethogram.inference.networks.anytime import TracePoint
from ethogram.inference.networks.solve_mmap import solve_mmap
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP

__all__ = ["SECTIONS", "Recipe", "measure"]

TARGET, LIMIT = 0.2, 5.0
LIMITS = (0.1, 1.0, 5.0)
FRACTIONS = ("0.5", "0.2")
TIMED = ("50-20-10", "90-20-1", "comm_p01_5", "BN_42", "BN_30", "mastermind_03_08_03-0001", "pedigree1")


class Recipe(NamedTuple):
    """A generated network and its evidence.

    Attributes
    ----------
    kind : ``grid``, or ``k-tree``.
    size : variables a side, or in all.
    width : treewidth of a k-tree; None of a grid.
    deterministic : share of deterministic rows, or tables.
    observed : share of the variables.
    """

    kind: str
    size: int
    width: int | None
    deterministic: float
    observed: float


GRIDS = [Recipe("grid", 40, None, zeros, seen) for zeros in (0.5, 0.75, 0.9) for seen in (0.01, 0.05, 0.2)]
K_TREES = [
    Recipe("k-tree", 1000, width, zeros, seen)
    for width in (5, 8)
    for zeros in (0.5, 0.9)
    for seen in (0.01, 0.05, 0.2)
]
SMALL = [Recipe("grid", 12, None, 0.9, 0.2), Recipe("k-tree", 60, 4, 0.5, 0.2)]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", default=None, metavar="SECTIONS", help="comma-separated names of sections")


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all sections, or of some."""
    wanted = list(SECTIONS) if settings.only is None else settings.only.split(",")
    rows = []
    with one_core():
        _first(
            hard_networks.late_query(jax.random.key(0), _network(SMALL[0], 0), 0.2, 0.5), 0
        )  # once a process
        for name in wanted:
            rows += [{"section": name} | row for row in SECTIONS[name](settings)]
    return rows


@functools.cache
def _network(recipe: Recipe, seed: int) -> BayesNet:
    key = jax.random.fold_in(jax.random.key(seed), 0)
    if recipe.width is None:
        return hard_networks.grid(key, recipe.size, recipe.deterministic)
    return hard_networks.k_tree(key, recipe.size, recipe.width, recipe.deterministic)


def _generated_query(recipe: Recipe, fraction: str, seed: int) -> MarginalMAP:
    key = jax.random.fold_in(jax.random.key(seed), 1)
    return hard_networks.late_query(key, _network(recipe, seed), recipe.observed, float(fraction))


def _first(query: MarginalMAP, seed: int) -> dict[str, Any]:
    """Columns of the first possible answer, and when the first exact one came."""

    def enough(point: TracePoint) -> None:
        if point.kind == "exact":
            raise KeyboardInterrupt  # which solve_mmap answers with what it has

    gc.collect()  # what other queries have left
    found = solve_mmap(jax.random.key(seed), query, time_limit=LIMIT, clock="cpu", callback=enough)
    first = next(iter(found.trace), None)
    row = {"first_s": None if first is None else round(first.cpu_s, 4), "target": TARGET}
    row |= {"reached": first is not None and first.cpu_s <= TARGET}
    exact = next((point.cpu_s for point in found.trace if point.kind == "exact"), None)
    row |= {"exact_s": None if exact is None else round(exact, 4)}
    if first is not None:
        row |= {"log_probability": first.log_probability, "kind": first.kind, "source": first.source}
    return row


def _slowest(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    slowest = max(math.inf if row["first_s"] is None else row["first_s"] for row in rows)
    return {"check": f"slowest first possible answer of {len(rows)} {name} queries, s", "first_s": slowest,
            "target": TARGET, "reached": slowest <= TARGET}  # fmt: skip


def _stored(settings: argparse.Namespace) -> list[dict[str, Any]]:
    if files.folder() is None:
        return [{"note": "skipped: no folder bayes_nets under ETHOGRAM_DATA"}]
    instances = dict.fromkeys(query.instance for query in files.queries())
    rows: list[dict[str, Any]] = []
    for instance in list(instances)[: 3 if settings.quick else None]:
        for fraction in FRACTIONS:
            query = files.load(files.StoredQuery(instance, fraction, 0))
            row = {"instance": instance, "variables": query.network.num_variables, "fraction": fraction}
            rows.append(row | {"set": 0} | _first(query, settings.seed))
    return [*rows, _slowest("stored", rows)]


def _generated(settings: argparse.Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for recipe in SMALL if settings.quick else [*GRIDS, *K_TREES]:
        for fraction in FRACTIONS:
            query = _generated_query(recipe, fraction, settings.seed)
            row = {"instance": _name(recipe), "variables": query.network.num_variables, "fraction": fraction}
            rows.append(row | _first(query, settings.seed))
    return [*rows, _slowest("generated", rows)]


def _name(recipe: Recipe) -> str:
    width = "" if recipe.width is None else f", width {recipe.width}"
    return f"{recipe.kind} {recipe.size}{width}, {recipe.deterministic:g} deterministic, {recipe.observed:g} observed"


def _timed(settings: argparse.Namespace) -> Iterator[tuple[str, MarginalMAP]]:
    if files.folder() is not None:
        for name in TIMED[: 1 if settings.quick else None]:
            yield name, files.load(files.StoredQuery(name, "0.2", 0))
    for recipe in SMALL if settings.quick else [*GRIDS[::2], *K_TREES[::2]]:
        yield _name(recipe), _generated_query(recipe, "0.2", settings.seed)


def _deadlines(settings: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for name, query in _timed(settings):
        for limit in LIMITS[: 1 if settings.quick else None]:
            gc.collect()
            started = time.process_time()
            found = solve_mmap(jax.random.key(settings.seed), query, time_limit=limit, clock="cpu")
            late = max(0.0, time.process_time() - started - limit)
            target = round(max(0.1 * limit, 0.1), 3)
            row = {"instance": name, "variables": query.network.num_variables, "fraction": "0.2"}
            row |= {"limit": limit, "late_s": round(late, 4), "target": target, "reached": late <= target}
            rows.append(row | {"log_probability": found.log_probability, "kind": found.kind})
    on_time = sum(row["reached"] for row in rows)
    check = {"check": f"limits overshot by at most 10 % or 0.1 s, of {len(rows)}", "on_time": on_time}
    return [*rows, check | {"target": len(rows), "reached": on_time == len(rows)}]


SECTIONS = {"stored": _stored, "generated": _generated, "deadlines": _deadlines}


if __name__ == "__main__":
    raise SystemExit(report.run("mmap_feasible", __doc__, measure, options=options))
