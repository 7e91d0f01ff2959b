"""Findings of actions by state, beside policies, and of next states, beside the transitions of an MDP."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int
from scipy.special import gammainccinv, pdtrc

from ethogram.inference.diagnostics.finding import CHANCE, LEAST_Z, Finding, Level

__all__ = ["of_policy", "of_transitions"]

LEAST_MISFIT = 0.15
"""Least misfit of action frequencies that matters: the root of chi-square beyond chance, per action."""
BLOCKS = (2, 4, 8)
REPLICATES = 100
"""Of counts from the policy, whose chi-squares are the reference where cells have few actions."""
LEAST_SURPRISE = 0.02
"""Least difference of mean log probabilities of next states that matters, in nats per step."""
RARE = 1e-3
"""Probability below which a next state is rare."""


def of_policy(
    rng: np.random.Generator,
    state: Int[np.ndarray, "step"],
    action: Int[np.ndarray, "step"],
    policy: Float[np.ndarray, "state action"],
) -> Iterator[Finding]:
    """Whether actions of blocks of steps have the frequencies of the policy.

    Parameters
    ----------
    state, action : in order of time, sequence by sequence.
    policy : posterior mean.
    """
    found = [(*_misfit(rng, state, action, policy, count), count) for count in (1, *BLOCKS)]
    whole, parts = found[0], max(found[1:])
    if whole[0] > 1:
        yield Finding(
            "policy",
            Level.CAUTION,
            f"Actions by state differ from those of the policy, by {whole[1]:.2f} (root of chi-square per action).",
            "Let rewards depend on states and actions, or on more features; several agents may differ.",
            float(np.log(whole[0])),
        )
    elif parts[0] > 1:
        yield Finding(
            "drift",
            Level.CAUTION,
            f"The policy changes over the sequences: in {parts[2]} blocks of them actions by state differ by "
            f"{parts[1]:.2f} (root of chi-square per action).",
            "Fit the blocks on their own, or give subjects where agents differ.",
            float(np.log(parts[0])),
        )


def _misfit(
    rng: np.random.Generator, state: np.ndarray, action: np.ndarray, policy: np.ndarray, blocks: int
) -> tuple[float, float]:
    """How far chi-square is beyond chance (above 1: a finding), and its root per action beyond chance."""
    steps, (num_states, num_actions) = len(state), policy.shape
    block = np.arange(steps) * blocks // max(steps, 1)
    counts = np.zeros((blocks, num_states, num_actions))
    np.add.at(counts, (block, state, action), 1)
    total = counts.sum(-1, keepdims=True)
    rows = np.broadcast_to(policy / policy.sum(-1, keepdims=True), counts.shape)
    expected = np.maximum(total * rows, 1e-300)

    def statistic(seen: np.ndarray) -> float:
        return float(np.where(total * rows > 0, (seen - expected) ** 2 / expected, 0).sum())

    drawn = (rng.multinomial(total[..., 0].astype(int), rows) for _ in range(REPLICATES))
    reference = np.array([statistic(each) for each in drawn])
    mean, variance = reference.mean(), max(reference.var(), 1e-12)
    limit = gammainccinv(mean**2 / variance, CHANCE) * variance / mean if mean > 0 else np.inf
    misfit = float(np.sqrt(max(statistic(counts) - mean, 0) / max(steps, 1)))
    return (statistic(counts) / limit if misfit > LEAST_MISFIT else 0.0), misfit


def of_transitions(
    rows: Float[np.ndarray, "step next_state"], following: Int[np.ndarray, "step"]
) -> Iterator[Finding]:
    """Whether next states are those that the transitions of the model say.

    Parameters
    ----------
    rows : probabilities of the next states of every step.
    following : the next states that were seen.
    """
    log_rows = np.log(np.maximum(rows, 1e-12))
    seen = np.take_along_axis(log_rows, following[:, None], 1)[:, 0]
    mean = (rows * log_rows).sum(1)
    variance = float((rows * (log_rows - mean[:, None]) ** 2).sum())
    beyond = float((seen - mean).mean())
    z = abs(beyond) * len(seen) / np.sqrt(variance) / LEAST_Z if variance > 0 else 0.0
    count = int((seen < np.log(RARE)).sum())
    expected = float(np.where(rows < RARE, rows, 0).sum())
    rare = count >= 3 and pdtrc(count - 1, expected) < CHANCE
    if rare or (z > 1 and abs(beyond) > LEAST_SURPRISE):
        yield Finding(
            "transitions",
            Level.WARNING,
            f"Next states are not those of the transitions: their mean log probability is {seen.mean():.3f}, where "
            f"{mean.mean():.3f} is expected, and {count} of {len(seen)} have a probability below {RARE}.",
            "Estimate the transitions from the data (MDP.from_counts), or correct them.",
            float(max(np.log(max(z, 1e-300)), np.log(max(count, 1) / max(expected, 1)) if rare else 0.0)),
        )
