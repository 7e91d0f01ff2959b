"""Every picture of README and documentation is there, one of the two commands makes it, and none is out of date."""

from __future__ import annotations

import re
import struct
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from benchmarks import picture_sources, pictures, record_pictures
from benchmarks.pictures import make_pictures

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


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.__name__)
def test_no_picture_is_out_of_date(command):
    for name in command.PICTURES:
        changed = picture_sources.changed_sources(command.FOLDER / f"{name}.png", command.sources(name))
        cure = f"python -m {command.__name__} {name}"
        assert not changed, (
            f"{name}.png was drawn before {', '.join(changed)} changed: draw it anew by {cure}"
        )


def test_a_picture_is_out_of_date_once_its_record_or_its_code_changes(tmp_path, monkeypatch):
    rows = [{"case": "experts, 7 x 7"}]
    for arm in ("learned", "true", "unstructured"):
        measured = {f"{what}{side}": 0.5 for what in ("failure", "steps") for side in ("", "_low", "_high")}
        rows.append({"case": "20 x 20", "arm": arm, "round": 1, **measured})
    monkeypatch.setattr(record_pictures, "_rows", lambda record: rows)
    (made,) = record_pictures.draw_pictures(["imitation"], tmp_path)
    assert picture_sources.changed_sources(made, record_pictures.sources("imitation")) == []
    rows[1]["failure"] = 0.25
    changed = picture_sources.changed_sources(made, record_pictures.sources("imitation"))
    assert changed == ["benchmarks/results/imitation.json"]
    held = picture_sources.read_sources(made)
    assert {"benchmarks.figures.decisions", "ethogram.plots.colours"} < held.keys()
    assert picture_sources.changed_sources(made, {**held, "ethogram.plots.colours": "other"}) == [
        "ethogram.plots.colours"
    ]


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('"""Other."""\n# Why.\n\nx = 1  \ndef f():\n    """Says more."""\n    return "a"\n', True),
        ('"""One."""\nx = 2\ndef f():\n    return "a"\n', False),
        ('"""One."""\nx = 1\ndef f():\n    return "b"\n', False),
    ],
)
def test_only_code_counts(text, same):
    one = '"""One."""\nx = 1\ndef f():\n    return "a"\n'
    assert (picture_sources.code_lines(text) == picture_sources.code_lines(one)) is same


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
