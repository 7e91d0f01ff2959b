"""Speed against other packages, of all records that compare with some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.figures.looks import MISSED, OURS, Records, Rows, legend_below, titled

__all__ = ["speed_ratios"]

Line = tuple[str, Mapping[str, Any]]


def speed_ratios(figure: Any, records: Records) -> None:
    """CPU time of a peer over ours, with the targets: dots on a logarithmic axis, a line at 1."""
    axes = figure.subplots()
    lines = list(_lines(records))
    for place, (_, row) in enumerate(lines):
        low, high = (row.get(f"ratio_{side}", row["ratio"]) for side in ("low", "high"))
        colour, filled = (OURS, "full") if row["reached"] else (MISSED, "none")
        axes.plot([low, high], [place, place], color=colour, linewidth=2, alpha=0.5)
        axes.plot(row["ratio"], place, "o", color=colour, fillstyle=filled)
        axes.plot(row["target"], place, "|", color="black", markersize=10, markeredgewidth=2)
    axes.axvline(1, color="black", linewidth=0.8, linestyle=":")
    axes.set(xscale="log", xlabel="time of the peer / ours (above 1, ethogram is faster)")
    axes.set_xticks([0.5, 1, 2, 5, 10, 20, 50, 100], ["0.5", "1", "2", "5", "10", "20", "50", "100"])
    axes.minorticks_off()
    axes.set_yticks(range(len(lines)), [label for label, _ in lines], fontsize=8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    titled(axes, "speed against other packages, CPU time in float64")
    axes.plot([], [], "o-", color=OURS, linewidth=2, label="median and range of rounds, target reached")
    axes.plot([], [], "o-", color=MISSED, linewidth=2, fillstyle="none", label="the same, target missed")
    axes.plot([], [], "|", color="black", markersize=10, markeredgewidth=2, label="target")
    legend_below(figure, axes, 3)


def _lines(records: Records) -> Iterator[Line]:
    rows = {
        name: [row for row in found if row.get("target") and "ratio" in row]
        for name, found in records.items()
    }
    for row in rows["conjugate_svi"]:
        yield f"CAVI iteration, {row['size']}: hmmlearn", row
    chain = [row for row in rows["chain"] if "linear" not in row["peer"]]
    for size, row in _closest([row for row in chain if "gradient" not in row["peer"]]).items():
        yield f"E-step of chains, {size}: {row['peer'].split()[0]}", row
    for row in chain:
        if "gradient" in row["peer"]:
            peer = "dynamax" if "dynamax" in row["peer"] else "logsumexp scan"
            yield f"E-step and gradient, {row['size']}: {peer}", row
    for size, row in _closest([row for row in rows["agent_markov"] if row["case"] == "e-step"]).items():
        yield f"E-step of intents, {size}: dynamax", row
    for row in records["px_da"]:
        if row.get("check") == "min ESS/s, local+scale over NUTS":
            states = {"toy": "7 states", "middle": "20 states"}[row["case"]]
            yield f"an effective draw by PX-DA, {states}: NUTS", {**row, "ratio": row["value"]}
    for row in rows["soft_values"]:
        if "/" in row["size"]:
            states, discount = row["size"].split("/")
            what = "soft values and gradient" if row["what"] == "gradient" else "soft values"
            peer = "quantecon" if "quantecon" in row["peer"] else "NumPy"
            yield f"{what}, {states} states, discount {discount}: {peer}", row
    for row in rows["forward_marginals"]:
        if "scan" in row["peer"]:
            yield f"forward marginals, {row['size'].split('_')[0]}: scan over levels", row


def _closest(rows: Rows) -> dict[str, Mapping[str, Any]]:
    """By size, the row of the fastest peer."""
    found: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        if row["size"] not in found or row["ratio"] < found[row["size"]]["ratio"]:
            found[row["size"]] = row
    return found
