"""Intents learned from public traces: two modes on a 5 x 5 gridworld, and mice in a labyrinth.

There are no published results on these data: the `reference_...` columns are those of an independent NumPy prototype of
the model on the same files, with one draw of the traces each.

gridworld5: 20 training and 20 test traces of 250 steps, K = 5, noisy stay labels (accuracy .9) on four training traces
in the versions with L, a structural "never switch" in all cells but 0, 23 and 24 in those with G. The file has the true
mode of every step: intents are aligned on the training traces, and errors counted on both; without true tables there
are no divergences. labyrinth: 80 training and 20 held-out windows of 500 steps, without ground truth; "nonparametric"
is K = 10, of which the fit uses as many as it needs. Models have no stickiness, and fits no moves.

Held-out scores are log predictive densities of the test actions in nats per step, at posterior means and without stay
labels. All rows are means over draws of the traces. Rows of `kind` "check" are targets.
"""

from __future__ import annotations

import argparse
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import report
from benchmarks.papers.agent_markov_table1 import ACCURACY
from ethogram.domains import gridworld5, labyrinth
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.inference.conjugate.score_curve import heldout_log_likelihood
from ethogram.inference.intents import infer_intents
from ethogram.inference.roles.alignment import align_states, matched_hamming
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov, IntentConstraints, Rollout, noisy_stay_labels

__all__ = ["Sizes", "cut_traces", "draw_traces", "measure", "rows_of_gridworld5", "rows_of_labyrinth"]

VERSIONS = ("K=1", "VI", "VI-L", "CVI-G", "CVI-LG")
INTENTS = 5
LABELLED = 4  # training traces with stay labels
NONPARAMETRIC = 10
REFERENCE_GRIDWORLD5 = {
    "K=1": (None, None, -1.552),
    "VI": (0.62, 0.65, -1.530),
    "VI-L": (0.34, 0.35, -1.523),
    "CVI-G": (0.27, 0.18, -1.489),
    "CVI-LG": (0.14, 0.11, -1.475),
}
"""Hamming distances on training and test traces, held-out log predictive density per step."""
REFERENCE_LABYRINTH = {1: -0.874, 2: -0.702, 3: -0.683, 5: -0.677}
SCORES = ("hamming_train", "hamming_test", "heldout_log_likelihood_per_step", "intents_used", "elbo")


class Sizes(NamedTuple):
    """Sizes of the fits."""

    draws: int = 3  # of the traces
    restarts: int = 3
    sweeps: int = 500
    board: tuple[int, int] = (20, 250)  # traces, as many again to test, and their steps
    maze: tuple[int, int, int] = (80, 20, 500)  # windows, windows held out, and their steps
    intents: tuple[int, ...] = (1, 2, 3, 5, NONPARAMETRIC)  # in the maze


