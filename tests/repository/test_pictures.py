"""Every picture of README and documentation is there, and one of the two commands makes it."""

from __future__ import annotations

import re

from benchmarks import pictures, record_pictures

LINK = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")
COMMANDS = (pictures, record_pictures)


def test_linked_pictures_are_those_that_the_commands_make(root):
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    linked = {
        (page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text("utf-8"))
    }
    made = {command.FOLDER / f"{name}.png" for command in COMMANDS for name in command.PICTURES}
    assert linked == made == {path for path in pictures.FOLDER.rglob("*") if path.is_file()}
    for path in made:
        assert path.read_bytes().startswith(b"\x89PNG"), path
