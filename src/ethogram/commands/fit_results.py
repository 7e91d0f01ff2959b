"""What `ethogram fit` does: a table in, a fit with its figures, tables and a report out."""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ethogram.commands.argument_types import make_folder
from ethogram.commands.fit_tables import Program, as_flags, read_models
from ethogram.fits import Fit, fit
from ethogram.fits.as_code import call_as_code
from ethogram.fits.methods import read_settings
from ethogram.fits.report import about_data, about_fit, write_report
from ethogram.fits.systems import system_of
from ethogram.inference.conjugate import ScoreCurve, heldout_score_curve
from ethogram.models.arguments import require_one_of
from ethogram.models.data.trajectories import group_labels
from ethogram.models.roles import CovariateRoleHMM
from ethogram.models.whole_files import replacing
from ethogram.terminal import format_table

__all__ = ["FILES", "fit_table", "settings_of", "warn_once"]

FILES = (
    *("fit.ethogram", "fit.nc", "figure.png", "figure.pdf", "scores.png", "scores.pdf", "report.html"),
    *("summary.csv", "states.csv", "time_budget.csv", "bouts.csv", "effects.csv"),
)
"""Names of the results."""

BEHAVIOUR = ("roles", "intents")
"""Models of hidden states, whose tables are written."""


def fit_table(arguments: argparse.Namespace) -> Fit:
    """The fit of a table; prints what was read, picked and found, and writes the results."""
    with warnings.catch_warnings():
        warnings.showwarning = warn_once()
        out = arguments.out
        before = [name for name in FILES if (out / name).exists()]
        if before and not arguments.overwrite:
            raise ValueError(
                f"--out {out} has {before[0]} of an earlier fit: choose another folder, or pass --overwrite"
            )
        read = read_models(arguments)
        settings = settings_of(read, arguments.method, dict(arguments.setting))
        make_folder(out)
        print(about_data(read.data), flush=True)
        key = jax.random.key(arguments.seed)
        key_scores = jax.random.fold_in(key, 1)
        curve = _scores(key_scores, read, arguments.method, settings) if len(read.sizes) > 1 else None
        size = read.sizes[0] if curve is None else curve.selected_size
        print(f"fitting {arguments.model}{f', number of roles: {size}' if size else ''}", flush=True)
        found = fit(key, read.make_model(size), read.data, arguments.method, **settings)
        print(about_fit(found), flush=True)
        asked = (arguments.method, dict(arguments.setting))
        found.code = call_as_code(key, found.model, read.data, *asked, read.lines, read.model)
        _write(found, curve, out, _tables(found, read, arguments.model))
        if arguments.model == "intents":
            _print_peers(key_scores, read, arguments.method, settings)
        diagnosis = found.diagnose()
        print(
            "\n".join([*map(str, diagnosis), f"{len(diagnosis)} finding{'s' * (len(diagnosis) != 1)}"]),
            flush=True,
        )
        return found


def _tables(found: Fit, read: Program, model: str) -> dict[str, Callable[[], Any]]:
    """Tables of a fit by the names of their files; states with the positions that steps were made of."""

    def states() -> Any:
        table = found.states().to_table()
        return table if read.positions is None else table.merge(read.positions.to_table(), how="left")

    tables = {"summary.csv": lambda: found.summary().rename_axis("parameter").reset_index()}
    if model in BEHAVIOUR:
        by = "sequence" if found.data.agent is None else "agent"
        tables |= {"states.csv": states, "bouts.csv": lambda: found.bouts()}
        tables["time_budget.csv"] = lambda: found.time_budget(by=by).reset_index()
    if isinstance(found.model, CovariateRoleHMM) and found.model.transition.formula.strip():
        tables["effects.csv"] = lambda: found.effects().reset_index()
    return tables


def _in_hours(table: Any) -> Any:
    """The table with durations as numbers of hours, and columns named so."""
    hours = {name: f"{name}_hours" for name in table.select_dtypes("timedelta")}
    return table.assign(**{name: table[name].dt.total_seconds() / 3600 for name in hours}).rename(
        columns=hours
    )


def warn_once() -> Callable[..., None]:
    """A printer of warnings, each in one line and once: figure, table and report warn of the same."""
    said: set[str] = set()

    def say(message: Warning | str, *_: Any) -> None:
        line = as_flags(" ".join(str(message).split()))
        if line not in said:
            print(f"ethogram: {line}", file=sys.stderr)
        said.add(line)

    return say


