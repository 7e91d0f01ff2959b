"""The tour of noisy-mdp: the values of three Tetris players, and when a bus engine is replaced.

Tetris: simulated players of three styles with known values make 100 placements each; the inferred values then play
games of their own. Bus engines: the months in which Harold Zurcher replaced one, a probit in mileage under a flat
prior, beside the published structural estimates.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from numpyro.infer import MCMC

from ethogram.domains import rust_bus, tetris
from ethogram.inference.choices import (
    PXDA,
    choice_error,
    find_choice_mode,
    noise_floor,
    predict_choice_probabilities,
)
from ethogram.inference.convergence import Convergence, convergence
from ethogram.inference.export import to_arviz
from ethogram.models.choices import Decisions, NoisyMDP
from ethogram.plots import choices as plots_choices
from ethogram.tour.guide import Guide, TourReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FULL", "PLAYERS", "QUICK", "TourSizes", "tour"]

PLAYERS = {"careful": (-3.0, -15.0, -1.0), "digging": (0.0, 5.0, 0.0), "low": (-20.0, 0.0, 1.0)}
"""Values of the height, holes and bumpiness that a placement leaves, by style."""

TRAINING = (10, 20, 50, 100)
KAPPA = 2500.0
CHAINS = 4
CHAINED: dict[str, Any] = {"num_chains": CHAINS, "chain_method": "vectorized"}
DISPERSION = 0.3
"""Chains start at the mode times factors whose logarithms have this deviation: the scale mixes slowest."""

SEPARATED = (
    "The placements of the {} player are separated: along some direction the likelihood never falls, and the prior "
    "bounds the values."
)

THINNED = 100
"""Draws used for predictions: neighbours are much alike."""


class TourSizes(NamedTuple):
    """Sizes of the fits.

    Each draw moves the scale with the utilities summed out, which makes it some ten times as expensive: without that an
    effective draw takes a thousand.
    """

    tested: int  # held-out placements of each player
    repetitions: int  # games for the learning curve of each player
    draws: int  # of each of the four chains
    warmup: int
    bus: int  # draws of each chain for the bus engines, without moves of the scale
    games: int  # of the players and their imitators
    moves: int  # at most, of each
    shown: int  # the move whose board is drawn


QUICK = TourSizes(200, 2, 400, 40, 4000, 20, 100, 60)
FULL = TourSizes(400, 10, 3000, 200, 8000, 100, 250, 60)


class Learned(NamedTuple):
    """Posterior draws, data and row of one player."""

    draws: np.ndarray
    train: Decisions
    test: Decisions
    row: dict[str, Any]
    converged: bool


def tour(guide: Guide, sizes: TourSizes) -> TourReport:
    """Rows, notes and files of the tour of noisy-mdp."""
    key_players, key_bus, key_tree, key_curve, key_board = jax.random.split(jax.random.key(guide.seed), 5)
    model = NoisyMDP(KAPPA, "features")
    # Players' decisions have one shape: as arguments of the compiled sampler they share one compilation.
    kernel = PXDA(model, winner="rejection", collapse_scale=1)
    options = {"progress_bar": guide.progress_bar, "jit_model_args": True}
    mcmc = MCMC(kernel, num_warmup=sizes.warmup, num_samples=sizes.draws, **CHAINED, **options)
    learned: dict[str, Learned] = {}
    for number, (name, values) in enumerate(PLAYERS.items()):
        key = jax.random.fold_in(key_players, number)
        seconds = guide.step(
            f"Tetris, the {name} player: {TRAINING[-1]} placements, {sizes.tested} held out",
            quick=4 if learned else 28,
            full=70 if learned else 80,
        )
        learned[name] = _learn(key, name, values, mcmc, model, sizes, seconds)
        if len(learned) == 1:
            tree = to_arviz(mcmc, learned[name].train, model=model, key=key_tree, log_likelihood="sequence")
    guide.step("Tetris: learning curves", quick=4, full=10)
    curves = {
        name: _curve(jax.random.fold_in(key_curve, number), name, model, sizes)
        for number, name in enumerate(PLAYERS)
    }
    bus_row, bus_draws, published = _bus(key_bus, guide, sizes)
    with guide.figure(
        15, 9.5, "values inferred from choices: three Tetris players, and a bus superintendent"
    ) as figure:
        _draw(figure, key_board, learned, curves, bus_draws, sizes)
    guide.save(tree)
    separated = [name for name, one in learned.items() if model.separation(one.train) is not None]
    notes = [
        "values: of height, holes and bumpiness after a placement; the noise has variance one.",
        "error: share of held-out placements that are not the most probable ones; oracle: the same with the true",
        "values. moves: median number of moves in a game, of the player and of its imitator.",
        "ess, r_hat: smallest ess and largest r_hat of a value. Not converged: ess < 100 or r_hat > 1.01; such",
        "means and intervals are no estimates: run longer, or use NUTS.",
        *([SEPARATED.format(" and the ".join(separated))] if separated else []),
        published,
        "noisy-mdp.nc holds the careful player (arviz.from_netcdf reads it).",
    ]
    return guide.report([*(one.row for one in learned.values()), bus_row], notes)


def _learn(
    key: jax.Array,
    name: str,
    values: tuple[float, ...],
    mcmc: MCMC,
    model: NoisyMDP,
    sizes: TourSizes,
    seconds: Callable[[], str],
) -> Learned:
    key_play, key_start, key_fit, key_player, key_imitator = jax.random.split(key, 5)
    made = tetris.simulate(key_play, values, TRAINING[-1] + sizes.tested).decisions
    train, test = made.take(slice(0, TRAINING[-1])), made.take(slice(TRAINING[-1], None))
    factors = np.exp(DISPERSION * jax.random.normal(key_start, (CHAINS, 1)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the choices are separated")  # as a note under the table says
        mcmc.run(key_fit, train, init_params={"theta": factors * find_choice_mode(model, train).values["v"]})
    draws = np.asarray(mcmc.get_samples()["v"], float)
    lower, upper = np.percentile(draws, [5, 95], axis=0)
    inside = int(((lower <= values) & (values <= upper)).sum())
    thinned = {"theta": draws[:: max(len(draws) // THINNED, 1)]}
    told = _mixing(mcmc)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the draws have not converged")  # the row and the figure say so
        predicted = np.asarray(predict_choice_probabilities(None, model, thinned, test)).argmax(-1)
    error = choice_error(predicted, test)
    floor = noise_floor(test.features @ np.array(values), test)
    games = [
        np.median(tetris.play(key, v, sizes.games, sizes.moves))
        for key, v in ((key_player, values), (key_imitator, draws.mean(0)))
    ]
    means = ", ".join(f"{mean:.1f} ({true:g})" for mean, true in zip(draws.mean(0), values, strict=True))
    row = {
        "fit": f"Tetris, the {name} player",
        "posterior mean (truth; buses: mode)": means if told.enough else f"not converged: {means}",
        "90 % intervals with truth": f"{inside} of {len(values)}" if told.enough else "not converged",
        "error; oracle": f"{error:.3f}; {floor:.3f}",
        "moves player; imitator": f"{games[0]:.0f}; {games[1]:.0f}",
        "ess; r_hat": _in_words(told),
        "seconds": seconds(),
    }
    return Learned(draws, train, test, row, told.enough)


def _mixing(mcmc: MCMC) -> Convergence:
    """Effective sample sizes and R-hat of the values."""
    return convergence(mcmc.get_samples(group_by_chain=True)["v"])


def _in_words(told: Convergence) -> str:
    """Smallest effective sample size and largest R-hat, and the words where they are not good enough."""
    numbers = f"{told.ess.min():.0f}; {told.r_hat.max():.2f}"
    return numbers if told.enough else f"{numbers}, not converged"


def _curve(key: jax.Array, name: str, model: NoisyMDP, sizes: TourSizes) -> np.ndarray:
    """Held-out errors (repetition, size) of the posterior mode."""
    errors = np.empty((sizes.repetitions, len(TRAINING)))
    for repetition in range(sizes.repetitions):
        one = jax.random.fold_in(key, repetition)
        made = tetris.simulate(one, PLAYERS[name], TRAINING[-1] + sizes.tested).decisions
        train, test = made.take(slice(0, TRAINING[-1])), made.take(slice(TRAINING[-1], None))
        for column, count in enumerate(TRAINING):
            # Later choices are missing, not left out: all sizes share one compilation.
            seen = train._replace(choice=np.where(np.arange(TRAINING[-1]) < count, train.choice, -1))
            values = find_choice_mode(model, seen).values["v"]
            ranked = np.where(test.legal, test.features @ values, -np.inf)
            errors[repetition, column] = choice_error(ranked.argmax(-1), test)
    return errors


def _bus(key: jax.Array, guide: Guide, sizes: TourSizes) -> tuple[dict[str, Any], np.ndarray, str]:
    """Row, draws and published figures of the bus engines of group 4."""
    seconds = guide.step("bus engines: probit in mileage, and Rust's structural logit", quick=12, full=15)
    records = rust_bus.load(4)
    data = rust_bus.reduced_form(records)
    model = NoisyMDP(float("inf"), "features")
    lengths = {"num_warmup": sizes.bus // 10, "num_samples": sizes.bus}
    mcmc = MCMC(PXDA(model), **lengths, **CHAINED, progress_bar=False)
    mode = find_choice_mode(model, data)
    key_start, key_fit = jax.random.split(key)
    factors = np.exp(DISPERSION * jax.random.normal(key_start, (CHAINS, 1)))
    mcmc.run(key_fit, data, init_params={"theta": factors * mode.values["v"]})
    draws = np.asarray(mcmc.get_samples()["v"], float)
    structural = rust_bus.estimate(records)
    note = (
        f"bus engines: log likelihood {mode.log_likelihood:.2f} at the mode; Rust's structural logit has RC "
        f"{structural.replacement_cost:.4f} (published 10.0750), theta {structural.theta:.4f} (2.2930), log likelihood "
        f"{structural.log_likelihood:.3f} (-163.584)"
    )
    told = _mixing(mcmc)
    row = {
        "fit": f"bus engines, {len(records.bin)} months: -alpha + slope * bin / 10",
        "posterior mean (truth; buses: mode)": ("" if told.enough else "not converged: ")
        + ", ".join(
            f"{mean:.2f} ({best:.2f})" for mean, best in zip(draws.mean(0), mode.values["v"], strict=True)
        ),
        "ess; r_hat": _in_words(told),
        "seconds": seconds(),
    }
    return row, draws, note


def _replacement(
    draws: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Mileages, replacement probabilities (draw, mileage), and observed shares."""
    from scipy.special import ndtr

    bins = np.arange(0, 80)
    records = rust_bus.load(4)
    chance = ndtr((draws[:, 1:] * bins / 10 - draws[:, :1]) / np.sqrt(2))
    edges = np.array([0, 20, 30, 40, 50, 60, 80])
    which = np.digitize(records.bin, edges) - 1
    number = np.bincount(which, minlength=len(edges) - 1)
    share = np.bincount(which, records.replaced, len(edges) - 1) / np.maximum(number, 1)
    return 5 * bins, chance, (2.5 * (edges[:-1] + edges[1:]), share, number)


