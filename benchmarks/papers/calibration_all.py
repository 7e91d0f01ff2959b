"""Simulation-based calibration of every pair of a model and an algorithm that gives a posterior.

Parameters are drawn from the prior and data from them; where draws are of the posterior, the rank of a true value among
99 of them is uniform, and central intervals hold as often as they say. Talts et al. (2018), "Validating Bayesian
inference algorithms with simulation-based calibration". Statistics do not change with the order of hidden states. The
joint density is among them, which depends on the data, as Modrák et al. (2023) ask.

`coverage50` and `coverage90` are means over data sets and statistics, `error90` is the standard error of the latter.
`p` is the smallest p value of a chi-square test of ranks in ten bins, times the number of statistics. Draws of chains
are thinned to 99. Rows of a q that is known to be too narrow have no target; the "corrected" ones follow them.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.infer.util import log_density
from scipy import stats

import ethogram
from benchmarks import report
from benchmarks.papers import gp_irl_calibration
from benchmarks.papers.interval_coverage import CASES, INTENTS, mean_staying, role_model, simulated_intents
from ethogram.domains import small_mdps

__all__ = ["PAIRS", "measure", "ranks_of"]

RANKS, BINS, LEVEL = 99, 10, 0.01
COVERAGE50, COVERAGE90 = (0.45, 0.55), (0.87, 0.93)
QUICK = 4
NUTS = {"num_warmup": 200, "num_samples": 500, "num_chains": 2}
REFRESH = {"num_warmup": 200, "num_draws": 500, "num_chains": 2}


class Pair(NamedTuple):
    """A model with an algorithm, how its data sets are made, and how many there are."""

    model: str
    algorithm: str
    replicate: Callable[[str, int, int], tuple[np.ndarray, np.ndarray]]
    data_sets: int
    narrow: bool = False


def role_replicate(algorithm: str, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Statistics of draws (draw, statistic) and of the truth (statistic,): two roles, eight sequences of 12 steps."""
    model = role_model(CASES[0])
    key_data, key_fit = jax.random.split(jax.random.fold_in(jax.random.key(seed), number))
    made = model.simulate(key_data, num_groups=8, lengths=12)
    fit = fitted(key_fit, model, made.data, algorithm, {"svi": {"num_steps": 400, "restarts": 2}})

    def statistics(sites: dict[str, Any]) -> dict[str, np.ndarray]:
        mean, stay = np.sort(sites["mean"][..., 0], -1), np.diagonal(sites["transition"], axis1=-2, axis2=-1)
        return {
            "least mean": mean[..., 0],
            "largest mean": mean[..., 1],
            "log variances": np.log(sites["covariance"]).sum((-3, -2, -1)),
            "staying": stay.sum(-1),
            "joint": joint_density(model, made.data, sites),
        }

    return ranks_of(statistics, fit, made.parameters)


