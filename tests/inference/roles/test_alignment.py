"""Label matching against brute force over permutations, and shares counted frame by frame."""

import itertools
from collections import Counter

import jax.numpy as jnp
import numpy as np
import pytest

from ethogram.inference.roles.alignment import (
    align_states,
    consistency,
    duplicate_share,
    lineup_agreement,
    matched_hamming,
    relabel,
)


def most_agreements(rows, columns, num_rows, num_columns):
    """Most steps on which `rows`, relabelled one to one, equal `columns`; by trying every relabelling."""
    targets = list(range(num_columns)) + [-1] * max(0, num_rows - num_columns)
    return max(
        sum(relabelling[row] == column for row, column in zip(rows, columns, strict=True))
        for relabelling in set(itertools.permutations(targets, num_rows))
    )


@pytest.mark.parametrize(("num_reference", "num_estimate"), [(1, 1), (3, 3), (4, 2), (2, 5), (4, 6), (1, 4)])
def test_matching_equals_brute_force(num_reference, num_estimate):
    for seed in range(5):
        rng = np.random.default_rng([seed, num_reference, num_estimate])
        reference = rng.integers(-1, num_reference, size=(3, 7))
        estimate = rng.integers(-1, num_estimate, size=(3, 7))
        reference[0, :2], estimate[0, :2] = num_reference - 1, num_estimate - 1
        permutation, hamming = align_states(reference, estimate)
        valid = (reference >= 0) & (estimate >= 0)
        best = most_agreements(estimate[valid], reference[valid], num_estimate, num_reference)
        assert hamming == pytest.approx(1 - best / valid.sum(), abs=1e-15)
        assert hamming == pytest.approx(
            np.mean((relabel(estimate, permutation) != reference)[valid]), abs=1e-15
        )
        assert permutation.shape == (num_estimate,)
        matched = permutation[permutation >= 0]
        assert len(set(matched)) == len(matched) == min(num_reference, num_estimate)


def test_unmatched_labels_count_as_wrong():
    permutation, hamming = align_states(np.zeros(4, int), jnp.array([0, 1, 2, 3]))
    assert list(permutation) == [0, -1, -1, -1]
    assert hamming == 0.75
    assert isinstance(hamming, float)


def test_a_matching_of_training_data_judges_test_data():
    """Labels 0 and 1 swapped, 2 without a match: of five labelled steps the first and the last are wrong."""
    permutation = align_states([0, 0, 1, 1, 1], [1, 1, 0, 0, 2]).permutation
    assert list(permutation) == [1, 0, -1]
    test = np.array([[0, 1, 0], [1, 0, -1]]), np.array([[0, 0, 1], [0, 2, 1]])
    assert matched_hamming(*test, permutation) == 0.4
    train = np.random.default_rng(0).integers(0, 4, (2, 3, 8))
    permutation, hamming = align_states(*train)
    assert matched_hamming(*train, permutation) == pytest.approx(hamming, abs=1e-15)
    with pytest.raises(ValueError, match=r"reference has shape \(2,\), estimate \(1,\)"):
        matched_hamming([0, 1], [0], permutation)
    with pytest.raises(ValueError, match="no step has a label"):
        matched_hamming([-1], [0], permutation)
    with pytest.raises(ValueError, match="labels has 4, permutation ends at 3"):
        matched_hamming([0], [4], permutation)


def test_num_states_completes_the_permutation():
    permutation, hamming = align_states([0, 0, 2], [1, 1, 0], num_states=4)
    assert sorted(permutation) == [0, 1, 2, 3]
    assert (permutation[1], permutation[0], hamming) == (0, 2, 0.0)


def test_relabel_keeps_missing_labels():
    np.testing.assert_array_equal(relabel([[0, 1], [-1, 2]], [2, -1, 0]), [[2, -1], [-1, 0]])
    with pytest.raises(ValueError, match="labels has 3, permutation ends at 2: align with num_states=4"):
        relabel([3], [0, 1, 2])
    with pytest.raises(ValueError, match="permutation has shape"):
        relabel([0], [[0]])


