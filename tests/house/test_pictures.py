"""Every picture of README and documentation is there, and is one that `benchmarks.pictures` makes."""

from __future__ import annotations

import re
import struct
from types import SimpleNamespace
from typing import NamedTuple

from benchmarks.pictures import FOLDER, PICTURES, make_pictures

LINK = re.compile(r"!\[[^\]]*\]\(([^)\s]+)\)")


def test_linked_pictures_are_those_that_the_command_makes(root):
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    linked = {
        (page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text("utf-8"))
    }
    made = {FOLDER / f"{name}.png" for name in PICTURES}
    assert linked == made == set(FOLDER.iterdir())
    for path in made:
        assert path.read_bytes().startswith(b"\x89PNG"), path


class Sizes(NamedTuple):
    width: int
    sides: tuple[str, ...] = ()


def test_the_command_copies_the_figure_of_the_long_tour(tmp_path, monkeypatch):
    """By a tour whose figure is as wide as its sizes, which have what `PICTURES` changes."""

    def tour(guide, sizes):
        assert guide.full and sizes.sides == ("away",)
        with guide.figure(sizes.width, 1) as figure:
            figure.subplots()
        return guide.report([{"fit": guide.name}], [])

    stand_in = SimpleNamespace(tour=tour, FULL=Sizes(3))
    monkeypatch.setattr("benchmarks.pictures.import_module", lambda name: stand_in)
    (made,) = make_pictures(["role-hmm"], tmp_path)
    assert made == tmp_path / "role-hmm.png" and list(tmp_path.iterdir()) == [made]
    width, height = struct.unpack(">II", made.read_bytes()[16:24])
    assert width == 3 * height
