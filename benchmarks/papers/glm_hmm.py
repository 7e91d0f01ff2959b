"""The GLM-HMM of a rat that compares two tones: held-out bits a trial of one to four states, logit and probit.

Choices of 80 sessions depend on both tones, and on mean, choice and correct choice of the trial before, with weights
and bias for each state. Each fifth session is held out in turn; the score of a session is ln p(its choices), states
summed out, averaged over draws of the posterior. Bits a trial are those above a coin; rows of several states have the
gain over one state with its standard error over sessions.

- `planted`: of three states of 5 x 300 trials with the effects of Ashwood and others (2022), how much less the fit
  decodes than the true parameters do, the worst of the data sets.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import jax
import numpy as np
from scipy.optimize import linear_sum_assignment

import ethogram
from benchmarks import report
from ethogram.domains import psytrack_rat

__all__ = ["heldout", "measure", "planted", "simulated"]

FORMULA = " + ".join(psytrack_rat.COVARIATES)
FOLDS = 5
SLOPES, BIASES = np.array([6.0, 1.5, 1.5]), np.array([-0.1, -1.9, 1.9])
STAY = 0.96


def heldout(data: Any, num_states: int, link: str, folds: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities in bits (session,) of held-out sessions, and their numbers of trials."""
    emission = ethogram.ChoiceEmission(FORMULA, link=link)  # type: ignore[arg-type]
    model = ethogram.RoleHMM(num_states, emission)
    number, bits, trials = np.arange(data.num_sequences), [], []
    for fold in range(folds):
        part = number % FOLDS == fold
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pareto k, which the rows of other records have
            fit = ethogram.fit(
                jax.random.key(seed + fold), model, data.take(np.flatnonzero(~part)), progress_bar=False
            )
        score = fit.score(data.take(np.flatnonzero(part)))
        bits.append(np.asarray(score.entries) / np.log(2))
        trials.append(np.asarray(data.lengths)[part])
    return np.concatenate(bits), np.concatenate(trials)


def simulated(seed: int) -> tuple[Any, Any, dict[str, np.ndarray]]:
    """A planted data set with its states, the model, and its parameters."""
    rng = np.random.default_rng(seed)
    stimulus = rng.uniform(-1, 1, (5, 300))
    blank = ethogram.Trajectories.from_list([np.zeros((300, 1))] * 5, covariates={"stimulus": list(stimulus)})
    model = ethogram.RoleHMM(3, ethogram.ChoiceEmission("stimulus"))
    odds = np.full((3, 3), np.log((1 - STAY) / 2 / STAY))
    np.fill_diagonal(odds, 0)
    parameters = {
        "initial": np.full(3, 1 / 3),
        "log_odds": odds,
        "effect": np.zeros((3, 3, 0)),
        "intercept": (BIASES + SLOPES * stimulus.mean())[:, None],
        "weight": SLOPES[:, None, None],
    }
    return model.simulate(jax.random.key(seed), blank, parameters=parameters), model, parameters


def planted(seed: int) -> tuple[float, float]:
    """Shares of trials of a planted data set that the truth, and the fit, decode."""
    made, model, parameters = simulated(seed)
    bound = model.bind(made.data)
    entries = bound.entries(made.data)
    known = np.asarray(bound.likelihood(parameters, entries.batch).smooth(entries.value).state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit = ethogram.fit(jax.random.key(seed), model, made.data, progress_bar=False)
    truth = np.asarray(made.states)
    return _agreement(known.argmax(-1), truth), _agreement(fit.states().probability.argmax(-1), truth)


def _agreement(path: np.ndarray, truth: np.ndarray) -> float:
    """Share of trials with the true state, under the best match of labels."""
    counts = np.zeros((3, 3))
    np.add.at(counts, (truth.ravel(), path.ravel()), 1)
    rows, columns = linear_sum_assignment(-counts)
    return float(counts[rows, columns].sum() / counts.sum())


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per check."""
    data, quick = psytrack_rat.load(), settings.quick
    if quick:
        data = data.take(np.arange(5))
    folds, most, rows = (1, 2, []) if quick else (FOLDS, 4, [])
    for link in ("logit", "probit"):
        alone: Any = None
        for count in range(1, most + 1):
            begin = time.process_time()
            bits, trials = heldout(data, count, link, folds, settings.seed)
            above = 1 + bits.sum() / trials.sum()
            row = {"check": f"bits a trial above a coin, {link}, {count} states", "value": float(above)}
            row |= {"trials": int(trials.sum()), "seconds": time.process_time() - begin}
            if count == 1:
                alone = bits
                row |= {"target": 0.0, "reached": bool(above > 0)}
            else:
                gain = bits - alone
                error = (
                    float(np.std(gain, ddof=1) * np.sqrt(len(gain)) / trials.sum()) if len(gain) > 1 else 0.0
                )
                over = float(gain.sum() / trials.sum())
                row |= {
                    "gain": over,
                    "standard_error": error,
                    "target": 2 * error,
                    "reached": over > 2 * error,
                }
            rows.append(row)
    found = np.array([planted(settings.seed + seed) for seed in range(1 if quick else 12)])
    worst = float((found[:, 0] - found[:, 1]).max())
    check = "planted: decoded less than by the truth, the worst"
    rows.append(
        {"check": check, "value": worst, "target": 0.02, "reached": worst <= 0.02, "data_sets": len(found)}
    )
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("glm_hmm", __doc__, measure))
