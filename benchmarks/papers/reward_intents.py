"""Rewards between which an agent switches: held-out actions and intents, beside agent Markov models and Markov tables.

GP-IRL with 1 to 5 intents on the splits of `intent_peers`: a simulated agent with two modes on a 5 x 5 gridworld, whose
rewards have the row and the column for features; and, with 1 to 3, mice in a labyrinth, with the position and the level
of a node.
Scores are log predictive densities of the test actions, each given the earlier ones of its trace, in nats per decision,
at posterior mean policies and chains: means over draws of the split.

The number of intents of a draw is the one with the best mean score on the other draws, or on itself where it is the
only one. There is one, the first of `intent_peers`: its fits take minutes. `gain` is its score minus that of the peer
of the row, and `se` the standard error over test traces of the peer's difference to the best number. Peers: one reward;
Markov tables with up to two earlier actions, and maximum entropy IRL (`reward_peers`); and on the gridworld the agent
Markov model with default arguments, whose changes of intent depend on state and action. Agent Markov models with
learned stickiness and the input-driven hidden Markov model are those of `intent_peers.json`, means over its three
draws: their rows are for orientation, and have no gain.

`target` is 0.03 for the gain over one reward on the gridworld and 0.15 in the labyrinth, as in `intent_peers`, and 0
for the gain over every other peer; and 0.85 for the accuracy of the modes of the gridworld: the share of test steps
whose most likely intent, relabelled to the mode it has most often in the training traces, is the true one. The modes of
the gridworld change at three cells only, which no chain of intents here can know. Ke, Wu, Jha and Wu, whose problem
this is, add the last states to the state; no paper has these comparisons.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import report
from benchmarks.papers.intent_data import cut_traces
from benchmarks.papers.reward_history import levels, maze
from ethogram.domains import gridworld5, labyrinth
from ethogram.inference.conjugate.score_curve import ScoreCurve, heldout_score_curve
from ethogram.inference.rewards import heldout_reward_curve, infer_reward_intents
from ethogram.models.data import Trajectories
from ethogram.models.intents import AgentMarkov
from ethogram.models.mdps import MDP
from ethogram.models.rewards import GPIRL, SwitchingGPIRL

__all__ = ["measure"]

DISCOUNT, ACCURATE = 0.9, 0.85
SIZES = (1, 2, 3, 4, 5)
SETTINGS: dict[str, Any] = {"hyper": "point", "num_draws": 4, "num_evaluations": 32, "progress_bar": False}
TAKEN = ("2 intents", "3 intents", "5 intents", "input-driven HMM")
RECORDED = Path(__file__).parents[1] / "results" / "intent_peers.json"


class World(NamedTuple):
    """Data of one domain, with the modes of its steps where they are known, and a reward model of every size."""

    name: str
    data: Trajectories
    modes: np.ndarray | None
    model: Callable[[int], GPIRL]
    count: int  # traces of a draw
    target: float  # gain over one reward
    draws: int  # of the split
    restarts: int  # starts of a fit besides the first
    rounds: int  # most rounds of a fit
    sizes: tuple[int, ...]  # numbers of intents
    agent: bool  # whether the agent Markov model with default arguments is fitted too


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of every domain, in double precision."""
    rows: list[dict[str, Any]] = []
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search has not converged")
        for world in worlds(settings.quick):
            drawn = [
                scores_of_draw(world, number, world.sizes, settings.quick, settings.seed)
                for number in range(world.draws)
            ]
            rows += rows_of(world, world.sizes, drawn)
            rows += [] if settings.quick else recorded(world.name)
    return rows


def worlds(quick: bool) -> list[World]:
    """The gridworld and, in the full form, the labyrinth."""
    board = gridworld5.load()
    cells = np.stack(np.divmod(np.arange(gridworld5.NUM_CELLS), 5), 1) / 4
    grid = MDP.deterministic(gridworld5.NEXT_STATE, discount=DISCOUNT)

    def on_grid(size: int) -> SwitchingGPIRL:
        return SwitchingGPIRL(GPIRL(grid, cells), size)

    found = [
        World(
            "gridworld5",
            board.data,
            board.intents,
            on_grid,
            12 if quick else 40,
            0.03,
            1,
            1 if quick else 2,
            12 if quick else 60,
            (1, 2) if quick else SIZES,
            True,
        )
    ]
    if not quick:
        mdp, nodes = maze(), np.concatenate([labyrinth.node_positions() / 7, levels()[:, None] / 3], 1)

        def in_maze(size: int) -> SwitchingGPIRL:
            return SwitchingGPIRL(GPIRL(mdp, nodes), size)

        found.append(
            World("labyrinth", labyrinth.load(), None, in_maze, 100, 0.15, 1, 1, 30, SIZES[:3], False)
        )
    return found


