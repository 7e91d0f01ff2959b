"""The tour of gp-irl: the reward behind moves in an objectworld, and the running cost of a bus engine.

Objectworld: a square of cells with coloured objects, where reward depends on the distances to two colours. From
demonstrations: a linear reward by maximum entropy, Levine's point estimate, and a Gaussian process with its posterior;
each is scored by its expected value difference, in the same environment and in two with other objects. Bus
engines: months in which Harold Zurcher kept or replaced one, a cost curve of any shape beside Rust's line.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from ethogram.domains import objectworld, rust_bus
from ethogram.inference.export import to_arviz
from ethogram.inference.rewards import (
    RewardFit,
    difference_coverage,
    fit_max_entropy,
    fit_reward,
    predict_reward,
)
from ethogram.models.mdps import expected_value_difference
from ethogram.models.rewards import GPIRL, select_inducing_points
from ethogram.plots import rewards as plots_rewards
from ethogram.plots.colours import series_colour
from ethogram.tour.guide import Guide, TourReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FULL", "QUICK", "TourSizes", "tour"]

THETA = 2.2930
"""Rust's estimate for group 4."""

MOST_DRAWS = 200
LEAST = 1e-3
"""Smallest initial relevance: from less the gradient vanishes."""

DENSITY = 0.1
"""Share of cells with an object: with fewer, a small world has no mixture of colours to learn from."""


class TourSizes(NamedTuple):
    """Sizes of the fits."""

    size: int  # cells a side of the objectworlds
    trajectories: int  # demonstrations of eight steps each
    steps: int  # natural-gradient steps at most, in the objectworld and for the bus engines
    draws: int  # of the posterior


QUICK = TourSizes(7, 32, 300, 100)
FULL = TourSizes(16, 64, 300, MOST_DRAWS)


class Worlds(NamedTuple):
    """The training environment, two others, and the demonstrations."""

    home: objectworld.ObjectWorld
    others: tuple[objectworld.ObjectWorld, ...]
    data: Any


def tour(guide: Guide, sizes: TourSizes) -> TourReport:
    """Rows, notes and files of the tour of gp-irl."""
    key_worlds, key_fit, key_draws, key_tree, key_bus = jax.random.split(jax.random.key(guide.seed), 5)
    guide.step(
        f"objectworlds of {sizes.size} x {sizes.size} cells, {sizes.trajectories} demonstrations of 8 steps",
        quick=2,
        full=4,
    )
    worlds = _worlds(key_worlds, sizes)
    with warnings.catch_warnings():
        # Some distance may be constant here and vary in the other environments.
        warnings.filterwarnings("ignore", "[0-9]+ features are constant")
        # Said in the notes and the figure.
        warnings.filterwarnings("ignore", "the search has not converged")
        rows = [_linear_row(worlds, guide)]
        levine, row = _levine_row(key_fit, worlds, guide)
        rows.append(row)
        seconds = guide.step("objectworld: Gaussian process, natural-gradient steps", quick=12, full=40)
        model = GPIRL(worlds.home.mdp, worlds.home.features, family="direct")
        fit = fit_reward(
            key_fit,
            model,
            worlds.data,
            start=levine,  # where it would start by itself, after a search for it
            num_steps=sizes.steps,
            progress_bar=guide.progress_bar,
        )
        assert isinstance(fit, RewardFit)
        draws = {name: np.asarray(x) for name, x in fit.posterior.sample(key_draws, sizes.draws).items()}
        rows.append(_posterior_row(key_draws, worlds, model, draws, seconds))
        row, curve = _bus(key_bus, guide, sizes)
    rows.append(row)
    with guide.figure(
        15, 9, "rewards inferred from demonstrations: an objectworld, and bus engines"
    ) as figure:
        _draw(figure, worlds, fit, draws, curve)
    guide.save(
        to_arviz(
            fit, worlds.data, num_draws=min(sizes.draws, MOST_DRAWS), key=key_tree, log_likelihood="sequence"
        )
    )
    notes = [
        "EVD: expected value difference between the optimal policy and the one that is optimal for the inferred",
        "reward; soft: the same for soft-optimal agents, which can be negative. transfer: mean over two other worlds.",
        "coverage: of 90 % credible intervals of reward differences; nominal only for rewards drawn from the prior,",
        "which this one is not.",
        f"objectworld: ELBO {fit.elbo:.1f} +- {fit.elbo_se:.1f} nats, Laplace {fit.laplace_elbo:.1f}; "
        f"{fit.white_share:.0%} of the prior variance is independent between cells.",
        f"bus engines: nonparametric monthly cost relative to a new engine; Rust's line: {THETA} * .001 per bin.",
        f"objectworld: {_state(fit)}.",
        "gp-irl.nc holds the objectworld (arviz.from_netcdf reads it).",
    ]
    return guide.report(rows, notes)


