"""What `import ethogram` costs and leaves alone, each asked of a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

HEAVY = ("arviz", "matplotlib", "pandas", "scipy.optimize", "xarray", "h5py", "h5netcdf", "sklearn")

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


# The front door is lazy, so what it shows and what stands behind it are asked for too.
STATEMENTS = {
    "bare": "import ethogram",
    "names": "from ethogram import *",
    "modules": (
        "import importlib, pkgutil, ethogram; "
        "[importlib.import_module(m.name) for m in pkgutil.walk_packages(ethogram.__path__, 'ethogram.')]"
    ),
}


@pytest.fixture(scope="module", params=list(STATEMENTS))
def ours(request, tmp_path_factory) -> dict:
    return probe(STATEMENTS[request.param], tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory) -> dict:
    return probe("import numpyro, optax", tmp_path_factory.mktemp("theirs"))


def test_no_heavy_package_is_imported(ours, theirs):
    """Packages that numpyro or optax pull in by themselves are not ours to answer for."""
    extra = {name for name in HEAVY if name in ours["modules"]} - set(theirs["modules"])
    assert not extra, f"ethogram imports {sorted(extra)} at once: import them where they are used"
    assert "ethogram" in ours["modules"]


def test_nothing_is_compiled_and_no_device_is_started(ours, theirs):
    assert ours["compiled"] == []
    assert ours["backends"] <= theirs["backends"]


def test_settings_of_jax_are_untouched(ours):
    assert ours["unchanged"]


@pytest.mark.parametrize(
    ("statement", "field", "expected"),
    [
        ("import h5py", "modules", "h5py"),
        ("import jax.numpy; jax.numpy.ones(2) + 1", "compiled", "/jax/core/compile/backend_compile_duration"),
        ("jax.config.update('jax_enable_x64', not jax.config.jax_enable_x64)", "unchanged", None),
    ],
)
def test_the_probe_sees_a_planted_offender(tmp_path, statement, field, expected):
    seen = probe(statement, tmp_path)[field]
    assert seen is False if expected is None else expected in seen
