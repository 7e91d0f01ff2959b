"""Bus engine replacement: a nonparametric maintenance cost by GP-IRL beside Rust's linear one.

Rust (1987), "Optimal replacement of GMC bus engines", group 4, discount .9999. The curve is the reward of keeping a
new engine minus that of keeping one of some mileage, under the Gaussian process of `rust_bus.free_costs`. Bands are
central 90 %. Replacements at low mileage were never observed: the cost there and the replacement cost are separated by
the prior alone, and a prior mean of a small replacement cost moves the curve below the line.

"line" is Rust's model, a cost proportional to mileage, with posterior draws of its two parameters by NUTS; his
estimates are those of `benchmarks.papers.rust_bus`. The check is that the line of his estimates lies in the band at
every observed mileage.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import summary
from numpyro.infer import MCMC, NUTS

from benchmarks import report
from ethogram.domains import rust_bus
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.reward_posterior import RewardFit
from ethogram.models.mdps.soft_policy import ActionCounts
from ethogram.models.mdps.values import soft_values

__all__ = ["measure"]

PUBLISHED = {"replacement_cost": 10.0750, "theta": 2.2930}
MILES = 5000
LINES = {"replacement_cost": dist.LogNormal(np.log(10.0), 1.0), "theta": dist.LogNormal(np.log(2.0), 1.0)}
LEVELS = (0.05, 0.95)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the two curves, of the two parameters, and of the check; in double precision."""
    counts = rust_bus.decision_counts(rust_bus.load(4))
    key_fit, key_draws, key_line = jax.random.split(jax.random.key(settings.seed), 3)
    with jax.enable_x64(True):
        fit = fit_reward(
            key_fit, rust_bus.free_costs(), counts, hyper="point", num_steps=6 if settings.quick else 100,
            progress_bar=False,
        )  # fmt: skip
        reward = np.asarray(fit.posterior.sample(key_draws, 200 if settings.quick else 2000)["reward"])
        line = draws_of_line(key_line, counts, 200 if settings.quick else 1000)
    curves = {
        "GP": reward[:, :1, 0] - reward[:, :, 0],
        "line": rust_bus.COST * line["theta"].reshape(-1, 1) * np.arange(rust_bus.NUM_BINS),
    }
    quantiles = {
        name: np.vstack([drawn.mean(0), np.quantile(drawn, LEVELS, axis=0)]) for name, drawn in curves.items()
    }
    rows: list[dict[str, Any]] = [
        {"curve": name, "mileage": MILES * place, "mean": mean, "lower": lower, "upper": upper}
        for name, found in quantiles.items()
        for place, (mean, lower, upper) in enumerate(found.T.tolist())
    ]
    for name, found in summary(line).items():
        row = {"parameter": name, "mean": float(found["mean"]), "sd": float(found["std"])}
        row |= {"r_hat": float(found["r_hat"]), "published": PUBLISHED[name]}
        rows.append(row | {"reached": bool(abs(found["mean"] - PUBLISHED[name]) < found["std"])})
    replacing = reward[:, 0, 0] - reward[:, 0, 1]
    rows.append(
        {"parameter": "replacement_cost, GP", "mean": float(replacing.mean()), "sd": float(replacing.std())}
    )
    return [*rows, check(quantiles["GP"], counts, fit)]


def draws_of_line(key: Any, counts: np.ndarray, num_samples: int) -> dict[str, np.ndarray]:
    """Draws (chain, draw) of the two parameters."""
    world = rust_bus.mdp()

    def model() -> None:
        reward = rust_bus.reward(*(numpyro.sample(name, prior) for name, prior in LINES.items()))
        with numpyro.plate("bin", rust_bus.NUM_BINS):
            decides = ActionCounts(soft_values(world, reward).log_policy, jnp.asarray(counts.sum(1)))
            numpyro.sample("decisions", decides, obs=jnp.asarray(counts))

    mcmc = MCMC(
        NUTS(model), num_warmup=min(500, num_samples), num_samples=num_samples, num_chains=4, chain_method="sequential",
        progress_bar=False,
    )  # fmt: skip
    mcmc.run(key)
    return {name: np.asarray(x) for name, x in mcmc.get_samples(group_by_chain=True).items()}


def check(quantiles: np.ndarray, counts: np.ndarray, fit: RewardFit) -> dict[str, Any]:
    """Share of the observed mileages at which the band covers the line of the published estimates."""
    line = rust_bus.COST * PUBLISHED["theta"] * np.arange(rust_bus.NUM_BINS)
    inside = (quantiles[1] <= line) & (line <= quantiles[2])
    share = float(inside[counts.sum(1) > 0].mean())
    row = {"check": "share of mileages with the published line in the band", "value": share, "target": 1.0}
    found = {
        "elbo": fit.elbo,
        "laplace_elbo": fit.laplace_elbo,
        "steps": fit.steps,
        "converged": fit.converged,
    }
    return row | found | {"reached": share == 1.0}


if __name__ == "__main__":
    raise SystemExit(report.run("bus_engine", __doc__, measure))
