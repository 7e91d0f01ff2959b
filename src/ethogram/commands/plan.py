"""The command `ethogram plan`: episodes of the planner on an RDDL problem."""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ethogram.inference.checkpoint import check_path
from ethogram.inference.planning import Episodes, SogbofaPolicy, play_episodes
from ethogram.models.planning import problem_from_model

__all__ = ["make_environment", "play"]


def make_environment(domain: str, instance: str) -> Any:
    """A pyRDDLGym environment that refuses actions which break preconditions.

    Raises
    ------
    ImportError : pyRDDLGym, or rddlrepository for a name, is not installed.
    ValueError : there is no such problem, or it cannot be read.
    """
    try:
        import pyRDDLGym
    except ImportError as error:
        raise ImportError("RDDL problems need pyRDDLGym: pip install 'ethogram[planning]'") from error
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return pyRDDLGym.make(domain, instance, enforce_action_constraints=True)
        except ImportError:
            raise
        except Exception as error:
            raise ValueError(f"{domain}, instance {instance}: {error}") from error


def play(
    domain: str,
    instance: str,
    *,
    episodes: int,
    seconds: float,
    depth: int | None,
    mode: str,
    seed: int,
    json_file: Path | None,
) -> Episodes:
    """Episodes of the planner; prints their mean return. A JSON file of the same settings is gone on from."""
    from ethogram.models.planning import read_rddl

    if json_file is not None:
        check_path(json_file, "--json")
    read_rddl(domain, instance)  # its messages name what is wrong in the files
    environment = make_environment(domain, instance)
    problem = problem_from_model(environment.model)
    policy = SogbofaPolicy(jax.random.key(seed), problem, seconds, depth=depth, mode=mode)
    settings = {"domain": domain, "instance": instance, "seconds": seconds, "depth": depth, "mode": mode}
    print(
        f"{problem.domain}, {problem.instance}: {len(problem.fluents)} fluents, {len(problem.actions)} actions, "
        f"{problem.program.num_rows} rows, {policy.depth} steps ahead, horizon {problem.horizon}",
        flush=True,
    )
    found = play_episodes(
        environment,
        policy,
        episodes,
        seed=seed,
        record=json_file,
        settings=settings,
        progress_bar=sys.stderr.isatty(),
    )
    count = len(found.returns)
    error = f", standard error {np.std(found.returns, ddof=1) / np.sqrt(count):.1f}" if count > 1 else ""
    print(
        f"mean return {found.returns.mean():.1f}{error}, of {count} episodes; "
        f"{1e3 * found.seconds.mean():.0f} ms a decision"
    )
    return found
