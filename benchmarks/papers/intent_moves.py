"""What the search does for intents: ELBOs and held-out scores across truncations, the number used, and what it costs.

Fits of an `AgentMarkov` with learned stickiness and default arguments at several truncations: gridworld5 (five draws of
20 traces of 250 steps), mice in a labyrinth (20 windows of 250), and simulated agents of the Line World (20 traces of
100); as many traces again are held out. By default restarts grow from two intents, and the labels of the best fits are
edited. `used` are the intents with half an expected step or more; `heldout` is in nats per step. At the largest
truncation the best of the same restarts without a search stands beside. CPU and wall seconds of the first draw, at the
largest truncation, include all of the compilation; those of other draws have none of it. Rows of `kind` "check" have a
`target`, and whether it was `reached`. Held-out scores are within one standard error of those of the best truncation by
the rule of Breiman et al. (1984), whose standard error is that of the score; that of the paired difference, which is
much smaller, stands beside it. Targets of the labyrinth are the ELBO and the held-out score of a search that tried
merges, deletions and splits from every restart, at several times the cost.
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

SHORTFALL, COST = 1e-6, 1.5
THOROUGH = {"labyrinth": (-4834.0, -0.8161)}
"""ELBO and held-out score, in nats per step, that the search is to reach."""
EXPECTED = {"gridworld5": (2, 2), "labyrinth": (2, 4), "line world": (2, 2)}
"""Smallest and largest number of intents used, with learned stickiness."""


class Sizes(NamedTuple):
    """Sizes of the data and the fits."""

    draws: int = 5  # of the traces of the gridworld
    board: tuple[int, int] = (20, 250)  # traces, and their steps
    maze: tuple[int, int] = (20, 250)
    line: tuple[int, int] = (20, 100)
    truncations: tuple[int, ...] = (1, 2, 3, 5)
    restarts: int = 8
    sweeps: int = 1500


QUICK = Sizes(draws=1, maze=(0, 0), line=(10, 50), truncations=(1, 3), restarts=4, sweeps=400)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of all domains, in double precision."""
    sizes = QUICK if settings.quick else Sizes()
    seen: set[str] = set()
    rows = []
    with jax.enable_x64(True):
        for domain, model, train, test in _worlds(sizes, settings.seed):
            rows += _rows(domain, model, train, test, sizes, domain not in seen)
            seen.add(domain)
    return rows + _checks(rows, sizes)


def _worlds(sizes: Sizes, seed: int) -> list[tuple[str, AgentMarkov, Trajectories, Trajectories]]:
    """Name, model, training and test data of every fit; models carry all rows, so that draws share programs."""
    sticky: dict[str, Any] = {"rows": "all", "stickiness": "learn"}
    life = gridworld5.load().data
    board = AgentMarkov(gridworld5.NUM_CELLS, gridworld5.NUM_ACTIONS, 1, **sticky)
    worlds = [
        ("gridworld5", board, *_drawn(life, sizes.board, [seed, number])) for number in range(sizes.draws)
    ]
    if sizes.maze[0]:
        maze = AgentMarkov(labyrinth.NUM_NODES, labyrinth.NUM_ACTIONS, 1, **sticky)
        worlds.append(("labyrinth", maze, *_drawn(labyrinth.load(), sizes.maze, [seed, 0])))
    traces, steps = sizes.line
    line = AgentMarkov(line_world.NUM_CELLS, line_world.NUM_ACTIONS, 1, **sticky)
    walks = line_world.simulate(jax.random.key(seed), 2 * traces, steps).data
    return [*worlds, ("line world", line, *(walks.take(part) for part in _halves(np.arange(2 * traces))))]


def _halves(order: np.ndarray) -> list[np.ndarray]:
    return np.split(order, 2)


def _drawn(data: Trajectories, size: tuple[int, int], entropy: list[int]) -> list[Trajectories]:
    """The first steps of training and test traces, drawn without replacement."""
    order = np.random.default_rng(entropy).permutation(data.num_sequences)[: 2 * size[0]]
    return [_cut(data.take(part), size[1]) for part in _halves(order)]


def _cut(data: Trajectories, steps: int) -> Trajectories:
    """The first steps of every trace."""
    lengths = np.minimum(np.asarray(data.lengths), steps)
    inside = np.arange(data.observed.shape[1]) < lengths[:, None]
    return data._replace(lengths=lengths, observed=data.observed & inside).trim()


