"""The number of intents that default fits use, in worlds drawn here in which it is known.

Each intent has a preferred action in every state, taken with probability .8. One intent; two, of which one has 4 % of
the steps; four that stay for 50 steps. `used` is the number of intents of the fit, `hamming` the share of the steps
whose label is wrong once labels are matched. The target is ours: the right number in at least 18 of 20 worlds.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import numpy as np

from benchmarks import report
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.intents import infer_intents
from ethogram.inference.roles import align_states
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov

__all__ = ["WORLDS", "fitted", "measure"]

S, A, TRACES, STEPS = 16, 4, 20, 150

WORLDS: dict[str, Any] = {
    "one": [[1.0]],
    "two, of which one has 4 % of the steps": [
        [1 - 0.04 / 0.96 / 20, 0.04 / 0.96 / 20],
        [1 / 20, 1 - 1 / 20],
    ],
    "four that stay for 50 steps": np.eye(4) * (49 / 50) + (1 - np.eye(4)) / 150,
}
"""Transitions between intents."""


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per world and kind, and a check per kind."""
    count, rows = 2 if settings.quick else 20, []
    for kind, leaving in WORLDS.items():
        found = [fitted(settings.seed + number, leaving) for number in range(count)]
        rows += [{"world": kind, "draw": number, **each} for number, each in enumerate(found)]
        right = sum(each["used"] == len(leaving) for each in found)
        check = {"kind": "check", "world": kind, "value": right, "at_least": 0.9 * count}
        rows.append({**check, "reached": right >= 0.9 * count})
    return rows


def fitted(seed: int, leaving: Any) -> dict[str, Any]:
    """The number of intents that a default fit uses, and the share of wrong labels."""
    data, intents = walk(np.random.default_rng(seed), leaving)
    with jax.enable_x64(False):
        model = AgentMarkov(S, A, rows="all")  # as by default, but the worlds share a program
        fit = ConjugateSVI(model).run(jax.random.key(seed), data, 1000, progress_bar=False)
        found = infer_intents(fit, data)
    return {
        "used": len(found.used),
        "hamming": float(align_states(intents, found.labels).hamming),
        "converged": fit.converged,
    }


def walk(rng: np.random.Generator, leaving: Any) -> tuple[Trajectories, np.ndarray]:
    """Traces and their intents (trace, step)."""
    leaving = np.asarray(leaving)
    count = len(leaving)
    preferred, onward = rng.integers(A, size=(count, S)), rng.integers(S, size=(S, A))
    stationary = np.linalg.matrix_power(leaving, 10_000)[0]
    states, actions, intents = np.zeros((3, TRACES, STEPS), int)
    state, intent = rng.integers(S, size=TRACES), rng.choice(count, p=stationary, size=TRACES)
    for t in range(STEPS):
        other = (preferred[intent, state] + rng.integers(1, A, size=TRACES)) % A
        action = np.where(rng.random(TRACES) < 0.8, preferred[intent, state], other)
        states[:, t], actions[:, t], intents[:, t] = state, action, intent
        state = np.where(rng.random(TRACES) < 0.8, onward[state, action], rng.integers(S, size=TRACES))
        intent = (leaving[intent].cumsum(1) < rng.random(TRACES)[:, None]).sum(1)
    return Trajectories.from_list(states=list(states), actions=list(actions)), intents


if __name__ == "__main__":
    raise SystemExit(report.run("planted_intents", __doc__, measure))
