"""Rough labels of frames: what each kind of start promises."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.cluster import vq

from ethogram.models.conjugate_model import ConjugateModel
from ethogram.models.data import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.roles import RoleHMM, starts
from ethogram.models.roles.starts import (
    START_KINDS,
    StartFrames,
    kmeans_plus_plus,
    label_frames,
    segments,
    sticky,
)


def blobs(rng, num_frames=300):
    """Frames of three places far apart, and which place each is of."""
    place = rng.integers(0, 3, num_frames)
    centres = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0]])
    return centres[place] + 0.3 * rng.normal(size=(num_frames, 2)), place


def same_partition(one, other):
    return len(set(zip(one.tolist(), other.tolist(), strict=True))) == len(set(one)) == len(set(other))


def frames(features, sequence):
    return StartFrames(lambda: features, sequence)


SEQUENCE = np.repeat([0, 1, 2, 5, 7], 60)


@pytest.mark.parametrize("kind", START_KINDS)
def test_labels_are_states_and_repeat_with_the_source(kind):
    """One for every frame, from 0 to num_states - 1; the same source gives the same labels, another others."""
    features, _ = blobs(np.random.default_rng(0))
    first, again, other = (
        label_frames(np.random.default_rng(seed), kind, frames(features, SEQUENCE), 4) for seed in (1, 1, 2)
    )
    assert first.shape == (300,)
    assert first.dtype.kind == "i"
    assert 0 <= first.min() <= first.max() < 4
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("kind", START_KINDS)
def test_units_of_length_change_nothing(kind):
    """Nor does an offset; a feature that never changes is no division by zero."""
    features, _ = blobs(np.random.default_rng(0))
    features = np.column_stack([features, np.full(300, 3.0)])
    plain, scaled = (
        label_frames(np.random.default_rng(1), kind, frames(x, SEQUENCE), 3)
        for x in (features, features * 64 - 1024)
    )
    assert np.array_equal(plain, scaled)


def test_kmeans_finds_places_far_apart():
    features, place = blobs(np.random.default_rng(0))
    found = [
        same_partition(kmeans_plus_plus(np.random.default_rng(s), features, 3), place) for s in range(10)
    ]
    assert sum(found) >= 8


def test_kmeans_with_fewer_places_than_states():
    """Equal points part at random into all states; fewer points than states are labelled all the same."""
    points = np.repeat([[0.0], [1.0]], 50, axis=0)
    labels = kmeans_plus_plus(np.random.default_rng(0), points, 5)
    assert len(set(labels)) == 5
    assert not set(labels[:50]) & set(labels[50:])
    few = kmeans_plus_plus(np.random.default_rng(0), np.array([[0.0], [1.0]]), 4)
    assert few.shape == (2,)
    assert set(few) <= set(range(4))


def test_kmeans_looks_for_centres_among_some_frames(monkeypatch):
    """All frames are labelled, though only a sample makes the centres."""
    monkeypatch.setattr(starts, "MAX_SEED_FRAMES", 60)
    features, place = blobs(np.random.default_rng(0))
    found = [
        same_partition(kmeans_plus_plus(np.random.default_rng(s), features, 3), place) for s in range(10)
    ]
    assert sum(found) >= 7


def test_sticky_keeps_a_sequence_in_one_state():
    """The state of the cluster of its mean: sequences at one place share it."""
    rng = np.random.default_rng(0)
    sequence = np.repeat(np.arange(8), 20)
    points = 10.0 * (sequence[:, None] % 2) + rng.normal(size=(160, 2))
    labels = sticky(np.random.default_rng(1), frames(points, sequence), 2).reshape(8, 20)
    assert (labels == labels[:, :1]).all()
    assert len(set(labels[::2, 0])) == len(set(labels[1::2, 0])) == 1
    assert labels[0, 0] != labels[1, 0]


def test_segments_cut_each_sequence_about_twice():
    """Labels change at random, 2 cuts a sequence on average (400 sequences, 4.5 standard errors)."""
    sequence = np.repeat(np.arange(400), 50)
    labels = segments(np.random.default_rng(0), frames(None, sequence), 1000).reshape(400, 50)
    cuts = (labels[:, 1:] != labels[:, :-1]).sum()
    mean = 400 * 49 * 0.04
    assert abs(cuts - mean) < 4.5 * np.sqrt(mean) + 0.002 * mean
    assert np.mean(labels[1:, 0] != labels[:-1, -1]) > 0.98


def with_outliers(kind, seed, share=0.01):
    """Three blobs with a hundredth of outliers, in a feature space of the kind; places, and which are outliers."""
    rng = np.random.default_rng(seed)
    features, place = blobs(rng, 2000)
    far = rng.random(2000) < share
    if kind == "one axis":
        features[far, 0] += 300 * rng.standard_t(3, size=far.sum())
    else:
        features[far] = rng.normal(size=(far.sum(), 2)) * 200
    if kind == "offset":
        features = 1e6 + features * (1e-3, 1e3)
    if kind == "wide":
        features = np.column_stack([features, features @ [1.0, -1.0], features @ [1.0, 2.0]])
    return features, place, far


@pytest.mark.parametrize("kind", ["plain", "one axis", "offset", "wide"])
def test_outliers_have_a_state_of_their_own(kind):
    """And leave a cluster to each place. Plain k-means++ finds all three in none of these starts, of four states."""
    right, plain = 0, 0
    for seed in range(12):
        features, place, far = with_outliers(kind, seed)
        beyond = far & (np.abs(features - np.median(features, 0)) > 20 * features[~far].std(0)).any(1)
        labels = label_frames(
            np.random.default_rng(seed), "kmeans++", frames(features, np.zeros(2000, int)), 4
        )
        right += same_partition(labels[~far], place[~far]) and set(labels[beyond]) == {3}
        scaled = (features - features.mean(0)) / features.std(0)
        plain += same_partition(kmeans_plus_plus(np.random.default_rng(seed), scaled, 4)[~far], place[~far])
    assert right >= 10 > 2 >= plain


def test_places_are_told_apart_however_far_outliers_are():
    """From 1e5 times the width of a place on, the comparison of labels saw none of their widths."""
    found = {60: 0, 1e8: 0}
    for seed in range(8):
        for size in found:
            rng = np.random.default_rng(seed)
            centre, place = 4 * rng.normal(size=(3, 2)), rng.integers(3, size=2000)
            far = rng.random(2000) < 0.01
            features = centre[place] + rng.normal(size=(2000, 2))
            features[far] = size * rng.normal(size=(far.sum(), 2))
            labels = label_frames(
                np.random.default_rng(seed), "kmeans++", frames(features, np.zeros(2000, int)), 4
            )
            shares = np.array([np.bincount(labels[~far & (place == at)], minlength=4) for at in range(3)])
            found[size] += shares.max(0)[:3].sum() / (~far).sum()
    assert found[1e8] == pytest.approx(found[60], abs=0.02)


def test_a_rare_place_far_away_has_a_state():
    features, place = blobs(np.random.default_rng(0), 1000)
    features[:30] += 20
    place[:30] = 3
    labels = label_frames(np.random.default_rng(1), "kmeans++", frames(features, np.zeros(1000, int)), 4)
    assert same_partition(labels, place)


@pytest.mark.parametrize("make", ["blobs", "one axis", "symbols", "few"])
def test_without_outliers_starts_are_those_of_plain_kmeans(make):
    rng = np.random.default_rng(0)
    features, _ = blobs(rng, 1000)
    if make == "one axis":  # nine features of no size
        features = np.column_stack([features[:, 0], 1e-3 * rng.normal(size=(1000, 9))])
    elif make == "symbols":  # of which half are equal
        features = rng.poisson(0.5, size=(1000, 1)).astype(float)
    elif make == "few":
        features = features[:3]
    scaled = (features - features.mean(0)) / features.std(0)
    labels = label_frames(
        np.random.default_rng(1), "kmeans++", frames(features, np.zeros(len(features), int)), 4
    )
    np.testing.assert_array_equal(labels, kmeans_plus_plus(np.random.default_rng(1), scaled, 4))


def test_unknown_kind_is_refused():
    with pytest.raises(ValueError, match=r"kind must be .* or 'segments', not 'random'"):
        label_frames(np.random.default_rng(0), "random", frames(np.zeros((3, 1)), np.zeros(3, int)), 2)


def test_clusters_are_those_of_scipy_with_the_same_draws():
    """Which warns of empty clusters, and so would change the filters of all threads."""
    points = np.random.default_rng(1).normal(size=(200, 3))
    found = starts.cluster_centres(np.random.default_rng(0), points, 4, 5)
    wanted, _ = vq.kmeans2(points, 4, iter=5, minit="++", rng=np.random.default_rng(0))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_starts_of_several_fits_are_those_of_each():
    """The same labels as alone, also beside fits with outliers, gaps and fewer frames than roles."""
    model = RoleHMM(3, GaussianEmission(2))
    fits, words = [], []
    for number, length in enumerate((2, 9, 25, 25, 40, 31)):
        random = np.random.default_rng(number)
        x = random.normal(size=(length, 2)) + 4 * (np.arange(length)[:, None] // 5 % 3)
        if number == 3:
            x[7] = 500.0
        if number == 4:
            x[5] = np.nan
        if number == 5:
            x[6, 0] = np.nan
        data = Trajectories.from_list([x, x[:1]], missing="nan")
        bound = model.bind(data)
        fits.append((bound, bound.start_data([bound.arrange(data)])))
        words.append([number, 17])
    kinds = {number: kind for number, kind in enumerate(model.start_kinds * 3)}
    together = RoleHMM.starts_of_fits(fits, words, kinds)
    for fit, own, found in zip(fits, words, together, strict=True):
        alone = ConjugateModel.starts_of_fits([fit], [own], kinds)[0]
        for x, y in zip(jax.tree.leaves(found), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-9)
