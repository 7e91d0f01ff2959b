"""The tour of noisy-mdp: what three players of Tetris value, and when a bus engine is replaced.

Tetris: players of different styles, whose values are known, make 100 placements each; what is learned from them then
plays itself. The bus engines: the months in which Harold Zurcher replaced one, with the probability of a replacement
linear in mileage on the probit scale under a flat prior, and beside it the published structural estimates.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro.diagnostics import effective_sample_size, split_gelman_rubin
from numpyro.infer import MCMC

from ethogram import plots_choices
from ethogram.domains import rust_bus, tetris
from ethogram.inference.arviz_export import to_arviz
from ethogram.inference.choice_predictions import choice_error, noise_floor, predict_choice
from ethogram.inference.choice_summary import find_mode
from ethogram.inference.px_da import PXDA
from ethogram.models.decisions import Decisions
from ethogram.models.noisy_mdp import NoisyMDP
from ethogram.tour import TourReport, TourSettings, whole_file

__all__ = ["FULL", "PLAYERS", "QUICK", "TourSizes", "tour"]

PLAYERS = {"careful": (-3.0, -15.0, -1.0), "digging": (0.0, 5.0, 0.0), "low": (-20.0, 0.0, 1.0)}
"""Values of the height, the holes and the bumpiness of what a placement leaves, by style."""

LEARNED_FROM = (10, 20, 50, 100)
KAPPA = 2500.0
CHAINS = 4
APART = 0.3
"""Chains start at the mode times factors whose logarithms have this deviation: the scale is what they are slow in."""

THINNED = 100
"""Draws that predict: neighbours are much alike."""


class TourSizes(NamedTuple):
    """How much is done.

    Attributes
    ----------
    tested : placements to predict, a player.
    repetitions : games learned from anew, for the error against the number of placements.
    sweeps, warmup : of every chain; there are four. Each has a move of the scale with the utilities summed out, which
        makes it some ten times dearer: without that an effective draw takes a thousand sweeps.
    bus : sweeps for the bus engines, without such moves.
    games, moves : that learned players play, and at most so many moves each.
    shown : the move whose board is drawn.
    """

    tested: int
    repetitions: int
    sweeps: int
    warmup: int
    bus: int
    games: int
    moves: int
    shown: int


QUICK = TourSizes(200, 2, 400, 40, 2000, 20, 100, 60)
FULL = TourSizes(400, 10, 3000, 200, 4000, 100, 250, 60)


@contextmanager
def _beside() -> Iterator[ThreadPoolExecutor]:
    """One thread; who interrupts the tour does not wait for what it has not begun."""
    pool = ThreadPoolExecutor(1)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


class Learned(NamedTuple):
    """What was learned of one player."""

    draws: np.ndarray
    train: Decisions
    test: Decisions
    row: dict[str, Any]


def tour(settings: TourSettings, sizes: TourSizes | None = None) -> TourReport:
    """Rows, notes and files of the tour of noisy-mdp.

    Parameters
    ----------
    settings : as `take_tour` makes them.
    sizes : how much is done; `QUICK` or `FULL`, as the settings say, where None.
    """
    sizes = (QUICK if settings.quick else FULL) if sizes is None else sizes
    key_players, key_bus, key_tree, key_curve, key_board = jax.random.split(jax.random.key(settings.seed), 5)
    picture, record = settings.out / "noisy-mdp.png", settings.out / "noisy-mdp.nc"
    model = NoisyMDP(KAPPA, "features")
    # Much of the time goes into compiling, which takes one core: a second one works beside, without samplers, since
    # numpyro's handlers are one stack for all threads.
    with _beside() as beside:
        structural = beside.submit(rust_bus.estimate, rust_bus.load(4))
        errors = {
            name: beside.submit(_curve, jax.random.fold_in(key_curve, number), name, model, sizes)
            for number, name in enumerate(PLAYERS)
        }
        settings.say(f"Tetris: three players, {LEARNED_FROM[-1]} placements each, {sizes.tested} to predict")
        # Players' decisions have one shape: as arguments of the compiled sampler they share one compilation.
        mcmc = MCMC(
            PXDA(model, winner="rejection", collapse_scale=1),
            num_warmup=sizes.warmup,
            num_samples=sizes.sweeps,
            num_chains=CHAINS,
            chain_method="vectorized",
            progress_bar=settings.progress_bar,
            jit_model_args=True,
        )
        learned, tree = {}, None
        for number, (name, values) in enumerate(PLAYERS.items()):
            key = jax.random.fold_in(key_players, number)
            learned[name] = _learn(key, name, values, mcmc, model, sizes)
            if tree is None:
                tree = to_arviz(mcmc, learned[name].train, model=model, key=key_tree)
            settings.say(f"Tetris: the {name} player is learned")
        assert tree is not None
        with whole_file(record) as draft:
            tree.to_netcdf(str(draft), engine="h5netcdf")
        settings.say("bus engines: when they are replaced")
        bus_row, bus_draws, published = _bus(key_bus, sizes, structural.result())
        curves = {name: error.result() for name, error in errors.items()}
    _write_picture(picture, key_board, learned, curves, bus_draws, sizes)
    notes = [
        "values: of the height, the holes and the bumpiness that a placement leaves, noise having variance one.",
        "error: placements on which the most probable choice was not the one made; floor: the same of who knows the",
        "values. moves: median of games, the player's and those of the learned values.",
        "ess: effective draws of the slowest value; r_hat: above 1.05 the chains do not agree yet, and means and",
        "intervals are rough: where placements hardly say how large the values are it takes longer chains.",
        *_open_ends(model, learned),
        published,
        f"{record.name} holds the careful player (arviz.from_netcdf reads it).",
    ]
    return TourReport([*(one.row for one in learned.values()), bus_row], notes, [picture, record])


def _learn(
    key: jax.Array,
    name: str,
    values: tuple[float, ...],
    mcmc: MCMC,
    model: NoisyMDP,
    sizes: TourSizes,
) -> Learned:
    start = time.perf_counter()
    key_play, key_start, key_fit, key_player, key_imitator = jax.random.split(key, 5)
    made = tetris.simulate(key_play, values, LEARNED_FROM[-1] + sizes.tested).decisions
    train, test = made.take(slice(0, LEARNED_FROM[-1])), made.take(slice(LEARNED_FROM[-1], None))
    factors = np.exp(APART * jax.random.normal(key_start, (CHAINS, 1)))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the data say nothing against")  # the notes say so
        mcmc.run(key_fit, train, init_params={"theta": factors * find_mode(model, train).values["v"]})
    draws = np.asarray(mcmc.get_samples()["v"], float)
    lower, upper = np.percentile(draws, [5, 95], axis=0)
    inside = int(((lower <= values) & (values <= upper)).sum())
    thinned = {"theta": draws[:: max(len(draws) // THINNED, 1)]}
    error = choice_error(predict_choice(model, thinned, test), test)
    floor = noise_floor(test.features @ np.array(values), test)
    games = [
        np.median(tetris.play(key, v, sizes.games, sizes.moves))
        for key, v in ((key_player, values), (key_imitator, draws.mean(0)))
    ]
    told = ", ".join(f"{mean:.1f} ({true:g})" for mean, true in zip(draws.mean(0), values, strict=True))
    row = {
        "what was learned": f"Tetris, the {name} player",
        "posterior mean (truth, or mode)": told,
        "truth in 90 %": f"{inside} of {len(values)}",
        "error; floor": f"{error:.3f}; {floor:.3f}",
        "moves player; imitator": f"{games[0]:.0f}; {games[1]:.0f}",
        "ess; r_hat": _mixing(mcmc),
        "seconds": f"{time.perf_counter() - start:.1f}",
    }
    return Learned(draws, train, test, row)


def _mixing(mcmc: MCMC) -> str:
    """Effective draws of the slowest value, and the largest split R-hat."""
    grouped = np.asarray(mcmc.get_samples(group_by_chain=True)["v"], float)
    return f"{effective_sample_size(grouped).min():.0f}; {split_gelman_rubin(grouped).max():.2f}"


def _open_ends(model: NoisyMDP, learned: dict[str, Learned]) -> list[str]:
    """Of which players some direction of the values is contradicted by no placement."""
    names = [name for name, one in learned.items() if model.separation(one.train) is not None]
    if not names:
        return []
    return [
        f"No placement of the {' and the '.join(names)} player speaks against some direction of the values: how far "
        "they go that way is said by their prior."
    ]


def _curve(key: jax.Array, name: str, model: NoisyMDP, sizes: TourSizes) -> np.ndarray:
    """Shares (repetition, size) of placements that the most probable values predict wrongly."""
    errors = np.empty((sizes.repetitions, len(LEARNED_FROM)))
    for repetition in range(sizes.repetitions):
        one = jax.random.fold_in(key, repetition)
        made = tetris.simulate(one, PLAYERS[name], LEARNED_FROM[-1] + sizes.tested).decisions
        train, test = made.take(slice(0, LEARNED_FROM[-1])), made.take(slice(LEARNED_FROM[-1], None))
        for column, count in enumerate(LEARNED_FROM):
            # What was not seen yet has an unknown choice: all sizes share one compilation.
            seen = train._replace(choice=np.where(np.arange(LEARNED_FROM[-1]) < count, train.choice, -1))
            values = find_mode(model, seen).values["v"]
            ranked = np.where(test.legal, test.features @ values, -np.inf)
            errors[repetition, column] = choice_error(ranked.argmax(-1), test)
    return errors


def _bus(
    key: jax.Array, sizes: TourSizes, structural: rust_bus.Estimate
) -> tuple[dict[str, Any], np.ndarray, str]:
    """Row, draws and published figures of the bus engines of group 4."""
    start = time.perf_counter()
    records = rust_bus.load(4)
    data = rust_bus.reduced_form(records)
    model = NoisyMDP(float("inf"), "features")
    mcmc = MCMC(
        PXDA(model),
        num_warmup=sizes.bus // 10,
        num_samples=sizes.bus,
        num_chains=CHAINS,
        chain_method="vectorized",
        progress_bar=False,
    )
    mode = find_mode(model, data)
    key_start, key_fit = jax.random.split(key)
    factors = np.exp(APART * jax.random.normal(key_start, (CHAINS, 1)))
    mcmc.run(key_fit, data, init_params={"theta": factors * mode.values["v"]})
    draws = np.asarray(mcmc.get_samples()["v"], float)
    seconds = time.perf_counter() - start
    note = (
        f"bus engines: log likelihood {mode.log_likelihood:.2f} at the mode; Rust's structural logit has RC "
        f"{structural.replacement_cost:.4f} (published 10.0750), theta {structural.theta:.4f} (2.2930), log likelihood "
        f"{structural.log_likelihood:.3f} (-163.584)"
    )
    row = {
        "what was learned": f"bus engines, {len(records.bin)} months: -alpha + slope * bin / 10",
        "posterior mean (truth, or mode)": ", ".join(
            f"{mean:.2f} ({best:.2f})" for mean, best in zip(draws.mean(0), mode.values["v"], strict=True)
        ),
        "ess; r_hat": _mixing(mcmc),
        "seconds": f"{seconds:.1f}",
    }
    return row, draws, note


def _replacement(
    draws: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Mileages, probabilities (draw, mileage) of a replacement, and the shares that were seen."""
    from scipy.special import ndtr

    bins = np.arange(0, 80)
    records = rust_bus.load(4)
    chance = ndtr((draws[:, 1:] * bins / 10 - draws[:, :1]) / np.sqrt(2))
    edges = np.array([0, 20, 30, 40, 50, 60, 80])
    which = np.digitize(records.bin, edges) - 1
    number = np.bincount(which, minlength=len(edges) - 1)
    share = np.bincount(which, records.replaced, len(edges) - 1) / np.maximum(number, 1)
    return 5 * bins, chance, (2.5 * (edges[:-1] + edges[1:]), share, number)


