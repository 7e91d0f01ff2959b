"""Order, clocks and ratios of paired timing; nothing here asks for a speed."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from benchmarks.speed import timing


def test_rounds_alternate_their_order_after_the_warm_calls():
    calls = []
    contenders = {name: timing.Contender(calls.append, (name,)) for name in "abc"}
    taken = timing.compare(contenders, rounds=3, seconds=0.0)
    assert "".join(calls) == "abc" + "abc" + "abc" + "cba" + "abc"
    assert all(len(entry.cpu) == len(entry.wall) == 3 for entry in taken.values())


def test_calls_repeat_until_a_timing_lasts():
    count = 0

    def spin():
        nonlocal count
        count += 1
        return np.linalg.norm(np.ones(500))

    taken = timing.compare({"spin": timing.Contender(spin)}, rounds=2, seconds=0.005)["spin"]
    assert taken.repeats > 1
    assert count == 2 + 2 * taken.repeats


def test_ratio_pairs_the_rounds():
    ours = timing.Timing(np.array([1.0, 2.0, 4.0]), np.ones(3), 0.0, 1)
    peer = timing.Timing(np.array([3.0, 4.0, 20.0]), np.ones(3), 0.0, 1)
    assert timing.ratio(ours, peer) == timing.Ratio(median=3.0, low=2.0, high=5.0)


def test_row_has_the_columns_of_every_speed_table_and_says_whether_the_target_was_reached():
    ours = timing.Timing(np.array([1e-3, 2e-3, 3e-3]), np.array([2e-3] * 3), 0.5, 4)
    peer = timing.Timing(np.array([4e-3, 4e-3, 4e-3]), np.array([5e-3] * 3), 0.1, 4)
    row = timing.speed_row(
        "small", "peer", "float64", ours, peer, target=2.5, error=1e-9, peak_mb=8.0, states=5
    )
    assert row["ours_ms"] == pytest.approx(2.0) and row["peer_ms"] == pytest.approx(4.0)
    assert row["ours_wall_ms"] == pytest.approx(2.0) and row["peer_wall_ms"] == pytest.approx(5.0)
    assert (row["ratio"], row["reached"], row["compile_s"], row["states"]) == (
        pytest.approx(2.0),
        False,
        0.5,
        5,
    )


def test_nothing_to_time_is_an_error():
    with pytest.raises(ValueError, match="at least one of each"):
        timing.compare({})


def test_peak_memory_sees_what_a_call_holds():
    side = 3200  # what it holds is too large for glibc to keep when it is freed
    outer = jax.jit(lambda x: x[:, None] * x)
    peak = timing.peak_memory(timing.Contender(outer, (np.ones(side, np.float32),)))
    if peak is None:
        pytest.skip("this system has no resettable high-water mark")
    assert 0.5 * 4e-6 * side**2 < peak < 10 * 4e-6 * side**2
