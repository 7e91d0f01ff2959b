"""Labels as text, and their numbers in a vocabulary."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from ethogram.models.arguments import as_list, require, require_one_of
from ethogram.models.data.metadata import SEQUENCE_LABELS, STEP_LABELS, Metadata

__all__ = [
    "VOCABULARIES",
    "are_numerals",
    "coded_fields",
    "label_texts",
    "look_up",
    "refuse_merged",
    "require_vocabulary",
]

VOCABULARIES = STEP_LABELS | SEQUENCE_LABELS


def label_texts(values: np.ndarray, name: str) -> np.ndarray:
    """Labels as text, whole numbers without a point; a ValueError where floats are too large to tell numbers apart."""
    if values.dtype.kind == "f":
        refuse_merged(values, name)
        if (values == np.rint(values)).all():
            values = values.astype(np.int64)
    return values.astype(str)


def refuse_merged(values: np.ndarray, name: str) -> None:
    """Raise ValueError at the first float, from 2**53 on if double, that stands for several whole numbers."""
    if values.dtype.kind == "f":
        digits = np.finfo(values.dtype).nmant + 1
        fix = f": from 2**{digits} on, different whole numbers are the same float; give integers or strings"
        require(np.abs(values) < 2.0**digits, name, values, fix)


def look_up(
    values: np.ndarray,
    names: Sequence[str],
    name: str,
    vocabulary: str,
    fix: str = "",
    rows: np.ndarray | None = None,
) -> np.ndarray:
    """Numbers (label,) of labels in a vocabulary, by their text; a ValueError names the first that is not in it.

    Messages call labels and names `name` and `vocabulary`, those of a table by their `rows`; `fix` is what else to do
    where labels are numbers.
    """
    distinct, inverse = np.unique(label_texts(values, name), return_inverse=True)
    number = {each: code for code, each in enumerate(names)}
    unknown = np.array([text not in number for text in distinct.tolist()], bool)[inverse]
    if unknown.any():
        at = int(unknown.argmax())
        came = repr(str(distinct[inverse[at]]))
        came = f"contains {came}" if rows is None else f"is {came} in row {rows[at]}"
        raise ValueError(
            f"{name} {came}, which is not in {vocabulary}: add it{fix if values.dtype.kind != 'U' else ''}"
        )
    return np.array([number[text] for text in distinct.tolist()], np.int32)[inverse]


def coded_fields(codes: bool | str | Iterable[str]) -> tuple[str, ...]:
    """Fields whose integers are numbers of entries, also where a vocabulary names these: of ``codes=``."""
    if isinstance(codes, bool):
        return (*VOCABULARIES, "covariates") if codes else ()
    fields = [codes] if isinstance(codes, str) else as_list("codes", codes, "fields such as 'actions'")
    for field in fields:
        require_one_of("codes", field, (*VOCABULARIES, "covariates"))
    return tuple(fields)


def are_numerals(names: Sequence[str] | None) -> bool:
    """Whether some name is a whole number, such as ``"7"`` or ``"7.0"``, other than that of its own place."""
    return any(
        re.fullmatch(r"[+-]?\d+(\.0*)?", name) and name != str(place)
        for place, name in enumerate(names or ())
    )


def require_vocabulary(metadata: Metadata, source: str, **vocabularies: Sequence[str] | None) -> None:
    """Raise ValueError where numbers of data mean other states or actions than in `source`, such as an MDP.

    `vocabularies` are its ``state_names`` and ``action_names``, or None.
    """
    for field, names in vocabularies.items():
        ours = getattr(metadata, field)
        fix = f"read the data with metadata=Metadata({field}={source}.{field})"
        if names is not None and ours is None and are_numerals(names):
            raise ValueError(
                f"data.metadata.{field} is None, and {source}.{field} are numerals, such as {names[0]!r} for 0: {fix}"
            )
        for place, (one, other) in enumerate(zip(ours or (), names or (), strict=False)):
            if one != other:
                raise ValueError(
                    f"data.metadata.{field}[{place}] is {one!r}, and {source}.{field}[{place}] is {other!r}: {fix}"
                )
