r"""Docstrings as Markdown: mathematics and cross references, which are written in reStructuredText.

``.. math::`` and ``:math:`` become ``\[...\]`` and ``\(...\)``, and roles such as ``:func:`` links by name where the
target's full name is written, else code. mkdocs calls the extension at the end through griffe.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any

try:
    from griffe import Extension
except ImportError:  # the tests run without the packages of the site
    Extension = object

__all__ = ["DocstringMarkup", "to_markdown"]

FORMULA = re.compile(
    r"^(?P<indent>[ ]*)\.\. math::(?P<first>[^\n]*)\n?"
    r"(?P<rest>(?:(?P=indent)[ ]+[^\n]*(?:\n|$)|[ ]*\n(?=(?P=indent)[ ]+\S))*)",
    re.MULTILINE,
)
INLINE = re.compile(r":math:`([^`]+)`")
ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|obj|exc):`([^`]+)`")
TITLED = re.compile(r"(?P<title>.*\S)\s*<(?P<target>[^>]+)>", re.DOTALL)


def to_markdown(text: str) -> str:
    """A docstring's text with its formulas and cross references in Markdown; all else as it stands."""
    text = FORMULA.sub(_formula, text)
    text = INLINE.sub(lambda match: rf"\({match[1]}\)", text)
    return ROLE.sub(_reference, text)


def _formula(match: re.Match[str]) -> str:
    lines = [match["first"].strip(), *textwrap.dedent(match["rest"]).strip().splitlines()]
    formula = " ".join(line.strip() for line in lines if line.strip())
    return f"\n{match['indent']}\\[{formula}\\]\n\n"


def _reference(match: re.Match[str]) -> str:
    target = " ".join(match[1].split())
    titled = TITLED.fullmatch(target)
    if titled:
        title, target = titled["title"], titled["target"]
    else:
        title = target.rsplit(".", 1)[-1] if target.startswith("~") else target
    target = target.lstrip("~")
    return f"[`{title}`][{target}]" if target.startswith("ethogram.") else f"`{title}`"


class DocstringMarkup(Extension):
    """griffe's hook: every docstring is converted as it is read."""

    def on_instance(self, *, obj: Any, **others: Any) -> None:
        """Convert the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
