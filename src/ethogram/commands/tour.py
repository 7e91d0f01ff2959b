"""The command `ethogram tour`: every system on its bundled data."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
from typing import Any

from ethogram.commands.argument_types import LARGEST_SEED, integer, make_folder
from ethogram.commands.process import importing, prepare, refuse

__all__ = ["add_parser", "run"]


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "tour",
        help="fit every system to its bundled data",
        description="Fits systems to their bundled data, in parallel on the available cores; prints a table and "
        "writes a figure and an ArviZ file for each. Under three CPU minutes, if nothing is compiled yet.",
    )
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help="systems to fit; all of them by default")
    parser.add_argument("--out", type=Path, default=Path("tour"), metavar="DIR", help="output folder (tour)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="the short form, which is the default")
    length.add_argument("--full", action="store_true", help="more data, restarts and draws")
    parser.add_argument(
        "--seed", type=integer(0, LARGEST_SEED), default=0, metavar="N", help="random seed (0)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code, after the tour; `ethogram.tour` is imported without JAX, which each process imports by itself."""
    from ethogram.terminal import available_cores
    from ethogram.tour import SYSTEMS, take_tour, unknown_systems

    wrong = unknown_systems(arguments.systems)
    if wrong:
        return refuse(f"no system {wrong[0]!r}: choose from {', '.join(SYSTEMS)}")
    try:
        make_folder(arguments.out)
    except ValueError as error:
        return refuse(error)
    systems = list(dict.fromkeys(arguments.systems or SYSTEMS))
    processes = min(available_cores(), len(systems))
    if processes == 1:
        with importing():
            for name in systems:
                import_module(SYSTEMS[name])
    take_tour(
        systems,
        arguments.out,
        full=arguments.full,
        seed=arguments.seed,
        processes=processes,
        prepare=prepare,
    )
    return 0
