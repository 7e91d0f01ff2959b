"""The command `ethogram doctor`: what is installed, and what programs run on."""

from __future__ import annotations

import argparse
import platform
from importlib import metadata
from pathlib import Path
from typing import Any

from ethogram.commands.process import importing
from ethogram.compilation_cache import use_compilation_cache

__all__ = ["EXTRAS", "REQUIRED", "add_parser", "diagnose", "run"]

REQUIRED = ("ethogram", "jax", "jaxlib", "numpyro", "optax", "arviz", "pandas")
EXTRAS = {
    "behaviour": ("sleap-io", "tables"),
    "cluster": ("distributed",),
    "imitation": ("scikit-learn",),
    "interactive": ("plotly",),
    "latex": ("jinja2",),
    "planning": ("pyRDDLGym", "rddlrepository"),
}
"""Optional packages by the extra that installs them."""


def add_parser(commands: Any) -> None:
    """Add the command to the subparsers."""
    parser = commands.add_parser(
        "doctor",
        help="print versions, devices and settings",
        description="Prints versions of packages, devices, precision, the compilation cache and the number of cores.",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Exit code, after the table is printed."""
    with importing():
        import jax  # noqa: F401
    print(diagnose(use_compilation_cache()))
    return 0


def diagnose(cache: Path | None) -> str:
    """A table of versions, devices, precision, the folder of the compilation cache with its size, and cores."""
    import jax.numpy as jnp

    from ethogram.terminal import available_cores

    found = {"python": platform.python_version()}
    found |= {name: _version(name) for name in REQUIRED}
    found |= {f"{name} [{extra}]": _version(name) for extra, names in EXTRAS.items() for name in names}
    found |= {
        "devices": _devices(),
        "default precision": jnp.result_type(float).name,
        "compilation cache": "none: no folder is writable" if cache is None else str(cache),
        "size of the cache": _size(cache),
        "cores": str(available_cores()),
    }
    width = max(map(len, found))
    return "\n".join(f"{name:{width}}  {value}" for name, value in found.items())


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> str:
    import jax

    try:
        return ", ".join(f"{device.platform} {device.id} ({device.device_kind})" for device in jax.devices())
    except RuntimeError as error:
        return f"none: {' '.join(str(error).split())}"


def _size(folder: Path | None) -> str:
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()] if folder else []
    return f"{sum(sizes) / 2**20:.1f} MiB in {len(sizes)} files"
