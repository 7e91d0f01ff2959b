"""The tour of role-hmm: roles of football players and of predators, found without labels.

Football: both defences of a match, each team by its own `RoleHMM`, the best of several restarts by its ELBO;
scored against the printed line-up, and on plays held out. Predator-prey: fresh games with exclusive roles,
scored against the hidden ones.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram import plots
from ethogram.domains import football, predator_prey
from ethogram.football_roles import NUM_PLAYERS, score_team, sweeps_done
from ethogram.inference.alignment import align_states, duplicate_share, relabel
from ethogram.inference.arviz_export import to_arviz
from ethogram.inference.assignment import InferredRoles, assign_roles
from ethogram.inference.conjugate_svi import ConjugateResult, ConjugateSVI
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.role_hmm import RoleHMM
from ethogram.tour import TourReport, TourSettings, whole_file

__all__ = ["FULL", "QUICK", "TourSizes", "tour"]

NUM_SYMBOLS = 245
THIN_ELLIPSES = 25


class TourSizes(NamedTuple):
    """How much is done.

    Attributes
    ----------
    restarts, sweeps : of a fit, at most.
    train_games, test_games : of predator and prey.
    draws : from the posterior, in the ``.nc`` file.
    predictive : whether the file holds posterior predictive data too.
    sides : teams that are fitted.
    """

    restarts: int
    sweeps: int
    train_games: int
    test_games: int
    draws: int
    predictive: bool
    sides: tuple[str, ...] = football.SIDES


QUICK = TourSizes(restarts=3, sweeps=40, train_games=200, test_games=100, draws=100, predictive=False)
FULL = TourSizes(restarts=8, sweeps=300, train_games=200, test_games=100, draws=100, predictive=True)


class TeamFit(NamedTuple):
    """What was learned about one team."""

    name: str
    plays: football.FootballPlays
    result: ConjugateResult
    roles: InferredRoles
    rows: list[dict[str, Any]]


def tour(settings: TourSettings, sizes: TourSizes | None = None) -> TourReport:
    """Rows, notes and files of the tour of role-hmm.

    Parameters
    ----------
    settings : as `take_tour` makes them.
    sizes : how much is done; `QUICK` or `FULL`, as the settings say, where None.
    """
    sizes = (QUICK if settings.quick else FULL) if sizes is None else sizes
    key_games, key_draws, *keys = jax.random.split(jax.random.key(settings.seed), 2 + len(sizes.sides))
    teams = {name: football.load(name) for name in sizes.sides}
    shape = tuple(max(team.data.observed.shape[axis] for team in teams.values()) for axis in (0, 1))
    picture, record = settings.out / "role-hmm.png", settings.out / "role-hmm.nc"
    # Most of the time goes into compiling, which takes one core: a second one works beside.
    with ThreadPoolExecutor(1) as beside:
        games = beside.submit(_fit_games, key_games, settings, sizes)
        fits, draws = [], []
        for key, (name, plays) in zip(keys, teams.items(), strict=True):
            fits.append(_fit_team(key, name, plays, shape, settings, sizes))
            draws.append(beside.submit(fits[-1].result.posterior.sample, key_draws, sizes.draws))
        rows = [*(row for fit in fits for row in fit.rows), games.result()]
        drawn = beside.submit(_write_picture, picture, fits, [draw.result() for draw in draws])
        # ArviZ has one fit in a file: the team that was seen for longer.
        chosen = max(fits, key=lambda fit: int(fit.plays.data.lengths.sum()))
        tree = to_arviz(
            chosen.result,
            chosen.plays.data,
            key=key_draws,
            num_draws=sizes.draws,
            posterior_predictive=sizes.predictive,
        )
        with whole_file(record) as draft:
            tree.to_netcdf(str(draft), engine="h5netcdf")
        drawn.result()
    notes = [
        "duplicates: share of frames in which two players are in one role. consistency: share of a player's frames",
        "in the role that he holds most. held-out: log likelihood of a frame of ten players, whole plays, two folds;",
        "one role: the same score of a single Gaussian. agreement: share of steps, after one matching of labels.",
        f"{record.name} holds the fit of {chosen.name} (arviz.from_netcdf reads it).",
    ]
    return TourReport(rows, notes, [picture, record])


def _fit_team(
    key: jax.Array,
    name: str,
    plays: football.FootballPlays,
    shape: tuple[int, ...],
    settings: TourSettings,
    sizes: TourSizes,
) -> TeamFit:
    """Fit of a team, its roles, and its two rows."""
    num_frames = int(plays.data.lengths.sum()) // NUM_PLAYERS
    num_plays = plays.data.num_sequences // NUM_PLAYERS
    settings.say(f"football, {name} defence: {num_plays} plays, {num_frames} frames of {NUM_PLAYERS} players")
    scores = score_team(
        key,
        plays,
        shape,
        restarts=sizes.restarts,
        sweeps=sizes.sweeps,
        progress_bar=settings.progress_bar,
        say=settings.say,
    )
    plain = {
        "what was learned": f"{name} defence, plain",
        "ELBO, nats": f"{scores.result.elbo[-1]:.1f}",
        "sweeps": sweeps_done(scores.result),
        **_in_words(scores.plain),
        "held-out, nats/frame": f"{scores.heldout:.2f}",
        "one role": f"{scores.one_role:.2f}",
        "seconds": f"{scores.fit_seconds + scores.fold_seconds:.1f}",
    }
    assignment = {
        "what was learned": f"{name} defence, plain + assignment",
        "ELBO, nats": plain["ELBO, nats"],
        "sweeps": "same fit",
        **_in_words(scores.assigned),
        "held-out, nats/frame": "same fit",
        "seconds": f"{scores.assignment_seconds:.1f}",
    }
    return TeamFit(f"{name} defence", plays, scores.result, scores.roles, [plain, assignment])


def _in_words(measures: dict[str, float]) -> dict[str, str]:
    return {
        "duplicates": f"{measures['duplicate_share']:.2f}",
        "consistency": f"{measures['consistency']:.2f}",
        "truth": "line-up",
        "agreement": f"{measures['lineup_agreement']:.2f}",
    }


def _fit_games(key: jax.Array, settings: TourSettings, sizes: TourSizes) -> dict[str, Any]:
    """Row of the predators: roles exclusive in a game, labels matched on the training games."""
    start = time.perf_counter()
    key_play, key_fit = jax.random.split(key)
    num_games = sizes.train_games + sizes.test_games
    data, games = predator_prey.simulate(key_play, num_games)
    learn = np.asarray(data.group) < sizes.train_games
    model = RoleHMM(predator_prey.NUM_PREDATORS, CategoricalEmission(NUM_SYMBOLS), exclusive="per_sequence")
    # The cells and moves of the data are no roles: only the symbols are looked at.
    seen = data._replace(states=None, actions=None)
    result = ConjugateSVI(model).run(
        key_fit,
        seen.take(learn),
        sizes.sweeps,
        restarts=sizes.restarts,
        progress_bar=False,
    )
    learned = assign_roles(result.posterior, seen).role
    labels = align_states(games.roles[learn], learned[learn], num_states=model.num_roles)
    right = relabel(learned, labels.permutation) == games.roles
    settings.say(
        f"predator-prey: {sizes.train_games} games to learn from, {sizes.test_games} to test on: "
        f"ELBO {result.elbo[-1]:.1f} nats, {sweeps_done(result)} sweeps"
    )
    return {
        "what was learned": "predators, exclusive roles",
        "ELBO, nats": f"{result.elbo[-1]:.1f}",
        "sweeps": sweeps_done(result),
        "duplicates": f"{duplicate_share(learned[:, None], np.asarray(data.group), np.ones_like(learned)):.2f}",
        "consistency": "-",
        "truth": "hidden roles",
        "agreement": f"{right[learn].mean():.2f}; {right[~learn].mean():.2f} in test games",
        "seconds": f"{time.perf_counter() - start:.1f}",
    }


def _write_picture(path: Path, fits: list[TeamFit], draws: list[dict[str, jax.Array]]) -> None:
    """One row a team: ellipses on the pitch, transitions, traces, and timelines below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(20, 11 * len(fits)), layout="constrained")
    parts = figure.subfigures(len(fits), 1, squeeze=False)[:, 0]
    for part, fit, drawn in zip(parts, fits, draws, strict=True):
        part.suptitle(f"{fit.name}: roles found without labels, one colour a role", fontsize=15)
        layout = [["pitch", "matrix", "traces"], ["time", "time", "time"]]
        axes = part.subplot_mosaic(layout, width_ratios=[1.45, 1.2, 0.8], height_ratios=[1.35, 1])
        posterior = fit.result.posterior
        few = {name: draw[:THIN_ELLIPSES] for name, draw in drawn.items()}
        plots.role_ellipses(posterior, plots.pitch(axes["pitch"]), draws=few)
        axes["pitch"].set(xlim=(-40, 40), ylim=(-30, 30))
        axes["pitch"].set_title("one standard deviation; thin: draws from the posterior")
        plots.transition_matrix(posterior, axes["matrix"])
        plots.elbo_traces(fit.result, axes["traces"])
        axes["traces"].set_title("ELBO of every restart")
        plots.role_timelines(*fit.roles, fit.plays.data, axes["time"])
        axes["time"].set_title(
            "most likely role of each player; opacity: its probability; black tick: change of role"
        )
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=90)
