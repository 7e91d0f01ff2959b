"""Role HMMs with covariates on planted data: coverage of intervals, differences of animals, and decoding.

Three states apart by 2 to 3 deviations; switching depends on temperature (a random walk of its own for each animal), on
noise that has an effect too, and on the hour of the day by a sine and a cosine. Effects of a covariate with standard
deviation 1 are drawn from N(0, .5^2), log odds of a change from N(-2.5, .4^2), and those of animals differ by `scale`.

- `coverage`: shares of 90 % intervals, by Laplace's approximation, that hold the truth: of effects, and of `scale` .5.
- `none`: where animals do not differ, the share of intervals of `scale` that reach below .1.
- `decoded`: of animals of 200 steps, the share of frames in their true state: by a model whose subjects vary, by one
  without differences, and by one fit per animal.

`benchmarks.speed.covariates` has the wait.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import jax
import numpy as np

import ethogram
from benchmarks import report

__all__ = ["fitted", "measure", "planted"]

STATES, FORMULA = 3, "temperature + noise + np.sin(angle) + np.cos(angle)"
MEAN = np.array([[0.0, 0.0], [2.0, 1.0], [1.0, 3.0]])
OFF = ~np.eye(STATES, dtype=bool)


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
    return rows + decoded(4 if settings.quick else 20, settings.seed)


if __name__ == "__main__":
    raise SystemExit(report.run("covariates", __doc__, measure))
