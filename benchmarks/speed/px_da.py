"""Effective sample size per second of the slowest value: the moves of PX-DA, and NUTS on the marginal likelihood.

Bulk ESS over all chains, by ArviZ, per CPU second of compiled sampling; compilation and warm-up are reported apart.
Both samplers run in one compiled loop over `kernel.sample`, since numpyro's `MCMC.run` compiles at every call. Rounds
are interleaved and continue the last one, with fresh keys; the ESS is that of all rounds. NUTS has four vectorised
chains, with the best mass matrix and number of quadrature nodes of a trial.

"toy" is the paper's first example (7 states, 3 actions, 50 decisions), "middle" has 20 states, 5 actions and 400
decisions, "tetris" 50 decisions of one of the paper's players. "linear" is the cost per latent utility as decisions or
options grow fourfold.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array, lax
from numpyro.infer import NUTS

from benchmarks import report
from benchmarks.speed.timing import Timing, ratio
from ethogram.domains import small_mdps, tetris
from ethogram.inference.choices.px_da import PXDA
from ethogram.models.choices.decisions import Decisions
from ethogram.models.choices.noisy_mdp import NoisyMDP
from ethogram.models.choices.probit_choice import ProbitChoice

__all__ = ["Case", "Chains", "measure", "measure_case", "measure_linearity"]

MOVES = ("da", "scale", "scale+translate", "local+scale")
TRIED = (("dense", 16), ("dense", 24), ("diagonal", 16), ("diagonal", 24))
SIZES = ("toy", "middle", "tetris")
TARGETS = {"toy": 12.0, "middle": 24.0}
RIVALS = {"scale+translate": 1.2, "da": 1.3}
BEST = "local+scale"
LINEAR = ((100, 5, 10), (400, 5, 10), (100, 20, 10), (1600, 5, 10), (100, 80, 10))
"""Decisions, options and states."""


class Case(NamedTuple):
    """Decisions with their model, how many chains PX-DA has, and lengths of a round.

    Attributes
    ----------
    sweeps, draws : of PX-DA and of NUTS in a round.
    warmup : sweeps, and draws, that are discarded.
    """

    data: Decisions
    model: NoisyMDP
    chains: int
    sweeps: int
    draws: int
    warmup: tuple[int, int]


def cases(settings: argparse.Namespace) -> dict[str, list[Case]]:
    """The cases by name, each in as many worlds as are averaged over."""
    seed, quick = settings.seed, settings.quick
    found = {}
    keys = [jax.random.key(world) for world in range(seed, seed + (1 if quick else 3))]
    sizes = (200, 50, (200, 100)) if quick else (2000, 250, (500, 500))
    toys = [small_mdps.toy_chain(key, 50).decisions for key in keys]
    found["toy"] = [Case(data, NoisyMDP(2500.0), 16, *sizes) for data in toys]
    middle = [
        small_mdps.toy_chain(key, 400, kappa=9.0, num_states=20, num_actions=5).decisions for key in keys
    ]
    found["middle"] = [Case(data, NoisyMDP(9.0), 4, 2000, 200, (500, 400)) for data in middle]
    play = tetris.simulate(keys[0], (-3.0, -15.0, -1.0), 50).decisions
    lengths = (8000, 200, (2000, 400))
    found["tetris"] = [Case(play, NoisyMDP(2500.0, "features"), 4, *lengths)]
    names = [settings.size] if settings.size else (["toy"] if quick else list(found))
    return {name: found[name] for name in names}


def measure(settings: argparse.Namespace) -> list[dict[str, Any]]:
    """Rows of every case and precision, what is aimed at, and the cost of a latent utility."""
    rows: list[dict[str, Any]] = []
    quick, rounds = settings.quick, settings.rounds or 3
    moves = ("da", "scale+translate", BEST) if quick else MOVES
    with jax.enable_x64(True):  # the same worlds in both precisions
        made = cases(settings)
    main = settings.dtype or "float64"
    with jax.enable_x64(main == "float64"):
        for name, worlds in made.items():
            tries, found = TRIED[:1] if quick else TRIED, []
            for number, case in enumerate(worlds):
                found += measure_case(name, case, tries, moves, main, rounds, settings.seed + number)
                best = next(row for row in found if row["sampler"] == "NUTS")
                tries = ((best["nuts_mass"], best["nuts_nodes"]),)
            rows += found + ([] if quick else checks(name, found))
        if settings.size is None:
            rows += measure_linearity(LINEAR[:2] if quick else LINEAR, main, rounds, settings.seed)
    if settings.dtype is None and not quick:
        with jax.enable_x64(False):
            for name, (case, *_) in made.items():
                rows += measure_case(name, case, TRIED[:1], (BEST,), "float32", rounds, settings.seed)
    return rows


def summed(model: NoisyMDP, num_nodes: int) -> Callable[[Decisions], None]:
    """The model of NUTS: that of PX-DA, with a number of quadrature nodes of its own."""

    def call(data: Decisions) -> None:
        prior = dist.Normal(0, jnp.sqrt(model.kappa)).expand([sum(model.sizes(data))])
        theta = numpyro.sample("theta", prior.to_event(1))
        utilities = jnp.asarray(np.where(data.legal[..., None], model.design(data), 0)) @ theta
        choice = ProbitChoice(utilities, data.legal, num_nodes=num_nodes)
        numpyro.sample("choice", choice.to_event(1), obs=jnp.asarray(data.choice))

    return call


class Chains:
    """Chains of a kernel that are advanced a round at a time, in one program; the warm-up is whole rounds.

    Attributes
    ----------
    compile_s, warmup_s : wall seconds of compiling and of the warm-up.
    """

    def __init__(
        self, kernel: Any, data: Decisions, chains: int, length: int, warmup: int, key: Array
    ) -> None:
        key_start, self._key = jax.random.split(key)
        self.chains, self.length = chains, length
        self._told: list[Array] = []
        self._steps: list[Array] = []
        self._clocks: list[tuple[float, float]] = []
        calls = -(-warmup // length)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that few decisions are separated
            state = kernel.init(jax.random.split(key_start, chains), calls * length, None, (data,), {})

        def advance(state: Any) -> tuple[Any, tuple[Array, Array]]:
            def one(state, _):
                state = kernel.sample(state, (data,), {})
                return state, (state.z["theta"], getattr(state, "num_steps", jnp.zeros(chains, int)))

            return lax.scan(one, state, None, length=length)

        start = time.perf_counter()
        self._advance = jax.jit(advance).lower(state).compile()
        self.compile_s = time.perf_counter() - start
        start = time.perf_counter()
        for _ in range(calls):
            state, _ = self._advance(state)
        self._state = jax.block_until_ready(state)
        self.warmup_s = time.perf_counter() - start

    def round(self) -> None:
        """Advance by a round, with fresh keys, and note its time."""
        self._key, key = jax.random.split(self._key)
        state = jax.block_until_ready(self._state._replace(rng_key=jax.random.split(key, self.chains)))
        wall, cpu = time.perf_counter(), time.process_time()
        self._state, (theta, steps) = jax.block_until_ready(self._advance(state))
        self._clocks.append((time.process_time() - cpu, time.perf_counter() - wall))
        self._told.append(theta)
        self._steps.append(steps)

    @property
    def theta(self) -> np.ndarray:
        """Draws (chain, draw, parameter) of all rounds."""
        return np.swapaxes(np.concatenate([np.asarray(x) for x in self._told]), 0, 1)

    @property
    def leapfrogs(self) -> float:
        """Mean number per draw."""
        return float(np.mean([np.mean(x) for x in self._steps]))

    @property
    def timing(self) -> Timing:
        """CPU and wall seconds of every round."""
        clocks = np.asarray(self._clocks)
        return Timing(clocks[:, 0], clocks[:, 1], self.compile_s, 1)


def bulk_ess(draws: np.ndarray) -> np.ndarray:
    """Bulk effective samples (parameter,) of draws (chain, draw, parameter), over all chains."""
    import arviz

    return np.array([float(arviz.ess(draws[..., i], method="bulk")) for i in range(draws.shape[-1])])


class Told(NamedTuple):
    """Of the values that are identified: mean, its Monte Carlo error, and effective samples."""

    mean: np.ndarray
    error: np.ndarray
    ess: np.ndarray


def told_by(case: Case, chains: Chains) -> Told:
    """What the chains say of the values."""
    values = np.asarray(case.model.parts(chains.theta.astype(float), case.data)["v"])
    ess = bulk_ess(values)
    return Told(values.mean((0, 1)), values.std((0, 1)) / np.sqrt(ess), ess)


def measure_case(
    name: str,
    case: Case,
    tries: tuple[tuple[str, int], ...],
    moves: tuple[str, ...],
    dtype: str,
    rounds: int,
    seed: int,
) -> list[dict[str, Any]]:
    """A row a sampler on one set of decisions; NUTS as the best of its trials, whose rows come first."""
    data = jax.tree.map(np.asarray, case.data)
    data = data._replace(features=data.features.astype(dtype))
    common = {"case": name, "seed": seed, "dtype": dtype, "decisions": data.num_decisions}
    common["options"] = float(data.legal.sum(-1).mean())
    running: dict[str, Chains] = {}
    rows, best, rate = [], ("dense", 16), -np.inf
    for mass, nodes in tries:
        kernel = NUTS(summed(case.model, nodes), dense_mass=mass == "dense", max_tree_depth=(6, 10))
        chains = Chains(kernel, data, 4, case.draws, case.warmup[1], jax.random.key(seed + 100))
        chains.round()
        found = float(told_by(case, chains).ess.min() / chains.timing.cpu[0])
        if len(tries) > 1:
            columns = {"sampler": "NUTS, trial", "chains": 4, "nuts_mass": mass, "nuts_nodes": nodes}
            rows.append({**common, **columns, "min_ess_per_s": found, "leapfrogs": chains.leapfrogs})
        if found > rate:
            best, rate, running["NUTS"] = (mass, nodes), found, chains
    for move in moves:
        running[move] = Chains(
            PXDA(case.model, move), data, case.chains, case.sweeps, case.warmup[0], jax.random.key(seed)
        )
    order = list(running)
    for _ in range(rounds):
        for kind in order:
            running[kind].round()
        order.reverse()
    peer = told_by(case, running["NUTS"])
    latents = float(data.legal.sum())
    for kind, chains in running.items():
        row = {"sampler": kind, "chains": chains.chains}
        row |= row_of(case, chains, running["NUTS"], peer, rounds)
        if kind == "NUTS":
            row |= {"nuts_mass": best[0], "nuts_nodes": best[1], "leapfrogs": chains.leapfrogs}
        else:
            row["ns_per_latent"] = 1e3 * row["sweep_us"] / latents
        rows.append({**common, **row})
    return rows


def row_of(case: Case, chains: Chains, nuts: Chains, peer: Told, rounds: int) -> dict[str, Any]:
    """Columns of one sampler beside NUTS; wrong where the means of the two are apart."""
    found = peer if chains is nuts else told_by(case, chains)
    timing, theirs = kept(chains, rounds), kept(nuts, rounds)
    calls, their_calls = len(chains.timing.cpu), len(nuts.timing.cpu)
    cpu, wall = float(np.median(timing.cpu)), float(np.median(timing.wall))
    least = found.ess.min() / calls
    pair = ratio(timing, theirs)
    gain = least / (peer.ess.min() / their_calls)
    apart = float(np.max(np.abs(found.mean - peer.mean) / np.hypot(found.error, peer.error)))
    enough = min(found.ess.min(), peer.ess.min()) > 100
    return {
        "sweep_us": 1e6 * cpu / chains.length / chains.chains,
        "sweep_wall_us": 1e6 * wall / chains.length / chains.chains,
        "min_ess_per_s": float(least / cpu),
        "mean_ess_per_s": float(found.ess.mean() / calls / cpu),
        "min_ess_per_wall_s": float(least / wall),
        "ratio_to_nuts": pair.median * gain,
        "ratio_low": pair.low * gain,
        "ratio_high": pair.high * gain,
        "sweeps_per_draw": float(chains.length * chains.chains / least),
        "min_ess": float(found.ess.min()),
        "compile_s": chains.compile_s,
        "warmup_s": chains.warmup_s,
        "errors_from_nuts": apart,
        "timings": timing._asdict(),
    } | ({"correct": apart < 5} if enough else {})


def kept(chains: Chains, rounds: int) -> Timing:
    """The interleaved rounds, without that of a trial."""
    timing = chains.timing
    return timing._replace(cpu=timing.cpu[-rounds:], wall=timing.wall[-rounds:])


def checks(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Targets, by medians over worlds; in float32 too, if requested."""

    def values(column: str, sampler: str) -> np.ndarray:
        return np.array([row[column] for row in rows if row["sampler"] == sampler])

    columns = []
    if name in TARGETS:
        nuts = float(np.median(values("ratio_to_nuts", BEST)))
        columns.append((f"min ESS/s, {BEST} over NUTS", nuts, TARGETS[name]))
        for rival, target in RIVALS.items():
            for column, least in (("mean_ess_per_s", target), ("min_ess_per_s", 0.9)):
                gain = float(np.median(values(column, BEST) / values(column, rival)))
                columns.append((f"{column.split('_')[0]} ESS/s, {BEST} over {rival}", gain, least))
    dtype = rows[0]["dtype"]
    return [
        {"case": name, "dtype": dtype, "check": text, "value": value, "target": target, "reached": value >= target}
        for text, value, target in columns
    ]  # fmt: skip


