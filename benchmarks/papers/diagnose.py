"""How often `Fit.diagnose` finds planted faults of role HMMs, and how often it finds something in sound data.

Data sets have two to four roles, one to three features, 3 to 11 sequences of 100 to 600 steps, units from .01 to 1000
and a centre far from zero, all drawn at random. A fault counts as found where its kind is among the first three
findings; a sound data set counts as flagged where a finding is a caution or a warning. Thresholds were tuned on seeds
up to 199; rows of "fresh" seeds are of those from 1000 on.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import jax
import numpy as np

import ethogram
from benchmarks import report
from ethogram.inference.diagnostics import Level

__all__ = ["measure"]

KINDS = {
    "sound": (),
    "heavy tails": ("emission", "outliers", "tails"),
    "skew": ("emission", "outliers", "tails"),
    "outliers, 1 %": ("outliers",),
    "drift": ("drift",),
    "a covariate moves switching": ("switching",),
    "a role too few": ("number of states",),
    "two roles too many": ("number of states",),
}
FOUND, FALSE = 0.8, 0.1
"""Least share of the faults that are found, and largest share of the sound data sets that are flagged."""
SEEDS = {"tuned": 0, "fresh": 1000}


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per kind and half of the seeds."""
    count = 2 if settings.quick else settings.rounds or 12
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind, named in KINDS.items():
            for half, first in SEEDS.items():
                sets = count if named else 2 * count
                share = np.mean([flagged(kind, first + settings.seed + number) for number in range(sets)])
                target = FOUND if named else FALSE
                rows.append(
                    {
                        "kind": kind,
                        "seeds": half,
                        "data_sets": sets,
                        "value": float(share),
                        "target": target,
                        "reached": bool(share >= target if named else share <= target),
                    }
                )
    return rows


def flagged(kind: str, seed: int) -> bool:
    """Whether the fault is among the first three findings; of sound data, whether one is more than a note."""
    data, roles = simulated(kind, seed)
    model = ethogram.RoleHMM(roles, ethogram.GaussianEmission(data.observations.shape[-1]))
    found = ethogram.fit(jax.random.key(seed), model, data, progress_bar=False).diagnose()
    if not KINDS[kind]:
        return any(finding.level > Level.NOTE for finding in found)
    return any(finding.kind in KINDS[kind] for finding in found[:3])


def simulated(kind: str, seed: int) -> tuple[ethogram.Trajectories, int]:
    """A data set with its fault, and the number of roles of the model that is fitted to it."""
    rng = np.random.default_rng(seed)
    roles, features, sequences = int(rng.integers(2, 5)), int(rng.integers(1, 4)), int(rng.integers(3, 12))
    steps, stay = int(np.exp(rng.uniform(np.log(100), np.log(600)))), rng.uniform(0.8, 0.97)
    unit = 10 ** rng.uniform(-2, 3)
    origin = rng.normal(size=features) * unit * 10
    mean, sd = rng.normal(size=(roles, features)) * 4, np.exp(rng.normal(size=(roles, features)) * 0.3)
    each = []
    for _ in range(sequences):
        leaving = np.full(steps, 1 - stay)
        if kind == "a covariate moves switching":
            leaving = leaving * np.exp(1.5 * np.sin(2 * np.pi * np.arange(steps) / 100) - 0.7)
        role = np.cumsum((rng.random(steps) < leaving) * rng.integers(1, roles, steps)) % roles
        noise = rng.normal(size=(steps, features))
        if kind == "heavy tails":
            noise = rng.standard_t(3, size=noise.shape)
        if kind == "skew":
            noise = rng.standard_exponential(noise.shape) - 1
        values = mean[role] + sd[role] * noise
        if kind == "drift":
            values = values + 2 * np.arange(steps)[:, None] / steps
        if kind == "outliers, 1 %":
            far = rng.random(steps) < 0.01
            values[far] += 25 * rng.normal(size=(far.sum(), features))
        each.append(origin + unit * values)
    fitted = {"a role too few": roles - 1, "two roles too many": roles + 2}.get(kind, roles)
    return ethogram.Trajectories.from_list(each), fitted


if __name__ == "__main__":
    raise SystemExit(report.run("diagnose", __doc__, measure))
