"""The command `ethogram plan`: episodes of the planner on an RDDL problem."""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ethogram.commands.argument_types import LARGEST_SEED, integer, seconds
from ethogram.commands.process import importing, refuse

if TYPE_CHECKING:
    from ethogram.inference.planning import Episodes

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "plan",
        help="plan in an RDDL problem",
        description="Plays episodes of a problem in RDDL by online planning: gradient ascent on forward marginals "
        "(SOGBOFA). DOMAIN and INSTANCE are files, or a name and number of rddlrepository, such as "
        "SysAdmin_MDP_ippc2011 1. Needs the extra ethogram[planning].",
    )
    parser.add_argument(
        "--list", action=_ListDomains, nargs=0, help="print the names of domains that can be read, and exit"
    )
    parser.add_argument("domain", metavar="DOMAIN", help="domain file, or a name")
    parser.add_argument("instance", metavar="INSTANCE", help="instance file, or a number")
    parser.add_argument(
        "--episodes", type=integer(1), default=30, metavar="N", help="number of episodes (30)"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=0.05, metavar="S", help="time limit of a decision (0.05)"
    )
    parser.add_argument(
        "--depth", type=integer(1, 32), metavar="N", help="steps to look ahead (as many as time allows)"
    )
    parser.add_argument(
        "--mode", choices=("original", "conformant"), default="conformant", help="%(choices)s (conformant)"
    )
    parser.add_argument(
        "--seed", type=integer(0, LARGEST_SEED), default=0, metavar="N", help="random seed (0)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write episodes to FILE; resume if it exists"
    )
    parser.set_defaults(run=run)


class _ListDomains(argparse.Action):
    """Prints names in place of a run, for which domain and instance are required."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        with importing():
            from ethogram.models.planning.rddl_problem import domain_names
        try:
            print("\n".join(domain_names()))
        except ImportError as error:
            parser.exit(refuse(error))
        parser.exit()


def run(arguments: argparse.Namespace) -> int:
    """Exit code, after the episodes are played and their mean return is printed."""
    try:
        found = _play(arguments)
    except (ImportError, ValueError, FileNotFoundError) as error:
        return refuse(error)
    count = len(found.returns)
    spread = f", standard error {found.returns.std(ddof=1) / math.sqrt(count):.1f}" if count > 1 else ""
    print(
        f"mean return {found.returns.mean():.1f}{spread}, of {count} episodes; "
        f"{1e3 * found.seconds.mean():.0f} ms per decision"
    )
    return 0


def _play(arguments: argparse.Namespace) -> Episodes:
    """Episodes of the planner, with those of an existing record of the same settings."""
    with importing():
        import jax

        from ethogram.inference.checkpoint import check_path
        from ethogram.inference.planning import SogbofaPolicy, play_episodes
        from ethogram.models.planning import read_rddl

    if arguments.json is not None:
        check_path(arguments.json, "--json")
    problem = read_rddl(arguments.domain, arguments.instance)  # its messages name what is wrong in the files
    environment = _make_environment(arguments.domain, arguments.instance)
    settings = {name: getattr(arguments, name) for name in ("domain", "instance", "seconds", "depth", "mode")}
    key = jax.random.key(arguments.seed)
    policy = SogbofaPolicy(key, problem, arguments.seconds, depth=arguments.depth, mode=arguments.mode)
    print(
        f"{problem.domain}, {problem.instance}: {len(problem.fluents)} fluents, {len(problem.actions)} actions, "
        f"{problem.program.num_rows} rows, {policy.depth} steps ahead, horizon {problem.horizon}",
        flush=True,
    )
    return play_episodes(
        environment,
        policy,
        arguments.episodes,
        seed=arguments.seed,
        record=arguments.json,
        settings=settings,
        progress_bar=sys.stderr.isatty(),
    )


def _make_environment(domain: str, instance: str) -> Any:
    """A pyRDDLGym environment that refuses actions which break preconditions.

    Raises
    ------
    ImportError : pyRDDLGym, or rddlrepository for a name, is not installed.
    ValueError : there is no such problem, or it cannot be read.
    """
    import pyRDDLGym

    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return pyRDDLGym.make(domain, instance, enforce_action_constraints=True)
        except ImportError:
            raise
        except Exception as error:
            raise ValueError(f"{domain}, instance {instance}: {error}") from error
