"""Warnings of readers: values, or steps to them, so far from all others that they are likely errors of a device; and
sequences without an observed frame.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.data.angles import period_of, position_features
from ethogram.models.data.metadata import Metadata
from ethogram.models.data.spikes import find_spikes

__all__ = ["warn_of_outliers", "warn_of_unobserved"]

# A value this many interquartile ranges from the median warns, if there are at least MIN_ROWS rows.
FAR, MIN_ROWS = 100, 8
# So does one beside a step FAR times as long as a usual one, and APART times as long as the next shorter one. A usual
# step is as long as the share LARGE of those that are not zero, without the three longest, of about SAMPLE steps.
LARGE, APART, SAMPLE = 0.95, 10, 20_000
# A value that repeats is no measurement where it is farther from all others than FAR_OUT times their range, or than
# APART_FROM times if it is one of STAND_INS.
FAR_OUT, APART_FROM = 10, 0.7
STAND_INS = {-1, -32768, 32767, 65535} | {
    sign * (10**digits - 1) for sign in (-1, 1) for digits in range(2, 10)
}
# A step over the share CYCLE of a range without gaps of APART usual steps is that of a cycle, as from 24 h to 0.
CYCLE = 0.9


def warn_of_outliers(
    values: np.ndarray, recorded: np.ndarray, rows: Any, metadata: Metadata, place: Callable[[int], str]
) -> None:
    """Warn once of features (row, feature) far outside, or beside far too long a step.

    The message names sequence, time and feature.
    """
    if recorded.sum() < MIN_ROWS:
        return
    known = recorded[:, None] & ~np.isnan(values)
    known &= ~_warn_of_stand_ins(values, known, metadata)
    median = np.zeros(values.shape[1])
    number, farthest = 0, (0.0, 0, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        for feature, (x, here) in enumerate(zip(values.T, known.T, strict=True)):
            known_values = x[here] if here.any() else np.zeros(1)
            lowest, low, median[feature], high, highest = np.quantile(
                known_values, (0, 0.25, 0.5, 0.75, 1), overwrite_input=True
            )
            del known_values
            spread = high - low if high > low else np.inf
            if max(median[feature] - lowest, highest - median[feature]) > FAR * spread:
                distance = np.abs(x - median[feature])
                distance = np.minimum(distance, np.abs(period_of(metadata, feature) - distance)) / spread
                distance[~here | ~(distance > FAR)] = 0
                number, row = number + int(np.count_nonzero(distance)), int(distance.argmax())
                farthest = max(farthest, (distance[row], -row, -feature))
        if number:
            ratio, row, feature = farthest[0], -farthest[1], -farthest[2]
            how = f"{ratio:.3g} interquartile ranges from the median {median[feature]:g}"
            count = f"{number} values are that far"
        else:
            _, warning = find_spikes(values, known, rows, metadata, place)
            if warning and rows.removed is None:
                return warn_user(warning)
            steps = [
                (*step, feature)
                for feature, (x, here) in enumerate(zip(values.T, known.T, strict=True))
                for step in _far_steps(
                    x, np.flatnonzero(here), median[feature], rows, period_of(metadata, feature)
                )
            ]
            if not steps:
                return
            ratio, speed, row, feature = max(steps)
            how = f"beside a step of {speed:.3g} per frame, {ratio:.3g} times a usual one"
            count = f"{len({step[2:] for step in steps})} values are beside such a step"
    positions, _ = position_features(metadata, values.shape[1], any_two=True)
    asked = rows.removed is not None or feature not in positions
    fix = "" if asked else ", or pass max_speed= if they are places"
    names = metadata.feature_names
    name = repr(names[feature]) if names else str(feature)
    warn_user(
        f"feature {name} of sequence {place(int(rows.sequence[row]))} is {values[row, feature]:g} at {rows.when(row)}, "
        f'{how} ({count}): correct them, or set them to NaN and pass missing="nan"{fix}',
    )


def _warn_of_stand_ins(values: np.ndarray, known: np.ndarray, metadata: Metadata) -> np.ndarray:
    """Which values (row, feature) repeat far outside all others, as -9999 does where it stands for what is missing."""
    found, said = np.zeros(values.shape, bool), []
    for feature, x in enumerate(values.T):
        for end in (np.min, np.max) if np.isinf(period_of(metadata, feature)) else ():
            others = known[:, feature] & ~found[:, feature]
            value = end(x, where=others, initial=-np.inf if end is np.max else np.inf)
            same = others & (x == value)
            if same.sum() < 2 or (others & ~same).sum() < MIN_ROWS:
                continue
            rest = x[others & ~same]
            gap = abs(value - end(rest))
            far = gap > (APART_FROM if value in STAND_INS else FAR_OUT) * np.ptp(rest)
            if far and len(np.unique(rest)) >= MIN_ROWS:
                found[:, feature] |= same
                name = metadata.feature_names[feature] if metadata.feature_names else feature
                said.append(f"{value:g} in {same.sum()} rows of feature {name!r}")
    if said:
        warn_user(
            f"{', '.join(said)}: far outside all others, as numbers are that stand for what is missing; set them to "
            'NaN and pass missing="nan"'
        )
    return found


def _far_steps(
    x: np.ndarray, here: np.ndarray, median: float, rows: Any, period: float
) -> list[tuple[float, float, int]]:
    """Far too long steps: in usual steps, a frame, and the row between two of them, or that farther from the median."""
    number = max(len(here) - 1, 0)

    def lengths_and_speeds(step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        start, end = here[step], here[step + 1]
        length = np.abs(x[end].astype(float) - x[start].astype(float))
        length = np.minimum(length, np.abs(period - length))
        within = rows.sequence[start] == rows.sequence[end]
        return length, np.where(within, length / np.maximum(rows.frame[end] - rows.frame[start], 1), 0)

    _, sample = lengths_and_speeds(np.arange(0, number, 1 + number // SAMPLE))
    sample = np.sort(sample[sample > 0])
    if len(sample) < MIN_ROWS:
        return []
    usual = sample[min(int(LARGE * len(sample)), len(sample) - 4)]
    blocks = np.array_split(np.arange(number, dtype=np.int32), 1 + number // SAMPLE)
    if not any((lengths_and_speeds(block)[1] > FAR * usual).any() for block in blocks):
        return []
    step, speed = lengths_and_speeds(np.arange(number))
    x = x[here].astype(float)
    long = np.sort(speed[speed >= usual])
    apart = (long[1:] > FAR * usual) & (long[1:] > APART * long[:-1])
    far = speed >= (long[1:][apart.argmax()] if apart.any() else np.inf)
    ends = np.sort(x)
    if np.diff(ends).max() < APART * usual:
        far &= step < CYCLE * (ends[-1] - ends[0])
    outside = np.abs(x - median)
    before, after = np.append(False, far[:-1]), np.append(far[1:], False)
    later = np.where(before == after, outside[1:] >= outside[:-1], after)
    at = np.where(later, here[1:], here[:-1])
    return list(zip(speed[far] / usual, speed[far], at[far].tolist(), strict=True))


def warn_of_unobserved(
    observed: np.ndarray, agent: Any, names: Any, place: Callable[[int], str] = str
) -> None:
    """Warn of sequences of which no frame (sequence, time) is observed, by the names of their agents where known."""
    empty = np.flatnonzero(~observed.any(axis=1))
    if len(empty):
        first = int(empty[0])
        named = names is not None and agent is not None and agent[first] >= 0
        who = f", agent {names[agent[first]]!r}," if named else ""
        rest = f", nor have {len(empty) - 1} others" if len(empty) > 1 else ""
        warn_user(
            f"sequence {place(first)}{who} has no observed frame{rest}: it tells fits and scores nothing; leave it "
            "out, or correct what it is read from"
        )
