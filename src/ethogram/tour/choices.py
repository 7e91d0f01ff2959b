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
import jax.numpy as jnp
import numpy as np
from numpyro.distributions import constraints, transforms
from numpyro.handlers import reparam
from numpyro.infer import MCMC, NUTS
from numpyro.infer.reparam import ExplicitReparam

from ethogram.domains import rust_bus, tetris
from ethogram.inference.choices import (
    choice_error,
    find_choice_mode,
    noise_floor,
    predict_choice_probabilities,
)
from ethogram.inference.convergence import Convergence, convergence
from ethogram.inference.export import to_arviz
from ethogram.models.choices import Decisions, NoisyMDP
from ethogram.plots import choices as plots_choices
from ethogram.plots.colours import series_colour
from ethogram.tour.guide import Guide, TourReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FULL", "PLAYERS", "QUICK", "TourSizes", "tour"]

PLAYERS = {"careful": (-3.0, -15.0, -1.0), "digging": (0.0, 5.0, 0.0), "low": (-20.0, 0.0, 1.0)}
"""Values of the height, holes and bumpiness that a placement leaves, by style."""

TRAINING = (10, 20, 50, 100)
KAPPA = 2500.0
CHAINS = 2
CHAINED: dict[str, Any] = {"num_chains": CHAINS, "chain_method": "vectorized"}
DISPERSION = 0.3
"""Chains start at the mode times factors whose logarithms have this deviation: the scale mixes slowest."""

SEPARATED = (
    "The placements of the {} player are separated: along some direction the likelihood never falls, and the prior "
    "bounds the values. NUTS then samples their inverse hyperbolic sines."
)
UNFINISHED = "not converged: "
"""Stands before every mean of a fit without the effective samples or the R-hat that a summary needs."""

FIELDS = ("diverging",)
THINNED = 100
"""Draws used for predictions: neighbours are much alike."""


class TourSizes(NamedTuple):
    """Sizes of the fits."""

    tested: int  # held-out placements of each player
    repetitions: int  # games for the learning curve of each player
    draws: int  # of each chain
    warmup: int
    bus: int  # draws of each chain for the bus engines
    games: int  # of the players and their imitators
    moves: int  # at most, of each
    shown: int  # the move whose board is drawn


QUICK = TourSizes(200, 2, 500, 250, 1000, 20, 100, 60)
FULL = TourSizes(400, 10, 3000, 500, 4000, 100, 250, 60)


class Learned(NamedTuple):
    """Posterior draws (chain, draw, value), data and row of one player."""

    draws: np.ndarray
    train: Decisions
    test: Decisions
    row: dict[str, Any]
    converged: bool
    separated: bool


class Sinh(transforms.ParameterFreeTransform):
    """Hyperbolic sine: linear for small values, exponential for large ones.

    Where choices are separated, the likelihood is a wall, and the posterior goes from there to the bounds of the prior:
    a step that is short enough for the one is too short for the other, unless steps are of logarithms.
    """

    domain = constraints.real
    codomain = constraints.real

    def __call__(self, x: Any) -> Any:
        return jnp.sinh(x)

    def _inverse(self, y: Any) -> Any:
        return jnp.arcsinh(y)

    def log_abs_det_jacobian(self, x: Any, y: Any, intermediates: Any = None) -> Any:
        return jnp.logaddexp(x, -x) - jnp.log(2.0)


def samplers(model: NoisyMDP, warmup: int, draws: int, **options: Any) -> dict[bool, MCMC]:
    """NUTS of the values, by whether the choices are separated."""
    base = ExplicitReparam(transforms.IndependentTransform(Sinh(), 1).inv)
    # Not dense where separated: in single precision the kinetic energy of exponentials could round below zero.
    kernels = {
        False: NUTS(model, dense_mass=True, max_tree_depth=(4, 6)),
        True: NUTS(reparam(model, config={"theta": base}), max_tree_depth=(4, 6)),
    }
    return {
        separated: MCMC(kernel, num_warmup=warmup, num_samples=draws, **CHAINED, **options)
        for separated, kernel in kernels.items()
    }


