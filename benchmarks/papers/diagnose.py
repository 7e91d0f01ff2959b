"""How often `Fit.diagnose` finds planted faults of each system, and how often something in sound data.

Data sets are those of `planted_faults`, whose sizes, units and centres are drawn at random. A fault counts as found
where its kind is among the first three findings; a sound data set counts as flagged where a finding is a caution or a
warning. Thresholds were tuned on seeds up to 199; rows of "fresh" seeds are of those from 1000 on. `--sets` is the
number of data sets of each kind and half, with twice as many sound ones, and `--system` one system.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import jax
import numpy as np

import ethogram
from benchmarks import report
from benchmarks.papers import planted_faults
from ethogram.inference.diagnostics import Level

__all__ = ["measure"]

KINDS: dict[str, dict[str, tuple[str, ...]]] = {
    "roles": {
        "sound": (),
        "heavy tails": ("emission", "outliers", "tails"),
        "skew": ("emission", "outliers", "tails"),
        "outliers, 1 %": ("outliers",),
        "drift": ("drift",),
        "a covariate moves switching": ("switching",),
        "a role too few": ("number of states",),
        "two roles too many": ("number of states",),
        "a constant feature": ("features",),
    },
    "choices": {
        "sound": (),
        "lapses": ("lapses", "calibration"),
        "heavy tails": ("lapses", "calibration"),
        "outliers, 1 %": ("outliers",),
        "drift": ("drift",),
        "slots are liked": ("position", "baseline"),
        "repeats the last choice": ("habit", "baseline"),
        "a missing square": ("nonlinear",),
        "features that explain nothing": ("features",),
        "a narrow prior": ("prior",),
        "a constant feature": ("features",),
    },
    "rewards": {
        "sound": (),
        "features that explain nothing": ("features",),
        "other transitions": ("transitions",),
        "drift": ("drift",),
        "two goals": ("baseline", "drift", "policy"),
        "repeats the last action": ("baseline",),
        "a constant feature": ("features",),
        "a wrong discount": ("discount",),
    },
    "intents": {
        "sound": (),
        "a circle of actions": ("baseline",),
        "repeats the last action": ("baseline",),
        "an intent too few": ("number of states", "baseline"),
        "a covariate moves switching": ("switching",),
    },
}
FOUND, FALSE = 0.8, 0.1
"""Least share of the faults that are found, and largest share of the sound data sets that are flagged."""
SEEDS = {"tuned": 0, "fresh": 1000}


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per system, kind and half of the seeds."""
    count = 1 if settings.quick else settings.sets
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for system in KINDS if settings.system is None else (settings.system,):
            for kind, named in KINDS[system].items():
                for half, first in SEEDS.items():
                    sets = count if named else 2 * count
                    seeds = range(first + settings.seed, first + settings.seed + sets)
                    share = float(np.mean([flagged(system, kind, seed) for seed in seeds]))
                    target = FOUND if named else FALSE
                    reached = share >= target if named else share <= target
                    names = {"system": system, "kind": kind, "seeds": half, "data_sets": sets}
                    rows.append(names | {"value": share, "target": target, "reached": bool(reached)})
                    jax.clear_caches()  # thousands of programs would use up the mappings of a process
    return rows


def flagged(system: str, kind: str, seed: int) -> bool:
    """Whether the fault is among the first three findings; of sound data, whether one is more than a note."""
    model, data = getattr(planted_faults, system)(kind, seed)
    found = ethogram.fit(jax.random.key(seed), model, data, progress_bar=False).diagnose()
    if not KINDS[system][kind]:
        return any(finding.level > Level.NOTE for finding in found)
    return any(finding.kind in KINDS[system][kind] for finding in found[:3])


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", type=int, default=3, help="data sets of each kind and half (3)")
    parser.add_argument("--system", choices=tuple(KINDS), help="one system (all)")


if __name__ == "__main__":
    raise SystemExit(report.run("diagnose", __doc__, measure, options=_options))
