"""A belief about intents that keeps up with an agent: milliseconds a step, and compilations after the first.

Agents of random parameters, up to 50 intents and 500 states, one or a hundred at a time. Target: a median below a
millisecond for one, and no compilation.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import jax
import numpy as np

from benchmarks import report
from ethogram.inference.intents import IntentBelief
from ethogram.models.intents import AgentMarkov
from ethogram.models.intents.updates import drawn_parameters

__all__ = ["measure"]

SIZES = {"small": (5, 25), "medium": (20, 100), "large": (50, 500)}
ACTIONS, TARGET_MS = 5, 1.0


class _Drawn:
    """Parameters of the prior in place of a posterior."""

    def __init__(self, model: AgentMarkov, key: Any):
        self.model, self.parameters = model, drawn_parameters(model, key)

    def mean(self) -> dict[str, Any]:
        return self.parameters


def measure(settings: argparse.Namespace) -> list[report.Row]:
    """Rows of the benchmark."""
    rows: list[report.Row] = []
    for name, (intents, states) in SIZES.items():
        if settings.size in (None, name):
            for agents in (1, 100):
                rows.append(_row(name, intents, states, agents, settings))
    return rows


def _row(name: str, intents: int, states: int, agents: int, settings: argparse.Namespace) -> report.Row:
    model = AgentMarkov(states, ACTIONS, truncation=intents, stickiness=None)
    belief = IntentBelief.start(
        _Drawn(model, jax.random.key(settings.seed)), () if agents == 1 else (agents,)
    )
    random = np.random.default_rng(settings.seed)
    count = 500 if settings.quick else 10_000
    shape = (count, *(() if agents == 1 else (agents,)))
    passed, taken = random.integers(0, states, shape), random.integers(0, ACTIONS, shape)
    begin = time.perf_counter()
    belief, _ = belief.step(passed[0], taken[0])
    compile_s = time.perf_counter() - begin
    compiled: list[str] = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: compiled.append(event) if event.endswith("backend_compile_duration") else None
    )
    spent = []
    for state, action in zip(passed[1:], taken[1:], strict=True):
        begin = time.perf_counter()
        belief, reported = belief.step(state, action)
        jax.block_until_ready(reported)
        spent.append(1e3 * (time.perf_counter() - begin))
    jax.monitoring.clear_event_listeners()
    median = float(np.median(spent))
    return {
        "size": name,
        "intents": intents,
        "states": states,
        "agents": agents,
        "median_ms": median,
        "p99_ms": float(np.quantile(spent, 0.99)),
        "compile_s": compile_s,
        "compilations_after": len(compiled),
        "target": f"{TARGET_MS:g} ms, 0 compilations" if agents == 1 else None,
        "reached": (median < TARGET_MS and not compiled) if agents == 1 else None,
    }


if __name__ == "__main__":
    raise SystemExit(report.run("live_belief", __doc__, measure, speed=True, sizes=tuple(SIZES)))
