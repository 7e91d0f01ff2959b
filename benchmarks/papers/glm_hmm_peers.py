"""Maximum likelihood of the GLM-HMM beside nemos and a plain optimiser.

The highest log likelihood of several starts, of the rat's choices and of a planted set. Ours is the mode under flat
priors. nemos starts at slopes and intercepts that are standard normal, since the states of its own starts are alike,
and its EM stays there. BFGS climbs a forward pass in NumPy, with its exact gradient, of the planted set alone.

nemos 0.2.9 needs Python 3.12.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

import ethogram
from benchmarks import report
from benchmarks.papers.glm_hmm import FORMULA, simulated
from benchmarks.peers import why_skipped
from ethogram.domains import psytrack_rat
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.roles.covariate_problem import Problem
from ethogram.inference.roles.emission_starts import best_start
from ethogram.inference.roles.laplace_roles import find_mode

__all__ = ["Rows", "highest", "log_likelihood", "measure", "ours", "theirs"]

FLAT, FLAT_LOG_ODDS = 10.0, 1000.0
"""Prior standard deviations of standardised slopes, and of log odds of changes, which may be infinite."""
TOLERANCE = 1e-3
STARTS = 20


class Rows(NamedTuple):
    """Choices of all sessions in a row."""

    x: np.ndarray  # (trial, column), the first of ones
    y: np.ndarray  # (trial,), 0 or 1
    first: np.ndarray  # (trial,) booleans: a session begins

    @classmethod
    def of(cls, data: Any) -> Rows:
        known = np.asarray(data.observed)
        x, y = np.asarray(data.covariates, float)[known], np.asarray(data.observations, float)[known][:, 0]
        first = np.zeros(len(y), bool)
        first[np.cumsum(data.lengths) - data.lengths] = True
        return cls(np.column_stack([np.ones(len(y)), x]), y, first)


def log_likelihood(theta: np.ndarray, rows: Rows, count: int) -> tuple[float, np.ndarray]:
    """Log likelihood and its gradient, by Fisher's identity, of first states, changes, intercepts and slopes."""
    initial, changes, weight = np.split(theta, [count, count + count**2])
    log_a = log_softmax(changes.reshape(count, count), axis=1)
    weight = weight.reshape(count, -1)
    eta = rows.x @ weight.T
    emitted = -np.logaddexp(0, np.where(rows.y[:, None] > 0, -eta, eta))
    log_pi, a = log_softmax(initial), np.exp(log_a)
    before, scale = np.empty_like(eta), np.empty(len(eta))
    top = emitted.max(1, keepdims=True)
    density, now = np.exp(emitted - top), np.zeros(count)
    for at in range(len(eta)):
        predicted = np.exp(log_pi) if rows.first[at] else now @ a
        weights = predicted * density[at]
        scale[at] = weights.sum()
        before[at] = now = weights / scale[at]
    after, pairs, start = np.ones(count), np.zeros((count, count)), np.zeros(count)
    state = np.empty_like(eta)
    for at in range(len(eta) - 1, -1, -1):
        state[at] = before[at] * after
        passed = density[at] * after / scale[at]
        if rows.first[at]:
            start += state[at]
            after = np.ones(count)
        else:
            pairs += before[at - 1][:, None] * a * passed
            after = a @ passed
    slope = ((rows.y[:, None] - expit(eta)) * state).T @ rows.x
    moved = pairs - pairs.sum(1, keepdims=True) * a
    began = start - start.sum() * np.exp(log_pi)
    return float(np.log(scale).sum() + top.sum()), np.concatenate([began, moved.ravel(), slope.ravel()])


def highest(rows: Rows, count: int, starts: int, seed: int) -> float:
    """The highest log likelihood that BFGS reaches from several starts."""

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope = log_likelihood(theta, rows, count)
        return -value, -slope

    rng, best = np.random.default_rng(seed), -np.inf
    for _ in range(starts):
        weight = rng.normal(size=(count, rows.x.shape[1]))
        start = np.concatenate([np.zeros(count), 3 * np.eye(count).ravel(), weight.ravel()])
        found = minimize(
            objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 1000, "ftol": 1e-12}
        )
        best = max(best, -float(found.fun))
    return best


