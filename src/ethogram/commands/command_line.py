"""The command `ethogram`: parses arguments and calls the rest of the package."""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from ethogram.commands import fit_arguments
from ethogram.commands.argument_types import LARGEST_SEED, integer, seconds

__all__ = ["METHODS", "main", "use_compilation_cache"]

OUTPUT_CLOSED, BAD_INPUT, IMPOSSIBLE, NOTHING_FOUND, INTERRUPTED = 1, 2, 3, 4, 130
METHODS = ("hybrid", "ags", "exact", "mpbp", "mpbp-cavity", "mpe", "sequential", "marginal")
FORMATS = ("text", "json", "uai")
GAMES = ("tetris",)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code of the command: 0, 2 for bad input, 3 for impossible evidence, 4 if nothing possible was found,
    130 after Ctrl-C, 1 for a closed output.

    Parameters
    ----------
    argv : arguments; the command line's by default.
    """
    try:
        try:
            parser = _parser()
            arguments = parser.parse_args(argv)
            if arguments.command is None:
                parser.print_help()
                return 0
            return arguments.run(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except KeyboardInterrupt:
        return _refuse("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Python flushes standard output once more at its end, and would complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _refuse("standard output is closed", OUTPUT_CLOSED)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _refuse(f"{place}{error.strerror}" if error.strerror else str(error))


class _Parser(argparse.ArgumentParser):
    """Reports an error in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(BAD_INPUT, f"{self.prog}: {message}\n")


