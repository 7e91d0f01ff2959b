"""Model comparison of ArviZ trees, which knows by the marks of ``to_arviz`` where it means nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ethogram.models.arguments import warn_user
from ethogram.models.held_warnings import import_quietly

__all__ = ["is_tree", "leave_one_out", "tree_scores", "warn_of_variational_draws"]


def is_tree(value: Any) -> bool:
    """Whether a value is an ``InferenceData`` or a ``DataTree`` with a posterior."""
    return hasattr(value, "attrs") and "posterior" in getattr(value, "children", dir(value))


def warn_of_variational_draws(trees: Mapping[str, Any]) -> list[str]:
    """Names of the trees whose draws come from a variational approximation; a warning says what that means."""
    marked = [
        name for name, tree in trees.items() if tree.attrs.get("draws_from") == "variational approximation"
    ]
    if marked:
        warn_user(
            f"draws of {', '.join(marked)} come from a variational approximation, narrower than the posterior: "
            "az.compare would give the overconfident fit the weight. Compare the standard deviations of the estimates, "
            "and held-out scores (ethogram.compare of fits with new data, or heldout_log_likelihood)"
        )
    return marked


def leave_one_out(trees: Mapping[str, Any]) -> Any:
    """The table of ``az.compare``; None where the trees score different entries, such as groups and sequences."""
    arviz = import_quietly("arviz", FutureWarning)  # it announces its successor
    entries = {
        values.shape[2:] for tree in trees.values() for values in tree.log_likelihood.data_vars.values()
    }
    return arviz.compare(dict(trees)) if len(entries) == 1 else None


def tree_scores(trees: Mapping[str, Any]) -> Any:
    """Table of log densities of the data of the fits, averaged over draws, in nats per entry, the best first."""
    import pandas
    from scipy.special import logsumexp

    rows = {}
    for name, tree in trees.items():
        if not hasattr(tree, "log_likelihood"):
            raise ValueError(
                f"{name} has no log likelihood: export it by to_arviz with data and log_likelihood="
            )
        (values,) = (np.asarray(each, float) for each in tree.log_likelihood.data_vars.values())
        flat = values.reshape(values.shape[0] * values.shape[1], -1)
        rows[name] = float(np.mean(logsumexp(flat, axis=0) - np.log(len(flat))))
    best = max(rows.values())
    table = pandas.DataFrame(
        {"log density per entry": rows, "difference": {name: value - best for name, value in rows.items()}}
    )
    table["se of difference"] = np.nan
    return table.sort_values("difference", ascending=False, kind="stable")
