"""Starts of roles that are distinct in every frame: rough labels by optimal matching of agents to clusters.

One map per frame from k-means++ seeds is quick to get, but full of switches. A start with one map per demonstration,
the best of three after up to 40 iterations, has none; most restarts take it. Ours.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ethogram.models.families.exponential_family import expected_statistics, natural_step, total_kl
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.exclusive_roles import GroupedChains, log_num_maps
from ethogram.models.roles.log_permanent import log_permanent
from ethogram.models.roles.starts import (
    MAX_SEED_FRAMES,
    cluster_centres,
    clusters_without_outliers,
    random_maps,
)

__all__ = ["DISTINCT_KINDS", "distinct_labels"]

DISTINCT_KINDS = ("sticky", "sticky", "sticky", "kmeans++")

TRIES = 3
"""Random seeds of a start with one map per demonstration, of which the best is taken."""

ITERATIONS = 40


def distinct_labels(
    model: Any, rng: np.random.Generator, kind: str, batches: list[GroupedChains]
) -> list[np.ndarray]:
    """Labels (sequence, time) of every batch, distinct in every frame.

    ``"kmeans++"`` matches the agents of each frame to cluster centres; ``"sticky"`` improves such a start with one map
    a demonstration by coordinate ascent, and keeps one role per agent.
    """
    # Known roles are copied in afterwards; they may rule out one map per demonstration.
    batches = [dataclasses.replace(b, chains=b.chains._replace(states=None)) for b in batches]
    if not any(np.asarray(batch.chains.observed).any() for batch in batches):
        return [random_maps(rng, batch, model.num_roles) for batch in batches]
    if kind != "sticky":
        return [_matched(cost) for cost in _costs(model, rng, batches)]
    starts = [
        _emission_statistics(model, rng, batches, [_held(cost) for cost in _costs(model, rng, batches)])
        for _ in range(TRIES)
    ]
    stacked = jax.tree.map(lambda *x: np.stack(x).astype(jnp.result_type(float)), *starts)
    values, potentials = _with_one_map(model, model.emission.prior(model.num_roles), stacked, batches)
    best = int(np.argmax(np.where(np.isnan(values), -np.inf, values)))
    return [_held(-np.asarray(part, float)[best]) for part in potentials]


def _costs(model: Any, rng: np.random.Generator, batches: list[GroupedChains]) -> list[np.ndarray]:
    """Squared distances (group, agent, time, role) of frames to k-means++ centres; zero where not observed.

    Where there are outliers, half of the draws have centres that these do not draw, and distances up to a limit.
    """
    count = model.num_roles
    observed = [np.asarray(batch.chains.observed) for batch in batches]
    features = [
        model.emission.start_features(np.asarray(batch.chains.observations), seen)
        for batch, seen in zip(batches, observed, strict=True)
    ]
    seen_points = np.concatenate([x[seen] for x, seen in zip(features, observed, strict=True)])
    centre, spread = seen_points.mean(axis=0), seen_points.std(axis=0)
    points = (seen_points - centre) / np.where(spread > 0, spread, 1)
    if len(points) > MAX_SEED_FRAMES:
        points = points[np.sort(rng.choice(len(points), MAX_SEED_FRAMES, replace=False))]
    sample = points + 1e-6 * rng.standard_normal(points.shape)
    if len(sample) < count:
        sample = np.concatenate([sample, rng.standard_normal((count - len(sample), points.shape[1]))])
    centres = cluster_centres(rng, sample, count, 1)
    limits: Any = np.inf
    other = rng.spawn(1)[0]
    robust = clusters_without_outliers(other, seen_points, count)
    if robust is not None and other.random() < 0.5:
        centre, spread, centres, limits = robust[:4]
    found = []
    for x, seen, batch in zip(features, observed, batches, strict=True):
        scaled = (x - centre) / np.where(spread > 0, spread, 1)
        distance = np.minimum(((scaled[..., None, :] - centres) ** 2).sum(-1), limits)
        distance = np.where(seen[..., None], distance, 0)
        found.append(distance.reshape(-1, batch.num_agents, *distance.shape[1:]))
    return found


def _matched(cost: np.ndarray) -> np.ndarray:
    """Labels (sequence, time) of the best map of every frame."""
    role = optimal_assignment(np.moveaxis(cost, 2, 1)).role  # (group, time, agent)
    return np.moveaxis(role, 2, 1).reshape(-1, cost.shape[2]).astype(np.int64)


def _held(cost: np.ndarray) -> np.ndarray:
    """Labels (sequence, time) of the best map of every demonstration, at costs (group, agent, time, role)."""
    role = optimal_assignment(cost.sum(axis=2)).role
    return np.repeat(role.reshape(-1, 1), cost.shape[2], axis=1).astype(np.int64)


def _emission_statistics(
    model: Any, rng: np.random.Generator, batches: list[GroupedChains], labels: list[np.ndarray]
) -> dict[str, Any]:
    observed = [np.asarray(batch.chains.observed) for batch in batches]
    frames = [np.asarray(b.chains.observations)[seen] for b, seen in zip(batches, observed, strict=True)]
    held = [label[seen] for label, seen in zip(labels, observed, strict=True)]
    return model.emission.label_statistics(rng, np.concatenate(frames), np.concatenate(held), model.num_roles)


@quick_jit
def _with_one_map(model: Any, prior: Any, statistics: Any, batches: list[GroupedChains]) -> Any:
    """Bounds (start,), and potentials (start, group, agent, time, role) of every batch: fits with one map per group."""

    def potentials(expected):
        steps = [model.step_potentials(expected, batch.chains) for batch in batches]
        return [
            x.reshape(-1, batch.num_agents, *x.shape[1:]) for x, batch in zip(steps, batches, strict=True)
        ]

    def local(expected):
        each = [log_permanent(jnp.sum(x, axis=2)) for x in potentials(expected)]
        return sum(jnp.sum(x) - len(x) * log_num_maps(batches[0].num_agents, model.num_roles) for x in each)

    def one(statistics):
        blocks = natural_step(prior, prior, statistics, 1.0, 1.0)

        def iterate(blocks, _):
            value, found = jax.value_and_grad(local)(expected_statistics(blocks))
            return natural_step(blocks, prior, found, 1.0, 1.0), value - total_kl(blocks, prior)

        blocks, values = lax.scan(iterate, blocks, length=ITERATIONS)
        return values[-1], potentials(expected_statistics(blocks))

    return jax.vmap(one)(statistics)
