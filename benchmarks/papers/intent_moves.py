"""What moves do for intents: ELBOs across truncations, restarts that agree, and what it costs.

Fits of an `AgentMarkov` with learned stickiness, where each of eight restarts makes moves (`moves=True`), at several
truncations: gridworld5 (five draws of 20 traces of 250 steps), mice in a labyrinth (20 windows of 250), and simulated
agents of the Line World (20 traces of 100). `shortfall` is how far the ELBO of a truncation lies below that of a
smaller one, relative to it; `near_best` how many of the eight restarts end within 5 nats of the best; `used` the
intents with half an expected step or more. The same fit without moves stands beside the largest truncation, with CPU
seconds, of which those of the first draw include compilation. Rows of `kind` "check" have a `target`, and whether it
was `reached`.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks import report
from ethogram.domains import gridworld5, labyrinth, line_world
from ethogram.inference.conjugate.conjugate_svi import ConjugateSVI
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.intents import AgentMarkov

__all__ = ["Sizes", "measure"]

NATS, AGREEING, SHORTFALL = 5.0, 6, 1e-6
EXPECTED = {"gridworld5": (2, 2), "labyrinth": (2, 4), "line world": (2, 2)}
"""Smallest and largest number of intents used, with learned stickiness."""


class Sizes(NamedTuple):
    """Sizes of the data and the fits."""

    draws: int = 5  # of the traces of the gridworld
    board: tuple[int, int] = (20, 250)  # traces, and their steps
    maze: tuple[int, int] = (20, 250)
    line: tuple[int, int] = (20, 100)
    truncations: tuple[int, ...] = (1, 2, 5)
    restarts: int = 8
    sweeps: int = 1500


QUICK = Sizes(draws=1, maze=(0, 0), line=(10, 50), truncations=(1, 3), restarts=4, sweeps=400)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all domains, in double precision."""
    sizes = QUICK if settings.quick else Sizes()
    with jax.enable_x64(True):
        rows = [
            row
            for domain, model, data in _worlds(sizes, settings.seed)
            for row in _rows(domain, model, data, sizes)
        ]
    return rows + _checks(rows, sizes)


def _worlds(sizes: Sizes, seed: int) -> list[tuple[str, AgentMarkov, Trajectories]]:
    """Name, model and data of every fit; models carry all rows, so that draws share compiled programs."""
    sticky: dict[str, Any] = {"rows": "all"}
    if any(field.name == "stickiness" for field in dataclasses.fields(AgentMarkov)):
        sticky["stickiness"] = "learn"
    life = gridworld5.load().data
    board = AgentMarkov(gridworld5.NUM_CELLS, gridworld5.NUM_ACTIONS, 1, **sticky)
    worlds = []
    for number in range(sizes.draws):
        order = np.random.default_rng([seed, number]).permutation(life.num_sequences)
        worlds.append(("gridworld5", board, _cut(life.take(order[: sizes.board[0]]), sizes.board[1])))
    if sizes.maze[0]:
        mice = labyrinth.load()
        order = np.random.default_rng([seed, 0]).permutation(mice.num_sequences)
        maze = AgentMarkov(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, 1, **sticky)
        worlds.append(("labyrinth", maze, _cut(mice.take(order[: sizes.maze[0]]), sizes.maze[1])))
    traces, steps = sizes.line
    line = AgentMarkov(line_world.NUM_CELLS, line_world.NUM_ACTIONS, 1, **sticky)
    return [*worlds, ("line world", line, line_world.simulate(jax.random.key(seed), traces, steps).data)]


def _cut(data: Trajectories, steps: int) -> Trajectories:
    """The first steps of every trace."""
    lengths = np.minimum(np.asarray(data.lengths), steps)
    inside = np.arange(data.observed.shape[1]) < lengths[:, None]
    return data._replace(lengths=lengths, observed=data.observed & inside).trim()


def _rows(domain: str, model: AgentMarkov, data: Trajectories, sizes: Sizes) -> list[dict[str, Any]]:
    """One row per truncation, and one more for the largest truncation without moves."""
    rows = []
    for truncation in sizes.truncations:
        wider = dataclasses.replace(model, truncation=truncation)
        last = truncation == max(sizes.truncations)
        for moves in (True, False) if last else (True,):
            fit, seconds = _timed(wider, data, sizes, moves)
            policy = np.asarray(fit.posterior.blocks["policy"].natural.concentration)
            steps = (policy - float(model.rho)).sum(axis=(1, 2))
            rows.append(
                {
                    "kind": "fit",
                    "domain": domain,
                    "truncation": truncation,
                    "moves": bool(moves),
                    "elbo": float(fit.elbo[-1]),
                    "used": int((steps >= 0.5).sum()),
                    "near_best": int((fit.restart_elbos >= fit.elbo[-1] - NATS).sum()),
                    "worst_restart": float(fit.restart_elbos.min() - fit.elbo[-1]),
                    "iterations": fit.step,
                    "cpu_s": seconds,
                    "restart_elbos": fit.restart_elbos.tolist(),
                }
            )
    return rows


def _timed(model: Any, data: Any, sizes: Sizes, moves: Any) -> tuple[Any, float]:
    """A fit, and its CPU seconds."""
    before = time.process_time()
    fit = ConjugateSVI(model).run(
        jax.random.key(0), data, sizes.sweeps, restarts=sizes.restarts, moves=moves, progress_bar=False
    )
    seconds = time.process_time() - before
    return fit, seconds


def _checks(rows: list[dict[str, Any]], sizes: Sizes) -> list[dict[str, Any]]:
    """The targets of every domain."""
    checks, count = [], len(sizes.truncations) + 1
    for domain in dict.fromkeys(row["domain"] for row in rows):
        of_domain = [row for row in rows if row["domain"] == domain]
        draws = [of_domain[start : start + count] for start in range(0, len(of_domain), count)]
        shortfalls, used, agreeing, gains, costs = [], [], [], [], []
        for *smaller, with_moves, without in draws:
            elbos = np.array([row["elbo"] for row in (*smaller, with_moves)])
            shortfalls.append(float(np.max((np.maximum.accumulate(elbos) - elbos) / np.abs(elbos))))
            used.append(with_moves["used"])
            agreeing.append(with_moves["near_best"])
            gains.append(with_moves["elbo"] - without["elbo"])
            costs.append(with_moves["cpu_s"] / without["cpu_s"])
        least, most = EXPECTED[domain]
        needed = AGREEING * sizes.restarts // 8
        for asked, values, value, target, reached in (
            (
                "ELBO falls with the truncation by",
                shortfalls,
                max(shortfalls),
                SHORTFALL,
                max(shortfalls) <= SHORTFALL,
            ),
            ("intents used", used, max(used), most, least <= min(used) and max(used) <= most),
            (f"restarts within {NATS:g} nats", agreeing, min(agreeing), needed, min(agreeing) >= needed),
            ("nats over no moves", gains, min(gains), 0, min(gains) >= -1e-6),
            ("CPU seconds over those without moves", costs, float(np.median(costs)), None, None),
        ):
            check = {"kind": "check", "domain": domain, "asked": asked, "value": value, "by_draw": values}
            checks.append(check if target is None else check | {"target": target, "reached": bool(reached)})
    return checks


if __name__ == "__main__":
    raise SystemExit(report.run("intent_moves", __doc__, measure))
