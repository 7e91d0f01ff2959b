"""Buckets against every partition of small length lists, and their size limits on large ones."""

import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ethogram.models.data.buckets import bucket_indices


def fewest_by_enumeration(lengths: list[int], max_waste: float) -> tuple[int, int]:
    """Number of runs and of cells of the best partition of the sorted lengths, ties of length together."""
    distinct = sorted(set(lengths))
    for num_runs in range(1, len(distinct) + 1):
        cells = []
        for cuts in itertools.combinations(range(1, len(distinct)), num_runs - 1):
            edges = [0, *cuts, len(distinct)]
            runs = [distinct[a:b] for a, b in itertools.pairwise(edges)]
            cells.append(sum(run[-1] * sum(length in run for length in lengths) for run in runs))
        if min(cells) - sum(lengths) <= max_waste * min(cells):
            return num_runs, min(cells)
    raise AssertionError


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 30), min_size=1, max_size=12),
    st.sampled_from([0, 0.02, 0.05, 0.1, 0.25, 0.6]),
)
def test_as_few_buckets_and_cells_as_any_partition(lengths, max_waste):
    buckets = bucket_indices(lengths, max_waste)
    lengths_of = [np.array(lengths)[rows] for rows in buckets]
    cells = sum(int(run.max()) * len(run) for run in lengths_of)
    assert (len(buckets), cells) == fewest_by_enumeration(lengths, max_waste)
    assert sorted(np.concatenate(buckets).tolist()) == list(range(len(lengths)))
    assert all((np.diff(rows) > 0).all() for rows in buckets)
    assert all(a.max() < b.min() for a, b in itertools.pairwise(lengths_of))


def test_many_distinct_lengths_against_the_full_recursion():
    lengths = np.random.default_rng(0).integers(1, 400, 3000)
    distinct, counts = np.unique(lengths, return_counts=True)
    below = np.concatenate([[0], np.cumsum(counts)])
    cells = np.full(len(distinct) + 1, np.inf)
    cells[0] = 0
    num_runs = 0
    while 0.97 * cells[-1] > lengths.sum():
        table = cells[None, :-1] + distinct[:, None] * (below[1:, None] - below[None, :-1])
        table[np.triu_indices(len(distinct), 1)] = np.inf
        cells = np.concatenate([[np.inf], table.min(axis=1)])
        num_runs += 1
    buckets = bucket_indices(lengths, 0.03)
    assert len(buckets) == num_runs
    assert sum(lengths[rows].max() * len(rows) for rows in buckets) == cells[-1]


def test_no_loop_over_sequences():
    """Calls are counted, which a loop over sequences would make by the hundred thousand."""
    lengths = np.random.default_rng(1).integers(1, 2000, 100_000)
    calls = []
    sys.setprofile(lambda frame, event, argument: calls.append(event))
    try:
        buckets = bucket_indices(lengths, 0.1)
    finally:
        sys.setprofile(None)
    assert len(calls) < 10_000
    cells = sum(lengths[rows].max() * len(rows) for rows in buckets)
    assert cells - lengths.sum() <= 0.1 * cells


def test_sequences_without_frames_count_as_one_frame():
    assert [rows.tolist() for rows in bucket_indices([0, 1, 4, 0], 0)] == [[0, 1, 3], [2]]


@pytest.mark.parametrize(
    ("lengths", "max_waste", "error", "message"),
    [
        ([], 0.25, ValueError, r"lengths has shape \(0,\)"),
        ([[1, 2]], 0.25, ValueError, r"not \(sequence,\)"),
        ([1.0, 2.0], 0.25, TypeError, "float64, not integers"),
        ([3, -1], 0.25, ValueError, r"lengths\[1\] is -1"),
        ([3, 1], 1.0, ValueError, "max_waste must be at least 0 and less than 1, not 1"),
        ([3, 1], -0.1, ValueError, "max_waste must be at least 0 and less than 1, not -0.1"),
        ([3, 1], float("nan"), ValueError, "max_waste must be .* not nan"),
    ],
)
def test_bad_input_is_named(lengths, max_waste, error, message):
    with pytest.raises(error, match=message):
        bucket_indices(lengths, max_waste)
