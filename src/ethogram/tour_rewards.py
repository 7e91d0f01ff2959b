"""The tour of gp-irl: which reward explains moves in an objectworld, and what running a bus engine costs.

Objectworld: a square of cells with coloured objects, where reward depends on how near two colours are. From
demonstrations a linear reward is learned by maximum entropy, Levine's point estimate, and a Gaussian process with its
uncertainty; each is judged by what is lost by acting on it, at home and in two worlds with other objects. The bus
engines: months in which Harold Zurcher kept or replaced one, a cost curve of any shape beside Rust's line.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram import plots_rewards
from ethogram.domains import objectworld, rust_bus
from ethogram.inference.arviz_export import to_arviz
from ethogram.inference.linear_reward import fit_linear_reward
from ethogram.inference.reward_posterior import fit_reward
from ethogram.inference.reward_predictions import difference_coverage, predict_reward
from ethogram.inference.reward_result import RewardFit
from ethogram.models.gp_irl import GPIRL
from ethogram.models.inducing_points import inducing_points
from ethogram.models.value_difference import expected_value_difference
from ethogram.tour import TourReport, TourSettings, whole_file

__all__ = ["FULL", "QUICK", "TourSizes", "tour"]

THETA = 2.2930
"""Rust's estimate for group 4."""

MOST_DRAWS = 200
LEAST = 1e-3
"""Relevance to begin with: of less nothing would be left to learn from."""

DENSITY = 0.1
"""Share of cells with an object: with fewer a small world shows no mixture of colours to learn from."""


class TourSizes(NamedTuple):
    """How much is done.

    Attributes
    ----------
    size : cells a side of the objectworlds.
    trajectories : demonstrations of eight steps each.
    steps : of natural gradient, at most, in the objectworld and on the bus engines.
    draws : of the posterior.
    """

    size: int
    trajectories: int
    steps: int
    draws: int


QUICK = TourSizes(7, 32, 14, 100)
FULL = TourSizes(16, 64, 60, MOST_DRAWS)


class Worlds(NamedTuple):
    """The world of the demonstrations, two others, and the demonstrations."""

    home: objectworld.ObjectWorld
    others: tuple[objectworld.ObjectWorld, ...]
    data: Any


def tour(settings: TourSettings, sizes: TourSizes | None = None) -> TourReport:
    """Rows, notes and files of the tour of gp-irl.

    Parameters
    ----------
    settings : as `take_tour` makes them.
    sizes : how much is done; `QUICK` or `FULL`, as the settings say, where None.
    """
    sizes = (QUICK if settings.quick else FULL) if sizes is None else sizes
    picture, record = settings.out / "gp-irl.png", settings.out / "gp-irl.nc"
    key_worlds, key_fit, key_draws, key_tree, key_bus = jax.random.split(jax.random.key(settings.seed), 5)
    worlds = _worlds(key_worlds, sizes)
    settings.say(
        f"objectworld of {sizes.size} x {sizes.size} cells: {sizes.trajectories} demonstrations of 8 steps"
    )
    with warnings.catch_warnings():
        # Some distance may be the same everywhere here and differ in the other worlds.
        warnings.filterwarnings("ignore", "[0-9]+ features are the same everywhere")
        levine, row = _levine_row(key_fit, worlds)
        rows = [_linear_row(worlds), row]
        settings.say("objectworld: the points are learned")
        model = GPIRL(worlds.home.mdp, worlds.home.features, family="direct")
        start = time.perf_counter()
        fit = fit_reward(
            key_fit,
            model,
            worlds.data,
            start=levine,  # which it would look for itself
            num_steps=sizes.steps,
            progress_bar=settings.progress_bar,
        )
        seconds = time.perf_counter() - start
        draws = {name: np.asarray(x) for name, x in fit.posterior.sample(key_draws, sizes.draws).items()}
        rows.append(_posterior_row(key_draws, worlds, model, draws, seconds))
        settings.say("objectworld: the posterior is learned")
        tree = to_arviz(fit, worlds.data, num_draws=min(sizes.draws, MOST_DRAWS), key=key_tree)
        with whole_file(record) as draft:
            tree.to_netcdf(str(draft), engine="h5netcdf")
    settings.say("bus engines: what they cost")
    bus_row, curve = _bus(key_bus, sizes, settings.progress_bar)
    _write_picture(picture, worlds, fit, draws, curve)
    notes = [
        "lost: value of the best policy less that of the policy that is best for what was learned; soft: the same for",
        "agents that are soft about their return, which can be negative. away: mean over two other worlds.",
        "coverage: of 90 % intervals of differences of rewards. The world's reward was made by hand, and is no draw of",
        "the prior, for which alone 90 % is promised.",
        f"objectworld: bound {fit.elbo:.1f} +- {fit.elbo_se:.1f} nats, Laplace's {fit.laplace_elbo:.1f}; "
        f"{fit.white_share:.0%} of the prior variance is noise of single cells.",
        f"bus engines: a month's cost above that of a new engine, of any shape; Rust's line: {THETA} * .001 a bin.",
        f"{record.name} holds the objectworld (arviz.from_netcdf reads it).",
    ]
    return TourReport([*rows, bus_row], notes, [picture, record])


