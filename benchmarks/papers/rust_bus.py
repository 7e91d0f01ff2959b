"""Rust's bus engines: the published logit estimates, and the probit of the noisy Markov decision process.

Group 4, first months left out, 4292 decisions. "structural" is Rust (1987), table IX: dynamic logit with discount
.9999, 90 bins and linear costs, by the nested fixed point; the same with normal shocks has no published figure. "by
gradients" is the former by `rust_bus.estimate`, with derivatives of the soft values, timed after compilation.
"reduced form" is static, replacing worth -alpha + slope * bin / 10: maximum likelihood of probit and logit, and the
posterior of the probit under a flat prior by PX-DA and by NUTS, whose means differ from the maximum, as the posterior
is skewed.
"""

from __future__ import annotations

import argparse
import functools
import time
from typing import Any

import jax
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from scipy.optimize import minimize
from scipy.special import expit, log_ndtr, ndtr

from benchmarks import report
from ethogram.domains import rust_bus
from ethogram.inference.choices.px_da import PXDA
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.data.trajectories import Metadata

__all__ = ["choice_values", "log_likelihood", "measure", "nested_fixed_point", "reduced_form"]

PUBLISHED = {"replacement_cost": 10.0750, "theta": 2.2930, "minus_log_likelihood": 163.584}
WITHIN = {"replacement_cost": 2e-4, "theta": 2e-4, "minus_log_likelihood": 5e-4}
NAMES = ("alpha", "slope")
REDUCED = {"probit": -164.65, "logit": -165.46}
"""Log likelihoods of an independent computation; no paper prints them."""


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the structural and of the reduced form, in double precision."""
    with jax.enable_x64(True):
        rows = rows_of_structural() + rows_by_gradients()
        return rows + rows_of_reduced_form(settings.quick, settings.seed)


def rows_of_structural() -> list[dict[str, Any]]:
    """A row per parameter and kind of shock."""
    months, rows = rust_bus.load(4), []
    for shocks in ("logit", "probit"):
        found = nested_fixed_point(months, shocks=shocks, increments=rust_bus.INCREMENTS)
        for name, value in zip(PUBLISHED, (*found[:2], -found.log_likelihood), strict=True):
            row = {"model": f"structural, {shocks}", "parameter": name, "estimate": value}
            if shocks == "logit":
                row |= {"published": PUBLISHED[name], "reached": abs(value - PUBLISHED[name]) <= WITHIN[name]}
            elif name == "minus_log_likelihood":
                row["reached"] = 163.30 <= value <= 163.40
            rows.append(row)
    return rows


def rows_by_gradients() -> list[dict[str, Any]]:
    """A row per parameter, found by the gradient through the soft values, and a row of the seconds it took."""
    months = rust_bus.load(4)
    rust_bus.estimate(months)
    start = time.perf_counter()
    found = rust_bus.estimate(months)
    seconds = time.perf_counter() - start
    rows = [
        {"model": "structural, logit, by gradients", "parameter": name, "estimate": value,
         "published": PUBLISHED[name], "reached": abs(value - PUBLISHED[name]) <= WITHIN[name]}
        for name, value in zip(PUBLISHED, (*found[:2], -found.log_likelihood), strict=True)
    ]  # fmt: skip
    row = {"model": "structural, logit, by gradients", "parameter": "seconds", "estimate": seconds}
    return [*rows, row | {"reached": seconds < 1}]


def rows_of_reduced_form(quick: bool, seed: int) -> list[dict[str, Any]]:
    """Maximum likelihood, and posterior means by both samplers."""
    months = rust_bus.load(4)
    data = reduced_form(months)
    sign = np.where(months.replaced, 1, -1)

    def loss(values, shocks):
        gap = (-values[0] + values[1] * months.bin / 10) * sign
        return np.logaddexp(0, -gap).sum() if shocks == "logit" else -log_ndtr(gap / np.sqrt(2)).sum()

    rows: list[dict[str, Any]] = []
    for shocks, reference in REDUCED.items():
        options = {"xatol": 1e-8, "fatol": 1e-10}
        found = minimize(loss, np.array([4.0, 0.3]), args=(shocks,), method="Nelder-Mead", options=options)
        row = {"model": f"reduced form, {shocks}, maximum likelihood"}
        rows += [
            row | {"parameter": name, "estimate": float(x)} for name, x in zip(NAMES, found.x, strict=True)
        ]
        gap = abs(-found.fun - reference)
        row |= {"parameter": "log_likelihood", "estimate": float(-found.fun), "reference": reference}
        rows.append(row | {"reached": bool(gap <= 0.01)})
    model = NoisyMDP(float("inf"), "features")
    size = {"num_warmup": 200, "num_samples": 500} if quick else {"num_warmup": 1000, "num_samples": 5000}
    means, errors = {}, {}
    for name, kernel in {"PX-DA": PXDA(model), "NUTS": NUTS(model, dense_mass=True)}.items():
        mcmc = MCMC(kernel, **size, num_chains=4, chain_method="vectorized", progress_bar=False)
        mcmc.run(jax.random.key(seed), data)
        drawn = np.asarray(mcmc.get_samples(group_by_chain=True)["v"])
        means[name], spread = drawn.mean((0, 1)), drawn.std((0, 1))
        errors[name] = spread / np.sqrt(np.asarray(effective_sample_size(drawn)))
        for parameter, *value_and_slope in zip(NAMES, means[name], errors[name], spread, strict=True):
            row = {"model": f"reduced form, probit, {name}", "parameter": parameter}
            rows.append(row | dict(zip(("estimate", "mcse", "sd"), map(float, value_and_slope), strict=True)))
    apart = np.abs(means["PX-DA"] - means["NUTS"]) / np.hypot(errors["PX-DA"], errors["NUTS"])
    row = {"model": "reduced form, probit", "parameter": "PX-DA less NUTS, in Monte Carlo errors"}
    return [*rows, row | {"estimate": float(apart.max()), "reached": bool(apart.max() < 4)}]


def nested_fixed_point(
    records: rust_bus.Records, *, increments: Any, beta: float = rust_bus.DISCOUNT, shocks: str = "logit"
) -> rust_bus.Estimate:
    """Maximum likelihood estimates of the costs, whose values are solved for anew at every pair of costs."""

    def loss(costs):
        values = choice_values(*costs, beta=beta, shocks=shocks, increments=increments)
        return -log_likelihood(values, records, shocks=shocks)

    search = functools.partial(minimize, loss, method="Nelder-Mead")
    start = search([8.0, 2.0], options={"xatol": 1e-4, "fatol": 1e-8})
    found = search(start.x, options={"xatol": 1e-8, "fatol": 1e-12, "maxiter": 2000})
    if not found.success:
        raise RuntimeError(f"the optimiser did not converge: {found.message}")
    return rust_bus.Estimate(float(found.x[0]), float(found.x[1]), float(-found.fun))


def choice_values(
    replacement_cost: float | int,
    theta: float | int,
    *,
    beta: float = rust_bus.DISCOUNT,
    shocks: str = "logit",
    increments: Any = rust_bus.INCREMENTS,
) -> Float[np.ndarray, "bin action"]:
    """Choice-specific values of keeping and replacing in every bin, without shocks.

    The fixed point of the smoothed Bellman equation, by Newton-Kantorovich steps after two value iterations.
    """
    keep = _keep(tuple(increments))
    bins = np.arange(rust_bus.NUM_BINS)
    cost = rust_bus.COST * theta * bins

    def utilities(values: np.ndarray) -> np.ndarray:
        ahead = beta * keep @ values
        return np.stack([-cost + ahead, np.full(len(bins), -replacement_cost + ahead[0])], axis=1)

    values = np.zeros(len(bins))
    for step in range(50):
        each = utilities(values)
        swept, share = _best(each, shocks)
        gap = swept - values
        if np.abs(gap).max() < 1e-11 * (1 + np.abs(values).max()):
            return each
        jump = beta * ((1 - share)[:, None] * keep + share[:, None] * keep[0])
        values = swept if step < 2 else values + np.linalg.solve(np.eye(len(bins)) - jump, gap)
    raise RuntimeError(f"the values of costs {replacement_cost}, {theta} did not converge in 50 steps")


@functools.lru_cache(maxsize=8)
def _keep(increments: tuple[float, ...]) -> np.ndarray:
    """Transition probabilities (bin, next bin) of keeping."""
    return np.asarray(rust_bus.mdp(increments).transitions.probabilities)[:, 0]


def _best(utilities: np.ndarray, shocks: str) -> tuple[np.ndarray, np.ndarray]:
    """Expected maximum utility (bin,), with Gumbel shocks of mean zero, and the probability of replacing."""
    keep, replace = utilities.T
    if shocks == "logit":
        return np.logaddexp(keep, replace), expit(replace - keep)
    gap = (keep - replace) / np.sqrt(2)
    return keep * ndtr(gap) + replace * ndtr(-gap) + np.exp(-(gap**2) / 2) / np.sqrt(np.pi), ndtr(-gap)


def log_likelihood(utilities: np.ndarray, records: rust_bus.Records, *, shocks: str = "logit") -> float:
    """Log likelihood of the decisions given choice-specific values (bin, action)."""
    gap = (utilities[:, 1] - utilities[:, 0])[records.bin] * np.where(records.replaced, 1, -1)
    return float(-np.logaddexp(0, -gap).sum() if shocks == "logit" else log_ndtr(gap / np.sqrt(2)).sum())


def reduced_form(records: rust_bus.Records) -> Decisions:
    """Decisions of the reduced form: the utility of replacing is -alpha + slope * bin / 10, of keeping zero."""
    features = np.zeros((len(records.bin), 2, 2))
    features[:, 1, 0], features[:, 1, 1] = -1, records.bin / 10
    names = Metadata(name="bus engines", feature_names=("alpha", "slope"), action_names=rust_bus.ACTION_NAMES)
    legal = np.ones(features.shape[:2], bool)
    return Decisions(features, legal, records.replaced.astype(int), metadata=names)


if __name__ == "__main__":
    raise SystemExit(report.run("rust_bus", __doc__, measure))
