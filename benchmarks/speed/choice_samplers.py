"""Which method fits a choice model soonest: Laplace's approximation, NUTS and PX-DA on eight problems, and `"auto"`.

A method's cost is the CPU time of `ethogram.fit` with its defaults on data of a size that it has compiled for, times
400 over the least bulk ESS of values and covariance where that is smaller. Laplace's approximation has a cost only
where the Pareto k of its weights is below .7. Regret is the cost of what `"auto"` does, over the least cost.

"toy", "middle" and "tetris" are those of `benchmarks.speed.px_da`; "bus" is Rust's, "travellers" Greene's 210 (by the
package `statsmodels`), in "hierarchy" 40 persons decide 8 times each, "covariance" has noise with a covariance of three
alternatives in 150 decisions, and "large" 10 000 decisions among four options.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import arviz
import jax
import numpy as np
import numpyro.distributions as dist

import ethogram
from benchmarks import report
from benchmarks.papers.choice_published import file_of, travellers
from benchmarks.speed.px_da import cases
from ethogram.domains import rust_bus
from ethogram.models.choices.noisy_mdp import NoisyMDP

__all__ = ["measure", "regret"]

METHODS = ("auto", "laplace", "nuts", "px-da")
ENOUGH, LARGEST_K, MOST_REGRET = 400, 0.7, 1.5


def problems(settings: argparse.Namespace) -> Iterator[tuple[str, NoisyMDP, Callable[[int], Any]]]:
    """Name, model, and decisions by a number: others of the same size where they are simulated."""
    for name in ("toy",) if settings.quick else ("toy", "middle", "tetris"):
        case = cases(argparse.Namespace(quick=True, size=name, seed=settings.seed))[name][0]
        yield name, case.model, _again(case.model, case.data)
    if settings.quick:
        return
    buses = rust_bus.tabular(rust_bus.load())
    yield "bus", NoisyMDP(kappa=25.0), lambda number: buses
    path = file_of("statsmodels", "datasets", "modechoice", "modechoice.csv")
    if path is not None:
        trips = travellers(path)
        yield "travellers", NoisyMDP(kappa=25.0, kind="features"), lambda number: trips
    of_people = NoisyMDP(kappa=dist.InverseGamma(3.0, 2.0), kind="features")
    yield "hierarchy", of_people, lambda number: _simulated(number, 320, 3, 3, people=40)
    noise = NoisyMDP(kappa=4.0, kind="features", noise="covariance")
    yield "covariance", noise, lambda number: _simulated(number, 150, 3, 3)
    yield "large", NoisyMDP(kappa=25.0, kind="features"), lambda number: _simulated(number, 10_000, 4, 5)


def _again(model: NoisyMDP, data: Any) -> Callable[[int], Any]:
    """The data, then choices simulated anew from the same choice sets."""

    def call(number: int) -> Any:
        return data if number == 0 else model.simulate(jax.random.key(number), data).data

    return call


def _simulated(number: int, count: int, options: int, width: int, people: int = 0) -> Any:
    """Probit choices among labelled options, with values about (1, -1, ...), or drawn for each person."""
    random = np.random.default_rng(number)
    features = random.normal(size=(count, options, width))
    value = np.resize([1.0, -1.0], width)
    subject = np.arange(count) % people if people else None
    if people:
        value = (value + 0.5 * random.normal(size=(people, width)))[subject][:, None]
    utility = (features * value).sum(-1) + random.normal(size=(count, options))
    names = ethogram.Metadata(action_names=[f"option {one}" for one in range(options)])
    return ethogram.Decisions.from_list(
        list(features), utility.argmax(1), subject=subject, metadata=names, codes=True
    )


def measure(settings: argparse.Namespace) -> list[report.Row]:
    """One row per problem and method, then the regret of `"auto"` on each."""
    rows: list[report.Row] = []
    for name, model, data in problems(settings):
        found: list[report.Row] = []
        if settings.problems and name not in settings.problems:
            continue
        for method in METHODS:
            try:
                found.append(
                    {"problem": name, "method": method, **cost_of(model, method, data, settings.seed)}
                )
            except (TypeError, ValueError, RuntimeError) as error:
                found.append({"problem": name, "method": method, "skipped": str(error).splitlines()[0][:160]})
        lost = regret(found)
        found[0] |= {"value": lost, "target": MOST_REGRET, "reached": lost <= MOST_REGRET}
        rows += found
    return rows


def cost_of(model: NoisyMDP, method: str, data: Callable[[int], Any], seed: int) -> dict[str, Any]:
    """CPU seconds of a second fit, its ESS, and its cost; None where it is not usable."""
    for number in range(2):
        given, key = data(number), jax.random.key(seed + number)
        begin = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            fit = ethogram.fit(key, model, given, method, progress_bar=False)
        seconds = time.process_time() - begin
    values = [fit.result.sites[name] for name in ("v", "noise_covariance") if name in fit.result.sites]
    columns = [column for each in values for column in _columns(np.asarray(each, float))]
    ess = min(float(arviz.ess(column, method="bulk")) for column in columns)
    if fit.method == "laplace":
        ess = float(fit.result.ess)
    pareto_k = float(getattr(fit.result, "pareto_k", np.nan))
    usable = fit.method != "laplace" or pareto_k < LARGEST_K
    cost = seconds * max(1.0, ENOUGH / ess) if usable else None
    return {"took": fit.method, "seconds": seconds, "ess": ess, "pareto_k": pareto_k, "cost_s": cost}


def _columns(values: np.ndarray) -> Iterator[np.ndarray]:
    """Draws (chain, draw) of every value that differs between draws."""
    flat = values.reshape(*values.shape[:2], -1)
    yield from (column for column in np.moveaxis(flat, -1, 0) if np.ptp(column) > 0)


def regret(rows: list[dict[str, Any]]) -> float:
    """Cost of the first row, `"auto"`, over the least of all: 1 where it takes the best method."""
    costs = [row["cost_s"] for row in rows if row.get("cost_s") is not None]
    own = rows[0].get("cost_s")
    return float("inf") if own is None else own / min(costs)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--problems", nargs="+", help="such as toy, or large; all by default")


if __name__ == "__main__":
    raise SystemExit(report.run("choice_samplers", __doc__, measure, speed=True, options=_options))
