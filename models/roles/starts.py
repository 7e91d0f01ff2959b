"""Starts of a role HMM: statistics of rough labels of every step, in float64 NumPy, where nothing compiles."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
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
    "SHARED_NUMBERS",
    "START_KINDS",
    "StartData",
    "StartFrames",
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
    "without_tails",
]

START_KINDS = ("kmeans++", "sticky", "segments")

MAX_SEED_FRAMES = 10_000
"""Frames that k-means is run on, at most."""

MAX_TRIMMED_FRAMES = 2_000
"""Frames that clusters without outliers are sought in, at most."""

SHARED_NUMBERS = 2**20
"""Numbers of observations up to which starts share what they make of them, and hold it in memory."""

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


class StartFrames:
    """Observed frames of all sequences, one sequence after another, and what starts make of them, each once.

    Parameters
    ----------
    features : a function that gives them (frame, feature).
    sequence : (frame,), the number of each frame's sequence, ascending.
    """

    def __init__(self, features: Callable[[], np.ndarray], sequence: np.ndarray):
        self._features, self.sequence = features, sequence

    @functools.cached_property
    def features(self) -> np.ndarray:
        """(frame, feature)."""
        return np.asarray_chkfinite(self._features())

    @functools.cached_property
    def scaled(self) -> np.ndarray:
        """The features with mean 0 and standard deviation 1."""
        return unit_spread(self.features)

    @functools.cached_property
    def trimmed(self) -> TrimmedFrames:
        """The features relative to medians, scaled without their tails."""
        return without_tails(self.features)

    @functools.cached_property
    def of_sequences(self) -> tuple[np.ndarray, np.ndarray]:
        """Which of the sequences with frames that of each frame is (frame,), and how many frames each has."""
        _, unit, counts = np.unique(self.sequence, return_inverse=True, return_counts=True)
        return unit, counts


class StartData:
    """Batches as the ``arrange`` of a role HMM gives them, and what all starts take from them, each once."""

    def __init__(self, model: Any, batches: list[Any]):
        self.batches = batches
        self.chains = [batch.chains if isinstance(batch, GroupedChains) else batch for batch in batches]
        self.observed = [np.asarray(chain.observed) for chain in self.chains]
        self.start_features = model.emission.start_features
        counts = np.concatenate([seen.sum(axis=1) for seen in self.observed])
        sequence = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self.points = StartFrames(self._features, sequence)

    @classmethod
    def of(cls, model: Any, batches: Any) -> StartData:
        """Batches in this form, in which they may be."""
        return batches if isinstance(batches, StartData) else cls(model, batches)

    def _features(self) -> np.ndarray:
        each = [
            _chosen(self.start_features(frames_on_host(chain.observations), seen), seen)
            for chain, seen in zip(self.chains, self.observed, strict=True)
        ]
        return _joined(each)

    @functools.cached_property
    def frames(self) -> Any:
        """Observed frames (frame, ...) as they are arranged."""
        return chosen_frames([chain.observations for chain in self.chains], self.observed)

    @functools.cached_property
    def alive(self) -> list[np.ndarray]:
        """Steps (sequence, time) within their lengths, by batch."""
        return [
            np.arange(seen.shape[1]) < np.asarray(chain.lengths)[:, None]
            for chain, seen in zip(self.chains, self.observed, strict=True)
        ]


def start_statistics(model: Any, rng: np.random.Generator, kind: str, data: StartData) -> dict[str, Any]:
    """Statistics by block of rough labels of every step."""
    labels = model.coupling.start_labels(model, rng, kind, data)
    if model.emission.differs_by_state:
        labels = _nearest_prior(model, data.chains, labels)
    return label_statistics(model, rng, labels, data)


def label_statistics(
    model: Any, rng: np.random.Generator, labels: list[np.ndarray], data: StartData
) -> dict[str, Any]:
    """Statistics by block of labels (sequence, time) of every step; known roles take their place."""
    num_roles = model.num_roles
    for chain, label in zip(data.chains, labels, strict=True):
        if chain.states is not None:
            np.copyto(label, chain.states, where=np.asarray(chain.states) >= 0)
    held = _joined([label[seen] for label, seen in zip(labels, data.observed, strict=True)])
    statistics = model.emission.label_statistics(rng, data.frames, held, num_roles)
    if not model.coupling.has_chain:
        return statistics
    initial, transition = np.zeros(num_roles), np.zeros((num_roles, num_roles))
    for label, alive in zip(labels, data.alive, strict=True):
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


def rough_labels(rng: np.random.Generator, kind: str, data: StartData, num_roles: int) -> list[np.ndarray]:
    """Labels of every step; a step that was not observed takes that of the one before."""
    observed = data.observed
    if len(data.points.sequence) == 0:
        return [rng.integers(num_roles, size=seen.shape) for seen in observed]
    held = label_frames(rng, kind, data.points, num_roles)
    parts = np.split(held, np.cumsum([int(seen.sum()) for seen in observed])[:-1]) if observed[1:] else [held]
    labels = []
    for seen, own in zip(observed, parts, strict=True):
        if len(own) == seen.size:
            labels.append(own.reshape(seen.shape))
            continue
        label = np.zeros(seen.shape, dtype=np.int64)
        label[seen] = own
        last = np.maximum.accumulate(np.where(seen, np.arange(seen.shape[1]), -1), axis=1)
        at = np.where(last < 0, np.argmax(seen, axis=1)[:, None], last)
        labels.append(np.take_along_axis(label, at, axis=1))
    return labels


def label_frames(rng: np.random.Generator, kind: str, frames: StartFrames, num_states: int) -> np.ndarray:
    """Labels (frame,) of a start of one of the :data:`START_KINDS`, at features scaled to unit spread."""
    require_one_of("kind", kind, START_KINDS)
    if kind == "segments":
        return segments(rng, frames, num_states)
    if kind == "sticky":
        return sticky(rng, frames, num_states)
    apart = apart_from_outliers(rng.spawn(1)[0], frames, num_states)
    plain = kmeans_plus_plus(rng, frames.scaled, num_states)
    if not apart:
        return plain
    return max([plain, *apart], key=lambda label: gaussian_score(frames.trimmed.points, label))


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
    if not _has_distinct(sample, num_states):  # split ties at random
        sample = sample + 1e-3 * rng.standard_normal(sample.shape)
        points = points + 1e-3 * rng.standard_normal(points.shape)
    if len(sample) < num_states:
        return rng.integers(num_states, size=len(points))
    centres = cluster_centres(rng, sample, num_states, LLOYD_ROUNDS)
    return vq.vq(points, centres, check_finite=False)[0].astype(np.int64)


def _has_distinct(points: np.ndarray, count: int) -> bool:
    """Whether so many points differ; most often their first features do, which is found sooner."""
    if len(points) < count:
        return False
    return len(set(points[:, 0].tolist())) >= count or len(np.unique(points, axis=0)) >= count


def apart_from_outliers(rng: np.random.Generator, frames: StartFrames, num_states: int) -> list[np.ndarray]:
    """Labels with all but one state for clusters, of which one has all outliers; none without outliers.

    Seeds of k-means++, whose probability is a squared distance, fall on outliers, and leave one state for all else. A
    third of the draws have labels with fewer clusters too: a state that describes little costs more than it explains.
    """
    found: list[np.ndarray] = []
    fewer = 1 if rng.random() < 1 / 3 else 0
    for count in [max(num_states - 1 - fewer * number, 1) for number in range(TRIES)]:
        clusters = clusters_without_outliers(rng, frames.trimmed, count)
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


class TrimmedFrames(NamedTuple):
    """Frames whose scale their tails do not set.

    Attributes
    ----------
    centre, spread : (feature,), medians, and standard deviations without the tails, 1 where these are 0.
    points : (frame, feature), (x - centre) / spread.
    """

    centre: np.ndarray
    spread: np.ndarray
    points: np.ndarray


def without_tails(features: np.ndarray) -> TrimmedFrames:
    """Features (frame, feature) relative to their medians, over their standard deviations without their tails."""
    low, centre, high = np.quantile(features, (CLIP, 0.5, 1 - CLIP), axis=0)
    gap = features - centre
    np.clip(gap, low - centre, high - centre, out=gap)
    gap -= gap.mean(axis=0)
    spread = np.sqrt(np.square(gap, out=gap).mean(axis=0))
    spread = np.where(spread > 0, spread, 1)
    return TrimmedFrames(centre, spread, scaled(features, centre, spread))


class RobustClusters(NamedTuple):
    """Clusters of trimmed frames, and which of these are outliers.

    Attributes
    ----------
    centres : (cluster, feature), scaled.
    limits : (cluster,) squared distances beyond which frames are outliers.
    label, outlying : (frame,), the nearest cluster, and whether it is too far away.
    """

    centres: np.ndarray
    limits: np.ndarray
    label: np.ndarray
    outlying: np.ndarray


def clusters_without_outliers(
    rng: np.random.Generator, frames: TrimmedFrames, count: int
) -> RobustClusters | None:
    """Clusters of frames that outliers do not draw; None where these have under a tenth of all squared distances."""
    points = frames.points
    if count < 1 or len(points) < count:
        return None
    sample = points[rng.permutation(len(points))[:MAX_TRIMMED_FRAMES]]
    centres, limits = trimmed_clusters(rng, sample, count)
    label, distance = vq.vq(points, centres, check_finite=False)
    square = np.square(distance, out=distance)
    outlying = square > limits[label]
    if np.sum(square, where=outlying) <= HEAVY * square.sum():
        return None
    return RobustClusters(centres, limits, label, outlying)


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
        label, square = _nearest(points, centres)
        limits, before = np.full(count, np.inf), centres.copy()
        for cluster in range(count):
            own = label == cluster
            middle = _median(square[own]) if own.any() else 0
            if middle > 0:
                limits[cluster] = FAR * middle
                centres[cluster] = points[own & (square <= limits[cluster])].mean(axis=0)
        if np.array_equal(centres, before):  # as they will be in all further rounds
            break
    return centres, limits


def _nearest(points: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest centre of every one of few points, and the squared distance to it."""
    square = cdist(points, centres, "sqeuclidean")
    return square.argmin(axis=1), square.min(axis=1)


