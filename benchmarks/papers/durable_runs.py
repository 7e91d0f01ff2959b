"""Long runs that are killed at random moments go on to the bits of a whole run, and faults of a disk lose nothing.

Each kind of run is a process that is killed (SIGKILL) at a uniform moment after its first write, and called again until
it ends; its result, and that of a run with a checkpoint that is not killed, are compared with that without one. A write
of a checkpoint is killed before each of its system calls and at bytes of its file, and each of them fails once: what is
read afterwards is the state before or the one that was written, and the next write succeeds.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import multiprocessing
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpyro.distributions as dist

import ethogram
from benchmarks import report
from ethogram.domains import predator_prey, small_mdps
from ethogram.domains.fluent_world import FluentWorld
from ethogram.domains.football_scenes import motion_features
from ethogram.domains.predator_prey import PredatorPreyExperts, PredatorPreyWorld
from ethogram.domains.sysadmin import sysadmin
from ethogram.inference import checkpoint
from ethogram.inference.imitation import Scenes, imitate_motion
from ethogram.inference.nuts_chains import ChainsState
from ethogram.inference.planning import RandomPolicy, play_episodes

__all__ = ["FAULTS", "KINDS", "kill_row", "measure", "write_rows"]

KILLS, KILLS_QUICK = 20, 1
"""Kills of each kind of run."""
QUICK = ("px-da", "map_fits")
"""Of which the first run compiles for less than ten seconds."""
STATE = 20_000
"""Numbers in the states that are written while something fails."""
FAULTS = {"open": os.open, "fsync": os.fsync, "link": os.link, "rename": os.replace}
PLACES = {"open": "open", "fsync": "fsync", "link": "link", "rename": "replace"}
QUIET = {"progress_bar": False}


def roles() -> tuple[Any, Any]:
    """A model of three roles with its data."""
    model = ethogram.RoleHMM(3, ethogram.GaussianEmission(2))
    return model, model.simulate(jax.random.key(0), num_groups=30, lengths=60).data


def of_fit(model: Any, data: Any, method: str, path: Any, **settings: Any) -> Any:
    """Arrays of a fit."""
    found = ethogram.fit(jax.random.key(1), model, data, method, checkpoint=path, **settings, **QUIET).result
    if hasattr(found, "sites"):
        return found.sites
    posterior = found.posterior
    return [found.elbo, getattr(posterior, "blocks", None) or [posterior.latent_mean, posterior.latent_root]]


def cavi(path: Any) -> Any:
    """Coordinate ascent of several restarts."""
    return of_fit(*roles(), "cavi", path, num_steps=3000, tol=0, restarts=2, checkpoint_every=10)


def svi(path: Any) -> Any:
    """Mini-batches."""
    return of_fit(*roles(), "svi", path, num_steps=1500, batch_size=5, restarts=2, checkpoint_every=10)


def edits(path: Any) -> Any:
    """The search for the number of intents."""
    random = np.random.default_rng(0)
    states, actions = random.integers(3, size=(6, 60)), random.integers(2, size=(6, 60))
    data = ethogram.Trajectories.from_list(states=states.tolist(), actions=actions.tolist())
    return of_fit(
        ethogram.AgentMarkov(3, 2, 4), data, "cavi", path, num_steps=600, restarts=3, checkpoint_every=10
    )


def decisions() -> tuple[Any, Any]:
    """Choices of one person among three options."""
    random = np.random.default_rng(0)
    options = random.normal(size=(80, 3, 2))
    chosen = (options @ np.array([1.0, -1.0]) + random.normal(size=(80, 3))).argmax(1)
    data = ethogram.Decisions(options, np.ones((80, 3), bool), chosen)
    return ethogram.NoisyMDP(dist.InverseGamma(3.0, 2.0), "features"), data


def nuts(path: Any) -> Any:
    """Chains of NUTS."""
    return of_fit(*decisions(), "nuts", path, num_warmup=500, num_samples=2000, num_chains=2)


def px_da(path: Any) -> Any:
    """Chains of PX-DA."""
    return of_fit(*decisions(), "px-da", path, num_warmup=500, num_samples=4000, num_chains=2)


def reward(**priors: Any) -> Any:
    """A model of rewards."""
    return ethogram.GPIRL(small_mdps.three_state(), np.array([[1.0], [2.0], [3.0]]), **priors)


def rewards(path: Any) -> Any:
    """Rewards over nodes of their hyper-parameters."""
    model = reward(scale_prior=dist.LogNormal(np.log(5.0), 1.0), relevance_prior=1.0)
    data = small_mdps.three_state_demonstrations(1, 1)
    return of_fit(model, data, "natural_gradient", path, num_draws=64, num_evaluations=128)


def switching(path: Any) -> Any:
    """Two rewards between which an agent switches."""
    model = ethogram.SwitchingGPIRL(
        reward(scale_prior=dist.LogNormal(np.log(5.0), 1.0), relevance_prior=1.0), 2
    )
    data = model.simulate(jax.random.key(0), num_trajectories=10, length=12).data
    return of_fit(model, data, "natural_gradient", path, num_draws=16, num_evaluations=32, num_restarts=1)


class Nearest:
    """The action of the nearest state."""

    def fit(self, X: Any, y: Any, sample_weight: Any) -> None:
        """Keep all."""
        self.X, self.y = X, y

    def predict(self, X: Any) -> Any:
        """Actions."""
        return self.y[[np.abs(self.X - x).sum(1).argmin() for x in X]]


def imitation(path: Any) -> Any:
    """Policies of known roles, asked of experts."""
    data, games = predator_prey.simulate(jax.random.key(0), 10)
    found = ethogram.imitate(
        jax.random.key(1), games.roles, Nearest(), PredatorPreyWorld(), data, rounds=6, horizon=10,
        expert=PredatorPreyExperts(games.roles), evaluation_games=10, checkpoint=path, **QUIET,
    )  # fmt: skip
    return [found.failure, found.steps, found.loss, [policy.y for policy in found.policies]]


def motion(path: Any) -> Any:
    """Recurrent policies of agents that move."""
    random = np.random.default_rng(0)
    scenes = Scenes(random.normal(size=(6, 14, 3, 2)), random.normal(size=(6, 14, 3, 2)), np.full(6, 14))
    found = imitate_motion(
        jax.random.key(0), None, scenes, roles="shuffled", horizons=(1, 2, 3, 4), features=motion_features,
        num_steps=150, num_units=4, checkpoint=path, **QUIET,
    )  # fmt: skip
    return [found.parameters, found.loss]


def curve(path: Any) -> Any:
    """Held-out scores of three numbers of roles."""
    _, data = roles()
    found = ethogram.heldout_score_curve(
        jax.random.key(0), lambda size: ethogram.RoleHMM(size, ethogram.GaussianEmission(2)), [1, 2, 3], data,
        num_steps=100, restarts=2, tol=0, checkpoint=path, checkpoint_every=10, **QUIET,
    )  # fmt: skip
    return [found.elbo, found.heldout]


def map_fits(path: Any) -> Any:
    """One fit for each of ten groups."""
    model, data = roles()
    found = ethogram.map_fits(
        model, data, by="group", key=jax.random.key(2), out=path, num_steps=100, tol=0, **QUIET
    )
    return [found[name].result.elbo for name in found]


def episodes(path: Any) -> Any:
    """Episodes of a random policy."""
    problem = sysadmin(4, horizon=100)
    policy = RandomPolicy(jax.random.key(0), problem)
    found = play_episodes(FluentWorld(problem), policy, 200, record=path, **QUIET)
    return [found.returns, [*found.rewards]]


KINDS: dict[str, Callable[[Any], Any]] = {
    "cavi": cavi, "svi": svi, "edits": edits, "nuts": nuts, "px-da": px_da, "rewards": rewards,
    "switching": switching, "imitation": imitation, "motion": motion, "score curve": curve, "map_fits": map_fits,
    "episodes": episodes,
}  # fmt: skip


def _work(kind: str, path: Path | None, out: Path, cache: str) -> None:
    """A run in a process of its own, and its result."""
    warnings.simplefilter("ignore")
    jax.config.update("jax_disable_most_optimizations", True)  # which compiles faster
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    arrays = [np.asarray(x) for x in jax.tree.leaves(KINDS[kind](path))]
    np.savez(out, *arrays)


def _same(one: Path, other: Path) -> bool:
    with np.load(one) as a, np.load(other) as b:
        return a.files == b.files and all(
            np.array_equal(a[name], b[name], equal_nan=True) for name in a.files
        )


def _written(path: Path) -> Any:
    """What changes with each write of a run; None before the first."""
    files = [path, *path.parent.glob(f"{path.name}.[0-9]*"), *path.glob("*.ethogram")]
    return [(file.name, file.stat().st_mtime_ns) for file in files if file.is_file()] or None


def _wait_for_write(process: Any, path: Path) -> None:
    """Until a run has written something new, or has ended."""
    before = _written(path)
    while process.exitcode is None and _written(path) == before:
        process.join(0.02)


def kill_row(kind: str, kills: int, seed: int) -> report.Row:
    """The row of a kind of run, after so many kills."""
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(
        ["ethogram.inference.imitation", "ethogram.inference.planning", "ethogram.fits"]
    )
    random = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        place, cache = Path(folder), f"{folder}/cache"

        def start(path: Path | None, out: str) -> Any:
            process = server.Process(target=_work, args=(kind, path, place / out, cache))
            process.start()
            return process

        start(None, "whole.npz").join()
        process = start(place / "watched", "0.npz")
        _wait_for_write(process, place / "watched")
        begin = time.perf_counter()
        process.join()
        seconds = time.perf_counter() - begin
        done, failed, ended, same = 0, 0, 1, int(_same(place / "0.npz", place / "whole.npz"))
        while not failed and (done < kills or ended == 1):
            path, out = place / f"run{ended}", f"{ended}.npz"
            process = start(path, out)
            if done < kills:
                _wait_for_write(process, path)
                process.join(random.uniform(0, seconds))
            else:
                process.join()
            if process.exitcode is None:
                process.kill()
                process.join()
                done += 1
            elif process.exitcode == 0:
                same, ended = same + _same(place / out, place / "whole.npz"), ended + 1
            else:
                failed += 1
        return {
            "run": kind, "kills": done, "resumed": ended, "to the bit": same, "failed": failed,
            "target": "all to the bit", "reached": same == ended and not failed,
            "correct": same == ended and not failed, "seconds after the first write": round(seconds, 1),
        }  # fmt: skip


def _state(number: int) -> ChainsState:
    return ChainsState(number, [], {"x": np.full(STATE, float(number))}, {})


def _store(path: Path) -> tuple[checkpoint.Checkpoint, int]:
    store = checkpoint.Checkpoint(path)
    store.__enter__()
    state = store.resumed(lambda: "s", ChainsState, lambda *_: None, lambda: _state(0))
    whole = (state.sites["x"] == state.done).all()
    return store, state.done if whole else -1


@contextlib.contextmanager
def _failing(name: str, at: int, fault: Callable[[], Any]) -> Iterator[None]:
    """Block in which call number `at` of a system call is a fault."""
    calls, true = [0], FAULTS[name]

    def failing(*given: Any, **settings: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            fault()
        return true(*given, **settings)

    setattr(os, PLACES[name], failing)
    try:
        yield
    finally:
        setattr(os, PLACES[name], true)


@contextlib.contextmanager
def _limited(size: int, kill: bool) -> Iterator[None]:
    """Block in which files have at most so many bytes: the write beyond fails, or kills the process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_DFL if kill else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def _full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _one_write(path: Path, kind: str, at: int, kill: bool) -> None:
    """In a process of its own: one more state is written, while one system call fails or is the last."""
    warnings.simplefilter("ignore")
    store, done = _store(path)
    fault = (lambda: os.kill(os.getpid(), signal.SIGKILL)) if kill else _full
    with _limited(at, kill) if kind == "write" else _failing(kind, at, fault):
        store.save(_state(done + 1), done + 1)
    store.__exit__(None)  # which tries again