def tour(guide: Guide, sizes: TourSizes) -> TourReport:
    """Rows, notes and files of the tour of noisy-mdp."""
    key_players, key_bus, key_tree, key_curve, key_board = jax.random.split(jax.random.key(guide.seed), 5)
    model = NoisyMDP(KAPPA, "features")
    # Players' decisions have one shape: as arguments of the compiled sampler they share one compilation.
    options = {"progress_bar": guide.progress_bar, "jit_model_args": True}
    mcmcs = samplers(model, sizes.warmup, sizes.draws, **options)
    learned: dict[str, Learned] = {}
    for number, (name, values) in enumerate(PLAYERS.items()):
        key = jax.random.fold_in(key_players, number)
        seconds = guide.step(
            f"Tetris, the {name} player: {TRAINING[-1]} placements, {sizes.tested} held out",
            quick=(32, 14, 8)[number],
            full=(65, 45, 35)[number],
        )
        learned[name], mcmc = _learn(key, name, values, mcmcs, model, sizes, seconds)
        if len(learned) == 1:
            tree = to_arviz(mcmc, learned[name].train, model=model, key=key_tree, log_likelihood="sequence")
    guide.step("Tetris: learning curves", quick=2, full=10)
    curves = {
        name: _curve(jax.random.fold_in(key_curve, number), name, model, sizes)
        for number, name in enumerate(PLAYERS)
    }
    bus_row, bus_draws, published = _bus(key_bus, guide, sizes)
    with (
        guide.figure(
            15, 9.5, "values inferred from choices: three Tetris players, and a bus superintendent"
        ) as figure,
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", "the draws have not converged")  # the table and the titles say so
        _draw(figure, key_board, learned, curves, bus_draws, sizes)
    guide.save(tree)
    separated = [name for name, one in learned.items() if one.separated]
    notes = [
        "values: of height, holes and bumpiness after a placement; the noise has variance one.",
        "error: share of held-out placements that are not the most probable ones; oracle: the same with the true",
        "values. moves: median number of moves in a game, of the player and of its imitator.",
        "ess, r_hat: smallest bulk ess and largest r_hat of a value. Not converged: ess < 100 or r_hat > 1.01; such",
        "means and intervals are no estimates: run longer. divergent: transitions of NUTS, of all draws.",
        *([SEPARATED.format(" and the ".join(separated))] if separated else []),
        published,
        "noisy-mdp.nc holds the careful player (arviz.from_netcdf reads it).",
    ]
    return guide.report([*(one.row for one in learned.values()), bus_row], notes)


def _learn(
    key: jax.Array,
    name: str,
    values: tuple[float, ...],
    mcmcs: dict[bool, MCMC],
    model: NoisyMDP,
    sizes: TourSizes,
    seconds: Callable[[], str],
) -> tuple[Learned, MCMC]:
    key_play, key_start, key_fit, key_player, key_imitator = jax.random.split(key, 5)
    made = tetris.simulate(key_play, values, TRAINING[-1] + sizes.tested).decisions
    train, test = made.take(slice(0, TRAINING[-1])), made.take(slice(TRAINING[-1], None))
    factors = np.exp(DISPERSION * jax.random.normal(key_start, (CHAINS, 1)))
    start = factors * find_choice_mode(model, train).values["v"]
    separated = model.separation(train) is not None
    mcmc = mcmcs[separated]
    begin = {"theta_base": np.arcsinh(start)} if separated else {"theta": start}
    mcmc.run(key_fit, train, init_params=begin, extra_fields=FIELDS)
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
        "posterior mean (truth; buses: mode)": means if told.enough else UNFINISHED + means,
        "90 % intervals with truth": f"{inside} of {len(values)}" if told.enough else "not converged",
        "error; oracle": f"{error:.3f}; {floor:.3f}",
        "moves player; imitator": f"{games[0]:.0f}; {games[1]:.0f}",
        **_diagnostics(told, mcmc),
        "seconds": seconds(),
    }
    by_chain = draws.reshape(CHAINS, -1, draws.shape[-1])
    return Learned(by_chain, train, test, row, told.enough, separated), mcmc


