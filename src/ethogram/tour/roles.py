"""The tour of role-hmm: roles of football players and of predators, found without labels.

Football: both defences of a match, each team by its own `RoleHMM`, the best of several restarts by its ELBO;
scored against the printed line-up, and on held-out plays. Predator-prey: simulated games with exclusive roles,
scored against the hidden ones, and policies imitated by these roles, played in fresh games.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ethogram import plots
from ethogram.domains import football, predator_prey
from ethogram.inference.conjugate import ConjugateResult, ConjugateSVI
from ethogram.inference.export import to_arviz
from ethogram.inference.roles import InferredRoles, align_states, assign_roles, duplicate_share, relabel
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.roles import RoleHMM
from ethogram.tour.football_roles import NUM_PLAYERS, iterations_done, score_team
from ethogram.tour.guide import Guide, TourReport
from ethogram.tour.predators import ROUNDS, Team, draw_teams, imitate_predators

__all__ = ["FULL", "QUICK", "TourSizes", "tour"]

NUM_SYMBOLS = 245
THIN_ELLIPSES = 25
BOARDS_HEIGHT = 4
"""Inches of the figure for the predators."""

FIT_SECONDS = {"quick": 20, "full": 30}
"""Of the first team, expected; the second one shares its compiled programs."""


class TourSizes(NamedTuple):
    """Sizes of the fits."""

    restarts: int
    iterations: int  # of a fit, at most
    train_games: int  # of predator-prey
    test_games: int
    draws: int  # from the posterior, in the ``.nc`` file
    predictive: bool  # whether the file holds posterior predictive data too
    sides: tuple[str, ...] = football.SIDES  # teams that are fitted
    demonstrations: int = 100  # training games that policies imitate
    fresh_games: int = 100  # that they play


QUICK = TourSizes(restarts=3, iterations=40, train_games=200, test_games=100, draws=100, predictive=False)
FULL = TourSizes(restarts=8, iterations=300, train_games=200, test_games=100, draws=100, predictive=True)


class TeamFit(NamedTuple):
    """Fit, roles and rows of one team."""

    name: str
    plays: football.FootballPlays
    result: ConjugateResult
    roles: InferredRoles
    rows: list[dict[str, Any]]


def tour(guide: Guide, sizes: TourSizes) -> TourReport:
    """Rows, notes and files of the tour of role-hmm."""
    key_games, key_draws, *keys = jax.random.split(jax.random.key(guide.seed), 2 + len(sizes.sides))
    teams = {name: football.load(name) for name in sizes.sides}
    shape = tuple(max(team.data.observed.shape[axis] for team in teams.values()) for axis in (0, 1))
    fits: list[TeamFit] = []
    for key, (name, plays) in zip(keys, teams.items(), strict=True):
        seconds = {"quick": 2, "full": 10} if fits else FIT_SECONDS
        fits.append(_fit_team(key, name, plays, shape, seconds, guide, sizes))
    game_rows, predators = _fit_games(key_games, guide, sizes)
    with guide.figure(20, 11 * len(fits) + BOARDS_HEIGHT) as figure:
        _draw(figure, fits, [fit.result.posterior.sample(key_draws, sizes.draws) for fit in fits], predators)
    rows = [*(row for fit in fits for row in fit.rows), *game_rows]
    # ArviZ has one fit in a file: the team with more frames.
    chosen = max(fits, key=lambda fit: int(fit.plays.data.lengths.sum()))
    guide.save(
        to_arviz(
            chosen.result,
            chosen.plays.data,
            key=key_draws,
            num_draws=sizes.draws,
            log_likelihood="sequence",
            posterior_predictive=sizes.predictive,
        )
    )
    notes = [
        "duplicates: share of frames with two players in one role. consistency: share of a player's frames in its",
        "most frequent role. held-out: log likelihood of a frame of ten players, two folds of whole plays; one",
        "Gaussian: the same for a single Gaussian. agreement: share of frames in the true role, labels matched.",
        f"imitation: {sizes.demonstrations} training games, {ROUNDS} rounds of DAgger; a policy does what was done",
        "at the nearest position of the team. failed: share of fresh games without a capture in 50 steps.",
        f"role-hmm.nc holds the fit of the {chosen.name} (arviz.from_netcdf reads it).",
    ]
    return guide.report(rows, notes)


def _fit_team(
    key: jax.Array,
    name: str,
    plays: football.FootballPlays,
    shape: tuple[int, ...],
    seconds: dict[str, int],
    guide: Guide,
    sizes: TourSizes,
) -> TeamFit:
    """Fit of a team, its roles, and its two rows."""
    num_frames = int(plays.data.lengths.sum()) // NUM_PLAYERS
    num_plays = plays.data.num_sequences // NUM_PLAYERS
    guide.step(
        f"football, {name} defence: {num_plays} plays, {num_frames} frames of {NUM_PLAYERS} players",
        **seconds,
    )
    scores = score_team(
        key,
        plays,
        shape,
        restarts=sizes.restarts,
        iterations=sizes.iterations,
        progress_bar=guide.progress_bar,
        say=guide.say,
    )
    plain = {
        "fit": f"{name} defence, plain",
        "ELBO, nats": f"{scores.result.elbo[-1]:.1f}",
        "iterations": iterations_done(scores.result),
        **_in_words(scores.plain),
        "held-out, nats/frame": f"{scores.heldout:.2f}",
        "one Gaussian": f"{scores.one_role:.2f}",
        "seconds": f"{scores.fit_seconds + scores.fold_seconds:.1f}",
    }
    assignment = {
        "fit": f"{name} defence, plain + assignment",
        "ELBO, nats": plain["ELBO, nats"],
        "iterations": "same fit",
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


def _fit_games(key: jax.Array, guide: Guide, sizes: TourSizes) -> tuple[list[dict[str, Any]], list[Team]]:
    """Rows of the predators, roles exclusive in a game, labels matched on the training games; and imitated teams."""
    seconds = guide.step(
        f"predator-prey: {sizes.train_games} training games, {sizes.test_games} test games", quick=9, full=12
    )
    key_play, key_fit, key_imitate = jax.random.split(key, 3)
    num_games = sizes.train_games + sizes.test_games
    data, games = predator_prey.simulate(key_play, num_games)
    learn = np.asarray(data.group) < sizes.train_games
    model = RoleHMM(predator_prey.NUM_PREDATORS, CategoricalEmission(NUM_SYMBOLS), exclusive="per_sequence")
    # States and actions of the data are cells and moves, not roles: the model sees the symbols alone.
    seen = data._replace(states=None, actions=None)
    result = ConjugateSVI(model).run(
        key_fit,
        seen.take(learn),
        sizes.iterations,
        restarts=sizes.restarts,
        progress_bar=False,
    )
    learned = assign_roles(result.posterior, seen).role
    labels = align_states(games.roles[learn], learned[learn], num_states=model.num_roles)
    matched = relabel(learned, labels.permutation)
    right = matched == games.roles
    fit = {
        "fit": "predators, exclusive roles",
        "ELBO, nats": f"{result.elbo[-1]:.1f}",
        "iterations": iterations_done(result),
        "duplicates": f"{duplicate_share(learned[:, None], np.asarray(data.group), np.ones_like(learned)):.2f}",
        "consistency": "-",
        "truth": "hidden roles",
        "agreement": f"{right[learn].mean():.2f}; {right[~learn].mean():.2f} in test games",
        "seconds": seconds(),
    }
    guide.step("predator-prey: imitation by learned and by arbitrary roles", quick=5, full=5)
    shown = np.asarray(data.group) < min(sizes.demonstrations, sizes.train_games)
    teams = imitate_predators(
        key_imitate, data.take(shown), matched[shown], games.roles[shown], sizes.fresh_games
    )
    imitated = [
        {
            "fit": f"imitation, {team.name}",
            "failed": f"{team.result.failure[-1]:.2f}",
            "seconds": f"{team.seconds:.1f}",
        }
        for team in teams
    ]
    return [fit, *imitated], teams


def _draw(figure: Any, fits: list[TeamFit], draws: list[dict[str, jax.Array]], predators: list[Team]) -> None:
    """One row a team: ellipses on the pitch, transitions, ELBO traces, and timelines below; then the predators."""
    heights = [11] * len(fits) + [BOARDS_HEIGHT]
    *parts, boards = figure.subfigures(len(heights), 1, height_ratios=heights)
    draw_teams(boards, predators)
    for part, fit, drawn in zip(parts, fits, draws, strict=True):
        part.suptitle(f"{fit.name}: inferred roles, one colour each", fontsize=15)
        layout = [["pitch", "matrix", "traces"], ["time", "time", "time"]]
        axes = part.subplot_mosaic(layout, width_ratios=[1.45, 1.2, 0.8], height_ratios=[1.35, 1])
        posterior = fit.result.posterior
        few = {name: draw[:THIN_ELLIPSES] for name, draw in drawn.items()}
        plots.role_ellipses(posterior, plots.pitch(axes["pitch"]), draws=few, data=fit.plays.data)
        axes["pitch"].set(xlim=(-40, 40), ylim=(-30, 30))
        axes["pitch"].set_title("posterior mean (one standard deviation) and posterior draws (thin)")
        plots.transition_matrix(posterior, axes["matrix"])
        plots.elbo_traces(fit.result, axes["traces"])
        axes["traces"].set_title("ELBO of each restart")
        plots.role_timelines(*fit.roles, fit.plays.data, axes["time"])
        axes["time"].set_title(
            "most likely role path of each player; opacity: posterior probability; tick: role switch"
        )