def _rows(
    domain: str, model: AgentMarkov, train: Trajectories, test: Trajectories, sizes: Sizes, first: bool
) -> list[dict[str, Any]]:
    """A row per truncation; of the largest one more without a search."""
    largest, *smaller = sorted(sizes.truncations, reverse=True)
    # Smaller truncations come last: a timed fit of a first draw compiles everything anew.
    fits = [(largest, "restarts"), (largest, "auto")]
    rows = []
    for truncation, search in fits + [(truncation, "auto") for truncation in smaller]:
        if first and truncation == largest:
            jax.clear_caches()
        wider = dataclasses.replace(model, truncation=truncation)
        clocks = time.process_time(), time.perf_counter()
        fit = ConjugateSVI(wider).run(
            jax.random.key(0), train, sizes.sweeps, restarts=sizes.restarts, search=search, progress_bar=False
        )
        seconds = time.process_time() - clocks[0], time.perf_counter() - clocks[1]
        by_trace = _log_likelihood(fit, test)
        rows.append(
            {
                "kind": "fit",
                "domain": domain,
                "truncation": truncation,
                "search": search,
                "elbo": float(fit.elbo[-1]),
                "used": int((np.asarray(fit.posterior.model.growth.mass(fit.posterior.blocks)) >= 0.5).sum()),
                "heldout": float(by_trace.sum() / test.lengths.sum()),
                "heldout_by_trace": by_trace.tolist(),
                "heldout_steps": int(test.lengths.sum()),
                "iterations": fit.step,
                "compiles": first,
                "cpu_s": seconds[0],
                "wall_s": seconds[1],
                "restart_elbos": fit.restart_elbos.tolist(),
            }
        )
        print(f"{domain}, K = {truncation}, search {search}: {rows[-1]['elbo']:.3f}", flush=True)
    return rows


def _log_likelihood(fit: Any, test: Trajectories) -> np.ndarray:
    """Log predictive density of every test trace at posterior means."""
    model, mean = fit.posterior.model, fit.posterior.mean()
    return np.asarray(model.likelihood(mean, test).log_prob(model.entries(test).value))


def _checks(rows: list[dict[str, Any]], sizes: Sizes) -> list[dict[str, Any]]:
    """The targets of every domain."""
    checks, count = [], len(sizes.truncations) + 1
    for domain in dict.fromkeys(row["domain"] for row in rows):
        of_domain = [row for row in rows if row["domain"] == domain]
        draws = [of_domain[start : start + count] for start in range(0, len(of_domain), count)]
        shortfalls, used, behind, paired, gains, cpu, wall = [], [], [], [], [], [], []
        for without, best, *smaller in draws:
            elbos = np.array([row["elbo"] for row in (*reversed(smaller), best)])
            shortfalls.append(float(np.max((np.maximum.accumulate(elbos) - elbos) / np.abs(elbos))))
            used.append(best["used"])
            top = max((best, *smaller), key=lambda row: row["heldout"])
            behind.append(_behind(best, top, np.array(top["heldout_by_trace"])))
            paired.append(max(_behind(best, other, _gap(best, other)) for other in smaller))
            gains.append(best["elbo"] - without["elbo"])
            cpu.append(best["cpu_s"] / without["cpu_s"])
            wall.append(best["wall_s"] / without["wall_s"])
        least, most = EXPECTED[domain]
        rounding = 1e-6 * abs(draws[0][0]["elbo"])
        found = draws[0][1]
        elbo, heldout = THOROUGH.get(domain, (-np.inf, -np.inf))
        for asked, values, value, target, reached in (
            ("ELBO falls with the truncation by", shortfalls, max(shortfalls), SHORTFALL, None),
            ("intents used", used, max(used), most, least <= min(used) and max(used) <= most),
            ("held out: standard errors of the score behind the best K", behind, max(behind), 1, None),
            ("held out: standard errors of the paired difference behind", paired, max(paired), None, None),
            ("nats over no search", gains, min(gains), 0, min(gains) >= -rounding),
            ("CPU seconds over those without a search", cpu, float(np.median(cpu)), COST, None),
            ("wall seconds over those without a search", wall, float(np.median(wall)), COST, None),
            ("ELBO of the first draw", [found["elbo"]], found["elbo"], elbo, found["elbo"] >= elbo),
            (
                "held-out score of the first draw",
                [found["heldout"]],
                found["heldout"],
                heldout,
                found["heldout"] >= heldout,
            ),
        ):
            check = {"kind": "check", "domain": domain, "asked": asked, "value": value, "by_draw": values}
            if target is not None:
                check |= {"target": target, "reached": bool(value <= target if reached is None else reached)}
            checks.append(check)
    return checks


def _gap(best: dict[str, Any], other: dict[str, Any]) -> np.ndarray:
    return np.subtract(other["heldout_by_trace"], best["heldout_by_trace"])


def _behind(best: dict[str, Any], other: dict[str, Any], scattered: np.ndarray) -> float:
    """How far the held-out score lies below another, in standard errors of a sum over traces."""
    gap = _gap(best, other).sum()
    return float(gap / (scattered.std(ddof=1) * np.sqrt(len(scattered)))) if gap > 1e-3 else 0.0


if __name__ == "__main__":
    raise SystemExit(report.run("intent_moves", __doc__, measure))
