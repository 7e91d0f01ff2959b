"""Roles found without labels: predators with hidden roles, and two football teams against their line-up.

Predator-prey (Le et al. 2017, section 6.1): accuracy up to one relabelling, learned on training games, on fresh
simulated games and on the shipped ones; modes "exclusive" (one role per game, no two alike) and
"plain+assignment" (hidden Markov chains, then one role each by optimal assignment). Football: consistency is the
share of a player's frames in his most frequent role, line-up agreement is under one best matching of roles to
places, held-out is the log likelihood of a frame of ten players over two folds of whole plays. The fit of the
best bound is scored; no accuracy chooses anything.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np

from benchmarks import report
from benchmarks.papers.football_roles import TeamScores, laid_out, score_team
from ethogram.domains import football, predator_prey
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.roles.alignment import align_states, relabel
from ethogram.inference.roles.assignment import assign_roles
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["measure"]

SYMBOLS = 245
EXCLUSIVE_TARGET, PLAIN_TARGET = 0.99, 0.95
CONSISTENCY_TARGET, GAIN_TARGET = 0.75, 12.0


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of predator-prey, then of football."""
    quick = settings.quick
    seeds = range(settings.seed, settings.seed + (2 if quick else 5))
    rows = []
    for seed in seeds:
        key = jax.random.fold_in(jax.random.key(seed), 1)
        data, games = predator_prey.simulate(key, 120 if quick else 400)
        learn = np.asarray(data.group) < (80 if quick else 300)
        rows.append(_exclusive("simulated", data, games.roles, learn, seed))
        if not quick:
            rows.append(_plain("simulated", data, games.roles, learn, seed))
    rows += _shipped(seeds, quick)
    return rows + _football(settings.seed, quick)


def _exclusive(
    games: str, data: Trajectories, roles: np.ndarray, learn: np.ndarray, seed: int
) -> dict[str, Any]:
    model = RoleHMM(predator_prey.NUM_PREDATORS, CategoricalEmission(SYMBOLS), exclusive="per_sequence")
    return _accuracy(games, "exclusive", model, data, roles, learn, seed, 1, EXCLUSIVE_TARGET)


def _plain(games: str, data: Trajectories, roles: np.ndarray, learn: np.ndarray, seed: int) -> dict[str, Any]:
    model = RoleHMM(predator_prey.NUM_PREDATORS, CategoricalEmission(SYMBOLS), sticky=50.0)
    return _accuracy(games, "plain+assignment", model, data, roles, learn, seed, 8, PLAIN_TARGET)


def _accuracy(
    games: str,
    mode: str,
    model: RoleHMM,
    data: Trajectories,
    roles: np.ndarray,
    learn: np.ndarray,
    seed: int,
    restarts: int,
    target: float,
) -> dict[str, Any]:
    """Share of predators whose role is right, labels matched on the training games."""
    start = time.perf_counter()
    result = ConjugateSVI(model).run(
        jax.random.key(seed), data.take(learn), 200, restarts=restarts, progress_bar=False
    )
    learned = assign_roles(result.posterior, data).role
    labels = align_states(roles[learn], learned[learn], num_states=model.num_roles)
    right = relabel(learned, labels.permutation) == roles
    accuracy = float(right[~learn].mean())
    return {
        "case": "predator_prey",
        "games": games,
        "mode": mode,
        "seed": seed,
        "train_accuracy": float(right[learn].mean()),
        "test_accuracy": accuracy,
        "elbo": float(result.elbo[-1]),
        "restarts": restarts,
        "converged": result.converged,
        "fit_s": time.perf_counter() - start,
        "target": target,
        "reached": accuracy >= target,
    }


def _shipped(seeds: range, quick: bool) -> list[dict[str, Any]]:
    """Rows of the games that come with the specification, 300 to learn from and 100 to test on."""
    try:
        (train, train_roles), (test, test_roles) = (
            predator_prey.load_games(part) for part in ("train", "test")
        )
    except FileNotFoundError as error:
        return [{"case": "predator_prey", "games": "shipped", "skipped": str(error)}]
    data, roles, learn = _joined(train, test, np.asarray(train_roles), np.asarray(test_roles))
    rows = [_exclusive("shipped", data, roles, learn, seed) for seed in seeds]
    return rows if quick else rows + [_plain("shipped", data, roles, learn, seed) for seed in seeds]


def _joined(
    train: Trajectories, test: Trajectories, train_roles: np.ndarray, test_roles: np.ndarray
) -> tuple[Trajectories, np.ndarray, np.ndarray]:
    """Both parts as one set, with roles and which sequences are to learn from."""
    steps = max(train.observed.shape[1], test.observed.shape[1])
    parts = [laid_out(part, (part.num_sequences, steps)) for part in (train, test)]
    group = np.concatenate([train.group, np.asarray(test.group) + np.asarray(train.group).max() + 1])
    data = parts[0]._replace(
        observations=np.concatenate([part.observations for part in parts]),
        observed=np.concatenate([part.observed for part in parts]),
        lengths=np.concatenate([part.lengths for part in parts]),
        agent=np.concatenate([part.agent for part in parts]),
        group=group.astype(np.int32),
        states=None,
        actions=None,
    )
    learn = np.arange(len(group)) < train.num_sequences
    return data, np.concatenate([train_roles, test_roles]), learn


def _football(seed: int, quick: bool) -> list[dict[str, Any]]:
    plays = {team: football.load(team) for team in football.SIDES}
    shape = tuple(max(one.data.observed.shape[axis] for one in plays.values()) for axis in (0, 1))
    rows = []
    for number, (team, one) in enumerate(plays.items()):
        key = jax.random.fold_in(jax.random.key(seed), number)
        scores = score_team(
            key, one, shape, restarts=2 if quick else 8, iterations=30 if quick else 300, progress_bar=False
        )
        rows += _team_rows(team, scores, 2 if quick else 8)
    return rows


def _team_rows(team: str, scores: TeamScores, restarts: int) -> list[dict[str, Any]]:
    common = {"case": "football", "team": team, "restarts": restarts}
    gain = scores.heldout - scores.one_role
    fitted = {
        "elbo": float(scores.result.elbo[-1]),
        "converged": scores.result.converged,
        "heldout_log_likelihood": scores.heldout,
    }
    assigned = scores.assigned
    reached = assigned["duplicate_share"] == 0 and assigned["consistency"] >= CONSISTENCY_TARGET
    return [
        {**common, "mode": "plain", **fitted, **scores.plain},
        {
            **common,
            "mode": "plain+assignment",
            **fitted,
            **assigned,
            "gain_over_one_role": gain,
            "target": f"0 dup, >= {CONSISTENCY_TARGET}, >= {GAIN_TARGET} nats",
            "reached": bool(reached and gain >= GAIN_TARGET),
        },
        {**common, "mode": "one_role", "heldout_log_likelihood": scores.one_role},
    ]


if __name__ == "__main__":
    raise SystemExit(report.run("roles", __doc__, measure))
