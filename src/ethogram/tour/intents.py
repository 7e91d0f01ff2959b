"""The tour of agent-markov: latent intents of an agent on a line, and of mice in a labyrinth.

Line World: one trial with known intents; the model alone (VI), with noisy labels of when the intent stayed (VI-L),
with a region where it never switches (CVI-G), and with both (CVI-LG). Mice: the true intents are unknown; a model with
one intent and a model that infers how many there are, compared on held-out windows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from scipy.special import gammaln

from ethogram.domains import labyrinth, line_world
from ethogram.inference.conjugate import ConjugateSVI, heldout_log_likelihood
from ethogram.inference.export import to_arviz
from ethogram.inference.intents import USED, InferredIntents, infer_intents, intent_errors
from ethogram.inference.roles import align_states, matched_hamming
from ethogram.models.data import Trajectories
from ethogram.models.intents import AgentMarkov, IntentConstraints, noisy_stay_labels
from ethogram.plots import intents as plots_agents
from ethogram.plots.colours import category_colours
from ethogram.tour.football_roles import iterations_done
from ethogram.tour.guide import Guide, TourReport
from ethogram.tour.mouse_intents import draw_windows, typical_trace, where_moves_lead

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["FULL", "QUICK", "TourSizes", "tour"]

ACCURACY = 0.9
LABELLED = 2
MOST_SHOWN = 4
VERSIONS = {"VI": (False, False), "VI-L": (True, False), "CVI-G": (False, True), "CVI-LG": (True, True)}
"""Whether a version has labels of when the intent stayed, and the region where it never switches."""


class TourSizes(NamedTuple):
    """Sizes of the fits: first of Line World, with as many test traces as training traces, then of the mice."""

    traces: int
    truncation: int
    restarts: int
    iterations: int
    train_windows: int
    test_windows: int
    mouse_truncation: int
    mouse_restarts: int
    mouse_iterations: int
    draws: int  # from the posterior, in the ``.nc`` file
    scores: bool  # whether the file holds the log likelihood of every window at every draw too


QUICK = TourSizes(5, 10, 10, 200, 30, 10, 6, 4, 200, 50, False)
FULL = TourSizes(5, 10, 10, 500, 80, 20, 6, 8, 1000, 50, True)


def tour(guide: Guide, sizes: TourSizes) -> TourReport:
    """Rows, notes and files of the tour of agent-markov."""
    key_line, key_split, key_fit, key_draws = jax.random.split(jax.random.key(guide.seed), 4)
    train, test = draw_windows(key_split, sizes.train_windows, sizes.test_windows)
    seconds = guide.step(
        f"mice: {sizes.train_windows} training windows, {sizes.test_windows} held out", quick=14, full=60
    )
    model = AgentMarkov(
        labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, sizes.mouse_truncation, stickiness="learn"
    )
    result = ConjugateSVI(model).run(
        key_fit,
        train,
        sizes.mouse_iterations,
        restarts=sizes.mouse_restarts,
        progress_bar=guide.progress_bar,
    )
    inferred = infer_intents(result, train)
    many = {
        "fit": f"mice, at most {sizes.mouse_truncation} intents",
        "ELBO, nats": f"{result.elbo[-1]:.1f}",
        "iterations": iterations_done(result),
        "intents used": len(inferred.used),
        "held-out, nats/step": f"{heldout_log_likelihood(result, test):.3f}",
        "seconds": seconds(),
    }
    with guide.figure(15, _maze_height(inferred) + 4, "mice in a labyrinth: inferred intents") as figure:
        policy = np.asarray(result.posterior.model.agent(result.posterior.mean()).policy)
        share = inferred.visits.sum(-1) / inferred.visits.sum()
        _draw(figure, train, inferred, policy, share)
    rows = [*_line_world(key_line, guide, sizes), _one_intent(train, test), many]
    guide.save(
        to_arviz(
            result,
            train,
            key=key_draws,
            num_draws=sizes.draws,
            log_likelihood="sequence" if sizes.scores else None,
        )
    )
    notes = [
        *_notes(inferred, policy, share),
        "agent-markov.nc holds the fit of the mice (arviz.from_netcdf reads it).",
    ]
    return guide.report(rows, notes)


def _notes(inferred: InferredIntents, policy: np.ndarray, share: np.ndarray) -> list[str]:
    notes = [
        "Hamming: share of steps with a wrong intent, labels matched on the training traces. wKL: weighted KL of the",
        "policy, nats. intents used: Line World, most probable at some step; mice, at more than 1 % of steps.",
    ]
    for intent in inferred.used:
        water, home = where_moves_lead(policy[intent], inferred.visits[intent])
        notes.append(
            f"mouse intent {intent}, {100 * share[intent]:.0f} % of steps: its most probable moves lead to the water "
            f"port from {100 * water:.0f} % of its steps, to the home cage from {100 * home:.0f} %"
        )
    return notes


def _line_world(key: jax.Array, guide: Guide, sizes: TourSizes) -> list[dict[str, Any]]:
    """Rows of the four versions on one trial."""
    key_train, key_test, key_region, key_labels, key_fit = jax.random.split(key, 5)
    train, test = (line_world.simulate(one, sizes.traces) for one in (key_train, key_test))
    region = line_world.random_region(key_region)
    labels = noisy_stay_labels(key_labels, train.intents, ACCURACY)
    labels[LABELLED:] = -1
    unlabelled = np.full_like(labels, -1)
    cells = ", ".join(str(cell) for cell in np.flatnonzero(region))
    rows: list[dict[str, Any]] = []
    for version, (has_labels, has_region) in VERSIONS.items():
        seconds = guide.step(
            f"Line World, {version}: {sizes.traces} traces, region: cell {cells}",
            quick=0.2 if rows else 15,
            full=0.5 if rows else 16,
        )
        # Missing labels and an empty region change no number: the four versions share one compilation.
        model = AgentMarkov(
            line_world.NUM_CELLS,
            line_world.NUM_ACTIONS,
            sizes.truncation,
            rows="all",
            stickiness="learn",
            stay_accuracy=ACCURACY,
            constraints=IntentConstraints.never_switch(region if has_region else np.zeros_like(region)),
        )
        data = train.data._replace(stay=labels if has_labels else unlabelled)
        result = ConjugateSVI(model).run(
            key_fit, data, sizes.iterations, restarts=sizes.restarts, progress_bar=False
        )
        learned = infer_intents(result, data).labels
        guessed = infer_intents(result, test.data._replace(stay=unlabelled)).labels
        matching = align_states(train.intents, learned, num_states=sizes.truncation)
        missed = matched_hamming(test.intents, guessed, matching.permutation)
        errors = intent_errors(
            line_world.true_agent(),
            result.posterior.model.agent(result.posterior.mean()),
            data,
            train.intents,
            matching.permutation,
        )
        rows.append(
            {
                "fit": f"Line World, {version}",
                "ELBO, nats": f"{result.elbo[-1]:.1f}",
                "iterations": iterations_done(result),
                "intents used": len(np.unique(learned[learned >= 0])),
                "Hamming train; test": f"{matching.hamming:.2f}; {missed:.2f}",
                "policy wKL, nats": f"{errors.wkl_policy:.2f}",
                "seconds": seconds(),
            }
        )
    return rows


def _one_intent(train: Trajectories, test: Trajectories) -> dict[str, Any]:
    """Row of the mice with one intent: the exact evidence, and a Dirichlet posterior by counting moves."""
    counts = np.zeros((labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS))
    np.add.at(counts, (np.asarray(train.states), np.asarray(train.actions)), 1)
    posterior = 1 + counts
    evidence = gammaln(posterior).sum() - gammaln(posterior.sum(-1)).sum()
    evidence += labyrinth.NUM_NODES * gammaln(labyrinth.NUM_ACTIONS)
    policy = posterior / posterior.sum(-1, keepdims=True)
    return {
        "fit": "mice, one intent (exact)",
        "ELBO, nats": f"{evidence:.1f}",
        "iterations": 1,
        "intents used": 1,
        "held-out, nats/step": f"{np.log(policy[np.asarray(test.states), np.asarray(test.actions)]).mean():.3f}",
        "seconds": "0.0",
    }


def _maze_height(inferred: InferredIntents) -> float:
    """Mazes are as high as they are wide; the title and the timeline below take four inches more."""
    return min(15 / len(inferred.used[:MOST_SHOWN]), 5.5) + 0.7


def _draw(
    figure: Figure, data: Trajectories, inferred: InferredIntents, policy: np.ndarray, share: np.ndarray
) -> None:
    """The maze by intent above, one window over time and the shares of all intents below."""
    shown = inferred.used[:MOST_SHOWN]
    colours = category_colours(len(share))
    above, below = figure.subfigures(2, 1, height_ratios=[_maze_height(inferred), 3.6], squeeze=False)[:, 0]
    for axes, intent in zip(above.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        labyrinth.maze_occupancy(inferred.visits[intent], axes, policy=policy[intent], colour=colours[intent])
        axes.set_title(f"intent {intent}: {100 * share[intent]:.0f} % of steps")
    above.supxlabel("disc area: share of the intent's steps; arrow: most probable action", fontsize=10)
    timeline, shares = below.subplots(1, 2, width_ratios=[4, 1])
    window = typical_trace(inferred.probability)
    length = int(data.lengths[window])
    nodes, moves = (np.asarray(x)[window, :length] for x in (data.states, data.actions))
    home = (nodes == labyrinth.HOME) & (moves == labyrinth.ACTION_NAMES.index("out right"))
    plots_agents.intent_timeline(
        inferred.probability[window, :length],
        timeline,
        change=inferred.change[window, : length - 1],
        marks={"home": np.flatnonzero(home), "water": np.flatnonzero(nodes == labyrinth.WATER)},
    )
    timeline.set_title("a typical window: posterior probability of each intent, arrivals and intent switches")
    plots_agents.intent_shares(inferred.probability, shares, min_share=USED)
    shares.set_title("share of steps; dots: windows", fontsize=10)
