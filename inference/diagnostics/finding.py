"""Findings about a fit, and their order: the worst first."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from scipy.special import ndtri

from ethogram.models.printing import short_repr

__all__ = ["CHANCE", "LEAST_Z", "Diagnosis", "Finding", "Level"]

CHANCE = 1e-5
"""Largest probability, under the model, of a statistic that is a finding."""
LEAST_Z = float(-ndtri(CHANCE / 2))
"""Least distance from zero of a standard normal statistic that is a finding."""

SHOWN = 3
"""Findings above a repr and a summary."""


class Level(enum.IntEnum):
    """How much a finding weighs.

    A note is worth knowing; a caution means that conclusions may change; a warning, that they rest on something that
    is wrong.
    """

    NOTE = 1
    CAUTION = 2
    WARNING = 3


@short_repr
class Finding(NamedTuple):
    """One finding.

    Attributes
    ----------
    kind : what it is about, such as ``"outliers"``.
    level : how much it weighs.
    evidence : what was seen, with its numbers, as one sentence.
    advice : what to do, as one sentence.
    size : how far beyond its threshold the evidence is; findings of one level are ordered by it.
    """

    kind: str
    level: Level
    evidence: str
    advice: str
    size: float

    def __str__(self) -> str:
        return f"{self.level.name.lower()}, {self.kind}: {self.evidence} {self.advice}"


class Diagnosis(tuple[Finding, ...]):
    """Findings about a fit, the worst first; it prints as one line per finding."""

    def __new__(cls, findings: Any = ()) -> Diagnosis:
        order = sorted(findings, key=lambda each: (each.level, each.size), reverse=True)
        return super().__new__(cls, order)

    def __repr__(self) -> str:
        return "\n".join(map(str, self)) if self else "no findings"

    def first_lines(self) -> list[str]:
        """The worst findings above a note, one line each, and how many more there are."""
        weighty = [str(each) for each in self if each.level > Level.NOTE]
        more = [f"{len(weighty) - SHOWN} more: see diagnose()"] if len(weighty) > SHOWN else []
        return [*weighty[:SHOWN], *more]

    def to_table(self) -> Any:
        """A pandas DataFrame with one row per finding."""
        import pandas

        rows = [each._asdict() | {"level": each.level.name.lower()} for each in self]
        return pandas.DataFrame(rows, columns=Finding._fields)
