"""The tour of role-hmm: roles of football players, found without the line-up.

The away defence of a match, ten players in thirteen plays. The truth is the printed line-up: each player's place in it.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import ethogram
from ethogram import plots
from ethogram.domains import football
from ethogram.inference.roles import assign_roles, consistency, duplicate_share, lineup_agreement
from ethogram.models.data import valid_steps
from ethogram.tour.guide import Example

__all__ = ["EXAMPLE"]

NUM_PLAYERS = 10


def load(key: jax.Array, full: bool) -> tuple[Any, Any]:
    """The plays; the same in either form."""
    plays = football.load("away")
    return plays.data, plays


def model(plays: football.FootballPlays) -> ethogram.RoleHMM:
    """One Gaussian per role, in metres relative to the team centroid."""
    return ethogram.RoleHMM(NUM_PLAYERS, ethogram.GaussianEmission(2, strength=0.01, dof=4.0, scale=25.0))


def truth(fit: ethogram.Fit, plays: football.FootballPlays) -> list[tuple[str, str, str]]:
    """Roles of players, free from frame to frame and then one for each player and play."""
    data = plays.data
    agent, group, lengths = (np.asarray(part) for part in (data.agent, data.group, data.lengths))
    held = assign_roles(fit.result.posterior, data).role
    rows = []
    for about, roles in (
        ("role of each frame", fit.states().path),
        ("one role for each play", np.where(valid_steps(data), held[:, None], -1)),
    ):
        rows += [
            (
                f"{about}: share of frames in the player's place in the line-up",
                f"{lineup_agreement(roles, agent, plays.formation_place):.2f}",
                "1",
            ),
            (
                f"{about}: share in the player's most frequent role",
                f"{consistency(roles, agent):.2f}",
                "1",
            ),
            (
                f"{about}: share of frames with two players in one role",
                f"{duplicate_share(roles, group, lengths, data.observed):.2f}",
                "0",
            ),
        ]
    return rows


def draw(fit: ethogram.Fit, plays: football.FootballPlays, figure: Any) -> None:
    """Ellipses on the pitch, transitions and ELBO traces; below, roles over time."""
    axes = figure.subplot_mosaic(
        [["pitch", "matrix", "traces"], ["time", "time", "time"]],
        width_ratios=[1.45, 1.2, 0.8],
        height_ratios=[1.35, 1],
    )
    posterior, found = fit.result.posterior, fit.states()
    plots.role_ellipses(posterior, plots.pitch(axes["pitch"]), data=plays.data)
    axes["pitch"].set(xlim=(-40, 40), ylim=(-30, 30), title="roles: one standard deviation; thin: draws")
    plots.transition_intervals(fit.transitions(per="frame"), axes["matrix"])
    plots.elbo_traces(fit.result, axes["traces"])
    axes["traces"].set_title("ELBO of each restart")
    plots.role_timelines(found.path, found.probability, plays.data, axes["time"])
    axes["time"].set_title("most likely role path of each player; opacity: posterior probability")


EXAMPLE = Example(
    "football, ten defenders in thirteen plays",
    load,
    model,
    {"method": "cavi", "num_steps": 500, "restarts": 4, "progress_bar": False},
    {"restarts": 16},
    truth,
    draw,
    (18, 10),
)
