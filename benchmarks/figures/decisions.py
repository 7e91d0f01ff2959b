"""Imitation, choices, rewards, marginal MAP and planning beside other methods and programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.figures.looks import BASE, MISSED, OURS, PEER, SECOND, THIRD, Records, legend_below, titled

__all__ = [
    "choice_errors",
    "football_futures",
    "imitation_rounds",
    "marginal_map",
    "planning_returns",
    "value_differences",
]


def imitation_rounds(figure: Any, records: Records) -> None:
    """Failures and steps of coordinated imitation by round on the 20 x 20 board, beside the paper's curves."""
    looks = {
        "learned": ("learned roles", OURS, "o"),
        "true": ("true roles", SECOND, "D"),
        "unstructured": ("no structure", PEER, "s"),
    }
    measures = {
        "failure": ("fresh games that failed", "%", 100),
        "steps": ("length of fresh games", "mean steps", 1),
    }
    panels = figure.subplots(1, 2)
    for axes, (measure, (title, unit, scale)) in zip(panels, measures.items(), strict=True):
        for arm, (name, colour, marker) in looks.items():
            found = [
                row for row in records["imitation"] if row["case"] == "20 x 20" and row.get("arm") == arm
            ]
            rounds = [row["round"] for row in found]
            low, high = ([scale * row[f"{measure}_{side}"] for row in found] for side in ("low", "high"))
            axes.fill_between(rounds, np.maximum(low, 0), high, color=colour, alpha=0.2, linewidth=0)
            axes.plot(
                rounds, [scale * row[measure] for row in found], marker=marker, color=colour, label=name
            )
            if f"paper_{measure}" in found[0]:
                paper = [scale * row[f"paper_{measure}"] for row in found]
                axes.plot(rounds, paper, "--", color=colour, label=f"{name}, paper")
        axes.set(xlabel="round", ylabel=unit, xticks=rounds)
        axes.set_ylim(0, None)
        titled(axes, f"20 x 20 board: {title}")
    legend_below(figure, panels[0], 5, "mean and 95 % interval over three seeds")


def football_futures(figure: Any, records: Records) -> None:
    """Distance of rolled-out defenders from the truth relative to constant velocity, a panel per policy."""
    rows = records["imitation_football"]
    policies = list(dict.fromkeys(row["policy"] for row in rows if "fde_learned" in row))
    straight = next(row for row in rows if row["policy"] == "constant velocity")
    looks = {"learned": ("learned roles", OURS, "o"), "shuffled": ("shuffled indices", PEER, "s")}
    panels = figure.subplots(1, len(policies), sharey=True)
    for axes, policy in zip(panels, policies, strict=True):
        found = [row for row in rows if row["policy"] == policy and "fde_learned" in row]
        for name, (label, colour, marker) in looks.items():
            ratio = [row[f"fde_{name}"] / straight[f"fde_{round(5 * row['horizon_s'])}"] for row in found]
            axes.plot([row["horizon_s"] for row in found], ratio, marker=marker, color=colour, label=label)
        axes.axhline(1, color="black", linestyle=":", linewidth=0.8, label="constant velocity")
        axes.set(xlabel="horizon (s)", xscale="log")
        axes.set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
        axes.minorticks_off()
        titled(axes, policy)
    panels[0].set_ylabel("mean distance / constant velocity's")
    legend_below(figure, panels[0], 3)


def choice_errors(figure: Any, records: Records) -> None:
    """Held-out choices of Tetris players that are predicted wrongly, by number of decisions, beside the oracle's."""
    players = {
        "-3,-15,-1": "a careful player",
        "0,5,0": "one who likes holes",
        "-20,0,1": "one who builds low",
    }
    rows = [row for row in records["tetris"] if row["kind"] == "learned" and row["sampler"] == "NUTS"]
    panels = figure.subplots(1, len(players), sharey=True)
    for axes, (player, name) in zip(panels, players.items(), strict=True):
        found = [row for row in rows if row["player"] == player and row["rows"] == 20]
        counts = sorted({row["observations"] for row in found})
        error = [
            [100 * row["action_error"] for row in found if row["observations"] == count] for count in counts
        ]
        axes.plot(np.repeat(counts, len(error[0])), np.ravel(error), "o", color=OURS, alpha=0.4, markersize=4)
        axes.plot(counts, np.mean(error, axis=1), color=OURS, label="ethogram, mean of three seeds (dots)")
        oracle = 100 * np.mean([row["noise_floor"] for row in found])
        axes.axhline(oracle, color="black", linestyle=":", label="oracle: the true values")
        axes.set(xlabel="decisions seen", xscale="log")
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        titled(axes, name)
    panels[0].set_ylim(0, 24)
    panels[0].set_ylabel("choices predicted wrongly, %")
    legend_below(figure, panels[0], 2)


