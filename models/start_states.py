"""Where a fit may start: rough labels of every frame, made on the host in NumPy, where nothing compiles.

All starts are functions of frames alone, those of all sequences one after another: ``features (frame,
feature)`` of the frames that were observed, scaled to unit spread so that the unit of length changes nothing,
and ``sequence (frame,)``, the number of each frame's sequence, ascending.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.cluster import vq

__all__ = ["START_KINDS", "kmeans_plus_plus", "label_frames", "segments", "sticky"]

START_KINDS = ("kmeans++", "sticky", "segments")

MAX_SEED_FRAMES = 10_000
"""Frames among which k-means looks for its centres."""

LLOYD_ROUNDS = 5


def label_frames(
    rng: np.random.Generator, kind: str, features: np.ndarray, sequence: np.ndarray, num_states: int
) -> np.ndarray:
    """Labels (frame,) of a start of the given kind.

    Raises
    ------
    ValueError
        If the kind is not one of :data:`START_KINDS`.
    """
    spread = features.std(axis=0)
    scaled = (features - features.mean(axis=0)) / np.where(spread > 0, spread, 1)
    if kind == "kmeans++":
        return kmeans_plus_plus(rng, scaled, num_states)
    if kind == "sticky":
        return sticky(rng, scaled, sequence, num_states)
    if kind == "segments":
        return segments(rng, sequence, num_states)
    raise ValueError(f"kind must be one of {START_KINDS}, not {kind!r}")


def kmeans_plus_plus(rng: np.random.Generator, points: np.ndarray, num_states: int) -> np.ndarray:
    """Every point in the nearest of `num_states` clusters: seeds far apart, then a few rounds of k-means.

    Arthur and Vassilvitskii (2007), "k-means++: the advantages of careful seeding", section 2.2.
    """
    sample = points
    if len(points) > MAX_SEED_FRAMES:
        sample = points[np.sort(rng.choice(len(points), MAX_SEED_FRAMES, replace=False))]
    distinct = len(np.unique(sample, axis=0))
    if distinct < num_states:  # fewer places than states: equal points must part at random
        sample = sample + 1e-3 * rng.standard_normal(sample.shape)
        points = points + 1e-3 * rng.standard_normal(points.shape)
    if len(sample) < num_states:
        return rng.integers(num_states, size=len(points))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="One of the clusters is empty")
        centres, _ = vq.kmeans2(sample, num_states, iter=LLOYD_ROUNDS, minit="++", rng=rng)
    return vq.vq(points, centres)[0].astype(np.int64)


def sticky(rng: np.random.Generator, points: np.ndarray, sequence: np.ndarray, num_states: int) -> np.ndarray:
    """Every sequence in one state throughout: k-means of the sequences' means."""
    _, unit, counts = np.unique(sequence, return_inverse=True, return_counts=True)
    means = np.stack([np.bincount(unit, column) / counts for column in points.T], axis=1)
    return kmeans_plus_plus(rng, means, num_states)[unit]


def segments(rng: np.random.Generator, sequence: np.ndarray, num_states: int) -> np.ndarray:
    """Sequences cut at random into about three segments, each in a state drawn at random."""
    _, unit, counts = np.unique(sequence, return_inverse=True, return_counts=True)
    enters = np.concatenate([[True], sequence[1:] != sequence[:-1]])
    cuts = enters | (rng.random(len(sequence)) < 2 / counts[unit])
    return rng.integers(num_states, size=len(sequence) + 1)[np.cumsum(cuts)]
