"""Notebooks have their sizes in one cell, one figure for the gallery, and no second form in cells that people read."""

from __future__ import annotations

import json
import re
import runpy

import jupytext


def test_every_notebook_has_its_sizes_and_its_picture(root):
    small = json.loads((root / "notebooks" / "quick.json").read_text(encoding="utf-8"))
    paths = sorted((root / "notebooks").glob("*.py"))
    assert set(small) == {path.stem for path in paths}
    for path in paths:
        cells = jupytext.read(path).cells
        tags = [tag for cell in cells for tag in cell.metadata.get("tags", ())]
        assert sorted(tags) == ["parameters", "picture"], path.name
        assert not re.search(r"QUICK|os\.environ", path.read_text(encoding="utf-8")), path.name


def test_the_quick_form_has_its_sizes_after_those_of_the_full_form(root):
    cells = runpy.run_path(str(root / "docs" / "execute_notebooks.py"))["code_cells"]
    (sizes,) = [cell for cell in cells(root / "notebooks" / "08_compare.py") if "WARMUP =" in cell]
    full, quick = (
        {},
        json.loads((root / "notebooks" / "quick.json").read_text(encoding="utf-8"))["08_compare"],
    )
    exec(sizes, full)
    assert "WARMUP = 500" in sizes and {name: full[name] for name in quick} == quick
