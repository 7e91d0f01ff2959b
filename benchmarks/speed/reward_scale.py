"""Time, memory and accuracy of rewards of many states: inducing points beside dense fits, on objectworlds.

Every fit has a process of its own, whose peak memory is reported; on a GPU, that of the device. Features are the four
distances of objectworlds, the hyper-parameters are held, and the Gaussian is fitted by natural gradients. At 2025
states the fits with inducing points stand beside one for the rewards of all states ("direct") and one with the full
conditional covariance. `divergence` is that of the policy of the mean reward from the true soft policy, in nats a
decision; `uniform` is that of the uniform policy.

The time of an iteration does not depend on the number of demonstrations, whose counts are sufficient: nothing is gained
by mini-batches of them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import report
from ethogram.domains import objectworld
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.models.mdps.soft_curvature import likelihood_curvature
from ethogram.models.mdps.values import soft_values
from ethogram.models.rewards.gp_irl import GPIRL
from ethogram.models.rewards.inducing_points import representative_points

__all__ = ["CASES", "measure"]

HELD = {"scale": 10.0, "relevance": 0.3}
"""Hyper-parameters of all fits."""


class Case(NamedTuple):
    """A fit, and the draws of its steps and ELBOs."""

    name: str
    size: int  # cells along a side
    kind: str  # "direct", or the conditional of the inducing family
    num_inducing: int
    num_demonstrations: int
    num_draws: int
    num_evaluations: int


CASES = (
    Case("2025 states", 45, "direct", 0, 500, 12, 128),
    Case("2025 states", 45, "full", 200, 500, 12, 128),
    Case("2025 states", 45, "independent", 200, 500, 12, 128),
    Case("10^4 states", 100, "independent", 200, 2000, 12, 128),
    Case("10^5 states", 317, "independent", 200, 10_000, 4, 16),
)
QUICK_CASES = (
    Case("100 states", 10, "direct", 0, 50, 4, 16),
    Case("100 states", 10, "independent", 30, 50, 4, 16),
)
MOST_MB = 8192
"""Target of the peak memory at 10^5 states."""


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the curvature at 1600 states, then of every fit."""
    rows = [curvature_row(10 if settings.quick else 40, settings.seed)]
    context = multiprocessing.get_context("spawn")
    for case in QUICK_CASES if settings.quick else CASES:
        with context.Pool(1) as pool:
            rows.append(pool.apply(fit_row, (case, settings.seed)))
    return rows


def curvature_row(size: int, seed: int) -> dict[str, Any]:
    """One Hessian of the log likelihood at inducing points, beside that of all states projected on them."""
    with jax.enable_x64(True):
        world, model, counts = _problem(Case("", size, "independent", 100, 100, 0, 0), seed)
        weights = model.reward_map(HELD["scale"], jnp.full(model.num_features, HELD["relevance"])).weights
        task = (world.mdp, jnp.asarray(world.reward, float), jnp.asarray(counts))

        def projected():
            return likelihood_curvature(*task, basis=weights).hessian

        def dense():
            return weights.T @ likelihood_curvature(*task).hessian @ weights

        seconds = {}
        for name, function in (("ours", projected), ("dense", dense)):
            jax.block_until_ready(function())
            start = time.process_time()
            found = jax.block_until_ready(function())
            seconds[name] = time.process_time() - start
            if name == "ours":
                ours = found
        error = float(jnp.max(jnp.abs(ours - found)) / jnp.max(jnp.abs(found)))
    columns = {
        "size": f"{size * size} states",
        "what": "one Hessian",
        "error": error,
        "correct": error < 1e-6,
    }
    return columns | {"seconds": seconds["ours"], "dense_seconds": seconds["dense"]}


def _problem(case: Case, seed: int) -> tuple[Any, GPIRL, np.ndarray]:
    key_world, key_data = jax.random.split(jax.random.key(seed))
    world = objectworld.objectworld(key_world, case.size, features="continuous")
    data = objectworld.simulate(key_data, world, case.num_demonstrations)
    held = {
        "scale_prior": HELD["scale"],
        "relevance_prior": np.full(world.features.shape[1], HELD["relevance"]),
    }
    if case.kind == "direct":
        model = GPIRL(world.mdp, world.features, conditional="none", **held)
    else:
        points = representative_points(world.features, case.num_inducing)
        columns = {"inducing": points, "conditional": case.kind}
        model = GPIRL(world.mdp, world.features, **columns, **held)
    return world, model, model.counts(data)


def fit_row(case: Case, seed: int) -> dict[str, Any]:
    """A fit in this process, with its time and peak memory."""
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search has not converged")
        world, model, counts = _problem(case, seed)
        start, start_wall = time.process_time(), time.perf_counter()
        fit = fit_reward(
            jax.random.key(seed),
            model,
            counts.astype(int),
            hyper="fixed",
            num_draws=case.num_draws,
            num_evaluations=case.num_evaluations,
            num_steps=40,
            tol=1.0,
            progress_bar=False,
        )
        seconds, wall = time.process_time() - start, time.perf_counter() - start_wall
        truth = np.asarray(soft_values(world.mdp, jnp.asarray(world.reward, float)).log_policy)
        policy = np.asarray(fit.posterior.mean(cell_noise=True)["policy"])
    statistics = jax.devices()[0].memory_stats() or {}
    peak = statistics.get("peak_bytes_in_use", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    row = {
        "size": case.name,
        "what": "fit",
        "reward": "of all states" if case.kind == "direct" else f"inducing, {case.kind}",
        "inducing": 0 if case.kind == "direct" else len(model.inducing),
        "demonstrations": case.num_demonstrations,
        "draws": case.num_draws,
        "evaluations": case.num_evaluations,
        "device": jax.devices()[0].device_kind,
        "seconds": seconds,
        "wall": wall,
        "peak_mb": peak / 2**20,
        "steps": fit.steps,
        "converged": bool(fit.converged),
        "elbo": fit.elbo,
        "elbo_se": fit.elbo_se,
        "laplace_elbo": fit.laplace_elbo,
        "divergence": float(np.mean(np.sum(np.exp(truth) * (truth - np.log(policy)), axis=1))),
        "uniform": float(np.mean(np.sum(np.exp(truth) * (truth + np.log(truth.shape[1])), axis=1))),
    }
    if case.size * case.size >= 100_000:
        row |= {"target": MOST_MB, "reached": row["peak_mb"] <= MOST_MB}
    return row


if __name__ == "__main__":
    raise SystemExit(report.run("reward_scale", __doc__, measure))
