"""Starts of conjugate fits: many q(theta), unlike each other, made in one compiled call."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ethogram.models.exponential_family import ConjugateBlock, natural_step

__all__ = ["KINDS", "start_blocks"]

KINDS = ("kmeans++", "sticky", "segments", "prior")

MIXED = ("kmeans++", "sticky", "segments", "kmeans++", "sticky", "segments", "kmeans++", "prior")
"""The order in which ``init="mixed"`` takes the kinds; draws from the prior seldom win, and come last."""


def start_blocks(
    key: Array, model: Any, prior: dict[str, ConjugateBlock], batches: list[Any], restarts: int, init: str
) -> dict[str, ConjugateBlock]:
    """Blocks with a leading axis of `restarts`: one update of the prior by the statistics of rough labels.

    Models without ``start_statistics`` know the kind ``"prior"`` only: the statistics of a local step at
    parameters drawn from the prior. ``"mixed"`` takes the kinds in turn.

    Raises
    ------
    ValueError
        If `init` is not a kind of start, or not one the model knows.
    """
    known, mixed = (KINDS, MIXED) if hasattr(model, "start_statistics") else (("prior",), ("prior",))
    if init != "mixed" and init not in KINDS:
        raise ValueError(f'init must be "mixed", one of {KINDS}, or an earlier result, not {init!r}')
    if init not in ("mixed", *known):
        raise ValueError(
            f'{type(model).__name__} has no start_statistics: its starts are "prior" (or "mixed")'
        )
    kinds = tuple(mixed[i % len(mixed)] if init == "mixed" else init for i in range(restarts))
    return _start(key, model, prior, batches, kinds)


@functools.partial(jax.jit, static_argnames="kinds")
def _start(key, model, prior, batches, kinds):
    keys = jax.random.split(key, len(kinds))
    parts, order = [], []
    for kind in dict.fromkeys(kinds):
        members = [i for i, other in enumerate(kinds) if other == kind]
        order += members
        parts.append(
            jax.vmap(lambda k, kind=kind: _one_start(k, model, prior, batches, kind))(
                keys[jnp.array(members)]
            )
        )
    back = jnp.argsort(jnp.array(order))
    return jax.tree.map(lambda *x: jnp.concatenate(x)[back], *parts)


def _one_start(key, model, prior, batches, kind):
    if hasattr(model, "start_statistics"):
        statistics = model.start_statistics(key, kind, batches)
    else:
        point = drawn_statistics(key, prior)
        statistics = jax.grad(lambda e: sum(model.log_normalizer(e, batch) for batch in batches))(point)
    return natural_step(prior, prior, statistics, 1.0, 1.0)


def drawn_statistics(key: Array, prior: dict[str, ConjugateBlock]) -> dict[str, Any]:
    """Statistics of every block at parameters drawn from it."""
    keys = jax.random.split(key, len(prior))
    statistics = {}
    for k, (name, block) in zip(keys, prior.items(), strict=True):
        draw = block.sample(k)
        statistics[name] = block.statistics(*draw) if isinstance(draw, tuple) else block.statistics(draw)
    return statistics
