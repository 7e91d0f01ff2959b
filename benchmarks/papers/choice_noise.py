"""Noise of choices on planted data: lapses recovered, errors expected and made, and which noise PSIS-LOO prefers.

Decisions between three options with three standard normal features, of values 1, -.1 and -1.2. Fits are those of
`method="laplace"` with a prior variance of 4.

- `lapse`: choices by normal noise, 10 % of them at random; share of data sets whose posterior of the lapse probability
  (prior Beta(1, 9)) holds .1 within 2 standard deviations of its mean.
- `error`: of choices in each noise, the share that is not of the option with the largest planted utility, less what the
  probabilities of the noise expect, in standard errors.
- `loo`: data sets in which PSIS-LOO prefers the noise that was planted to the other. Normal and Gumbel noise are nearly
  alike once coefficients are rescaled, and have no target.
"""

from __future__ import annotations

import argparse
import dataclasses
import warnings
from typing import Any

import arviz
import jax
import numpy as np
from numpyro.distributions import Beta

import ethogram
from benchmarks import report
from ethogram.inference.choices import choice_error, noise_floor

__all__ = ["measure", "planted"]

VALUES = np.array([1.0, -0.1, -1.2])
MODELS = {
    "normal": ethogram.Probit(4.0),
    "gumbel": ethogram.Logit(4.0),
    "student, nu 2": ethogram.NoisyMDP(4.0, "features", noise="student", nu=2.0),
    "lapses": ethogram.Probit(4.0, lapse=Beta(1, 9)),
}
PAIRS = {
    ("student, nu 2", "normal"): 0.9,
    ("lapses", "normal"): 0.9,
    ("normal", "student, nu 2"): 0.9,
    ("gumbel", "normal"): None,
    ("normal", "gumbel"): None,
}


def planted(name: str, num_decisions: int, seed: int) -> ethogram.Decisions:
    """Choices with this noise, 10 % of them at random where it has lapses."""
    x = np.random.default_rng([seed, num_decisions]).normal(size=(num_decisions, 3, len(VALUES)))
    offered = ethogram.Decisions(x, np.ones(x.shape[:2], bool), np.zeros(num_decisions, int))
    values = {"v": VALUES} | ({"lapse": 0.1} if name == "lapses" else {})
    return MODELS[name].simulate(jax.random.key(seed), offered, values).data


def fitted(name: str, data: ethogram.Decisions, seed: int) -> Any:
    """Laplace's approximation, which may warn that a small data set shows no lapses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ethogram.fit(jax.random.key(seed), MODELS[name], data, "laplace")


def lapses(count: int, num_decisions: int, seed: int) -> list[report.Row]:
    found = [
        fitted("lapses", planted("lapses", num_decisions, at), at).result.sites["lapse"]
        for at in range(seed, seed + count)
    ]
    z = np.array([(draws.mean() - 0.1) / draws.std() for draws in found])
    share = float((np.abs(z) < 2).mean())
    row = {"row": "lapse", "noise": "lapses", "against": "within 2 sd of .1", "sets": count}
    return [row | {"found": share, "target": 0.95, "reached": share >= 0.95 - 1e-9, "z": z.tolist()}]


def error_made(name: str, num_decisions: int, seed: int) -> report.Row:
    data, model = planted(name, num_decisions, seed), MODELS[name]
    known = dataclasses.replace(model, lapse=0.1) if name == "lapses" else model
    utilities = data.features @ VALUES
    expected, made = noise_floor(utilities, data, known), choice_error(utilities.argmax(1), data)
    z = (made - expected) / np.sqrt(expected * (1 - expected) / num_decisions)
    row = {"row": "error", "noise": name, "against": f"{made:.3f}, expected {expected:.3f}", "sets": 1}
    return row | {"found": float(z), "target": 2.0, "reached": bool(abs(z) < 2)}


def score(name: str, data: ethogram.Decisions, seed: int) -> float:
    fit = fitted(name, data, seed)
    exported = ethogram.to_arviz(fit.result, data, log_likelihood="sequence", progress_bar=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return float(arviz.loo(exported).elpd_loo)


def preferred(
    pair: tuple[str, str], target: float | None, count: int, num_decisions: int, seed: int
) -> report.Row:
    margins = []
    for at in range(seed, seed + count):
        data = planted(pair[0], num_decisions, at)
        margins.append(score(pair[0], data, at) - score(pair[1], data, at))
    share = float((np.array(margins) > 0).mean())
    row: dict[str, Any] = {"row": "loo", "noise": pair[0], "against": pair[1], "sets": count, "found": share}
    return (
        row
        | ({} if target is None else {"target": target, "reached": share >= target})
        | {"margins": margins}
    )


def measure(settings: argparse.Namespace) -> list[report.Row]:
    quick, seed = settings.quick, settings.seed
    rows = lapses(2, 500, seed) if quick else lapses(20, 2000, seed)
    rows += [error_made(name, 2000 if quick else 20_000, seed) for name in MODELS]
    for pair, target in PAIRS.items():
        if not quick or pair[0] == "lapses":
            rows.append(preferred(pair, target, 2 if quick else 10, 500, seed))
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("choice_noise", __doc__, measure))