def measure_linearity(
    shapes: tuple[tuple[int, int, int], ...], dtype: str, rounds: int, seed: int
) -> list[dict[str, Any]]:
    """Cost of a latent utility as decisions or options grow, beside that of the first shape."""
    running = {}
    for shape in shapes:
        decisions, options, states = shape
        key = jax.random.key(seed)
        made = small_mdps.toy_chain(key, decisions, kappa=9.0, num_states=states, num_actions=options)
        length = max(20, 200_000 // (decisions * options))
        data = made.decisions._replace(features=np.asarray(made.decisions.features, dtype))
        running[shape] = Chains(PXDA(NoisyMDP(9.0)), data, 4, length, length, key)
    for _ in range(rounds):
        for chains in running.values():
            chains.round()
    rows, first = [], None
    for (decisions, options, _), chains in running.items():
        sweep = 1e6 * chains.timing.cpu / chains.length / chains.chains
        each = 1e3 * sweep / (decisions * options)
        first = each if first is None else first
        growth = float(np.median(each / first))
        row = {"case": "linear", "sampler": BEST, "dtype": dtype, "chains": 4, "decisions": decisions}
        row |= {"options": float(options), "sweep_us": float(np.median(sweep))}
        row |= {"ns_per_latent": float(np.median(each)), "compile_s": chains.compile_s}
        columns = {"check": "cost of a latent", "value": growth, "target": 1.5, "reached": growth <= 1.5}
        rows.append(row | (columns if chains is not next(iter(running.values())) else {}))
    return rows


if __name__ == "__main__":
    raise SystemExit(report.run("px_da", __doc__, measure, speed=True, sizes=SIZES))
