"""Findings of the paths of hidden states: chances of a change that are not constant, and states without use."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtri

from ethogram.inference.diagnostics.finding import CHANCE, Finding, Level

__all__ = ["of_alike", "of_paths", "of_rare_states", "of_wide_states"]

LEAST_SPREAD = 0.25
"""Least standard deviation of the chance of a change over time, as a share of it, that matters."""
BLOCKS = (8, 24, 72)
"""Blocks of equal numbers of steps, in order of time, in which changes are counted."""
LEAST_CHANGES = 5.0
"""Expected changes of a block from which on it counts."""
RARE = 0.01
LEAST_APART = 0.05
"""Least total variation of the policies of two states that are two, on average over steps."""
SELDOM, WIDE = 0.05, 4.0
"""Share of the frames up to which a state may be one of outliers, and how much wider than the others it then is."""


def of_paths(
    paths: Int[np.ndarray, "sequence time"],
    num_states: int,
    context: Int[np.ndarray, "sequence time"] | None = None,
) -> Iterator[Finding]:
    """Whether states are left more often in some sequences, or at some times, than in others.

    Parameters
    ----------
    paths : of the hidden states, -1 where there is none; drawn from the posterior, since the most probable path has
        too few changes.
    context : on which the chance of a change depends beside the state, 0 or more; None where it does on nothing.
    """
    known = (paths[:, :-1] >= 0) & (paths[:, 1:] >= 0)
    state, changed = paths[:, :-1][known], (paths[:, 1:] != paths[:, :-1])[known]
    if context is not None:
        state, num_states = context[:, :-1][known] * num_states + state, num_states * (int(context.max()) + 1)
    sequence, time = np.nonzero(known)
    rate = np.bincount(state, changed, num_states) / np.maximum(np.bincount(state, minlength=num_states), 1)
    expected = rate[state]
    clock = np.argsort(time, kind="stable")  # sequences side by side
    found = [_overdispersion(sequence, changed, expected)]
    for order in (clock, np.arange(len(state))):
        for count in BLOCKS:
            block = np.empty(len(state), int)
            block[order] = np.arange(len(state)) * count // max(len(state), 1)
            found.append(_overdispersion(block, changed, expected))
    where = ["from sequence to sequence", *["over time"] * (len(found) - 1)]
    size, spread, words = max(
        (size, spread, words) for (size, spread), words in zip(found, where, strict=True)
    )
    if size > 1:
        yield Finding(
            "switching",
            Level.CAUTION,
            f"The chance that a state is left varies {words} by {100 * spread:.0f} % of itself, where the model says "
            "that it is constant.",
            "Something that the model does not know moves it, such as the time of day or the animal: divide the data "
            "by what you suspect, and compare the fits.",
            float(np.log(size)),
        )


def _overdispersion(block: np.ndarray, changed: np.ndarray, expected: np.ndarray) -> tuple[float, float]:
    """How far the changes of blocks vary beyond chance (above 1: a finding), and by which share of their number."""
    seen = np.bincount(block, changed)
    mean, variance = np.bincount(block, expected), np.bincount(block, expected * (1 - expected))
    enough = (mean >= LEAST_CHANGES) & (variance >= LEAST_CHANGES / 2)
    if enough.sum() < 3:
        return 0.0, 0.0
    seen, mean, variance = seen[enough], mean[enough], variance[enough]
    freedom = int(enough.sum()) - 1
    statistic = float(np.sum((seen - mean) ** 2 / variance))
    spread = np.sqrt(max(np.sum((seen - mean) ** 2 - variance) / np.sum(mean**2), 0.0))
    if spread < LEAST_SPREAD:
        return 0.0, float(spread)
    return statistic / float(chdtri(freedom, CHANCE)), float(spread)


def of_rare_states(frames: np.ndarray, names: Sequence[str]) -> Iterator[Finding]:
    """States that hold less than a hundredth of the frames."""
    share = frames / max(frames.sum(), 1)
    rare = [f"{names[at]} ({100 * share[at]:.2g} %)" for at in np.flatnonzero(share < RARE).tolist()]
    if rare:
        yield Finding(
            "number of states",
            Level.NOTE,
            f"Less than 1 % of the frames are in each of these states: {', '.join(rare)}.",
            "Fit fewer states, or look at the frames of these, which are often errors of a device.",
            len(rare) / len(share),
        )


def of_wide_states(
    observations: Float[np.ndarray, "sequence time feature"],
    path: Int[np.ndarray, "sequence time"],
    names: Sequence[str],
) -> Iterator[Finding]:
    """States that hold few frames, which are scattered over many times the range of those of the others.

    Parameters
    ----------
    path : (sequence, time), -1 where nothing was recorded.
    """
    held = [observations[path == state] for state in range(len(names))]
    share = np.array([len(frames) for frames in held]) / max(int((path >= 0).sum()), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # states without frames
        spread = np.array([np.mean(np.log(np.nanstd(frames, axis=0))) for frames in held])
    usual = np.isfinite(spread) & (share > SELDOM)
    if not usual.any():
        return
    ratio = np.exp(spread - spread[usual].max())
    for state in np.flatnonzero(np.isfinite(spread) & (share <= SELDOM) & (ratio > WIDE)).tolist():
        yield Finding(
            "outliers",
            Level.WARNING,
            f"State {names[state]} holds {100 * share[state]:.2g} % of the frames, scattered {ratio[state]:.0f} times "
            "as widely as those of any other: it collects outliers.",
            "Look at its frames, mark errors of the device as missing, and fit again.",
            float(np.log(ratio[state] / WIDE)),
        )


def of_alike(
    path: Int[np.ndarray, "sequence time"],
    symbols: Int[np.ndarray, "sequence time"],
    actions: Int[np.ndarray, "sequence time"],
    names: Sequence[str],
) -> Iterator[Finding]:
    """States in which the same actions follow the same symbols, of those that hold a share that is not rare.

    Parameters
    ----------
    path, symbols, actions : hidden states, what is observed before an action, and actions; -1 where missing.
    """
    known = (path >= 0) & (symbols >= 0) & (actions >= 0)
    counts = np.zeros((len(names), symbols.max(initial=0) + 1, actions.max(initial=0) + 1))
    np.add.at(counts, (path[known], symbols[known], actions[known]), 1)
    total = counts.sum(-1)
    rows = counts / np.maximum(total, 1)[..., None]
    for one, other in itertools.combinations(range(len(names)), 2):  # arrays of all pairs may be large
        both = np.minimum(total[one], total[other])
        apart = float(both @ np.abs(rows[one] - rows[other]).sum(-1)) / 2 / max(both.sum(), 1)
        if apart < LEAST_APART and both.sum() > SELDOM * counts.sum():
            yield Finding(
                "number of states",
                Level.CAUTION,
                f"In states {names[one]} and {names[other]} the same actions are chosen, but for {100 * apart:.1f} % "
                "of them.",
                "Take them for one, or fit fewer states.",
                float(np.log(LEAST_APART / max(apart, 1e-9))),
            )