def settings_of(read: Program, method: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Settings that a method of the model takes, with a progress bar where one can be seen."""
    model = read.make_model(read.sizes[0])
    methods = system_of(model).methods(model, read.data)
    require_one_of("--method", method, ("auto", *methods.by_name))
    name = methods.usual if method == "auto" else method
    if method != "auto" or methods.choose is None:  # which reads the settings for the method that it takes
        try:
            read_settings(name, settings, methods.by_name[name].settings)
        except (TypeError, ValueError) as error:
            raise ValueError(f"--setting: {error}") from error
    return {"progress_bar": sys.stderr.isatty(), **settings}


def _scores(key: Any, read: Program, method: str, settings: dict[str, Any]) -> ScoreCurve:
    """Held-out scores of all sizes, by coordinate ascent; its settings are those given, unless they are of NUTS."""
    print(f"held-out scores of {read.sizes[0]} to {read.sizes[-1]} roles", flush=True)
    curve = _curve(key, read, method, settings)
    rows = [
        {
            "roles": int(size),
            "nats per step": f"{score:.4f}",
            "se of the difference": f"{error:.4f}",
            "picked": "<-" if size == curve.selected_size else "",
        }
        for size, score, error in zip(curve.size, curve.heldout, curve.heldout_se, strict=True)
    ]
    print(format_table(rows), flush=True)
    if curve.caution:
        print(f"caution: {curve.caution}", flush=True)
    return curve


def _curve(key: Any, read: Program, method: str, settings: dict[str, Any]) -> ScoreCurve:
    own = settings if method in ("auto", "cavi") else {"progress_bar": settings.get("progress_bar", False)}
    own = {name: value for name, value in own.items() if name != "checkpoint"}  # of one fit only
    return heldout_score_curve(key, read.make_model, read.sizes, read.data, **own)


def _print_peers(key: Any, read: Program, method: str, settings: dict[str, Any]) -> None:
    """Print held-out scores of the model of intents and of its peers; none where there is nothing to hold out."""
    if len(np.unique(group_labels(read.data))) < 2:
        return
    print("held-out scores, in nats per step; se is that of the difference to the first", flush=True)
    curve = _curve(key, read, method, settings)
    first = f"up to {read.make_model(0).truncation} intents"
    scores = {first: (curve.heldout[0], 0.0), **curve.peers}
    rows = [
        {"model": name, "held out": f"{score:.4f}", "se": f"{error:.4f}"}
        for name, (score, error) in scores.items()
    ]
    print(format_table(rows), flush=True)


def _write(found: Fit, curve: ScoreCurve | None, out: Path, tables: dict[str, Callable[[], Any]]) -> None:
    """Write each result when it is complete, the fit first; at the end, those of an earlier fit are gone.

    ValueError, after all others are written, where some cannot be.
    """
    from matplotlib.figure import Figure

    from ethogram.plots.roles import score_curve

    @functools.cache
    def picture(name: str) -> Figure:
        drawn = Figure(figsize=(11, 5) if name == "figure" else (6, 4), layout="constrained")
        if name == "figure":
            found.plot(drawn)
        else:
            score_curve(curve, drawn.subplots())
        return drawn

    def draw(path: Path) -> None:
        picture(path.stem).savefig(path, dpi=200)

    writers: dict[str, Callable[[Path], Any]] = {
        "fit.ethogram": found.save,
        "figure.png": draw,
        "figure.pdf": draw,
        **dict.fromkeys(tables, lambda path: _in_hours(tables[path.name]()).to_csv(path, index=False)),
        **({} if curve is None else {"scores.png": draw, "scores.pdf": draw}),
        "report.html": lambda path: write_report(found, path, curve),
    }
    if found.has_draws:  # last: HDF5 may end the process where the disk is full
        writers["fit.nc"] = lambda path: found.to_arviz().to_netcdf(str(path), engine="h5netcdf")
    lost, written = [], list[str]()
    try:
        for name, write in writers.items():
            try:
                with tempfile.TemporaryDirectory(prefix=".fit-", dir=out) as folder:
                    write(Path(folder) / name)
                    with replacing(out / name) as file:
                        file.write((Path(folder) / name).read_bytes())
            except Exception as error:  # of any kind, by figures and formats; the others are written
                lost.append(f"{name} ({' '.join(str(error).split()) or type(error).__name__})")
            else:
                written.append(name)
                print(f"wrote {out / name}")
    finally:  # also after Ctrl-C
        for each in set(FILES[1:]).difference(written) if written else ():
            (out / each).unlink(missing_ok=True)
    if not found.has_draws:
        print(f"no fit.nc: a fit by {found.method} is one answer, without draws")
    if lost:
        raise ValueError(f"not written: {', '.join(lost)}; {out} has the other results")