def ours(data: Any, formula: str, count: int, starts: int, seed: int) -> float:
    """Log likelihood at the mode under flat priors, found as fits find it."""
    model = ethogram.RoleHMM(
        count,
        ethogram.ChoiceEmission(formula, scale=FLAT),
        transition=ethogram.Covariates(log_odds_scale=FLAT_LOG_ODDS),
    ).bind(data)
    usual = ethogram.RoleHMM(count, ethogram.ChoiceEmission(formula)).bind(data)
    key, none = jax.random.key(seed), np.zeros(0)
    first = ConjugateSVI(usual.without_covariates()).run(key, data, 200, restarts=8, progress_bar=False)
    with jax.enable_x64(True):
        sites, problem = first.posterior.mean(), Problem.of(usual, data)
        phi, _ = best_start(key, problem, usual.start(sites), starts, none)
        rng, d = np.random.default_rng(0), problem.start(sites)[1]
        near = find_mode(problem, problem.expand(phi, d), none)
        found = problem.sites(rng, near.phi[None], near.d[None], np.zeros((1, 0)))
        flat = Problem.of(model, data)
        off = ~np.eye(count, dtype=bool)
        begun = {name: site[0] for name, site in found.items()}
        weights = np.exp(np.where(off, begun["log_odds"], 0))
        place, _ = flat.start({**begun, "transition": weights / weights.sum(1, keepdims=True)})
        mode = find_mode(flat, flat.expand(place, d), none)
        at = {
            name: site[0]
            for name, site in flat.sites(rng, mode.phi[None], mode.d[None], np.zeros((1, 0))).items()
        }
        entries = flat.model.entries(data)
        return float(
            np.sum(flat.model.likelihood(at, entries.batch).log_prob(np.asarray(entries.value, float)))
        )


def theirs(rows: Rows, count: int, starts: int, seed: int) -> float:
    """The highest log likelihood of several starts of nemos."""
    import nemos

    stay = np.full((count, count), 0.05 / max(count - 1, 1))
    np.fill_diagonal(stay, 0.95 if count > 1 else 1.0)
    reached = []
    with jax.enable_x64(True):
        for start in range(starts):
            rng = np.random.default_rng(seed + start)
            begun = (rng.normal(size=(rows.x.shape[1] - 1, count)), rng.normal(size=count), np.ones(count))
            begun = (*begun, np.full(count, 1 / count), stay)
            model = nemos.glm_hmm.GLMHMM(count, "Bernoulli", regularizer="UnRegularized", maxiter=2000)
            model.fit(rows.x[:, 1:], rows.y, init_params=begun, session_starts=rows.first)
            reached.append(float(model.score(rows.x[:, 1:], rows.y, session_starts=rows.first)))
    return max(reached)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per data set, number of states and peer."""
    starts, sets = (
        (3 if settings.quick else STARTS),
        [("planted", simulated(settings.seed)[0].data, "stimulus", (3,))],
    )
    if not settings.quick:
        sets.append(("rat", psytrack_rat.load(), FORMULA, (2, 3)))
    rows: list[dict[str, Any]] = []
    for name, data, formula, counts in sets:
        frames = Rows.of(data)
        for count in counts:
            begin = time.process_time()
            own = ours(data, formula, count, starts, settings.seed)
            seconds = time.process_time() - begin
            peers = {"BFGS": highest} if name == "planted" else {}
            for peer, function in {**peers, "nemos": theirs}.items():
                row: dict[str, Any] = {"check": f"{name}, {count} states: log likelihood above {peer}"}
                why = why_skipped("nemos") if peer == "nemos" else None
                if why is not None:
                    rows.append({**row, "why": why})
                    continue
                begin = time.process_time()
                reached = function(frames, count, starts, settings.seed)
                row |= {"value": own - reached, "target": -TOLERANCE, "reached": own >= reached - TOLERANCE}
                row |= {"ours": own, "theirs": reached, "starts": starts, "seconds": seconds}
                rows.append({**row, "seconds_theirs": time.process_time() - begin})
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("glm_hmm_peers", __doc__, measure, peers=("nemos",)))
