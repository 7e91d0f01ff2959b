"""How subjects differ in switching: the log odds of each change of state by subject, and their figure."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ethogram.fits import latent_classes
from ethogram.inference.draws import flat_draws
from ethogram.models.arguments import require_number
from ethogram.plots.axes import figure_or_new, show_plainly
from ethogram.plots.covariates import subject_forest

__all__ = ["plot_subjects", "subjects"]

POPULATION = "population"
"""The row of a subject whose log odds are those of the mean."""


def subjects(fit: Any, probability: float) -> Any:
    """The table that `Fit.subjects` describes."""
    import pandas

    if hasattr(fit.model, "num_classes"):
        return latent_classes.subjects(fit, probability)
    require_number("probability", probability, above=0, below=1)
    sites = flat_draws(fit.draws().sites) if fit.has_draws else {}
    if "theta" in sites:
        raise TypeError('values of subjects of a choice model are in fit.summary() and fit.plot("shrinkage")')
    if "subject_log_odds" not in sites:
        raise TypeError(
            "subjects of this fit do not vary: give RoleHMM(..., transition=ethogram.Covariates(vary='subject')) and "
            "data with a subject for each sequence"
        )
    names, tail = fit.state_names, (1 - probability) / 2
    population = sites["log_odds"].astype(float)
    own = (
        population[:, None] + sites["subject_log_odds"][:, :-1]
    )  # without the subject that is not in the data
    each = np.concatenate([population[:, None], own], axis=1)
    labels = [POPULATION, *fit.draws().model.transition.encoding.subjects]
    rows, index = [], []
    for one, other in itertools.permutations(range(len(names)), 2):
        for label, draws in zip(labels, each[..., one, other].T, strict=True):
            lower, upper = np.quantile(draws, [tail, 1 - tail])
            above = np.nan if label is POPULATION else (draws > population[:, one, other]).mean()
            rows.append([draws.mean(), draws.std(ddof=1), lower, upper, above])
            index.append((names[one], names[other], label))
    places = pandas.MultiIndex.from_tuples(index, names=["state", "next_state", "subject"])
    return pandas.DataFrame(rows, index=places, columns=["mean", "sd", "lower", "upper", "above_population"])


def plot_subjects(fit: Any, figure: Any = None) -> Any:
    """The figure of subjects that `Fit.plot` describes."""
    table = subjects(fit, 0.9)
    changes = [*dict.fromkeys(table.index.droplevel("subject"))]
    count = len(table) // len(changes)
    columns = min(len(changes), 3)
    height = 0.8 + 0.22 * min(count, 60)
    figure = figure_or_new(figure, (3.6 * columns, height * -(-len(changes) // columns)))
    subject_forest(figure, {change: table.loc[change] for change in changes}, POPULATION, columns)
    show_plainly(figure)
    return figure
