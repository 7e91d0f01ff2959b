"""Pictures of the stored records: figures of `docs/benchmarks.md`, drawn within seconds.

`python -m benchmarks.record_pictures` draws all of them into `docs/images/records`, `... speed` those named.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.figures import decisions, posteriors, speed

__all__ = ["FOLDER", "PICTURES", "Picture", "draw_pictures"]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "images" / "records"
RESULTS = ROOT / "benchmarks" / "results"


class Picture(NamedTuple):
    """A function that draws rows of records into a figure, the names of these records, and the size in inches."""

    draw: Callable[[Any, Mapping[str, Any]], None]
    records: tuple[str, ...]
    size: tuple[float | int, float | int]


SPEED = ("conjugate_svi", "chain", "agent_markov", "px_da", "soft_values", "forward_marginals")
NUMBERS = ("role_number", "intent_number", "agent_markov_selection", "agent_markov_selection_seed100")

PICTURES: Mapping[str, Picture] = {
    "speed": Picture(speed.speed_ratios, SPEED, (8, 5.8)),
    "coverage": Picture(posteriors.coverage, ("interval_coverage", "gp_irl_calibration"), (8, 3.2)),
    "calibration": Picture(posteriors.calibration, ("calibration_all",), (8, 5)),
    "numbers": Picture(posteriors.numbers_selected, NUMBERS, (10, 3.4)),
    "peers": Picture(posteriors.simpler_models, ("intent_peers",), (9, 3.2)),
    "missing": Picture(posteriors.missing_values, ("missing_values",), (9, 3.4)),
    "movement": Picture(posteriors.movement, ("step_and_turn",), (8, 3.6)),
    "imitation": Picture(decisions.imitation_rounds, ("imitation",), (9, 3.8)),
    "football": Picture(decisions.football_futures, ("imitation_football",), (10, 3.2)),
    "choices": Picture(decisions.choice_errors, ("tetris",), (9, 3.2)),
    "rewards": Picture(decisions.value_differences, ("gp_irl",), (9, 3.6)),
    "marginal-map": Picture(decisions.marginal_map, ("mmap_anytime", "mmap_bounds"), (9, 4)),
    "planning": Picture(decisions.planning_returns, ("planning",), (10, 4.2)),
}
"""In the order of the page."""


def draw_pictures(names: Sequence[str], folder: Path = FOLDER) -> list[Path]:
    """Files `NAME.png` in `folder`."""
    from matplotlib.figure import Figure
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for name in names:
        picture = PICTURES[name]
        figure = Figure(figsize=picture.size, layout="constrained")
        picture.draw(figure, {record: _rows(record) for record in picture.records})
        made.append(folder / f"{name}.png")
        figure.savefig(made[-1], dpi=200)
        with Image.open(made[-1]) as drawn:  # a palette makes a small file
            drawn.convert("RGB").quantize(128).save(made[-1], optimize=True, dpi=(200, 200))
    return made


def _rows(record: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / f"{record}.json").read_text(encoding="utf-8"))["rows"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record_pictures", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PICTURE", help=f"{', '.join(PICTURES)}; all by default")
    chosen = parser.parse_args().names or list(PICTURES)
    if unknown := set(chosen) - set(PICTURES):
        parser.error(f"unknown picture {sorted(unknown)[0]!r}: choose from {', '.join(PICTURES)}")
    for path in draw_pictures(chosen):
        print(f"wrote {path}")
