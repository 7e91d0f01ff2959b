"""Starts of a role HMM: statistics of rough labels of every step, in float64 NumPy, where nothing compiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.cluster import vq
from scipy.spatial.distance import cdist

from ethogram.models.arguments import require_one_of
from ethogram.models.chains.conjugate_chain import ChainData
from ethogram.models.families.exponential_family import DirichletCoordinates, expected_statistics
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles.role_groups import GroupedChains

__all__ = [
    "MAX_SEED_FRAMES",
    "START_KINDS",
    "chosen_frames",
    "cluster_centres",
    "frames_on_host",
    "kmeans_plus_plus",
    "label_frames",
    "label_statistics",
    "random_maps",
    "rough_labels",
    "segments",
    "start_statistics",
    "sticky",
]

START_KINDS = ("kmeans++", "sticky", "segments")

MAX_SEED_FRAMES = 10_000
"""Frames that k-means is run on, at most."""

MAX_TRIMMED_FRAMES = 2_000
"""Frames that clusters without outliers are sought in, at most."""

LLOYD_ROUNDS = 5

FAR, HEAVY = 30.0, 0.1
"""Squared distances, in medians of their cluster, from which a frame is an outlier, as are at most one in ten thousand
normal frames. Share of all squared distances that outliers must have to matter."""

CLIP = 0.05
"""Share of either tail of a feature without which it is scaled."""

TRIES = 3
"""Labels with outliers in a state of their own that are compared."""

LEAST_VARIANCE, ROUNDING = 1e-6, 1e-12
"""Of scaled features in a cluster; and the share of a cluster's total variance below which rounding hides variances."""

CAP, CANDIDATES = 0.9, 4
"""Quantile at which squared distances are capped for seeds, and draws of which the best becomes a seed."""


def start_statistics(model: Any, rng: np.random.Generator, kind: str, batches: list[Any]) -> dict[str, Any]:
    """Statistics by block of rough labels of every step, of batches as the ``arrange`` of a role HMM gives them."""
    labels = model.coupling.start_labels(model, rng, kind, batches)
    if model.emission.differs_by_state:
        labels = _nearest_prior(model, _chains_of(batches), labels)
    return label_statistics(model, rng, labels, batches)


def _chains_of(batches: list[Any]) -> list[ChainData]:
    return [batch.chains if isinstance(batch, GroupedChains) else batch for batch in batches]


def label_statistics(
    model: Any, rng: np.random.Generator, labels: list[np.ndarray], batches: list[Any]
) -> dict[str, Any]:
    """Statistics by block of labels (sequence, time) of every step; known roles take their place."""
    num_roles, chains = model.num_roles, _chains_of(batches)
    for chain, label in zip(chains, labels, strict=True):
        if chain.states is not None:
            np.copyto(label, chain.states, where=np.asarray(chain.states) >= 0)
    observed = [np.asarray(chain.observed) for chain in chains]
    frames = chosen_frames([chain.observations for chain in chains], observed)
    held = np.concatenate([label[seen] for label, seen in zip(labels, observed, strict=True)])
    statistics = model.emission.label_statistics(rng, frames, held, num_roles)
    if not model.coupling.has_chain:
        return statistics
    initial, transition = np.zeros(num_roles), np.zeros((num_roles, num_roles))
    for chain, label in zip(chains, labels, strict=True):
        alive = np.arange(label.shape[1]) < np.asarray(chain.lengths)[:, None]
        initial += np.bincount(label[:, 0][alive[:, 0]], minlength=num_roles)
        pair = (num_roles * label[:, :-1] + label[:, 1:])[alive[:, 1:]]
        transition += np.bincount(pair, minlength=num_roles**2).reshape(transition.shape)
    return {
        "initial": DirichletCoordinates(initial),
        "transition": DirichletCoordinates(transition),
        **statistics,
    }


