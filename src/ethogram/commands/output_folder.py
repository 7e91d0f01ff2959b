"""The folder that `--out` names."""

from __future__ import annotations

import tempfile
from pathlib import Path

__all__ = ["make_folder"]


def make_folder(out: Path) -> None:
    """Make a folder where there is none; ValueError unless files can be written to it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(
            f"--out {out} is not a writable folder ({error.strerror}): choose another"
        ) from error
