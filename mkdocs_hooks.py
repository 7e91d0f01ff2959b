"""What the documentation needs beyond its theme: notebooks as pages, roles of Sphinx in docstrings, and formulas.

Docstrings are written for readers of the source, with ``:func:`` and ``:math:``. Here they become links, and MathML
that browsers draw without a script. Notebooks are text; they have outputs where the variable ``ETHOGRAM_NOTEBOOKS``
names a folder of executed ones.
"""

from __future__ import annotations

import atexit
import html
import logging
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import griffe
import jupytext
from latex2mathml.converter import convert
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent
EXECUTED = "ETHOGRAM_NOTEBOOKS"
LINK = re.compile(r":(?:class|func|meth|mod|attr|data):`(~?)([\w.]+)`")
FORMULA = re.compile(r":math:`((?:[^`\\]|\\.)+)`", re.DOTALL)
DISPLAY = re.compile(r"^( *)\.\. math:: *(.*(?:\n(?:\1 +.*| *))*)", re.MULTILINE)
DRAWN = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)


def as_markdown(text: str) -> str:
    """A docstring of Sphinx in markdown: links by name, and formulas between dollars."""

    def display(found: re.Match[str]) -> str:
        formula = " ".join(found[2].split())
        return f"{found[1]}$$\n{found[1]}{formula}\n{found[1]}$$\n\n"

    text = DISPLAY.sub(display, text)
    text = FORMULA.sub(lambda found: f"${' '.join(found[1].split())}$", text)
    return LINK.sub(lambda found: _link(found[2], bool(found[1])), text)


def _link(target: str, short: bool) -> str:
    name = target.rpartition(".")[2] if short else target
    return f"[`{name}`][{target}]" if target.startswith("ethogram.") else f"`{name}`"


class Docstrings(griffe.Extension):
    """Rewrites the docstrings of all objects when they are collected."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


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


def on_page_content(content: str, /, **kwargs: Any) -> str:
    """Draw the formulas."""
    return DRAWN.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    text = html.unescape(found[2]).strip()
    block = found[1] == "div" or text.startswith(r"\[")
    formula = text.removeprefix(r"\[").removesuffix(r"\]").removeprefix(r"\(").removesuffix(r"\)").strip()
    try:
        return convert(formula, display="block" if block else "inline")
    except Exception as error:
        logging.getLogger("mkdocs.hooks").warning("formula %r cannot be drawn: %s", formula, error)
        return f"<code>{html.escape(formula)}</code>"
