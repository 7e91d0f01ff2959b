"""Where a fit may start: rough labels of every frame, from which a first M-step makes parameters.

All starts are functions of frames alone, those of all sequences one after another: ``features (frame,
feature)``, scaled to unit spread so that the unit of length changes nothing, ``valid (frame,)`` and
``sequence (frame,)``. They can be traced, and are mapped over keys to make many starts at once.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

__all__ = ["kmeans_plus_plus", "label_frames", "segments", "sticky"]

MAX_SEED_FRAMES = 4096
"""Frames among which k-means++ looks for its seeds."""

LLOYD_ROUNDS = 5


def label_frames(
    key: Array, kind: str, features: Array, valid: Array, sequence: Array, num_sequences: int, num_states: int
) -> Array:
    """Labels (frame,) of a start of the given kind."""
    features = _scaled(features, valid)
    if kind == "kmeans++":
        return kmeans_plus_plus(key, features, valid, num_states)
    if kind == "sticky":
        return sticky(key, features, valid, sequence, num_sequences, num_states)
    if kind == "segments":
        return segments(key, valid, sequence, num_sequences, num_states)
    raise ValueError(f'kind must be "kmeans++", "sticky" or "segments", not {kind!r}')


def kmeans_plus_plus(key: Array, features: Array, valid: Array, num_states: int) -> Array:
    """Every frame in the nearest of `num_states` clusters: seeds far apart, then a few rounds of k-means.

    Arthur and Vassilvitskii (2007), "k-means++: the advantages of careful seeding", section 2.2.
    """
    key_sample, key_seeds = jax.random.split(key)
    count = min(MAX_SEED_FRAMES, features.shape[0])
    drawn = _draw_weighted(key_sample, valid.astype(features.dtype), count)
    centres = _cluster(key_seeds, features[drawn], valid[drawn], num_states)
    return jnp.argmin(_square_distance(features, centres), axis=-1)


def sticky(
    key: Array, features: Array, valid: Array, sequence: Array, num_sequences: int, num_states: int
) -> Array:
    """Every sequence in one state throughout: k-means of the sequences' means."""
    weight = valid.astype(features.dtype)
    total = jax.ops.segment_sum(features * weight[:, None], sequence, num_sequences)
    count = jax.ops.segment_sum(weight, sequence, num_sequences)
    means = total / jnp.maximum(count, 1)[:, None]
    centres = _cluster(key, means, count > 0, num_states)
    return jnp.argmin(_square_distance(means, centres), axis=-1)[sequence]


def segments(key: Array, valid: Array, sequence: Array, num_sequences: int, num_states: int) -> Array:
    """Sequences cut at random into about three segments, each in a state drawn at random."""
    key_cuts, key_states = jax.random.split(key)
    lengths = jax.ops.segment_sum(valid.astype(jnp.result_type(float)), sequence, num_sequences)
    chance = 2 / jnp.maximum(lengths, 1)[sequence]
    enters = jnp.concatenate([jnp.ones(1, bool), sequence[1:] != sequence[:-1]])
    cuts = enters | (jax.random.uniform(key_cuts, valid.shape) < chance)
    states = jax.random.randint(key_states, (valid.shape[0] + 1,), 0, num_states)
    return states[jnp.cumsum(cuts)]


def _scaled(features: Array, valid: Array) -> Array:
    """Features with unit spread over valid steps, zero elsewhere."""
    inside = valid[:, None]
    count = jnp.maximum(jnp.sum(inside), 1)
    mean = jnp.sum(jnp.where(inside, features, 0), axis=0, keepdims=True) / count
    centred = jnp.where(inside, features - mean, 0)
    spread = jnp.sqrt(jnp.sum(centred**2, axis=0, keepdims=True) / count)
    return centred / jnp.where(spread > 0, spread, 1)


def _square_distance(points: Array, centres: Array) -> Array:
    """Squared distances (point, centre)."""
    cross = points @ centres.T
    own = jnp.sum(points**2, axis=-1)[:, None] + jnp.sum(centres**2, axis=-1)[None]
    return jnp.maximum(own - 2 * cross, 0)


def _draw_weighted(key: Array, weight: Array, count: int) -> Array:
    """Indices drawn with replacement, by weight."""
    reach = jnp.cumsum(weight)
    at = jax.random.uniform(key, (count,), weight.dtype) * reach[-1]
    return jnp.minimum(jnp.searchsorted(reach, at, side="right"), weight.shape[0] - 1)


def _cluster(key: Array, points: Array, valid: Array, num_clusters: int) -> Array:
    """Centres (cluster, feature): k-means++ seeds and a few rounds of Lloyd's algorithm.

    Where there are fewer distinct points than clusters, seeds coincide; a little noise, unlike for every
    cluster, keeps them apart.
    """
    weight = valid.astype(points.dtype)
    key_first, key_rest, key_noise = jax.random.split(key, 3)
    first = points[_draw_weighted(key_first, weight, 1)[0]]

    def add_seed(nearest, key):
        chance = jnp.where(valid, nearest, 0)
        chance = jnp.where(jnp.sum(chance) > 0, chance, weight)
        seed = points[_draw_weighted(key, chance, 1)[0]]
        return jnp.minimum(nearest, jnp.sum((points - seed[None]) ** 2, axis=-1)), seed

    distance = jnp.sum((points - first[None]) ** 2, axis=-1)
    _, later = jax.lax.scan(add_seed, distance, jax.random.split(key_rest, num_clusters - 1))
    seeds = jnp.concatenate([first[None], later])
    seeds = seeds + 1e-3 * jax.random.normal(key_noise, seeds.shape, seeds.dtype)

    def lloyd(_, centres):
        nearest = jnp.argmin(_square_distance(points, centres), axis=-1)
        member = (nearest[:, None] == jnp.arange(num_clusters)[None]) * weight[:, None]
        count = jnp.sum(member, axis=0)[:, None]
        return jnp.where(count > 0, member.T @ points / jnp.maximum(count, 1), centres)

    return jax.lax.fori_loop(0, LLOYD_ROUNDS, lloyd, seeds)
