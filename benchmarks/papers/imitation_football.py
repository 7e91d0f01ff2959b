"""Joint roll-outs of a defending football team: learned roles against shuffled indices, and simple baselines.

As figure 5 of Le et al. (2017), on six minutes of other data: 27 defensive plays of both teams at 5 frames a second,
in two folds of whole plays. Ten policies are rolled out together from the true positions, given the ball and the
opponents. Roles of held-out plays are inferred from their first second. Distances are in metres, by horizon: the final
one (FDE) and the mean up to it (ADE). The energy score is that of sampled futures of each player (lower is better).
Differences between shuffled and learned have 95 % intervals of a paired bootstrap of whole plays. The few settings of
the policies that are shown were chosen after looking at some on the same two folds; the comparison of learned with
shuffled does not depend on them.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import report
from ethogram.domains import football, football_scenes
from ethogram.inference.conjugate import ConjugateSVI
from ethogram.inference.imitation import (
    Scenes,
    by_role,
    constant_velocity,
    fit_linear_motion,
    imitate_motion,
    linear_step,
    recurrent_step,
    residual_scale,
    roles_of_plays,
    roll_motion,
    stay_still,
)
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import GaussianEmission
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["measure"]

NUM_AGENTS, LONGEST, FIRST_SECOND = 10, 25, 5
PHASES = (5, 10, 15, 20, 25)
SHOWN = (1, 2, 5, 10, 15, 25)
NUM_FUTURES = 16
SEEN = {"features": football_scenes.motion_features}


class Policy(NamedTuple):
    """A fitted policy for `roll_motion`."""

    step: Any
    parameters: Any
    num_units: int = 1


class Errors(NamedTuple):
    """Summed distances in metres, or scores, and counts of them, both (play, horizon)."""

    total: np.ndarray
    count: np.ndarray


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows by policy and horizon."""
    quick = settings.quick
    found = football_scenes.load()
    fold = folds(found.scenes.lengths)
    ridges, decays = ((100.0,), ()) if quick else ((10.0, 100.0), (10.0, 30.0))
    seeds = range(settings.seed, settings.seed + (1 if quick else 2))
    scores: dict[tuple[str, str], list[Errors]] = {}
    energies: dict[tuple[str, str], list[Errors]] = {}
    for number in range(2):
        start = time.perf_counter()
        train, test = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        for seed in seeds:
            for arm in ("learned", "shuffled"):
                for name, policy, ordered, scale in fitted(found, train, test, seed, arm, ridges, decays):
                    add(scores, (name, arm), distances(policy, ordered), test, len(fold))
                    add(energies, (name, arm), energy(policy, ordered, scale, seed), test, len(fold))
        print(f"fold {number}: {time.perf_counter() - start:.0f} s", flush=True)
    everyone = by_role(found.scenes, np.arange(len(fold)), np.tile(np.arange(NUM_AGENTS), (len(fold), 1)))
    nothing = np.zeros(NUM_AGENTS)
    still, velocity = (distances(Policy(step, nothing), everyone) for step in (stay_still, constant_velocity))
    rows = [baseline_row("stay still", still), baseline_row("constant velocity", velocity)]
    names = dict.fromkeys(name for name, _ in scores)
    rng = np.random.default_rng(settings.seed)
    for name in names:
        learned, shuffled = (pooled(scores[name, arm]) for arm in ("learned", "shuffled"))
        sampled = tuple(pooled(energies[name, arm]) for arm in ("learned", "shuffled"))
        rows += comparison_rows(name, learned, shuffled, sampled, rng)
    return rows


def folds(lengths: np.ndarray) -> np.ndarray:
    """Fold 0 or 1 of each play, of about as many frames."""
    fold, frames = np.zeros(len(lengths), int), [0, 0]
    for play in np.argsort(-lengths, kind="stable"):
        fold[play] = int(frames[1] < frames[0])
        frames[fold[play]] += int(lengths[play])
    return fold


