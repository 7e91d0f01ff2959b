"""Speed of the agent Markov model: CAVI iterations, the E-step, and projections of constrained rows.

Sizes `S..-K..` are one CAVI iteration (local step, ELBO, weights, constraints) on 100 random walks of 100 steps, with
visited rows only and "the mean probability of staying is at least .9" in a tenth of the states. The peer is the same
iteration in NumPy and SciPy, with SLSQP row by row; a sample of its rows is timed and scaled to all of them
(`peer_slsqp_ms` of `peer_ms`). The iteration is the third of a fit, so that ours starts projections at the last ones,
as fits do; `projection-...` has no earlier ones. pyhsmm has no transition rows by state and action, and cannot be
installed with this NumPy. `small`, `medium` and `large` are the E-step alone against the smoothers of dynamax, which
get one transition matrix per time step, and whose pair statistics are then summed by row. Both return the log
normaliser and all counts. `steps` is the scaling of an iteration with the data: the ratio is the cost per time step at
one size to that at ten times as many. `memory` compares data of equal size that visit few rows or many.
`projection-...` are 10,000 rows of 11 entries against SLSQP.
"""

from __future__ import annotations

import argparse
import itertools
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import report
from benchmarks.peers import why_skipped
from benchmarks.speed import agent_markov_reference as plain
from benchmarks.speed.timing import Contender, Timing, compare, peak_memory, ratio, speed_row
from ethogram.inference.conjugate.starts import start_blocks
from ethogram.inference.conjugate.steps import iterations_of
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.families.exponential_family import DirichletCoordinates, expected_statistics
from ethogram.models.families.projection import project_rows
from ethogram.models.intents import AgentMarkov, IntentConstraints

__all__ = ["E_STEPS", "SIZES", "measure"]

ACTIONS = 3
PRIOR = (3.0, 3.0, 1.0)  # alpha, gamma, rho
SWEEPS = {f"S{states}-K{intents}": (states, intents) for states in (5, 200, 5000) for intents in (5, 10, 20)}
WALKS = (100, 100)  # traces, steps
E_STEPS = {"small": (5, 20, 5, 5, 3), "medium": (80, 500, 5, 127, 4), "large": (2000, 100, 10, 200, 3)}
"""Traces, steps, intents, states and actions; every pair of these is a row."""
E_STEP_TARGETS = {"small": 1.0, "medium": 4.5, "large": 4.3}
STEPS = (10_000, 100_000, 1_000_000)
PROJECTIONS = {"projection-equal": ("equal",), "projection-mixed": ("equal", "least", "most", "between")}
SIZES = (*SWEEPS, *E_STEPS, "steps", "memory", *PROJECTIONS)
QUICK = ("S5-K5", "small", "steps", *PROJECTIONS)
SLSQP_ROWS = 50
CHECKED_STEPS = 100_000
WRONG = {"float64": 1e-8, "float32": 1e-3}


one_sweep = jax.jit(iterations_of)


