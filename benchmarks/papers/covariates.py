"""Role HMMs with covariates on planted data: coverage of intervals, differences of animals, decoding, and the wait.

Three states apart by 2 to 3 deviations; switching depends on temperature (a random walk of its own for each animal), on
noise that has an effect too, and on the hour of the day by a sine and a cosine. Effects of a covariate with standard
deviation 1 are drawn from N(0, .5^2), log odds of a change from N(-2.5, .4^2), and those of animals differ by `scale`.

- `coverage`: shares of 90 % intervals, by Laplace's approximation, that hold the truth: of effects, and of `scale` .5.
- `none`: where animals do not differ, the share of intervals of `scale` that reach below .1.
- `decoded`: of animals of 200 steps, the share of frames in their true state: by a model whose subjects vary, by one
  without differences, and by one fit per animal.
- `wait`: CPU seconds of `ethogram.fit` in a new process, cold and then of other data of the same size, imports apart.
- `gradient`: of the log likelihood of one chain of 10^6 steps, its CPU time over that with a fixed matrix.
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
import jax.numpy as jnp
import numpy as np

import ethogram
from benchmarks import report
from ethogram.models.chains.markov_chain import log_normalizer

__all__ = ["measure", "planted"]

STATES, FORMULA = 3, "temperature + noise + np.sin(angle) + np.cos(angle)"
MEAN = np.array([[0.0, 0.0], [2.0, 1.0], [1.0, 3.0]])
OFF = ~np.eye(STATES, dtype=bool)
WAITS = {
    "10 animals x 2 000, 2 covariates": (10, 2000, False),
    "50 animals x 200, they differ": (50, 200, True),
}
TARGETS = {"10 animals x 2 000, 2 covariates": (6, 1), "50 animals x 200, they differ": (25, 8)}


def planted(seed: int, animals: int, steps: int, scale: float) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """Model, simulated data with their states, and parameters."""
    rng = np.random.default_rng([seed, animals, steps])
    walk = 15 + rng.normal(0, 3, (animals, 1)) + np.cumsum(rng.normal(0, 0.5, (animals, steps)), axis=1)
    angle = 2 * np.pi * (np.arange(steps) % 24) / 24
    data = ethogram.Trajectories.from_list(
        [np.zeros((steps, 2))] * animals,
        subject=list(range(animals)),
        covariates={
            "temperature": list(walk),
            "noise": list(rng.normal(size=(animals, steps))),
            "angle": [angle] * animals,
        },
    )
    transition = ethogram.Covariates(FORMULA, vary="subject")
    model = ethogram.RoleHMM(STATES, ethogram.GaussianEmission(2), transition=transition)
    encoding = transition.bind(data).encoding
    effects = rng.normal(0, 0.5, (STATES, STATES, len(encoding.names))) / encoding.spread
    parameters = {
        "initial": np.full(STATES, 1 / STATES),
        "mean": MEAN,
        "covariance": np.broadcast_to(0.6 * np.eye(2), (STATES, 2, 2)),
        "log_odds": np.where(OFF, rng.normal(-2.5, 0.4, OFF.shape), 0),
        "effect": np.where(OFF[..., None], effects, 0),
        "subject_log_odds": np.where(OFF, scale * rng.normal(size=(animals + 1, STATES, STATES)), 0),
    }
    return model, model.simulate(jax.random.key(seed), data, parameters=parameters), parameters


def by_truth(fit: Any) -> np.ndarray:
    """The fitted state of each true one, by their means."""
    found = fit.result.sites["mean"][0].mean(0)
    return np.array([int(np.argmin(((found - mean) ** 2).sum(1))) for mean in MEAN])


def fitted(model: Any, data: Any, seed: int) -> Any:
    """The fit by Laplace's approximation."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the Pareto k")
        return ethogram.fit(jax.random.key(seed), model, data, "laplace", progress_bar=False)


def covered(seed: int, scale: float) -> dict[str, Any]:
    """Shares of intervals that hold the truth, and lower ends of those of scales, of one data set."""
    model, made, truth = planted(seed, 10, 500, scale)
    begin = time.process_time()
    fit = fitted(model, made.data, seed)
    order, sites = by_truth(fit), fit.result.sites
    effect = sites["effect"][0][:, order][:, :, order][:, OFF]
    low, high = np.quantile(effect, [0.05, 0.95], axis=0)
    lower, upper = np.quantile(sites["subject_scale"][0][:, order][:, :, order][:, OFF], [0.05, 0.95], axis=0)
    return {
        "effect": float(((low <= truth["effect"][OFF]) & (truth["effect"][OFF] <= high)).mean()),
        "scale": float(((lower <= scale) & (scale <= upper)).mean()),
        "small": float((lower < 0.1).mean()),
        "k": fit.result.pareto_k,
        "seconds": time.process_time() - begin,
    }


