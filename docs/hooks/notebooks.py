"""Notebooks as pages of the site: text in the repository, with outputs where `docs/execute_notebooks.py` ran them."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jupytext
from mkdocs.plugins import event_priority, get_plugin_logger
from mkdocs.structure.files import File

LOG = get_plugin_logger("notebooks")
ROOT = Path(__file__).resolve().parents[2]
EXECUTED = "ETHOGRAM_NOTEBOOKS"
"""Environment variable that names the folder of executed notebooks, `executed` by default."""


@event_priority(100)  # before the plugin that renders notebooks looks at the files
def on_files(files: Any, config: Any) -> Any:
    """Add the notebooks, as files of a folder that is gone with this process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    (Path(folder.name) / "notebooks").mkdir()
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        executed = Path(os.environ.get(EXECUTED, ROOT / "executed")) / f"{path.stem}.ipynb"
        page, book = f"notebooks/{path.stem}.ipynb", jupytext.read(path)
        if executed.exists() and _sources(jupytext.read(executed)) == _sources(book):
            shutil.copy(executed, Path(folder.name) / page)
        else:
            if executed.exists():  # a warning, which stops a strict build
                LOG.warning("%s has changed since %s: run docs/execute_notebooks.py", path.name, executed)
            jupytext.write(book, Path(folder.name) / page)
        files.append(File(page, folder.name, config.site_dir, config.use_directory_urls))
    return files


def _sources(book: Any) -> list[str]:
    return [cell.source for cell in book.cells]