def scores_of_draw(
    world: World, number: int, sizes: tuple[int, ...], quick: bool, seed: int
) -> dict[str, Any]:
    """Held-out scores of every size and peer, and accuracies of the intents, of one draw of traces and their split."""
    order = np.random.default_rng([seed, number]).permutation(world.data.num_sequences)[: world.count]
    data = world.data.take(order)
    data = cut_traces(data, 100) if quick else data
    key = jax.random.fold_in(jax.random.key(seed), number)
    start = time.process_time()
    options = SETTINGS | {"num_restarts": world.restarts, "num_steps": world.rounds}
    options |= {"hyper": "fixed"} if quick else {}
    curve = heldout_reward_curve(key, world.model, sizes, data, **options)
    found = {
        "heldout": curve.heldout.tolist(),
        "elbo": curve.elbo.tolist(),
        "converged": [int(fit.converged) for fit in curve.fits],
        "seconds": time.process_time() - start,
        "peers": {"1 intents": (float(curve.heldout[0]), float(curve.heldout_se[0]))}
        | {name: (peer.heldout, peer.heldout_se) for name, peer in curve.peers.items()},
    }
    if world.agent:
        found["peers"]["agent Markov model"] = (_agent(key, world, data, quick), None)
    if world.modes is not None:
        modes = world.modes[order][:, : data.states.shape[1]]
        found["accuracy"] = [accuracy(key, fit, data, modes) for fit in curve.fits]
    return found


def rows_of(world: World, sizes: tuple[int, ...], drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each number of intents and each peer, and for the accuracy of intents where modes are known."""
    draws, heldout = len(drawn), np.array([one["heldout"] for one in drawn])
    others = [heldout[np.arange(draws) != number] if draws > 1 else heldout for number in range(draws)]
    chosen = np.array([int(one.mean(0).argmax()) for one in others])
    best = heldout[np.arange(draws), chosen]
    common = {"domain": world.name, "draws": draws}
    rows: list[dict[str, Any]] = [
        {
            **common,
            "model": f"{size} intents",
            "heldout": float(score.mean()),
            "heldout_by_draw": score.tolist(),
            "elbo": float(np.mean([one["elbo"][place] for one in drawn])),
            "converged": sum(one["converged"][place] for one in drawn),
        }
        for place, (size, score) in enumerate(zip(sizes, heldout.T, strict=True))
    ]
    row = {**common, "model": "chosen number", "heldout": float(best.mean())}
    row["seconds"] = float(np.mean([one["seconds"] for one in drawn]))
    rows.append(row | {"chosen": [sizes[place] for place in chosen]})
    for name in drawn[0]["peers"]:
        score = np.array([one["peers"][name][0] for one in drawn])
        errors = [one["peers"][name][1] for one in drawn]
        target = world.target if name == "1 intents" else 0.0
        row = {**common, "peer": name, "heldout": float(score.mean()), "heldout_by_draw": score.tolist()}
        row |= {"gain": float((best - score).mean()), "target": target}
        row |= {} if errors[0] is None else {"se": float(np.mean(errors))}
        rows.append(row | {"reached": row["gain"] >= target})
    if world.modes is not None:
        found = np.array([one["accuracy"] for one in drawn])
        mean = float(found[np.arange(draws), chosen].mean())
        row = {**common, "model": "accuracy of intents", "accuracy": mean, "target": ACCURATE}
        rows.append(row | {"accuracy_by_size": found.mean(0).tolist(), "reached": mean >= ACCURATE})
    return rows


def _agent(key: jax.Array, world: World, data: Trajectories, quick: bool) -> float:
    """Held-out score of the agent Markov model without stickiness, with default arguments, on the same split."""
    mdp = world.model(1).mdp

    def model(size: int) -> AgentMarkov:
        return AgentMarkov(mdp.num_states, mdp.num_actions, size, stickiness=None)

    options = {"num_steps": 30, "restarts": 2, "search": "restarts"} if quick else {}
    size = AgentMarkov(mdp.num_states, mdp.num_actions).truncation
    curve: ScoreCurve = heldout_score_curve(
        key, model, [size], data, by="sequence", peers=False, progress_bar=False, **options
    )
    return float(curve.heldout[0])


def accuracy(key: jax.Array, fit: Any, data: Trajectories, modes: np.ndarray) -> float:
    """Share of test steps whose most likely intent, as labelled in the training traces, is the true mode."""
    if fit.posterior.model.num_intents == 1:
        return float(max(np.mean(modes), 1 - np.mean(modes)))
    numbered = data._replace(group=np.arange(data.num_sequences, dtype=np.int32))
    parts = numbered.split(jax.random.split(key)[0], by="sequence", test_fraction=0.25)
    every = infer_reward_intents(key, fit, data).path
    paths, true = ([found[np.asarray(part.group)] for part in parts] for found in (every, modes))
    label = [np.mean(true[0][paths[0] == intent]) > 0.5 if (paths[0] == intent).any() else 0
             for intent in range(fit.posterior.model.num_intents)]  # fmt: skip
    return float(np.mean(np.array(label, int)[paths[1]] == true[1]))


def recorded(domain: str) -> list[dict[str, Any]]:
    """Rows of `intent_peers.json`, means over its draws, for orientation: the draws are more than those here."""
    found = []
    for one in json.loads(RECORDED.read_text(encoding="utf-8"))["rows"]:
        if one["domain"] == domain and one["model"] in TAKEN:
            name = (
                one["model"] if "HMM" in one["model"] else f"agent Markov model, {one['model']}, stickiness"
            )
            row = {"domain": domain, "draws": one["draws"], "peer": name, "heldout": one["heldout"]}
            found.append(row | {"from": RECORDED.name})
    return found


if __name__ == "__main__":
    raise SystemExit(report.run("reward_intents", __doc__, measure))
