"""What a fit has found, in sentences and tables."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.data import Trajectories
from ethogram.models.data.parts import is_large
from ethogram.models.printing import few_names

__all__ = ["Findings", "of_answer", "of_choices", "of_rewards", "of_states"]

PRICE = re.compile(r"price|cost|fare|toll|fee\b", re.IGNORECASE)
LEAST_SHARE = 0.005
"""States that hold less of the time are counted, not named."""
MOST_REWARDED = 10
MOST_LEVELS = 20
"""Agents or groups of a table."""


class Findings(NamedTuple):
    """Sentences, and tables by title."""

    sentences: list[str]
    tables: dict[str, Any]


def of_states(fit: Any) -> Findings:
    """Shares of the time and mean bouts, tables of both, of transitions, and of shares by group or agent."""
    if not fit.state_names:
        return Findings([], {})
    # Paths of these are not sampled, or would take many times the memory of the data.
    large = isinstance(fit.data, Trajectories) and is_large(fit.data)
    if getattr(fit.model, "exclusive", None) is not None or large:
        frames = fit.states().frames
        shares = zip(fit.state_names, frames / frames.sum(), strict=True)
        each = [f"{name}: {100 * share:.1f} % of the recorded time" for name, share in shares]
        return Findings([f"Along the most probable paths, {', '.join(each)}."], {})
    budget, dwell = fit.time_budget(), fit.dwell_times()
    shown = budget[budget["mean"] >= LEAST_SHARE].sort_values("mean", ascending=False, kind="stable")
    unit = fit.data.metadata.time_unit if fit.data.metadata.frame_rate else None
    kind = "intent" if "intent" in fit.model.label_dims else "state"
    called = {name: f"{kind} {name}" if str(name).isdigit() else str(name) for name in shown.index}
    sentences = [
        f"{called[name]}: {100 * row['mean']:.1f} % of the recorded time (90 % interval {100 * row['lower']:.1f} to "
        f"{100 * row['upper']:.1f} %){_bouts(dwell['mean'][name], unit)}."
        for name, row in shown.iterrows()
    ]
    if len(shown) < len(budget):
        held = f"{kind}s with less than {100 * LEAST_SHARE:g} % of the time each: {len(budget) - len(shown)}."
        sentences.append(held)
    tables = {"Shares of the time": budget, "Durations of bouts": dwell, "Next states": fit.transitions()}
    for field in ("group", "agent"):
        labels = getattr(fit.data, field)
        if labels is not None and 2 <= len(np.unique(labels)) <= MOST_LEVELS:
            tables[f"Shares of the time by {field}"] = fit.time_budget(by=field)
    used = budget.index[budget["mean"] > 0]
    return Findings(sentences, {title: _of_those(used, table) for title, table in tables.items()})


def _of_those(states: Any, table: Any) -> Any:
    """Rows of these states, and of changes between them."""
    levels = [name for name in ("state", "next_state") if name in table.index.names]
    return table[np.all([table.index.get_level_values(level).isin(states) for level in levels], axis=0)]


def _bouts(mean: Any, unit: str | None) -> str:
    """The mean duration of bouts, a timedelta or a number of units or frames; empty where no bout has ended."""
    if mean != mean:
        return ""
    if hasattr(mean, "components"):
        words = str(mean.round("s")).removeprefix("0 days ").replace("1 days", "1 day").replace(" 0", " ")
    else:
        words = f"{mean:.3g} {unit or 'frames'}"
    return f", in bouts of {words} on average"


def of_choices(fit: Any) -> Findings:
    """Signs of the values of features, their marginal effects, and what is paid for them where one is a price."""
    import pandas

    from ethogram.inference.choices import marginal_effects, willingness_to_pay

    if fit.model.kind != "features":
        return Findings([], {})
    data, table = fit.data, fit.summary()
    names = data.metadata.feature_names or [*map(str, range(data.features.shape[-1]))]
    site = "v" if data.subject is None else "v_loc"
    values = {name: table.loc[f"{site}[{name}]"] for name in names if f"{site}[{name}]" in table.index}
    signs = {
        "Options are chosen more often with more": [name for name, row in values.items() if row["lower"] > 0],
        "Options are chosen less often with more": [name for name, row in values.items() if row["upper"] < 0],
        "Undecided, since the 90 % interval includes 0:": [
            name for name, row in values.items() if row["lower"] <= 0 <= row["upper"]
        ],
    }
    sentences = [f"{words} {few_names(which)}." for words, which in signs.items() if which]
    own = {}
    for at, name in enumerate(names):
        table = marginal_effects(fit.model, fit.result.sites, data, at).to_table().drop(columns="median")
        option, changed = table.index.get_level_values(0), table.index.get_level_values(1)
        own[name] = 100 * table[option == changed].droplevel(1)
    effect = pandas.concat(own, names=["feature", "option"])
    tables = {"Percentage points of its share that an option gains by one more unit of a feature": effect}
    mixed = [name.split(":") for name in names if ":" in name and data.metadata.formula is not None]
    plain = [
        name for name in values if not any(name in factors or name == ":".join(factors) for factors in mixed)
    ]
    price, sites, of = next(filter(PRICE.search, plain), None), fit.result.sites, ""
    if price is not None and values[price]["lower"] <= 0 <= values[price]["upper"]:
        sentences.append(f"Willingness to pay is unknown, since {price} is undecided.")
        return Findings(sentences, tables)
    if data.subject is not None and price is not None:
        sites, of, data = {"theta": sites["loc"]}, " at the mean of the subjects", data._replace(subject=None)
    for name in plain if price is not None else ():
        if name != price:
            band = willingness_to_pay(fit.model, sites, data, names.index(name), names.index(price))
            side, money = np.sign(band.median), band.what.removeprefix("willingness to pay, ")
            lower, upper = sorted([side * band.lower, side * band.upper])
            sentences.append(
                f"Willingness to pay for {'more' if side > 0 else 'less'} {name}{of}: {side * band.median:.3g} {money} "
                f"(90 % interval {lower:.3g} to {upper:.3g})."
            )
    return Findings(sentences, tables)


def of_rewards(fit: Any) -> Findings:
    """The states (and actions) of the largest rewards, about the mean reward; then the intents, if there are any."""
    table = fit.summary()
    rows = table[table.index.str.startswith("centred_reward[")]
    if not len(rows):
        rows = table.assign(mean=table["mean"] - table["mean"].mean())
    rows = rows.sort_values("mean", ascending=False, kind="stable").head(MOST_REWARDED)
    rows.index = rows.index.str.partition("[").get_level_values(2).str.removesuffix("]")
    best = rows.iloc[0]
    uncertain = "lower" in rows and best["lower"] < best["upper"]  # not of a point estimate
    interval = f" (90 % interval {best['lower']:.3g} to {best['upper']:.3g})" if uncertain else ""
    of = " and ".join(fit.model.site_layout(fit.data)[0]["reward"]).replace("expert", "subject")
    above = f"{best['mean']:.3g} above the mean reward{interval}"
    sentence = f"The largest reward is that of {of} {rows.index[0]}, {above}."
    columns = [column for column in ("mean", "lower", "upper") if column in rows]
    states = of_states(fit)
    tables = {"The largest rewards, about their mean": rows[columns]} | states.tables
    return Findings([sentence, *states.sentences], tables)


def of_answer(fit: Any) -> Findings:
    """The assignment."""
    found = fit.result
    if found.assignment is None:
        return Findings(["No possible assignment was found."], {})
    states = [f"{name} = {state}" for name, state in found.assignment.items()]
    return Findings([f"The assignment: {few_names(states)}."], {})