def random_play(seed):
    """Roles (sequence, time), agent, group and lengths of three groups of three to four agents."""
    rng = np.random.default_rng(seed)
    group = np.repeat([5, 9, 2], [3, 4, 3])
    agent = np.concatenate([rng.permutation(6)[:size] for size in (3, 4, 3)])
    lengths = np.repeat([6, 3, 8], [3, 4, 3])
    roles = rng.integers(0, 5, size=(10, 8))
    roles[np.arange(8) >= lengths[:, None]] = -1
    return roles, agent, group, lengths


def frames(roles):
    return [(sequence, time) for sequence, time in np.ndindex(roles.shape) if roles[sequence, time] >= 0]


@pytest.mark.parametrize("seed", range(4))
def test_shares_equal_counting_frame_by_frame(seed):
    roles, agent, group, lengths = random_play(seed)
    held = {player: Counter() for player in set(agent)}
    for sequence, time in frames(roles):
        held[agent[sequence]][roles[sequence, time]] += 1
    expected = sum(counter.most_common(1)[0][1] for counter in held.values()) / len(frames(roles))
    assert consistency(roles, agent) == pytest.approx(expected, rel=1e-15)

    teams: dict = {}
    for sequence, time in frames(roles):
        teams.setdefault((group[sequence], time), []).append(roles[sequence, time])
    expected = np.mean([len(set(team)) < len(team) for team in teams.values()])
    assert duplicate_share(roles, group, lengths) == pytest.approx(expected, rel=1e-15)

    place = np.array([11, 4, 4, 7, 2, 9])
    pairs = [(roles[sequence, time], place[agent[sequence]]) for sequence, time in frames(roles)]
    names = sorted({name for _, name in pairs})
    best = most_agreements(
        [role for role, _ in pairs], [names.index(name) for _, name in pairs], 5, len(names)
    )
    assert lineup_agreement(roles, agent, place) == pytest.approx(best / len(pairs), rel=1e-15)


def test_perfect_roles():
    roles = np.repeat([[2], [0], [1]], 4, axis=1)
    assert consistency(roles, [0, 1, 2]) == 1.0
    assert duplicate_share(roles, [0, 0, 0], [4, 4, 4]) == 0.0
    assert duplicate_share(roles, [0, 0, 0], [4, 4, 2]) == 0.0
    assert duplicate_share(np.zeros((2, 4), int), [0, 0], [4, 2]) == 0.5
    seen = np.array([[True, True, True, True], [False, True, True, True]])
    assert duplicate_share(np.zeros((2, 4), int), [0, 0], [4, 4], seen) == 0.75
    alone = np.zeros((3, 4), int)  # of whom two have no group, and no agent
    assert duplicate_share(alone, [-1, 3, -1], [4, 4, 4]) == 0.0
    assert duplicate_share(alone, [-1, 3, 3], [4, 4, 4]) == 0.5
    assert consistency(np.array([[0], [1], [2]]), [-1, 4, -1]) == 1.0
    assert lineup_agreement(roles, [0, 1, 2], [3, 7, 5]) == 1.0


@pytest.mark.parametrize(
    ("reference", "estimate", "error", "message"),
    [
        ([0, 1], [0, 1, 1], ValueError, r"shape \(2,\), estimate \(3,\)"),
        ([0, -1], [-1, 0], ValueError, "no step has a label"),
        ([], np.zeros(0, int), TypeError, "reference has dtype float64"),
        ([0, 1], [0.0, 1.0], TypeError, "estimate has dtype float64"),
        ([0, -2], [0, 1], ValueError, "reference has the label -2"),
    ],
)
def test_bad_labels_are_refused(reference, estimate, error, message):
    with pytest.raises(error, match=message):
        align_states(reference, estimate)


def test_bad_roles_are_refused():
    roles = np.zeros((2, 3), int)
    with pytest.raises(ValueError, match=r"roles has shape \(3,\)"):
        consistency(np.zeros(3, int), [0])
    with pytest.raises(ValueError, match="holds no role"):
        consistency(np.full((2, 3), -1), [0, 1])
    with pytest.raises(ValueError, match=r"agent has shape \(3,\), roles has 2 sequences"):
        consistency(roles, [0, 1, 2])
    with pytest.raises(ValueError, match="lengths reaches 4, roles has 3 frames"):
        duplicate_share(roles, [0, 0], [3, 4])
    with pytest.raises(ValueError, match=r"agent is in 0\.\.2, but place has 2 entries"):
        lineup_agreement(roles, [0, 2], [1, 2])
