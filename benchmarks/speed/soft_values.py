"""Speed of soft values and of likelihood gradients, against value iteration in NumPy and optimal values by quantecon.

Ours is `soft_values` compiled with the MDP as an argument; the gradient is that of the log likelihood of counted
decisions. Value iteration stops when no value changes by more than 1e-6, ours at a relative error of 1e-7: both errors
are in the rows, relative to Newton's method with sparse factors (in single precision, of the rounded MDP). quantecon
solves for optimal instead of soft values, which is the easier problem, to the residual of the sweeps; it has no
gradient.

MDPs are square grids with objects and five moves, and (90 states) Rust's bus engine. Further rows: a batch of 64
rewards beside a loop over them, and the cost per transition as the number of states grows, which should be constant.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks import report
from benchmarks.peers import why_skipped
from benchmarks.speed.soft_values_reference import (
    QUANTECON,
    Problem,
    draw_problem,
    exact,
    iterate_values,
    log_likelihood,
    quantecon_solver,
    rounded,
)
from benchmarks.speed.timing import Contender, Timing, compare, peak_memory, speed_row
from ethogram.models.mdps.mdp import MDP
from ethogram.models.mdps.values import SoftSolution, soft_values

__all__ = ["SIZES", "measure", "measure_batch", "measure_linearity", "measure_size"]

SIZES = {
    "256/.9": (256, 0.9),
    "1024/.9": (1024, 0.9),
    "1024/.99": (1024, 0.99),
    "400/.95": (400, 0.95),
    "10000/.99": (10_000, 0.99),
    "90/.9999": (90, 0.9999),
}
QUICK_SIZES = ("256/.9", "90/.9999")
QUICK_LINEAR = (256, 1024)
GRADIENT_TARGETS = {"256/.9": 8.0, "1024/.9": 8.0, "1024/.99": 20.0}
QUANTECON_TARGETS = {"400/.95": 9.0, "10000/.99": 4.0}
MOST_STEPS = 15
SWEPT_UP_TO = 0.999
"""Discounts up to which sweeps are worth waiting for in quick runs."""
BATCH = 64
BATCHED = ("256/.9", "1024/.9")
LINEAR = (1024, 4096, 16_384, 65_536)
GROWTH = 1.5
TOL, RESIDUAL = 1e-7, 1e-6
WRONG = {"float64": 1e-6, "float32": 1e-4}


@jax.jit
def our_values(world: MDP, reward: Array) -> SoftSolution:
    return soft_values(world, reward, tol=TOL)


@jax.jit
def our_gradient(world: MDP, reward: Array, counts: Array) -> Any:
    """Log likelihood and the steps behind it, and the gradient."""

    def likelihood(reward):
        found = soft_values(world, reward, tol=TOL)
        return jnp.sum(counts * found.log_policy), jnp.max(found.steps)

    return jax.value_and_grad(likelihood, has_aux=True)(reward)


def read(problem: Problem, dtype: str) -> tuple[MDP, Array, Array]:
    """World, reward and counts for ours."""
    world = MDP.sparse(problem.successors, problem.chances.astype(dtype), discount=problem.discount)
    return world, jnp.asarray(problem.reward, dtype), jnp.asarray(problem.counts, dtype)


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of every size and precision, then of batches and of growth."""
    quick, rounds = settings.quick, settings.rounds or (3 if settings.quick else 9)
    if settings.size is not None and settings.size not in SIZES:
        raise SystemExit(f"--size: {settings.size!r} is none of {', '.join(SIZES)}")
    names = [settings.size] if settings.size else (QUICK_SIZES if quick else tuple(SIZES))
    rows: list[dict[str, Any]] = []
    for dtype in [settings.dtype] if settings.dtype else ["float64", "float32"]:
        with jax.enable_x64(dtype == "float64"):
            for name in names if dtype == "float64" or not quick else names[:1]:
                problem = draw_problem(settings.seed, *SIZES[name])
                swept = not quick or (problem.discount < SWEPT_UP_TO and dtype == "float64")
                rows += measure_size(name, problem, dtype, rounds, swept)
            if dtype == "float32" and settings.dtype is None:
                continue
            for name in BATCHED[:1] if quick else BATCHED:
                if name in names:
                    problem = draw_problem(settings.seed, *SIZES[name])
                    rows.append(measure_batch(name, problem, dtype, rounds, settings.seed))
            if settings.size is None:
                rows += measure_linearity(QUICK_LINEAR if quick else LINEAR, dtype, rounds, settings.seed)
    return rows


