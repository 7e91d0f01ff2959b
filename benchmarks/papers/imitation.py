"""Coordinated imitation of predators: learned roles, true roles and no structure (Le et al. 2017, figure 4).

Every arm has the same demonstrations, experts, forests of 20 trees, rounds and fresh games; roles are learned by
`RoleHMM`, or true, or one arbitrary assignment per demonstration ("unstructured"). 7 x 7: the recorded games, with
targets on the last round. 20 x 20: the board on which experts fail about as often as the paper's, with its curve beside
ours; the paper has 1000 demonstrations, ours are fewer. Intervals are Student's over seeds, 95 %. Experts: how often
they fail, and where the last predator then stands.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import report
from benchmarks.peers import why_skipped
from ethogram.domains import predator_prey
from ethogram.domains.predator_prey import PredatorPreyExperts, PredatorPreyWorld
from ethogram.inference.imitation import ImitationResult, imitate
from ethogram.inference.roles import align_states
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.emissions import CategoricalEmission
from ethogram.models.roles.role_hmm import RoleHMM

__all__ = ["measure"]

ARMS = ("learned", "true", "unstructured")
HORIZON = 50
TARGETS = {"learned": "<= 5 %, <= 12 steps", "true": "gap <= 3 points", "unstructured": ">= 35 %"}

PAPER = {
    "learned": {
        "steps": [38, 32, 25, 24, 24, 23, 21, 25, 21, 22],
        "failure": [0.61, 0.38, 0.07, 0.11, 0.13, 0.08, 0.07, 0.08, 0.05, 0.08],
    },
    "unstructured": {
        "steps": [39, 41, 39, 38, 39, 41, 39, 39, 41, 42],
        "failure": [0.55, 0.61, 0.53, 0.53, 0.57, 0.62, 0.59, 0.58, 0.63, 0.70],
    },
}
"""Curves of the paper's figure 4, read off the figure."""

Demonstrations = tuple[Trajectories, np.ndarray]


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the experts, of 7 x 7 by seed and together, and of 20 x 20 by round."""
    quick = settings.quick
    rows = [expert_row(settings.seed, size, 200 if quick else 2000) for size in (7, 20)]
    rows.append(expert_row(settings.seed, 20, 200 if quick else 2000, believed_stay=0.5))
    why = why_skipped("sklearn.ensemble")
    if why is not None:
        return [*rows, {"case": "imitation", "note": why}]
    from sklearn.ensemble import RandomForestClassifier

    def forest() -> Any:
        return RandomForestClassifier(20)

    seeds = range(settings.seed, settings.seed + (1 if quick else 5))
    found = run_arms(seeds, 7, 4, forest, lambda seed: recorded(60 if quick else 300), 40 if quick else 100)
    rows += [seed_row(*each) for each in found]
    rows += summary_rows(found)
    few = range(settings.seed, settings.seed + (1 if quick else 3))
    number = 60 if quick else 300
    on_20 = run_arms(
        few, 20, 2 if quick else 10, forest, lambda seed: simulated(seed, number, 20), 40 if quick else 100
    )
    return rows + curve_rows(on_20)


def recorded(num_games: int) -> Demonstrations:
    """The first recorded 7 x 7 training games; simulated ones where the file is not there."""
    try:
        data, roles = predator_prey.load_games("train")
    except FileNotFoundError:
        return simulated(0, num_games, 7)
    first = np.asarray(data.group) < num_games
    return data.take(first), np.asarray(roles)[first]


def simulated(seed: int, num_games: int, size: int) -> Demonstrations:
    """Experts' games with their hidden roles."""
    data, games = predator_prey.simulate(
        jax.random.fold_in(jax.random.key(seed), 3), num_games, size, horizon=HORIZON
    )
    return data, games.roles


Found = tuple[str, int, ImitationResult, float, float]
"""Arm, seed, result, share of sequences in their true role (NaN without structure), seconds."""


def run_arms(
    seeds: Sequence[int],
    size: int,
    rounds: int,
    policy: Callable[[], Any],
    demonstrations: Callable[[int], Demonstrations],
    evaluation_games: int,
    arms: Sequence[str] = ARMS,
) -> list[Found]:
    """Every arm with every seed, on the same demonstrations."""
    found = []
    model = RoleHMM(
        predator_prey.NUM_PREDATORS,
        CategoricalEmission(len(predator_prey.MOVES) * size**2),
        exclusive="per_sequence",
    )
    for seed in seeds:
        data, true = demonstrations(seed)
        experts = PredatorPreyExperts(true, size)
        for arm in arms:
            start = time.perf_counter()
            roles = {"learned": "learned", "true": true, "unstructured": "shuffled"}[arm]
            result = imitate(
                jax.random.key(seed),
                model,
                policy,
                PredatorPreyWorld(size),
                data,
                expert=experts,
                rounds=rounds,
                horizon=HORIZON,
                roles=roles,
                evaluation_games=evaluation_games,
                progress_bar=False,
            )
            known = arm != "unstructured"
            accuracy = 1 - align_states(true, result.role).hamming if known else float("nan")
            found.append((arm, seed, result, accuracy, time.perf_counter() - start))
    return found


