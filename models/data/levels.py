"""Levels of sequences, such as the sex of their animals: labels of the data, or what a user says of these."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ethogram.models.data.metadata import SEQUENCE_LABELS

__all__ = ["sequence_levels"]


def sequence_levels(data: Any, name: str, values: Any = None) -> Any:
    """A ``pandas.Categorical`` (sequence,), missing where a sequence has no level.

    Levels stand in the order of their labels, or of what was given.

    Parameters
    ----------
    name : ``"agent"``, ``"group"``, ``"subject"`` or ``"sequence"``; or that of the levels of one's own.
    values : levels of one's own: by label of the agents, subjects, groups or sequences; or one per sequence.
    """
    import pandas

    count, labels = data.num_sequences, {}
    for field, vocabulary in SEQUENCE_LABELS.items():
        if getattr(data, field) is not None:
            code = np.asarray(getattr(data, field)).astype(int)
            names = getattr(data.metadata, vocabulary) or ()
            known = np.unique(code[code >= 0])
            own = [names[at] if at < len(names) else at for at in known.tolist()]
            labels[field] = pandas.Categorical.from_codes(
                np.where(code < 0, -1, np.searchsorted(known, code)), own
            )
    labels["sequence"] = pandas.Categorical(range(count))
    if values is None:
        if name not in labels:
            raise ValueError(f"by has {name!r}, and the data have no {name}: read them with {name}=")
        return labels[name]
    if isinstance(values, pandas.Series):
        values = values.to_dict()
    if not isinstance(values, Mapping):
        if np.shape(values) != (count,):
            shape = np.shape(values)
            raise ValueError(f"by[{name!r}] has shape {shape}: give one level per sequence, {count}")
        return pandas.Categorical(values, pandas.Series(values, dtype=object).dropna().unique())
    given = {str(label): level for label, level in values.items()}
    named = {field: list(map(str, label.categories)) for field, label in labels.items()}
    lacking = {field: [each for each in names if each not in given] for field, names in named.items()}
    whole = [field for field, names in named.items() if names and not lacking[field]]
    partial = [field for field, names in named.items() if len(lacking[field]) < len(names)]
    if whole:
        levels = [None if pandas.isna(each) else given[str(each)] for each in labels[whole[0]]]
        return pandas.Categorical(levels, pandas.Series(given, dtype=object).dropna().unique())
    if partial:
        missing = ", ".join(lacking[partial[0]][:5])
        raise ValueError(f"by[{name!r}] has no level of the {partial[0]} {missing}: give one of each")
    some = ", ".join(sorted(given)[:5])
    raise ValueError(f"by[{name!r}] has the labels {some}, which no agent, group or subject has")
