"""Pictures of README and documentation: the figures of `ethogram tour`, copied to `docs/images`.

`python -m benchmarks.pictures` makes all of them, `python -m benchmarks.pictures noisy-mdp` those of some systems. It
prints the table of the tour too, for comparison with the text beside the pictures. That of marginal-map is over
wall-clock time: make it on a machine without other load, twice, so that the second run finds kernels compiled.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from ethogram.commands import main
from ethogram.tour import SYSTEMS

__all__ = ["FOLDER", "PICTURES"]

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
PICTURES = tuple(SYSTEMS)

if __name__ == "__main__":
    chosen = sys.argv[1:] or PICTURES
    with tempfile.TemporaryDirectory() as scratch:
        if status := main(["tour", *chosen, "--out", scratch]):
            sys.exit(status)
        for name in chosen:
            print(f"wrote {shutil.copy(Path(scratch) / f'{name}.png', FOLDER)}")
