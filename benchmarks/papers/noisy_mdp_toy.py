"""Toy study of the noisy MDP: autocorrelation of PX-DA by move, on 7 states, 3 actions, 20 and 50 decisions.

Singh, Chopin and Whiteley, "Bayesian learning of noisy Markov decision processes", section 5.1 and its figures 1 to 3,
which have no readable numbers; statements of the text are rows of `kind` "statement". Components are counted from one,
as there. The paper gives neither transitions nor seed: these are of `small_mdps.toy_chain`, and a seed is taken, from
`--seed` upwards, where the first 20 choices overlap, which a flat prior of the values (kappa infinite) needs. Nothing
else chooses a seed. Winners are drawn by "gibbs"; autocorrelations are those of one sweep to the next.

Rows with a `lag` are autocorrelations. "mean": posterior means, in double precision, against importance sampling from
a mixture of multivariate t densities on the likelihood by quadrature; its effective number of draws is a row. "iact":
integrated autocorrelation times, summed over components, and their jackknife errors over chains. "order": their order
in every data set, with two Monte Carlo errors' room. "half means": figure 3, from 10 everywhere, in halves of a chain.
`--figure FILE` draws figures 1 to 3.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular

from benchmarks import report
from benchmarks.papers.noisy_mdp_reference import (
    Autocorrelation,
    Means,
    autocorrelation,
    importance_means,
    run_chains,
)
from benchmarks.papers.noisy_mdp_variants import VariantPXDA
from ethogram.domains import small_mdps
from ethogram.inference.choices.latent_utilities import draw_latents
from ethogram.inference.choices.px_da import PXDA, PXDAState
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.separation import find_separation

__all__ = ["measure"]

KAPPAS = {"kappa=2500": 2500.0, "flat": float("inf")}
ORDER = ("da", "scale", "scale+translate", "local+scale")
FIGURES = {
    1: ("da", "scale", "translate", "scale+translate", "local+scale", "scale_proper 1 1",
        "scale+translate_proper 1 1"),
    2: ("scale", "scale_proper 1 1", "scale_proper 5 0.5"),
    3: ("da", "scale", "translate", "scale+translate", "local+scale"),
}  # fmt: skip
"""Moves, with a and b of the scale's prior where it has one."""

COMPONENTS = (4, 7)
LAGS = (1, 5, 10, 20, 50)
RATIO_TARGET = 2.0


class Sizes(NamedTuple):
    """Data sets, chains, warm-up and kept sweeps of each, and the sizes of the other parts.

    `few` decisions are those of figures 1 and 2, `more` those of figure 3; `both` has each under both priors.
    """

    seeds: int = 5
    chains: int = 32
    warmup: int = 4000
    sweeps: int = 16_000
    importance: int = 60_000
    wandering: int = 400_000
    few: int = 20
    more: int = 50
    both: bool = True


QUICK = Sizes(2, 16, 300, 1200, 10_000, 20_000, more=20, both=False)
"""Figure 3 on the same 20 decisions: another size would compile every move anew."""


class Run(NamedTuple):
    """Summaries of the chains of one move; the trace is of component 7 in the first chain."""

    mean: np.ndarray
    error: np.ndarray
    memory: Autocorrelation
    trace: np.ndarray


def measure(settings: argparse.Namespace, sizes: Sizes | None = None) -> list[dict[str, Any]]:
    """All rows, in double precision; draws the figure where the settings have one."""
    sizes = sizes or (QUICK if settings.quick else Sizes())
    cases = [(sizes.few, "kappa=2500"), (sizes.more, "flat")]
    if sizes.both:
        cases[1:1] = [(sizes.few, "flat"), (sizes.more, "kappa=2500")]
    with jax.enable_x64(True), ThreadPoolExecutor(os.cpu_count()) as pool:
        worlds = overlapping(settings.seed, sizes)
        first = next(iter(worlds))
        runs, truths = {}, {}
        for (count, prior), seed in itertools.product(cases, worlds):
            data = worlds[seed].take(np.arange(count))
            for move in shown(count, prior, sizes) if seed == first else ORDER:
                chains = begin(prior, move, "gibbs", sizes, data, settings.seed)
                runs[count, prior, seed, move] = pool.submit(run_of, *chains)
            if seed == first:
                task = (NoisyMDP(KAPPAS[prior]), data, sizes.importance, settings.seed)
                truths[count, prior] = pool.submit(importance_means, *task)
        few, more = (worlds[first].take(np.arange(count)) for count in (sizes.few, sizes.more))
        raw = pool.submit(wander, more, sizes.wandering, settings.seed)
        proposing = pool.submit(draws_of, *begin("kappa=2500", "da", "paper", sizes, few, settings.seed))
        runs, truths = ({key: task.result() for key, task in tasks.items()} for tasks in (runs, truths))
        raw, (_, taken) = raw.result(), proposing.result()
    mine = {(count, prior, move): run for (count, prior, seed, move), run in runs.items() if seed == first}
    centred = mine[sizes.more, "flat", "da"].trace
    traces = {"raw": raw[:, 6], "raw less its mean": raw[:, 6] - raw.mean(1), "sums to zero": centred}
    figures = figures_of(mine, sizes)
    if settings.figure is not None:
        draw(settings.figure, figures, traces)
    rows = [row for figure in figures.items() for row in rows_of_figure(*figure)]
    rows += rows_of_means(mine, truths) + rows_of_times(runs)
    halves = rows_of_traces(traces, truths[sizes.more, "flat"])
    return [*rows, *halves, *statements(figures, taken, halves)]


