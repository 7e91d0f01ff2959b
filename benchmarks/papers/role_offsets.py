"""Accuracy of roles over offsets and scales of the data, by default arguments, beside a prior with mean 0 and scale 1.

The data are those of `benchmarks.two_roles`: two sticky roles three standard deviations apart, whose features are
multiplied by the scale and moved by the offset. The better of the two labellings counts; the Bayes rate of single
frames is .933.
"""

from __future__ import annotations

import argparse
import warnings
from typing import Any

import jax
import numpy as np

from benchmarks import report, two_roles
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.roles import infer_roles
from ethogram.models.emissions import GaussianEmission
from ethogram.models.roles import RoleHMM

__all__ = ["measure"]

SEEDS = 20
QUICK_SEEDS = 2
OFFSETS = (0.0, 300.0, 4e3, 1e6)
SCALES = (1e-3, 1.0, 1e3)
TARGET = 0.95


def accuracy(seed: int, offset: float, scale: float, emission: GaussianEmission) -> float:
    """Share of frames in the right role; NaN where the fit raises an error."""
    data, roles = two_roles.simulate(jax.random.key(seed), offset, scale)
    try:
        fit = ConjugateSVI(RoleHMM(2, emission)).run(jax.random.key(seed), data, 200, progress_bar=False)
    except ValueError:  # the ELBO is NaN
        return float("nan")
    found = infer_roles(fit, data).probability.argmax(-1)
    return float(max((found == roles).mean(), (found != roles).mean()))


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """A row an offset and scale."""
    seeds = range(settings.seed, settings.seed + (QUICK_SEEDS if settings.quick else SEEDS))
    rows = []
    for offset in OFFSETS:
        for scale in SCALES:
            found = [accuracy(seed, offset, scale, GaussianEmission(2)) for seed in seeds]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that the prior lies far from the data
                fixed = [
                    accuracy(seed, offset, scale, GaussianEmission(2, mean=0.0, scale=1.0)) for seed in seeds
                ]
            rows.append(
                {
                    "case": f"offset {offset:g}, scale {scale:g}",
                    "seeds": len(found),
                    "accuracy": float(np.mean(found)),
                    "lowest": float(np.min(found)),
                    "accuracy_mean_0_scale_1": float(np.nanmean(fixed)) if np.isfinite(fixed).any() else None,
                    "failed_mean_0_scale_1": int(np.isnan(fixed).sum()),
                    "target": TARGET,
                    "reached": float(np.mean(found)) >= TARGET,
                }
            )
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("role_offsets", __doc__, measure))
