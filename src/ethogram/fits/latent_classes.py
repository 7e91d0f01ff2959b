"""What fits of latent classes of choosers answer: classes of subjects, effects on membership, predictions, findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.special import logsumexp

from ethogram.fits.findings import Findings
from ethogram.inference.diagnostics import Finding, Level
from ethogram.inference.draws import flat_draws
from ethogram.models.arguments import require_number
from ethogram.models.printing import few_names
from ethogram.models.quick_jit import quick_jit
from ethogram.plots.choices import class_profiles

__all__ = [
    "class_names", "draw_classes", "effects", "entries", "faults", "findings", "log_densities", "predict", "subjects",
]  # fmt: skip

EMPTY, UNTOLD = 0.01, 0.5
"""Of an empty class: a mean share below the first, or a median ratio of posterior and prior deviations of its values
above the second."""
ALIKE = 1.0
"""Mahalanobis distance of the values of two classes per root of their number, below which these are alike."""


def class_names(fit: Any) -> list[str]:
    """Names (class,): those of `Fit.rename`, else with their numbers."""
    return [fit._names.get(number, f"class {number}") for number in range(fit.model.num_classes)]


def entries(fit: Any, **options: Any) -> tuple[list[str], np.ndarray]:
    """Shares, values by class, and log odds of the classes against the first, by name, and draws of all."""
    sites, classes, data = fit.result.sites, class_names(fit), fit.data
    actions = data.metadata.action_names or [str(slot) for slot in range(data.legal.shape[1])]
    count = sites["v"].shape[-1]
    values = data.metadata.feature_names or [f"v {number}" for number in range(count)]
    named = {"share": [f"share[{each}]" for each in classes]}
    for site, labels in (("v", values), ("action_rewards", [f"constant {name}" for name in actions])):
        if site in sites:
            named[site] = [f"{label}[{each}]" for each in classes for label in labels]
    columns = ("constant", *(fit.model.membership_names or ()))
    named["log_odds"] = [f"membership {column}[{each}]" for each in classes[1:] for column in columns]
    every = {**sites, "log_odds": _log_odds(sites)}
    draws = [np.asarray(every[site], float).reshape(*every[site].shape[:2], -1) for site in named]
    return [name for names in named.values() for name in names], np.concatenate(draws, axis=-1)


def _log_odds(sites: Any) -> np.ndarray:
    """Log odds (..., class - 1, column) of the classes against the first."""
    return sites["membership"][..., 1:, :] - sites["membership"][..., :1, :]


def subjects(fit: Any, probability: float) -> Any:
    """The table of classes that `Fit.subjects` describes."""
    import pandas

    from ethogram.inference.choices.latent_class_fit import class_probabilities

    require_number("probability", probability, above=0, below=1)
    found = fit.model.entries(fit.data)
    draws = np.asarray(class_probabilities(fit.model, _rows(fit), found.batch, found.value), float)
    names, classes = fit.data.metadata.subject_names, class_names(fit)
    index = pandas.Index([*(names or range(draws.shape[1]))], name="subject")
    mean, tail = draws.mean(0), (1 - probability) / 2
    lower, upper = np.quantile(draws, [tail, 1 - tail], axis=0)
    best = mean.argmax(1)
    rows = np.arange(len(best))
    table = pandas.DataFrame(mean, index, classes)
    table.insert(0, "class", pandas.Categorical.from_codes(best, classes))
    return table.assign(lower=lower[rows, best], upper=upper[rows, best])


def effects(fit: Any, probability: float) -> Any:
    """The table of effects on membership that `Fit.effects` describes."""
    import pandas

    require_number("probability", probability, above=0, below=1)
    columns = fit.model.membership_names or ()
    if not columns or fit.model.num_classes < 2:
        raise TypeError(
            "membership depends on nothing: give LatentClasses(base, num_classes, membership='income', "
            "subject_features=people)"
        )
    draws = flat_draws({"log_odds": _log_odds(fit.result.sites)})["log_odds"][..., 1:].astype(float)
    draws = draws.reshape(len(draws), -1)
    tail = (1 - probability) / 2
    lower, upper = np.quantile(draws, [tail, 1 - tail], axis=0)
    mean, places = draws.mean(0), [class_names(fit)[1:], columns]
    table = {"mean": mean, "sd": draws.std(0, ddof=1), "lower": lower, "upper": upper}
    table |= {"odds_ratio": np.exp(mean), "odds_lower": np.exp(lower), "odds_upper": np.exp(upper)}
    index = pandas.MultiIndex.from_product(places, names=["class", "covariate"])
    return pandas.DataFrame({**table, "positive": (draws > 0).mean(0)}, index)


def _rows(fit: Any, most: int | None = None) -> dict[str, np.ndarray]:
    """Draws (draw, ...) of what the likelihood needs, at most so many."""
    draws = flat_draws({name: fit.result.sites[name] for name in fit.model.needed_sites()})
    count = len(draws["theta"])
    rows = np.linspace(0, count - 1, min(count, most or count)).round().astype(int)
    return {name: site[rows] for name, site in draws.items()}


@quick_jit(calls=2**10, static_argnames="scored")
def _predicted(model: Any, draws: Any, own: Any, choice: Any, batch: Any, value: Any, scored: bool) -> Array:
    """Log probabilities (draw, decision) of choices, or mean probabilities (decision, option).

    Classes have their probabilities given the choices of the fit, `own`, for subjects that are in it.
    """
    subjects = len(batch.columns)

    def each(one: Any) -> tuple[Array, Any]:
        before, here = model.likelihood(one, own), model.likelihood(one, batch)
        known = (before.log_joint(choice) - before.log_share)[:subjects]
        known = jnp.concatenate([known, jnp.zeros((subjects - len(known), known.shape[1]), known.dtype)])
        return jax.nn.log_softmax(here.log_share + known, axis=-1)[batch.subject], here.offered

    if scored:

        def score(one: Any) -> Array:
            log_class, offered = each(one)
            return jax.scipy.special.logsumexp(log_class + offered.log_prob(value).T, axis=-1)

        return jax.lax.map(score, draws)

    def add(total: Array, one: Any) -> tuple[Array, None]:
        log_class, offered = each(one)
        return total + jnp.einsum("tc,cto->to", jnp.exp(log_class), offered.probs), None

    start = jnp.zeros(batch.pooled.data.legal.shape, draws["theta"].dtype)
    return jax.lax.scan(add, start, draws)[0] / len(draws["theta"])


def _over_draws(fit: Any, data: Any, scored: bool, most: int | None = None) -> np.ndarray:
    size = fit.result.sites["theta"].shape[-1]
    problem = fit.model.check(data, condition=False)
    if problem.pooled.design.shape[-1] != size:
        raise ValueError(
            f"data need {problem.pooled.design.shape[-1]} parameters, and the fit has {size}: give decisions with the "
            "features and slots of the fit"
        )
    own, new = fit.model.entries(fit.data), fit.model.entries(problem)
    value = np.maximum(new.value, 0)
    return np.asarray(_predicted(fit.model, _rows(fit, most), own.batch, own.value, new.batch, value, scored))


def predict(fit: Any, data: Any) -> Float[np.ndarray, "decision option"]:
    """Probabilities of the options, of subjects with the classes that their choices in the fit say."""
    return _over_draws(fit, data, scored=False)


def log_densities(fit: Any, data: Any, num_draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Log densities (1, decision) of choices times their weights, and these, as those of other models of choices."""
    from ethogram.models.choices.decisions import weights_of

    counts = np.asarray(weights_of(data, known=True), float)
    values = _over_draws(fit, data, scored=True, most=num_draws).astype(float)
    return (counts * (logsumexp(values, axis=0) - np.log(len(values))))[None], counts


