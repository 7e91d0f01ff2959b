"""First labellings of demonstrations with intents: segments clustered by their actions, then tables of actions.

Segments are clustered as by k-means++ (Arthur and Vassilvitskii 2007), with the log likelihood of a segment's actions
under the table of actions of a cluster in place of distances.
"""

from __future__ import annotations

import numpy as np
from jax import Array

from ethogram.inference.rewards.intent_steps import Blocks, LocalStep, table_starts
from ethogram.models.chains.conjugate_chain import ChainData
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["start_step"]

SEGMENTS = (20, 10, 40)
"""Steps of a segment, of one start after the other."""

ROUNDS, TABLE_STEPS = 10, 60
"""Rounds of clustering, and steps of expectation maximisation with tables of actions."""


def start_step(
    key: Array, number: int, data: ChainData, prior: Blocks, num_intents: int, shape: tuple[int, ...]
) -> LocalStep:
    """The q(z) that the start of this number begins with; `shape` is that of counts (state, action)."""
    rng = numpy_generator(key)
    of_segments = segment_counts(data, SEGMENTS[number % len(SEGMENTS)], rng, int(np.prod(shape)))
    labels = clustered(rng, of_segments.reshape(-1, *shape), num_intents)
    counts = np.stack([of_segments[labels == label].sum(0) for label in range(num_intents)])
    return table_starts(counts.reshape(-1, *shape), prior, prior, data, TABLE_STEPS)


def segment_counts(data: ChainData, length: int, rng: np.random.Generator, num_symbols: int) -> np.ndarray:
    """Counts (segment, symbol) of segments of demonstrations, the first of which begins before the first step."""
    symbol, known = np.asarray(data.observations), np.asarray(data.observed)
    place = (np.arange(symbol.shape[1]) + rng.integers(length)) // length
    segment = np.arange(len(symbol))[:, None] * (place[-1] + 1) + place
    _, row = np.unique(segment[known], return_inverse=True)
    counts = np.zeros((row.max() + 1, num_symbols))
    np.add.at(counts, (row, symbol[known]), 1)
    return counts


def clustered(rng: np.random.Generator, counts: np.ndarray, num_clusters: int) -> np.ndarray:
    """Cluster (segment,) of counts (segment, state, action)."""
    pooled = counts.sum(0) + 1
    pooled /= pooled.sum(-1, keepdims=True)
    flat = counts.reshape(len(counts), -1)

    def scores(of_cluster):
        smoothed = of_cluster + pooled
        return flat @ np.log(smoothed / smoothed.sum(-1, keepdims=True)).ravel()

    table = scores(counts[rng.integers(len(counts))])[:, None]
    common = flat @ np.log(pooled).ravel()
    for _ in range(num_clusters - 1):
        # A segment is far from all clusters where the pooled table is better than the best of theirs.
        apart = np.maximum(common - table.max(1), 0) + 1e-9
        table = np.column_stack([table, scores(counts[rng.choice(len(counts), p=apart / apart.sum())])])
    labels = table.argmax(1)
    for _ in range(ROUNDS):
        table = np.column_stack([scores(counts[labels == one].sum(0)) for one in range(num_clusters)])
        before, labels = labels, table.argmax(1)
        if (labels == before).all():
            break
    return labels
