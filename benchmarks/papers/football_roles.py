"""Unsupervised roles of football players and their scores, for several benchmarks.

All football data of a study and its folds are padded to one shape with empty sequences, so that fits and scores
compile once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Int

from ethogram.domains import football
from ethogram.inference.conjugate import ConjugateResult, ConjugateSVI, heldout_log_likelihood
from ethogram.inference.roles import (
    InferredRoles,
    assign_roles,
    consistency,
    duplicate_share,
    infer_roles,
    lineup_agreement,
)
from ethogram.models.data import Trajectories, valid_steps
from ethogram.models.emissions import GaussianEmission
from ethogram.models.roles import RoleHMM

__all__ = [
    "NUM_PLAYERS",
    "TeamScores",
    "football_model",
    "gaussian_score",
    "iterations_done",
    "laid_out",
    "score_team",
]

NUM_PLAYERS = 10


class TeamScores(NamedTuple):
    """Fit of one team, and its scores.

    Measures are ``duplicate_share`` of frames with two players in one role, ``consistency`` and ``lineup_agreement``;
    held-out log likelihoods are of a frame of ten players in nats, two folds over whole plays.
    """

    result: ConjugateResult  # fit to all plays, the restart with the best ELBO
    roles: InferredRoles  # most likely paths and role probabilities
    plain: dict[str, float]  # measures of the paths
    assigned: dict[str, float]  # measures of one role for each player and play
    heldout: float  # log likelihood at the posterior means
    one_role: float  # log likelihood of one Gaussian for all players
    fit_seconds: float  # wall time
    assignment_seconds: float
    fold_seconds: float


def score_team(
    key: jax.Array,
    plays: football.FootballPlays,
    shape: tuple[int, ...],
    *,
    restarts: int,
    iterations: int,
    progress_bar: bool = True,
    say: Callable[[str], None] = lambda line: None,
) -> TeamScores:
    """Fit of a team, its roles, and their scores.

    The data are padded to the shape (sequence, time); restarts and iterations are those of every fit; `say` takes a
    line of progress.
    """
    start = time.perf_counter()
    data, count = plays.data, plays.data.num_sequences
    wide = laid_out(data, shape)
    key_fit, key_folds, key_halves = jax.random.split(key, 3)
    engine = ConjugateSVI(football_model())
    options: dict[str, Any] = {"restarts": restarts, "progress_bar": progress_bar}

    # One iteration first: the program is compiled either way, and the first ELBO is an early sign of life.
    first = engine.run(key_fit, wide, 1, restarts=restarts, progress_bar=False)
    say(f"  first ELBO {first.elbo[-1]:.1f} nats after {time.perf_counter() - start:.1f} s")
    result = engine.run(key_fit, wide, iterations, **options)
    say(
        f"  ELBO {result.elbo[-1]:.1f} nats, the best of {restarts} restarts, {iterations_done(result)} iterations"
    )
    path, probability = infer_roles(result.posterior, wide)
    roles = InferredRoles(*(part[:count, : data.observed.shape[1]] for part in (path, probability)))
    fitted = time.perf_counter()
    held = assign_roles(result.posterior, wide).role[:count]
    one_each = np.where(valid_steps(data), held[:, None], -1)
    assigned = time.perf_counter()
    heldout, one_role = _heldout(key_folds, key_halves, wide, engine, iterations, options, say)
    return TeamScores(
        result,
        roles,
        _measures(roles.path, plays),
        _measures(one_each, plays),
        heldout,
        one_role,
        fitted - start,
        assigned - fitted,
        time.perf_counter() - assigned,
    )


def football_model(num_roles: int = NUM_PLAYERS) -> RoleHMM:
    """Model of a team: one Gaussian per role, in metres relative to the team centroid."""
    return RoleHMM(num_roles, GaussianEmission(2, strength=0.01, dof=4.0, scale=25.0))


def gaussian_score(train: Trajectories, test: Trajectories) -> float:
    r"""Log likelihood of a test frame of one player under a single Gaussian, in nats: one role for all.

    With one role nothing is hidden, and the posterior is a normal-inverse-Wishart in closed form; its means are
    plugged in. Unobserved frames do not count. Murphy (2007), Conjugate Bayesian analysis of the Gaussian distribution,
    section 9.
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


def iterations_done(result: ConjugateResult) -> str:
    """Iterations of a fit, and whether it converged."""
    return f"{result.step}" if result.converged else f"{result.step}, not converged"


def _heldout(
    key: jax.Array,
    key_halves: jax.Array,
    data: Trajectories,
    engine: ConjugateSVI,
    iterations: int,
    options: dict[str, Any],
    say: Callable[[str], None],
) -> tuple[float, float]:
    """Held-out log likelihood of the role model and of one Gaussian, in nats per frame of ten players."""
    plays = np.unique(np.asarray(data.group)[np.asarray(data.lengths) > 0])
    random = np.random.default_rng(np.asarray(jax.random.key_data(key_halves)))
    half = np.isin(np.asarray(data.group), random.permutation(plays)[: len(plays) // 2])
    scores, weights = [], []
    for fold, (key_fold, test_plays) in enumerate(zip(jax.random.split(key), (half, ~half), strict=True)):
        train, test = only(data, ~test_plays), only(data, test_plays)
        result = engine.run(key_fold, train, iterations, **options)
        scores.append([heldout_log_likelihood(result, test), gaussian_score(train, test)])
        weights.append(int(test.observed.sum()))
        say(
            f"  fold {fold + 1} of 2: {NUM_PLAYERS * scores[-1][0]:.2f} nats per held-out frame, one Gaussian "
            f"{NUM_PLAYERS * scores[-1][1]:.2f} ({iterations_done(result)} iterations)"
        )
    roles, one = NUM_PLAYERS * np.average(scores, axis=0, weights=weights)
    return float(roles), float(one)


def _measures(roles: Int[np.ndarray, "sequence time"], plays: football.FootballPlays) -> dict[str, float]:
    data = plays.data
    return {
        "duplicate_share": duplicate_share(
            roles, np.asarray(data.group), np.asarray(data.lengths), data.observed
        ),
        "consistency": consistency(roles, np.asarray(data.agent)),
        "lineup_agreement": lineup_agreement(roles, np.asarray(data.agent), plays.formation_place),
    }


def laid_out(data: Trajectories, shape: tuple[int, ...]) -> Trajectories:
    """The data padded to the shape (sequence, time), with empty sequences in groups of their own."""
    spare = shape[0] - data.num_sequences
    around = ((0, spare), (0, shape[1] - data.observed.shape[1]))
    agent, group = np.asarray(data.agent), np.asarray(data.group)
    empty = np.arange(spare, dtype=group.dtype)
    return data._replace(
        observations=np.pad(np.asarray(data.observations), (*around, (0, 0))),
        observed=np.pad(data.observed, around),
        lengths=np.pad(data.lengths, around[0]),
        agent=np.append(agent, empty % NUM_PLAYERS),
        group=np.append(group, group.max() + 1 + empty // NUM_PLAYERS),
    )


def only(data: Trajectories, chosen: Bool[np.ndarray, "sequence"]) -> Trajectories:
    """The data with all other sequences emptied."""
    return data._replace(
        lengths=np.where(chosen, data.lengths, 0).astype(data.lengths.dtype),
        observed=data.observed & chosen[:, None],
    )
