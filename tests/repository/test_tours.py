"""The example of each system from end to end, with starts in place of fits: its table, picture and file."""

from __future__ import annotations

import warnings
from importlib import import_module

import jax
import matplotlib.image
import numpy as np
import pytest

from ethogram.domains import labyrinth, objectworld, tetris
from ethogram.domains.sysadmin import sysadmin
from ethogram.terminal import format_table
from ethogram.tour import SYSTEMS, guide

pytestmark = pytest.mark.slow

WIDEST = 120
TINY = {
    "planning": {"load": lambda key, full: (2, sysadmin(3, horizon=4))},
    "marginal-map": {"settings": {"time_limit": 0.5}},
    "role-hmm": {"settings": {"restarts": 1}},
    "gp-irl": {
        "load": lambda key, full: (lambda world: (objectworld.simulate(key, world, 6), world))(
            objectworld.objectworld(key, 4, density=0.1)
        ),
        "settings": {"method": "natural_gradient"},
    },
    "agent-markov": {
        "load": lambda key, full: (lambda windows: (windows[0], windows))(labyrinth.draw_windows(key, 4, 2)),
        "settings": {"restarts": 1},
    },
    "noisy-mdp": {
        "load": lambda key, full: (lambda made: (made.take(slice(0, 60)), made.take(slice(60, None))))(
            tetris.simulate(key, (-3.0, -15.0, -1.0), 80).decisions
        ),
        "settings": {"num_warmup": 10, "num_samples": 20},
    },
}
"""Smaller data and settings, where they are needed for a tour of seconds."""

LEARNED = {
    "planning": lambda rows: rows["mean return of SOGBOFA, with its standard error"] is not None,
    "marginal-map": lambda rows: float(rows["ln p of 71 MAP variables"]) <= -16.5,
    "role-hmm": lambda rows: (
        float(rows["one role for each play: share of frames with two players in one role"]) == 0
    ),
    "gp-irl": lambda rows: 0 <= float(rows["coverage of 90 % intervals of reward differences"]) <= 1,
    "agent-markov": lambda rows: (
        float(rows["held-out windows, nats per step; reference: a table of p(a | s)"]) < -0.5
    ),
    "noisy-mdp": lambda rows: "[" in rows["value of holes: mean and 90 % interval"],
}


@pytest.mark.parametrize("name", SYSTEMS)
def test_an_example_has_its_rows_its_picture_and_its_file(name, tmp_path, starts_only, monkeypatch):
    monkeypatch.setattr(guide, "has_converged", lambda fit: True)
    example = import_module(SYSTEMS[name]).EXAMPLE
    tiny = dict(TINY[name])
    example = example._replace(settings={**example.settings, **tiny.pop("settings", {})}, **tiny)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the draws have not converged")  # they are starts
        warnings.simplefilter("ignore", RuntimeWarning)  # which took no step
        report = guide.run(example, name, tmp_path, lambda line: None)
    assert report.rows[0]["quantity"] == example.about and float(report.rows[0]["seconds"]) >= 0
    assert LEARNED[name]({row["quantity"]: row["learned"] for row in report.rows})
    table = format_table(report.rows)
    assert max(map(len, table.splitlines())) <= WIDEST, table
    assert [path.name for path in report.files] == [f"{name}.png", f"{name}.nc"]
    image = matplotlib.image.imread(report.files[0])
    assert image.shape[0] > 300 and image[..., :3].std() > 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what ArviZ says at import depends on its version
        import arviz
        import xarray
    if name in ("planning", "marginal-map"):
        with xarray.open_dataset(report.files[1], engine="h5netcdf") as written:
            assert written.data_vars
    else:
        posterior = arviz.from_netcdf(str(report.files[1]))["posterior"]
        assert all(np.isfinite(np.asarray(site)).all() for site in posterior.data_vars.values())


def test_the_long_forms_change_settings_that_are_there():
    """Of the same method, or of another one with all its settings."""
    for name, module in SYSTEMS.items():
        example = import_module(module).EXAMPLE
        assert example.settings["method"], name
        if "method" not in example.full:
            assert set(example.full) <= set(example.settings), name
        assert jax.tree.leaves(dict(example.settings)), name
