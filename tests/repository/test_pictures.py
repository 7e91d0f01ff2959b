"""Every picture of README and documentation is there, and one of three commands makes it."""

from __future__ import annotations

import re
import runpy

from benchmarks import pictures, record_pictures

LINK = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
COMMANDS = (pictures, record_pictures)


def test_linked_pictures_are_those_that_the_commands_make(root):
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    linked = {
        (page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text("utf-8"))
    }
    listed = runpy.run_path(str(root / "docs" / "hooks" / "listings.py"))["gallery"]()
    notebooks = {(root / "docs" / link).resolve() for link in LINK.findall(listed)}
    assert {path.stem for path in notebooks} == {path.stem for path in (root / "notebooks").glob("*.py")}
    assert all(path.parent == pictures.FOLDER / "notebooks" for path in notebooks)
    made = {command.FOLDER / f"{name}.png" for command in COMMANDS for name in command.PICTURES}
    made |= notebooks
    assert linked | notebooks == made == {path for path in pictures.FOLDER.rglob("*") if path.is_file()}
    for path in made:
        assert path.read_bytes().startswith(b"\x89PNG"), path