def _parser() -> _Parser:
    from ethogram import __version__

    parser = _Parser(prog="ethogram", description="Probabilistic models of sequential decision making.")
    parser.add_argument("--version", action="version", version=f"ethogram {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands")

    tour = commands.add_parser(
        "tour",
        help="fit every system to its bundled data",
        description="Fits systems to their bundled data, in parallel on the available cores; prints a table and "
        "writes a figure and an ArviZ file for each. Under three CPU minutes, if nothing is compiled yet.",
    )
    tour.add_argument("systems", nargs="*", metavar="SYSTEM", help="systems to fit; all of them by default")
    tour.add_argument("--out", type=Path, default=Path("tour"), metavar="DIR", help="output folder (tour)")
    length = tour.add_mutually_exclusive_group()
    length.add_argument("--quick", action="store_true", help="the short form, which is the default")
    length.add_argument("--full", action="store_true", help="more data, restarts and draws")
    tour.add_argument("--seed", type=integer(0, LARGEST_SEED), default=0, metavar="N", help="random seed (0)")
    tour.set_defaults(run=_tour)

    play = commands.add_parser(
        "play",
        help="play a game in the terminal and record it",
        description="Plays a game in the terminal and records every move as it is made. When time for a move runs "
        "out, the piece falls, and the recorded row has no decision.",
    )
    play.add_argument("game", choices=GAMES, help="the game to play: %(choices)s")
    play.add_argument(
        "--out",
        type=Path,
        default=Path("tetris.csv"),
        metavar="FILE.csv",
        help="file to append to (tetris.csv)",
    )
    play.add_argument(
        "--rows", type=integer(4), metavar="N", help="rows of the board (those of the file, or 20)"
    )
    play.add_argument(
        "--cols", type=integer(4), metavar="N", help="columns of the board (those of the file, or 10)"
    )
    play.add_argument("--seconds", type=seconds, metavar="S", help="time limit of a move (no limit)")
    play.add_argument(
        "--seed", type=integer(0, LARGEST_SEED), metavar="N", help="seed of the pieces (random)"
    )
    play.add_argument("--moves", type=integer(1), metavar="N", help="stop after so many moves (no limit)")
    play.set_defaults(run=_play)

    plan = commands.add_parser(
        "plan",
        help="plan in an RDDL problem",
        description="Plays episodes of a problem in RDDL by online planning: gradient ascent on forward marginals "
        "(SOGBOFA). DOMAIN and INSTANCE are files, or a name and number of rddlrepository, such as "
        "SysAdmin_MDP_ippc2011 1. Needs the extra ethogram[planning].",
    )
    plan.add_argument("domain", metavar="DOMAIN", help="domain file, or a name")
    plan.add_argument("instance", metavar="INSTANCE", help="instance file, or a number")
    plan.add_argument("--episodes", type=integer(1), default=30, metavar="N", help="number of episodes (30)")
    plan.add_argument("--seconds", type=seconds, default=0.05, metavar="S", help="time of a decision (0.05)")
    plan.add_argument("--depth", type=integer(1, 32), metavar="N", help="steps to look ahead (measured)")
    plan.add_argument(
        "--mode", choices=("original", "conformant"), default="conformant", help="%(choices)s (conformant)"
    )
    plan.add_argument("--seed", type=integer(0, LARGEST_SEED), default=0, metavar="N", help="random seed (0)")
    plan.add_argument(
        "--json", type=Path, metavar="FILE", help="record of the episodes; an unfinished one is gone on from"
    )
    plan.set_defaults(run=_plan)

    mmap = commands.add_parser(
        "mmap",
        help="marginal MAP in a Bayesian network",
        description="Solves a marginal MAP query: the most probable joint assignment of some variables given evidence, "
        "all other variables summed out. Exit code 3 if the evidence is impossible, 4 if no assignment of positive "
        "probability was found.",
    )
    mmap.add_argument(
        "network", type=Path, metavar="NETWORK", help="UAI, BIF, XMLBIF, NET, XDSL, DSL, XBN or .jgum file"
    )
    mmap.add_argument(
        "--evidence",
        metavar="FILE|LIST",
        help="file (UAI, one 'variable = state' a line, or JSON), or variable=state,variable=state (none)",
    )
    mmap.add_argument(
        "--sample", type=integer(0), metavar="K", help="sample of an evidence file with several, from 0"
    )
    mmap.add_argument(
        "--map",
        required=True,
        metavar="FILE|LIST",
        help="file (UAI, one name a line, or JSON), or names separated by commas",
    )
    mmap.add_argument(
        "--names", type=Path, metavar="FILE", help="JSON with the variable and state names of a UAI file"
    )
    mmap.add_argument("--method", choices=METHODS, default="hybrid", help="%(choices)s (hybrid)")
    mmap.add_argument("--time-limit", type=seconds, default=10.0, metavar="S", help="seconds (10)")
    mmap.add_argument("--seed", type=integer(0, LARGEST_SEED), default=0, metavar="N", help="random seed (0)")
    mmap.add_argument(
        "--format",
        choices=FORMATS,
        default="text",
        help="what is printed: text; json; or uai, the MMAP result of the UAI competitions (text)",
    )
    mmap.add_argument("--json", type=Path, metavar="FILE", help="also write the result there")
    mmap.set_defaults(run=_mmap)

    fit = commands.add_parser(
        "fit",
        help="fit a model to a table",
        description="Fits a model to a CSV file, and writes the fit, an ArviZ file, figures, a table of estimates and "
        "a report to a folder. A number of roles is picked from a range by held-out scores: the least within one "
        "standard error of the best.",
    )
    fit_arguments.add_arguments(fit)
    fit.set_defaults(run=_fit)

    doctor = commands.add_parser(
        "doctor",
        help="print versions, devices and settings",
        description="Prints versions of packages, devices, precision, the compilation cache and the number of cores.",
    )
    doctor.set_defaults(run=_doctor)
    return parser


