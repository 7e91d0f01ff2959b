"""Lists that are made when the site is built: the gallery of notebooks, and the index of public names.

A page has ``<!-- gallery of notebooks -->`` or ``<!-- index of public names -->`` where the list belongs. The index
links every name to its place in the reference, and the strict build refuses a name that has none.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

__all__ = ["gallery", "names", "on_page_markdown"]

ROOT = Path(__file__).resolve().parents[2]
TITLE = re.compile(r"^# # (.+)$", re.MULTILINE)
FIRST = (
    "Trajectories",
    *("Decisions", "fit", "Fit", "compare", "load"),
    *("RoleHMM", "AgentMarkov", "NoisyMDP", "GPIRL", "MDP", "MarginalMAP", "plan", "imitate"),
)
"""Names that most scripts begin with."""


def on_page_markdown(markdown: str, **others: Any) -> str:
    """The page with its lists in place of the comments that ask for them."""
    for asked, make in {"gallery of notebooks": gallery, "index of public names": names}.items():
        if f"<!-- {asked} -->" in markdown:
            markdown = markdown.replace(f"<!-- {asked} -->", make())
    return markdown


def gallery() -> str:
    """One entry per notebook: its picture and its title."""
    entries = []
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        title = TITLE.search(path.read_text(encoding="utf-8"))
        if title is None:
            raise ValueError(f"{path.name} has no title: its first heading is missing")
        link = f"notebooks/{path.stem}.ipynb"
        entries.append(f"- [![]({f'images/notebooks/{path.stem}.png'})]({link})\n  [{title[1]}]({link})\n")
    return '<div class="gallery" markdown>\n\n' + "\n".join(entries) + "\n</div>"


def names() -> str:
    """Tables of all public names with the first sentence of their text: those of `FIRST`, of the top level, all."""
    import griffe

    extension = griffe.load_extensions(ROOT / "docs" / "hooks" / "docstring_markup.py")
    package = griffe.load("ethogram", search_paths=[ROOT / "src"], extensions=extension)
    places = _top_level()

    def line(name: str, path: str) -> str:
        found = package[path.removeprefix("ethogram.")]
        if found.docstring is None:  # constants without text have no place in the reference
            return f"| `{name}` | constant of `{path.rpartition('.')[0]}` |"
        if found.is_module:  # it is described where its package is
            path = found.parent.path
        text = " ".join(found.docstring.value.split("\n\n")[0].split())
        return f"| [`{name}`][{path}] | {text.replace('|', chr(92) + '|')} |"

    def table(title: str, rows: dict[str, str]) -> str:
        lines = [line(name, path) for name, path in rows.items()]
        return "\n".join([f"## {title}\n", "| name | |", "|---|---|", *lines, ""])

    first = {name: places[name] for name in FIRST}
    rest = {name: path for name, path in sorted(places.items(), key=_folded) if name not in first}
    sections = [table("Begin with", first), table("Also in `ethogram`", rest)]
    for page in re.findall(r"\((\w+)\.md\)", (ROOT / "docs" / "reference" / "index.md").read_text("utf-8")):
        text = (ROOT / "docs" / "reference" / f"{page}.md").read_text(encoding="utf-8")
        rows = {}
        for module in re.findall(r"^::: ethogram\.(\S+)", text, re.MULTILINE):
            exports = getattr(package[module], "exports", None) or []
            rows |= {str(name): f"ethogram.{module}.{name}" for name in exports}
        sections.append(
            table(text.splitlines()[0].removeprefix("# "), dict(sorted(rows.items(), key=_folded)))
        )
    return "\n".join(sections)


def _top_level() -> dict[str, str]:
    """Full names of what `ethogram` itself has, subpackages aside, from its stub."""
    stub = ast.parse((ROOT / "src" / "ethogram" / "__init__.pyi").read_text(encoding="utf-8"))
    imports = [each for each in stub.body if isinstance(each, ast.ImportFrom) and each.module != "ethogram"]
    return {name.name: f"{each.module}.{name.name}" for each in imports for name in each.names}


def _folded(item: tuple[str, str]) -> str:
    return item[0].lower()