def some(scenes: Scenes, plays: np.ndarray) -> Scenes:
    """The scenes of some plays."""
    return Scenes(*(np.asarray(x)[plays] for x in scenes))


def fitted(
    found: football_scenes.FootballScenes,
    train: np.ndarray,
    test: np.ndarray,
    seed: int,
    arm: str,
    ridges: tuple[float, ...],
    decays: tuple[float, ...],
) -> list[tuple[str, Policy, Scenes, np.ndarray]]:
    """Policies of one arm with the held-out plays in the order of their roles, and the scale of their errors."""
    key = jax.random.key(seed)
    scenes, sequences = found.scenes, np.arange(found.data.num_sequences).reshape(-1, NUM_AGENTS)
    data, held_out = (found.data.take(sequences[plays].ravel()) for plays in (train, test))
    rng = np.random.default_rng([seed, len(train)])
    if arm == "learned":
        model = RoleHMM(NUM_AGENTS, GaussianEmission(2, dof=4.0, scale=25.0), exclusive="per_sequence")
        fit = ConjugateSVI(model).run(key, data, 200, progress_bar=False)
        roles = roles_of_plays(fit, data, NUM_AGENTS).best
    else:
        fit, everyone = None, np.arange(NUM_AGENTS)
        roles = rng.permuted(np.tile(everyone, (len(train), 1)), axis=1)
        roles_held_out = rng.permuted(np.tile(everyone, (len(test), 1)), axis=1)
    policies = []
    for decay in decays:
        result = imitate_motion(
            key, fit, some(scenes, train), roles=arm, weight_decay=decay, progress_bar=False, **SEEN
        )
        name = f"recurrent, decay {decay:g}"
        policies.append(
            (name, Policy(recurrent_step, result.parameters, result.num_units), result.role, result.fit)
        )
    for ridge in ridges:
        coefficients = fit_linear_motion(
            by_role(some(scenes, train), np.arange(len(train)), roles), ridge=ridge, **SEEN
        )
        policies.append((f"linear, ridge {ridge:g}", Policy(linear_step, coefficients), roles, fit))
    made = []
    for name, policy, held, last_fit in policies:
        if last_fit is not None:
            roles_held_out = roles_of_plays(last_fit, first_second(held_out), NUM_AGENTS).best
        trained_on = by_role(some(scenes, train), np.arange(len(train)), held)
        scale = residual_scale(policy.step, policy.parameters, trained_on, policy.num_units, **SEEN)
        made.append((name, policy, by_role(some(scenes, test), np.arange(len(test)), roles_held_out), scale))
    return made


def first_second(data: Trajectories) -> Trajectories:
    """The data up to the first frame from which policies are rolled out."""
    observed = np.asarray(data.observed) & (np.arange(data.observed.shape[1]) < FIRST_SECOND)
    return data._replace(observed=observed, lengths=np.minimum(data.lengths, FIRST_SECOND))


def rolled(policy: Policy, scenes: Scenes, noise: Any = None) -> Any:
    """For each phase: positions (time - 1, play, role, 2), steps since the truth, and which count (time - 1, play)."""
    num_steps = scenes.positions.shape[1]
    for phase in PHASES:
        run = roll_motion(
            policy.step, policy.parameters, scenes, LONGEST, phase, noise, num_units=policy.num_units, **SEEN
        )
        inside = np.arange(1, num_steps)[:, None] < np.asarray(scenes.lengths)
        yield np.asarray(run.positions), np.asarray(run.since), inside & np.asarray(run.counted)[:, None]


def summed(values: np.ndarray, since: np.ndarray, counts: np.ndarray) -> Errors:
    """Values (time - 1, play) summed by play and horizon."""
    which = np.arange(1, LONGEST + 1)[:, None] == since
    return Errors(
        *((which.astype(float) @ x).T for x in (np.where(counts, values, 0.0), counts.astype(float)))
    )


