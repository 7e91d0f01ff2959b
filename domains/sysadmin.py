"""SysAdmin: computers in a network that fail, the more neighbours are down the likelier, and one to reboot at a time.

A running computer goes on running with probability .45 + .5 (1 + neighbours running) / (1 + neighbours); one that is
down comes up by itself with probability `reboot`. A reboot makes it run for sure, and costs `penalty`. The reward is
the number of computers that run.

Guestrin, Koller, Parr (2001), "Max-norm projections for factored MDPs", in the form of the first instances of the
International Probabilistic Planning Competition of 2011.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ethogram.models.arguments import read_array, require_integer, require_number
from ethogram.models.planning import ExpressionGraph, PlanningProblem, compile_program, limited_actions

__all__ = ["sysadmin"]


def sysadmin(
    num_computers: int = 10,
    connections: Iterable[tuple[int, int]] | None = None,
    *,
    limit: int = 1,
    reboot: float = 0.05,
    penalty: float = 0.75,
    horizon: int = 40,
) -> PlanningProblem:
    """The problem of a network of computers.

    Parameters
    ----------
    num_computers : number of computers, all of which run at the start.
    connections : pairs (from, to): the failure of the first makes the second likelier to fail; a ring both ways by
        default.
    limit : most computers to reboot at a time.
    reboot : probability that a computer comes up by itself.
    penalty : cost of a reboot.
    horizon : number of steps.
    """
    require_integer("num_computers", num_computers, 1)
    require_integer("limit", limit, 1)
    require_integer("horizon", horizon, 1)
    reboot = require_number("reboot", reboot, 0, 1)
    penalty = require_number("penalty", penalty, 0)
    if connections is None:
        ring = [(i, (i + 1) % num_computers) for i in range(num_computers) if num_computers > 1]
        connections = {*ring, *((b, a) for a, b in ring)}
    into: list[set[int]] = [set() for _ in range(num_computers)]
    if not isinstance(connections, Iterable):
        raise TypeError(f"connections is {connections!r}: give pairs of numbers")
    for pair in connections:
        both = read_array("connections", pair)
        if both.shape != (2,) or not set(both.tolist()) <= set(range(num_computers)) or both[0] == both[1]:
            raise ValueError(f"connections has {pair!r}: expected two numbers from 0 to {num_computers - 1}")
        into[int(both[1])].add(int(both[0]))
    graph = ExpressionGraph()
    fluents = tuple(f"running___c{i + 1}" for i in range(num_computers))
    actions = tuple(f"reboot___c{i + 1}" for i in range(num_computers))
    running = [graph.input(name) for name in fluents]
    rebooted = [graph.input(name) for name in actions]
    nexts = []
    for i in range(num_computers):
        share = 0.5 / (1 + len(into[i]))
        stays = graph.add([(share, running[j]) for j in sorted(into[i])], 0.45 + share)
        alone = graph.choose(running[i], stays, graph.constant(reboot))
        nexts.append(graph.choose(rebooted[i], graph.constant(1.0), alone))
    reward = graph.add([(1.0, each) for each in running] + [(-penalty, each) for each in rebooted])
    program = compile_program(graph, fluents, actions, nexts, reward, graph.constant(0.0))
    return PlanningProblem(
        "sysadmin",
        f"{num_computers} computers",
        fluents,
        actions,
        np.ones(num_computers),
        program,
        limited_actions(fluents, actions, limit),
        horizon,
        1.0,
    )
