"""The tour of role-hmm: roles of football players and of predators, found without labels.

Football: both defences of a match, each team by its own `RoleHMM`, the best of several restarts by its ELBO;
scored against the printed line-up, and on plays held out. Predator-prey: fresh games with exclusive roles,
scored against the hidden ones.

All football data of a tour, and the parts of it that folds leave over, are laid out alike, with empty sequences
where there is less: fits and scores of one shape are compiled once.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int

from ethogram import plots
from ethogram.domains import football, predator_prey
from ethogram.inference.alignment import align_states, consistency, duplicate_share, lineup_agreement, relabel
from ethogram.inference.arviz_export import to_arviz
from ethogram.inference.assignment import InferredRoles, assign_roles, infer_roles
from ethogram.inference.conjugate_svi import ConjugateResult, ConjugateSVI
from ethogram.models.emissions import CategoricalEmission, GaussianEmission
from ethogram.models.role_hmm import RoleHMM
from ethogram.models.trajectories import Metadata, Trajectories, valid_steps
from ethogram.tour import TourReport, TourSettings, whole_file

__all__ = ["FULL", "QUICK", "TourSizes", "football_model", "gaussian_score", "tour"]

NUM_PLAYERS = 10
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
    """

    restarts: int
    sweeps: int
    train_games: int
    test_games: int
    draws: int
    predictive: bool


QUICK = TourSizes(restarts=3, sweeps=40, train_games=200, test_games=100, draws=100, predictive=False)
FULL = TourSizes(restarts=8, sweeps=300, train_games=200, test_games=100, draws=500, predictive=True)


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
    key_home, key_away, key_games, key_draws = jax.random.split(jax.random.key(settings.seed), 4)
    teams = {name: football.load(name) for name in football.SIDES}
    shape = tuple(max(team.data.observed.shape[axis] for team in teams.values()) for axis in (0, 1))
    fits = [
        _fit_team(key, name, plays, shape, settings, sizes)
        for key, (name, plays) in zip((key_home, key_away), teams.items(), strict=True)
    ]
    rows = [row for fit in fits for row in fit.rows]
    rows.append(_fit_games(key_games, settings, sizes))

    picture = settings.out / "role-hmm.png"
    with whole_file(picture) as draft:
        _draw(fits, key_draws, sizes.draws).savefig(draft, dpi=90)
    # ArviZ has one fit in a file: the team that was seen for longer.
    chosen = max(fits, key=lambda fit: int(fit.plays.data.lengths.sum()))
    tree = to_arviz(
        chosen.result,
        chosen.plays.data,
        key=key_draws,
        num_draws=sizes.draws,
        posterior_predictive=sizes.predictive,
    )
    record = settings.out / "role-hmm.nc"
    with whole_file(record) as draft:
        tree.to_netcdf(str(draft), engine="h5netcdf")
    notes = [
        "duplicates: share of frames in which two players are in one role. consistency: share of a player's frames",
        "in the role that he holds most. held-out: log likelihood of a frame of ten players, whole plays, two folds;",
        "one role: the same score of a single Gaussian. agreement: share of steps, after one matching of labels.",
        f"{record.name} holds the fit of {chosen.name} (arviz.from_netcdf reads it).",
    ]
    return TourReport(rows, notes, [picture, record])


def football_model(num_roles: int = NUM_PLAYERS) -> RoleHMM:
    """The model of a team: one Gaussian a role, in metres about the team's centre."""
    return RoleHMM(num_roles, GaussianEmission(2, strength=0.01, dof=4.0, scale=25.0))


def gaussian_score(train: Trajectories, test: Trajectories) -> float:
    r"""Log likelihood of a test frame of one player under a single Gaussian, in nats: one role for all.

    With one role nothing is hidden, and the posterior is a normal-inverse-Wishart in closed form; its means are
    plugged in.

    Parameters
    ----------
    train, test : trajectories; unobserved frames do not count.

    References
    ----------
    Murphy (2007), Conjugate Bayesian analysis of the Gaussian distribution, section 9.
    """
    from scipy.stats import multivariate_normal

    prior = football_model(1).prior()["mean_covariance"].standard()
    mean, strength, dof, scale = (np.asarray(part, float)[0] for part in prior)
    x = np.asarray(train.observations, float)[np.asarray(train.observed)]
    centre, count = x.mean(axis=0), len(x)
    scatter = (x - centre).T @ (x - centre)
    shift = np.outer(centre - mean, centre - mean)
    scale = scale + scatter + strength * count / (strength + count) * shift
    mean = (strength * mean + count * centre) / (strength + count)
    covariance = scale / (dof + count - len(mean) - 1)
    y = np.asarray(test.observations, float)[np.asarray(test.observed)]
    return float(multivariate_normal(mean, covariance).logpdf(y).mean())


