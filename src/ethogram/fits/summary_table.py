"""The table of a summary: a pandas DataFrame with findings above it where it is printed; imported where one is made."""

from __future__ import annotations

import html
from typing import Any, ClassVar

import pandas

from ethogram.inference.diagnostics import Diagnosis

__all__ = ["SummaryTable"]


class SummaryTable(pandas.DataFrame):
    """Estimates, one row each, and the `findings` of their fit; what is computed from it is a plain DataFrame."""

    _metadata: ClassVar[list[str]] = ["findings"]
    findings: Diagnosis = Diagnosis()

    @property
    def _constructor(self) -> Any:
        return pandas.DataFrame

    def __repr__(self) -> str:
        return "\n".join([*self.findings.first_lines(), super().__repr__()])

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.findings.first_lines())
        return lines + super()._repr_html_()