def _write_picture(
    path: Path,
    key: jax.Array,
    learned: dict[str, Learned],
    errors: dict[str, np.ndarray],
    bus_draws: np.ndarray,
    sizes: TourSizes,
) -> None:
    """Posteriors with the truth above; boards side by side, errors and the bus engines below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(15, 9.5), layout="constrained")
    figure.suptitle(
        "what they value: three players of Tetris from 100 placements each, and a bus superintendent",
        fontsize=15,
    )
    above, below = figure.subfigures(2, 1, height_ratios=[3.6, 5], squeeze=False)[:, 0]
    for number, (axes, (name, one)) in enumerate(zip(above.subplots(1, 3), learned.items(), strict=True)):
        plots_choices.value_marginals(
            one.draws, axes, names=one.train.metadata.feature_names, truth=PLAYERS[name], colour=f"C{number}"
        )
        axes.set_title(f"the {name} player")
    left, right = below.subfigures(1, 2, width_ratios=[5, 6], squeeze=False)[0]
    boards = left.subplots(1, 2)
    name = next(iter(PLAYERS))
    # The same key gives both the same pieces, and the same noise.
    for axes, values, title in (
        (boards[0], PLAYERS[name], f"the {name} player"),
        (boards[1], tuple(learned[name].draws.mean(0)), "who learned from it"),
    ):
        made = tetris.simulate(key, values, sizes.shown + 1)
        tetris.draw_board(made.boards[-1], axes)
        axes.set_title(f"{title}, after move {sizes.shown}")
    curves, bus = right.subplots(1, 2)
    floors = {
        name: noise_floor(one.test.features @ np.array(PLAYERS[name]), one.test)
        for name, one in learned.items()
    }
    plots_choices.error_curve(LEARNED_FROM, errors, curves, floors=floors)
    curves.set_title("dotted: of who knows the values", fontsize=10)
    mileage, chance, seen = _replacement(bus_draws)
    plots_choices.probability_band(mileage, chance, bus, seen=seen, colour="C3")
    bus.set(xlabel="miles since the last engine, 1000", ylabel="an engine is replaced this month")
    bus.set_title("bus engines, Madison 1974-85", fontsize=10)
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=90)
