"""What `ethogram fit --by` does: one fit per animal, group or person, which the same command goes on with."""

from __future__ import annotations

import argparse
import contextlib
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import jax

from ethogram.commands.argument_types import make_folder
from ethogram.commands.fit_results import settings_of, warn_once
from ethogram.commands.fit_tables import read_models
from ethogram.fits import Fits, map_fits
from ethogram.fits.report import about_data
from ethogram.models.whole_files import replacing

__all__ = ["fit_many"]

LABELS = ("subject", "agent", "group")
SHOWN = 10
"""Failures that are printed."""


def fit_many(arguments: argparse.Namespace) -> Fits:
    """A fit of every unit; prints what failed, and writes fits, fits.csv and summary.csv."""
    with warnings.catch_warnings():
        warnings.showwarning = warn_once()
        by = _unit(arguments)
        read, out = read_models(arguments), arguments.out
        settings = settings_of(read, arguments.method, dict(arguments.setting))
        shown = settings.pop("progress_bar")
        make_folder(out)
        print(about_data(read.data), flush=True)
        models: Any = {f"{size} roles": read.make_model(size) for size in read.sizes}
        models = read.make_model(read.sizes[0]) if len(read.sizes) == 1 else models
        key = jax.random.key(arguments.seed)
        given = {"key": key, "by": by, "out": out / "fits", "progress_bar": shown, **settings}
        with _executor(arguments) as executor:
            fits = map_fits(models, read.data, arguments.method, executor=executor, **given)
    tables = {"fits.csv": fits.overview().rename_axis("fit")}
    if len(fits) > len(fits.failures):
        tables["summary.csv"] = fits.table()
    for name, table in tables.items():
        with replacing(out / name, "w", newline="") as file:
            table.to_csv(file)
        print(f"wrote {out / name}")
    print(fits)
    for name, failure in [*fits.failures.items()][:SHOWN]:
        print(f"ethogram: {name}: {' '.join(failure.error.split())}", file=sys.stderr)
    return fits


def _unit(arguments: argparse.Namespace) -> str:
    """The label that divides the data; a column becomes one, and a sequence of its own where none is given."""
    by = arguments.by
    named = {name: getattr(arguments, name) for name in LABELS}
    found = next((name for name, column in named.items() if by in (name, column)), None)
    if by == "sequence":
        return by
    if arguments.model == "choices":
        arguments.subject = by if arguments.subject is None else arguments.subject
        return "subject"
    if found is not None and named[found] is not None:
        return found
    free = next((name for name in ("agent", "group") if named[name] is None), None)
    if free is None:
        raise ValueError(f"--by {by} is none of --agent, --group and --subject: give one of their columns")
    setattr(arguments, free, by)
    if arguments.sequence is None:
        arguments.sequence = [by]
    return free


@contextlib.contextmanager
def _executor(arguments: argparse.Namespace) -> Iterator[Any]:
    """The executor of --workers or --dask."""
    if arguments.dask is None:
        yield arguments.workers
        return
    try:
        from distributed import Client
    except ImportError:
        raise ImportError("--dask needs Dask: pip install 'ethogram[cluster]'") from None
    with Client(arguments.dask) as client:
        yield client.get_executor()
