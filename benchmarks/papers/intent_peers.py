"""Whether intents pay: held-out scores of agent Markov models beside those of simpler models on the same split.

The models learn their stickiness, and fits have default arguments.

The peers are those of `heldout_score_curve`: one intent; an input-driven hidden Markov model, whose changes of intent
depend neither on state nor action; and smoothed frequencies p(a | s) and p(a | s, previous a). The input-driven model
has as many states as the best model of intents. Scores are log predictive densities of the test actions at posterior
means, in nats per step, means over draws of the split; `se` is the mean standard error, over test traces, of the
difference to the best number of intents.

`target` is the gain over a peer that the model of intents is asked for: 0.15 over one intent on the labyrinth (the
target of `intent_data`), 0.03 on the gridworld, and 0 over every other peer. No paper has these comparisons. Data: mice
in a labyrinth (windows of 500 steps); two simulated modes on a gridworld, which change at some cells only; Line World,
whose agent turns back at the ends; and human play, a table with columns trace, state and action, where the folder
ETHOGRAM_DATA has a file `human_play.csv` (none is embedded).
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import pandas

from benchmarks import report
from benchmarks.papers.intent_data import cut_traces
from ethogram.domains import gridworld5, labyrinth, line_world
from ethogram.inference.conjugate.score_curve import ScoreCurve, heldout_score_curve
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov

__all__ = ["measure"]

HUMAN_PLAY = "human_play.csv"
SIZES = (2, 3, 5)


class Case(NamedTuple):
    """Data of one domain: a function from the number of a draw to traces, and the model of each size."""

    name: str
    draw: Callable[[int], Trajectories]
    model: Callable[[int], AgentMarkov]
    target: float  # gain over one intent


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each size, a row for each peer, in double precision."""
    rows = []
    with jax.enable_x64(True):
        for case in _cases(settings.quick, settings.seed):
            rows += _rows(case, settings.quick, settings.seed)
    if _human_play() is None:
        rows.append({"domain": "human play", "note": f"skipped: no {HUMAN_PLAY} under ETHOGRAM_DATA"})
    return rows


def _cases(quick: bool, seed: int) -> list[Case]:
    maze, board = labyrinth.load(), gridworld5.load().data
    windows, traces, steps = (25, 20, 250) if quick else (100, 40, 500)

    def of(num_states: int, num_actions: int) -> Callable[[int], AgentMarkov]:
        return lambda size: AgentMarkov(num_states, num_actions, size, rows="all", stickiness="learn")

    def some(data: Trajectories, count: int) -> Callable[[int], Trajectories]:
        def draw(number: int) -> Trajectories:
            order = np.random.default_rng([seed, number]).permutation(data.num_sequences)
            return cut_traces(data.take(order[:count]), steps)

        return draw

    def walk(number: int) -> Trajectories:
        return line_world.simulate(jax.random.key(1000 * seed + number), traces, 20).data

    cases = [
        Case("labyrinth", some(maze, windows), of(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS), 0.15),
        Case("gridworld5", some(board, traces), of(gridworld5.NUM_CELLS, gridworld5.NUM_ACTIONS), 0.03),
        Case("line world", walk, of(line_world.NUM_CELLS, line_world.NUM_ACTIONS), 0.0),
    ]
    played = _human_play()
    if played:
        data = Trajectories.from_table(
            pandas.read_csv(played), sequence="trace", states="state", actions="action"
        )
        size = [int(np.max(x)) + 1 for x in (data.states, data.actions)]
        cases.append(Case("human play", lambda number: data, of(*size), 0.0))
    return cases


def _human_play() -> Path | None:
    """The table of human play, where there is one."""
    path = Path(os.environ.get("ETHOGRAM_DATA", "")) / HUMAN_PLAY
    return path if "ETHOGRAM_DATA" in os.environ and path.is_file() else None


def _rows(case: Case, quick: bool, seed: int) -> list[dict[str, Any]]:
    draws, sizes = (1, SIZES[1:2]) if quick else (3, SIZES)
    curves = [_curve(case, number, sizes, quick, seed) for number in range(draws)]
    heldout = np.array([curve.heldout for curve in curves])
    best = heldout.max(1)
    common = {"domain": case.name, "draws": draws}
    rows: list[dict[str, Any]] = [
        {
            **common,
            "model": f"{size} intents",
            "heldout": float(score.mean()),
            "heldout_by_draw": score.tolist(),
        }
        for size, score in zip(sizes, heldout.T, strict=True)
    ]
    for name in curves[0].peers:
        found = [curve.peers[name] for curve in curves]
        score = np.array([one.heldout for one in found])
        gain, target = float((best - score).mean()), case.target if name == "one intent" else 0.0
        row = {**common, "model": name, "heldout": float(score.mean()), "heldout_by_draw": score.tolist()}
        row |= {"se": float(np.mean([one.heldout_se for one in found])), "gain_of_intents": gain}
        rows.append(row | {"target": target, "reached": gain >= target})
    return rows


def _curve(case: Case, number: int, sizes: tuple[int, ...], quick: bool, seed: int) -> ScoreCurve:
    return heldout_score_curve(
        jax.random.fold_in(jax.random.key(seed), number),
        case.model,
        sizes,
        case.draw(number),
        by="sequence",
        num_steps=100 if quick else 1500,
        restarts=3 if quick else 8,
        progress_bar=False,
    )


if __name__ == "__main__":
    raise SystemExit(report.run("intent_peers", __doc__, measure))
