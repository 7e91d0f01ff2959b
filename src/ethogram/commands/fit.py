"""The command `ethogram fit`: its arguments, and which of them each model takes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ethogram.commands.argument_types import (
    LARGEST_SEED,
    column_names,
    integer,
    number,
    setting,
    sizes,
    step,
)
from ethogram.commands.process import importing, refuse

__all__ = ["FRAMES", "add_parser", "check_arguments", "flag", "run"]

FRAMES = ("sequence", "time", "agent", "group", "subject", "step", "snap", "missing")
NEEDED = {
    "roles": ("features",),
    "intents": ("states", "actions"),
    "choices": ("decision", "chosen", "features"),
    "rewards": ("states", "actions", "transitions", "discount"),
}
"""Arguments without which a model cannot be fitted."""
TAKEN = {
    "roles": (*FRAMES, "units", "num_roles"),
    "intents": (*FRAMES, "num_states", "num_actions", "truncation"),
    "choices": ("option", "subject", "weight", "available", "kappa"),
    "rewards": (*FRAMES, "state_features"),
}
"""Further arguments that a model takes."""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers; arguments that only some models take are None where they are not given."""
    parser = commands.add_parser(
        "fit",
        help="fit a model to a table",
        description="Fits a model to a CSV file, and writes the fit, an ArviZ file, figures, a table of estimates and "
        "a report to a folder. A number of roles is picked from a range by held-out scores: the least within one "
        "standard error of the best.",
    )
    parser.add_argument("table", type=Path, metavar="DATA.csv", help="table with a header, may be .gz")
    parser.add_argument("--model", required=True, choices=tuple(NEEDED), help="%(choices)s")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="output folder")
    parser.add_argument("--method", default="auto", metavar="M", help="algorithm of ethogram.fit (auto)")
    parser.add_argument(
        "--setting",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the algorithm, such as num_steps=200; may be repeated",
    )
    parser.add_argument(
        "--seed", type=integer(0, LARGEST_SEED), default=0, metavar="N", help="random seed (0)"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace the results in DIR")

    frames = parser.add_argument_group("roles, intents, rewards: one row per frame")
    frames.add_argument(
        "--sequence", type=column_names, metavar="COLUMNS", help="columns that identify a sequence"
    )
    frames.add_argument("--time", metavar="COLUMN", help="times; without it rows are consecutive frames")
    frames.add_argument(
        "--step", type=step, metavar="T", help="time between frames, such as 0.5, or of dates 10min"
    )
    frames.add_argument(
        "--snap", action="store_true", default=None, help="move times to the nearest frame of the step"
    )
    frames.add_argument(
        "--missing",
        choices=("error", "nan"),
        help="raise an error for empty cells, or treat them as missing (error)",
    )
    for name, what in (("agent", "agent"), ("group", "demonstration"), ("subject", "subject")):
        frames.add_argument(f"--{name}", metavar="COLUMN", help=f"{what} of each sequence")
    for name in ("states", "actions"):
        frames.add_argument(f"--{name}", metavar="COLUMN", help="integers or names, of intents and rewards")

    parser.add_argument(
        "--features", type=column_names, metavar="COLUMNS", help="feature columns (roles, choices)"
    )
    roles = parser.add_argument_group("roles")
    roles.add_argument(
        "--num-roles", type=sizes, metavar="N|N:N", help="number of roles, or range to pick from (2:8)"
    )
    roles.add_argument(
        "--units",
        type=lambda text: [unit.strip() for unit in text.split(",")],
        metavar="UNITS",
        help="units of the features, one per feature; those in rad are angles (rad of turn)",
    )
    intents = parser.add_argument_group("intents")
    intents.add_argument("--num-states", type=integer(1), metavar="N", help="states (those in the data)")
    intents.add_argument("--num-actions", type=integer(1), metavar="N", help="actions (those in the data)")
    intents.add_argument("--truncation", type=integer(1), metavar="N", help="most intents (10)")
    choices = parser.add_argument_group("choices: one row per option of a decision")
    choices.add_argument(
        "--decision", type=column_names, metavar="COLUMNS", help="columns that identify a decision"
    )
    choices.add_argument("--option", metavar="COLUMN", help="names of the options")
    choices.add_argument("--chosen", metavar="COLUMN", help="1 in the row of the chosen option, else 0")
    choices.add_argument(
        "--available", metavar="COLUMN", help="1 in the rows of options that could be chosen, else 0"
    )
    choices.add_argument("--weight", metavar="COLUMN", help="how often a decision counts")
    choices.add_argument(
        "--kappa",
        type=number(0, float("inf"), "a positive number"),
        metavar="V",
        help="prior variance of the values (25)",
    )
    rewards = parser.add_argument_group("rewards")
    rewards.add_argument(
        "--transitions", type=Path, metavar="FILE", help="CSV with state, action, next state, probability"
    )
    rewards.add_argument(
        "--discount",
        type=number(0, 1, "a number between 0 and 1"),
        metavar="G",
        help="discount per step, below 1",
    )
    rewards.add_argument(
        "--state-features",
        type=Path,
        metavar="FILE",
        help="CSV with state and features, on which rewards depend; rewards are independent without it",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code, after the table is read, the model fitted, and the results written."""
    try:
        check_arguments(arguments)
        with importing():
            from ethogram.commands.fit_results import fit_table
        fit_table(arguments)
    except (ImportError, TypeError, ValueError) as error:
        return refuse(error)
    return 0


def flag(name: str) -> str:
    """An argument as it is typed."""
    return "--" + name.replace("_", "-")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise ValueError unless the arguments of the model, and no others, are given."""
    model = arguments.model
    for name in NEEDED[model]:
        if getattr(arguments, name) is None:
            needed = ", ".join(map(flag, NEEDED[model]))
            raise ValueError(f"{flag(name)} is missing: --model {model} needs {needed}")
    known = {name for names in (*NEEDED.values(), *TAKEN.values()) for name in names}
    for name in sorted(known - {*NEEDED[model], *TAKEN[model]}):
        if getattr(arguments, name) is not None:
            taken = ", ".join(map(flag, (*NEEDED[model], *TAKEN[model])))
            raise ValueError(f"{flag(name)} is not an argument of --model {model}, which takes {taken}")
