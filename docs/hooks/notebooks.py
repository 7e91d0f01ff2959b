"""Notebooks as pages of the site: text in the repository, with outputs where a folder of executed ones is named.

`docs/execute_notebooks.py` fills such a folder.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

import jupytext
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[2]
EXECUTED = "ETHOGRAM_NOTEBOOKS"
"""Environment variable that names the folder."""


@event_priority(100)  # before the plugin that renders notebooks looks at the files
def on_files(files: Any, config: Any) -> Any:
    """Add the notebooks, as files of a folder that is gone with this process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    (Path(folder.name) / "notebooks").mkdir()
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        given = os.environ.get(EXECUTED)
        executed = Path(given) / f"{path.stem}.ipynb" if given else None
        page = f"notebooks/{path.stem}.ipynb"
        if executed is not None and executed.exists():
            shutil.copy(executed, Path(folder.name) / page)
        else:
            jupytext.write(jupytext.read(path), Path(folder.name) / page)
        files.append(File(page, folder.name, config.site_dir, config.use_directory_urls))
    return files
