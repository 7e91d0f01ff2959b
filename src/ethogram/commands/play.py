"""The command `ethogram play`: starts the example that plays a game in the terminal."""

from __future__ import annotations

import argparse
import runpy
from pathlib import Path
from typing import Any

from ethogram.commands.process import importing, refuse

__all__ = ["EXAMPLES", "add_parser", "run"]

GAMES = ("tetris",)
EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
"""Folder of the examples; installed packages are without it."""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "play",
        help="play a game in the terminal and record it",
        description="Plays a game in the terminal and records every move as it is made, by examples/play_GAME.py of "
        "the repository. `ethogram play tetris --help` lists its arguments.",
    )
    parser.add_argument("game", choices=GAMES, metavar="GAME", help="%(choices)s")
    words = parser.add_argument(
        "words", nargs=argparse.REMAINDER, metavar="...", help="arguments of the game"
    )
    words.required = False  # as from Python 3.12 on
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code of the example, or that of bad input where there is no example."""
    script = EXAMPLES / f"play_{arguments.game}.py"
    if not script.is_file():
        return refuse(
            f"play {arguments.game} is examples/{script.name} of the repository, which this installation does not "
            "have: clone the repository, and run it by python"
        )
    with importing():
        example = runpy.run_path(str(script), run_name=script.stem)
    return example["main"](arguments.words, prog=f"ethogram play {arguments.game}")
