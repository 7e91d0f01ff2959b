"""Data of a fit and new data: whether they are of one kind and vocabulary, and their entries in a score."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ethogram.models.data import Trajectories, group_labels
from ethogram.models.data.labels import are_numerals
from ethogram.models.printing import short_repr

__all__ = ["Score", "by_group", "mean_and_error", "require_alike", "require_free_states"]

VOCABULARIES = ("feature_names", "feature_units", "state_names", "action_names")


@short_repr
class Score(NamedTuple):
    """Log predictive density of data under a fit.

    Attributes
    ----------
    total : sum over the entries, in nats.
    mean : per observed step or decision, in nats.
    se : standard error of `mean` over the entries, as a sample of all that might have been observed; NaN for one.
    entries : (entry,) log predictive densities of the groups, of the sequences where there are no groups, or of the
        decisions, times their weights; none of those that nothing was observed of.
    counts : (entry,) their observed steps; the weight of a decision.
    unit : ``"step"`` or ``"decision"``.
    """

    total: float
    mean: float
    se: float
    entries: Float[np.ndarray, " entry"]
    counts: Float[np.ndarray, " entry"]
    unit: str


def require_alike(data: Any, fitted: Any, model: Any) -> None:
    """Raise unless new data are of the type of those of the fit, and codes and features mean the same in both."""
    if fitted is None:
        raise TypeError("a query has its evidence and takes no data: leave data out")
    named = [hasattr(each, "metadata") for each in (data, fitted)]
    counts = hasattr(model, "counts") and all(  # or the trajectories that they are of
        isinstance(each, Trajectories) or not name for each, name in zip((data, fitted), named, strict=True)
    )
    if type(data) is not type(fitted) and not counts:
        raise TypeError(
            f"data is {type(data).__name__}, and the fit is of {type(fitted).__name__}: give such data"
        )
    if not all(named):
        return
    own = ("subject_names",) if data.subject is not None and fitted.subject is not None else ()
    for field in (*VOCABULARIES, *own):
        ours, theirs = getattr(fitted.metadata, field), getattr(data.metadata, field)
        if ours is None or theirs is None:
            if field in VOCABULARIES[2:] + own and are_numerals(ours or theirs):
                names, numbers = ("the fit", "data") if theirs is None else ("data", "the fit")
                raise ValueError(
                    f"metadata.{field} of {names} are numerals, such as {(ours or theirs)[0]!r} for 0, {numbers} has "
                    "none: a number of one may be a name of the other; read the data with metadata=fit.data.metadata"
                )
            continue
        for place, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            if one != other:
                raise ValueError(
                    f"data.metadata.{field}[{place}] is {other!r}, and that of the fit is {one!r}: the fit would take "
                    "one for the other; read the data with metadata=fit.data.metadata, or bring their columns into "
                    "its order"
                )


def require_free_states(model: Any, data: Any, what: str) -> None:
    """Raise ValueError where a model scores groups jointly, since its roles exclude each other."""
    if model.entries(data).sequences is not None:
        raise ValueError(
            f"roles that exclude each other have no {what} here: give a model without exclusive="
        )


def by_group(data: Any, values: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log densities (draw, entry) and counts of entries, those of the sequences of a group added.

    Sequences of a group were recorded together, so that groups, not sequences, are the independent observations.
    Entries of models that score groups, which stand in the order of their labels, stay.
    """
    if not isinstance(data, Trajectories) or data.group is None or len(counts) != data.num_sequences:
        return values, counts
    _, group = np.unique(group_labels(data), return_inverse=True)
    added = np.zeros((group.max() + 1, len(values)))
    np.add.at(added, group, values.T)
    return added.T, np.bincount(group, counts)


def mean_and_error(entries: np.ndarray, counts: np.ndarray) -> tuple[float, float]:
    """Mean of log densities (entry,) per step, and its standard error over the entries.

    NaN for a single entry, and where data are impossible.
    """
    with np.errstate(invalid="ignore"):
        mean = entries.sum() / counts.sum()
        rest = entries - mean * counts
    known = len(rest) > 1 and np.isfinite(rest).all()
    return float(mean), float(rest.std(ddof=1) * np.sqrt(len(rest)) / counts.sum()) if known else np.nan
