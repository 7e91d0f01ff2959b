"""Fits beside each other: algorithms on one model, models on one data set, methods on one query."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ethogram.fits.compare_trees import is_tree, leave_one_out, tree_scores, warn_of_variational_draws
from ethogram.fits.disagreement import Moments, disagreements, moments
from ethogram.fits.estimates import entries_of
from ethogram.fits.fit_object import Fit, Score
from ethogram.fits.systems import has_labels
from ethogram.inference import storage
from ethogram.inference.conjugate import ConjugateResult
from ethogram.inference.draws import flat_draws
from ethogram.inference.rewards import IntentFit, RewardFit
from ethogram.inference.sampled_posterior import SampledPosterior

__all__ = ["Comparison", "compare"]

MOST_ROWS = 10
"""Rows of a table that are printed."""
VARIATIONAL = (
    "Draws of a variational fit are narrower than the posterior: az.compare would give the overconfident fit the "
    "weight, so it is not asked. Read the scores, and where the fits disagree."
)
TRAINING = "The scores are on the data of the fits and favour large models: give data= that no fit has seen."
OTHER_ENTRIES = (
    "az.compare is not asked: some models score the sequences of a group jointly, others one by one."
)
LOO = (
    "az.compare ranks by leave-one-out scores of the data of the fits. It may be used between models that were all "
    "sampled, where its warnings and Pareto k are good; the scores on new data come first."
)


class Comparison(NamedTuple):
    """What a comparison found; as text, its statement and the first ten rows of its tables.

    Attributes
    ----------
    kind : ``"algorithms"`` on one model, ``"models"`` on one data set, or ``"answers"`` to one query.
    scores : table, one row a fit, the best first: log predictive densities per step or decision with the standard error
        of the difference to the best, smallest effective sample size a second, seconds. Of answers, log probabilities
        and bounds.
    estimates : table of algorithms, one row an estimate: mean, lower and upper end of the 90 % interval by fit; None of
        others.
    disagreements : table of algorithms, one row an estimate and pair of fits that differ beyond Monte Carlo error, the
        largest first; None of others.
    loo : the table of ``az.compare`` for models that were all sampled; None of others.
    statement : in words.
    entries : names and draws by fit behind the tables, for the figure.
    fits : that were compared, by name.
    """

    kind: str
    scores: Any
    estimates: Any
    disagreements: Any
    loo: Any
    statement: str
    entries: tuple[list[str], dict[str, np.ndarray]] | None
    fits: Mapping[str, Any]

    def __str__(self) -> str:
        tables = [self.scores, self.disagreements, self.loo]
        shown = [
            table.head(MOST_ROWS).round(4).to_string() for table in tables if table is not None and len(table)
        ]
        return "\n\n".join([self.statement, *shown])

    def plot(self, figure: Any = None) -> Any:
        """A figure: marginals and intervals of algorithms, scores of models, incumbents of answers.

        Parameters
        ----------
        figure : empty matplotlib Figure to draw into; a new one of pyplot, which notebooks show, where None.
        """
        from ethogram.fits.comparison_plot import draw_comparison

        return draw_comparison(self, figure)


def compare(fits: Mapping[str, Any], data: Any = None) -> Comparison:
    """Compare fits by name.

    Of algorithms on one model, labels are aligned to the first fit, and the estimates stand beside each other. Of
    models on one data set, log predictive densities of `data` rank them. Of methods on one query, the assignments do.

    Parameters
    ----------
    fits : of :func:`ethogram.fit`, at least two, by name; or what `to_arviz` exported of models of one data set.
    data : that no fit has seen, for the scores; the data of the fits where None. Trees take none.

    Raises
    ------
    TypeError, ValueError
        There are fewer than two fits, one is no `Fit`, or they are of different data or queries.

    Warns
    -----
    UserWarning
        If a tree has draws of a variational approximation, of which ``az.compare`` is not asked.

    Examples
    --------
    ``print(compare({"cavi": fit(key, model, data), "nuts": fit(key, model, data, "nuts")}, new_data))``
    """
    known = isinstance(fits, Mapping)
    trees = known and all(map(is_tree, fits.values()))
    if not known or not (trees or all(isinstance(each, Fit) for each in fits.values())):
        raise TypeError(
            "fits must be a mapping from names to fits, as ethogram.fit returns, or to trees, as to_arviz returns"
        )
    if len(fits) < 2:
        raise ValueError(f"fits has {len(fits)} entries: give at least two")
    if trees:
        if data is not None:
            raise TypeError(
                "data is given with trees, which hold the log likelihoods of theirs: compare fits instead"
            )
        return _trees(fits)
    marks = {name: storage.fingerprint(_bare(each.data)) for name, each in fits.items()}
    if len(set(marks.values())) > 1:
        raise ValueError("fits are of different data: fit all of them to the same")
    first = next(iter(fits.values()))
    same = len({storage.fingerprint(each.model) for each in fits.values()}) == 1
    if first.data is None:
        if not same:
            raise ValueError("fits answer different queries: compare answers to one")
        return _answers(fits)
    several = (
        sum(each.has_draws for each in fits.values()) > 1
    )  # the linear baseline has none: only its score compares
    return _algorithms(fits, data) if same and several else _models(fits, data)


def _bare(data: Any) -> Any:
    """Data without names, which do not change a fit."""
    return [np.asarray(each) for each in data if hasattr(each, "shape")] if isinstance(data, tuple) else data


def _answers(fits: Mapping[str, Fit]) -> Comparison:
    import pandas

    results = {name: each.result for name, each in fits.items()}
    order = sorted(results, key=lambda name: -results[name].log_probability)
    fields = ("log_probability", "kind", "lower_bound", "upper_bound", "proved_optimal", "seconds")
    table = pandas.DataFrame(
        {field: [getattr(results[name], field) for name in order] for field in fields}, index=order
    )
    best = results[order[0]]
    if best.assignment is None:
        words = f"No method found an assignment: the log probability is at most {_least_bound(results):.4f}."
        return Comparison("answers", table, None, None, None, words, None, fits)
    equal = [
        name for name in order if np.isclose(results[name].log_probability, best.log_probability, atol=1e-9)
    ]
    proof = next((name for name in order if results[name].proved_optimal), None)
    words = f"The best answer has log probability {best.log_probability:.4f}, found by {', '.join(equal)}."
    words += (
        f" It is proved optimal by {proof}."
        if proof
        else f" No bound proves it: at most {_least_bound(results):.4f} is possible."
    )
    return Comparison("answers", table, None, None, None, words, None, fits)


def _least_bound(results: Mapping[str, Any]) -> float:
    return min(each.upper_bound for each in results.values())


def _scored(fits: Mapping[str, Fit], data: Any) -> tuple[dict[str, Score], Any, list[str]]:
    """Scores by fit, their table, and names in order."""
    import pandas

    scores = {name: each.score(data) for name, each in fits.items()}
    order = sorted(scores, key=lambda name: -scores[name].mean)
    best = scores[order[0]]
    rows = []
    for name in order:
        found = scores[name]
        if found.entries.shape != best.entries.shape:
            raise ValueError(
                f"{name} scores {len(found.entries)} entries of the data and {order[0]} {len(best.entries)}: fits "
                "compare where they score the same"
            )
        with np.errstate(invalid="ignore"):
            gaps = found.entries - best.entries
            rest = gaps - gaps.sum() / best.counts.sum() * best.counts
        known = len(rest) > 1 and np.isfinite(rest).all()  # impossible data have no error
        error = rest.std(ddof=1) * np.sqrt(len(rest)) / best.counts.sum() if known else np.nan
        rows.append(
            {
                f"log density per {found.unit}": found.mean,
                "difference": found.mean - best.mean,
                "se of difference": float(error),
                "method": fits[name].method,
                "seconds": fits[name].seconds,
            }
        )
    return scores, pandas.DataFrame(rows, index=order), order


def _models(fits: Mapping[str, Fit], data: Any) -> Comparison:
    _, table, order = _scored(fits, data)
    gap, error = table["difference"].to_numpy(), table["se of difference"].to_numpy()
    close = [name for name, d, e in zip(order[1:], gap[1:], error[1:], strict=True) if -d <= e]
    words = f"{order[0]} predicts best."
    words += f" Within one standard error of it: {', '.join(close)}." if close else ""
    notes = [words] + ([TRAINING] if data is None else [])
    loo = None
    if all(isinstance(each.result, SampledPosterior) for each in fits.values()):
        loo = leave_one_out(
            {
                name: each.to_arviz(log_likelihood="sequence", progress_bar=False)
                for name, each in fits.items()
            }
        )
        notes.append(OTHER_ENTRIES if loo is None else LOO)
    elif any(isinstance(each.result, ConjugateResult | RewardFit | IntentFit) for each in fits.values()):
        notes.append(VARIATIONAL)
    return Comparison("models", table, None, None, loo, " ".join(notes), None, fits)


def _trees(trees: Mapping[str, Any]) -> Comparison:
    table = tree_scores(trees)
    if warn_of_variational_draws(trees):
        words, loo = VARIATIONAL, None
    else:
        loo = leave_one_out(trees)
        words = OTHER_ENTRIES if loo is None else LOO
    return Comparison("models", table, None, None, loo, f"{TRAINING} {words}", None, trees)


def _algorithms(fits: Mapping[str, Fit], data: Any) -> Comparison:
    import pandas

    drawn = {name: each for name, each in fits.items() if each.has_draws}
    names, draws = _entries(drawn)
    found: dict[str, Moments] = {}
    for name, each in drawn.items():
        found[name] = moments(draws[name], isinstance(each.result, SampledPosterior))
    _, table, _ = _scored(fits, data)
    rate = {
        name: each.ess[each.sd > 0].min() / fits[name].seconds
        for name, each in found.items()
        if not each.single
    }
    table["ess per second"] = pandas.Series(rate)
    columns: dict[Any, np.ndarray] = {}
    for name, values in draws.items():
        flat = values.reshape(-1, values.shape[-1])
        lower, upper = np.quantile(flat, [0.05, 0.95], axis=0)
        columns |= {(name, "mean"): flat.mean(0), (name, "lower"): lower, (name, "upper"): upper}
    estimates = pandas.DataFrame(columns, index=names)
    rows, words = [], []
    for one, other in itertools.combinations(drawn, 2):
        shift, ratio, apart = disagreements(found[one], found[other])
        for at in np.flatnonzero(apart):
            rows.append(
                {
                    "estimate": names[at],
                    "fits": f"{one}, {other}",
                    "mean of the first": found[one].mean[at],
                    "mean of the second": found[other].mean[at],
                    "shift in sd": shift[at],
                    "ratio of sd": ratio[at],
                }
            )
        words.append(_in_words(one, other, names, found, shift, ratio, apart))
    apart_table = pandas.DataFrame(rows)
    if len(rows):
        with np.errstate(divide="ignore"):  # a point has no spread
            spread = np.log(apart_table["ratio of sd"]).abs().clip(upper=1.0)  # heavy tails have any ratio
        size = apart_table["shift in sd"].abs() + spread
        apart_table = apart_table.iloc[np.argsort(-size.to_numpy(), kind="stable")].reset_index(drop=True)
    words += [TRAINING] if data is None else []
    return Comparison(
        "algorithms", table, estimates, apart_table, None, " ".join(words), (names, draws), fits
    )


def _in_words(
    one: str,
    other: str,
    names: list[str],
    found: Mapping[str, Moments],
    shift: np.ndarray,
    ratio: np.ndarray,
    apart: np.ndarray,
) -> str:
    count = int(apart.sum())
    alone = [name for name in (one, other) if found[name].single]
    note = f" {' and '.join(alone)} without a spread, of which only the place is compared." if alone else ""
    note = note.replace(" without", " are answers without" if len(alone) > 1 else " is one answer without")
    if not count:
        return f"{one} and {other} agree within Monte Carlo error in all {len(names)} estimates.{note}"
    at = int(np.argmax(np.where(apart, np.abs(shift), -1)))
    both = (found[one].sd > 0) & (found[other].sd > 0)
    spreads = (
        ""
        if alone or not both.any()
        else (
            f" The standard deviations of {one} are {np.median(ratio[both]):.2f} times those of {other} at the median."
        )
    )
    return (
        f"{one} and {other} disagree beyond Monte Carlo error in {count} of {len(names)} estimates; the largest shift "
        f"is that of {names[at]}, {found[one].mean[at]:.4g} against {found[other].mean[at]:.4g} ({abs(shift[at]):.2f} "
        f"standard deviations).{spreads}{note}"
    )


def _entries(fits: Mapping[str, Fit]) -> tuple[list[str], dict[str, np.ndarray]]:
    """Names that all fits have, and draws (chain, draw, entry) by fit, labels aligned to the first."""
    first = next(iter(fits.values()))
    options: dict[str, Any] = {}
    if has_labels(first.model):
        sites = flat_draws(first.draws().sites)
        means = {name: site.mean(0) for name, site in sites.items()}
        exist = all(np.isfinite(mean).all() for mean in means.values())
        options["align"] = means if exist else {name: site[0] for name, site in sites.items()}
        options["progress_bar"] = False
    each = {name: entries_of(fit, **options) for name, fit in fits.items()}
    known, values = each[next(iter(each))]
    _, once = np.unique(
        values.reshape(-1, values.shape[-1]), axis=1, return_index=True
    )  # covariances are symmetric
    shared = [known[at] for at in np.sort(once) if all(known[at] in names for names, _ in each.values())]
    draws = {}
    for name, (known, values) in each.items():
        place = {entry: at for at, entry in enumerate(known)}
        draws[name] = values[..., [place[entry] for entry in shared]]
    return shared, draws