def frames_on_host(observations: Any) -> Any:
    """Arranged observations as NumPy arrays, NaN where features are missing: one array, or a tuple of them."""
    return jax.tree.map(np.asarray, observations, is_leaf=lambda x: hasattr(x, "__array__"))


def chosen_frames(observations: list[Any], chosen: list[np.ndarray]) -> Any:
    """The chosen frames (frame, ...) of all batches of arranged observations (sequence, time, ...)."""
    each = [
        jax.tree.map(lambda x, some=some: _chosen(x, some), frames_on_host(own))
        for own, some in zip(observations, chosen, strict=True)
    ]
    return jax.tree.map(lambda *parts: _joined(parts), *each)


def _chosen(x: np.ndarray, some: np.ndarray) -> np.ndarray:
    """Frames (frame, ...) of an array (sequence, time, ...); without a copy where they are all."""
    return x.reshape(-1, *x.shape[2:]) if some.all() else x[some]


def _joined(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Parts one after another; a single one is not copied."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _nearest_prior(model: Any, chains: list[ChainData], labels: list[np.ndarray]) -> list[np.ndarray]:
    """The labels renumbered, one to one, so that their frames are likeliest under the priors of the roles."""
    cost = np.zeros((model.num_roles, model.num_roles))
    for chain, label in zip(chains, labels, strict=True):
        seen = np.asarray(chain.observed)
        each = _under_priors(model, chain._replace(states=None))
        np.add.at(cost, label[seen], -np.asarray(each, float)[seen])
    role = optimal_assignment(cost).role
    return [role[label].astype(label.dtype) for label in labels]


@quick_jit
def _under_priors(model: Any, chain: ChainData) -> Any:
    """Expected log likelihood (sequence, time, role) of every step under the prior of each role."""
    return model.step_potentials(expected_statistics(model.emission.prior(model.num_roles)), chain)


def random_maps(rng: np.random.Generator, batch: GroupedChains, num_roles: int) -> np.ndarray:
    """Labels (sequence, time) by one random map per group."""
    num_sequences, num_steps = batch.chains.observed.shape
    noise = rng.random((num_sequences // batch.num_agents, num_roles))
    roles = np.argsort(noise, axis=-1)[:, : batch.num_agents].reshape(-1, 1)
    return np.repeat(roles, num_steps, axis=1)


def rough_labels(
    rng: np.random.Generator, kind: str, chains: list[ChainData], emission: Any, num_roles: int
) -> list[np.ndarray]:
    """Labels of every step; a step that was not observed takes that of the one before."""
    observed = [np.asarray(chain.observed) for chain in chains]
    counts = [int(seen.sum()) for seen in observed]
    if sum(counts) == 0:
        return [rng.integers(num_roles, size=seen.shape) for seen in observed]
    numbers = np.arange(sum(map(len, observed)), dtype=np.int32)
    sequence = np.repeat(numbers, np.concatenate([seen.sum(axis=1) for seen in observed]))

    def features() -> np.ndarray:
        each = [
            _chosen(emission.start_features(frames_on_host(chain.observations), seen), seen)
            for chain, seen in zip(chains, observed, strict=True)
        ]
        return _joined(each)

    held = label_frames(rng, kind, features(), sequence, num_roles)
    if all(seen.all() for seen in observed):
        shapes = [seen.shape for seen in observed]
        parts = np.split(held, np.cumsum(counts)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    labels = []
    for seen, own in zip(observed, np.split(held, np.cumsum(counts)[:-1]), strict=True):
        label = np.zeros(seen.shape, dtype=np.int64)
        label[seen] = own
        last = np.maximum.accumulate(np.where(seen, np.arange(seen.shape[1]), -1), axis=1)
        at = np.where(last < 0, np.argmax(seen, axis=1)[:, None], last)
        labels.append(np.take_along_axis(label, at, axis=1))
    return labels


def label_frames(
    rng: np.random.Generator, kind: str, features: np.ndarray, sequence: np.ndarray, num_states: int
) -> np.ndarray:
    """Labels (frame,) of a start of one of the :data:`START_KINDS`, at features scaled to unit spread.

    Parameters
    ----------
    features : (frame, feature) of the observed frames of all sequences, one sequence after another.
    sequence : (frame,), the number of each frame's sequence, ascending.
    """
    require_one_of("kind", kind, START_KINDS)
    if kind == "segments":
        return segments(rng, sequence, num_states)
    if kind == "sticky":
        return sticky(rng, unit_spread(features), sequence, num_states)
    apart = apart_from_outliers(rng.spawn(1)[0], features, num_states)
    found = [kmeans_plus_plus(rng, unit_spread(features), num_states), *apart]
    if not apart:
        return found[0]
    points = scaled(features, *without_tails(features))
    return max(found, key=lambda label: gaussian_score(points, label))


def scaled(features: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Features (frame, feature) less their centre, over their spread."""
    points = features - centre
    points /= spread
    return points


def unit_spread(features: np.ndarray) -> np.ndarray:
    """Features (frame, feature) less their mean, over their standard deviation, where that is not 0."""
    spread = features.std(axis=0)
    return scaled(features, features.mean(axis=0), np.where(spread > 0, spread, 1))


def kmeans_plus_plus(rng: np.random.Generator, points: np.ndarray, num_states: int) -> np.ndarray:
    """Every point in the nearest of `num_states` clusters: k-means++ seeds, then a few Lloyd iterations.

    Arthur and Vassilvitskii (2007), "k-means++: the advantages of careful seeding", section 2.2.
    """
    sample = points
    if len(points) > MAX_SEED_FRAMES:
        sample = points[np.sort(rng.choice(len(points), MAX_SEED_FRAMES, replace=False))]
    distinct = len(np.unique(sample, axis=0))
    if distinct < num_states:  # fewer distinct points than states: split ties at random
        sample = sample + 1e-3 * rng.standard_normal(sample.shape)
        points = points + 1e-3 * rng.standard_normal(points.shape)
    if len(sample) < num_states:
        return rng.integers(num_states, size=len(points))
    centres = cluster_centres(rng, sample, num_states, LLOYD_ROUNDS)
    return vq.vq(points, centres)[0].astype(np.int64)


def apart_from_outliers(rng: np.random.Generator, features: np.ndarray, num_states: int) -> list[np.ndarray]:
    """Labels with all but one state for clusters, of which one has all outliers; none without outliers.

    Seeds of k-means++, whose probability is a squared distance, fall on outliers, and leave one state for all else. A
    third of the draws have labels with fewer clusters too: a state that describes little costs more than it explains.
    """
    found: list[np.ndarray] = []
    fewer = 1 if rng.random() < 1 / 3 else 0
    for count in [max(num_states - 1 - fewer * number, 1) for number in range(TRIES)]:
        clusters = clusters_without_outliers(rng, features, count)
        if clusters is None:
            break
        found.append(np.where(clusters.outlying, num_states - 1, clusters.label).astype(np.int64))
    return found


def gaussian_score(points: np.ndarray, label: np.ndarray) -> float:
    """Log likelihood of points and labels with a Gaussian for every label, by the Bayesian information criterion."""
    count, size = points.shape
    total = 0.0
    for state in np.unique(label):
        own = points[label == state]
        gap = own - own.mean(axis=0)
        covariance = gap.T @ gap / len(own)
        covariance += (LEAST_VARIANCE + ROUNDING * np.trace(covariance)) * np.eye(size)
        total += len(own) * (np.log(len(own) / count) - np.linalg.slogdet(covariance)[1] / 2)
        total -= (size * (size + 3) / 2 + 1) / 2 * np.log(count)
    return total


def without_tails(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Medians (feature,), and standard deviations of the features without their tails, 1 where these are 0."""
    low, centre, high = np.quantile(features, (CLIP, 0.5, 1 - CLIP), axis=0)
    gap = features - centre
    np.clip(gap, low - centre, high - centre, out=gap)
    gap -= gap.mean(axis=0)
    spread = np.sqrt(np.square(gap, out=gap).mean(axis=0))
    return centre, np.where(spread > 0, spread, 1)


class RobustClusters(NamedTuple):
    """Clusters of scaled features, (x - centre) / spread, and which frames are outliers.

    Attributes
    ----------
    centre, spread : (feature,), of :func:`without_tails`.
    centres : (cluster, feature), scaled.
    limits : (cluster,) squared distances beyond which frames are outliers.
    label, outlying : (frame,), the nearest cluster, and whether it is too far away.
    """

    centre: np.ndarray
    spread: np.ndarray
    centres: np.ndarray
    limits: np.ndarray
    label: np.ndarray
    outlying: np.ndarray


def clusters_without_outliers(
    rng: np.random.Generator, features: np.ndarray, count: int
) -> RobustClusters | None:
    """Clusters of frames that outliers do not draw; None where these have under a tenth of all squared distances."""
    if count < 1 or len(features) < count:
        return None
    centre, spread = without_tails(features)
    points = scaled(features, centre, spread)
    sample = points[rng.permutation(len(points))[:MAX_TRIMMED_FRAMES]]
    centres, limits = trimmed_clusters(rng, sample, count)
    label, distance = vq.vq(points, centres)
    square = np.square(distance, out=distance)
    outlying = square > limits[label]
    if np.sum(square, where=outlying) <= HEAVY * square.sum():
        return None
    return RobustClusters(centre, spread, centres, limits, label, outlying)


def trimmed_clusters(
    rng: np.random.Generator, points: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Centres (cluster, feature) of k-means, and squared distances (cluster,) from which points are outliers.

    Seeds are those of greedy k-means++ at capped squared distances; a few Lloyd iterations take means without outliers.
    Chawla and Gionis (2013), "k-means--: a unified approach to clustering and outlier detection", with a limit in place
    of a number of outliers.
    """
    centres = points[rng.integers(len(points), size=1)]
    square = np.sum((points - centres) ** 2, axis=1)
    for _ in range(count - 1):
        cap = np.quantile(square, CAP)
        weight = np.cumsum(np.minimum(square, cap))
        drawn = np.searchsorted(weight, weight[-1] * rng.random(CANDIDATES)).clip(max=len(points) - 1)
        each = np.minimum(square, cdist(points[drawn], points, "sqeuclidean"))
        best = int(np.argmin(np.minimum(each, cap).sum(axis=1)))
        square, centres = each[best], np.vstack([centres, points[drawn[best]]])
    for _ in range(LLOYD_ROUNDS + 1):
        label, distance = vq.vq(points, centres)
        square, limits = distance**2, np.full(count, np.inf)
        for cluster in range(count):
            own = label == cluster
            middle = np.median(square[own]) if own.any() else 0
            if middle > 0:
                limits[cluster] = FAR * middle
                centres[cluster] = points[own & (square <= limits[cluster])].mean(axis=0)
    return centres, limits


def cluster_centres(rng: np.random.Generator, points: np.ndarray, count: int, iterations: int) -> np.ndarray:
    """Centres (cluster, feature) of k-means++ seeds after so many Lloyd iterations; clusters may be empty."""
    centres = np.empty((count, points.shape[1]))
    for number in range(count):  # as scipy.cluster.vq.kmeans2, which warns of empty clusters
        at = rng.integers(len(points)) if number == 0 else 0
        if number:
            square = cdist(centres[:number], points, "sqeuclidean").min(axis=0)
            at = np.searchsorted((square / square.sum()).cumsum(), rng.uniform())
        centres[number] = points[at]
    for _ in range(iterations):
        label = vq.vq(points, centres)[0]
        size = np.bincount(label, minlength=count)
        sums = np.stack([np.bincount(label, column, count) for column in points.T], axis=1)
        centres = np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], centres)
    return centres


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