class Fit(NamedTuple):
    """A model with data, between two iterations."""

    model: AgentMarkov
    blocks: Any  # with a leading axis of one restart
    batch: Any
    traces: plain.Traces
    compile_s: float = 0.0


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of the requested sizes."""
    if settings.size is not None and settings.size not in SIZES:
        raise SystemExit(f"--size must be one of {', '.join(SIZES)}, not {settings.size!r}")
    sizes = (QUICK if settings.quick else SIZES) if settings.size is None else (settings.size,)
    rounds = settings.rounds or (3 if settings.quick else 9)
    dtype = settings.dtype or "float64"
    rows = []
    with jax.enable_x64(dtype == "float64"):
        for size in sizes:
            rows += _measure_size(size, dtype, rounds, settings.seed, settings.quick)
    return rows


def _measure_size(size: str, dtype: str, rounds: int, seed: int, quick: bool) -> list[dict[str, Any]]:
    if size in SWEEPS:
        return measure_sweep(size, *SWEEPS[size], WALKS, dtype, rounds, seed)
    if size in E_STEPS:
        return measure_e_step(size, E_STEPS[size], dtype, rounds, seed)
    if size == "steps":
        shape = (5, 5, STEPS[:2]) if quick else (200, 10, STEPS)
        return measure_linearity(*shape, dtype, rounds, seed)
    if size == "memory":
        return measure_memory(5000, 5 if quick else 10, 10_000 if quick else 100_000, dtype, seed)
    return measure_projection(size, PROJECTIONS[size], 1000 if quick else 10_000, dtype, rounds, seed)


def bind(seed: int, sizes: tuple[int, int, int], walks: tuple[int, int], **options: Any) -> Fit:
    """A model bound to random walks, for a number of states, actions and intents; without blocks."""
    num_states, num_actions, intents = sizes
    states, actions = (x.astype(np.int32) for x in plain.draw_walks(seed, num_states, num_actions, walks))
    lengths = np.full(walks[0], walks[1], np.int32)
    data = Trajectories(None, states, actions, lengths, np.ones(walks, bool))
    num_states = options.pop("num_states", num_states)
    model = AgentMarkov(num_states, num_actions, intents, *PRIOR, stickiness=None, **options).bind(data)
    batch = _on_device(model.arrange(data))
    state, action = np.divmod(np.asarray(batch.observations), num_actions)
    pair = np.asarray(model.rows_carried().row_pair)[np.asarray(batch.rows)[:, :-1]]
    return Fit(model, None, batch, plain.Traces(state, action, pair))


def begin(fit: Fit, seed: int) -> Fit:
    """The same, two iterations after a sticky start."""
    key = jax.random.key(seed)
    fit = fit._replace(blocks=start_blocks(key, fit.model, fit.model.prior(), [fit.batch], 1, "sticky"))
    start = time.perf_counter()
    blocks = jax.block_until_ready(_called(sweep_of(fit, 2)))[0]
    return fit._replace(blocks=blocks, compile_s=time.perf_counter() - start)


def _called(contender: Contender) -> Any:
    return contender.function(*contender.arguments)


def sweep_of(fit: Fit, limit: int = 1) -> Contender:
    """CAVI iterations as the engine runs them."""
    latest, going = jnp.full(1, -jnp.inf), jnp.ones(1, bool)
    model = _on_device(fit.model)
    return Contender(
        one_sweep,
        (
            model,
            model.prior(),
            [fit.batch],
            fit.blocks,
            [()],
            going,
            latest,
            jnp.zeros_like(latest),
            -jnp.inf,
            0,
            limit,
            float(np.prod(fit.batch.observed.shape)),
            jnp.inf,
        ),
    )


def _on_device(tree: Any) -> Any:
    return jax.tree.map(jnp.asarray, tree)


def tables_of(fit: Fit) -> plain.Tables:
    """The blocks of q in float64, without spare rows."""
    blocks = jax.tree.map(lambda x: x[0], fit.blocks)
    rows = {name: block.standard() for name, block in blocks.items() if name != "weights"}
    parts = {name: np.asarray(part.concentration, float) for name, part in rows.items()}
    parts["transition"] = parts["transition"][: len(fit.model.rows_carried().pairs)]
    return plain.Tables(np.asarray(blocks["weights"].natural, float), **parts)


def bounded_rows(fit: Fit) -> np.ndarray:
    """Mask (pair * intent,) of the rows with bounds."""
    visited = fit.model.rows_carried()
    mask = np.zeros(len(visited.pairs) * fit.model.truncation, bool)
    if visited.pair_bounds is not None:
        numbers = np.asarray(visited.pair_bounds.rows)
        mask[numbers[numbers < len(mask)]] = True
    return mask


@jax.jit
def local_step(model: AgentMarkov, expected: Any, batch: Any) -> tuple[jax.Array, Any]:
    """Log normaliser of the traces, and all expected counts."""
    return jax.value_and_grad(lambda e: model.log_normalizer(e, batch))(expected)


def found_by(fit: Fit, expected: Any) -> tuple[Any, ...]:
    """Log normaliser and counts of the rows with data, within the truncation."""
    value, statistics = local_step(_on_device(fit.model), expected, fit.batch)
    initial, transition, policy = (statistics[x].concentration for x in ("initial", "transition", "policy"))
    return value, initial[:-1], transition[: len(fit.model.rows_carried().pairs), :, :-1], policy


def disagreement(fit: Fit) -> float:
    """Largest relative difference of log normaliser, counts and ELBO from those in NumPy."""
    tables = tables_of(fit)
    truth = plain.local_step(tables, fit.traces)
    expected = expected_statistics(jax.tree.map(lambda x: x[0], fit.blocks))
    whole = plain.bound(truth[0], tables, *PRIOR)
    gap = abs(float(_called(sweep_of(fit))[3][0]) - whole) / abs(whole)
    return max(gap, plain.relative_error(found_by(fit, expected), truth))


def measure_sweep(
    size: str, num_states: int, intents: int, walks: tuple[int, int], dtype: str, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """One iteration, against NumPy and SLSQP."""
    known = IntentConstraints.stay(np.arange(num_states) % 10 == 0, at_least=0.9)
    fit = begin(bind(seed, (num_states, ACTIONS, intents), walks, constraints=known), seed)
    bounded, ours = bounded_rows(fit), sweep_of(fit)
    peer = Contender(plain.sweep, (tables_of(fit), fit.traces, *PRIOR, bounded))
    free = _called(peer)[1].transition.reshape(-1, intents + 1)[bounded]
    bounds = fit.model.rows_carried().pair_bounds
    some = np.random.default_rng(seed).permutation(len(free))[:SLSQP_ROWS]
    lower, upper = (np.asarray(x)[some] for x in (bounds.lower, bounds.upper))
    projecting = Contender(plain.project_rows, (free[some], lower, upper))
    timings = compare({"ours": ours, "peer": peer, "slsqp": projecting}, rounds=rounds)
    slsqp = _scaled(timings["slsqp"], len(free) / len(some))
    both = slsqp._replace(cpu=timings["peer"].cpu + slsqp.cpu, wall=timings["peer"].wall + slsqp.wall)
    error = disagreement(fit)
    more = {"error": error, "peak_mb": peak_memory(ours), "correct": error < WRONG[dtype], "case": "sweep"}
    more |= {"visited_rows": len(fit.model.rows_carried().pairs), "bounded_rows": len(free)}
    more |= {"peer_slsqp_ms": 1e3 * float(np.median(slsqp.cpu)), "compile_s": fit.compile_s}
    more |= {"ratio_without_slsqp": ratio(timings["ours"], timings["peer"]).median}
    return [speed_row(size, "NumPy sweep, SLSQP by row", dtype, timings["ours"], both, **more)]


def _scaled(timing: Timing, factor: float) -> Timing:
    return timing._replace(cpu=timing.cpu * factor, wall=timing.wall * factor)


def measure_e_step(
    size: str, shape: tuple[int, ...], dtype: str, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """The local step at random rows, against dynamax with a matrix for each step."""
    num_traces, num_steps, intents, num_states, num_actions = shape
    fit = bind(seed, (num_states, num_actions, intents), (num_traces, num_steps), rows="all")
    rng = np.random.default_rng(seed)
    initial = rng.dirichlet(np.ones(intents))
    transition = rng.dirichlet(np.ones(intents), (num_states * num_actions, intents))
    policy = rng.dirichlet(np.ones(num_actions), (intents, num_states))
    tables = {"initial": np.append(initial, 0), "policy": policy}
    tables["transition"] = np.append(transition, np.zeros((*transition.shape[:-1], 1)), -1)
    with np.errstate(divide="ignore"):
        logs = {
            name: DirichletCoordinates(jnp.asarray(np.log(table), dtype)) for name, table in tables.items()
        }
    expected = {"weights": (), **logs}
    ours = Contender(local_step, (_on_device(fit.model), expected, fit.batch))
    host = [jnp.asarray(x, dtype) for x in (initial, transition, policy)]
    host += [jnp.asarray(x) for x in (fit.traces.pair, fit.traces.state, fit.traces.action)]
    peers = {"dynamax two-filter": "hmm_two_filter_smoother", "dynamax smoother": "hmm_smoother"}
    why = why_skipped("dynamax.hidden_markov_model.inference")
    if why is not None:
        return [{"size": size, "peer": name, "dtype": dtype, "note": why} for name in peers]
    contenders = {
        name: Contender(plain.dynamax_e_step(smoother), tuple(host)) for name, smoother in peers.items()
    }
    timings = compare({"ours": ours, **contenders}, rounds=rounds)
    truth = plain.messages(np.log(initial), np.log(transition), np.log(policy), fit.traces)
    error = plain.relative_error(found_by(fit, expected), truth)
    more = {"error": error, "peak_mb": peak_memory(ours), "correct": error < WRONG[dtype], "case": "e-step"}
    more |= {"visited_rows": len(transition), "target": E_STEP_TARGETS[size] if dtype == "float64" else None}
    rows = []
    for name, contender in contenders.items():
        gap = plain.relative_error(_called(contender), truth)
        rows.append(speed_row(size, name, dtype, timings["ours"], timings[name], **more, peer_error=gap))
    return rows


def measure_linearity(
    num_states: int, intents: int, totals: tuple[int, ...], dtype: str, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """An iteration and its local step with growing data on the same rows: the cost per step must not grow."""
    fits, contenders = {}, {}
    for total in totals:
        walks = (total // WALKS[1], WALKS[1])
        fit = begin(bind(seed, (num_states, ACTIONS, intents), walks, rows="all"), seed)
        expected = expected_statistics(jax.tree.map(lambda x: x[0], fit.blocks))
        fits[total] = fit
        contenders["sweep", total] = sweep_of(fit)
        contenders["local step", total] = Contender(local_step, (_on_device(fit.model), expected, fit.batch))
    timings = compare(contenders, rounds=rounds)
    rows = []
    for kind in ("sweep", "local step"):
        for fewer, total in itertools.pairwise(totals):
            ours, smaller = timings[kind, total], _scaled(timings[kind, fewer], total / fewer)
            error = disagreement(fits[total]) if total <= CHECKED_STEPS else None
            more = {"error": error, "peak_mb": peak_memory(contenders[kind, total]), "case": "linear"}
            more |= {"correct": error is None or error < WRONG[dtype], "target": 1 / 1.2}
            more |= {"us_a_step": 1e6 * float(np.median(ours.cpu)) / total, "steps": total}
            name = f"{kind}, from {fewer:.0e} to {total:.0e} steps"
            rows.append(speed_row("steps", name, dtype, ours, smaller, **more))
    return rows


def measure_memory(num_states: int, intents: int, total: int, dtype: str, seed: int) -> list[dict[str, Any]]:
    """Memory of an iteration on data of one size that visit few of the states, or many."""
    rows = []
    for share in (0.01, 1.0):
        sizes = (int(num_states * share), ACTIONS, intents)
        fit = begin(bind(seed, sizes, (total // WALKS[1], WALKS[1]), num_states=num_states), seed)
        contender = sweep_of(fit)
        visited, blocks = len(fit.model.rows_carried().pairs), _megabytes(fit.blocks)
        row = {"size": "memory", "peer": f"{total:.0e} steps", "dtype": dtype, "error": None}
        row |= {"peak_mb": peak_memory(contender), "case": "memory", "visited_rows": visited, "steps": total}
        row |= {"blocks_mb": blocks, "blocks_mb_of_all_rows": blocks / visited * num_states * ACTIONS}
        rows.append(row)
    few, many = rows  # memory grows with the visited rows, not with all possible ones
    fair = many["blocks_mb"] * few["visited_rows"] / many["visited_rows"]
    few["reached"] = bool(few["blocks_mb"] <= 1.5 * fair and (few["peak_mb"] or 0) <= (many["peak_mb"] or 0))
    return rows


def _megabytes(tree: Any) -> float:
    return sum(x.nbytes for x in jax.tree.leaves(tree)) / 2**20


def measure_projection(
    size: str, kinds: tuple[str, ...], count: int, dtype: str, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """All rows in one call, against SLSQP on some of them."""
    free, lower, upper = plain.draw_rows(seed, count, kinds)
    ours = Contender(project_rows, tuple(jnp.asarray(x, dtype) for x in (free, lower, upper)))
    some = min(SLSQP_ROWS, count)
    peer = Contender(plain.project_rows, (free[:some], lower[:some], upper[:some]))
    timings = compare({"ours": ours, "peer": peer}, rounds=rounds)
    found, theirs = _called(ours), _called(peer)
    row = np.asarray(found.concentration, float)
    mean = row / row.sum(-1, keepdims=True)
    error = float(np.maximum(lower - mean, mean - upper).max())
    kept = plain.keeps_to(theirs, lower[:some], upper[:some])
    theirs_at = plain.row_objective(theirs, free[:some])
    gain = ((plain.row_objective(row[:some], free[:some]) - theirs_at) / (1 + abs(theirs_at)))[kept]
    worse = float(-gain.min()) if kept.any() else 0.0
    more = {"error": error, "peak_mb": peak_memory(ours), "case": "projection", "bounded_rows": count}
    more |= {"correct": error < WRONG[dtype] and worse < 100 * WRONG[dtype], "worse_than_slsqp": worse}
    more |= {"converged": float(np.mean(found.converged)), "slsqp_within_bounds": float(kept.mean())}
    slsqp = _scaled(timings["peer"], count / some)
    return [speed_row(size, "SLSQP by row", dtype, timings["ours"], slsqp, **more)]


if __name__ == "__main__":
    raise SystemExit(report.run("agent_markov", __doc__, measure, speed=True, peers=("dynamax", "pyhsmm")))
