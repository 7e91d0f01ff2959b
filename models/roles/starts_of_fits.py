"""Starts of several small fits at once: those of :mod:`ethogram.models.roles.starts`, with k-means side by side.

Rows are starts of k-means, of whatever fit; frames are padded. Random numbers are those that each start draws alone.
Where frames have outliers or gaps, or are fewer than states, a start is made alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram.models.families.exponential_family import DirichletCoordinates
from ethogram.models.roles.starts import (
    CANDIDATES,
    CAP,
    CLIP,
    FAR,
    HEAVY,
    LLOYD_ROUNDS,
    StartData,
    label_frames,
    start_statistics,
)

__all__ = ["MOST_FRAMES", "statistics_of_fits"]

MOST_FRAMES = 2**10
"""Frames of a fit up to which its starts are made beside others."""


def statistics_of_fits(
    fits: Sequence[tuple[Any, StartData]], words: Sequence[Sequence[int]], kinds: Mapping[int, str]
) -> list[dict[str, Any]]:
    """Statistics (start, ...) by block of the rough labels of each fit, as `RoleHMM.starts_of_fits` takes them."""
    num_roles = fits[0][0].num_roles
    plain = [_is_plain(data, num_roles) for _, data in fits]
    some = [data for (_, data), is_plain in zip(fits, plain, strict=True) if is_plain]
    own_words = [own for own, is_plain in zip(words, plain, strict=True) if is_plain]
    seeds = [(*own, start) for own in own_words for start, kind in kinds.items() if kind == "kmeans++"]
    labels = dict(zip(seeds, _kmeans(some, seeds, num_roles) if seeds else (), strict=True))

    def start(data: StartData, seed: tuple[int, ...], kind: str) -> np.ndarray:
        found = labels.get(seed)
        return (
            label_frames(np.random.default_rng(seed), kind, data.points, num_roles)
            if found is None
            else found
        )

    found = []
    for (model, data), own, is_plain in zip(fits, words, plain, strict=True):
        seeded = [((*own, number), kind) for number, kind in kinds.items()]
        if is_plain:
            rows = np.stack([start(data, *each) for each in seeded])
            found.append(_statistics(model, data, rows))
        else:
            each = [start_statistics(model, np.random.default_rng(seed), kind, data) for seed, kind in seeded]
            found.append(jax.tree.map(lambda *x: np.stack(x), *each))
    return found


def _is_plain(data: StartData, num_roles: int) -> bool:
    """Whether every step is a frame with all features, and the frames are few and many enough to be clustered."""
    (chain,), (observed,), (alive,) = data.chains[:1], data.observed[:1], data.alive[:1]
    whole = len(data.chains) == 1 and chain.states is None and np.array_equal(observed, alive)
    if not whole or not num_roles <= len(data.points.sequence) <= MOST_FRAMES:
        return False
    if any(np.isnan(x).any() for x in jax.tree.leaves(data.frames) if x.dtype.kind == "f"):
        return False
    return len({*data.points.features[:, 0].tolist()}) >= num_roles


def _statistics(model: Any, data: StartData, labels: np.ndarray) -> dict[str, Any]:
    """Statistics (start, ...) by block of labels (start, frame) of all frames."""
    count, num_roles = len(labels), model.num_roles
    sequence = data.points.sequence
    enters = np.append(True, sequence[1:] != sequence[:-1])
    own = labels + num_roles * np.arange(count)[:, None]
    initial = np.bincount(own[:, enters].ravel(), minlength=count * num_roles)
    pair = (num_roles * own[:, :-1] + labels[:, 1:])[:, ~enters[1:]]
    transition = np.bincount(pair.ravel(), minlength=count * num_roles**2)
    return {
        "initial": DirichletCoordinates(initial.reshape(count, num_roles).astype(float)),
        "transition": DirichletCoordinates(transition.reshape(count, num_roles, num_roles).astype(float)),
        **model.emission.statistics_of_labels(data.frames, labels, num_roles),
    }


class Rows(NamedTuple):
    """Frames of starts, padded with zeros."""

    points: np.ndarray  # (row, frame, feature)
    inside: np.ndarray  # (row, frame)


def _kmeans(data: list[StartData], seeds: list[tuple[int, ...]], num_states: int) -> list[np.ndarray | None]:
    """Labels of frames by k-means++, one per seed; every data set has as many seeds. None where there are outliers."""
    counts = np.array([len(one.points.sequence) for one in data])
    inside = np.arange(counts.max()) < counts[:, None]
    features = np.zeros((*inside.shape, data[0].points.features.shape[1]))
    for target, one, count in zip(features, data, counts.tolist(), strict=True):
        target[:count] = one.points.features
    fit = np.repeat(np.arange(len(data)), len(seeds) // len(data))
    drawn = [_drawn(seed, int(counts[one]), num_states) for seed, one in zip(seeds, fit, strict=True)]
    order = np.zeros((len(fit), inside.shape[1]), int)
    for target, (permuted, *_) in zip(order, drawn, strict=True):
        target[: len(permuted)] = permuted
    frames = Rows(_without_tails(features, inside, counts), inside)
    shuffled = Rows(np.take_along_axis(frames.points[fit], order[..., None], axis=1), inside[fit])
    firsts, shares, seed, share = (np.array(each) for each in list(zip(*drawn, strict=True))[1:])
    centres, limits = _trimmed(shuffled, counts[fit], firsts, shares)
    square, label = _nearest(shuffled, centres)
    far = np.sum(square, axis=1, where=square > np.take_along_axis(limits, label, axis=1))
    plain = far <= HEAVY * square.sum(axis=1)
    scaled = Rows(_unit_spread(features, inside, counts)[fit], inside[fit])
    found = _nearest(scaled, _lloyd(scaled, _seeds(scaled, seed, share)))[1]
    return [
        own[:count] if good else None
        for own, count, good in zip(found, counts[fit].tolist(), plain, strict=True)
    ]


def _drawn(
    seed: tuple[int, ...], count: int, num_states: int
) -> tuple[np.ndarray, int, np.ndarray, int, np.ndarray]:
    """What a start draws: order, first seed and shares of candidates of trimmed clusters; the same of plain ones."""
    rng = np.random.default_rng(seed)
    apart = rng.spawn(1)[0]
    apart.random()
    order, first = apart.permutation(count), int(apart.integers(count, size=1)[0])
    candidates = apart.random((max(num_states - 2, 0), CANDIDATES))
    return order, first, candidates, int(rng.integers(count)), rng.random(num_states - 1)


def _without_tails(x: np.ndarray, inside: np.ndarray, counts: np.ndarray) -> np.ndarray:
    low, centre, high = (_quantile(x, inside, counts, share)[:, None] for share in (CLIP, 0.5, 1 - CLIP))
    gap = np.clip(x - centre, low - centre, high - centre)
    spread = _spread(gap, inside, counts)
    return np.where(inside[..., None], (x - centre) / spread, 0)


def _unit_spread(x: np.ndarray, inside: np.ndarray, counts: np.ndarray) -> np.ndarray:
    mean = np.sum(x, axis=1, keepdims=True) / counts[:, None, None]
    return np.where(inside[..., None], (x - mean) / _spread(x, inside, counts), 0)


def _spread(x: np.ndarray, inside: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Standard deviations (row, 1, feature), 1 where they are 0."""
    size, kept = counts[:, None, None], inside[..., None]
    gap = np.where(kept, x - np.sum(x, axis=1, keepdims=True, where=kept) / size, 0)
    spread = np.sqrt(np.sum(gap**2, axis=1, keepdims=True) / size)
    return np.where(spread > 0, spread, 1)


