"""The tour of agent-markov: what a walker on a line, and a mouse in a labyrinth, are after.

Line World: one trial, whose intents are known; the model learns alone (VI), with a noisy word on when the intent
stayed (VI-L), with a region where it never changes (CVI-G), and with both (CVI-LG). The mice: nobody knows their
intents; the model with one intent and the model that takes as many as it needs are scored on windows held out.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.special import gammaln

from ethogram import plots_agents
from ethogram.domains import labyrinth, line_world
from ethogram.football_roles import sweeps_done
from ethogram.inference.alignment import align_states, matched_hamming
from ethogram.inference.arviz_export import to_arviz
from ethogram.inference.conjugate_svi import ConjugateResult, ConjugateSVI
from ethogram.inference.intent_errors import intent_errors
from ethogram.inference.intents import USED, InferredIntents, infer_intents
from ethogram.inference.score_curve import heldout_log_likelihood
from ethogram.models.agent_markov import AgentMarkov, Constraints
from ethogram.models.intent_agent import said_of_stay
from ethogram.models.trajectories import Trajectories
from ethogram.mouse_intents import draw_windows, typical_trace, where_moves_lead
from ethogram.tour import TourReport, TourSettings, whole_file

__all__ = ["FULL", "QUICK", "TourSizes", "tour"]

ACCURACY = 0.9
SAID_OF = 2
VERSIONS = {"VI": (False, False), "VI-L": (True, False), "CVI-G": (False, True), "CVI-LG": (True, True)}
"""Whether a version has the word on when the intent stayed, and the region where it never changes."""


class TourSizes(NamedTuple):
    """How much is done.

    Attributes
    ----------
    traces, truncation, restarts, sweeps : of Line World; as many traces to test on as to learn from.
    train_windows, test_windows, mouse_truncation, mouse_restarts, mouse_sweeps : of the mice.
    draws : from the posterior, in the ``.nc`` file.
    scores : whether the file holds the log likelihood of every window at every draw too.
    """

    traces: int
    truncation: int
    restarts: int
    sweeps: int
    train_windows: int
    test_windows: int
    mouse_truncation: int
    mouse_restarts: int
    mouse_sweeps: int
    draws: int
    scores: bool


QUICK = TourSizes(5, 10, 10, 60, 30, 10, 6, 4, 60, 50, False)
FULL = TourSizes(5, 10, 10, 200, 80, 20, 6, 8, 200, 50, True)


def tour(settings: TourSettings, sizes: TourSizes | None = None) -> TourReport:
    """Rows, notes and files of the tour of agent-markov.

    Parameters
    ----------
    settings : as `take_tour` makes them.
    sizes : how much is done; `QUICK` or `FULL`, as the settings say, where None.
    """
    sizes = (QUICK if settings.quick else FULL) if sizes is None else sizes
    key_line, key_split, key_fit, key_draws = jax.random.split(jax.random.key(settings.seed), 4)
    train, test = draw_windows(key_split, sizes.train_windows, sizes.test_windows)
    picture, record = settings.out / "agent-markov.png", settings.out / "agent-markov.nc"
    # Most of the time goes into compiling, which takes one core: a second one works beside.
    with ThreadPoolExecutor(1) as beside:
        line = beside.submit(_line_world, key_line, settings, sizes)
        settings.say(f"mice: {sizes.train_windows} windows to learn from, {sizes.test_windows} held out")
        start = time.perf_counter()
        result = ConjugateSVI(
            AgentMarkov(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, sizes.mouse_truncation)
        ).run(
            key_fit,
            train,
            sizes.mouse_sweeps,
            restarts=sizes.mouse_restarts,
            init="segments",
            progress_bar=settings.progress_bar,
        )
        seconds = time.perf_counter() - start
        settings.say(f"mice: ELBO {result.elbo[-1]:.1f} nats, {sweeps_done(result)} sweeps")
        inferred = infer_intents(result, train)
        drawn = beside.submit(_write_picture, picture, result, train, inferred)
        heldout = heldout_log_likelihood(result, test)
        tree = to_arviz(
            result,
            train,
            key=key_draws,
            num_draws=sizes.draws,
            log_likelihood="sequence" if sizes.scores else None,
            posterior_predictive=False,
        )
        with whole_file(record) as draft:
            tree.to_netcdf(str(draft), engine="h5netcdf")
        many = {
            "what was learned": f"mice, as many intents as they need, of {sizes.mouse_truncation}",
            "ELBO, nats": f"{result.elbo[-1]:.1f}",
            "sweeps": sweeps_done(result),
            "intents used": len(inferred.used),
            "held-out, nats/step": f"{heldout:.3f}",
            "seconds": f"{seconds:.1f}",
        }
        rows = [*line.result(), _one_intent(train, test), many]
        drawn.result()
    return TourReport(
        rows,
        [*_notes(result, inferred), f"{record.name} holds the mice (arviz.from_netcdf reads it)."],
        [picture, record],
    )


def _notes(result: ConjugateResult, inferred: InferredIntents) -> list[str]:
    policy = np.asarray(result.posterior.model.agent(result.posterior.mean()).policy)
    share = inferred.visits.sum(-1) / inferred.visits.sum()
    notes = [
        "Hamming: share of steps under a wrong intent, labels matched on the training traces; wKL: of the policy, in",
        "nats. intents used: in Line World, most probable of some step; of mice, those of more than 1 % of steps.",
    ]
    for intent in inferred.used:
        water, home = where_moves_lead(policy[intent], inferred.visits[intent])
        notes.append(
            f"mouse intent {intent}, {100 * share[intent]:.0f} % of the steps: its most probable moves lead to the "
            f"water from {100 * water:.0f} % of its steps, home from {100 * home:.0f} %"
        )
    return notes


def _line_world(key: jax.Array, settings: TourSettings, sizes: TourSizes) -> list[dict[str, Any]]:
    """Rows of the four versions on one trial."""
    key_train, key_test, key_region, key_said, key_fit = jax.random.split(key, 5)
    train, test = (line_world.simulate(one, sizes.traces) for one in (key_train, key_test))
    region = line_world.random_region(key_region)
    said = said_of_stay(key_said, train.intents, ACCURACY)
    said[SAID_OF:] = -1
    silence = np.full_like(said, -1)
    rows = []
    for version, (hears, sees) in VERSIONS.items():
        start = time.perf_counter()
        # Nothing said, and an empty region, change no number: the four versions share one compilation.
        model = AgentMarkov(
            line_world.NUM_CELLS,
            line_world.NUM_ACTIONS,
            sizes.truncation,
            rows="all",
            stay_accuracy=ACCURACY,
            constraints=Constraints.never_switch(region if sees else np.zeros_like(region)),
        )
        data = train.data._replace(stay=said if hears else silence)
        result = ConjugateSVI(model).run(
            key_fit, data, sizes.sweeps, restarts=sizes.restarts, init="sticky", progress_bar=False
        )
        learned = infer_intents(result, data).labels
        guessed = infer_intents(result, test.data._replace(stay=silence)).labels
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
                "what was learned": f"Line World, {version}",
                "ELBO, nats": f"{result.elbo[-1]:.1f}",
                "sweeps": sweeps_done(result),
                "intents used": len(np.unique(learned[learned >= 0])),
                "Hamming train; test": f"{matching.hamming:.2f}; {missed:.2f}",
                "wKL of policy": f"{errors.wkl_policy:.2f}",
                "seconds": f"{time.perf_counter() - start:.1f}",
            }
        )
    cells = ", ".join(str(cell) for cell in np.flatnonzero(region))
    settings.say(f"Line World: four fits of {sizes.traces} traces; the region is cell {cells}")
    return rows


def _one_intent(train: Trajectories, test: Trajectories) -> dict[str, Any]:
    """Row of the mice with one intent: its bound is tight, and its posterior a count of the moves at every node."""
    counts = np.zeros((labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS))
    np.add.at(counts, (np.asarray(train.states), np.asarray(train.actions)), 1)
    posterior = 1 + counts
    evidence = gammaln(posterior).sum() - gammaln(posterior.sum(-1)).sum()
    evidence += labyrinth.NUM_NODES * gammaln(labyrinth.NUM_ACTIONS)
    policy = posterior / posterior.sum(-1, keepdims=True)
    return {
        "what was learned": "mice, one intent: counts of moves",
        "ELBO, nats": f"{evidence:.1f}",
        "sweeps": 1,
        "intents used": 1,
        "held-out, nats/step": f"{np.log(policy[np.asarray(test.states), np.asarray(test.actions)]).mean():.3f}",
        "seconds": "0.0",
    }


def _write_picture(
    path: Path, result: ConjugateResult, data: Trajectories, inferred: InferredIntents
) -> None:
    """The maze by intent above, one window over time and the shares of all intents below."""
    from matplotlib.figure import Figure

    policy = np.asarray(result.posterior.model.agent(result.posterior.mean()).policy)
    share = inferred.visits.sum(-1) / inferred.visits.sum()
    shown = inferred.used[:4]
    colours = plots_agents.intent_colours(len(share))
    # A maze is as high as it is wide; the timeline below takes 3.6 inches.
    height = min(15 / len(shown), 5.5) + 0.7
    figure = Figure(figsize=(15, height + 4), layout="constrained")
    figure.suptitle("mice in a labyrinth: what they are after, found without labels", fontsize=15)
    above, below = figure.subfigures(2, 1, height_ratios=[height, 3.6], squeeze=False)[:, 0]
    for axes, intent in zip(above.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        plots_agents.maze_occupancy(
            inferred.visits[intent], axes, policy=policy[intent], colour=colours[intent]
        )
        axes.set_title(f"intent {intent}: {100 * share[intent]:.0f} % of the steps")
    above.supxlabel("area of a disc: share of the intent's steps; arrow: its most probable move", fontsize=10)
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
    timeline.set_title(
        "a typical window: posterior probability of each intent, arrivals, and changes of intent"
    )
    plots_agents.intent_shares(inferred.probability, shares, least=USED)
    shares.set_title("used above the line; dots: windows", fontsize=10)
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=90)
