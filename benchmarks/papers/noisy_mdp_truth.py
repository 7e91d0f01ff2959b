"""Long statistical checks of PX-DA: shapes, joint distributions, calibration and flat priors, each with its power.

"shape": drawing utilities given values, then values and scale given utilities, keeps the prior of the values; with a
shape of the scale's inverse gamma that is wrong by one half it does not. "geweke": the whole sweep, with new choices
before each, keeps the prior too, for choice sets of different sizes; Geweke (2004), "Getting it right". "sbc":
ranks of true values among 99 posterior draws are uniform; Talts et al. (2018). The draws are thinned by more than twice
the autocorrelation time that 19 of 20 replications stay below. "sbc gibbs": the same with a prior of kappa, as a block
of numpyro's Gibbs beside NUTS. "flat": posterior moments under a flat prior, of two weights for choices that overlap,
against a grid; with the shapes n / 2 and n / 2 - 1, which "omit the terms" gives, they are far off.

The paper has none of these checks; the correct shape is (n - g) / 2, with n options in total and g translations.

`p` is of the row alone, `p_adjusted` by Bonferroni for all that the kind of check looks at, for "sbc" all that its
variant looks at; a row passes where that is above 1 %. A run without a mistake then fails somewhere with a probability
of 9 % at most: three kinds of check, five variants of "sbc", and "sbc gibbs". Rows of power pass beyond ten errors.
"""

from __future__ import annotations

import argparse
import contextvars
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import stats

from benchmarks import report
from benchmarks.papers.noisy_mdp_calibration import begin_gibbs, begin_ranks, rows_of_ranks, world
from benchmarks.papers.noisy_mdp_reference import grid_moments, run_chains
from benchmarks.papers.noisy_mdp_variants import VARIANTS, VariantPXDA
from ethogram.inference.choices import gibbs_sweep
from ethogram.inference.choices.px_da import PXDA, PXDAState
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.separation import find_separation

__all__ = ["measure"]

KAPPA = 4.0
MOVES = ("da", "scale", "scale+translate", "local", "local+scale")
SCALING = ("scale", "scale+translate", "local+scale")
LEVEL = 0.01
POWER = 10.0


class Sizes(NamedTuple):
    """Moves, chains and sweeps of each check; replications and bins of calibration; pilots are of 99 sweeps."""

    moves: tuple[str, ...] = MOVES
    shape: tuple[int, int] = (400, 600)
    geweke: tuple[int, int] = (400, 600)
    states: tuple[int, ...] = (2, 3, 7)
    replications: int = 1000
    bins: int = 20
    pilot: int = 10
    gibbs_replications: int = 200
    flat: tuple[int, int] = (200, 2500)
    flat_moves: tuple[str, ...] = (*MOVES, "translate")


QUICK = Sizes(
    ("da", "local+scale"),
    (200, 200),
    (100, 100),
    (3,),
    60,
    5,
    3,
    0,
    (100, 600),
    ("scale+translate", "local+scale"),
)
"""Fewer moves too, and no Gibbs: nearly all of the time is that of compiling one after the other."""


def measure(settings: argparse.Namespace, sizes: Sizes | None = None) -> list[dict[str, Any]]:
    """All rows, in double precision."""
    sizes = sizes or (QUICK if settings.quick else Sizes())
    seed = settings.seed
    with jax.enable_x64(True), shapes_can_be_spoiled(), ThreadPoolExecutor(os.cpu_count()) as pool:

        def submit(function: Callable, *arguments: Any) -> Any:
            return pool.submit(_in_double, function, *arguments)

        tasks = [submit(rows_of_shape, moves, sizes.shape, seed) for moves in sizes.moves if moves in SCALING]
        runs = [(count, moves, winner) for count in sizes.states for moves, winner in variants(sizes.moves)]
        tasks += [submit(rows_of_geweke, *run, sizes.geweke, seed, len(runs)) for run in runs]
        data = overlapping(seed)
        tasks += [
            submit(rows_of_flat, begin_flat(moves, data, sizes.flat[0], seed), data, sizes)
            for moves in sizes.flat_moves
        ]
        # Models are traced here, one at a time: numpyro's trace is not made for threads.
        calibrated = [begin_ranks(moves, KAPPA, sizes.replications, seed) for moves in sizes.moves]
        tasks += [submit(rows_of_ranks, ranks, sizes.bins, sizes.pilot) for ranks in calibrated]
        last: list[dict[str, Any]] = [{"kind": "sbc gibbs", "statistic": "left to the full run"}]
        if sizes.gibbs_replications:
            gibbs = begin_gibbs(sizes.gibbs_replications, seed)
            last = rows_of_ranks(gibbs, sizes.bins, sizes.pilot)
        return [row for task in tasks for row in task.result()] + last


