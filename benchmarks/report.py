"""Settings, table and JSON record of a benchmark.

A script is a function from settings to rows, and one call::

    def measure(settings: argparse.Namespace) -> list[Row]:
        ...

    if __name__ == "__main__":
        raise SystemExit(report.run("roles", __doc__, measure))

A row is a flat dictionary. A row with a target has `reached`; `correct=False` marks a wrong answer and makes the exit
code 1. Lists and dictionaries in a row (raw timings, traces) are not printed, and stand under `raw` in the record.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ethogram.models.whole_files import replacing
from ethogram.terminal import format_table

__all__ = ["Row", "make_record", "parse_settings", "run", "versions", "write_record"]

Row = Mapping[str, Any]

PACKAGES = ("ethogram", "jax", "jaxlib", "numpyro", "numpy", "scipy", "arviz")
PLACES = ("json", "figure")
LARGEST_SEED = 2**31 - 1
"""Scripts also use seeds above the given one, and keys take 32 bits."""

FLAGS = ("XLA_FLAGS", "JAX_ENABLE_X64", "JAX_PLATFORMS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run(
    name: str,
    about: str | None,
    measure: Callable[[argparse.Namespace], Sequence[Row]],
    *,
    speed: bool = False,
    sizes: Sequence[str] = (),
    figure: bool = False,
    peers: Sequence[str] = (),
    options: Callable[[argparse.ArgumentParser], None] | None = None,
    argv: Sequence[str] | None = None,
) -> int:
    """Exit code of a benchmark: 0; 1 if a row has `correct=False` or there is no row; 2 for bad settings.

    Parameters
    ----------
    name : as in `python -m benchmarks.papers.NAME`; part of the record.
    about : the script's docstring; its first line is the help text and the table's title.
    measure : returns the rows for the parsed settings.
    speed : True adds `--size`, `--dtype` and `--rounds` to `--quick`, `--seed` and `--json`.
    sizes : allowed values of `--size`; any if empty.
    figure : True adds `--figure`, a file for the figure that `measure` draws.
    peers : distributions whose versions the record has beside ours.
    options : adds the script's own settings.
    argv : arguments; the command line's by default.
    """
    title = (about or name).strip().splitlines()[0]
    settings = parse_settings(
        name, title, speed=speed, sizes=sizes, figure=figure, options=options, argv=argv
    )
    fault = _fault_of_places(settings)
    if fault is not None:
        print(fault, file=sys.stderr)
        return 2
    start = time.perf_counter()
    rows = [dict(row) for row in measure(settings)]
    record = make_record(name, settings, rows, time.perf_counter() - start, peers=peers)
    print(title)
    print(format_table(record["rows"]))
    print(describe_machine(record))
    if settings.json is not None:
        write_record(settings.json, record)
    return 0 if rows and all(row.get("correct", True) for row in rows) else 1


def parse_settings(
    name: str,
    title: str,
    *,
    speed: bool = False,
    sizes: Sequence[str] = (),
    figure: bool = False,
    options: Callable[[argparse.ArgumentParser], None] | None = None,
    argv: Sequence[str] | None = None,
) -> argparse.Namespace:
    """Settings of one run: `quick`, `seed`, `json`; for speed scripts `size`, `dtype`, `rounds`; `figure` if any.

    `size`, `dtype`, `rounds` and `figure` default to None, which leaves the choice to the script.
    """
    folder = "speed" if speed else "papers"
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{folder}.{name}", description=title)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, within a minute")
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="random seed (0)")
    parser.add_argument("--json", type=Path, default=None, metavar="FILE", help="also write the record there")
    if speed:
        parser.add_argument("--size", choices=sizes or None, default=None, help="run this size only")
        parser.add_argument("--dtype", choices=("float32", "float64"), default=None)
        parser.add_argument(
            "--rounds", type=_positive, default=None, metavar="N", help="rounds of paired timings"
        )
    if figure:
        parser.add_argument(
            "--figure", type=Path, default=None, metavar="FILE", help="also draw a figure there"
        )
    if options is not None:
        options(parser)
    return parser.parse_args(argv)


def _fault_of_places(settings: argparse.Namespace) -> str | None:
    """Complaint about an output path, before anything is measured."""
    for name in PLACES:
        path = getattr(settings, name, None)
        if path is None:
            continue
        if not path.parent.is_dir():
            return f"--{name}: the folder {path.parent} does not exist: make it first"
        if path.is_dir():
            return f"--{name}: {path} is a folder: name a file in it"
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            return f"--{name}: {path} cannot be written to: choose another place"
        if name == "figure":
            from matplotlib.figure import Figure

            kinds = Figure().canvas.get_supported_filetypes()
            if path.suffix[1:].lower() not in kinds:
                return (
                    f"--figure: {path.suffix!r} is not a figure format: use one of {', '.join(sorted(kinds))}"
                )
    return None


def _seed(text: str) -> int:
    value = _whole(text)
    if not 0 <= value <= LARGEST_SEED:
        raise argparse.ArgumentTypeError(f"{value} is not between 0 and {LARGEST_SEED}")
    return value


def _positive(text: str) -> int:
    value = _whole(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value} is not a positive count")
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer") from None


def versions(peers: Sequence[str] = ()) -> dict[str, str]:
    """Version of Python and of each package, by distribution name; "not installed" where it is missing."""
    found = {"python": platform.python_version()}
    for package in (*PACKAGES, *peers):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "not installed"
    return found


def make_record(
    name: str,
    settings: argparse.Namespace,
    rows: Sequence[Row],
    seconds: float,
    *,
    peers: Sequence[str] = (),
) -> dict[str, Any]:
    """The JSON record: `name, settings, versions, machine, seconds, rows`, and `raw` where rows had lists.

    Non-finite numbers become null.
    """
    flat = [{key: _plain(value) for key, value in row.items() if not _is_nested(value)} for row in rows]
    raw = [{key: _plain(value) for key, value in row.items() if _is_nested(value)} for row in rows]
    record = {
        "name": name,
        "settings": {key: value for key, value in vars(settings).items() if key not in PLACES},
        "versions": versions(peers),
        "machine": {
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
            "processor": platform.machine(),
            "system": platform.system(),
            "flags": {flag: os.environ[flag] for flag in FLAGS if flag in os.environ},
        },
        "seconds": round(seconds, 3),
        "rows": flat,
    }
    if any(raw):
        record["raw"] = raw
    return record


def _is_nested(value: Any) -> bool:
    return isinstance(value, (list, tuple, dict)) or getattr(value, "ndim", 0) > 0


def _plain(value: Any) -> Any:
    """`value` in JSON types: array scalars unwrapped, arrays as lists, NaN and infinities as None."""
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write the record as JSON, whole or not at all."""
    with replacing(path, "w", encoding="utf-8") as file:
        file.write(json.dumps(record, indent=1, allow_nan=False) + "\n")


def describe_machine(record: Mapping[str, Any]) -> str:
    """Two lines under the table: seconds and machine, then versions."""
    machine = record["machine"]
    flags = " ".join(f"{flag}={value}" for flag, value in machine["flags"].items()) or "no flags"
    known = ", ".join(f"{package} {version}" for package, version in record["versions"].items())
    return (
        f"{record['seconds']:.1f} s on {machine['cores']} cores ({machine['processor']}), "
        f"load {machine['load']}, {flags}\n{known}"
    )
