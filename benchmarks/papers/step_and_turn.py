"""Step-and-turn hidden Markov models of movement, beside maximum likelihood written apart from the package.

Animals rest, forage and travel: step lengths are gamma, turning angles von Mises, and behaviours a Markov chain, as in
Langrock et al. (2012), "Flexible and practical modeling of animal telemetry data". The peer is expectation maximisation
in NumPy and SciPy, in double precision, from steps in three groups of size and from random labels, the best of all.
Tracks are simulated, so that the truth is known.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy import optimize, special, stats

from benchmarks import report
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.roles import infer_roles
from ethogram.models.data import Trajectories
from ethogram.models.emissions import GammaEmission, ProductEmission, VonMisesEmission
from ethogram.models.roles import RoleHMM

__all__ = ["measure"]

STEP_MEAN, STEP_SHAPE = np.array([0.02, 0.3, 2.0]), np.array([1.0, 2.0, 8.0])
TURN_MEAN, TURN_CONCENTRATION = np.array([0.0, 0.0, 0.0]), np.array([0.2, 0.6, 8.0])
STAY = 0.9
TRUTH = {
    "step_mean": STEP_MEAN, "step_shape": STEP_SHAPE, "turn_concentration": TURN_CONCENTRATION,
}  # fmt: skip
STARTS, ITERATIONS = 4, 200


class Maximum(NamedTuple):
    """Maximum likelihood: parameters by name, the log likelihood, and most probable behaviours (track, time)."""

    parameters: dict[str, np.ndarray]
    log_likelihood: float
    path: np.ndarray


def simulate(rng: np.random.Generator, tracks: int, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Steps and turns (track, time, 2), and behaviours (track, time)."""
    states = np.zeros((tracks, steps), int)
    states[:, 0] = rng.integers(3, size=tracks)
    for time in range(1, steps):
        moved = (states[:, time - 1] + rng.integers(1, 3, size=tracks)) % 3
        states[:, time] = np.where(rng.random(tracks) < STAY, states[:, time - 1], moved)
    length = rng.gamma(STEP_SHAPE[states], (STEP_MEAN / STEP_SHAPE)[states])
    return np.stack([length, rng.vonmises(TURN_MEAN[states], TURN_CONCENTRATION[states])], -1), states


def densities(x: np.ndarray, shape: Any, rate: Any, direction: Any, concentration: Any) -> np.ndarray:
    """Log densities (track, time, state), by SciPy."""
    step, turn = x[..., :1], x[..., 1:]
    of_turn = concentration * np.cos(turn - direction) - np.log(2 * np.pi * special.ive(0, concentration))
    return stats.gamma.logpdf(step, shape, scale=1 / rate) + of_turn - concentration


