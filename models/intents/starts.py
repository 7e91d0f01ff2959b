"""Initial assignments of intents, which Unhelkar and Shah (2019) leave open."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from ethogram.models.chains.conjugate_chain import ChainData
from ethogram.models.families.exponential_family import DirichletCoordinates

__all__ = ["start_statistics"]

SMALLEST_DRAW = 1e-10
"""Floor of the draws: an entry without concentration would be a structural zero."""

POINTS = ("weights", "stickiness")
"""Blocks of points, which no statistics move."""

PIECES = 4
"""Average number of segments of one intent in a trace of a ``"segments"`` start."""


def start_statistics(
    model: Any, rng: np.random.Generator, kind: str, batches: list[ChainData]
) -> dict[str, Any]:
    """Statistics of an initial assignment of intents to all steps.

    ``"sticky"`` splits the visits of each state and action among the intents at random and adds one self-transition to
    every row; ``"segments"`` cuts every trace into segments of one intent each; ``"prior"`` puts q at draws from the
    prior with the prior's concentration, by statistics that may be negative.
    """
    points: dict[str, Any] = {name: () for name in model.prior() if name in POINTS}
    if kind == "prior":
        prior = {
            name: np.asarray(block.natural.concentration, float)
            for name, block in model.prior().items()
            if name not in POINTS
        }
        drawn = {name: DirichletCoordinates(_drawn(rng, rows) - rows) for name, rows in prior.items()}
        return points | drawn
    rows, count = model.rows_carried(), model.truncation
    initial = np.zeros(count + 1)
    transition = np.zeros((rows.num_rows, count, count + 1))
    policy = np.zeros((count, len(rows.states), model.num_actions))
    row_pair = np.asarray(rows.row_pair)
    if kind == "sticky":
        transition[:, np.arange(count), np.arange(count)] = 1
        visits = np.zeros(policy.shape[1:])
        for batch in batches:
            symbol = np.asarray(batch.observations)[np.asarray(batch.observed)]
            state, action = np.divmod(symbol, model.num_actions)
            np.add.at(visits, (state, action), 1)
        policy[:] = np.moveaxis(rng.dirichlet(np.ones(count), visits.shape), -1, 0) * visits
        initial[:count] = sum(len(batch.lengths) for batch in batches) / count
    for batch in batches if kind == "segments" else ():
        lengths, observed = np.asarray(batch.lengths), np.asarray(batch.observed)
        steps = np.arange(observed.shape[1])
        cut = rng.random(observed.shape) < PIECES / np.maximum(lengths[:, None], PIECES)
        piece = np.cumsum(cut, axis=1)
        labels = rng.integers(count, size=(len(lengths), piece.max() + 1))
        intent = np.take_along_axis(labels, piece, axis=1)
        inside, leaving = steps < lengths[:, None], steps + 1 < lengths[:, None]
        state, action = np.divmod(np.asarray(batch.observations), model.num_actions)
        np.add.at(policy, (intent[observed], state[observed], action[observed]), 1)
        pair = row_pair[np.asarray(batch.rows)]
        following = np.roll(intent, -1, axis=1)
        np.add.at(transition, (pair[leaving], intent[leaving], following[leaving]), 1)
        np.add.at(initial, intent[:, 0][inside[:, 0]], 1)
    counts = {"initial": initial, "transition": transition, "policy": policy}
    if model.pool is not None:  # as the prior expects the rows to share them
        mean = np.asarray(model.pool_prior, float)
        mean = mean / np.sum(mean)
        counts |= {
            "share": mean * np.sum(transition, axis=(1, 2))[:, None],
            "shared": mean[0] * np.sum(transition, axis=0),
            "transition": mean[1] * transition,
        }
    return points | {name: DirichletCoordinates(x) for name, x in counts.items()}


def _drawn(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
    """A Dirichlet draw of every row (..., entry), times its total concentration; zeros stay.

    Entries must survive rounding when the step from the prior is taken in the fit's precision.
    """
    least = np.maximum(SMALLEST_DRAW, 100 * np.finfo(jnp.result_type(float)).eps * concentration)
    draw = np.maximum(rng.standard_gamma(concentration), np.where(concentration > 0, least, 0))
    return draw / draw.sum(-1, keepdims=True) * concentration.sum(-1, keepdims=True)
