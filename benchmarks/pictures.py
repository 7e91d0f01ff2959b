"""Pictures of README and documentation: figures of the tours in their long form, copied to `docs/images`.

`python -m benchmarks.pictures` makes all of them, `python -m benchmarks.pictures noisy-mdp` those of some systems. It
prints the tables of the tours too, for comparison with the text beside the pictures. That of marginal-map is over
wall-clock time: make it on a machine without other load, twice, so that the second run finds kernels compiled. A
picture holds what it was drawn from (`benchmarks.picture_sources`), and a test fails where code has changed since.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.picture_sources import code_digests, data_digest, write_sources
from ethogram.commands.command_line import use_compilation_cache
from ethogram.tour import SYSTEMS, Guide, format_table

__all__ = ["FOLDER", "PICTURES", "make_pictures", "sources"]

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"

PICTURES: Mapping[str, dict[str, Any]] = {
    "role-hmm": {"sides": ("away",)},
    "agent-markov": {},
    "noisy-mdp": {},
    "gp-irl": {"size": 10, "trajectories": 32, "steps": 200},
    "marginal-map": {},
    "planning": {},
}
"""Sizes that differ from those of the long tour: one team, and an objectworld as in the README, until convergence."""

DPI = 100
"""Dots per inch: pages show pictures smaller than print does."""


def sources(name: str) -> dict[str, str]:
    """Digests of the tour's code, of the plots that it draws, and of the sizes here."""
    return {**code_digests(SYSTEMS[name].module), "sizes": data_digest([PICTURES[name], DPI])}


def make_pictures(systems: Sequence[str], folder: Path = FOLDER) -> list[Path]:
    """Files `NAME.png` in `folder`, one per system; the ArviZ files of the tours are not kept."""
    made = []
    for name in systems:
        module = import_module(SYSTEMS[name].module)
        with tempfile.TemporaryDirectory() as scratch:
            guide = Guide(
                name,
                Path(scratch),
                lambda line, name=name: print(f"{name}: {line}", flush=True),
                full=True,
                dpi=DPI,
            )
            report = module.tour(guide, module.FULL._replace(**PICTURES[name]))
            made.append(Path(shutil.copy(Path(scratch) / f"{name}.png", folder)))
            write_sources(made[-1], sources(name))
        print("\n".join([format_table(report.rows), *report.notes]), flush=True)
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pictures", description=__doc__)
    parser.add_argument("systems", nargs="*", metavar="SYSTEM", help=f"{', '.join(PICTURES)}; all by default")
    chosen = parser.parse_args().systems or list(PICTURES)
    if unknown := set(chosen) - set(PICTURES):
        parser.error(f"unknown system {sorted(unknown)[0]!r}: choose from {', '.join(PICTURES)}")
    use_compilation_cache()
    for path in make_pictures(chosen):
        print(f"wrote {path}")
