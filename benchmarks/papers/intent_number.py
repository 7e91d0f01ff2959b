"""How many intents the evidence supports on the 5 x 5 gridworld, without labels, by the stickiness of rows.

20 training and 20 test traces of 250 steps, five draws of them; the agent has two modes, whose true steps the file has.
Fits have truncation 1, 2 and 5, and rows over intents with stickiness 0, 20 or learned. `elbo` compares across
truncations. Held-out scores are log predictive densities of the test actions in nats per step, normalised over K + 1
intents. Intents are matched to the modes on the training traces.

There are no published results on these data: references are those of an independent NumPy prototype on draws 0 and 1.
Rows of `kind` "check" are targets; `value` is that of the worst draw.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import report
from benchmarks.papers.intent_data import draw_traces
from benchmarks.papers.weight_evidence import weight_evidence
from ethogram.domains import gridworld5
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.score_curve import heldout_log_likelihood
from ethogram.inference.intents import infer_intents
from ethogram.inference.roles.alignment import align_states, matched_hamming
from ethogram.models.intents import AgentMarkov, Rollout, StickinessPrior

__all__ = ["Sizes", "measure"]

MODES = 2
VERSIONS: dict[str, dict[str, Any]] = {
    "stickiness 0": {"stickiness": None},
    "stickiness 20": {"stickiness": 20.0},
    "learned": {"stickiness": "learn"},
}
REFERENCE = {
    ("stickiness 0", 1): [-7913.4, -7823.1],
    ("stickiness 0", 2): [-7979.7, -7931.0],
    ("stickiness 20", 2): [-7668.4, -7623.6],
    ("learned", 2): [-7654.1, -7604.3],
}
"""ELBOs of the prototype on draws 0 and 1, its best start each."""

SCORES = ("elbo", "weight_evidence", "heldout", "hamming_test", "used", "stickiness")


class Sizes(NamedTuple):
    """Sizes of the fits."""

    draws: int = 5
    restarts: int = 8
    sweeps: int = 1500
    truncations: tuple[int, ...] = (1, 2, 5)


QUICK = Sizes(draws=1, restarts=4, sweeps=400, truncations=(1, 2))


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """A row per version and truncation, then the targets, in double precision."""
    sizes = QUICK if settings.quick else Sizes()
    with jax.enable_x64(True):
        life = gridworld5.load()
        boards = [draw_traces(life, (20, 250), settings.seed, number) for number in range(sizes.draws)]
        boards = [[_unlabelled(part) for part in board] for board in boards]
        scores = {
            (version, truncation): np.array(
                [_scores(truncation, arguments, *board, sizes) for board in boards], float
            ).T
            for version, arguments in VERSIONS.items()
            for truncation in sizes.truncations
        }
        low = [_scores(2, {"stickiness": StickinessPrior(start=2.0)}, *board, sizes) for board in boards[:2]]
    rows = [_row(*key, values) for key, values in scores.items()]
    checks = [
        *_targets(scores, max(sizes.truncations)),
        *_one_stickiness(scores["learned", 2], np.array(low).T),
    ]
    return rows + [
        {"kind": "check", "version": version, "target": target, "value": float(value), "reached": bool(good)}
        for version, target, value, good in checks
    ]


def _unlabelled(life: Rollout) -> Rollout:
    return life._replace(data=life.data._replace(stay=None))


def _scores(
    truncation: int, arguments: dict[str, Any], train: Rollout, test: Rollout, sizes: Sizes
) -> list[float]:
    """The scores of one fit, in the order of `SCORES`."""
    model = AgentMarkov(gridworld5.NUM_CELLS, gridworld5.NUM_ACTIONS, truncation, rows="all", **arguments)
    result = ConjugateSVI(model).run(
        jax.random.key(0), train.data, sizes.sweeps, restarts=sizes.restarts, tol=1e-7, progress_bar=False
    )
    found, guessed = (infer_intents(result, life.data) for life in (train, test))
    matching = align_states(train.intents, found.labels, num_states=max(truncation, MODES))
    kappa = result.posterior.mean().get("stickiness", arguments.get("stickiness") or 0.0)
    return [
        float(result.elbo[-1]),
        weight_evidence(result),
        heldout_log_likelihood(result, test.data),
        matched_hamming(test.intents, guessed.labels, matching.permutation),
        len(found.used),
        float(kappa),
    ]


def _row(version: str, truncation: int, values: np.ndarray) -> dict[str, Any]:
    row: dict[str, Any] = {
        "kind": "fit",
        "version": version,
        "truncation": truncation,
        "draws": values.shape[1],
    }
    row |= {name: float(each.mean()) for name, each in zip(SCORES, values, strict=True)}
    row |= {f"{name}_by_draw": each.tolist() for name, each in zip(SCORES, values, strict=True)}
    return row | {"reference_elbo_by_draw": REFERENCE.get((version, truncation))}


def _targets(scores: dict[tuple[str, int], np.ndarray], most: int) -> list[tuple[str, str, float, Any]]:
    """Targets of the number of intents, each with the value of the worst draw."""
    checks = []
    for version in ("stickiness 20", "learned"):
        one, many = (dict(zip(SCORES, scores[version, k], strict=True)) for k in (1, most))
        away = np.abs(many["used"] - MODES).max()
        checks.append((version, f"K = {most}: two intents used", MODES + away, not away))
        least = (many["elbo"] - one["elbo"]).min()
        checks.append((version, f"ELBO of K = {most} above K = 1 by 150", least, least >= 150))
        worst = many["hamming_test"].max()
        checks.append((version, f"K = {most}: test Hamming <= 0.13", worst, worst <= 0.13))
        more = (many["heldout"] - one["heldout"]).min()
        checks.append((version, f"held out: K = {most} above K = 1 by .05", more, more >= 0.05))
        apart = np.abs(many["elbo"] - scores[version, 2][0]).max()
        checks.append((version, f"ELBOs of K = {most} and K = 2 within 1", apart, apart <= 1))
    plain = scores["stickiness 0", 2][SCORES.index("used")].max()
    return [*checks, ("stickiness 0", "K = 2: one intent used", plain, plain == 1)]


def _one_stickiness(mean: np.ndarray, low: np.ndarray) -> list[tuple[str, str, float, Any]]:
    """Targets of the learned stickiness, from starts at 20 and at 2."""
    count = low.shape[1]
    elbo, kappa = (np.stack([mean[i, :count], low[i]]) for i in (0, SCORES.index("stickiness")))
    apart, ratio = np.ptp(elbo, axis=0).max(), (kappa.max(0) / kappa.min(0)).max() - 1
    inside = (kappa >= 30) & (kappa <= 55)
    far = kappa.ravel()[np.abs(kappa - 40).argmax()]
    return [
        ("learned", "ELBOs from starts at 2 and 20 within 1", apart, apart <= 1),
        ("learned", "stickiness from starts at 2 and 20 within 5 %", ratio, ratio <= 0.05),
        ("learned", "stickiness in [30, 55]", far, inside.all()),
    ]


if __name__ == "__main__":
    raise SystemExit(report.run("intent_number", __doc__, measure))