def overlapping(seed: int, sizes: Sizes) -> dict[int, Decisions]:
    """The first data sets, by seed from `seed` upwards, whose first few choices overlap, and so all of them."""
    model, found = NoisyMDP(), {}
    for number in itertools.count(seed):
        data = small_mdps.toy_chain(jax.random.key(number), 50).decisions
        few = data.take(np.arange(sizes.few))
        if find_separation(np.asarray(model.design(few)), few.legal, few.choice) is None:
            found[number] = data
        if len(found) == sizes.seeds:
            break
    return found


def shown(count: int, prior: str, sizes: Sizes) -> tuple[str, ...]:
    """Moves to run on the data of the figures."""
    if count == sizes.few and prior != "flat":
        return tuple(dict.fromkeys(FIGURES[1] + FIGURES[2]))
    return FIGURES[1] if count == sizes.few and sizes.both else FIGURES[3]


def figures_of(runs: dict, sizes: Sizes) -> dict[int, dict[tuple[str, str], Run]]:
    """Runs by figure, then by move and prior."""
    where = {
        1: [(sizes.few, "kappa=2500")] + ([(sizes.few, "flat")] if sizes.both else []),
        2: [(sizes.few, "kappa=2500")],
        3: [(sizes.more, "flat")],
    }
    return {
        figure: {(move, case[1]): runs[*case, move] for case in where[figure] for move in moves}
        for figure, moves in FIGURES.items()
    }


@functools.cache
def kernel_of(move: str, winner: str, prior: str) -> PXDA:
    name, *scale = move.split()
    return VariantPXDA(NoisyMDP(KAPPAS[prior]), name, winner, scale_prior=tuple(map(float, scale)) or None)


class Begun(NamedTuple):
    """Chains at their start; compiled and run in threads, which numpyro's trace of a model is not made for."""

    own: PXDA
    sweeping: PXDA
    state: PXDAState
    data: Decisions
    sizes: Sizes


def begin(prior: str, move: str, winner: str, sizes: Sizes, data: Decisions, seed: int) -> Begun:
    """Chains of one move.

    A sweep reads the prior from its state, so that the same compiled sweep serves all priors and data sets of a size.
    """
    own = kernel_of(move, winner, prior)
    state = own.init(jax.random.split(jax.random.key(seed), sizes.chains), 0, None, (data,), {})
    return Begun(own, kernel_of(move, winner, "flat"), state, data, sizes)


def draws_of(own: PXDA, sweeping: PXDA, state: PXDAState, data: Decisions, sizes: Sizes) -> tuple:
    """Values (chain, draw, state), and the share of proposals that were taken."""
    with jax.enable_x64(True):
        theta, taken = run_chains(sweeping, state, data, sizes.warmup + sizes.sweeps)
    kept = np.swapaxes(np.asarray(theta)[sizes.warmup :], 0, 1)
    return own.model.parts(kept, data)["v"], float(np.asarray(taken).mean())


def run_of(*begun: Any) -> Run:
    """Means and autocorrelations of the values; the arguments are those of `draws_of`."""
    drawn, _ = draws_of(*begun)
    memory = autocorrelation(drawn)
    error = drawn.std((0, 1)) * np.sqrt(memory.time / (drawn.shape[0] * drawn.shape[1]))
    return Run(drawn.mean((0, 1)), error, memory, drawn[0, :, 6])


