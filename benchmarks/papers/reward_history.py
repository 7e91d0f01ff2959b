"""Mice in a labyrinth: held-out actions under rewards of nodes, pairs and histories, beside Markov tables.

Log predictive density of the actions of test windows, in nats per decision, means over splits by window (three quarters
for training). Rewards: GP-IRL on nodes, their features being position and level; GP-IRL on pairs of node and action,
with the action as further features; and rewards that are linear in shared features (maximum entropy IRL, a Gaussian
prior on the weights) of the MDP of the node and the last one or two actions: the node, and the last actions and the
next one by level of the maze. With "own", every node with its last action and the next one has a weight too, which the
prior draws to zero: contexts that were seen often may differ from what is shared. Rewards know which actions a node
has; tables learn it.

`gain` is the score minus that of p(a | s, previous 2 a), and its standard error is paired over test windows, a mean
over splits. `target` is a gain of 0: as good as that table. The penalty and the features were chosen on another split,
whose windows are among the test windows here; tables do not know which actions a node has, and those of order 2 do not
fall back on shorter histories. GP-IRL rows are Laplace's approximation at fixed hyper-parameters. No paper has these
comparisons; Ke, Wu, Jha and Wu fit rewards of the last two states, which switch by latent modes.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from benchmarks import report
from benchmarks.papers.intent_data import cut_traces
from ethogram.domains import labyrinth
from ethogram.inference.rewards import fit_max_entropy, fit_reward, heldout_policy_scores, reward_peers
from ethogram.models.data import ActionTable, Trajectories
from ethogram.models.mdps import MDP, History, HistoryAgent
from ethogram.models.rewards import GPIRL

__all__ = ["measure"]

PEER = "p(a | s, previous 2 a)"
DISCOUNT, PENALTY = 0.9, 3.0


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each reward and table, in double precision."""
    data = labyrinth.load()
    if settings.quick:
        data = cut_traces(data.take(np.arange(12)), 150)
    found: dict[str, list[dict[str, float]]] = {}
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search has not converged")
        for number in range(1 if settings.quick else 3):
            key = jax.random.fold_in(jax.random.key(settings.seed), number)
            for name, row in scores_of_split(key, data, settings.quick).items():
                found.setdefault(name, []).append(row)
    rows = []
    for name, of_splits in found.items():
        mean = {column: float(np.mean([row[column] for row in of_splits])) for column in of_splits[0]}
        row = {"model": name, "splits": len(of_splits), **mean}
        row["heldout_by_split"] = [one["heldout"] for one in of_splits]
        if not name.startswith("p("):
            row |= {"target": 0.0, "reached": mean["gain"] >= 0}
        rows.append(row)
    return rows


def scores_of_split(key: jax.Array, data: Trajectories, quick: bool) -> dict[str, dict[str, float]]:
    """Scores of every model on one split, by name."""
    key_split, key_fit, key_draws = jax.random.split(key, 3)
    train, test = data.split(key_split, by="sequence", test_fraction=0.25)
    mdp = maze()
    models = reward_peers(mdp, train)
    models["p(a | s, previous 2 s)"] = ActionTable(mdp.num_states, mdp.num_actions, 2, of="states").fit(train)
    seconds = {}
    for name, fit in rewards(mdp, train, key_fit, quick).items():
        start = time.process_time()
        models[name] = fit()
        seconds[name] = time.process_time() - start
    scores = heldout_policy_scores(key_draws, models, test)
    rows = {}
    for name, score in scores.items():
        pair = heldout_policy_scores(key_draws, {name: models[name], PEER: models[PEER]}, test)
        gain = score.log_density - scores[PEER].log_density
        rows[name] = {"heldout": score.log_density, "se": score.se, "gain": gain}
        rows[name]["gain_se"] = max(one.difference_se for one in pair.values())
        if name in seconds:
            rows[name]["seconds"] = seconds[name]
    return rows


def maze() -> MDP:
    """The labyrinth; a mouse may leave it at node 0."""
    next_state = labyrinth.next_state()
    available = next_state != np.arange(labyrinth.NUM_NODES)[:, None]
    available[labyrinth.HOME, labyrinth.ACTION_NAMES.index("out right")] = True
    return MDP.deterministic(next_state, discount=DISCOUNT, action_mask=available)


def levels() -> np.ndarray:
    """Level of each node, 0 to 6."""
    return np.floor(np.log2(np.arange(labyrinth.NUM_NODES) + 1)).astype(int)


def rewards(mdp: MDP, train: Trajectories, key: jax.Array, quick: bool) -> dict[str, Callable[[], Any]]:
    """Fits by name, each to be called."""
    nodes = np.concatenate([labyrinth.node_positions() / 7, levels()[:, None] / 3], 1)
    shape = (mdp.num_states, mdp.num_actions)
    pairs = np.concatenate(
        [
            np.broadcast_to(nodes[:, None], (*shape, 3)),
            np.broadcast_to(np.eye(shape[1]), (*shape, shape[1])),
        ],
        -1,
    )

    def gp(features: np.ndarray) -> Any:
        model = GPIRL(mdp, features, conditional="none")
        return fit_reward(key, model, train, "laplace", hyper="fixed", progress_bar=False)

    def linear(k: int, own: bool) -> HistoryAgent:
        history = mdp.with_history(k, of="actions")
        features = shared(history, own)
        fit = fit_max_entropy(history.mdp, history.rewrite(train), features, penalty=PENALTY)
        return history.agent(fit.policy)

    found = {"GP-IRL, nodes": lambda: gp(nodes), "GP-IRL, pairs": lambda: gp(pairs)}
    if quick:
        del found["GP-IRL, pairs"]
    for k in (1,) if quick else (1, 2):
        found[f"history of {k} actions, shared"] = lambda k=k: linear(k, False)
        found[f"history of {k} actions, shared and own"] = lambda k=k: linear(k, True)
    return found


def shared(history: History, own: bool) -> np.ndarray:
    """One-hot features (history, action, feature): node; level with last and next actions; if own, node with them."""
    count = history.mdp.num_actions
    node, last = history.states[:, 0], np.where(history.actions < 0, count, history.actions)
    past = np.ravel_multi_index(tuple(last.T), (count + 1,) * last.shape[1])
    width = (count + 1) ** last.shape[1]
    places = [levels()[node] * width + past]
    if own:
        places.append(node * (count + 1) + last[:, 0])
    parts = [
        np.broadcast_to(np.eye(labyrinth.NUM_NODES)[node][:, None], (len(node), count, labyrinth.NUM_NODES))
    ]
    for place in places:
        kinds, kind = np.unique(place[:, None] * count + np.arange(count), return_inverse=True)
        parts.append(np.eye(len(kinds))[kind.reshape(-1, count)])
    return np.concatenate(parts, -1)


if __name__ == "__main__":
    raise SystemExit(report.run("reward_history", __doc__, measure))
