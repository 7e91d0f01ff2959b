"""The tour of each system from end to end, with starts in place of fits: its table, notes, picture and file."""

from __future__ import annotations

import warnings
from importlib import import_module

import matplotlib.image
import numpy as np
import pytest

from ethogram.domains import uai_networks
from ethogram.domains.optimal_policy import OptimalPolicy
from ethogram.domains.sysadmin import sysadmin
from ethogram.tour import SYSTEMS, Guide, choices, intents, networks, planning, rewards, roles

pytestmark = pytest.mark.slow

TINY = {
    "role-hmm": roles.TourSizes(
        1, 3, 8, 4, draws=6, predictive=False, sides=("home",), demonstrations=6, fresh_games=5
    ),
    "agent-markov": intents.TourSizes(4, 3, 1, 5, 6, 2, 2, 1, 5, draws=4, scores=True),
    "noisy-mdp": choices.TourSizes(20, 2, draws=40, warmup=30, bus=40, games=3, moves=20, shown=8),
    "gp-irl": rewards.TourSizes(size=4, trajectories=6, steps=2, draws=20),
    "marginal-map": networks.TourSizes(0.5, 1.0),
    "planning": planning.TourSizes(3, 4, 4),
}
"""Sizes of tours of seconds."""
ROWS = {
    "role-hmm": ["home defence, plain", "home defence, plain + assignment", "predators, exclusive roles"]
    + [f"imitation, {kind} roles" for kind in ("arbitrary", "learned")],
    "agent-markov": [f"Line World, {version}" for version in ("VI", "VI-L", "CVI-G", "CVI-LG")]
    + ["mice, one intent (exact)", "mice, at most 2 intents"],
    "noisy-mdp": ["Tetris"] * 3 + ["bus engines"],
    "gp-irl": ["linear reward by maximum entropy", "Levine's mode", "posterior", "bus engines"],
    "marginal-map": [name for name in uai_networks.KNOWN for _ in networks.METHODS],
    "planning": ["nothing", "random", "SOGBOFA", "best"],
}
SITES = {
    "role-hmm": {"mean": (1, 6, 10, 2)},
    "agent-markov": {"policy": (1, 4, 2)},
    "noisy-mdp": {"v": (2, 20, 3)},
    "gp-irl": {"reward": (1, 20, 16)},
}


CHECKS = {
    "role-hmm": lambda rows, notes: float(rows[0]["duplicates"]) > 0.3 and float(rows[1]["duplicates"]) == 0,
    "agent-markov": lambda rows, notes: all(
        -np.log(4) < float(row["held-out, nats/step"]) < -0.5 for row in rows[4:]
    ),
    "noisy-mdp": lambda rows, notes: any("log likelihood -164.65 at the mode" in note for note in notes),
    "gp-irl": lambda rows, notes: all(
        float(part) >= 0 for row in rows[:3] for part in row["EVD home; transfer"].split(";")
    ),
    "marginal-map": lambda rows, notes: all(
        float(row["ln p at 1 s"]) <= float(row["best known"]) + 1e-3
        for row in rows
        if not row["query"].startswith("pedigree1")
    ),
    "planning": lambda rows, notes: f"{OptimalPolicy(sysadmin(3, horizon=4)).value:.1f}" in notes[0],
}


@pytest.mark.parametrize("name", TINY)
def test_a_tour_has_its_rows_its_picture_and_its_draws(name, tmp_path, starts_only):
    said: list[str] = []
    module = import_module(SYSTEMS[name].module)
    report = module.tour(Guide(name, tmp_path, said.append), TINY[name])
    assert len(report.rows) == len(ROWS[name]) and report.notes and said
    for row, wanted in zip(report.rows, ROWS[name], strict=True):
        assert any(wanted in str(cell) for cell in row.values())
    assert CHECKS[name](report.rows, report.notes)
    picture, vectors, record = report.files
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.{kind}" for kind in ("png", "pdf", "nc")}
    image = matplotlib.image.imread(picture)
    assert vectors.read_bytes().startswith(b"%PDF") and image.shape[0] > 300 and image[..., :3].std() > 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ says at import depends on its version
        import arviz
        import xarray
    if name not in SITES:
        with xarray.open_dataset(record, engine="h5netcdf") as written:
            assert written.data_vars
        return
    written = arviz.from_netcdf(str(record))
    for site, shape in SITES[name].items():
        values = np.asarray(written["posterior"][site])
        assert values.shape[: len(shape)] == shape and np.isfinite(values).all()
    if name != "role-hmm":
        assert all(np.isfinite(each).all() for each in written["log_likelihood"].data_vars.values())