def wander(data: Decisions, sweeps: int, seed: int, start: float = 10.0) -> np.ndarray:
    """Values (draw, state) of plain data augmentation under a flat prior with a level that nothing identifies.

    An illustration of figure 3, not a sampler to use: the values of all states are the parameters, though adding a
    constant to them changes no choice, so that they have no posterior, and PXDA has no such model. Started at `start`
    everywhere; 2000 draws are kept.
    """
    thin = max(sweeps // 2000, 1)
    choice = np.asarray(data.choice)[:, None]
    order = np.argsort(np.arange(data.features.shape[1]) != choice, axis=1, kind="stable")
    rows = np.swapaxes(np.take_along_axis(np.asarray(data.features), order[..., None], 1), 0, 1)

    @jax.jit
    def chain(key, rows):
        flat = rows.reshape(-1, rows.shape[-1])
        root = jnp.linalg.cholesky(flat.T @ flat)
        legal = jnp.ones((*rows.shape[:2], 1), bool)

        def sweep(_, carry):
            key, values, latents = carry
            key, key_latents, key_values = jax.random.split(key, 3)
            latents = draw_latents(key_latents, (rows @ values)[..., None], legal, latents, "gibbs")
            seen = solve_triangular(root, flat.T @ latents.ravel(), lower=True)
            noise = jax.random.normal(key_values, seen.shape)
            return key, solve_triangular(root, seen + noise, lower=True, trans=1), latents

        def several(carry, _):
            carry = jax.lax.fori_loop(0, thin, sweep, carry)
            return carry, carry[1]

        first = jnp.where(jnp.arange(rows.shape[0]) == 0, 1.0, -1.0)[:, None, None]
        begin = (key, jnp.full(rows.shape[-1], start), jnp.broadcast_to(first, legal.shape))
        return jax.lax.scan(several, begin, length=sweeps // thin)[1]

    with jax.enable_x64(True):
        return np.asarray(chain(jax.random.key(seed), jnp.asarray(rows)))


def named(move: str, prior: str) -> dict[str, str]:
    """The columns `move` and `prior`."""
    name, *scale = move.split()
    return {"move": name, "prior": ", ".join([prior, *map("{}={}".format, "ab", scale)])}


def rows_of_figure(figure: int, runs: dict[tuple[str, str], Run]) -> list[dict[str, Any]]:
    """Autocorrelations of components 4 and 7."""
    return [
        {"figure": figure} | named(move, prior)
        | {"component": component, "lag": lag, "autocorrelation": float(run.memory.at_lag[lag, component - 1])}
        for (move, prior), run in runs.items() for component in COMPONENTS for lag in LAGS
    ]  # fmt: skip


def rows_of_means(runs: dict, truths: dict[tuple[int, str], Means]) -> list[dict[str, Any]]:
    """Posterior means of all moves against importance sampling."""
    rows = [
        {"kind": "truth", "decisions": count, "prior": prior, "statement": "importance sampling, effective draws",
         "ours": round(truth.effective)}
        for (count, prior), truth in truths.items()
    ]  # fmt: skip
    for (count, prior, move), run in runs.items():
        truth = truths[count, prior]
        for place in range(len(run.mean)):
            off = abs(run.mean[place] - truth.mean[place]) / np.hypot(run.error[place], truth.error[place])
            row = {"kind": "mean", "decisions": count} | named(move, prior) | {"component": place + 1}
            row |= {"mean": run.mean[place], "mcse": run.error[place], "truth": truth.mean[place]}
            rows.append(row | {"reached": bool(off < 4)})
    return rows


def rows_of_times(runs: dict) -> list[dict[str, Any]]:
    """Sums of autocorrelation times by data set, whether they are in order, and what the best move gains."""
    rows, ratios = [], {}
    for (count, prior, seed, move), run in runs.items():
        row = {"kind": "iact", "decisions": count, "seed": seed} | named(move, prior)
        rows.append(row | {"sum_iact": run.memory.total, "mc_se": run.memory.total_error})
    for count, prior, seed in dict.fromkeys(key[:3] for key in runs):
        memories = [runs[count, prior, seed, move].memory for move in ORDER]
        kept = all(
            slow.total - fast.total >= -2 * np.hypot(slow.total_error, fast.total_error)
            for slow, fast in itertools.pairwise(memories)
        )
        row = {
            "kind": "order",
            "decisions": count,
            "seed": seed,
            "prior": prior,
            "statement": " >= ".join(ORDER),
        }
        rows.append(
            row | {"ours": " >= ".join(f"{one.total:.0f}" for one in memories), "reached": bool(kept)}
        )
        ratios.setdefault((count, prior), []).append(memories[0].total / memories[-1].total)
    for (count, prior), several in ratios.items():
        row = {
            "kind": "ratio",
            "decisions": count,
            "prior": prior,
            "statement": "da / local+scale, median over seeds",
        }
        median = float(np.median(several))
        rows.append(
            row | {"ours": round(median, 2), "target": RATIO_TARGET, "reached": median >= RATIO_TARGET}
        )
    return rows


def rows_of_traces(traces: dict[str, np.ndarray], truth: Means) -> list[dict[str, Any]]:
    """Means of component 7 in both halves of a chain of plain data augmentation."""
    rows = []
    for name, trace in traces.items():
        halves = [float(half.mean()) for half in np.array_split(trace, 2)]
        row = {"kind": "half means", "move": f"da, {name}", "prior": "flat", "component": 7}
        rows.append(row | {"first_half": halves[0], "second_half": halves[1], "truth": truth.mean[6]})
    return rows


def statements(figures: dict, taken: float, halves: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the paper says in words, and what is found here: autocorrelation times of components 4 and 7."""
    chosen = [component - 1 for component in COMPONENTS]

    def compared(figure: int, better: str, worse: str, prior: str) -> tuple[str, bool]:
        one, other = (figures[figure][move, prior].memory.time[chosen] for move in (better, worse))
        summary = "; ".join(
            f"{move} {time[0]:.0f}, {time[1]:.0f}" for move, time in ((better, one), (worse, other))
        )
        return summary, bool((one <= other).all())

    apart = [abs(row["first_half"] - row["second_half"]) for row in halves]
    rows = [
        ("1: scale below da", *compared(1, "scale", "da", "kappa=2500")),
        ("1: scale+translate below scale", *compared(1, "scale+translate", "scale", "kappa=2500")),
        ("1: more than .95 of its proposals taken", f"{taken:.3f}", taken > 0.95),
        (
            "2: improper slightly better than a=5, b=.5",
            *compared(2, "scale", "scale_proper 5 0.5", "kappa=2500"),
        ),
        ("3: translation helps more than scale", *compared(3, "translate", "scale", "flat")),
        ("3: da does not settle (raw level)", f"halves differ by {apart[0]:.2f}", apart[0] > 1),
        ("3: da does not settle (sums to zero)", f"halves differ by {apart[2]:.2f}", apart[2] > 1),
    ]
    return [
        {"kind": "statement", "statement": statement, "ours": ours, "reached": bool(reached)}
        for statement, ours, reached in rows
    ]


def draw(path: Path, figures: dict[int, dict[tuple[str, str], Run]], traces: dict[str, np.ndarray]) -> None:
    """Figures 1 to 3 in one picture: autocorrelations of components 4 and 7, and traces of component 7."""
    from matplotlib.figure import Figure

    picture = Figure(figsize=(12, 14), layout="constrained")
    axes = picture.subplots(4, 2)
    for number, row in zip(FIGURES, axes, strict=False):
        for component, panel in zip(COMPONENTS, row, strict=True):
            for (move, prior), run in figures[number].items():
                style = "--" if number == 1 and prior == "flat" else "-"
                colour = f"C{FIGURES[number].index(move)}"
                label = ", ".join(named(move, prior).values())
                panel.plot(run.memory.at_lag[:, component - 1], style, color=colour, label=label)
            panel.axhline(0, color="0.7", linewidth=0.8)
            panel.set(title=f"Figure {number}, component {component}", xlabel="lag", ylabel="autocorrelation")
        row[0].legend(fontsize=6)
    for panel, names in zip(axes[3], (("raw",), tuple(traces)[1:]), strict=True):
        for name in names:
            panel.plot(np.linspace(0, 1, len(traces[name])), traces[name], label=name, linewidth=0.6)
        panel.set(title="Figure 3, component 7: plain data augmentation", xlabel="share of the chain")
        panel.legend(fontsize=8)
    picture.savefig(path, dpi=90)


if __name__ == "__main__":
    raise SystemExit(report.run("noisy_mdp_toy", __doc__, measure, figure=True))
