"""The rat of the psytrack project: how many choices and sessions, and that its covariates tell the correct choice."""

from __future__ import annotations

import numpy as np

from ethogram.domains import psytrack_rat


def test_choices_are_those_of_the_recording():
    """The file states 20 000 trials in 80 sessions, 64.45 % of them correct, and 10 635 choices of the second side."""
    data = psytrack_rat.load()
    frame = data.covariate_frame()
    assert (data.num_sequences, int(data.lengths.sum())) == (80, 20_000)
    choice = np.concatenate(
        [each[:length, 0] for each, length in zip(data.observations, data.lengths, strict=True)]
    )
    assert choice.sum() == 10_635
    assert tuple(frame.columns) == psytrack_rat.COVARIATES
    louder_second = frame.s_b > frame.s_a
    correct = max((choice == louder_second).mean(), (choice != louder_second).mean())
    assert abs(correct - 0.6445) < 1e-6