def _state(fit: RewardFit) -> str:
    """Whether the search has converged, in words."""
    state = "converged" if fit.converged else f"not converged ({fit.reason})"
    return f"ELBO {state} after {fit.steps} steps"


def _worlds(key: jax.Array, sizes: TourSizes) -> Worlds:
    keys = jax.random.split(key, 4)
    home, *others = (objectworld.objectworld(one, sizes.size, density=DENSITY) for one in keys[:3])
    return Worlds(home, tuple(others), objectworld.simulate(keys[3], home, sizes.trajectories))


def _lost(worlds: Worlds, reward: Any, away: list[Any]) -> dict[str, str]:
    """Expected value differences of a reward in the training environment, and of others in the other ones."""

    def both(kind: str) -> str:
        home = expected_value_difference(worlds.home.mdp, worlds.home.reward, reward, kind=kind)
        there = [
            expected_value_difference(other.mdp, other.reward, found, kind=kind)
            for other, found in zip(worlds.others, away, strict=True)
        ]
        return f"{float(home):.2f}; {np.mean(there):.2f}"

    return {"EVD home; transfer": both("standard"), "soft EVD": both("soft")}


def _linear_row(worlds: Worlds, guide: Guide) -> dict[str, Any]:
    seconds = guide.step("objectworld: linear reward by maximum entropy", quick=5, full=6)
    linear = fit_max_entropy(worlds.home.mdp, worlds.data, worlds.home.features)
    away = [np.asarray(other.features) @ linear.weights for other in worlds.others]
    return {
        "fit": "objectworld, linear reward by maximum entropy",
        **_lost(worlds, linear.reward, away),
        "seconds": seconds(),
    }


def _levine_row(key: jax.Array, worlds: Worlds, guide: Guide) -> tuple[dict[str, Any], dict[str, Any]]:
    """Levine's hyper-parameters, and a row."""
    seconds = guide.step("objectworld: Gaussian process, Levine's mode", quick=12, full=20)
    points = select_inducing_points(worlds.data, worlds.home.mdp)
    model = GPIRL(worlds.home.mdp, worlds.home.features, family="inducing", inducing=points)
    fit = fit_reward(key, model, worlds.data, "map", prior="levine", progress_bar=False)
    point = {name: np.asarray(x)[None] for name, x in fit.posterior.mean_sites().items()}
    away = [predict_reward(key, model, point, other.features).mean for other in worlds.others]
    hypers = {"scale": point["scale"][0], "relevance": np.maximum(point["relevance"][0], LEAST)}
    return hypers, {
        "fit": "objectworld, Gaussian process, Levine's mode",
        **_lost(worlds, point["reward"][0], away),
        "seconds": seconds(),
    }


def _posterior_row(
    key: jax.Array, worlds: Worlds, model: GPIRL, draws: dict[str, np.ndarray], seconds: Callable[[], str]
) -> dict[str, Any]:
    home, *away = (
        predict_reward(key, model, draws, place.features).mean for place in (worlds.home, *worlds.others)
    )
    coverage = float(difference_coverage(draws["reward"], worlds.home.reward))
    return {
        "fit": "objectworld, Gaussian process, posterior",
        **_lost(worlds, home, away),
        "coverage": f"{coverage:.2f}",
        "seconds": seconds(),
    }


