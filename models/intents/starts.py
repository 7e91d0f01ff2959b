"""Initial assignments of intents, which Unhelkar and Shah (2019) leave open."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np

from ethogram.models.chains.conjugate_chain import ChainData
from ethogram.models.families.exponential_family import DirichletCoordinates

__all__ = ["label_statistics", "start_statistics"]

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
    if kind == "segments":
        return label_statistics(model, segment_labels(rng, batches, model.truncation), batches)
    points = _points(model)
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
    initial[:count] = sum(len(batch.lengths) for batch in batches) / count
    transition = np.broadcast_to(np.eye(count, count + 1), (rows.num_rows, count, count + 1))
    visits = np.zeros((len(rows.states), model.num_actions))
    for batch in batches:
        symbol = np.asarray(batch.observations)[np.asarray(batch.observed)]
        visits += np.bincount(symbol, minlength=visits.size).reshape(visits.shape)
    policy = np.moveaxis(rng.dirichlet(np.ones(count), visits.shape), -1, 0) * visits
    return points | _counted({"initial": initial, "transition": transition, "policy": policy})


def segment_labels(rng: np.random.Generator, batches: list[ChainData], number: int) -> list[np.ndarray]:
    """Labels (sequence, time): every trace in segments of one intent each."""
    found = []
    for batch in batches:
        lengths, shape = np.asarray(batch.lengths), np.shape(batch.observed)
        cut = rng.random(shape) < PIECES / np.maximum(lengths[:, None], PIECES)
        piece = np.cumsum(cut, axis=1)
        labels = rng.integers(number, size=(len(lengths), piece.max() + 1))
        found.append(np.take_along_axis(labels, piece, axis=1))
    return found


def label_statistics(model: Any, labels: list[np.ndarray], batches: list[ChainData]) -> dict[str, Any]:
    """Counts of every block under labels (sequence, time) of all steps.

    Where the intent never switches, a step has the label of the step before: labels that constraints rule out would
    begin a fit in which neither their policies nor their switches are likely.
    """
    labels = _possible(model, labels, batches)
    rows, count = model.rows_carried(), model.truncation
    shapes = {
        "initial": (count + 1,),
        "transition": (rows.num_rows, count, count + 1),
        "policy": (count, len(rows.states), model.num_actions),
    }
    total = {name: np.zeros(math.prod(shape)) for name, shape in shapes.items()}
    row_pair = np.asarray(rows.row_pair)
    for intent, batch in zip(labels, batches, strict=True):
        lengths, observed = np.asarray(batch.lengths)[:, None], np.asarray(batch.observed)
        steps = np.arange(observed.shape[1])
        inside, leaving = steps < lengths, steps[:-1] + 1 < lengths
        symbol = np.asarray(batch.observations)[observed]
        pair = row_pair[np.asarray(batch.rows)[:, :-1][leaving]]
        counted = {
            "initial": intent[:, 0][inside[:, 0]],
            "transition": (pair * count + intent[:, :-1][leaving]) * (count + 1) + intent[:, 1:][leaving],
            "policy": intent[observed] * math.prod(shapes["policy"][1:]) + symbol,
        }
        for name, entry in counted.items():
            total[name] += np.bincount(entry, minlength=len(total[name]))
    counts = {name: each.reshape(shapes[name]) for name, each in total.items()}
    return _points(model) | _counted(counts)


def _possible(model: Any, labels: list[np.ndarray], batches: list[ChainData]) -> list[np.ndarray]:
    """Labels that switch nowhere where the prior of the transitions allows no switch."""
    concentration = np.asarray(model.prior()["transition"].natural.concentration)
    count, entries = concentration.shape[1:]
    switches = np.arange(count)[:, None] != np.arange(entries)
    never = np.all(concentration[:, switches] == 0, axis=1)
    if not never.any():
        return labels
    row_pair, found = np.asarray(model.rows_carried().row_pair), []
    for intent, batch in zip(labels, batches, strict=True):
        free = np.ones(intent.shape, bool)
        free[:, 1:] = np.logical_not(never[row_pair[np.asarray(batch.rows)[:, :-1]]])
        begins = np.maximum.accumulate(np.where(free, np.arange(intent.shape[1]), 0), axis=1)
        found.append(np.take_along_axis(intent, begins, axis=1))
    return found


def _points(model: Any) -> dict[str, Any]:
    return {name: () for name in model.prior() if name in POINTS}


def _counted(counts: dict[str, np.ndarray]) -> dict[str, Any]:
    return {name: DirichletCoordinates(x) for name, x in counts.items()}


def _drawn(rng: np.random.Generator, concentration: np.ndarray) -> np.ndarray:
    """A Dirichlet draw of every row (..., entry), times its total concentration; zeros stay.

    Entries must survive rounding when the step from the prior is taken in the fit's precision.
    """
    least = np.maximum(SMALLEST_DRAW, 100 * np.finfo(jnp.result_type(float)).eps * concentration)
    draw = np.maximum(rng.standard_gamma(concentration), np.where(concentration > 0, least, 0))
    return draw / draw.sum(-1, keepdims=True) * concentration.sum(-1, keepdims=True)
