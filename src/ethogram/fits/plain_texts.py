"""Names of data in figures, which are no formulas."""

from __future__ import annotations

from typing import Any

__all__ = ["show_plainly"]


def show_plainly(figure: Any) -> None:
    """Show the texts of a figure as they are: as a formula, a column called ``$x^$`` would be an error."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        if "$" in text.get_text() and "mathdefault" not in text.get_text():  # as on logarithmic axes
            text.set_parse_math(False)
