"""Speed of forward marginals and their gradient: the blocked kernel against a scan over levels, differentiated.

Half of the variables are MAP variables (set 0 of the stored queries), 256 restarts side by side, double precision, on
one core. The first call includes compilation; peak memory is that of one warm call.
"""

from __future__ import annotations

import argparse
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from benchmarks import report
from benchmarks.one_core import one_core
from benchmarks.papers import network_files as files
from benchmarks.speed import forward_marginals_reference as reference
from benchmarks.speed.timing import Contender, compare, peak_memory, speed_row
from ethogram.inference.networks.forward_layout import BlockShape, Layout, lay_out
from ethogram.inference.networks.forward_marginals import log_value

__all__ = ["TARGETS", "kernel", "measure", "measure_instance"]

TARGETS = {"50-12-5": 8.0, "50-20-10": 10.0, "mastermind_03_08_03-0001": 14.0}
RESTARTS = 256
COMPILE, MEMORY = 3.0, 1024.0
WRONG = 1e-9


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Two rows per network: gradients against the mapped form, and the cost of the first call."""
    if files.folder() is None:
        return [{"size": "-", "note": "skipped: no folder bayes_nets under ETHOGRAM_DATA"}]
    if settings.size is not None and settings.size not in TARGETS:
        raise SystemExit(f"--size: {settings.size!r} is none of {', '.join(TARGETS)}")
    names = [settings.size] if settings.size else list(TARGETS)[: 1 if settings.quick else None]
    with one_core(), jax.enable_x64(True):
        rounds = settings.rounds or (3 if settings.quick else 9)
        return [row for name in names for row in measure_instance(name, rounds, settings.seed)]


@functools.partial(jax.jit, static_argnames="shapes")
def kernel(layout: Layout, shapes: tuple[BlockShape, ...], weights: Array) -> tuple[Array, Array]:
    """Ln V (restart,) and its gradient (weight, state - 1, restart)."""
    value, gradient_of = jax.vjp(lambda weights: log_value(layout, shapes, weights), weights)
    return value, gradient_of(jnp.ones_like(value))[0]


def measure_instance(name: str, rounds: int, seed: int) -> list[dict[str, Any]]:
    """Rows of one network."""
    query = files.load(files.StoredQuery(name, "0.5", 0))
    plain, shapes = lay_out(query)
    layout, levels = (jax.tree.map(jnp.asarray, each) for each in (plain, reference.by_levels(plain)))
    mapped = jax.jit(reference.value_and_gradient)
    drawn = (
        np.random.default_rng(seed).random((*plain.prior_rows.shape, RESTARTS))
        * plain.valid_states[..., None]
    )
    weights = jnp.asarray(drawn)

    def ours(layout: Layout, weights: Array) -> Any:
        return kernel(layout, shapes, weights)

    contenders = {
        "kernel": Contender(ours, (layout, weights)),
        "mapped": Contender(mapped, (levels, weights[:, 0])),
    }
    timings = compare(contenders, rounds=rounds)
    (value, gradient), (other, slope) = ours(layout, weights), mapped(levels, weights[:, 0])
    valid = np.asarray(plain.valid_variables)
    error = max(
        float(np.max(np.abs(np.asarray(value) - np.asarray(other)) / np.abs(np.asarray(other)))),
        float(
            np.max(np.abs(np.asarray(gradient)[valid, 0] - np.asarray(slope)[valid])) / np.max(np.abs(slope))
        ),
    )
    timing = timings["kernel"]
    common = {
        "instance": f"{name}@0.5",
        "restarts": RESTARTS,
        "blocks": int(plain.num_blocks),
        "correct": error < WRONG,
    }
    peak = peak_memory(contenders["kernel"])
    rate = RESTARTS / float(np.median(timing.cpu))
    common |= {"gradients_per_second": rate, "first_call_s": timing.first_call}
    return [
        speed_row(
            name, "scan over levels, mapped", "float64", timing, timings["mapped"], target=TARGETS[name],
            error=error, peak_mb=peak, **common,
        ),
        {
            "size": name, "peer": "none", "dtype": "float64", **common, "compile_s": timing.first_call,
            "peak_mb": peak, "target": COMPILE, "note": "first call in seconds, peak below a gigabyte",
            "reached": timing.first_call <= COMPILE and (peak is None or peak <= MEMORY),
        },
    ]  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(report.run("forward_marginals", __doc__, measure, speed=True))
