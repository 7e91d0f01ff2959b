"""Coverage of intervals, numbers of roles and intents, simpler models, missing values, and movement."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.figures.looks import BASE, MISSED, OURS, PEER, SECOND, THIRD, Records, legend_below, titled

__all__ = ["calibration", "coverage", "missing_values", "movement", "numbers_selected", "simpler_models"]


def coverage(figure: Any, records: Records) -> None:
    """Share of true parameters inside 90 % intervals, over data sets from the prior, with two standard errors."""
    cases = {
        "2 roles": "role HMM, 2 roles",
        "3 roles": "role HMM, 3 roles",
        "P(stay)": "probability of staying",
    }
    looks = {
        "q": ("q of CAVI", PEER, "s", -0.2),
        "linear response": ("linear response", THIRD, "D", 0.0),
        "natural gradient": ("natural gradients, hyper-parameters known", SECOND, "^", -0.2),
        "nested": ("natural gradients, hyper-parameters unknown", BASE, "v", 0.0),
        "NUTS": ("NUTS (refresh_posterior for roles and intents)", OURS, "o", 0.2),
    }
    lines = [(cases[row["case"]], row) for row in records["interval_coverage"]]
    lines += [("differences of rewards", row) for row in records["gp_irl_calibration"]]
    names = list(dict.fromkeys(name for name, _ in lines))
    axes = figure.subplots()
    axes.axvline(90, color="black", linewidth=0.8, linestyle=":")
    for method, (label, colour, marker, offset) in looks.items():
        found = [(names.index(name) + offset, row) for name, row in lines if row["method"] == method]
        axes.errorbar(
            [100 * row["coverage90"] for _, row in found],
            [place for place, _ in found],
            xerr=[200 * row["standard_error"] for _, row in found],
            fmt=marker,
            color=colour,
            label=label,
        )
    axes.set(xlabel="true parameters inside, % (two standard errors)", xlim=(40, 100))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    titled(axes, f"coverage of 90 % credible intervals, {lines[0][1]['data_sets']} data sets each")
    legend_below(figure, axes, 2)


def calibration(figure: Any, records: Records) -> None:
    """Shares of true values inside 50 and 90 % intervals by model and algorithm, of the latter two standard errors."""
    rows = records["calibration_all"]
    places = list(range(len(rows)))
    axes = figure.subplots()
    for level, name, colour, marker in ((50, "coverage50", PEER, "s"), (90, "coverage90", OURS, "o")):
        axes.axvline(level, color="black", linewidth=0.8, linestyle=":")
        error = [200 * row["error90"] for row in rows] if level == 90 else None
        shares = [100 * row[name] for row in rows]
        axes.errorbar(shares, places, xerr=error, fmt=marker, color=colour, label=f"{level} % intervals")
    axes.set(xlabel="true values inside, %", xlim=(15, 100))
    axes.set_yticks(places, [f"{row['model']}, {row['algorithm'].replace('_', ' ')}" for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    titled(axes, f"calibration over {rows[0]['data_sets']} data sets from the prior each")
    legend_below(figure, axes, 2)


def numbers_selected(figure: Any, records: Records) -> None:
    """How often the number of roles is right, evidence and held-out scores of numbers of intents."""
    figure.get_layout_engine().set(wspace=0.06)
    roles, intents, scores = figure.subplots(1, 3, width_ratios=[1.2, 1, 1])
    selections = [row for row in records["role_number"] if row["kind"] == "selection"]
    roles.barh(range(len(selections)), [row["right"] for row in selections], color=OURS)
    names = [
        row["by"].replace("fresh", "score on fresh").replace("linear response", "lin. resp.")
        for row in selections
    ]
    roles.set_yticks(range(len(selections)), names, fontsize=8)
    roles.invert_yaxis()
    roles.set(xlabel=f"data sets with the right number, of {selections[0]['data_sets']}")
    titled(roles, "3 roles, number selected by")
    looks = {
        "stickiness 0": ("no stickiness", MISSED, "v"),
        "stickiness 20": ("stickiness 20", THIRD, "s"),
        "learned": ("learned stickiness", OURS, "o"),
    }
    for version, (label, colour, marker) in looks.items():
        found = [
            row for row in records["intent_number"] if row["kind"] == "fit" and row["version"] == version
        ]
        gain = [row["elbo"] - found[0]["elbo"] for row in found]
        intents.plot([row["truncation"] for row in found], gain, marker=marker, color=colour, label=label)
    intents.axhline(0, color="black", linewidth=0.8, linestyle=":")
    intents.set(xlabel="at most so many intents", ylabel="ELBO minus that of one, nats", xticks=[1, 2, 5])
    titled(intents, "gridworld with 2 intents")
    intents.legend(fontsize=8, loc="center right")
    seeds = {
        "agent_markov_selection": ("seeds 0-7", OURS, "o"),
        "agent_markov_selection_seed100": ("seeds 100-107", PEER, "s"),
    }
    for name, (label, colour, marker) in seeds.items():
        found = [row for row in records[name] if row["kind"] == "fit"]
        held = [row["heldout_log_likelihood_per_step"] for row in found]
        scores.plot([row["truncation"] for row in found], held, marker=marker, color=colour, label=label)
    scores.set(
        xlabel="at most so many intents", ylabel="held-out score, nats per step", xticks=[1, 2, 3, 4, 6, 10]
    )
    titled(scores, "agents with 3 intents")
    scores.legend(fontsize=8, loc="lower right")


def simpler_models(figure: Any, records: Records) -> None:
    """Held-out scores of intents and of simpler models, a panel per domain."""
    rows = [row for row in records["intent_peers"] if "heldout" in row]
    titles = {
        "labyrinth": "mice in a labyrinth",
        "gridworld5": "gridworld, 2 intents",
        "line world": "Line World",
    }
    panels = figure.subplots(1, len(titles), sharey=True)
    for axes, (domain, title) in zip(panels, titles.items(), strict=True):
        found = [row for row in rows if row["domain"] == domain]
        for place, row in enumerate(found):
            look = {"fmt": "o", "color": OURS} if "intents" in row["model"] else {"fmt": "s", "color": PEER}
            axes.errorbar(row["heldout"], place, xerr=2 * row.get("se", 0.0), **look)
        best = max(row["heldout"] for row in found if "intents" in row["model"])
        axes.axvline(best, color=OURS, linewidth=0.8, linestyle=":")
        axes.set(xlabel="held-out score, nats per step", ylim=(len(found) - 0.5, -0.5))
        axes.margins(x=0.12)
        axes.set_yticks(range(len(found)), [row["model"] for row in found])
        titled(axes, title)
    panels[0].errorbar([], [], fmt="o", color=OURS, label="agent Markov model")
    note = "simpler model; two standard errors of the difference from the best number of intents"
    panels[0].errorbar([], [], xerr=[], fmt="s", color=PEER, label=note)
    legend_below(figure, panels[0], 2)


def missing_values(figure: Any, records: Records) -> None:
    """What a fifth of the values missing costs, with gaps summed out, frames dropped, and without gaps."""
    looks = {
        "whole": ("no value missing", BASE),
        "gaps": ("a fifth missing, summed out", OURS),
        "dropped": ("frames dropped", PEER),
    }
    rows = {row["case"]: row for row in records["missing_values"]}
    sizes = list(dict.fromkeys(name.split(",")[0] for name, row in rows.items() if "heldout" in row))
    error, score, cost = figure.subplots(1, 3)
    for number, (way, (label, colour)) in enumerate(looks.items()):
        places = np.arange(len(sizes)) + 0.27 * (number - 1)
        found = [rows[f"{size}, {way}"] for size in sizes]
        error.bar(places, [row["error"] for row in found], width=0.25, color=colour, label=label)
        lost = [
            row["heldout"] - rows[f"{size}, whole"]["heldout"] for row, size in zip(found, sizes, strict=True)
        ]
        score.bar(places, lost, width=0.25, color=colour)
    titles = {
        error: ("error of role means", "standard deviations"),
        score: ("held-out score, relative to no gaps", "nats per frame"),
    }
    for axes, (title, unit) in titles.items():
        axes.set_xticks(range(len(sizes)), sizes)
        axes.set_ylabel(unit)
        axes.set_title(title, fontsize="medium")
    score.axhline(0, color="black", linewidth=0.8)
    timed = [row for row in records["missing_values"] if "cost" in row]
    cost.bar(range(len(timed)), [row["cost"] for row in timed], width=0.5, color=OURS)
    cost.axhline(timed[0]["target"], color="black", linewidth=0.8, linestyle="--")
    cost.text(-0.25, timed[0]["target"], "target: at most", va="bottom", fontsize=8)
    labels = [f"{row['case'].split(', ')[1]},\n{row['patterns']} patterns" for row in timed]
    cost.set_xticks(range(len(timed)), labels, fontsize=8)
    cost.set_ylabel("with gaps / without")
    cost.set_title("time of an iteration", fontsize="medium")
    legend_below(figure, error, 3)


def movement(figure: Any, records: Records) -> None:
    """Parameters of steps and turns divided by the truth: 99 % intervals, and maximum likelihood written apart."""
    rows = [row for row in records["step_and_turn"] if "truth" in row]
    axes, places = figure.subplots(), range(len(rows))
    mean, low, high, peer = (
        np.array([row[name] / row["truth"] for row in rows])
        for name in ("posterior_mean", "lower_99", "upper_99", "maximum_likelihood")
    )
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":", label="truth")
    axes.errorbar(mean, places, xerr=[mean - low, high - mean], fmt="o", color=OURS, label="ethogram, 99 %")
    axes.plot(peer, places, "s", color=PEER, markersize=9, fillstyle="none", label="maximum likelihood")
    names = {"step_mean": "mean step", "step_shape": "shape of steps", "turn_concentration": "concentration"}
    labels = [row["case"].split(", ") for row in rows]
    axes.set_yticks(places, [f"{names[name]}, {mode}" for name, mode in labels])
    axes.invert_yaxis()
    axes.set_xlabel("estimate / truth")
    titled(axes, "steps and turns of three modes, 20 tracks of 200 steps")
    legend_below(figure, axes, 3)
