"""The command `ethogram fit`: its arguments, and which of them each model and reader takes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ethogram.commands.argument_types import (
    LARGEST_SEED,
    column_names,
    emissions,
    integer,
    label,
    number,
    setting,
    sizes,
    step,
)
from ethogram.commands.process import importing, refuse

__all__ = ["READERS", "add_parser", "check_arguments", "flag", "run"]

USAGE = "ethogram fit [-h] DATA [DATA ...] --model MODEL --out DIR [ARGUMENTS]"
DESCRIPTION = """\
Fits a model to a table, or to files of animal tracking. DIR gets a report for
a browser, the figure, summary.csv with 90 % intervals, fit.ethogram for
ethogram.load and fit.nc for ArviZ; of roles and intents states.csv with a row
per frame, time_budget.csv and bouts.csv, of covariates effects.csv; of a range
of roles their held-out scores: the least number within one standard error of
the best is fitted."""
EXAMPLES = """\
emissions, of all features, one per feature in their order, or by name:
  --emission gaussian    --emission gamma,von-mises    --emission y=poisson
  gaussian, gamma, von-mises, poisson, bernoulli, binomial:LARGEST,
  categorical[:NUMBER], mixture[:COMPONENTS], autoregressive[:LAGS]
  Without it angles in rad have von Mises, steps and lengths beside angles
  gamma, and other features Gaussian distributions.

examples:
  ethogram fit tracks.csv --model roles --sequence animal --agent animal
    --time t --step 10min --features lon,lat --step-and-turn --out modes
  ethogram fit "tags/*.csv" --model roles --reader movebank --step 1h --snap
    --step-and-turn --num-roles 3 --out modes
  ethogram fit tracks.csv --model roles --by animal --workers 4 --time t
    --features x,y --num-roles 3 --out animals
  ethogram fit fixes.csv --model roles --sequence animal --subject animal
    --time t --features x,y --step-and-turn --num-roles 3 --out heat
    --covariates temperature,sex --formula "temperature * sex" --vary subject
  ethogram fit trips.csv --model choices --decision trip --option mode
    --chosen taken --features hours,price --out trips"""

LABELS = ("agent", "group", "subject")
TABLES = ("sep", "decimal")
FRAMES = ("sequence", "time", *LABELS, "step", "snap", "missing", "duplicates", *TABLES)
MOVING = ("covariates", "missing_covariates")
READERS = {
    "table": (*FRAMES, "max_speed", "units", "features", *MOVING),
    "movebank": ("step", "snap", "individuals", "features", "duplicates", "max_speed", *LABELS, *MOVING),
    "deeplabcut": ("frame_rate", "individuals", "keypoints", *LABELS),
    "sleap": ("frame_rate", "individuals", "keypoints", *LABELS),
}
"""Arguments of the readers of features."""
NEEDED = {
    "roles": (),
    "intents": ("states", "actions"),
    "choices": ("decision", "chosen", "features"),
    "rewards": ("states", "actions", "transitions", "discount"),
}
"""Arguments without which a model cannot be fitted; roles of a table need features, of Movebank a step."""
TAKEN = {
    "roles": (
        "reader",
        "num_roles",
        "emission",
        "step_and_turn",
        "zero_steps",
        "smallest",
        "egocentric",
        "formula",
        "vary",
    ),
    "intents": (*FRAMES, "num_states", "num_actions", "truncation"),
    "choices": ("option", "subject", "units", "weight", "available", "constants", "kappa", *TABLES),
    "rewards": (*FRAMES, "state_features"),
}
"""Further arguments that a model takes."""


COUNT, POSITIVE = integer(1), number(0, float("inf"), "a positive number")
GROUPS: dict[str, dict[str, tuple[str, Any, str]]] = {
    "tables": {
        "features": (
            "COLUMNS",
            column_names,
            "feature columns (roles, choices), or further ones of Movebank",
        ),
        "units": (
            "UNITS",
            lambda text: text.split(","),
            "units of the features in their order, such as km,rad or euro,min",
        ),
        "subject": ("LABEL", label, "subject of each sequence, or column of who chose"),
        "sep": ("C", str, "separator (that of the ending: comma, or tab of .tsv)"),
        "decimal": ("C", str, "decimal mark (.)"),
    },
    "tables with one row per frame (roles, intents, rewards)": {
        "sequence": ("COLUMNS", column_names, "columns that identify a sequence"),
        "time": ("COLUMN", str, "times or dates; without it rows are consecutive frames"),
        "step": ("T", step, "time between frames, such as 0.5, or of dates 10min"),
        "snap": ("", bool, "move times to the nearest frame of the step"),
        "missing": ("error|nan", str, "what empty cells are: an error, or missing (error)"),
        "duplicates": ("error|first|mean", str, "what rows of one time are (error)"),
        "agent": (
            "LABEL",
            label,
            "agent of each sequence: a column; file, the name of the file; or file:REGEX",
        ),
        "group": ("LABEL", label, "group or demonstration of each sequence, such as file:_(wt|ko)_"),
        "states": ("COLUMN", str, "integers or names (intents, rewards)"),
        "actions": ("COLUMN", str, "integers or names (intents, rewards)"),
    },
    "roles": {
        "step_and_turn": ("", bool, "features are x, y or lon, lat: take steps and turns"),
        "zero_steps": ("error|missing|offset", str, "what steps of length 0 are (error)"),
        "smallest": ("LENGTH", POSITIVE, "of zero steps with --zero-steps offset"),
        "emission": ("KINDS", emissions, "distributions of the features, see below (by names and units)"),
        "num_roles": ("N|N:N", sizes, "number of roles, or range to pick from (2:8)"),
    },
    "roles whose switching depends on covariates": {
        "covariates": ("COLUMNS", column_names, "columns of numbers or levels, such as temperature,sex"),
        "missing_covariates": (
            "error|carry",
            str,
            "what frames without them are: an error, or as before (error)",
        ),
        "formula": ("FORMULA", str, "of their effects, such as 'temperature + cc(hour, df=5)' (their sum)"),
        "vary": ("subject", str, "what differs by subject: the log odds of changes, with subject (nothing)"),
    },
    "roles of files of tracking": {
        "reader": ("|".join(READERS), str, "format of the files (table)"),
        "individuals": ("NAMES", column_names, "animals to read (all)"),
        "keypoints": ("NAMES", column_names, "keypoints to read (all)"),
        "egocentric": ("CENTRE,AHEAD", column_names, "two keypoints: take postures and motion"),
        "frame_rate": ("HZ", POSITIVE, "frames a second of the video"),
        "max_speed": ("V", POSITIVE, "positions that are reached faster are missing; also of tables"),
    },
    "intents": {
        "num_states": ("N", COUNT, "states (those in the data)"),
        "num_actions": ("N", COUNT, "actions (those in the data)"),
        "truncation": ("N", COUNT, "most intents (10)"),
    },
    "choices: one row per option of a decision": {
        "decision": ("COLUMNS", column_names, "columns that identify a decision"),
        "option": ("COLUMN", str, "names of the options"),
        "chosen": ("COLUMN", str, "1 in the row of the chosen option, else 0"),
        "available": ("COLUMN", str, "1 in rows that could be chosen, else 0"),
        "weight": ("COLUMN", str, "how often a decision counts"),
        "constants": ("yes|no", str, "whether each option has a constant of its own (yes with --option)"),
        "kappa": ("V", POSITIVE, "prior variance of the values (25), of subjects among them (learned)"),
    },
    "rewards": {
        "transitions": ("FILE", Path, "CSV with state, action, next_state, probability"),
        "discount": ("G", number(0, 1, "a number between 0 and 1"), "discount per step, below 1"),
        "state_features": ("FILE", Path, "CSV with state and features, on which rewards depend (none)"),
    },
}
"""Metavariable, type and help of arguments by heading; words between bars are choices. Those not given are None."""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "fit",
        help="fit a model to a table",
        usage=USAGE,
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "data", nargs="+", metavar="DATA", help="CSV, TSV or parquet file with a header, or several"
    )
    parser.add_argument("--model", required=True, choices=tuple(NEEDED), metavar="MODEL", help="%(choices)s")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="output folder")
    parser.add_argument("--overwrite", action="store_true", help="replace the results in DIR")
    parser.add_argument(
        "--by", metavar="UNIT", help="one fit per unit: a column, agent, group, subject or sequence"
    )
    parser.add_argument("--workers", type=integer(1), metavar="N", help="processes of --by (this one)")
    parser.add_argument("--dask", metavar="ADDRESS", help="scheduler of Dask that --by computes with")
    parser.add_argument("--method", default="auto", metavar="M", help="algorithm of ethogram.fit (auto)")
    parser.add_argument(
        "--setting",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=V",
        help="setting of the algorithm, such as num_steps=200; may be repeated",
    )
    parser.add_argument(
        "--read",
        type=setting,
        action="append",
        default=[],
        metavar="NAME=V",
        help="further argument of the reader in Python, such as day_first=true or min_likelihood=0.9; may be repeated",
    )
    parser.add_argument(
        "--seed", type=integer(0, LARGEST_SEED), default=0, metavar="N", help="random seed (0)"
    )
    for title, options in GROUPS.items():
        group = parser.add_argument_group(title)
        for name, (metavar, kind, text) in options.items():
            choices = metavar.split("|") if kind is str and "|" in metavar else None
            value: dict[str, Any] = {"metavar": metavar, "type": kind, "choices": choices}
            given = {"action": "store_true"} if kind is bool else value
            group.add_argument(flag(name), default=None, help=text, **given)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code, after the data are read, the model fitted, and the results written."""
    try:
        check_arguments(arguments)
        with importing():
            from ethogram.commands.fit_many import fit_many
            from ethogram.commands.fit_results import fit_table
        (fit_table if arguments.by is None else fit_many)(arguments)
    except (ImportError, MemoryError, TypeError, ValueError) as error:
        return refuse(error)
    return 0