def write_rows(num_bytes: int, seed: int) -> Iterator[report.Row]:
    """Rows of faults and kills at the system calls of a write, with bytes of the file at which it ends."""
    fork = multiprocessing.get_context("fork")
    random = np.random.default_rng(seed)
    places = {"open": range(1, 3), "fsync": range(1, 3), "link": range(1, 2), "rename": range(1, 3)}
    places |= {"write": sorted(random.integers(0, 8 * STATE, num_bytes).tolist())}  # type: ignore[dict-item]
    for kill in (False, True):
        for kind, numbers in places.items():
            kept = written = 0
            for at in numbers:
                with tempfile.TemporaryDirectory() as folder:
                    path = Path(folder) / "run"
                    for number in (1, 2):
                        store, _ = _store(path)
                        store.save(_state(number), number)
                        store.__exit__(None)
                    process = fork.Process(target=_one_write, args=(path, kind, at, kill))
                    process.start()
                    process.join()
                    store, done = _store(path)
                    kept += done in ((2, 3) if kill else (3,))
                    store.save(_state(done + 1), done + 1)
                    store.__exit__(None)
                    store, after = _store(path)
                    store.__exit__(None)
                    written += after == done + 1 and {*os.listdir(folder)} == {"run", "run.previous"}
            yield {
                "run": f"{'kill' if kill else 'fault'} at {kind}", "kills": len(numbers), "resumed": kept,
                "to the bit": written, "failed": len(numbers) - min(kept, written), "target": "all to the bit",
                "reached": kept == written == len(numbers), "correct": kept == written == len(numbers),
            }  # fmt: skip


def measure(settings: argparse.Namespace) -> list[report.Row]:
    """One row per system call of a write, and per kind of run."""
    rows = [*write_rows(8 if settings.quick else 100, settings.seed)]
    kinds, kills = (QUICK, KILLS_QUICK) if settings.quick else (settings.kinds or [*KINDS], settings.kills)
    with ThreadPoolExecutor(settings.workers) as pool:
        waiting = [pool.submit(kill_row, kind, kills, settings.seed) for kind in kinds]
        for one in waiting:
            rows.append(one.result())
            print(rows[-1], file=sys.stderr)
    return rows


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", nargs="+", choices=[*KINDS], help="kinds of runs; all by default")
    parser.add_argument("--kills", type=int, default=KILLS, help="kills of each kind")
    parser.add_argument("--workers", type=int, default=1, help="kinds at a time")


if __name__ == "__main__":
    raise SystemExit(report.run("durable_runs", __doc__, measure, options=_options))
