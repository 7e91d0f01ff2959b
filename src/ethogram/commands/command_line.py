"""The command `ethogram`: each of its commands is a module with `add_parser` and `run`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence

from ethogram.commands import doctor, fit, mmap, plan, play, tour
from ethogram.commands.argument_types import Parser
from ethogram.commands.process import INTERRUPTED, OUTPUT_CLOSED, refuse

__all__ = ["main"]

COMMANDS = (tour, play, plan, mmap, fit, doctor)


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
            if (
                argv is None
            ):  # at its end Python waits for a compilation, and Ctrl-C then would end in a crash
                signal.signal(signal.SIGINT, signal.SIG_DFL)
    except KeyboardInterrupt:
        return refuse("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # Python flushes standard output once more at its end, and would complain.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return refuse("standard output is closed", OUTPUT_CLOSED)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return refuse(f"{place}{error.strerror}" if error.strerror else error)


def _parser() -> Parser:
    from ethogram import __version__

    parser = Parser(prog="ethogram", description="Probabilistic models of sequential decision making.")
    parser.add_argument("--version", action="version", version=f"ethogram {__version__}")
    commands = parser.add_subparsers(dest="command", title="commands")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
