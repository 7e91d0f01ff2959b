"""Dwell times of role HMMs on planted data: coverage of intervals, held-out scores, decoding, and the wait.

Three states apart by 2 to 3 deviations in two features; each lasts as a negative binomial of mean 20 and size 5, and is
then left for one of the others. A data set is five sequences of 500 steps.

- `coverage`: shares of 90 % intervals, by Laplace's approximation, that hold the planted mean and size.
- `score`: log predictive density per step of five more sequences, less that of the model with geometric dwell times;
  its standard error is over data sets.
- `decoded`: share of frames in their true state, less that of the model with geometric dwell times.
- `wait`: CPU seconds of `ethogram.fit` in a new process, cold and then of other data of the same size, imports apart.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from typing import Any

import jax
import numpy as np

import ethogram
from benchmarks import report

__all__ = ["measure", "planted"]

STATES, SEQUENCES, STEPS = 3, 5, 500
DWELL = {"dwell_mean": 20.0, "dwell_size": 5.0}
MEAN = np.array([[0.0, 0.0], [2.0, 1.0], [1.0, 3.0]])


def planted(seed: int) -> tuple[Any, Any, Any]:
    """Model, simulated data with their states, and data to score of the same parameters."""
    rng = np.random.default_rng(seed)
    model = ethogram.RoleHMM(STATES, ethogram.GaussianEmission(2), dwell="negative-binomial")
    parameters = {
        "initial": np.full(STATES, 1 / STATES),
        "mean": MEAN,
        "covariance": np.broadcast_to(0.6 * np.eye(2), (STATES, 2, 2)),
        "log_odds": np.where(np.eye(STATES, dtype=bool), 0, rng.normal(0, 0.7, (STATES, STATES))),
        "effect": np.zeros((STATES, STATES, 0)),
        **{name: np.full(STATES, value) for name, value in DWELL.items()},
    }
    data = ethogram.Trajectories.from_list([np.zeros((STEPS, 2))] * SEQUENCES)
    made, held_out = (
        model.simulate(key, data, parameters=parameters) for key in jax.random.split(jax.random.key(seed))
    )
    return model, made, held_out.data


def fitted(model: Any, data: Any, seed: int) -> Any:
    """The fit by the default method."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the Pareto k")
        return ethogram.fit(jax.random.key(seed), model, data, progress_bar=False)


def decoded(fit: Any, made: Any, means: np.ndarray) -> float:
    """The share of frames in their true state, which fitted ones are by their means."""
    order = np.array([int(np.argmin(((means - mean) ** 2).sum(1))) for mean in MEAN])
    return float((order[np.asarray(made.states)] == fit.states().path).mean())


def of_data_set(seed: int) -> dict[str, float]:
    """Shares of intervals that hold the truth, and what dwell times gain, of one data set."""
    model, made, held_out = planted(seed)
    begin = time.process_time()
    fit = fitted(model, made.data, seed)
    found: dict[str, float] = {"seconds": time.process_time() - begin, "k": fit.result.pareto_k}
    for name, truth in DWELL.items():
        low, high = np.quantile(fit.result.sites[name][0], [0.05, 0.95], axis=0)
        found[name] = float(((low <= truth) & (truth <= high)).mean())
    plain = fitted(ethogram.RoleHMM(STATES, model.emission), made.data, seed)
    found["score"] = float(fit.score(held_out).mean - plain.score(held_out).mean)
    own = fit.result.sites["mean"][0].mean(0)
    other = np.asarray(plain.result.posterior.mean()["mean"])
    found["decoded"] = decoded(fit, made, own) - decoded(plain, made, other)
    return found


def two_fits() -> None:
    """Print CPU seconds of two fits of data of one size."""
    seconds = []
    for seed in range(2):
        model, made, _ = planted(seed)
        begin = time.process_time()
        fitted(model, made.data, seed)
        seconds.append(time.process_time() - begin)
    print(json.dumps(seconds))


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per check."""
    count = 2 if settings.quick else 100
    found = [of_data_set(settings.seed + seed) for seed in range(count)]
    more = {"data_sets": count, "k": float(np.median([each["k"] for each in found]))}
    more["seconds"] = float(np.median([each["seconds"] for each in found]))
    rows: list[dict[str, Any]] = []

    def add(check: str, name: str, low: float, high: float) -> None:
        each = [one[name] for one in found]
        value, error = float(np.mean(each)), float(np.std(each, ddof=1) / np.sqrt(count))
        ends = {"at_least": low, "at_most": high, "reached": bool(low <= value <= high)}
        rows.append({"check": check, "value": value, **ends, "standard_error": error, **more})

    for name in DWELL:
        add(f"coverage of 90 % intervals, {name}", name, 0.85, 0.95)
    add("held-out score above geometric, nats per step", "score", 0.0, np.inf)
    add("frames decoded above geometric, share", "decoded", -0.001, 1.0)
    if not settings.quick:
        command = [sys.executable, "-m", "benchmarks.papers.dwell_times", "--wait"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        for kind, value in zip(("cold", "warm"), json.loads(done.stdout.splitlines()[-1]), strict=True):
            rows.append({"check": f"CPU s, 5 sequences x 500, {kind}", "value": value})
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--wait"]:
        two_fits()
    else:
        raise SystemExit(report.run("dwell_times", __doc__, measure))
