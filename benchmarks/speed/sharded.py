"""One fit of a role HMM on two devices of a CPU against one: seconds of wall time of iterations, and their ELBOs.

Each number of devices is a process of its own, and runs are taken in turn; the first call of each compiles.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

from benchmarks import report

__all__ = ["measure"]

TARGET, SAME = 1.7, 1e-6
"""Wall time on one device over that on two, and relative difference of the ELBOs."""
STEPS, LENGTH, ROLES = 50, 50, 5


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row: medians over rounds."""
    sequences, rounds = (200, 2) if settings.quick else (5000, settings.rounds or 7)
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as one, ProcessPoolExecutor(1, mp_context=spawn) as two:
        pools = {1: one, 2: two}
        found = {devices: [] for devices in pools}
        for _ in range(rounds + 1):
            for devices, pool in pools.items():
                found[devices].append(pool.submit(fit, devices, sequences, settings.seed).result())
    seconds = {devices: float(np.median([each[0] for each in runs[1:]])) for devices, runs in found.items()}
    ratio, apart = seconds[1] / seconds[2], abs(found[1][0][1] / found[2][0][1] - 1)
    row = {
        "sequences": sequences,
        "steps": STEPS,
        "one_s": seconds[1],
        "two_s": seconds[2],
        "elbo_apart": apart,
    }
    return [row | {"value": ratio, "target": TARGET, "reached": bool(ratio >= TARGET and apart <= SAME)}]


def fit(devices: int, sequences: int, seed: int) -> tuple[float, float]:
    """Wall seconds of a fit of one restart, and its ELBO, in a process that then has so many devices."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={devices}"
    import jax

    import ethogram

    random = np.random.default_rng(seed)
    role = np.arange(LENGTH) // 10 % ROLES
    frames = random.normal(size=(sequences, LENGTH, 2)) + 3 * role[:, None]
    data = ethogram.Trajectories.from_list(list(frames))
    mesh = jax.make_mesh((devices,), ("data",)) if devices > 1 else None
    run = ethogram.ConjugateSVI(ethogram.RoleHMM(ROLES, ethogram.GaussianEmission(2)), mesh).run
    begin = time.perf_counter()
    found = run(jax.random.key(seed), data, STEPS, restarts=1, tol=0, progress_bar=False)
    return time.perf_counter() - begin, float(found.elbo[-1])


if __name__ == "__main__":
    raise SystemExit(report.run("sharded", __doc__, measure, speed=True))
