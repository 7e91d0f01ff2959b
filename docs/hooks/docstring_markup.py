r"""Docstrings as the site reads them: mathematics and cross references as Markdown, and types from annotations.

``.. math::`` and ``:math:`` become ``\[...\]`` and ``\(...\)``, and roles such as ``:func:`` links by name where the
target's full name is written, else code. A row ``name : text`` of a section, which has its type in the annotation, gets
that type, and its text as description, as numpydoc has them. mkdocs calls the extension at the end through griffe.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

try:
    from griffe import Alias, AliasResolutionError, Extension
except ImportError:  # the tests run without the packages of the site
    Alias = AliasResolutionError = Extension = object

__all__ = ["DocstringMarkup", "to_markdown", "with_types"]

FORMULA = re.compile(
    r"^(?P<indent>[ ]*)\.\. math::(?P<first>[^\n]*)\n?"
    r"(?P<rest>(?:(?P=indent)[ ]+[^\n]*(?:\n|$)|[ ]*\n(?=(?P=indent)[ ]+\S))*)",
    re.MULTILINE,
)
INLINE = re.compile(r":math:`([^`]+)`")
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|obj|exc):`([^`]+)`")
SECTION = re.compile(
    r"^(?P<name>[A-Z][a-z]+)\n-{3,}\n(?P<rows>(?:.+\n?|\n(?=[ ]|.+\n(?!-{3})))*)", re.MULTILINE
)
NAMED = re.compile(r"(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*) : (?P<text>.*)")
SHOWN = re.compile(r"^::: (\S+)", re.MULTILINE)
TITLED = re.compile(r"(?P<title>.*\S)\s*<(?P<target>[^>]+)>", re.DOTALL)


def to_markdown(text: str, place: Callable[[str], str | None] = str) -> str:
    """A docstring's text with its formulas and cross references in Markdown; all else as it stands.

    `place` says under which full name the site has a target, or None where it has none.
    """
    text = FORMULA.sub(_formula, text)
    text = INLINE.sub(lambda match: rf"\({match[1]}\)", text)
    return ROLE.sub(lambda match: _reference(match, place), text)


def _formula(match: re.Match[str]) -> str:
    lines = [match["first"].strip(), *textwrap.dedent(match["rest"]).strip().splitlines()]
    formula = " ".join(line.strip() for line in lines if line.strip())
    return f"\n{match['indent']}\\[{formula}\\]\n\n"


def _reference(match: re.Match[str], place: Callable[[str], str | None]) -> str:
    target = " ".join(match[1].split())
    titled = TITLED.fullmatch(target)
    if titled:
        title, target = titled["title"], titled["target"]
    else:
        title = target.rsplit(".", 1)[-1] if target.startswith("~") else target
    target = target.lstrip("~")
    found = place(target) if target.startswith("ethogram.") else None
    return f"[`{title}`][{found}]" if found else f"`{title}`"


def with_types(text: str, annotations: Mapping[str, str], returns: str) -> str:
    """A docstring whose rows have their types: of parameters and attributes by name, and what a function returns."""

    def of_section(match: re.Match[str]) -> str:
        rows = re.split(r"\n(?=\S)", match["rows"].rstrip("\n"))
        head = match[0][: match.start("rows") - match.start()]
        if match["name"] in ("Parameters", "Attributes"):
            rows = [typed for row in rows for typed in _rows(row, annotations)]
        elif match["name"] in ("Raises", "Warns"):
            rows = [re.sub(r"^([\w, ]+) : ", r"\1\n    ", row) for row in rows]
        elif match["name"] in ("Returns", "Yields") and " " in rows[0].partition("\n")[0]:
            rows = [f"{returns or 'object'}\n{textwrap.indent(match['rows'], '    ')}"]
        return head + "\n".join(rows) + "\n" * (1 + match[0].endswith("\n\n"))

    return SECTION.sub(of_section, text)


def _rows(row: str, annotations: Mapping[str, str]) -> list[str]:
    """One row per name of ``names : text``, each with its type."""
    found = NAMED.match(row)
    if found is None:
        return [row]
    rest = f"    {found['text']}{row[found.end() :]}"
    names = found["names"].split(", ")
    kinds = {name: annotations.get(name.lstrip("*")) for name in names}
    return [f"{name} : {kind}\n{rest}" if kind else f"{name}\n{rest}" for name, kind in kinds.items()]


class DocstringMarkup(Extension):
    """griffe's hook: the docstrings of a package are converted once all of it is read."""

    def on_package(self, *, pkg: Any, **others: Any) -> None:
        """Convert the docstrings of all modules, classes, functions and attributes."""
        pages = Path(__file__).resolve().parents[1] / "reference"
        self._shown = {name for page in pages.glob("*.md") for name in SHOWN.findall(page.read_text("utf-8"))}
        self._convert(pkg)
        self._resolve(pkg)
        self._name_functions(pkg)

    def _place(self, pkg: Any, target: str) -> str | None:
        """Where the site has a target: names of `ethogram` where they are defined, modules that have a section."""
        _, first, *rest = target.split(".")
        target = ".".join([pkg.imports.get(first, f"ethogram.{first}"), *rest])
        try:
            found = pkg[target.removeprefix("ethogram.")]
        except (AliasResolutionError, KeyError):
            return None
        if found.is_module and found.name in map(str, found.parent.exports or ()):  # see `_name_functions`
            return target
        home, first = (
            found.module.path,
            found.canonical_path.removeprefix(f"{found.module.path}.").split(".")[0],
        )
        public = target in self._shown or any(
            f"{home}.".startswith(f"{shown}.")
            and first in map(str, pkg[shown.removeprefix("ethogram.")].exports or ())
            for shown in self._shown
        )
        return target if public else None

    def _resolve(self, obj: Any) -> None:
        """Find the targets of aliases while all modules are in place."""
        for each in obj.members.values():
            if not each.is_alias:
                self._resolve(each)
            elif each.target_path.startswith("ethogram."):
                with suppress(AliasResolutionError):  # constants of another package, which is not read
                    each.resolve_target()

    def _name_functions(self, obj: Any) -> None:
        """A public name that a package imports, as `fits.fit`, takes the place of the module of that name."""
        for name, each in list(obj.members.items()):
            if not each.is_alias and each.is_module:
                self._name_functions(each)
                if name in map(str, obj.exports or ()) and name in obj.imports:
                    target = obj.package[obj.imports[name].removeprefix("ethogram.")]
                    obj.members[name] = Alias(name, target, parent=obj)

    def _convert(self, obj: Any) -> None:
        own = {name: each for name, each in obj.members.items() if not each.is_alias}
        annotations = _annotations(obj)
        if obj.is_class:
            init = own.get("__init__")
            annotations |= _parameters(init) if init is not None else {}
        elif obj.is_function:
            annotations = _parameters(obj)
        if obj.docstring is not None:
            returns = str(getattr(obj, "returns", None) or "")
            text = with_types(obj.docstring.value, annotations, returns)
            obj.docstring.value = to_markdown(text, lambda target: self._place(obj.package, target))
        for each in own.values():
            self._convert(each)


def _annotations(obj: Any) -> dict[str, str]:
    """Annotations of members by name, of a class also those that it inherits."""
    inherited = [_annotations(base) for base in obj.resolved_bases] if obj.is_class else []
    own = {
        name: str(each.annotation)
        for name, each in obj.members.items()
        if not each.is_alias and getattr(each, "annotation", None)
    }
    return {name: kind for found in [*reversed(inherited), own] for name, kind in found.items()}


def _parameters(function: Any) -> dict[str, str]:
    return {each.name.lstrip("*"): str(each.annotation) for each in function.parameters if each.annotation}