def _tour(arguments: argparse.Namespace) -> int:
    from ethogram.commands.output_folder import make_folder
    from ethogram.tour import SYSTEMS, available_cores, take_tour, unknown_systems

    wrong = unknown_systems(arguments.systems)
    if wrong:
        return _refuse(f"no system {wrong[0]!r}: choose from {', '.join(SYSTEMS)}")
    try:
        make_folder(arguments.out)
    except ValueError as error:
        return _refuse(str(error))
    systems = list(dict.fromkeys(arguments.systems or SYSTEMS))
    processes = min(available_cores(), len(systems))
    if processes == 1:
        with _quits_at_once():
            _prepare()
            for name in systems:
                import_module(SYSTEMS[name])
    take_tour(
        systems,
        arguments.out,
        full=arguments.full,
        seed=arguments.seed,
        processes=processes,
        prepare=_prepare,
    )
    return 0


def _prepare() -> None:
    """Set up a process: use the compilation cache, and ignore ArviZ's announcement of its refactoring."""
    use_compilation_cache()
    warnings.filterwarnings("ignore", r"\s*ArviZ is undergoing", FutureWarning)


def _play(arguments: argparse.Namespace) -> int:
    with _quits_at_once():
        from ethogram.commands.play_tetris import play_tetris

        use_compilation_cache()
    settings = {name: getattr(arguments, name) for name in ("rows", "cols", "seconds", "seed", "moves")}
    try:
        play_tetris(arguments.out, **settings)
    except ValueError as error:
        return _refuse(str(error))
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    with _quits_at_once():
        from ethogram.commands.plan import play

        use_compilation_cache()
    settings = {name: getattr(arguments, name) for name in ("episodes", "seconds", "depth", "mode", "seed")}
    try:
        play(arguments.domain, arguments.instance, json_file=arguments.json, **settings)
    except (ImportError, ValueError, FileNotFoundError) as error:
        return _refuse(str(error))
    return 0


def _mmap(arguments: argparse.Namespace) -> int:
    with _quits_at_once():
        from ethogram.commands.mmap import answer
        from ethogram.inference.networks.solve_mmap import ImpossibleEvidenceError

        use_compilation_cache()
    try:
        result = answer(
            arguments.network,
            evidence=arguments.evidence,
            sample=arguments.sample,
            variables=arguments.map,
            names=arguments.names,
            method=arguments.method,
            time_limit=arguments.time_limit,
            seed=arguments.seed,
            json_file=arguments.json,
            form=arguments.format,
        )
    except ValueError as error:
        return _refuse(str(error), IMPOSSIBLE if isinstance(error, ImpossibleEvidenceError) else BAD_INPUT)
    if result.log_probability == -math.inf:
        message = "no assignment of positive probability was found: give more time by --time-limit, or another --seed"
        return _refuse(message, NOTHING_FOUND)
    return 0


def _fit(arguments: argparse.Namespace) -> int:
    with _quits_at_once():
        from ethogram.commands.fit import fit_table

        _prepare()
    try:
        fit_table(arguments)
    except (TypeError, ValueError) as error:
        return _refuse(" ".join(str(error).split()))
    return 0


def _doctor(arguments: argparse.Namespace) -> int:
    with _quits_at_once():
        from ethogram.commands.doctor import diagnose

        _prepare()
    print(diagnose(use_compilation_cache()))
    return 0


@contextlib.contextmanager
def _quits_at_once() -> Iterator[None]:
    """Ctrl-C ends the process at once: raised during imports, it may surface as another error, or as a crash."""

    def end(*_: object) -> NoReturn:
        os.write(2, b"ethogram: interrupted\n")
        os._exit(INTERRUPTED)

    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def use_compilation_cache() -> Path | None:
    """Folder of the compilation cache from now on; None if none can be written.

    It is ``ethogram/jax`` under ``XDG_CACHE_HOME``, or under ``~/.cache``. A folder that is already set, such as by
    ``JAX_COMPILATION_CACHE_DIR``, is kept.
    """
    import jax

    chosen = getattr(jax.config, "jax_compilation_cache_dir", None)
    if chosen is not None:
        return Path(chosen)
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "ethogram" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder


def _refuse(message: str, code: int = BAD_INPUT) -> int:
    print(f"ethogram: {message}", file=sys.stderr)
    return code
