"""Dates as people write them, as ISO strings: year, month and day in any order that is stated or needs no statement."""

from __future__ import annotations

import re

__all__ = ["iso_dates"]

DATE = re.compile(
    r"\s*(?:(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})"
    r"|(?P<first>\d{1,2})[-/.](?P<second>\d{1,2})[-/.](?P<last>\d{4}|\d\d))"
    r"(?:(?:\s*,\s*|[T\s]\s*)(?P<hour>\d{1,2})[:.](?P<minutes>\d\d(?:[:.]\d\d(?:[.,]\d+)?)?)"
    r"\s*(?P<half>[AaPp]\.?[Mm]\.?)?\s*(?P<zone>Z|UTC|GMT|[+-]\d\d:?\d\d)?)?\s*"
)
CENTURY = 69
"""Years of two digits from here on are of the twentieth century, as POSIX has them."""


def iso_dates(texts: list[str], name: str, day_first: bool | None) -> list[str]:
    """ISO strings of dates; a text that is no date stays as it is.

    Raises
    ------
    ValueError
        `day_first` is None, and a date has day and month in front of the year.
    """
    found = [DATE.fullmatch(text) for text in texts]
    rows = [row for row, date in enumerate(found) if date and date["first"]]
    if rows and day_first is None:
        days, months = (
            [row for row in rows if int((found[row] or {})[part]) > 12] for part in ("first", "second")
        )
        row = (days or months or rows)[0]
        cure = f"pass day_first={not months}" if days or months else "pass day_first=True or False"
        why = "" if days or months else ", and no day is above 12"
        raise ValueError(
            f"{name} is {texts[row]!r} in row {row}, where day and month stand before the year{why}: {cure}, or give "
            "ISO strings"
        )
    return [_iso(date, bool(day_first)) if date else text for text, date in zip(texts, found, strict=True)]


def _iso(date: re.Match[str], day_first: bool) -> str:
    year, month, day = date["year"], date["month"], date["day"]
    if year is None:
        day, month = (date["first"], date["second"]) if day_first else (date["second"], date["first"])
        year = date["last"]
        year = year if len(year) == 4 else f"{19 if int(year) >= CENTURY else 20}{year}"
    iso = f"{year}-{int(month):02}-{int(day):02}"
    if date["hour"] is None:
        return iso
    hour = int(date["hour"])
    if date["half"]:
        hour = hour % 12 + 12 * (date["half"][0] in "Pp")
    minutes = re.sub(r"^(\d\d)\.", r"\1:", date["minutes"]).replace(",", ".")
    zone = date["zone"] or ""
    return f"{iso}T{hour:02}:{minutes}{'+00:00' if zone in ('Z', 'UTC', 'GMT') else zone}"