def _in_double(function: Callable, *arguments: Any) -> Any:
    with jax.enable_x64(True):
        return function(*arguments)


def variants(moves: tuple[str, ...]) -> list[tuple[str, str]]:
    """Moves and ways to draw the winner that the joint test looks at."""
    return [(one, "gibbs") for one in moves] + [("local+scale", winner) for winner in ("mh", "rejection")]


_SPOILED: contextvars.ContextVar[tuple[float, np.ndarray] | None] = contextvars.ContextVar(
    "spoiled", default=None
)


@contextmanager
def shapes_can_be_spoiled() -> Iterator[None]:
    """The package's draw of the scale, except under `spoiled`: a wrong shape is not among its options."""
    right = gibbs_sweep.draw_scale

    def draw(key: Array, rest: Array, *others: Any) -> Array:
        if _SPOILED.get() is None:
            return right(key, rest, *others)
        shape, shift = _SPOILED.get()
        key_right, key_more, key_less = jax.random.split(key, 3)
        gamma = rest / 2 / right(key_right, rest, *others)
        more = gamma + jax.random.gamma(key_more, jnp.where(shift > 0, shift, 1))
        lost = jnp.where(shift < 0, -shift, 0.5)
        less = gamma * jax.random.beta(key_less, shape - lost, lost)
        return rest / 2 / jnp.where(shift > 0, more, jnp.where(shift < 0, less, gamma))

    with mock.patch.object(gibbs_sweep, "draw_scale", draw):
        yield


@contextmanager
def spoiled(shape: float, shift: np.ndarray) -> Iterator[None]:
    """Within, the shape of the scale's inverse gamma is `shape` + `shift` (chain,), where `shape` is the right one."""
    token = _SPOILED.set((shape, shift))
    try:
        yield
    finally:
        _SPOILED.reset(token)


def right_shape(legal: np.ndarray, moves: str) -> float:
    """Half of the options less the translations."""
    lost = {"none": 0, "one": 1, "local": len(legal)}[VARIANTS[moves].translations]
    return (legal.sum() - lost) / 2


def problem_of(data: Decisions, moves: str) -> gibbs_sweep.ProbitProblem:
    """The decisions as a sweep reads them, the first option chosen in each, under the prior of the checks."""
    design = NoisyMDP(KAPPA).design(data)
    move = VARIANTS[moves]
    problem = gibbs_sweep.probit_problem(design, data.legal, np.zeros(len(data.choice), int), move)
    translation = [0.0] if move.translations == "one" else []
    return gibbs_sweep.with_prior(problem, jnp.array([1 / KAPPA] * design.shape[-1] + translation))