def _bus(key: jax.Array, guide: Guide, sizes: TourSizes) -> tuple[dict[str, Any], np.ndarray]:
    """Row, and draws (draw, bin) of the cost of running an engine above that of a new one."""
    seconds = guide.step("bus engines: nonparametric cost", quick=9, full=12)
    counts = rust_bus.decision_counts(rust_bus.load(4))
    key_fit, key_draws = jax.random.split(key)
    fit = fit_reward(
        key_fit,
        rust_bus.free_costs(),
        counts,
        hyper="point",
        num_steps=sizes.steps,
        progress_bar=guide.progress_bar,
    )
    assert isinstance(fit, RewardFit)
    reward = np.asarray(fit.posterior.sample(key_draws, sizes.draws)["reward"])
    curve = reward[:, :1, 0] - reward[:, :, 0]
    replacing = reward[:, 0, 0] - reward[:, 0, 1]
    line = rust_bus.COST * THETA * np.arange(rust_bus.NUM_BINS)
    lower, upper = np.percentile(curve, [5, 95], axis=0)
    inside = float(((lower <= line) & (line <= upper))[counts.sum(1) > 0].mean())
    return {
        "fit": f"bus engines, {int(counts.sum())} months: replacement cost {replacing.mean():.1f} "
        f"+- {replacing.std():.1f} (Rust: 10.1), {_state(fit)}, 90 % band holds his line at {inside:.0%} of mileages",
        "seconds": seconds(),
    }, curve


def _draw(
    figure: Figure, worlds: Worlds, fit: RewardFit, draws: dict[str, np.ndarray], curve: np.ndarray
) -> None:
    """Truth, mean with policy, and deviation above; relevances, learning curve, coverage and the bus below."""
    home = worlds.home
    above, below = figure.subfigures(2, 1, height_ratios=[5, 4], squeeze=False)[:, 0]
    truth, mean, spread = above.subplots(1, 3)
    objectworld.draw(home, truth)
    truth.set_title("true reward, and the objects", pad=22)
    found = draws["reward"].mean(0)
    visited = np.bincount(np.asarray(worlds.data.states).ravel(), minlength=len(found))
    plots_rewards.reward_map(found - found.mean(), home.size, mean, label="posterior mean, centred")
    objectworld.draw_policy(home, draws["policy"].mean(0), mean)
    mean.set_title("posterior mean, and policy")
    plots_rewards.reward_map(
        draws["centred_reward"].std(0),
        home.size,
        spread,
        visited=visited,
        label="standard deviation",
        cmap="magma",
    )
    spread.set_title("posterior sd; rings: demonstrations")
    forest, learning, coverage, bus = below.subplots(1, 4)
    plots_rewards.relevance_forest(draws["relevance"], forest, names=objectworld.feature_names(home.size))
    plots_rewards.learning_curve(fit.trace, learning)
    learning.set_title(
        "ELBO, " + ("converged" if fit.converged else f"not converged in {fit.steps} steps"), fontsize=10
    )
    forest.set_title("relevance of the features", fontsize=10)
    plots_rewards.coverage_curve(draws["reward"], home.reward, coverage)
    coverage.set_title("coverage of the true differences", fontsize=10)
    seen = np.flatnonzero(rust_bus.decision_counts(rust_bus.load(4)).sum(1)).max() + 1
    line = rust_bus.COST * THETA * np.arange(seen)
    plots_rewards.reward_band(
        5 * np.arange(seen),
        curve[:, :seen],
        bus,
        truth=line,
        truth_label="Rust's line",
        colour=series_colour(3),
    )
    bus.set(xlabel="mileage since replacement (1000 miles)", ylabel="monthly cost relative to a new engine")
    bus.set_title("bus engines, Madison 1974-85", fontsize=10)