def value_differences(figure: Any, records: Records) -> None:
    """Expected value differences on objectworlds, where trained and after transfer."""
    looks = {
        "toolkit, MaxEnt": ("maximum entropy, IRL toolkit", BASE, "s"),
        "toolkit, GPIRL": ("GPIRL, IRL toolkit", PEER, "s"),
        "levine": ("Levine's objective, here", THIRD, "D"),
        "natural gradient, Levine's relevance": ("natural gradients, hyper-parameters fixed", SECOND, "^"),
        "nested": ("default, hyper-parameters integrated over", OURS, "o"),
    }
    rows = [row for row in records["gp_irl"] if row["method"] in looks and row["world"] == "stored"]
    places = list(dict.fromkeys((row["seed"], row["trajectories"]) for row in rows))
    names = [f"objectworld {seed}, {demonstrations} demonstrations" for seed, demonstrations in places]
    panels = figure.subplots(1, 2, sharey=True)
    titles = {"evd_standard": "where trained", "transfer_standard": "another world, same reward of features"}
    for axes, (measure, title) in zip(panels, titles.items(), strict=True):
        for number, (method, (label, colour, marker)) in enumerate(looks.items()):
            found = [row for row in rows if row["method"] == method]
            heights = [
                places.index((row["seed"], row["trajectories"])) + 0.14 * (number - 2) for row in found
            ]
            axes.plot([row[measure] for row in found], heights, marker, color=colour, label=label)
        axes.set(
            xscale="log", xlabel="expected value difference (lower is better)", ylim=(len(names) - 0.5, -0.5)
        )
        axes.set_yticks(range(len(names)), names)
        titled(axes, title)
    panels[0].set_xticks([0.2, 0.5, 1, 2, 5], ["0.2", "0.5", "1", "2", "5"])
    panels[1].set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    for axes in panels:
        axes.minorticks_off()
    legend_below(figure, panels[0], 3)


def marginal_map(figure: Any, records: Records) -> None:
    """Queries of marginal MAP answered as well as by anyone, over time; and the gaps that bounds leave."""
    looks = {
        "hybrid": ("hybrid", OURS, "o"),
        "ags": ("ags", SECOND, "D"),
        "mpe": ("mpe", THIRD, "^"),
        "any-aaobf": ("AAOBF", PEER, ""),
        "aobb": ("AOBB", MISSED, ""),
        "authors-ags": ("AGS, authors' program", SECOND, ""),
        "merlin-wmb": ("weighted mini-buckets, merlin", BASE, ""),
    }
    rows = [
        row for row in records["mmap_anytime"] if row.get("seed", 0) == 0 and row.get("limit", 5.0) == 5.0
    ]
    asked = {_query(row) for row in rows if row["method"] == "ags"}
    figure.get_layout_engine().set(wspace=0.05)
    answers, gaps = figure.subplots(1, 2, width_ratios=[1.5, 1])
    for method, (label, colour, marker) in looks.items():
        found = [row for row in rows if row["method"] == method and _query(row) in asked]
        ran = {_query(row) for row in found}
        good = [
            row
            for row in found
            if (row.get("nats_to_best") or 0.0) <= 0.01 and row["log_probability"] is not None
        ]
        times = sorted({max(row["seconds"], 0.01) for row in found})
        share = [
            100 * len({_query(row) for row in good if row["seconds"] <= time}) / len(ran) for time in times
        ]
        if marker:  # incumbents of our methods are known at these times only
            answers.plot(times, share, marker=marker, color=colour, label=label)
        else:
            name = label if len(ran) == len(asked) else f"{label} (ran on {len(ran)})"
            answers.step([*times, 20], [*share, share[-1]], "--", where="post", color=colour, label=name)
    answers.set(xscale="log", xlabel="CPU time (s)", ylabel="queries, %", ylim=(-3, 103))
    answers.set_xticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
    titled(answers, f"{len(asked)} queries: answers within 0.01 nats of the best known")
    left = sorted(
        row["gap"] for row in records["mmap_bounds"] if row.get("section") == "gaps" and "gap" in row
    )
    gaps.step([*left, left[-1]], 100 * np.arange(len(left) + 1) / len(left), color=OURS)
    gaps.set(
        xlabel="gap after 5 s, nats (0: proved)", ylabel="queries with at most this gap, %", ylim=(0, 103)
    )
    titled(gaps, f"{len(left)} queries without known optimum")
    legend_below(figure, answers, 4)


def planning_returns(figure: Any, records: Records) -> None:
    """Mean returns of the planner and its peers, a panel per instance, with two standard errors."""
    looks = {
        "optimal": ("best policy", "black", "D"),
        "SOGBOFA": ("SOGBOFA", OURS, "o"),
        "JaxPlan": ("JaxPlan", PEER, "s"),
        "random": ("random", BASE, "^"),
        "no-op": ("no actions", THIRD, "v"),
    }
    rows = [row for row in records["planning"] if row["kind"] == "returns"]
    problems = sorted({(row["instance"] > 1, row["domain"], row["instance"]) for row in rows})
    figure.get_layout_engine().set(wspace=0.04)
    panels = figure.subplots(2, (len(problems) + 1) // 2, squeeze=False).ravel()
    for axes, (_, domain, instance) in zip(panels, problems, strict=False):
        found = {row["policy"]: row for row in rows if (row["domain"], row["instance"]) == (domain, instance)}
        for place, (policy, (_, colour, marker)) in enumerate(looks.items()):
            if policy in found:
                row = found[policy]
                axes.errorbar(row["mean"], place, xerr=2 * row["se"], fmt=marker, color=colour)
        axes.set(ylim=(len(looks) - 0.5, -0.5), yticks=[], xlabel="return")
        axes.margins(x=0.12)
        axes.locator_params(axis="x", nbins=3)
        titled(axes, f"{domain.split('_')[0]} {instance}, {found['SOGBOFA']['limit_s']:g} s")
    for axes in panels[len(problems) :]:
        axes.remove()
    for label, colour, marker in looks.values():
        panels[0].errorbar([], [], xerr=[], fmt=marker, color=colour, label=label)
    legend_below(
        figure, panels[0], len(looks), "mean and two standard errors; seconds per decision of SOGBOFA"
    )


def _query(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["instance"], row["fraction"], row["set"]