def forward_backward(
    initial: Any, transition: Any, likelihood: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """State probabilities (track, time, state), pair counts (state, state) and the log likelihood."""
    tracks, steps, count = likelihood.shape
    shift = likelihood.max(-1, keepdims=True)
    b = np.exp(likelihood - shift)
    alpha, scale = np.zeros_like(b), np.zeros((tracks, steps))
    for time in range(steps):
        ahead = initial * b[:, 0] if time == 0 else (alpha[:, time - 1] @ transition) * b[:, time]
        scale[:, time] = ahead.sum(-1)
        alpha[:, time] = ahead / scale[:, time, None]
    beta, pairs = np.ones((tracks, count)), np.zeros((count, count))
    gamma = np.zeros_like(b)
    gamma[:, -1] = alpha[:, -1]
    for time in range(steps - 2, -1, -1):
        weight = b[:, time + 1] * beta / scale[:, time + 1, None]
        pairs += np.einsum("ni,ij,nj->ij", alpha[:, time], transition, weight)
        beta = weight @ transition.T
        gamma[:, time] = alpha[:, time] * beta
    return gamma, pairs, float(np.log(scale).sum() + shift.sum())


def maximise(x: np.ndarray, labels: np.ndarray) -> Maximum:
    """Expectation maximisation from labelled frames."""
    gamma = np.eye(3)[labels] * 0.9 + 0.1 / 3
    transition, initial = np.full((3, 3), 0.05) + 0.85 * np.eye(3), np.full(3, 1 / 3)
    step, turn = x[..., 0], x[..., 1]
    latest, total = -np.inf, -np.inf
    for iteration in range(ITERATIONS):
        weight = gamma.reshape(-1, 3)
        mass = weight.sum(0)
        mean = weight.T @ step.ravel() / mass
        log_gap = np.log(mean) - weight.T @ np.log(step.ravel()) / mass
        shape = np.array(
            [
                optimize.brentq(lambda a, gap=gap: np.log(a) - special.digamma(a) - gap, 1e-3, 1e5)
                for gap in log_gap
            ]
        )
        pull = np.exp(1j * turn.ravel()) @ weight / mass
        concentration = np.array(
            [
                optimize.brentq(lambda k, r=r: special.i1e(k) / special.i0e(k) - r, 1e-9, 1e5)
                for r in np.clip(abs(pull), 1e-8, 1 - 1e-6)
            ]
        )
        parts = shape, shape / mean, np.angle(pull), concentration
        gamma, pairs, total = forward_backward(initial, transition, densities(x, *parts))
        transition, initial = pairs / pairs.sum(1, keepdims=True), gamma[:, 0].mean(0)
        if iteration and total - latest < 1e-7 * abs(total):
            break
        latest = total
    found = {
        "step_mean": mean, "step_shape": shape, "turn_concentration": concentration, "transition": transition,
    }  # fmt: skip
    return Maximum(found, total, gamma.argmax(-1))


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for the agreement of the two, and one for each parameter of each behaviour."""
    tracks, steps = (4, 60) if settings.quick else (20, 200)
    rng = np.random.default_rng(settings.seed)
    x, states = simulate(rng, tracks, steps)
    cuts = np.digitize(x[..., 0], np.quantile(x[..., 0], [1 / 3, 2 / 3]))
    starts = [cuts, *(rng.integers(3, size=states.shape) for _ in range(0 if settings.quick else STARTS))]
    best = max((maximise(x, labels) for labels in starts), key=lambda found: found.log_likelihood)
    order = np.argsort(best.parameters["step_mean"])

    emission = ProductEmission({"step": GammaEmission(), "turn": VonMisesEmission()})
    data = Trajectories.from_list(list(x))
    fit = ConjugateSVI(RoleHMM(3, emission)).run(
        jax.random.key(settings.seed), data, 300, restarts=4, progress_bar=False
    )
    draws = {
        name: np.asarray(site, float) for name, site in fit.posterior.sample(jax.random.key(1), 2000).items()
    }
    mine = np.argsort(draws["step_mean"].mean(0)[:, 0])
    path = np.argsort(mine)[infer_roles(fit, data).path]
    theirs = np.argsort(order)[best.path]
    agreement = float((path == theirs).mean())
    rows: list[dict[str, Any]] = [
        {
            "case": "paths of both",
            "agreement": agreement,
            "accuracy": float((path == states).mean()),
            "accuracy_of_maximum_likelihood": float((theirs == states).mean()),
            "elbo": float(fit.restart_elbos.max()),
            "maximum_log_likelihood": best.log_likelihood,
            "target": 0.98,
            "reached": agreement >= 0.98,
        }
    ]
    for name, truth in TRUTH.items():
        drawn = draws[name][:, mine, 0]
        low, high = np.quantile(drawn, [0.005, 0.995], axis=0)
        peer = best.parameters[name][order]
        for behaviour, label in enumerate(("rest", "forage", "travel")):
            inside = bool(low[behaviour] <= peer[behaviour] <= high[behaviour])
            rows.append(
                {
                    "case": f"{name}, {label}",
                    "truth": float(truth[behaviour]),
                    "posterior_mean": float(drawn[:, behaviour].mean()),
                    "lower_99": float(low[behaviour]),
                    "upper_99": float(high[behaviour]),
                    "maximum_likelihood": float(peer[behaviour]),
                    "target": "maximum likelihood within the 99 % interval",
                    "reached": inside,
                }
            )
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("step_and_turn", __doc__, measure))
