"""Runs notebooks, in full for the site or in the quick form of the check.

    python docs/execute_notebooks.py [NOTEBOOK ...]            each in full, as executed/NAME.ipynb with its outputs
    python docs/execute_notebooks.py --pictures [NOTEBOOK ...] their pictures in the gallery, from executed/
    python docs/execute_notebooks.py --quick [NOTEBOOK ...]    all in this process, with small sizes, no output

The site has notebooks of the folder ``executed`` (or ``ETHOGRAM_NOTEBOOKS``) as they ran. Sizes stand in the cell with
the tag ``parameters``, those of the quick form in ``notebooks/quick.json``. The cell with the tag ``picture`` draws
what the gallery shows.
"""

from __future__ import annotations

import argparse
import base64
import gc
import io
import json
import os
import re
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jupytext

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS, EXECUTED, PICTURES = ROOT / "notebooks", ROOT / "executed", ROOT / "docs" / "images" / "notebooks"
SMALL: dict[str, dict[str, Any]] = json.loads((NOTEBOOKS / "quick.json").read_text("utf-8"))


def code_cells(path: Path) -> list[str]:
    """Sources of the code cells, with the sizes of the quick form in place of those of the cell of parameters."""
    sizes, replaced, cells = SMALL[path.stem], 0, []
    for cell in jupytext.read(path).cells:
        if cell.cell_type != "code":
            continue
        source = cell.source
        if "parameters" in cell.metadata.get("tags", ()):
            unknown = [name for name in sizes if f"{name} =" not in source and f"{name}, " not in source]
            if unknown:
                raise SystemExit(
                    f"{path.name}: quick.json has {', '.join(unknown)}, which its parameters lack"
                )
            source += "".join(f"\n{name} = {value!r}" for name, value in sizes.items())
            replaced += 1
        cells.append(source)
    if replaced != 1:
        raise SystemExit(f"{path.name}: {replaced} cells have the tag parameters, expected one")
    return cells


def run_quickly(paths: list[Path]) -> None:
    """Run notebooks in this process, in a folder that is gone afterwards; prints the CPU seconds of each."""
    import jax
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for path in paths:
            start, names = time.process_time(), {"__name__": "__main__"}
            for number, source in enumerate(code_cells(path)):
                exec(compile(source, f"{path.name}, code cell {number}", "exec"), names)
            plt.close("all")
            names.clear()
            jax.clear_caches()
            gc.collect()
            print(f"{path.name}: {time.process_time() - start:.0f} CPU s", file=sys.stderr)
        os.chdir(NOTEBOOKS)


def execute(paths: list[Path], out: Path) -> None:
    """Write each notebook with its outputs to a folder; prints the CPU seconds of each."""
    import nbformat
    from nbclient import NotebookClient

    os.environ["PYTHONWARNINGS"] = "ignore:IProgress not found"
    out.mkdir(parents=True, exist_ok=True)
    for path in paths:
        start, notebook = _kernels_time(), jupytext.read(path)
        with tempfile.TemporaryDirectory() as folder:
            NotebookClient(notebook, timeout=None, resources={"metadata": {"path": folder}}).execute()
        for output in (each for cell in notebook.cells for each in cell.get("outputs", ())):
            if output.get("name") == "stderr":  # the places of warnings are those of a machine
                output["text"] = re.sub(
                    r"^/\S+:\d+: (\w+: .*)\n(?:  .*\n)?", r"\1\n", output["text"], flags=re.M
                )
        nbformat.write(notebook, out / f"{path.stem}.ipynb")
        print(f"{path.name}: {_kernels_time() - start:.0f} CPU s", file=sys.stderr)


def _kernels_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def draw_pictures(paths: list[Path], folder: Path) -> None:
    """Write the last figure of the tagged cell of each notebook, as it ran in a folder, in a small file."""
    import nbformat
    from PIL import Image

    PICTURES.mkdir(exist_ok=True)
    for path in paths:
        cells = jupytext.read(path).cells
        (place,) = [i for i, cell in enumerate(cells) if "picture" in cell.metadata.get("tags", ())]
        ran = nbformat.read(folder / f"{path.stem}.ipynb", as_version=4).cells[place]
        if ran.source != cells[place].source:
            raise SystemExit(f"{path.name} has changed since it was executed")
        figures = [each.data["image/png"] for each in ran.outputs if "image/png" in each.get("data", ())]
        with Image.open(io.BytesIO(base64.b64decode(figures[-1]))) as drawn:
            drawn.thumbnail((1100, 1100))
            drawn.convert("RGB").quantize(128).save(PICTURES / f"{path.stem}.png", optimize=True)
        print(f"wrote {PICTURES / path.stem}.png")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=EXECUTED, metavar="FOLDER", help="of executed notebooks (executed)"
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--pictures", action="store_true", help="pictures of executed notebooks")
    form.add_argument("--quick", action="store_true", help="small sizes, no output")
    parser.add_argument("notebooks", type=Path, nargs="*", metavar="NOTEBOOK", help="paths (all)")
    given = parser.parse_args()
    paths = [path.resolve() for path in given.notebooks] or sorted(NOTEBOOKS.glob("*.py"))
    if given.quick:
        run_quickly(paths)
    elif given.pictures:
        draw_pictures(paths, given.out)
    else:
        execute(paths, given.out)


if __name__ == "__main__":
    main()
