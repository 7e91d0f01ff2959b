"""Methods of `solve_mmap` on smoothed tables: AGS and mixed-product belief propagation, as its paper compares them.

Cui, Marinescu, Khardon (2018), "From Stochastic Planning to Marginal MAP", sections 3 and 5.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from typing import Any

from ethogram.inference.networks.ags import Vertices, ascend
from ethogram.inference.networks.anytime import Task, score_states, until
from ethogram.inference.networks.mixed_product import ARGMAX_OF, mixed_product, smoothed_tables
from ethogram.inference.networks.samples import draw_states
from ethogram.models.held_warnings import held_warnings
from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.networks.marginal_map import MarginalMAP
from ethogram.models.numpy_generator import numpy_generator

__all__ = ["ags", "mpbp", "mpbp_cavity", "smoothed_score"]


def ags(task: Task) -> None:
    """AGS: the vertex of the largest surrogate on smoothed tables; its probability scores it and never chooses it."""
    found, left = list[Vertices](), threading.Event()
    key, query, clock = task.key, task.query, task.incumbent.clock
    margin, steps = 0.02 * min(clock.left(), 5.0), 10**9 if task.max_steps is None else task.max_steps

    def stop(vertices: Vertices) -> bool:
        found[:] = [vertices]
        return left.is_set() or clock.left() <= margin

    def climb() -> None:
        tables = smoothed_tables(query.network)
        ascend(key, query, max_steps=steps, tables=tables, stop=stop)

    try:
        until(climb, clock)
    finally:
        left.set()  # after Ctrl-C too, so that the process does not wait for the time limit
        if found:
            task.offer(found[0].states[0], "gradient ascent")
        else:
            drawn = task.chosen(draw_states(numpy_generator(key), query))
            task.offer(drawn, "ancestral sample: the ascent was still compiling")


def _mixed(argmax_of: str, task: Task) -> None:
    """Mixed-product belief propagation on smoothed tables."""
    tables, stop = smoothed_tables(task.query.network), task.incumbent.clock.over
    sweeps = task.max_steps or 1000
    found = mixed_product(task.query, argmax_of=argmax_of, tables=tables, max_sweeps=sweeps, stop=stop)
    task.offer(found, "mixed-product belief propagation")


mpbp, mpbp_cavity = (functools.partial(_mixed, argmax_of) for argmax_of in ARGMAX_OF)


def smoothed_score(query: MarginalMAP, states: Any, most_cells: int) -> float:
    """Log probability of an assignment in the network whose zeros are 1e-4, as the paper reports it."""
    network = query.network
    tables = smoothed_tables(network)
    with held_warnings():  # the network itself has warned of its rows
        smooth = BayesNet(tables, network.parents, network.names, None, network.log_constant)
    return score_states(dataclasses.replace(query, network=smooth), states, most_cells)[0]
