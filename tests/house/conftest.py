"""The clone that the house tests look at, and the files in it that belong to the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"__pycache__", "build", "dist", "site", "tour"}


@pytest.fixture(scope="session")
def root() -> Path:
    """The clone's top folder."""
    return ROOT


@pytest.fixture(scope="session")
def repository_files() -> list[Path]:
    """Files that git tracks or would track, relative to the top; without git, all but generated ones.

    Symbolic links are left out: what they lead to is listed under its own name.
    """
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
        paths = [Path(name) for name in listed if name]
    except (OSError, subprocess.CalledProcessError):
        paths = []
    if not paths:
        paths = [path.relative_to(ROOT) for path in ROOT.rglob("*") if _is_kept(path.relative_to(ROOT))]
    kept = [path for path in paths if (ROOT / path).is_file() and not (ROOT / path).is_symlink()]
    assert len(kept) > 10, f"only {kept} found under the clone"
    return sorted(kept)


def _is_kept(path: Path) -> bool:
    hidden = any(part.startswith(".") and part != ".ci" for part in path.parts[:-1])
    generated = any(part in GENERATED or part.endswith(".egg-info") for part in path.parts)
    linked = any((ROOT / parent).is_symlink() for parent in path.parents)
    return not (hidden or generated or linked)
