"""Rust's bus engines: the published logit estimates, and the probit of the noisy Markov decision process.

Group 4, first months left out, 4292 decisions. "structural" is Rust (1987), table IX: dynamic logit with discount
.9999, 90 bins and linear costs, by the nested fixed point; the same with normal shocks has no published figure. "by
gradients" is the former by Newton's method with derivatives of the soft values, timed after compilation.
"reduced form" is static, replacing worth -alpha + slope * bin / 10: maximum likelihood of probit and logit, and the
posterior of the probit under a flat prior by PX-DA and by NUTS, whose means differ from the maximum, as the posterior
is skewed.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS
from scipy.optimize import minimize
from scipy.special import log_ndtr

from benchmarks import report
from ethogram.domains import rust_bus
from ethogram.inference.choices.px_da import PXDA
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.mdps.values import soft_values

__all__ = ["measure"]

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
    """A row a parameter and kind of shock."""
    months, rows = rust_bus.load(4), []
    for shocks in ("logit", "probit"):
        found = rust_bus.estimate(months, shocks=shocks, increments=rust_bus.INCREMENTS)
        values = {
            "replacement_cost": found.replacement_cost,
            "theta": found.theta,
            "minus_log_likelihood": -found.log_likelihood,
        }
        for name, value in values.items():
            row = {"model": f"structural, {shocks}", "parameter": name, "estimate": value}
            if shocks == "logit":
                row |= {"published": PUBLISHED[name], "reached": abs(value - PUBLISHED[name]) <= WITHIN[name]}
            elif name == "minus_log_likelihood":
                row["reached"] = 163.30 <= value <= 163.40
            rows.append(row)
    return rows


def rows_by_gradients() -> list[dict[str, Any]]:
    """A row a parameter, found with gradient and Hessian through the soft values, and a row of the seconds it took."""
    world, counts = rust_bus.mdp(), jnp.asarray(rust_bus.decision_counts(rust_bus.load(4)))

    def loss(costs):
        return -jnp.sum(counts * soft_values(world, rust_bus.reward(*costs)).log_policy)

    value_and_slope, bent = jax.jit(jax.value_and_grad(loss)), jax.jit(jax.hessian(loss))

    def search():
        found = minimize(
            lambda x: tuple(map(np.asarray, value_and_slope(x))), np.array([8.0, 2.0]), jac=True, method="trust-exact",
            hess=lambda x: np.asarray(bent(x)), options={"gtol": 1e-8},
        )  # fmt: skip
        return np.append(found.x, found.fun)

    search()
    start = time.perf_counter()
    found = search()
    seconds = time.perf_counter() - start
    rows = [
        {"model": "structural, logit, by gradients", "parameter": name, "estimate": float(value),
         "published": PUBLISHED[name], "reached": bool(abs(value - PUBLISHED[name]) <= WITHIN[name])}
        for name, value in zip(PUBLISHED, found, strict=True)
    ]  # fmt: skip
    row = {"model": "structural, logit, by gradients", "parameter": "seconds", "estimate": seconds}
    return [*rows, row | {"reached": seconds < 1}]


def rows_of_reduced_form(quick: bool, seed: int) -> list[dict[str, Any]]:
    """Maximum likelihood, and posterior means by both samplers."""
    months = rust_bus.load(4)
    data = rust_bus.reduced_form(months)
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


if __name__ == "__main__":
    raise SystemExit(report.run("rust_bus", __doc__, measure))