def _fit_team(
    key: jax.Array,
    name: str,
    plays: football.FootballPlays,
    shape: tuple[int, ...],
    settings: TourSettings,
    sizes: TourSizes,
) -> TeamFit:
    """Fit of a team, its roles, and its two rows."""
    start = time.perf_counter()
    data, count = plays.data, plays.data.num_sequences
    num_frames = int(data.lengths.sum()) // NUM_PLAYERS
    num_plays = count // NUM_PLAYERS
    settings.say(f"football, {name} defence: {num_plays} plays, {num_frames} frames of {NUM_PLAYERS} players")
    wide = _laid_out(data, shape)
    key_fit, key_folds, key_halves = jax.random.split(key, 3)
    engine = ConjugateSVI(football_model())
    options = {"restarts": sizes.restarts, "progress_bar": settings.progress_bar}

    # One sweep first: the program is compiled either way, and the bound shows that all is well.
    first = engine.run(key_fit, wide, 1, restarts=sizes.restarts, progress_bar=False)
    settings.say(f"  first ELBO {first.elbo[-1]:.1f} nats after {time.perf_counter() - start:.1f} s")
    result = engine.run(key_fit, wide, sizes.sweeps, **options)
    settings.say(
        f"  ELBO {result.elbo[-1]:.1f} nats, the best of {sizes.restarts} restarts, {_sweeps(result)} sweeps"
    )
    path, probability = infer_roles(result.posterior, wide)
    roles = InferredRoles(*(part[:count, : data.observed.shape[1]] for part in (path, probability)))
    fitted = time.perf_counter()
    seconds = fitted - start
    assigned = assign_roles(result.posterior, wide).role[:count]
    one_each = np.where(valid_steps(data), assigned[:, None], -1)
    assignment_seconds = time.perf_counter() - fitted

    heldout, one_role, fold_seconds = _heldout(key_folds, key_halves, wide, engine, options, sizes, settings)
    plain = {
        "what was learned": f"{name} defence, plain",
        "ELBO, nats": f"{result.elbo[-1]:.1f}",
        "sweeps": _sweeps(result),
        **_measures(roles.path, plays),
        "held-out, nats/frame": f"{heldout:.2f}",
        "one role": f"{one_role:.2f}",
        "seconds": f"{seconds + fold_seconds:.1f}",
    }
    assignment = {
        "what was learned": f"{name} defence, plain + assignment",
        "ELBO, nats": plain["ELBO, nats"],
        "sweeps": "same fit",
        **_measures(one_each, plays),
        "held-out, nats/frame": "same fit",
        "seconds": f"{assignment_seconds:.1f}",
    }
    return TeamFit(f"{name} defence", plays, result, roles, [plain, assignment])