def distances(policy: Policy, scenes: Scenes) -> Errors:
    """Mean distance of the ten players from the truth."""
    true = np.moveaxis(np.asarray(scenes.positions), 1, 0)[1:]
    each = [
        summed(np.linalg.norm(positions - true, axis=-1).mean(-1), since, counts)
        for positions, since, counts in rolled(policy, scenes)
    ]
    return pooled(each)


def energy(policy: Policy, scenes: Scenes, scale: np.ndarray, seed: int) -> Errors:
    """Energy score of sampled futures, mean of the ten players, by play and horizon."""
    rng = np.random.default_rng(seed)
    true = np.moveaxis(np.asarray(scenes.positions), 1, 0)[1:]
    futures = []
    for _ in range(NUM_FUTURES):
        noise = np.einsum("rde,tpre->tprd", scale, rng.normal(size=true.shape))
        futures.append(list(rolled(policy, scenes, noise)))
    each = []
    for phase in range(len(PHASES)):
        drawn = np.stack([future[phase][0] for future in futures])
        _, since, counts = futures[0][phase]
        away = np.linalg.norm(drawn - true, axis=-1).mean(0)
        spread = np.mean(
            [
                np.linalg.norm(drawn - np.roll(drawn, turn, axis=0), axis=-1).mean(0)
                for turn in range(1, NUM_FUTURES)
            ],
            axis=0,
        )
        each.append(summed((away - spread / 2).mean(-1), since, counts))
    return pooled(each)


def add(into: dict, name: tuple[str, str], errors: Errors, plays: np.ndarray, num_plays: int) -> None:
    """Put the errors of some plays among those of all."""
    whole = [np.zeros((num_plays, LONGEST)) for _ in errors]
    for array, part in zip(whole, errors, strict=True):
        array[plays] = part
    into.setdefault(name, []).append(Errors(*whole))


def pooled(each: list[Errors]) -> Errors:
    """Errors of several runs together."""
    return Errors(*(np.sum(parts, axis=0) for parts in zip(*each, strict=True)))


def mean(errors: Errors, plays: Any = slice(None)) -> np.ndarray:
    """Mean by horizon over some plays."""
    return errors.total[plays].sum(0) / errors.count[plays].sum(0)


def bootstrap(learned: Errors, shuffled: Errors, rng: np.random.Generator, draws: int = 2000) -> np.ndarray:
    """Ends (2, horizon) of the 95 % interval of shuffled minus learned; draws without a play that long are left out."""
    num_plays = len(learned.total)
    differences = []
    for _ in range(draws):
        plays = rng.integers(num_plays, size=num_plays)
        with np.errstate(invalid="ignore"):
            differences.append(mean(shuffled, plays) - mean(learned, plays))
    return np.nanquantile(differences, [0.025, 0.975], axis=0)


def baseline_row(name: str, errors: Errors) -> dict[str, Any]:
    """Distances by horizon in one row."""
    values = mean(errors)
    return {"policy": name} | {f"fde_{h}": float(values[h - 1]) for h in SHOWN}


def comparison_rows(
    name: str, learned: Errors, shuffled: Errors, sampled: tuple[Errors, Errors], rng: np.random.Generator
) -> list[dict[str, Any]]:
    """One row a horizon; reached where learned roles are better and the interval excludes 0."""
    ends = bootstrap(learned, shuffled, rng)
    rows = []
    for horizon in SHOWN:
        at = horizon - 1
        row: dict[str, Any] = {"policy": name, "horizon_s": horizon / football.FRAMES_PER_SECOND}
        row["plays"] = int((learned.count[:, at] > 0).sum())
        for arm, errors, score in zip(("learned", "shuffled"), (learned, shuffled), sampled, strict=True):
            values = mean(errors)
            row |= {f"fde_{arm}": float(values[at]), f"ade_{arm}": float(values[: at + 1].mean())}
            row[f"energy_{arm}"] = float(mean(score)[at])
        row |= {"difference_low": float(ends[0, at]), "difference_high": float(ends[1, at])}
        rows.append(row | {"target": "interval > 0", "reached": bool(ends[0, at] > 0)})
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("imitation_football", __doc__, measure))