def draw_classes(fit: Any, figure: Any) -> None:
    """Shares of the classes beside the values of each, with 90 % intervals."""
    names, draws = fit._entries()
    flat, count = draws.reshape(-1, len(names)), fit.model.num_classes
    values = [name for name in names if not name.startswith(("share[", "membership "))]
    at = np.reshape([names.index(name) for name in values], (count, -1))
    labels = [name.partition("[")[0] for name in values[: at.shape[1]]]
    class_profiles(figure, flat[:, :count], flat[:, at], class_names(fit), labels)


def faults(fit: Any, thorough: bool) -> Iterator[Finding]:
    """Classes that hold hardly a subject, and two classes whose values are alike."""
    names, share = class_names(fit), flat_draws({"share": fit.result.sites["share"]})["share"].mean(0)
    theta = flat_draws({"theta": fit.result.sites["theta"]})["theta"].astype(float)
    counts, *each = fit.model.base.variances(fit.model.base.kappa, fit.data)
    prior = np.repeat(np.sqrt(np.asarray(each, float)), counts)
    is_empty = (share < EMPTY) | (np.median(theta.std(0) / prior, axis=-1) > UNTOLD)
    empty = [f"{names[at]} ({100 * share[at]:.2g} %)" for at in np.flatnonzero(is_empty)]
    advice = f"Fit {fit.model.num_classes - 1} classes, and compare both with ethogram.compare on held-out decisions."
    if empty:
        said = f"Hardly a subject is of {few_names(empty)}: what is said of its values is their prior."
        yield Finding("empty class", Level.CAUTION, said, advice, float(len(empty)))
    for one in range(len(names)):
        for other in range(one):
            apart = theta[:, one] - theta[:, other]
            spread = np.atleast_2d(np.cov(apart.T))
            distance = float(apart.mean(0) @ np.linalg.pinv(spread) @ apart.mean(0)) ** 0.5
            if not (is_empty[one] or is_empty[other]) and distance < ALIKE * apart.shape[1] ** 0.5:
                said = (
                    f"The values of {names[other]} and {names[one]} do not differ beyond their uncertainty."
                )
                yield Finding("alike classes", Level.CAUTION, said, advice, 1 / (1 + distance))


def findings(fit: Any) -> Findings:
    """Shares of the classes, and what each chooses more or less often, in words."""
    table, sentences = fit.summary(), []
    for name in class_names(fit):
        share = table.loc[f"share[{name}]"]
        rows = table[
            table.index.str.endswith(f"[{name}]") & ~table.index.str.startswith(("share[", "membership "))
        ]
        signs = {"more": rows[rows["lower"] > 0], "less": rows[rows["upper"] < 0]}
        chosen = [
            f"options with more {few_names([label.partition('[')[0] for label in which.index])} {often} often"
            for often, which in signs.items()
            if len(which)
        ]
        sentences.append(
            f"{name}: {100 * share['mean']:.0f} % of the subjects (90 % interval {100 * share['lower']:.0f} to "
            f"{100 * share['upper']:.0f} %), who choose {' and '.join(chosen) or 'as if at random'}."
        )
    tables = {"Effects on membership": fit.effects()} if fit.model.membership_names else {}
    return Findings(sentences, tables)