def rows_of_shape(moves: str, size: tuple[int, int], seed: int) -> list[dict[str, Any]]:
    """Mean of the squared values, by chains with the right shape and with those half below and above."""
    chains, sweeps = size
    data = world(3, 6, seed)
    problem, parameters = problem_of(data, moves), data.features.shape[-1] - 1
    shifts = np.repeat([0.0, -0.5, 0.5], chains)

    @jax.jit
    def run(key, theta, problem):
        def step(theta, key):
            key_noise, key_draw = jax.random.split(key)
            means = gibbs_sweep.fitted(problem, theta)
            noisy = jnp.reshape(means, (3, -1, 3 * chains))
            noisy = noisy + jax.random.normal(key_noise, noisy.shape)
            drawn = gibbs_sweep.draw_parameters(
                key_draw, problem, jnp.where(problem.legal, noisy, 0), VARIANTS[moves],
            )[0]  # fmt: skip
            return drawn, jnp.sum(drawn**2, axis=0)

        return jnp.mean(jax.lax.scan(step, theta, jax.random.split(key, sweeps))[1], axis=0)

    key_start, key_run = jax.random.split(jax.random.key(seed))
    start = np.sqrt(KAPPA) * jax.random.normal(key_start, (parameters, 3 * chains))
    with spoiled(right_shape(data.legal, moves), shifts):
        squares = np.asarray(run(key_run, start, problem)).reshape(3, chains) / (parameters * KAPPA)
    rows = []
    for by_chain, name in zip(squares, ("right", "shape - 1/2", "shape + 1/2"), strict=True):
        z = float((by_chain.mean() - 1) / (by_chain.std(ddof=1) / np.sqrt(chains)))
        row = {"kind": "shape", "variant": f"{moves}, {name}", "statistic": "mean of |v|^2, prior's 1"}
        rows.append(row | {"value": float(by_chain.mean())} | judged(z, len(SCALING), name != "right"))
    return rows


def judged(z: float, looks: int, power: bool = False) -> dict[str, Any]:
    """Columns of a test of `looks` looks in all; a row of power must be far off."""
    if power:
        return {"z": z, "reached": abs(z) > POWER}
    p = float(2 * stats.norm.sf(abs(z)))
    adjusted = min(1.0, p * looks)
    return {"z": z, "p": p, "p_adjusted": adjusted, "reached": adjusted > LEVEL}


def rows_of_geweke(
    num_states: int, moves: str, winner: str, size: tuple[int, int], seed: int, runs: int
) -> list[dict[str, Any]]:
    """One row: the largest deviation among the moments of values, and of values of what was chosen."""
    chains, sweeps = size
    data = world(num_states, 6, seed + 1)
    problem, parameters = problem_of(data, moves), num_states - 1
    kernel = VariantPXDA(NoisyMDP(KAPPA), moves, winner)

    def chosen(key, theta):
        """Utilities (option, decision) and choices given values."""
        means = jnp.reshape(gibbs_sweep.fitted(problem, theta[:, None]), (3, -1))
        noisy = means + jax.random.normal(key, means.shape)
        choice = jnp.argmax(jnp.where(problem.legal[..., 0], noisy, -jnp.inf), axis=0)
        chosen_mean = jnp.mean(jnp.take_along_axis(means, choice[None], axis=0))
        return noisy, choice, jnp.concatenate([theta, theta**2, jnp.sum(theta**2)[None], chosen_mean[None]])

    def step(theta, key):
        key_noise, key_sweep = jax.random.split(key)
        noisy, choice, chosen_mean = chosen(key_noise, theta)
        order = jnp.argsort(jnp.arange(3)[:, None] != choice, axis=0)
        rows = jnp.reshape(problem.design, (*noisy.shape, -1))
        rows = jnp.take_along_axis(rows, order[..., None], axis=0)
        legal = jnp.take_along_axis(problem.legal, order[..., None], axis=0)
        latents = jnp.where(legal, jnp.take_along_axis(noisy, order, axis=0)[..., None], 0)
        ordered = problem._replace(design=jnp.reshape(rows, problem.design.shape), legal=legal)
        drawn = kernel._sweep(key_sweep, ordered, theta[:, None], latents)[0]
        return drawn[:, 0], chosen_mean

    @jax.jit
    def run(key, theta):
        def one(key, theta):
            return jnp.mean(jax.lax.scan(step, theta, jax.random.split(key, sweeps))[1], axis=0)

        return jax.vmap(one)(jax.random.split(key, chains), theta)

    @jax.jit
    def fresh(key):
        key_values, key_choices = jax.random.split(key)
        theta = np.sqrt(KAPPA) * jax.random.normal(key_values, (chains * sweeps, parameters))
        return jax.vmap(chosen)(jax.random.split(key_choices, len(theta)), theta)[2][:, -1]

    key_start, key_run, key_fresh = jax.random.split(jax.random.key(seed), 3)
    by_chain = np.asarray(run(key_run, np.sqrt(KAPPA) * jax.random.normal(key_start, (chains, parameters))))
    alone = np.asarray(fresh(key_fresh))
    truth = np.array([0.0] * parameters + [KAPPA] * parameters + [KAPPA * parameters, alone.mean()])
    error = by_chain.std(0, ddof=1) / np.sqrt(chains)
    error[-1] = np.hypot(error[-1], alone.std() / np.sqrt(len(alone)))
    z = (by_chain.mean(0) - truth) / error
    worst = float(z[np.abs(z).argmax()])
    row = {"kind": "geweke", "variant": f"{moves}, {winner}, {num_states} states"}
    return [row | {"statistic": f"largest of {len(z)}"} | judged(worst, len(z) * runs)]


