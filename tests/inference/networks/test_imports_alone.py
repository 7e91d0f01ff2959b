"""The system imports alone: numpy, jax and numpyro, and no other subpackage than its own and core ones."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import sys
import ethogram.networks
for name in sorted(sys.modules):
    print(name)
"""


def test_nothing_else_is_imported():
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    names = found.stdout.split()
    assert "ethogram.inference.networks.solve_mmap" in names
    heavy = {"arviz", "matplotlib", "pandas", "xarray"}
    assert not heavy & {name.partition(".")[0] for name in names}
    ours = {name for name in names if name.startswith("ethogram.")}
    core = {
        "ethogram.networks",
        "ethogram.models",
        "ethogram.models.arguments",
        "ethogram.models.held_warnings",
        "ethogram.models.model_object",
        "ethogram.models.numpy_generator",
        "ethogram.models.whole_files",
    }
    own = ("ethogram.models.networks", "ethogram.inference.networks")
    shared = {"ethogram.inference", "ethogram.inference.line_search"}
    assert {name for name in ours if not name.startswith(own)} <= core | shared
