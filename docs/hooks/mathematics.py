r"""Formulas as MathML, which browsers draw by themselves: the site needs no script and no fonts from elsewhere.

mkdocs calls `on_page_content` with the HTML of a page, in which arithmatex has marked the formulas.
"""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

__all__ = ["on_page_content"]

MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\[(\[](?P<formula>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)


LOGARITHM = re.compile(r"(<mi>(?:ln|log)</mi>)(?!<mo[^>]*>&#x00028;)")
"""One without parentheses, which needs a space."""


def on_page_content(content: str, **others: Any) -> str:
    """The page with each formula in place of its TeX; one that cannot be converted stops the build."""
    return MARKED.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match["tag"] == "div" else "inline"
    formula = convert(
        html.unescape(match["formula"]).replace(r"\arg", r"\mathrm{arg}\,").strip(), display=display
    )
    if "\\" in formula:
        raise ValueError(f"a formula has a command that latex2mathml lacks: {match['formula']}")
    formula = formula.replace("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # a relation, with space around it
    return LOGARITHM.sub(r'\1<mspace width="0.17em"/>', formula)