def _median(values: np.ndarray) -> float:
    """The median of some numbers, for which NumPy takes several times as long where they are few."""
    low, high = (len(values) - 1) // 2, len(values) // 2
    parted = np.partition(values, (low, high))
    return (parted[low] + parted[high]) / 2


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
        label, _ = _nearest(points, centres)
        size = np.bincount(label, minlength=count)
        sums = np.stack([np.bincount(label, column, count) for column in points.T], axis=1)
        moved = np.where(size[:, None] > 0, sums / np.maximum(size, 1)[:, None], centres)
        if np.array_equal(moved, centres):
            break
        centres = moved
    return centres


def sticky(rng: np.random.Generator, frames: StartFrames, num_states: int) -> np.ndarray:
    """Every sequence in one state throughout: k-means of the sequences' means."""
    unit, counts = frames.of_sequences
    means = np.stack([np.bincount(unit, column) / counts for column in frames.scaled.T], axis=1)
    return kmeans_plus_plus(rng, means, num_states)[unit]


def segments(rng: np.random.Generator, frames: StartFrames, num_states: int) -> np.ndarray:
    """Sequences cut at random into about three segments, each in a state drawn at random."""
    unit, counts = frames.of_sequences
    enters = np.append(True, unit[1:] != unit[:-1])
    cuts = enters | (rng.random(len(unit)) < 2 / counts[unit])
    return rng.integers(num_states, size=len(unit) + 1)[np.cumsum(cuts)]