def _worlds(key: jax.Array, sizes: TourSizes) -> Worlds:
    keys = jax.random.split(key, 4)
    home, *others = (objectworld.objectworld(one, sizes.size, density=DENSITY) for one in keys[:3])
    return Worlds(home, tuple(others), objectworld.simulate(keys[3], home, sizes.trajectories))


def _lost(worlds: Worlds, reward: Any, away: list[Any]) -> dict[str, str]:
    """What is lost by acting on a reward at home, and on others in the other worlds."""

    def both(kind: str) -> str:
        home = expected_value_difference(worlds.home.mdp, worlds.home.reward, reward, kind=kind)
        there = [
            expected_value_difference(other.mdp, other.reward, found, kind=kind)
            for other, found in zip(worlds.others, away, strict=True)
        ]
        return f"{float(home):.2f}; {np.mean(there):.2f}"

    return {"lost at home; away": both("standard"), "soft": both("soft")}


def _linear_row(worlds: Worlds) -> dict[str, Any]:
    start = time.perf_counter()
    linear = fit_linear_reward(worlds.home.mdp, worlds.home.features, worlds.data)
    seconds = time.perf_counter() - start
    away = [np.asarray(other.features) @ linear.weights for other in worlds.others]
    return {
        "what was learned": "objectworld, linear reward by maximum entropy",
        **_lost(worlds, linear.reward, away),
        "seconds": f"{seconds:.1f}",
    }


def _levine_row(key: jax.Array, worlds: Worlds) -> tuple[dict[str, Any], dict[str, Any]]:
    """His hyper-parameters, and a row."""
    start = time.perf_counter()
    points = inducing_points(worlds.data, worlds.home.mdp)
    model = GPIRL(worlds.home.mdp, worlds.home.features, family="inducing", inducing=points)
    fit = fit_reward(key, model, worlds.data, "map", prior="levine", progress_bar=False)
    seconds = time.perf_counter() - start
    point = {name: np.asarray(x)[None] for name, x in fit.posterior.mean_sites().items()}
    away = [predict_reward(key, model, point, other.features).mean for other in worlds.others]
    hypers = {"scale": point["scale"][0], "relevance": np.maximum(point["relevance"][0], LEAST)}
    return hypers, {
        "what was learned": "objectworld, Gaussian process, Levine's mode",
        **_lost(worlds, point["reward"][0], away),
        "seconds": f"{seconds:.1f}",
    }


def _posterior_row(
    key: jax.Array, worlds: Worlds, model: GPIRL, draws: dict[str, np.ndarray], seconds: float
) -> dict[str, Any]:
    home, *away = (
        predict_reward(key, model, draws, place.features).mean for place in (worlds.home, *worlds.others)
    )
    coverage = float(difference_coverage(draws["reward"], worlds.home.reward))
    return {
        "what was learned": "objectworld, Gaussian process, posterior",
        **_lost(worlds, home, away),
        "coverage": f"{coverage:.2f}",
        "seconds": f"{seconds:.1f}",
    }