def intent_replicate(algorithm: str, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for two intents, eight traces of 15 steps."""
    key_data, key_fit = jax.random.split(jax.random.fold_in(jax.random.key(seed + 1), number))
    model, made = simulated_intents(key_data, seed, number)
    fit = fitted(key_fit, model, made.data, algorithm, {})
    bound = fit.draws().model

    def statistics(sites: dict[str, Any]) -> dict[str, np.ndarray]:
        stay = np.sort(mean_staying(bound, made.data, sites), -1)
        first = np.sort(sites["policy"][..., :INTENTS, 0, 0], -1)
        return {
            "least staying": stay[..., 0],
            "largest staying": stay[..., 1],
            "least of an action": first[..., 0],
            "largest of an action": first[..., 1],
        }

    return ranks_of(statistics, fit, made.parameters)


def choice_replicate(algorithm: str, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for 40 choices among three options with two features, the variance of the noise unknown."""
    random = np.random.default_rng([seed, number])
    options, kappa = random.normal(size=(40, 3, 2)), 8.0 / random.gamma(5.0)
    values = np.sqrt(kappa) * random.standard_normal(2)
    chosen = (options @ values + random.standard_normal((40, 3))).argmax(1)
    data = ethogram.Decisions(options, np.ones((40, 3), bool), chosen)
    model = ethogram.NoisyMDP(dist.InverseGamma(5.0, 8.0), "features")
    fit = fitted(
        jax.random.fold_in(jax.random.key(seed + 2), number), model, data, algorithm, {"px-da": NUTS}
    )

    def statistics(sites: dict[str, Any]) -> dict[str, np.ndarray]:
        values = sites["v"]
        return {
            "first value": values[..., 0],
            "second value": values[..., 1],
            "length": (values**2).sum(-1),
            "log variance": np.log(sites["kappa"]),
        }

    return ranks_of(statistics, fit, {"v": values, "kappa": np.asarray(kappa)})


def switching_replicate(algorithm: str, seed: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """The same for two rewards of three states between which an agent switches."""
    base = ethogram.GPIRL(
        small_mdps.three_state(), np.array([[1.0], [2.0], [3.0]]), scale_prior=5.0, relevance_prior=1.0
    )
    model = ethogram.SwitchingGPIRL(base, 2)
    key_data, key_fit = jax.random.split(jax.random.fold_in(jax.random.key(seed + 3), number))
    made = model.simulate(key_data, num_trajectories=10, length=12)
    fit = fitted(key_fit, model, made.data, algorithm, {})

    def statistics(sites: dict[str, Any]) -> dict[str, np.ndarray]:
        reward = sites["reward"]  # (..., intent, state): the level is not identified
        apart = np.sort(reward[..., 1] - reward[..., 0], -1)
        return {"least difference": apart[..., 0], "largest difference": apart[..., 1]}

    return ranks_of(statistics, fit, made.parameters)


def fitted(key: Any, model: Any, data: Any, algorithm: str, own: dict[str, dict[str, Any]]) -> Any:
    """A fit by the algorithm, or that of coordinate ascent with its draws corrected."""
    settings = own.get(algorithm, {"nuts": NUTS, "refresh": REFRESH}.get(algorithm, {}))
    method = "cavi" if algorithm == "corrected" else algorithm
    fit = ethogram.fit(key, model, data, method, progress_bar=False, **settings)
    return fit.corrected() if algorithm == "corrected" else fit


@jax.jit
def _joint(model: Any, data: Any, sites: dict[str, Any]) -> Any:
    return jax.vmap(lambda one: log_density(model, (data,), {}, one)[0])(sites)


def joint_density(model: Any, data: Any, sites: dict[str, Any]) -> np.ndarray:
    """Log joint density of draws (draw, ...), or of one set of parameters, with the data."""
    single = sites["mean"].ndim == 2
    given = {name: x[None] for name, x in sites.items()} if single else sites
    found = np.asarray(_joint(model, data, given))
    return found[0] if single else found


def ranks_of(
    statistics: Callable[[dict[str, Any]], dict[str, np.ndarray]], fit: Any, truth: dict[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """Statistics of all draws of a fit (draw, statistic), chains one after another, and of the truth (statistic,)."""
    sites = {name: np.asarray(x).reshape(-1, *np.shape(x)[2:]) for name, x in fit.draws().sites.items()}
    known = {name: np.asarray(x) for name, x in truth.items()}
    columns, true = statistics(sites), statistics(known)
    return np.stack([*columns.values()], -1), np.stack([*true.values()])


def reward_rows(seed: int, worlds: int) -> list[dict[str, Any]]:
    """Rows of rewards, whose hyper-parameters are known: differences of rewards of six states."""
    tables, features, counts, truth = gp_irl_calibration.simulate(jax.random.key(seed), worlds)
    rows = []
    for algorithm, draw in {
        "natural_gradient": gp_irl_calibration.by_gaussian,
        "nuts": gp_irl_calibration.by_nuts,
    }.items():
        drawn = draw(tables, features, counts, 10 * RANKS, seed)
        pairs = np.stack([drawn[..., 0] - drawn[..., 1], drawn[..., 2] - drawn[..., 5]], -1)
        true = np.stack([truth[:, 0] - truth[:, 1], truth[:, 2] - truth[:, 5]], -1)
        rows.append(row_of("rewards", algorithm, [*zip(pairs, true, strict=True)], narrow=False))
    return rows


def row_of(
    model: str, algorithm: str, found: list[tuple[np.ndarray, np.ndarray]], narrow: bool
) -> dict[str, Any]:
    """The row of all data sets of one pair."""
    inside = {0.5: [], 0.9: []}
    ranks = []
    for drawn, true in found:
        for level, held in inside.items():
            low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2], axis=0)
            held.append(np.mean((low <= true) & (true <= high)))
        thinned = drawn[np.linspace(0, len(drawn) - 1, RANKS).astype(int)]
        ranks.append((thinned < true).sum(0))
    counts = [np.bincount(each * BINS // (RANKS + 1), minlength=BINS) for each in np.stack(ranks, 1)]
    p = min(1.0, len(counts) * min(float(stats.chisquare(each).pvalue) for each in counts))
    half, most = (float(np.mean(held)) for held in inside.values())
    row = {
        "model": model, "algorithm": algorithm, "data_sets": len(found), "coverage50": half, "coverage90": most,
        "error90": float(np.std(inside[0.9], ddof=1) / np.sqrt(len(found))), "p": p,
    }  # fmt: skip
    if not narrow:
        right = COVERAGE50[0] <= half <= COVERAGE50[1] and COVERAGE90[0] <= most <= COVERAGE90[1]
        row |= {"target": "calibrated", "reached": bool(right and p > LEVEL)}
    return row | {"ranks": np.stack(ranks, 1)}


PAIRS = (
    Pair("roles", "cavi", role_replicate, 1000, narrow=True),
    Pair("roles", "svi", role_replicate, 200, narrow=True),
    Pair("roles", "corrected", role_replicate, 1000),
    Pair("roles", "refresh", role_replicate, 200),
    Pair("roles", "nuts", role_replicate, 200),
    Pair("intents", "cavi", intent_replicate, 1000, narrow=True),
    Pair("intents", "corrected", intent_replicate, 200),
    Pair("intents", "nuts", intent_replicate, 200),
    Pair("choices", "laplace", choice_replicate, 1000),
    Pair("choices", "nuts", choice_replicate, 200),
    Pair("choices", "px-da", choice_replicate, 200),
    Pair("switching rewards", "natural_gradient", switching_replicate, 200, narrow=True),
)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """One row per pair, in double precision."""
    rows = []
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of data sets that say little
        for pair in PAIRS:
            if settings.pairs and f"{pair.model}:{pair.algorithm}" not in settings.pairs:
                continue
            count = QUICK if settings.quick else min(settings.most or pair.data_sets, pair.data_sets)
            found = [pair.replicate(pair.algorithm, settings.seed, number) for number in range(count)]
            rows.append(row_of(pair.model, pair.algorithm, found, pair.narrow))
            print({name: x for name, x in rows[-1].items() if name != "ranks"}, file=sys.stderr)
        if not settings.pairs or "rewards" in settings.pairs:
            rows += reward_rows(settings.seed, QUICK if settings.quick else settings.most or 200)
    if settings.figure is not None:
        draw(settings.figure, rows)
    return rows


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """Differences of the distribution of ranks from a uniform one, a panel per pair, with a 95 % band."""
    from matplotlib.figure import Figure

    columns = min(len(rows), 4)
    figure = Figure((2.5 * columns, 2.2 * -(-len(rows) // columns)), layout="constrained")
    axes = figure.subplots(-(-len(rows) // columns), columns, sharex=True, sharey=True, squeeze=False).ravel()
    at = np.arange(RANKS + 1) / RANKS
    for place, row in zip(axes, rows, strict=False):
        band = 1.36 / np.sqrt(row["data_sets"])
        place.axhspan(-band, band, color="0.9")
        for each in row["ranks"]:
            place.plot(
                at, np.searchsorted(np.sort(each), np.arange(RANKS + 1), "right") / each.size - at, lw=1
            )
        place.set_title(f"{row['model']}, {row['algorithm']}", fontsize=9)
    for place in axes[len(rows) :]:
        place.remove()
    figure.supxlabel("rank of the truth among 99 draws, as a share")
    figure.supylabel("distribution less uniform")
    figure.savefig(path)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pairs", nargs="+", help="such as roles:cavi, or rewards; all by default")
    parser.add_argument("--most", type=int, help="largest number of data sets of a pair")


if __name__ == "__main__":
    raise SystemExit(report.run("calibration_all", __doc__, measure, figure=True, options=_options))
