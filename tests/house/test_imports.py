"""What `import ethogram` costs and leaves alone, each asked of a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

HEAVY = ("arviz", "matplotlib", "pandas", "polars", "scipy.optimize", "xarray", "h5py", "h5netcdf", "sklearn")

# Listeners stand before the first import of interest, so that a compilation during it is heard.
PROBE = """
    import json, sys
    import jax, jax.monitoring
    heard = []
    jax.monitoring.register_event_duration_secs_listener(lambda name, seconds, **more: heard.append(name))
    settings = ("enable_x64", "default_prng_impl", "numpy_rank_promotion", "compilation_cache_dir")
    before = [getattr(jax.config, "jax_" + name) for name in settings]
    {statement}
    after = [getattr(jax.config, "jax_" + name) for name in settings]
    print(json.dumps({{
        "modules": sorted(sys.modules),
        "compiled": [name for name in heard if "compile" in name],
        "unchanged": before == after,
        "backends": len(jax._src.xla_bridge._backends),
    }}))
"""


def probe(statement: str, folder) -> dict:
    """What a fresh process saw around a statement."""
    code = textwrap.dedent(PROBE).format(statement=statement)
    command = [sys.executable, "-P", "-W", "error", "-c", code]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


# The front door is lazy, so what it shows and every module behind it are imported too.
EVERYTHING = (
    "import importlib, pkgutil, ethogram; exec('from ethogram import *', {}); "
    "[importlib.import_module(m.name) for m in pkgutil.walk_packages(ethogram.__path__, 'ethogram.')]"
)
OFFENDERS = (
    "import h5py, jax.numpy; jax.numpy.ones(2) + 1; "
    "jax.config.update('jax_enable_x64', not jax.config.jax_enable_x64)"
)


@pytest.fixture(scope="module")
def ours(tmp_path_factory) -> dict:
    return probe(EVERYTHING, tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> dict:
    return probe("import numpyro, optax", tmp_path_factory.mktemp("theirs"))


def test_no_heavy_package_is_imported(ours, theirs):
    """Packages that numpyro or optax pull in by themselves are not ours to answer for."""
    extra = {name for name in HEAVY if name in ours["modules"]} - set(theirs["modules"])
    assert not extra, f"ethogram imports {sorted(extra)} at once: import them where they are used"
    assert {"ethogram.models.roles.role_hmm", "ethogram.inference.networks.solve_mmap"} <= set(
        ours["modules"]
    )


def test_nothing_is_compiled_and_no_device_is_started(ours, theirs):
    assert ours["compiled"] == []
    assert ours["backends"] <= theirs["backends"]


def test_settings_of_jax_are_untouched(ours):
    assert ours["unchanged"]


def test_the_probe_sees_planted_offenders(tmp_path):
    seen = probe(OFFENDERS, tmp_path)
    assert "h5py" in seen["modules"] and not seen["unchanged"]
    assert "/jax/core/compile/backend_compile_duration" in seen["compiled"]
