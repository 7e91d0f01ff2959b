"""The table of a summary: a pandas DataFrame with findings above it where it is printed."""

from __future__ import annotations

import html
from typing import Any, ClassVar

from ethogram.inference.diagnostics import Diagnosis

__all__ = ["with_findings"]


def with_findings(table: Any, findings: Diagnosis) -> Any:
    """The table as a `SummaryTable` with these findings; what is computed from it is a plain DataFrame."""
    found = (globals().get("SummaryTable") or __getattr__("SummaryTable"))(table)
    found.findings = findings
    return found


def __getattr__(name: str) -> Any:
    """The class, made when it is asked for, here or of a pickle, since pandas takes a while to import."""
    if name != "SummaryTable":
        raise AttributeError(name)
    import pandas

    class SummaryTable(pandas.DataFrame):
        """Estimates, one row each, and the `findings` of their fit."""

        _metadata: ClassVar[list[str]] = ["findings"]
        findings: Diagnosis = Diagnosis()

        @property
        def _constructor(self) -> Any:
            return pandas.DataFrame

        def __repr__(self) -> str:
            return "\n".join([*self.findings.first_lines(), super().__repr__()])

        def _repr_html_(self) -> str | None:
            lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.findings.first_lines())
            table = super()._repr_html_()  # None where an option of pandas says so
            return table and lines + table

    SummaryTable.__qualname__ = "SummaryTable"
    return globals().setdefault(name, SummaryTable)
