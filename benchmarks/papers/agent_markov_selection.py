"""Number of intents selected on simulated traces of three intents, by the ELBO and by held-out scores.

Every seed draws an agent: in each of 12 states, an intent prefers one of 4 actions (probability .85); intents stay with
probability .95, and change to the other two alike. States change at random. It leaves training and test traces of 100
steps. Fits differ in the truncation only. Their ELBOs compare, because the stick density of the weights is relative to
its largest value (`ethogram.models.intents.stick_weights`). Truncations above the true number leave intents unused and
tie, so that the largest score chooses among them by chance: the selected truncation is the smallest within 1 nat of
the best, of the ELBO, or of the log predictive density of all test traces. Rows of `kind` "fit" are means over seeds;
"selection" has the truncation selected in each seed, that of the plain maximum, and the intents that the largest
truncation uses; "check" the targets.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import report
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.score_curve import heldout_log_likelihood
from ethogram.inference.intents import infer_intents
from ethogram.inference.roles.alignment import align_states
from ethogram.models.intents import AgentMarkov, IntentAgent, roll_out

__all__ = ["Sizes", "measure"]

INTENTS, STATES, ACTIONS = 3, 12, 4
PREFERENCE, STAY = 0.85, 0.95
TIE = 1.0  # nats


class Sizes(NamedTuple):
    """Sizes of the simulations and the fits."""

    seeds: int = 8
    traces: int = 20  # to train on, and as many to test
    steps: int = 100
    truncations: tuple[int, ...] = (1, 2, 3, 4, 6, 10)
    restarts: int = 10
    sweeps: int = 1500


QUICK = Sizes(seeds=2, truncations=(1, 2, 3, 5), restarts=5, sweeps=200)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows, in double precision."""
    sizes = QUICK if settings.quick else Sizes()
    with jax.enable_x64(True):
        scores = np.array([_scores(sizes, settings.seed + number) for number in range(sizes.seeds)])
    rows: list[dict[str, Any]] = [
        {
            "kind": "fit",
            "truncation": truncation,
            "seeds": sizes.seeds,
            "elbo": float(scores[:, place, 0].mean()),
            "heldout_log_likelihood_per_step": float(scores[:, place, 1].mean()),
            "intents_used": float(scores[:, place, 2].mean()),
            "hamming_train": float(scores[:, place, 3].mean()),
            "elbo_by_seed": scores[:, place, 0].tolist(),
            "heldout_by_seed": scores[:, place, 1].tolist(),
        }
        for place, truncation in enumerate(sizes.truncations)
    ]
    counts = np.array(sizes.truncations)
    heldout = scores[..., 1] * sizes.traces * sizes.steps
    chosen = {
        "ELBO": counts[_smallest(scores[..., 0])],
        "held-out log predictive density": counts[_smallest(heldout)],
        f"intents used at truncation {counts[-1]}": scores[:, -1, 2].astype(int),
    }
    maxima = {"ELBO": scores[..., 0], "held-out log predictive density": heldout}
    for name, score in maxima.items():
        found = counts[score.argmax(1)]
        right = int((found == INTENTS).sum())
        row = {"kind": "selection", "by": f"{name}, plain maximum", "right": right}
        rows.append(row | {"selected": found.tolist()})
    for name, found in chosen.items():
        right = int((found == INTENTS).sum())
        rows.append({"kind": "selection", "by": name, "selected": found.tolist(), "right": right})
        rows.append(
            {
                "kind": "check",
                "by": f"{name}: three intents in three of four seeds",
                "right": right,
                "reached": right >= 0.75 * sizes.seeds,
            }
        )
    return rows


def _smallest(scores: np.ndarray) -> np.ndarray:
    """Place (seed,) of the smallest truncation whose score (seed, truncation) is within `TIE` of the best."""
    return (scores >= scores.max(1, keepdims=True) - TIE).argmax(1)


def _agent(random: np.random.Generator) -> tuple[IntentAgent, np.ndarray]:
    """An agent, and probabilities (state, action, next state), the same for all actions."""
    policy = np.full((INTENTS, STATES, ACTIONS), (1 - PREFERENCE) / (ACTIONS - 1))
    for state in range(STATES):
        preferred = random.permutation(ACTIONS)[:INTENTS]
        policy[np.arange(INTENTS), state, preferred] = PREFERENCE
    row = np.full((INTENTS, INTENTS), (1 - STAY) / (INTENTS - 1))
    np.fill_diagonal(row, STAY)
    transition = np.broadcast_to(row[:, None, None], (INTENTS, STATES, ACTIONS, INTENTS))
    dynamics = np.full((STATES, ACTIONS, STATES), 1 / STATES)
    return IntentAgent(np.full(INTENTS, 1 / INTENTS), transition, policy), dynamics


def _scores(sizes: Sizes, seed: int) -> list[list[float]]:
    """ELBO, held-out score per step, intents used and Hamming distance, by truncation."""
    random = np.random.default_rng(seed)
    agent, dynamics = _agent(random)
    key_train, key_test, key_fit = jax.random.split(jax.random.key(seed), 3)
    train, test = (
        roll_out(key, agent, dynamics, random.integers(STATES, size=sizes.traces), sizes.steps)
        for key in (key_train, key_test)
    )
    rows = []
    for truncation in sizes.truncations:
        model = AgentMarkov(STATES, ACTIONS, truncation, rows="all", stickiness=None)
        result = ConjugateSVI(model).run(
            key_fit,
            train.data,
            sizes.sweeps,
            restarts=sizes.restarts,
            init="sticky",
            tol=1e-7,
            progress_bar=False,
        )
        found = infer_intents(result, train.data)
        hamming = align_states(train.intents, found.labels, num_states=max(truncation, INTENTS)).hamming
        heldout = heldout_log_likelihood(result, test.data)
        rows.append([float(result.elbo[-1]), heldout, len(found.used), float(hamming)])
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("agent_markov_selection", __doc__, measure))