def overlapping(seed: int) -> Decisions:
    """Twelve choices from two to four options with two features, of weights (1, -0.7), that overlap."""
    random = np.random.default_rng(seed)
    while True:
        sets = [random.normal(size=(random.integers(2, 5), 2)) for _ in range(12)]
        choice = [int(np.argmax(one @ (1.0, -0.7) + random.normal(size=len(one)))) for one in sets]
        data = Decisions.from_list(sets, choice)
        if find_separation(data.features, data.legal, data.choice) is None:
            return data


class Flat(NamedTuple):
    """Chains under a flat prior at their start: so many with the right shape, and with each wrong one."""

    moves: str
    kernel: PXDA
    state: PXDAState
    wrong: dict[str, float]


def begin_flat(moves: str, data: Decisions, chains: int, seed: int) -> Flat:
    """Wrong shapes are those of the proper prior without its terms, by their error."""
    wrong = {
        "scale+translate": {"shape n / 2": 0.5, "shape n / 2 - 1": -0.5},
        "local+scale": {"shape n / 2": len(data.choice) / 2},
    }.get(moves, {})
    kernel = VariantPXDA(NoisyMDP(float("inf"), "features"), moves)
    keys = jax.random.split(jax.random.key(seed), chains * (1 + len(wrong)))
    return Flat(moves, kernel, kernel.init(keys, 0, None, (data,), {}), wrong)


def rows_of_flat(flat: Flat, data: Decisions, sizes: Sizes) -> list[dict[str, Any]]:
    """The largest deviation among means and second moments of the weights, by shape."""
    chains, sweeps = sizes.flat
    truth = grid_moments((data.features, data.legal, data.choice, np.inf)).ravel()
    shifts = np.repeat([0.0, *flat.wrong.values()], chains)
    with spoiled(right_shape(data.legal, flat.moves), shifts):
        theta = np.asarray(run_chains(flat.kernel, flat.state, data, 2 * sweeps)[0])[sweeps:]
    by_chain = np.concatenate([theta.mean(0), (theta**2).mean(0)], axis=-1)
    rows = []
    for found, name in zip(np.split(by_chain, len(shifts) // chains), ("right", *flat.wrong), strict=True):
        z = (found.mean(0) - truth) / (found.std(0, ddof=1) / np.sqrt(chains))
        row = {
            "kind": "flat",
            "variant": f"{flat.moves}, {name}",
            "statistic": f"largest of {len(z)} moments",
        }
        worst = float(z[np.abs(z).argmax()])
        rows.append(row | judged(worst, len(z) * len(sizes.flat_moves), name != "right"))
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("noisy_mdp_truth", __doc__, measure))
