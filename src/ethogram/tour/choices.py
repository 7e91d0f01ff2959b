"""The tour of noisy-mdp: what a simulated Tetris player values, from its placements.

The player's true values of the height, the holes and the bumpiness that a placement leaves are known, and the inferred
ones play a game of their own.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import ethogram
from ethogram.domains import tetris
from ethogram.inference.choices import choice_error, noise_floor
from ethogram.models.choices import Decisions
from ethogram.plots.choices import value_marginals
from ethogram.tour.guide import Example

__all__ = ["EXAMPLE"]

VALUES = (-3.0, -15.0, -1.0)
"""Of height, holes and bumpiness; the noise of a choice has variance one."""

TRAINING, TESTED, SHOWN = 100, 200, 40
"""Placements that are fitted, and held out; the move whose boards are drawn."""


def load(key: jax.Array, full: bool) -> tuple[Decisions, Decisions]:
    """Training placements and held-out ones."""
    made = tetris.simulate(key, VALUES, TRAINING + TESTED).decisions
    return made.take(slice(0, TRAINING)), made.take(slice(TRAINING, None))


def model(test: Decisions) -> ethogram.NoisyMDP:
    """A wide prior: values have a standard deviation of 50."""
    return ethogram.NoisyMDP(2500.0, "features")


def truth(fit: ethogram.Fit, test: Decisions) -> list[tuple[str, str, str]]:
    """Values with their intervals, and the error in held-out placements."""
    draws = fit.result.sites["v"].reshape(-1, len(VALUES))
    lower, upper = np.percentile(draws, [5, 95], axis=0)
    rows = [
        (f"value of {name}: mean and 90 % interval", f"{mean:.1f} [{low:.1f}, {high:.1f}]", f"{value:g}")
        for name, mean, low, high, value in zip(
            fit.data.metadata.feature_names, draws.mean(0), lower, upper, VALUES, strict=True
        )
    ]
    error = choice_error(np.asarray(fit.predict(test)).argmax(-1), test)
    floor = noise_floor(test.features @ np.array(VALUES), test)
    about = "held-out placements that are not the most probable ones; of the true values"
    return [*rows, (about, f"{error:.3f}", f"{floor:.3f}")]


def draw(fit: ethogram.Fit, test: Decisions, figure: Any) -> None:
    """Posteriors with the truth, and boards of the player and of its imitator."""
    values, *boards = figure.subplots(1, 3, width_ratios=[3, 1.2, 1.2])
    draws = np.asarray(fit.result.sites["v"], float)
    value_marginals(draws, values, names=fit.data.metadata.feature_names, truth=VALUES)
    imitated = tuple(draws.mean((0, 1)).tolist())
    # The same key gives both the same pieces, and the same noise.
    for axes, played, name in zip(boards, (VALUES, imitated), ("the player", "its imitator"), strict=True):
        tetris.draw_board(tetris.simulate(jax.random.key(0), played, SHOWN + 1).boards[-1], axes)
        axes.set_title(f"{name}, after move {SHOWN}")


EXAMPLE = Example(
    f"Tetris, {TRAINING} placements",
    load,
    model,
    {
        "method": "nuts",
        "num_chains": 2,
        "num_warmup": 200,
        "num_samples": 400,
        "max_tree_depth": (4, 6),
        "progress_bar": False,
    },
    {"num_warmup": 500, "num_samples": 2000},
    truth,
    draw,
    (13, 5),
)