def flag(name: str) -> str:
    """An argument as it is typed."""
    return "--" + name.replace("_", "-")


def check_arguments(arguments: argparse.Namespace) -> None:
    """Raise ValueError unless the arguments of the model and reader, and no others, are given."""
    of, needed, taken = f"--model {arguments.model}", NEEDED[arguments.model], TAKEN[arguments.model]
    if arguments.model == "roles":
        reader = arguments.reader or "table"
        of += "" if arguments.reader is None else f" --reader {reader}"
        needed = {"table": ("features",), "movebank": ("step",)}.get(reader, ())
        taken = (*READERS[reader], *taken)
    for name in needed:
        if getattr(arguments, name) is None:
            raise ValueError(f"{flag(name)} is missing: {of} needs {', '.join(map(flag, needed))}")
    known = sorted({name for options in GROUPS.values() for name in options} - {*needed, *taken})
    if arguments.by is None and (arguments.workers or arguments.dask):
        raise ValueError("--workers and --dask spread many fits: give --by, such as --by agent")
    if arguments.workers and arguments.dask:
        raise ValueError("--workers and --dask are two ways to spread fits: give one")
    for name in known:
        if getattr(arguments, name) is not None:
            takes = ", ".join(map(flag, dict.fromkeys((*needed, *taken))))
            raise ValueError(f"{flag(name)} is not an argument of {of}, which takes {takes}")