def _draw(
    figure: Figure,
    key: jax.Array,
    learned: dict[str, Learned],
    errors: dict[str, np.ndarray],
    bus_draws: np.ndarray,
    sizes: TourSizes,
) -> None:
    """Posteriors with the truth above; boards side by side, errors and the bus engines below."""
    above, below = figure.subfigures(2, 1, height_ratios=[3.6, 5], squeeze=False)[:, 0]
    for number, (axes, (name, one)) in enumerate(zip(above.subplots(1, 3), learned.items(), strict=True)):
        plots_choices.value_marginals(
            one.draws, axes, names=one.train.metadata.feature_names, truth=PLAYERS[name], colour=f"C{number}"
        )
        axes.set_title(f"the {name} player" + ("" if one.converged else " (draws not converged)"))
    left, right = below.subfigures(1, 2, width_ratios=[5, 6], squeeze=False)[0]
    boards = left.subplots(1, 2)
    name = next(iter(PLAYERS))
    # The same key gives both the same pieces, and the same noise.
    for axes, values, title in (
        (boards[0], PLAYERS[name], f"the {name} player"),
        (boards[1], tuple(learned[name].draws.mean(0)), "its imitator"),
    ):
        made = tetris.simulate(key, values, sizes.shown + 1)
        tetris.draw_board(made.boards[-1], axes)
        axes.set_title(f"{title}, after move {sizes.shown}")
    curves, bus = right.subplots(1, 2)
    floors = {
        name: noise_floor(one.test.features @ np.array(PLAYERS[name]), one.test)
        for name, one in learned.items()
    }
    plots_choices.error_curve(TRAINING, errors, curves, floors=floors)
    curves.set_title("dotted: oracle (true values)", fontsize=10)
    mileage, chance, seen = _replacement(bus_draws)
    plots_choices.probability_band(mileage, chance, bus, seen=seen, colour="C3")
    bus.set(xlabel="mileage since replacement (1000 miles)", ylabel="P(engine replaced this month)")
    bus.set_title("bus engines, Madison 1974-85", fontsize=10)