QUICK = Sizes(draws=1, sweeps=200, maze=(40, 10, 250), intents=(1, 3))


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of both data sets, in double precision."""
    sizes = QUICK if settings.quick else Sizes()
    with jax.enable_x64(True):
        return rows_of_gridworld5(sizes, settings.seed) + rows_of_labyrinth(sizes, settings.seed)


def rows_of_gridworld5(sizes: Sizes, seed: int) -> list[dict[str, Any]]:
    """A row per version, then the targets."""
    life = gridworld5.load()
    draws = [draw_traces(life, sizes.board, seed, number) for number in range(sizes.draws)]
    scores = {
        version: np.array([_score_board(version, *draw, sizes, number) for number, draw in enumerate(draws)])
        for version in VERSIONS
    }
    rows = []
    for version in VERSIONS:
        setting = f"{1 if version == 'K=1' else INTENTS} intents, {sizes.board[0]} x {sizes.board[1]}"
        row = _row("gridworld5", version, setting, scores[version])
        reference = zip(SCORES, REFERENCE_GRIDWORLD5[version], strict=False)
        rows.append(row | {f"reference_{name}": value for name, value in reference})
    test = {version: float(scores[version][:, 1].mean()) for version in VERSIONS}
    heldout = float(scores["CVI-LG"][:, 2].mean())
    checks = [
        ("CVI-LG: test Hamming <= .2", test["CVI-LG"], test["CVI-LG"] <= 0.2),
        ("test Hamming: CVI-LG < CVI-G", test["CVI-G"] - test["CVI-LG"], test["CVI-LG"] < test["CVI-G"]),
        ("test Hamming: CVI-G < VI", test["VI"] - test["CVI-G"], test["CVI-G"] < test["VI"]),
        ("CVI-LG: held out -1.48 +- .02", heldout, abs(heldout + 1.48) <= 0.02),
    ]
    return rows + [_check("gridworld5", *check) for check in checks]


def rows_of_labyrinth(sizes: Sizes, seed: int) -> list[dict[str, Any]]:
    """A row per number of intents, then the targets."""
    data = labyrinth.load()
    train, test, steps = sizes.maze
    rows, heldout = [], {}
    for intents in sizes.intents:
        scores = []
        for number in range(sizes.draws):
            order = np.random.default_rng([seed, number]).permutation(data.num_sequences)
            taken, left = (
                cut_traces(data.take(part), steps) for part in (order[:train], order[train : train + test])
            )
            model = AgentMarkov(
                labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, intents, rows="all", stickiness=None
            )
            result = _fit(model, taken, sizes, number)
            scores.append([np.nan, np.nan, *_without_truth(result, taken, left)])
        found = np.array(scores)
        heldout[intents] = float(found[:, 2].mean())
        version = "nonparametric" if intents == NONPARAMETRIC else f"K={intents}"
        row = _row("labyrinth", version, f"{intents} intents, {train} x {steps}", found)
        reference = REFERENCE_LABYRINTH.get(intents)
        rows.append(row if reference is None else row | {f"reference_{SCORES[2]}": reference})
    gain = heldout[3] - heldout[1]
    return [*rows, _check("labyrinth", "held out: K=3 beats K=1 by .15 a step", gain, gain >= 0.15)]


def draw_traces(life: Rollout, board: tuple[int, int], seed: int, number: int) -> tuple[Rollout, Rollout]:
    """Training traces, with stay labels on the first few, and test traces without."""
    count, steps = board
    order = np.random.default_rng([seed, number]).permutation(len(life.intents))
    train, test = (
        Rollout(cut_traces(life.data.take(part), steps), life.intents[part, :steps])
        for part in (order[:count], order[count : 2 * count])
    )
    key = jax.random.fold_in(jax.random.key(seed), number)
    labels = noisy_stay_labels(key, train.intents, ACCURACY)
    labels[LABELLED:] = -1
    return train._replace(data=train.data._replace(stay=labels)), test._replace(data=_unlabelled(test.data))


def _unlabelled(data: Trajectories) -> Trajectories:
    """The traces without stay labels."""
    return data._replace(stay=np.full(data.observed.shape, -1, np.int32))


def cut_traces(data: Trajectories, steps: int) -> Trajectories:
    """The first steps of every trace."""
    lengths = np.minimum(np.asarray(data.lengths), steps)
    inside = np.arange(data.observed.shape[1]) < lengths[:, None]
    return data._replace(lengths=lengths, observed=data.observed & inside).trim()


def _fit(model: AgentMarkov, data: Trajectories, sizes: Sizes, number: int) -> Any:
    return ConjugateSVI(model).run(
        jax.random.fold_in(jax.random.key(1000), number),
        data,
        sizes.sweeps,
        restarts=sizes.restarts,
        init="sticky",
        search="restarts",
        tol=1e-7,
        progress_bar=False,
    )


def _score_board(version: str, train: Rollout, test: Rollout, sizes: Sizes, number: int) -> list[float]:
    """The scores of one fit, in the order of `SCORES`; one intent has no labels to align."""
    quiet = gridworld5.quiet_region()
    intents = 1 if version == "K=1" else INTENTS
    if "L" not in version:
        train = train._replace(data=_unlabelled(train.data))
    # Unknown labels and an empty region have no effect: all versions share one compilation.
    model = AgentMarkov(
        gridworld5.NUM_CELLS,
        gridworld5.NUM_ACTIONS,
        intents,
        rows="all",
        stickiness=None,
        stay_accuracy=ACCURACY,
        constraints=IntentConstraints.never_switch(quiet if "G" in version else np.zeros_like(quiet)),
    )
    result = _fit(model, train.data, sizes, number)
    others = _without_truth(result, train.data, test.data)
    if intents == 1:
        return [np.nan, np.nan, *others]
    learned, guessed = (infer_intents(result, life.data).labels for life in (train, test))
    matching = align_states(train.intents, learned, num_states=intents)
    heldout = matched_hamming(test.intents, guessed, matching.permutation)
    return [matching.hamming, heldout, *others]


def _without_truth(result: Any, train: Trajectories, test: Trajectories) -> list[float]:
    """Held-out log predictive density per step, intents used at some training step, and the ELBO."""
    used = 1
    if result.posterior.model.truncation > 1:
        labels = infer_intents(result, train).labels
        used = len(np.unique(labels[labels >= 0]))
    return [heldout_log_likelihood(result, test), used, float(result.elbo[-1])]


def _row(domain: str, version: str, setting: str, scores: np.ndarray) -> dict[str, Any]:
    """Means over draws; None where undefined."""
    row: dict[str, Any] = {"kind": "fit", "domain": domain, "version": version, "setting": setting}
    row["draws"] = len(scores)
    for name, values in zip(SCORES, scores.T, strict=True):
        row[name] = None if np.isnan(values).all() else float(values.mean())
    row["heldout_by_draw"] = scores[:, 2].tolist()
    row["hamming_test_by_draw"] = scores[:, 1].tolist()
    return row


def _check(domain: str, asked: str, value: float, reached: Any) -> dict[str, Any]:
    return {"kind": "check", "domain": domain, "version": asked, "value": value, "reached": bool(reached)}


if __name__ == "__main__":
    raise SystemExit(report.run("intent_data", __doc__, measure))