def seed_row(arm: str, seed: int, result: ImitationResult, accuracy: float, seconds: float) -> dict[str, Any]:
    """Last round of one run, with its curves under `raw`."""
    return {
        "case": "7 x 7",
        "arm": arm,
        "seed": seed,
        "round": len(result.failure),
        "failure": float(result.failure[-1]),
        "steps": float(result.steps[-1]),
        "role_accuracy": accuracy,
        "loss": float(result.loss[-1]),
        "fit_s": seconds,
        "failure_curve": result.failure,
        "steps_curve": result.steps,
    }


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean, and ends of Student's 95 % interval; NaN ends for one value."""
    from scipy.stats import t

    array = np.asarray(values, float)
    if len(array) < 2:
        return float(array.mean()), float("nan"), float("nan")
    half = t.ppf(0.975, len(array) - 1) * array.std(ddof=1) / np.sqrt(len(array))
    return float(array.mean()), float(array.mean() - half), float(array.mean() + half)


def summary_rows(found: Sequence[Found]) -> list[dict[str, Any]]:
    """Last round of 7 x 7 over seeds, each arm against its target; that of true roles is the gap to learned ones."""
    rows = []
    learned = np.array([result.failure[-1] for arm, _, result, *_ in found if arm == "learned"])
    for arm in ARMS:
        results = [result for name, _, result, *_ in found if name == arm]
        failure, low, high = interval([result.failure[-1] for result in results])
        steps, steps_low, steps_high = interval([result.steps[-1] for result in results])
        row = {"case": "7 x 7, seeds", "arm": arm, "seeds": len(results), "round": len(results[0].failure)}
        row |= {"failure": failure, "failure_low": low, "failure_high": high}
        row |= {"steps": steps, "steps_low": steps_low, "steps_high": steps_high}
        if arm == "true":
            row["gap"] = 100 * float(learned.mean() - failure)
        reached = {
            "learned": failure <= 0.05 and steps <= 12,
            "true": row.get("gap", 0.0) <= 3,
            "unstructured": failure >= 0.35,
        }
        rows.append(row | {"target": TARGETS[arm], "reached": bool(reached[arm])})
    return rows


def curve_rows(found: Sequence[Found]) -> list[dict[str, Any]]:
    """Rounds of 20 x 20 over seeds, beside the paper's."""
    rows = []
    for arm in ARMS:
        results = [result for name, _, result, *_ in found if name == arm]
        accuracy = float(np.mean([each[3] for each in found if each[0] == arm]))
        for number in range(len(results[0].failure) if results else 0):
            failure, low, high = interval([result.failure[number] for result in results])
            steps, steps_low, steps_high = interval([result.steps[number] for result in results])
            row = {"case": "20 x 20", "arm": arm, "seeds": len(results), "round": number + 1}
            row |= {"failure": failure, "failure_low": low, "failure_high": high}
            row |= {
                "steps": steps,
                "steps_low": steps_low,
                "steps_high": steps_high,
                "role_accuracy": accuracy,
            }
            if arm in PAPER:
                row |= {f"paper_{name}": float(curve[number]) for name, curve in PAPER[arm].items()}
            rows.append(row)
    return rows


def expert_row(seed: int, size: int, num_games: int, believed_stay: float = 0.2) -> dict[str, Any]:
    """How often experts fail, and the last 15 steps of the games in which they do.

    `one_away`: share of the failed games in which exactly one predator is, on average over these steps, at least two
    moves from its slot. Of the steps in which the three others hold their slots: `behind`, the share in which it is
    behind the prey, seen from its slot, and `waits`, the share in which it stays where it is. `believed_stay` is the
    probability with which experts think that the prey stays; it does with probability 0.2.
    """
    key = jax.random.fold_in(jax.random.key(seed), 4)
    policies = predator_prey.expert_policies(size, prey_stay=believed_stay)
    _, games = predator_prey.simulate(key, num_games, size, horizon=HORIZON, policies=policies)
    failed = ~games.captured
    row = {"case": f"experts, {size} x {size}", "games": num_games, "believed_stay": believed_stay}
    row |= {"failure": float(failed.mean()), "steps": float(games.lengths.mean())}
    spread = 1.96 * np.sqrt(failed.mean() * (1 - failed.mean()) / num_games)
    row |= {"failure_low": float(failed.mean() - spread), "failure_high": float(failed.mean() + spread)}
    if not failed.any():
        return row
    last = slice(HORIZON - 15, HORIZON)
    half = size // 2
    positions, actions = games.positions[failed, last], games.actions[failed, last]
    slots = predator_prey.SLOTS[games.roles.reshape(-1, 4)[failed]][:, None]
    offsets = (positions[:, :, :4] - positions[:, :, 4:] + half) % size - half
    away = np.abs(offsets - slots).sum(-1)
    one_away = (away.mean(1) >= 2).sum(1) == 1
    farthest = away.mean(1).argmax(1)
    games_of = np.arange(len(away))
    others_home = ((away == 0) | (np.arange(4) == farthest[:, None, None])).all(-1)
    along = (offsets * slots).sum(-1)[games_of, :, farthest]
    waits = actions[games_of, :, farthest] == 0
    row |= {"one_away": float(one_away.mean()), "others_home": float(others_home.mean())}
    if others_home.any():
        row |= {"behind": float((along < 0)[others_home].mean()), "waits": float(waits[others_home].mean())}
    return row


if __name__ == "__main__":
    raise SystemExit(report.run("imitation", __doc__, measure, peers=("scikit-learn",)))