def _mixing(mcmc: MCMC) -> Convergence:
    """Effective sample sizes and R-hat of the values."""
    return convergence(mcmc.get_samples(group_by_chain=True)["v"])


def _diagnostics(told: Convergence, mcmc: MCMC) -> dict[str, str]:
    """Smallest effective sample size and largest R-hat, with words where they are not good enough; divergences."""
    numbers = f"{told.ess.min():.0f}; {told.r_hat.max():.3f}"
    diverging = np.asarray(mcmc.get_extra_fields()["diverging"])
    return {
        "ess; r_hat": numbers if told.enough else f"{numbers}, not converged",
        "divergent": f"{diverging.sum()} of {diverging.size}",
    }


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
    """Row, draws (chain, draw, value) and published figures of the bus engines of group 4."""
    seconds = guide.step("bus engines: probit in mileage, and Rust's structural logit", quick=10, full=15)
    records = rust_bus.load(4)
    # Months of equal mileage and decision are one decision of that weight.
    _, first, count = np.unique(
        np.stack([records.bin, records.replaced]), axis=1, return_index=True, return_counts=True
    )
    data = rust_bus.reduced_form(records).take(first)._replace(weight=count.astype(float))
    model = NoisyMDP(float("inf"), "features")
    lengths = {"num_warmup": min(300, sizes.bus), "num_samples": sizes.bus}
    mcmc = MCMC(NUTS(model, dense_mass=True), **lengths, **CHAINED, progress_bar=False)
    mode = find_choice_mode(model, data)
    key_start, key_fit = jax.random.split(key)
    factors = np.exp(DISPERSION * jax.random.normal(key_start, (CHAINS, 1)))
    mcmc.run(key_fit, data, init_params={"theta": factors * mode.values["v"]}, extra_fields=FIELDS)
    draws = np.asarray(mcmc.get_samples(group_by_chain=True)["v"], float)
    structural = rust_bus.estimate(records)
    note = (
        f"bus engines: log likelihood {mode.log_likelihood:.2f} at the mode; Rust's structural logit has RC "
        f"{structural.replacement_cost:.4f} (published 10.0750), theta {structural.theta:.4f} (2.2930), log likelihood "
        f"{structural.log_likelihood:.3f} (-163.584)"
    )
    told = _mixing(mcmc)
    row = {
        "fit": f"bus engines, {len(records.bin)} months: -alpha + slope * bin / 10",
        "posterior mean (truth; buses: mode)": ("" if told.enough else UNFINISHED)
        + ", ".join(
            f"{mean:.2f} ({best:.2f})"
            for mean, best in zip(draws.mean((0, 1)), mode.values["v"], strict=True)
        ),
        **_diagnostics(told, mcmc),
        "seconds": seconds(),
    }
    return row, draws, note


def _replacement(
    draws: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Mileages, replacement probabilities (..., mileage) of draws (..., value), and observed shares."""
    from scipy.special import ndtr

    bins = np.arange(0, 80)
    records = rust_bus.load(4)
    chance = ndtr((draws[..., 1:] * bins / 10 - draws[..., :1]) / np.sqrt(2))
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
            one.draws,
            axes,
            names=one.train.metadata.feature_names,
            truth=PLAYERS[name],
            colour=series_colour(number),
            legend=number == 0,
        )
        axes.set_title(f"the {name} player" + ("" if one.converged else " (draws not converged)"))
    left, right = below.subfigures(1, 2, width_ratios=[5, 6], squeeze=False)[0]
    boards = left.subplots(1, 2)
    name = next(iter(PLAYERS))
    # The same key gives both the same pieces, and the same noise.
    for axes, values, title in (
        (boards[0], PLAYERS[name], f"the {name} player"),
        (boards[1], tuple(learned[name].draws.mean((0, 1))), "its imitator"),
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
    curves.set_title("held-out errors; dotted: true values", fontsize=10)
    mileage, chance, seen = _replacement(bus_draws)
    plots_choices.probability_band(mileage, chance, bus, seen=seen, colour=series_colour(3))
    bus.set(xlabel="mileage since replacement (1000 miles)", ylabel="P(engine replaced this month)")
    bus.set_title("bus engines, Madison 1974-85", fontsize=10)