def _heldout(
    key: jax.Array,
    key_halves: jax.Array,
    data: Trajectories,
    engine: ConjugateSVI,
    options: dict[str, Any],
    sizes: TourSizes,
    settings: TourSettings,
) -> tuple[float, float, float]:
    """Held-out score of the roles and of one Gaussian, in nats a frame of ten players, and the seconds taken."""
    start = time.perf_counter()
    plays = np.unique(np.asarray(data.group)[np.asarray(data.lengths) > 0])
    random = np.random.default_rng(np.asarray(jax.random.key_data(key_halves)))
    half = np.isin(data.group, random.permutation(plays)[: len(plays) // 2])
    scores, weights = [], []
    for fold, (key_fold, test_plays) in enumerate(zip(jax.random.split(key), (half, ~half), strict=True)):
        train, test = _only(data, ~test_plays), _only(data, test_plays)
        result = engine.run(key_fold, train, sizes.sweeps, **options)
        count = int(test.observed.sum())
        total = _log_likelihood(engine.model, result.posterior.mean(), test._replace(metadata=Metadata()))
        scores.append([float(total) / count, gaussian_score(train, test)])
        weights.append(count)
        settings.say(
            f"  fold {fold + 1} of 2: {NUM_PLAYERS * scores[-1][0]:.2f} nats a held-out frame, one role "
            f"{NUM_PLAYERS * scores[-1][1]:.2f} ({_sweeps(result)} sweeps)"
        )
    roles, one = NUM_PLAYERS * np.average(scores, axis=0, weights=weights)
    return float(roles), float(one), time.perf_counter() - start


@jax.jit
def _log_likelihood(model: RoleHMM, parameters: dict[str, jax.Array], data: Trajectories) -> jax.Array:
    """Log likelihood of all sequences together, compiled once for all folds of both teams."""
    return jnp.sum(model.observation(parameters, data).log_prob(model.observed_value(data)))


def _fit_games(key: jax.Array, settings: TourSettings, sizes: TourSizes) -> dict[str, Any]:
    """Row of the predators: roles exclusive in a game, labels matched on the training games."""
    start = time.perf_counter()
    key_play, key_fit = jax.random.split(key)
    num_games = sizes.train_games + sizes.test_games
    settings.say(f"predator-prey: {sizes.train_games} games to learn from, {sizes.test_games} to test on")
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
        progress_bar=settings.progress_bar,
    )
    learned = assign_roles(result.posterior, seen).role
    labels = align_states(games.roles[learn], learned[learn], num_states=model.num_roles)
    right = relabel(learned, labels.permutation) == games.roles
    settings.say(f"  ELBO {result.elbo[-1]:.1f} nats, {_sweeps(result)} sweeps")
    return {
        "what was learned": "predators, exclusive roles",
        "ELBO, nats": f"{result.elbo[-1]:.1f}",
        "sweeps": _sweeps(result),
        "duplicates": f"{duplicate_share(learned[:, None], data.group, np.ones_like(learned)):.2f}",
        "consistency": "-",
        "truth": "hidden roles",
        "agreement": f"{right[learn].mean():.2f}; {right[~learn].mean():.2f} in test games",
        "seconds": f"{time.perf_counter() - start:.1f}",
    }


def _measures(roles: Int[np.ndarray, "sequence time"], plays: football.FootballPlays) -> dict[str, Any]:
    data = plays.data
    return {
        "duplicates": f"{duplicate_share(roles, data.group, data.lengths):.2f}",
        "consistency": f"{consistency(roles, data.agent):.2f}",
        "truth": "line-up",
        "agreement": f"{lineup_agreement(roles, data.agent, plays.formation_place):.2f}",
    }


def _sweeps(result: ConjugateResult) -> str:
    return f"{result.step}" if result.converged else f"{result.step}, not converged"


def _laid_out(data: Trajectories, shape: tuple[int, ...]) -> Trajectories:
    """The data with empty sequences, in groups of their own, and padding up to the shape (sequence, time)."""
    spare = shape[0] - data.num_sequences
    around = ((0, spare), (0, shape[1] - data.observed.shape[1]))
    return data._replace(
        observations=np.pad(data.observations, (*around, (0, 0))),
        observed=np.pad(data.observed, around),
        lengths=np.pad(data.lengths, around[0]),
        agent=np.append(data.agent, np.resize(np.arange(NUM_PLAYERS, dtype=np.int32), spare)),
        group=np.append(data.group, data.group.max() + 1 + np.arange(spare, dtype=np.int32) // NUM_PLAYERS),
    )


def _only(data: Trajectories, chosen: Bool[np.ndarray, "sequence"]) -> Trajectories:
    """The data with every sequence emptied that is not chosen."""
    return data._replace(
        lengths=np.where(chosen, data.lengths, 0).astype(data.lengths.dtype),
        observed=data.observed & chosen[:, None],
    )


def _draw(fits: list[TeamFit], key: jax.Array, num_draws: int) -> Any:
    """One row a team: ellipses on the pitch, timelines, transitions, traces."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(20, 11 * len(fits)), layout="constrained")
    parts = figure.subfigures(len(fits), 1, squeeze=False)[:, 0]
    for part, fit in zip(parts, fits, strict=True):
        part.suptitle(f"{fit.name}: roles found without labels, one colour a role", fontsize=15)
        layout = [["pitch", "matrix", "traces"], ["time", "time", "time"]]
        axes = part.subplot_mosaic(layout, width_ratios=[1.45, 1.2, 0.8], height_ratios=[1.35, 1])
        posterior = fit.result.posterior
        draws = {name: draw[:THIN_ELLIPSES] for name, draw in posterior.sample(key, num_draws).items()}
        plots.role_ellipses(posterior, plots.pitch(axes["pitch"]), draws=draws)
        axes["pitch"].set(xlim=(-40, 40), ylim=(-30, 30))
        axes["pitch"].set_title("one standard deviation; thin: draws from the posterior")
        plots.transition_matrix(posterior, axes["matrix"])
        plots.elbo_traces(fit.result, axes["traces"])
        axes["traces"].set_title("ELBO of every restart")
        plots.role_timelines(*fit.roles, fit.plays.data, axes["time"])
        axes["time"].set_title(
            "most likely role of each player; opacity: its probability; black tick: change of role"
        )
    return figure
