"""Missing values of features: the cost of an iteration beside none, and means and scores beside dropped frames.

The first rows time one iteration of coordinate ascent with 20 % of the features missing against the same data without
gaps, for features that are missing one by one or as the two coordinates of a keypoint. The others fit roles of 3 and 6
correlated features to simulated data with gaps, to the same data without the frames that have one, and to the whole
data: root mean squared error of the means of the roles, share of the true means inside the 90 % intervals, and log
likelihood of new complete data, in nats per frame.
"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import report
from benchmarks.speed.conjugate_svi import iteration
from benchmarks.speed.timing import Contender, compare
from ethogram.inference.conjugate import ConjugateSVI, heldout_log_likelihood
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.families.exponential_family import natural_step
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["measure"]

SHARE = 0.2
SHAPES = ((4, 1), (6, 2), (6, 1))
"""Features, and how many of them are missing together."""

MOST = 5.0
"""Cost of an iteration with gaps, in iterations without, that is aimed at."""

FEATURES = (3, 6)
SEEDS, QUICK_SEEDS = 10, 1
NUM_ROLES = 3


def with_gaps(data: Trajectories, rng: np.random.Generator, together: int = 1) -> Trajectories:
    """The data with a share of the features missing, `together` neighbours at once."""
    x = np.array(data.observations, float)
    gone = rng.random((*x.shape[:2], x.shape[2] // together)) < SHARE
    x[np.repeat(gone, together, axis=-1)] = np.nan
    return data._replace(observations=x, observed=np.asarray(data.observed) & ~np.isnan(x).all(axis=-1))


def simulated(size: int, seed: int, num_groups: int, num_steps: int) -> tuple[RoleHMM, Trajectories, dict]:
    """Sticky roles with correlated features, about 1.5 standard deviations apart in each."""
    rng = np.random.default_rng(seed)
    model = RoleHMM(NUM_ROLES, GaussianEmission(size))
    parameters = {
        "initial": np.full(NUM_ROLES, 1 / NUM_ROLES),
        "transition": np.full((NUM_ROLES, NUM_ROLES), 0.05) + (1 - 0.05 * NUM_ROLES) * np.eye(NUM_ROLES),
        "mean": 1.1 * rng.standard_normal((NUM_ROLES, size)),
        "covariance": np.tile(0.5 * np.eye(size) + 0.5, (NUM_ROLES, 1, 1)),
    }
    key = jax.random.key(seed)
    data = model.simulate(key, num_groups=num_groups, lengths=num_steps, parameters=parameters).data
    return model, data, parameters


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of cost, then of accuracy."""
    with jax.enable_x64(True):
        rows = [_cost(*shape, settings) for shape in SHAPES[: 1 if settings.quick else None]]
        for size in FEATURES[: 1 if settings.quick else None]:
            rows += _accuracy(size, settings)
    return rows


def _cost(size: int, together: int, settings: argparse.Namespace) -> dict[str, Any]:
    model, data, _ = simulated(size, settings.seed, 50, 200)
    model = model.bind(data)
    gaps = with_gaps(data, np.random.default_rng(settings.seed), together)
    prior, contenders = model.prior(), {}
    for name, given in {"whole": data, "gaps": gaps}.items():
        batch = model.arrange(given)
        statistics = model.start_statistics(np.random.default_rng(0), "kmeans++", [batch])
        blocks = natural_step(prior, prior, jax.tree.map(jnp.asarray, statistics), 1.0, 1.0)
        contenders[name] = Contender(iteration, (model, blocks, batch))
    found = compare(contenders, rounds=3 if settings.quick else 7)
    cost = float(np.median(found["gaps"].cpu / found["whole"].cpu))
    return {
        "case": f"cost of an iteration, {size} features, {together} missing together",
        "patterns": len(np.unique(np.isnan(gaps.observations).reshape(-1, size), axis=0)),
        "whole_ms": 1e3 * float(np.median(found["whole"].cpu)),
        "gaps_ms": 1e3 * float(np.median(found["gaps"].cpu)),
        "cost": cost,
        "target": MOST,
        "reached": cost <= MOST,
    }


def _accuracy(size: int, settings: argparse.Namespace) -> list[dict[str, Any]]:
    found: dict[str, list[Any]] = {"gaps": [], "dropped": [], "whole": []}
    for seed in range(settings.seed, settings.seed + (QUICK_SEEDS if settings.quick else SEEDS)):
        model, data, truth = simulated(size, seed, 24, 40)
        train, test = data.take(np.arange(8)), data.take(np.arange(8, 24))
        gaps = with_gaps(train, np.random.default_rng(seed))
        for name, given in {"gaps": gaps, "dropped": gaps.complete_frames(), "whole": train}.items():
            fit = ConjugateSVI(model).run(jax.random.key(seed), given, 100, progress_bar=False)
            mean = np.asarray(fit.posterior.mean()["mean"])
            orders = map(list, itertools.permutations(range(NUM_ROLES)))
            order = min(orders, key=lambda order: np.sum((mean[order] - truth["mean"]) ** 2))
            draws = np.asarray(fit.posterior.sample(jax.random.key(1), 400)["mean"])[:, order]
            low, high = np.quantile(draws, (0.05, 0.95), axis=0)
            inside = np.mean((low <= truth["mean"]) & (truth["mean"] <= high))
            error = np.mean((mean[order] - truth["mean"]) ** 2)
            found[name].append((error, inside, heldout_log_likelihood(fit, test)))
    means = {name: np.mean(each, axis=0) for name, each in found.items()}
    rows = []
    for name, (error, inside, heldout) in means.items():
        row = {"case": f"{size} features, {name}", "seeds": len(found[name]), "error": float(np.sqrt(error))}
        row |= {"inside_90": float(inside), "heldout": float(heldout)}
        if name == "gaps":
            better = error < means["dropped"][0] and heldout > means["dropped"][2]
            row |= {"target": float(np.sqrt(means["dropped"][0])), "reached": bool(better)}
        rows.append(row)
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("missing_values", __doc__, measure))