def _bus(key: jax.Array, sizes: TourSizes, progress_bar: bool) -> tuple[dict[str, Any], np.ndarray]:
    """Row, and draws (draw, bin) of the cost of running an engine above that of a new one."""
    start = time.perf_counter()
    counts = rust_bus.decision_counts(rust_bus.load(4))
    key_fit, key_draws = jax.random.split(key)
    fit = fit_reward(
        key_fit,
        rust_bus.free_costs(),
        counts,
        hyper="point",
        num_steps=sizes.steps,
        progress_bar=progress_bar,
    )
    reward = np.asarray(fit.posterior.sample(key_draws, sizes.draws)["reward"])
    curve = reward[:, :1, 0] - reward[:, :, 0]
    replacing = reward[:, 0, 0] - reward[:, 0, 1]
    inside = _holds(curve, rust_bus.COST * THETA * np.arange(rust_bus.NUM_BINS), counts.sum(1) > 0)
    return {
        "what was learned": f"bus engines, {int(counts.sum())} months: replacing costs {replacing.mean():.1f} "
        f"+- {replacing.std():.1f} (Rust: 10.1), his line in the 90 % band at {inside:.0%} of mileages",
        "seconds": f"{time.perf_counter() - start:.1f}",
    }, curve


def _holds(draws: np.ndarray, line: np.ndarray, seen: np.ndarray) -> float:
    lower, upper = np.percentile(draws, [5, 95], axis=0)
    return float(((lower <= line) & (line <= upper))[seen].mean())


def _write_picture(
    path: Path, worlds: Worlds, fit: RewardFit, draws: dict[str, np.ndarray], curve: np.ndarray
) -> None:
    """Truth, mean with moves, and deviation above; relevances, learning curve, coverage and the bus below."""
    from matplotlib.figure import Figure

    home = worlds.home
    figure = Figure(figsize=(15, 9), layout="constrained")
    figure.suptitle(
        "what do they want? a reward learned from moves in an objectworld, and from bus engines", fontsize=15
    )
    above, below = figure.subfigures(2, 1, height_ratios=[5, 4], squeeze=False)[:, 0]
    truth, mean, spread = above.subplots(1, 3)
    objectworld.draw(home, truth)
    truth.set_title("the true reward, and the objects", pad=22)
    found = draws["reward"].mean(0)
    visited = np.bincount(np.asarray(worlds.data.states).ravel(), minlength=len(found))
    plots_rewards.reward_map(found - found.mean(), home.size, mean, label="posterior mean, less its mean")
    objectworld.draw_policy(home, draws["policy"].mean(0), mean)
    mean.set_title("what was learned, and moves")
    plots_rewards.reward_map(
        draws["centred_reward"].std(0),
        home.size,
        spread,
        visited=visited,
        label="standard deviation",
        cmap="magma",
    )
    spread.set_title("how unsure; rings: demonstrations")
    forest, learning, coverage, bus = below.subplots(1, 4)
    plots_rewards.relevance_forest(draws["relevance"], forest, names=objectworld.feature_names(home.size))
    plots_rewards.learning_curve(fit.trace, learning)
    plots_rewards.coverage_curve(draws["reward"], home.reward, coverage)
    coverage.set_title("differences of rewards", fontsize=10)
    seen = np.flatnonzero(rust_bus.decision_counts(rust_bus.load(4)).sum(1)).max() + 1
    line = rust_bus.COST * THETA * np.arange(seen)
    plots_rewards.reward_band(
        5 * np.arange(seen), curve[:, :seen], bus, truth=line, truth_label="Rust's line", colour="C3"
    )
    bus.set(xlabel="miles since the last engine, 1000", ylabel="cost of a month above a new engine's")
    bus.set_title("bus engines, Madison 1974-85", fontsize=10)
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=90)
