"""The tour of agent-markov: intents of mice in a labyrinth, and how many there are.

Nobody knows the true intents. What the model does not know, and what its intents are compared with, is where the water
port and the home cage are; held-out windows compare it with a single intent, which is a table of moves.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import ethogram
from ethogram.domains import labyrinth
from ethogram.models.data import ActionTable, Trajectories
from ethogram.plots import intents as plots
from ethogram.plots.colours import category_colours
from ethogram.tour.guide import Example

__all__ = ["EXAMPLE"]

MOST_SHOWN = 3


def load(key: jax.Array, full: bool) -> tuple[Trajectories, Any]:
    """Training windows; both these and the held-out ones."""
    windows = labyrinth.draw_windows(key, *((80, 20) if full else (30, 10)))
    return windows[0], windows


def model(windows: Any) -> ethogram.AgentMarkov:
    """At most six intents."""
    return ethogram.AgentMarkov(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, 6, stickiness="learn")


def _policies(fit: ethogram.Fit) -> np.ndarray:
    """Mean policy (intent, node, action)."""
    posterior = fit.result.posterior
    return np.asarray(posterior.model.agent(posterior.mean()).policy)


def truth(fit: ethogram.Fit, windows: tuple[Trajectories, Trajectories]) -> list[tuple[str, str, str]]:
    """Held-out score, and where the moves of each intent lead."""
    train, test = windows
    score = fit.score(test, num_draws=20)
    table = ActionTable(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS).fit(train)
    reference = table.log_prob(test).sum() / score.counts.sum()
    found, policy = fit.states(), _policies(fit)
    rows = [
        ("intents used, at more than 1 % of the steps", str(len(found.used)), "unknown"),
        (
            "held-out windows, nats per step; reference: a table of p(a | s)",
            f"{score.mean:.3f}",
            f"{reference:.3f}",
        ),
    ]
    for intent in found.used:
        share = found.visits[intent].sum() / found.visits.sum()
        water, home = labyrinth.where_moves_lead(policy[intent], found.visits[intent])
        rows.append(
            (
                f"intent {intent}, {share:.0%} of the steps: its moves lead to",
                f"water from {water:.0%}, home from {home:.0%}",
                "unknown",
            )
        )
    return rows


def draw(fit: ethogram.Fit, windows: Any, figure: Any) -> None:
    """The maze by intent above, one window over time and the shares of all intents below."""
    data, found, policy = fit.data, fit.states(), _policies(fit)
    share = found.visits.sum(-1) / found.visits.sum()
    shown, colours = found.used[:MOST_SHOWN], category_colours(len(share))
    above, below = figure.subfigures(2, 1, height_ratios=[5.5, 3.6])
    for axes, intent in zip(above.subplots(1, len(shown), squeeze=False)[0], shown, strict=True):
        labyrinth.maze_occupancy(found.visits[intent], axes, policy=policy[intent], colour=colours[intent])
        axes.set_title(f"intent {intent}: {share[intent]:.0%} of steps")
    above.supxlabel("disc area: share of the intent's steps; arrow: most probable action", fontsize=10)
    timeline, shares = below.subplots(1, 2, width_ratios=[4, 1])
    window = labyrinth.typical_window(found.probability)
    length = int(data.lengths[window])
    nodes, moves = (np.asarray(part)[window, :length] for part in (data.states, data.actions))
    home = (nodes == labyrinth.HOME) & (moves == labyrinth.ACTION_NAMES.index("out right"))
    marks = {"home": np.flatnonzero(home), "water": np.flatnonzero(nodes == labyrinth.WATER)}
    change = found.change[window, : length - 1]
    plots.intent_timeline(found.probability[window, :length], timeline, change=change, marks=marks)
    timeline.set_title("a typical window: posterior probability of each intent, arrivals and intent switches")
    plots.intent_shares(found.probability, shares)
    shares.set_title("share of steps; dots: windows", fontsize=10)


EXAMPLE = Example(
    "mice in a labyrinth, windows of 500 steps",
    load,
    model,
    {"method": "cavi", "num_steps": 2000, "restarts": 4, "progress_bar": False},
    {"restarts": 8},
    truth,
    draw,
    (15, 9.5),
)