def measure_size(
    name: str, problem: Problem, dtype: str, rounds: int, swept: bool = True
) -> list[dict[str, Any]]:
    """Rows of one world: values and gradients beside sweeps, values beside quantecon, and the number of steps.

    Without sweeps, which near a discount of one take a while, there is no gradient.
    """
    world, reward, counts = read(problem, dtype)
    contenders = {"value": Contender(our_values, (world, reward))}
    notes, hard = {}, {}
    if swept:
        contenders["gradient"] = Contender(our_gradient, (world, reward, counts))
        contenders["NumPy sweeps"] = Contender(iterate_values, (problem, problem.reward, RESIDUAL))
        contenders["NumPy sweeps and visits"] = Contender(log_likelihood, (problem, problem.reward, RESIDUAL))
    else:
        notes = dict.fromkeys(("NumPy sweeps", "NumPy sweeps and visits"), "skipped in quick runs")
    for method in QUANTECON:
        peer = f"quantecon {method.replace('_', ' ')} (hard)"
        why = why_skipped("quantecon.markov")
        if why is not None:
            notes[peer] = why
        elif swept or method != "value_iteration":
            hard[peer] = contenders[peer] = Contender(quantecon_solver(problem, method, RESIDUAL))
    timings = compare(contenders, rounds=rounds)
    truth = rounded(problem, dtype)
    values, slope = exact(truth, truth.reward)
    found = our_values(world, reward)
    errors = {"value": relative_error(found.values, values)}
    if swept:
        errors["gradient"] = relative_error(our_gradient(world, reward, counts)[1], slope)
    peaks = {kind: peak_memory(contenders[kind]) for kind in errors}
    common = {"discount": problem.discount, "transitions": problem.successors.size, "steps": int(found.steps)}

    def row(peer: str, kind: str, target: float | None = None, **more: Any) -> dict[str, Any]:
        more |= {"what": kind, "correct": bool(found.converged) and errors[kind] < WRONG[dtype], **common}
        more |= {"error": errors[kind], "peak_mb": peaks[kind], "target": target}
        return speed_row(name, peer, dtype, timings[kind], timings[peer], **more)

    rows = []
    if swept:
        values, slope = exact(problem, problem.reward)
        swept_values, _, sweeps = iterate_values(problem, problem.reward, RESIDUAL)
        columns = {"peer_steps": sweeps, "peer_error": relative_error(swept_values, values)}
        rows.append(row("NumPy sweeps", "value", **columns))
        theirs = log_likelihood(problem, problem.reward, RESIDUAL)[1]
        columns["peer_error"] = relative_error(theirs, slope)
        wanted = GRADIENT_TARGETS.get(name) if dtype == "float64" else None
        rows.append(row("NumPy sweeps and visits", "gradient", wanted, **columns))
    rows += [row(peer, "value") for peer in hard]
    if hard:
        best = min(hard, key=lambda peer: float(np.median(timings[peer].cpu)))
        wanted = QUANTECON_TARGETS.get(name) if dtype == "float64" else None
        rows.append(
            row(best, "value", wanted) | {"peer": f"best of quantecon: {best.removeprefix('quantecon ')}"}
        )
    for peer, note in notes.items():
        rows.append({"size": name, "peer": peer, "dtype": dtype, **common, "note": note})
    own = {"ours_ms": milliseconds(timings["value"]), "error": errors["value"]}
    own |= {
        "what": "steps",
        "correct": bool(found.converged) and errors["value"] < WRONG[dtype],
        "target": MOST_STEPS,
        "reached": common["steps"] <= MOST_STEPS,
    }
    rows.append({"size": name, "peer": "none", "dtype": dtype, **own, **common})
    return rows


def relative_error(found: Any, truth: np.ndarray) -> float:
    """The largest difference, relative to the largest entry."""
    return float(np.max(np.abs(np.asarray(found) - truth)) / np.max(np.abs(truth)))


def milliseconds(timing: Timing) -> float:
    return 1e3 * float(np.median(timing.cpu))


def measure_batch(name: str, problem: Problem, dtype: str, rounds: int, seed: int) -> dict[str, Any]:
    """Gradients of many rewards at once beside as many one by one: what each takes, and that nothing is lost by it."""
    world, reward, counts = read(problem, dtype)
    noise = np.random.default_rng(seed).normal(size=(BATCH, *reward.shape))
    rewards = reward + jnp.asarray(noise, dtype)
    one, many = (
        Contender(our_gradient, (world, rewards[0], counts)),
        Contender(our_gradient, (world, rewards, counts)),
    )
    timings = compare({"one": one, "many": many}, rounds=rounds)
    single = timings["one"]._replace(cpu=BATCH * timings["one"].cpu, wall=BATCH * timings["one"].wall)
    each = milliseconds(timings["many"]) / BATCH
    steps = int(our_gradient(world, rewards, counts)[0][1])
    columns = {"discount": problem.discount, "what": "gradient", "steps": steps, "each_ms": each}
    peer = f"ours, {BATCH} one by one"
    return speed_row(f"{name} x {BATCH}", peer, dtype, timings["many"], single, **columns)


def measure_linearity(
    totals: tuple[int, ...], dtype: str, rounds: int, seed: int, discount: float = 0.9
) -> list[dict[str, Any]]:
    """Gradients in worlds of more and more states beside the smallest, scaled by transitions."""
    contenders = {}
    for total in totals:
        problem = draw_problem(seed, total, discount)
        world, reward, counts = read(problem, dtype)
        contenders[str(total)] = Contender(our_gradient, (world, reward, counts))
    timings = compare(contenders, rounds=rounds)
    steps = {total: int(one.function(*one.arguments)[0][1]) for total, one in contenders.items()}
    first, rows = totals[0], []
    for total in totals[1:]:
        times, least = total / first, timings[str(first)]
        scaled = least._replace(cpu=least.cpu * times, wall=least.wall * times)
        columns = {
            "discount": discount,
            "transitions": 25 * total,
            "steps": steps[str(total)],
            "what": "gradient",
        }
        columns["peer_steps"] = steps[str(first)]
        size, peer = f"{total} states", f"linear from {first} states"
        rows.append(speed_row(size, peer, dtype, timings[str(total)], scaled, target=1 / GROWTH, **columns))
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("soft_values", __doc__, measure, speed=True, peers=("scipy", "quantecon")))
