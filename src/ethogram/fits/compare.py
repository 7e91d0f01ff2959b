"""Fits beside each other: algorithms on one model, models on one data set, methods on one query."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ethogram.fits.disagreement import Moments, disagreements, moments
from ethogram.fits.figures import draw_comparison
from ethogram.fits.fit_object import Fit
from ethogram.fits.new_data import Score, mean_and_error
from ethogram.inference import storage
from ethogram.inference.diagnostics import Diagnosis
from ethogram.inference.draws import flat_draws
from ethogram.inference.sampled_posterior import SampledPosterior
from ethogram.models.arguments import require_flag
from ethogram.models.printing import printed_as

__all__ = ["Comparison", "compare", "score_table"]

MOST_ROWS = 10
"""Rows of a table that are printed."""
TRAINING = (
    "The scores are on the data of the fits and favour large models: give data= that no fit has seen, or, of fits that "
    "are all samples, call az.compare of their to_arviz(log_likelihood='sequence')."
)


@printed_as(str)
class Comparison(NamedTuple):
    """What a comparison found; as text, its statement and the first ten rows of its tables.

    Attributes
    ----------
    kind : ``"algorithms"`` on one model, ``"models"`` on one data set, or ``"answers"`` to one query.
    scores : table, one row per fit, the best first: log predictive densities per step or decision with the standard
        error of the difference to the best, smallest effective sample size per second, seconds, and the worst finding
        about each. Of answers, log probabilities and bounds.
    estimates : table of algorithms, one row per estimate: mean, lower and upper end of the 90 % interval by fit; None
        of others.
    disagreements : table of algorithms, one row per estimate and pair of fits that differ beyond Monte Carlo error, the
        largest first; None of others.
    statement : in words.
    entries : names and draws by fit behind the tables, for the figure.
    fits : that were compared, by name.
    """

    kind: str
    scores: Any
    estimates: Any
    disagreements: Any
    statement: str
    entries: tuple[list[str], dict[str, np.ndarray]] | None
    fits: Mapping[str, Any]

    def __str__(self) -> str:
        tables = [self.scores, self.disagreements]
        shown = [
            table.head(MOST_ROWS).round(4).to_string() for table in tables if table is not None and len(table)
        ]
        return "\n\n".join([self.statement, *shown])

    def to_table(self) -> Any:
        """The table of a paper, a pandas DataFrame of text: a column per fit, estimates with standard deviations below.

        Rows are (estimate, part), of coefficients by the names of their features, of the population where there are
        subjects; then, of choices, their number and the log likelihood as
        :func:`~ethogram.choices.summarize_choices` has it; and the score. ``to_html()`` writes it for a page, and
        ``to_latex()`` for a paper, which needs the package jinja2 (``pip install ethogram[latex]``).
        """
        return _paper_table(self)

    def plot(self, figure: Any = None) -> Any:
        """A figure: intervals of algorithms, the largest disagreements first, scores of models, incumbents of answers.

        Parameters
        ----------
        figure : empty matplotlib Figure to draw into; a new one of pyplot, which notebooks show, where None.
        """
        return draw_comparison(self, figure)


def compare(fits: Mapping[str, Any], data: Any = None, *, findings: bool = False) -> Comparison:
    """Compare fits by name.

    Of algorithms on one model, labels are aligned to the first fit, and the estimates stand beside each other. Of
    models on one data set, log predictive densities of `data` rank them; models of the same choices may have different
    features, as formulas give them. Of methods on one query, the assignments do.
    The statement has the worst finding of each fit that is more than a note, such as a search that has not converged.

    Parameters
    ----------
    fits : of :func:`ethogram.fit`, at least two, by name.
    data : that no fit has seen, for the scores; the data of the fits where None. Of choices that were read with
        several formulas, the same decisions by name of the fit.
    findings : whether to diagnose every fit, in place of its search alone where it was not diagnosed before.

    Examples
    --------
    ``print(compare({"cavi": fit(key, model, data), "nuts": fit(key, model, data, "nuts")}, new_data))``
    """
    if not isinstance(fits, Mapping):
        raise TypeError(f"fits is {type(fits).__name__}: give a mapping from names to fits")
    if not all(isinstance(each, Fit) for each in fits.values()):
        raise TypeError("fits must be fits, as ethogram.fit returns")
    if len(fits) < 2:
        raise ValueError(f"fits has {len(fits)} entries: give at least two")
    require_flag("findings", findings)
    if len({storage.fingerprint(_without_names(each.data)) for each in fits.values()}) > 1:
        raise ValueError("fits are of different data: fit all of them to the same")
    one_model = len({storage.fingerprint([each.model, _features(each.data)]) for each in fits.values()}) == 1
    if isinstance(data, Mapping):
        if (
            set(data) != set(fits)
            or len({storage.fingerprint(_without_names(each)) for each in data.values()}) > 1
        ):
            raise ValueError(
                f"data has {list(data)}: give the same decisions for each of the fits {list(fits)}"
            )
    if next(iter(fits.values())).data is None:
        if not one_model:
            raise ValueError("fits answer different queries: compare answers to one")
        return _answers(fits)
    several = sum(each.has_draws for each in fits.values()) > 1  # the linear baseline has a score only
    found = {name: each.diagnose() if findings else each._known_findings() for name, each in fits.items()}
    compared = _algorithms(fits, data) if one_model and several else _models(fits, data)
    compared.scores["worst finding"] = [_worst(found[name]) for name in compared.scores.index]
    faults = [f"{name} has a {each[0]}" for name, each in found.items() if each.first_lines()]
    return compared._replace(statement=" ".join([compared.statement, *faults]))


def _worst(found: Diagnosis) -> str:
    """The level and kind of the worst finding; empty where there is none."""
    return f"{found[0].level.name.lower()}, {found[0].kind}" if found else ""


def _features(data: Any) -> Any:
    """Features of decisions, which formulas give; None of other data."""
    return np.asarray(data.features) if hasattr(data, "legal") else None


def _without_names(data: Any) -> Any:
    """The arrays of data without names, which do not change a fit, and of decisions without features."""
    data = data._replace(features=data.legal) if hasattr(data, "legal") else data
    return (
        [np.asarray(each) for each in data if hasattr(each, "shape")] if hasattr(data, "metadata") else data
    )


def _answers(fits: Mapping[str, Fit]) -> Comparison:
    import pandas

    fields = ("log_probability", "kind", "lower_bound", "upper_bound", "proved_optimal", "seconds")
    rows = {name: {field: getattr(each.result, field) for field in fields} for name, each in fits.items()}
    table = pandas.DataFrame.from_dict(rows, "index", columns=fields)
    table = table.sort_values("log_probability", ascending=False, kind="stable")
    best, bound = table["log_probability"].iloc[0], f"{table['upper_bound'].min():.4f}"
    if fits[table.index[0]].result.assignment is None:
        words = f"No method found an assignment: the log probability is at most {bound}."
    else:
        equal = table.index[np.isclose(table["log_probability"], best, rtol=1e-5, atol=1e-9)]
        proofs = table.index[table["proved_optimal"].astype(bool)]
        proof = (
            f"proved optimal by {proofs[0]}" if len(proofs) else f"not proved: at most {bound} is possible"
        )
        words = f"The best log probability is {best:.4f}, found by {', '.join(equal)}; {proof}."
    return Comparison("answers", table, None, None, words, None, fits)


def _scores(fits: Mapping[str, Fit], data: Any) -> Any:
    """Table of scores, the best first, with the methods and seconds of the fits."""
    given = data if isinstance(data, Mapping) else dict.fromkeys(fits, data)
    table = score_table({name: each.score(given[name]) for name, each in fits.items()})
    table["method"] = [fits[name].method for name in table.index]
    table["seconds"] = [fits[name].seconds for name in table.index]
    return table


def score_table(scores: Mapping[str, Score]) -> Any:
    """Table of scores on the same data, the best first, with standard errors of the differences to it."""
    import pandas

    order = sorted(scores, key=lambda name: -scores[name].mean)
    best, rows = scores[order[0]], []
    for name in order:
        found = scores[name]
        if found.entries.shape != best.entries.shape:
            raise ValueError(
                f"{name} scores {len(found.entries)} entries of the data and {order[0]} {len(best.entries)}: fits "
                "compare where they score the same"
            )
        with np.errstate(invalid="ignore"):
            _, error = mean_and_error(found.entries - best.entries, best.counts)
        rows.append((found.mean, found.mean - best.mean, error))
    columns = [f"log density per {best.unit}", "difference", "se of difference"]
    return pandas.DataFrame(rows, index=order, columns=columns)


def _paper_table(compared: Comparison) -> Any:
    """See `Comparison.to_table`."""
    import pandas

    from ethogram.inference.choices import summarize_choices

    if compared.kind == "answers":
        raise TypeError("answers have no coefficients: read scores")
    columns: dict[str, dict[tuple[str, str], str]] = {}
    held_out = "in sample" if TRAINING in compared.statement else "held out"
    for name, fit in compared.fits.items():
        cells, of = columns.setdefault(name, {}), "v"
        if getattr(fit.data, "subject", None) is not None and hasattr(fit.data, "legal"):
            of = "v_loc"  # of the population
        for label, row in fit.summary().iterrows() if fit.has_draws else ():
            if of == "v_loc" and label.startswith(("v[", "action_rewards[")):
                continue
            decimals = max(0, 1 - int(np.floor(np.log10(row["sd"])))) if row["sd"] > 0 else 3
            short = label.removeprefix(f"{of}[").removesuffix("]") if label.startswith(f"{of}[") else label
            cells[short, "mean"] = f"{row['mean']:.{decimals}f}"
            cells[short, "sd"] = f"({row['sd']:.{decimals}f})"
    rows = list(dict.fromkeys(row for cells in columns.values() for row in cells))
    score = compared.scores.columns[0]
    for name, fit in compared.fits.items():
        if hasattr(fit.data, "legal") and fit.has_draws and hasattr(fit.model, "kind"):
            found = summarize_choices(fit.model, fit.result.sites, fit.data)
            place = "" if found.evaluated_at == "maximum" else f" ({found.evaluated_at})"
            columns[name]["decisions", ""] = f"{found.num_decisions:g}"
            columns[name]["log likelihood", ""] = f"{found.log_likelihood:.2f}{place}"
        columns[name][score, held_out] = f"{compared.scores[score][name]:.4f}"
        rows += [row for row in columns[name] if row not in rows]
    index = pandas.MultiIndex.from_tuples(rows, names=["estimate", "part"])
    return pandas.DataFrame(
        {name: [cells.get(row, "") for row in rows] for name, cells in columns.items()}, index
    )


def _models(fits: Mapping[str, Fit], data: Any) -> Comparison:
    table = _scores(fits, data)
    best, *others = table.index
    close = [name for name in others if -table["difference"][name] <= table["se of difference"][name]]
    notes = [f"{best} predicts best." + (f" Within one standard error: {', '.join(close)}." if close else "")]
    notes += [TRAINING] if data is None else []
    return Comparison("models", table, None, None, " ".join(notes), None, fits)


def _algorithms(fits: Mapping[str, Fit], data: Any) -> Comparison:
    import pandas

    drawn = {name: each for name, each in fits.items() if each.has_draws}
    names, draws = _common_entries(drawn)
    found = {
        name: moments(draws[name], isinstance(each.result, SampledPosterior)) for name, each in drawn.items()
    }
    scores = _scores(fits, data)
    scores["ess per second"] = pandas.Series(
        {
            name: each.ess[each.sd > 0].min() / fits[name].seconds
            for name, each in found.items()
            if not each.single
        }
    )
    columns: dict[Any, np.ndarray] = {}
    for name, values in draws.items():
        lower, upper = np.quantile(values.reshape(-1, len(names)), [0.05, 0.95], axis=0)
        columns |= {(name, "mean"): found[name].mean, (name, "lower"): lower, (name, "upper"): upper}
    pairs = [_apart(*pair, names, found) for pair in itertools.combinations(drawn, 2)]
    table = pandas.concat([rows for rows, _ in pairs], ignore_index=True)
    with np.errstate(divide="ignore"):  # a point has no spread
        size = table["shift in sd"].abs() + np.log(table["ratio of sd"]).abs().clip(upper=1.0)  # heavy tails
    table = table.iloc[np.argsort(-size.to_numpy(), kind="stable")].reset_index(drop=True)
    notes = [words for _, words in pairs]
    notes += [
        f"{name} is a point estimate; only its location is compared." for name in drawn if found[name].single
    ]
    notes += [TRAINING] if data is None else []
    estimates = pandas.DataFrame(columns, index=names)
    return Comparison("algorithms", scores, estimates, table, " ".join(notes), (names, draws), fits)


def _apart(one: str, other: str, names: list[str], found: Mapping[str, Moments]) -> tuple[Any, str]:
    """Table of the estimates in which two fits differ beyond Monte Carlo error, and a sentence about it."""
    import pandas

    shift, ratio, apart = disagreements(found[one], found[other])
    at = np.flatnonzero(apart)
    rows = {
        "estimate": np.array(names, object)[at],
        "fits": f"{one}, {other}",
        "mean of the first": found[one].mean[at],
        "mean of the second": found[other].mean[at],
        "shift in sd": shift[at],
        "ratio of sd": ratio[at],
    }
    if not len(at):
        words = f"{one} and {other} agree within Monte Carlo error in all {len(names)} estimates."
        return pandas.DataFrame(rows), words
    most = at[np.argmax(np.abs(shift[at]))]
    spread = (found[one].sd > 0) & (found[other].sd > 0)
    median = f"; median ratio of standard deviations {np.median(ratio[spread]):.2f}" if spread.any() else ""
    return pandas.DataFrame(rows), (
        f"{one} and {other} disagree beyond Monte Carlo error in {len(at)} of {len(names)} estimates, most in "
        f"{names[most]}: means {found[one].mean[most]:.4g} and {found[other].mean[most]:.4g}, {abs(shift[most]):.2f} "
        f"standard deviations apart{median}."
    )


def _common_entries(fits: Mapping[str, Fit]) -> tuple[list[str], dict[str, np.ndarray]]:
    """Names that all fits have, and draws (chain, draw, entry) by fit, labels aligned to the first."""
    first = next(iter(fits.values()))
    options: dict[str, Any] = {}
    if first.model.switches_labels():
        sites = flat_draws(first.draws().sites)
        means = {name: site.mean(0) for name, site in sites.items()}
        exist = all(np.isfinite(mean).all() for mean in means.values())
        reference = means if exist else {name: site[0] for name, site in sites.items()}
        options = {"align": reference, "progress_bar": False}
    entries = {name: fit._entries(**options) for name, fit in fits.items()}
    names, values = entries[next(iter(entries))]
    _, once = np.unique(
        values.reshape(-1, len(names)), axis=1, return_index=True
    )  # covariances are symmetric
    shared = [names[at] for at in np.sort(once) if all(names[at] in known for known, _ in entries.values())]
    return shared, {
        name: values[..., [known.index(entry) for entry in shared]]
        for name, (known, values) in entries.items()
    }
