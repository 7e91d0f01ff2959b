"""Calibration of GP-IRL: coverage of 90 % intervals for differences of rewards, and simulation-based calibration.

MDPs of six states and three actions are drawn, rewards from the prior at fixed hyper-parameters, and ten demonstrations
of six steps each from the soft-optimal policy. Intervals for all differences of two rewards come from the Gaussian
posterior by natural gradients, and from NUTS. Differences, because the level is not identified. "nested" is the default
of `fit_reward` in other MDPs, whose scale and relevances are drawn from their priors and not known to the fit.

`sbc_p` is a chi-square test, ten bins, of the ranks of true differences of the first two states among 99 draws, which
are uniform where the posterior is right; Talts et al. (2018), "Validating Bayesian inference algorithms with
simulation-based calibration". No paper has figures to compare with: the targets are those of a calibrated method.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpyro.infer import MCMC, NUTS
from scipy import stats

from benchmarks import report
from ethogram.inference.rewards.fit_reward import fit_reward
from ethogram.inference.rewards.predictions import difference_coverage
from ethogram.models.mdps.mdp import MDP
from ethogram.models.rewards.gp_irl import GPIRL

__all__ = ["measure"]

STATES, ACTIONS, DISCOUNT = 6, 3, 0.9
DEMONSTRATIONS, STEPS = 10, 6
SCALE, RELEVANCE = 5.0, 1.0
COVERAGE = {"natural gradient": (0.85, 0.95), "NUTS": (0.87, 0.93), "nested": (0.85, 0.95)}
BINS, RANKS = 10, 99
LEVEL = 0.01


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per method, in double precision."""
    worlds, draws = (12, 297) if settings.quick else (200, 990)
    with jax.enable_x64(True):
        tables, features, counts, truth = simulate(jax.random.key(settings.seed), worlds)
        rows = []
        for method, drawn in (
            ("natural gradient", by_gaussian(tables, features, counts, draws, settings.seed)),
            ("NUTS", by_nuts(tables, features, counts, draws, settings.seed)),
        ):
            rows.append(row_of(method, drawn, truth))
        key_unknown = jax.random.fold_in(jax.random.key(settings.seed), 1)
        *made, truth = simulate(key_unknown, worlds, known=False)
        rows.append(row_of("nested", by_gaussian(*made, draws, settings.seed, known=False), truth))
    return rows


def model_of(table: Any, features: Any, known: bool = True) -> GPIRL:
    """The model of one world, at the hyper-parameters that rewards are drawn with, or with their default priors."""
    hypers = {"scale_prior": SCALE, "relevance_prior": RELEVANCE} if known else {}
    return GPIRL(MDP.dense(table, discount=DISCOUNT), features, **hypers)


def simulate(
    key: Array, worlds: int, known: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Transitions, features, counts and true rewards, a world along the first axis."""
    random = np.random.default_rng(int(jax.random.randint(key, (), 0, 2**31 - 1)))
    tables = random.dirichlet(np.full(STATES, 0.3), (worlds, STATES, ACTIONS))
    features = random.normal(size=(worlds, STATES, 2))
    counts, truth = [], []
    for key_world, table, feature in zip(jax.random.split(key, worlds), tables, features, strict=True):
        model = model_of(table, feature, known)
        made = model.simulate(key_world, num_trajectories=DEMONSTRATIONS, length=STEPS)
        counts.append(model.counts(made.data))
        truth.append(np.asarray(made.parameters["reward"]))
    return tables, features, np.stack(counts), np.stack(truth)


def by_gaussian(
    tables: Any, features: Any, counts: Any, draws: int, seed: int, known: bool = True
) -> np.ndarray:
    """Draws (world, draw, state) of the Gaussian posterior, or of that of unknown hyper-parameters."""
    drawn = []
    keys = jax.random.split(jax.random.key(seed + 1), len(tables))
    for key, table, feature, count in zip(keys, tables, features, counts, strict=True):
        key_fit, key_draws = jax.random.split(key)
        fit = fit_reward(
            key_fit,
            model_of(table, feature, known),
            count.astype(int),
            num_draws=16,
            progress_bar=False,
        )
        drawn.append(np.asarray(fit.posterior.sample(key_draws, draws)["reward"]))
    return np.stack(drawn)


def by_nuts(tables: Any, features: Any, counts: Any, draws: int, seed: int) -> np.ndarray:
    """Draws (world, draw, state) of one chain a world, every third one kept."""

    @jax.jit
    def run(key: Array, table: Array, feature: Array, count: Array) -> Array:
        mcmc = MCMC(
            NUTS(model_of(table, feature)),
            num_warmup=500,
            num_samples=3 * draws,
            thinning=3,
            progress_bar=False,
        )
        mcmc.run(key, count)
        return mcmc.get_samples()["reward"]

    keys = jax.random.split(jax.random.key(seed + 2), len(tables))
    # One after the other: side by side all would walk as far as the farthest.
    return np.stack(
        [np.asarray(run(*one)) for one in zip(keys, tables, features, jnp.asarray(counts), strict=True)]
    )


def row_of(method: str, drawn: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    """Coverage of differences, with its standard error over worlds, and the test of ranks."""
    inside = np.array([difference_coverage(one, true) for one, true in zip(drawn, truth, strict=True)])
    error = float(inside.std(ddof=1) / np.sqrt(len(inside)))
    difference = drawn[..., 0] - drawn[..., 1]
    thin = difference[:, :: difference.shape[1] // RANKS][:, :RANKS]
    rank = (thin < (truth[:, 0] - truth[:, 1])[:, None]).sum(1)
    found = np.bincount(rank * BINS // (RANKS + 1), minlength=BINS)
    p = float(stats.chisquare(found).pvalue)
    low, high = COVERAGE[method]
    coverage = float(inside.mean())
    row = {"method": method, "worlds": len(truth), "coverage90": coverage, "standard_error": error}
    row |= {"at_least": low, "at_most": high, "sbc_p": p}
    return row | {"reached": bool(low <= coverage <= high and p > LEVEL)}


if __name__ == "__main__":
    raise SystemExit(report.run("gp_irl_calibration", __doc__, measure))