def decoded(animals: int, seed: int) -> list[dict[str, Any]]:
    """Shares of frames in their true state, by three models."""
    model, made, _ = planted(seed, animals, 200, 1.0)
    states = np.asarray(made.states)

    def share(given: Any, data: Any, rows: Any) -> float:
        fit = fitted(given, data, seed)
        return float((by_truth(fit)[states[rows]] == fit.states().path).mean())

    every = slice(None)
    pooled = ethogram.RoleHMM(STATES, model.emission, transition=ethogram.Covariates(FORMULA))
    own = [share(pooled, made.data.take([row]), [row]) for row in range(animals)]
    rows: list[dict[str, Any]] = [
        {"check": f"decoded, {animals} animals, {name}", "value": value}
        for name, value in {"one for all": share(pooled, made.data, every), "one each": np.mean(own)}.items()
    ]
    value, target = share(model, made.data, every), max(row["value"] for row in rows)
    reached = {"value": value, "target": float(target), "reached": bool(value > target)}
    return [*rows, {"check": f"decoded, {animals} animals, subjects vary", **reached}]


def waits(name: str) -> list[dict[str, Any]]:
    """CPU seconds of the first fit of a process, and of the second."""
    command = [sys.executable, "-m", "benchmarks.papers.covariates", "--wait", name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = []
    for kind, value, target in zip(
        ("cold", "warm"), json.loads(done.stdout.splitlines()[-1]), TARGETS[name], strict=True
    ):
        rows.append(
            {"check": f"CPU s, {name}, {kind}", "value": value, "target": target, "reached": value <= target}
        )
    return rows


def two_fits(name: str) -> None:
    """Print CPU seconds of two fits of data of one size."""
    animals, steps, differ = WAITS[name]
    seconds = []
    for seed in range(2):
        model, made, _ = planted(seed, animals, steps, 0.5)
        if not differ:
            transition = ethogram.Covariates("temperature + noise")
            model = ethogram.RoleHMM(STATES, model.emission, transition=transition)
        begin = time.process_time()
        fitted(model, made.data, seed)
        seconds.append(time.process_time() - begin)
    print(json.dumps(seconds))


def gradient_ratio(steps: int) -> float:
    """CPU time of a gradient with one matrix per step over that with a fixed one; medians of five, interleaved."""
    rng = np.random.default_rng(0)
    likelihood = rng.normal(size=(1, steps, STATES)).astype(np.float32)
    column = rng.normal(size=(1, steps)).astype(np.float32)
    odds = np.where(OFF, -2.5, 0).astype(np.float32)

    def fixed(odds: Any, effect: Any, likelihood: Any, column: Any) -> Any:
        return log_normalizer(jnp.zeros(STATES), jax.nn.log_softmax(odds + 0 * effect), likelihood).sum()

    def driven(odds: Any, effect: Any, likelihood: Any, column: Any) -> Any:
        eta = odds + effect * column[:, :-1, None, None]
        return log_normalizer(jnp.zeros(STATES), jax.nn.log_softmax(eta), likelihood).sum()

    both = [jax.jit(jax.grad(each, argnums=(0, 1))) for each in (fixed, driven)]
    times: list[list[float]] = [[], []]
    for _ in range(6):
        for each, kept in zip(both, times, strict=True):
            begin = time.process_time()
            jax.block_until_ready(each(odds, 0.3 * OFF, likelihood, column))
            kept.append(time.process_time() - begin)
    first, second = (float(np.median(kept[1:])) for kept in times)
    return second / first


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per check."""
    count = 2 if settings.quick else 30
    rows: list[dict[str, Any]] = []

    def add(check: str, value: float, low: float, high: float, **more: Any) -> None:
        reached = bool(low <= value <= high)
        rows.append(
            {"check": check, "value": value, "at_least": low, "at_most": high, "reached": reached, **more}
        )

    found = [covered(settings.seed + seed, 0.5) for seed in range(count)]
    more = {"data_sets": count, "k": float(np.median([each["k"] for each in found]))}
    more["seconds"] = float(np.median([each["seconds"] for each in found]))
    for name, ends in {"effect": (0.85, 0.95), "scale": (0.80, 0.97)}.items():
        each = [one[name] for one in found]
        error = float(np.std(each, ddof=1) / np.sqrt(count))
        add(f"coverage of 90 % intervals, {name}", float(np.mean(each)), *ends, standard_error=error, **more)
    none = [covered(settings.seed + 1000 + seed, 0.0)["small"] for seed in range(count)]
    add("none: intervals of scale that reach below .1", float(np.mean(none)), 0.9, 1.0, data_sets=count)
    rows += decoded(4 if settings.quick else 20, settings.seed)
    add("gradient over a fixed chain's", gradient_ratio(10**4 if settings.quick else 10**6), 0.0, 2.5)
    for name in [] if settings.quick else WAITS:
        rows += waits(name)
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--wait"]:
        two_fits(sys.argv[2])
    else:
        raise SystemExit(report.run("covariates", __doc__, measure))
