"""The wait for a role HMM with covariates: CPU seconds of its fit, and a gradient of a long chain.

Every fit is by Laplace's approximation, in a new process, and counts from the end of the imports: cold, with nothing
compiled, and warm, of other data of the same size in the same process. Rows also have the programs that were compiled
and the wall seconds that JAX says of tracing, lowering and compiling them. Data of animals are those of
`benchmarks.papers.covariates`: 10 of 2 000 steps and two covariates; 50 of 200 steps that differ, with all four. Steps
and turns are of 10 animals of 500 steps, choices of 20 sessions of 200 trials, both of three states.

The gradient is that of the log likelihood of one chain in single precision, with one matrix per step over that with a
fixed one: medians of five, interleaved.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import ethogram
from benchmarks import report
from benchmarks.papers.covariates import OFF, STATES, fitted, planted
from benchmarks.speed.timing import Contender, compare
from ethogram.models.chains.markov_chain import log_normalizer

__all__ = ["measure"]

GRADIENT = 2.5
"""Target of the gradient's CPU time over that of the fixed chain."""
PHASES = ("jaxpr_trace", "jaxpr_to_mlir_module", "backend_compile")
TWO = "temperature + noise"


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of fits, cold and warm, and of the gradient."""
    names = ["choices"] if settings.quick else [*FITS]
    if settings.size is not None:
        names = [settings.size]
    rows = [row for name in names for row in waits(name, settings.seed)]
    return (
        rows if settings.size else [*rows, gradient(10**4 if settings.quick else 10**6, settings.rounds or 5)]
    )


def waits(name: str, seed: int) -> list[dict[str, Any]]:
    """Rows of the first fit of a process, and of the second."""
    command = [sys.executable, "-m", "benchmarks.speed.covariates", "--fits", name, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"the fits of {name} failed:\n{done.stderr}")
    rows = []
    for kind, target, took in zip(
        ("cold", "warm"), FITS[name][1], json.loads(done.stdout.splitlines()[-1]), strict=True
    ):
        row = {"size": name, "kind": kind, **took}
        rows.append(row if target is None else row | {"target": target, "reached": took["value"] <= target})
    return rows


def two_fits(name: str, seed: int) -> list[dict[str, Any]]:
    """What two fits take, of data of one size."""
    phases: collections.Counter[str] = collections.Counter()

    def listen(event: str, seconds: float, **_: Any) -> None:
        for phase in PHASES:
            if event.endswith(phase + "_duration"):
                phases[phase] += seconds
                phases["programs"] += phase == "backend_compile"

    jax.monitoring.register_event_duration_secs_listener(listen)
    found = []
    for each in range(2):
        model, data = FITS[name][0](seed + each)
        phases.clear()
        wall, cpu = time.perf_counter(), time.process_time()
        fit = fitted(model, data, seed + each)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        found.append(
            {
                "value": cpu,
                "wall_s": wall,
                "programs": phases["programs"],
                "trace_s": phases[PHASES[0]] + phases[PHASES[1]],
                "compile_s": phases[PHASES[2]],
                "k": fit.result.pareto_k,
            }
        )
    return found


def animals(seed: int) -> tuple[Any, Any]:
    """Model and data of ten animals, with two covariates."""
    model, made, _ = planted(seed, 10, 2000, 0.5)
    return ethogram.RoleHMM(STATES, model.emission, transition=ethogram.Covariates(TWO)), made.data


def that_differ(seed: int) -> tuple[Any, Any]:
    """Model and data of fifty animals with log odds of their own."""
    model, made, _ = planted(seed, 50, 200, 0.5)
    return model, made.data


def steps_and_turns(seed: int) -> tuple[Any, Any]:
    """Model and data of step lengths and turning angles of ten animals."""
    _, made, _ = planted(seed, 10, 500, 0.0)
    rng, states = np.random.default_rng(seed), np.asarray(made.states)
    step = rng.gamma(3.0, np.array([1.0, 4.0, 10.0])[states] / 3)
    turn = rng.vonmises(np.array([0.0, 1.0, 0.0])[states], np.array([1.0, 3.0, 8.0])[states])
    emission = ethogram.ProductEmission(
        {"step": ethogram.GammaEmission(), "turn": ethogram.VonMisesEmission()}
    )
    data = made.data._replace(observations=np.stack([step, turn], axis=-1))
    return ethogram.RoleHMM(STATES, emission, transition=ethogram.Covariates(TWO)), data


def choices(seed: int) -> tuple[Any, Any]:
    """Model and data of choices that follow a stimulus in one state, and a side in two."""
    rng = np.random.default_rng(seed)
    state = np.repeat(rng.integers(0, 3, (20, 10)), 20, axis=1)
    stimulus = rng.normal(size=state.shape)
    eta = np.array([0.0, -1.5, 1.5])[state] + np.array([4.0, 1.0, 0.0])[state] * stimulus
    made = (rng.uniform(size=eta.shape) < 1 / (1 + np.exp(-eta))).astype(float)
    data = ethogram.Trajectories.from_list(list(made[..., None]), covariates={"stimulus": list(stimulus)})
    return ethogram.RoleHMM(3, ethogram.ChoiceEmission("stimulus")), data


FITS: dict[str, tuple[Any, tuple[float | None, float | None]]] = {
    "10 animals x 2 000, 2 covariates": (animals, (6, 1)),
    "50 animals x 200, they differ": (that_differ, (25, 8)),
    "steps and turns": (steps_and_turns, (None, None)),
    "choices": (choices, (None, None)),
}
"""Data, and targets in CPU seconds of the cold and the warm fit."""


def gradient(steps: int, rounds: int) -> dict[str, Any]:
    """Row of the gradient with one matrix per step over that with a fixed one."""
    rng = np.random.default_rng(0)
    likelihood = rng.normal(size=(1, steps, STATES)).astype(np.float32)
    column = rng.normal(size=(1, steps)).astype(np.float32)
    odds = np.where(OFF, -2.5, 0).astype(np.float32)

    def fixed(odds: Any, effect: Any, likelihood: Any, column: Any) -> Any:
        return log_normalizer(jnp.zeros(STATES), jax.nn.log_softmax(odds + 0 * effect), likelihood).sum()

    def driven(odds: Any, effect: Any, likelihood: Any, column: Any) -> Any:
        eta = odds + effect * column[:, :-1, None, None]
        return log_normalizer(jnp.zeros(STATES), jax.nn.log_softmax(eta), likelihood).sum()

    arguments = odds, (0.3 * OFF).astype(np.float32), likelihood, column
    both = {
        each.__name__: Contender(jax.jit(jax.grad(each, argnums=(0, 1))), arguments)
        for each in (fixed, driven)
    }
    times = compare(both, rounds=rounds)
    ratio = float(np.median(times["driven"].cpu / times["fixed"].cpu))
    return {
        "size": f"gradient of {steps} steps",
        "kind": "over a fixed chain's",
        "value": ratio,
        "driven_ms": 1e3 * float(np.median(times["driven"].cpu)),
        "fixed_ms": 1e3 * float(np.median(times["fixed"].cpu)),
        "target": GRADIENT,
        "reached": ratio <= GRADIENT,
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["--fits"]:
        print(json.dumps(two_fits(sys.argv[2], int(sys.argv[3]))))
    else:
        raise SystemExit(report.run("covariates_speed", __doc__, measure, speed=True, sizes=list(FITS)))
