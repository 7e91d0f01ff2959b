"""The README of each folder of the package as a page of the site, at its own place in the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["folder_pages", "on_files", "on_page_markdown"]

ROOT = Path(__file__).resolve().parents[2]
LAYERS = ("models/*", "inference/*", "domains", "src/ethogram/*")
TO_DOCS = re.compile(r"\]\(((?:\.\./)+)docs/")
"""Links to pages of ``docs``, which are at the top of the site."""


def folder_pages() -> list[Path]:
    """READMEs of the folders of the package."""
    found = {path for layer in LAYERS for path in ROOT.glob(f"{layer}/README.md")}
    return sorted(path for path in found if not path.parent.is_symlink())


def on_files(files: Any, config: Any) -> Any:
    """Add the pages."""
    from mkdocs.structure.files import File  # the tests, which read the list of pages, do without

    for path in folder_pages():
        place = path.relative_to(ROOT).as_posix()
        files.append(File(place, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Any, **others: Any) -> str:
    """The page with links to ``docs`` as they are on the site."""
    return TO_DOCS.sub(r"](\1", markdown) if page.file.src_uri.endswith("/README.md") else markdown
