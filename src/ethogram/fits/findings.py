"""What a fit has found, in sentences and tables."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

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
    if getattr(fit.model, "exclusive", None) is not None:  # paths of these are not sampled
        shares = fit.states().to_table()["state"].value_counts(normalize=True, sort=False)
        each = [f"{name}: {100 * share:.1f} % of the recorded time" for name, share in shares.items()]
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
        held = f"{len(budget) - len(shown)} {kind}s hold less than {100 * LEAST_SHARE:g} % of the time each."
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
    bands = {name: marginal_effects(fit.model, fit.result.sites, data, at) for at, name in enumerate(names)}
    slots = data.metadata.action_names or [f"option {slot}" for slot in range(data.legal.shape[1])]
    rows = {
        (name, slot): [100 * np.diagonal(part)[at] for part in (band.mean, band.lower, band.upper)]
        for name, band in bands.items()
        for at, slot in enumerate(slots)
    }
    index = pandas.MultiIndex.from_tuples(list(rows), names=["feature", "option"])
    effect = pandas.DataFrame(list(rows.values()), index, ["mean", "lower", "upper"])
    tables = {"Percentage points of its share that an option gains by one more unit of a feature": effect}
    price = next((name for name in names if PRICE.search(name)), None)
    if price is not None and len(names) > 1 and data.subject is None:
        paid = {
            name: willingness_to_pay(fit.model, fit.result.sites, data, at, names.index(price))
            for at, name in enumerate(names)
            if name != price
        }
        units = dict(zip(names, data.metadata.feature_units or (), strict=False))
        money = units.get(price) or f"units of {price}"
        sentences += [
            f"Willingness to pay for one more {units.get(name) or 'unit'} of {name}: {float(band.median):.3g} {money} "
            f"(90 % interval {float(band.lower):.3g} to {float(band.upper):.3g})."
            for name, band in paid.items()
        ]
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