def _quantile(x: np.ndarray, inside: np.ndarray, counts: np.ndarray, share: float) -> np.ndarray:
    """Quantiles (row, ...) of values (row, frame, ...), interpolated linearly."""
    mask = inside.reshape(*inside.shape, *(1,) * (x.ndim - 2))
    ordered = np.sort(np.where(mask, x, np.inf), axis=1)
    place = (counts - 1) * share
    below = np.floor(place).astype(int)
    rows = np.arange(len(x))
    low, high = ordered[rows, below], ordered[rows, np.minimum(below + 1, counts - 1)]
    part = (place - below).reshape(-1, *(1,) * (low.ndim - 1))
    return low + (high - low) * part


def _squares(rows: Rows, centres: np.ndarray) -> np.ndarray:
    """Squared distances (row, centre, frame), 0 in padding."""
    gap = centres[:, :, None] - rows.points[:, None]
    return np.where(rows.inside[:, None], np.einsum("rcnd,rcnd->rcn", gap, gap), 0)


def _nearest(rows: Rows, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Squared distance to the nearest centre, and its number, (row, frame)."""
    squares = _squares(rows, centres)
    return squares.min(axis=1), squares.argmin(axis=1)


def _seeds(rows: Rows, first: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Centres (row, cluster, feature) by the draws of k-means++."""
    row = np.arange(len(first))
    centres = rows.points[row, first][:, None]
    for share in shares.T:
        square, _ = _nearest(rows, centres)
        weight = np.cumsum(square / square.sum(axis=1, keepdims=True), axis=1)
        at = np.sum(weight < share[:, None], axis=1)
        centres = np.concatenate([centres, rows.points[row, at][:, None]], axis=1)
    return centres


def _lloyd(rows: Rows, centres: np.ndarray) -> np.ndarray:
    """Centres after Lloyd iterations; clusters may be empty."""
    for _ in range(LLOYD_ROUNDS):
        centres = _means(rows, _members(rows, _nearest(rows, centres)[1], centres.shape[1]), centres)
    return centres


def _members(rows: Rows, label: np.ndarray, count: int) -> np.ndarray:
    """Whether frames (row, cluster, frame) are of a cluster."""
    return (label[:, None] == np.arange(count)[:, None]) & rows.inside[:, None]


def _means(rows: Rows, member: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Means of clusters; the centres of those without a frame."""
    size = member.sum(axis=2)[..., None]
    return np.where(size > 0, member.astype(float) @ rows.points / np.maximum(size, 1), centres)


def _trimmed(
    rows: Rows, counts: np.ndarray, first: np.ndarray, shares: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As :func:`ethogram.models.roles.starts.trimmed_clusters` of each row: centres, and limits (row, cluster)."""
    row = np.arange(len(first))
    centres = rows.points[row, first][:, None]
    square = _squares(rows, centres)[:, 0]
    for share in np.moveaxis(shares, 1, 0):
        cap = _quantile(square, rows.inside, counts, CAP)[:, None]
        weight = np.cumsum(np.minimum(square, cap), axis=1)
        at = np.sum(weight[:, None] < (weight[:, -1:] * share)[..., None], axis=2)
        drawn = rows.points[row[:, None], np.minimum(at, counts[:, None] - 1)]
        each = np.minimum(square[:, None], _squares(rows, drawn))
        best = np.minimum(each, cap[:, None]).sum(axis=2).argmin(axis=1)
        square = each[row, best]
        centres = np.concatenate([centres, drawn[row, best][:, None]], axis=1)
    for _ in range(LLOYD_ROUNDS + 1):
        square, label = _nearest(rows, centres)
        member = _members(rows, label, centres.shape[1])
        limits = FAR * _median(square, member)
        near = member & (square[:, None] <= limits[..., None])
        centres = np.where(limits[..., None] > 0, _means(rows, near, centres), centres)
        limits = np.where(limits > 0, limits, np.inf)
    return centres, limits


def _median(values: np.ndarray, member: np.ndarray) -> np.ndarray:
    """Medians (row, cluster) of values (row, frame) of the members of clusters; 0 without one."""
    size = member.sum(axis=2, keepdims=True)
    ordered = np.sort(np.where(member, values[:, None], np.inf), axis=2)
    low, high = (
        np.take_along_axis(ordered, np.maximum(at, 0), axis=2) for at in ((size - 1) // 2, size // 2)
    )
    return np.where(size > 0, (low + high) / 2, 0)[..., 0]
