"""The clone that these tests look at, its files, and what stands in for fits where pages and tours are run."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from numpyro.infer import HMC, MCMC

import ethogram
from ethogram.fits import fit_object, systems
from ethogram.inference.conjugate import gibbs_draws
from ethogram.inference.conjugate.ascent import Ascended, Ascent
from ethogram.inference.rewards import RewardFit, RewardPosterior, Status
from ethogram.inference.rewards.hyper_parameters import free_sizes

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"__pycache__", "build", "dist", "site", "tour"}


@pytest.fixture(scope="session")
def root() -> Path:
    """The clone's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def repository_files() -> list[Path]:
    """Files that git tracks or would track, relative to the top; without git, all but generated ones.

    Symbolic links are left out: what they lead to is listed under its own name.
    """
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
        paths = [Path(name) for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        paths = []
    if not paths:
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*") if _is_kept(path.relative_to(ROOT))]
    kept = [path for path in paths if (ROOT / path).is_file() and not (ROOT / path).is_symlink()]
    assert len(kept) > 10, f"only {kept} found under the clone"
    return sorted(kept)


def _is_kept(path: Path) -> bool:
    hidden = any(part.startswith(".") and part != ".ci" for part in path.parts[:-1])
    generated = any(part in GENERATED or part.endswith(".egg-info") for part in path.parts)
    linked = any((ROOT / parent).is_symlink() for parent in path.parents)
    return not (hidden or generated or linked)


@pytest.fixture
def starts_only(monkeypatch):
    """Starts in place of fits and chains: pages and tours show how they are called, other tests what they find."""
    make, export = MCMC.__init__, ethogram.to_arviz
    solve, policy = ethogram.solve_mmap, ethogram.SogbofaPolicy

    def stop_at_once(self, problem, blocks, **settings):
        elbo = np.linspace(-2.0, -1.0, self.restarts, dtype=np.float32)
        self.journal.advance(None, 1, [0], [elbo - 1])
        self.spent = True
        return Ascended(blocks, elbo, np.zeros(self.restarts, bool))

    monkeypatch.setattr(gibbs_draws, "FIRST", 1)

    def moved(self, state, model_args, model_kwargs):
        return state._replace(z=jax.tree.map(lambda x: x + 0.01, state.z), i=state.i + 1)

    def prior_of_reward(key, model, *settings):
        count, hyper = model.num_white, np.zeros((1, sum(free_sizes(model).values())))
        posterior = RewardPosterior(
            model, np.zeros((1, 1, count)), np.eye(count)[None, None], hyper, np.zeros(1)
        )
        return RewardFit(posterior, -3.0, 0.1, -3.0, np.array([-3.0]), -2.0, Status.CONVERGED, 0, 0.0)

    def make_short(self, sampler, *, num_warmup, num_samples, **settings):
        make(self, sampler, num_warmup=min(num_warmup, 10), num_samples=min(num_samples, 20), **settings)

    def export_few(*given, num_draws=50, **options):
        return export(*given, num_draws=min(num_draws, 50), **options)

    monkeypatch.setattr(Ascent, "__call__", stop_at_once)
    for kernel in (HMC, ethogram.PXDA):
        monkeypatch.setattr(kernel, "sample", moved)
    monkeypatch.setattr(sys.modules[ethogram.fit_reward.__module__], "_fit_by_steps", prior_of_reward)
    short = {"hyper": "fixed", "num_steps": 1, "num_draws": 2, "num_evaluations": 4}
    switching = functools.partial(ethogram.rewards.fit_switching, **short)
    monkeypatch.setattr("ethogram.inference.rewards.fit_switching", switching)
    monkeypatch.setattr(MCMC, "__init__", make_short)
    hasty = {"time_limit": 0.001, "num_restarts": 4}
    monkeypatch.setattr(ethogram, "SogbofaPolicy", lambda *given, **more: policy(*given[:2], **hasty, **more))
    monkeypatch.setattr(ethogram, "solve_mmap", lambda *given, time_limit: solve(*given, time_limit=0.5))
    for place in (ethogram, systems, fit_object):
        monkeypatch.setattr(place, "to_arviz", export_few)
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
