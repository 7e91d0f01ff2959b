"""What `import ethogram` costs and leaves alone, asked of a fresh process."""

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
    seen = []
    for statement in json.loads(sys.argv[1]):
        before = [getattr(jax.config, "jax_" + name) for name in settings]
        exec(statement, {})
        seen.append({
            "modules": sorted(sys.modules),
            "compiled": [name for name in heard if "compile" in name],
            "unchanged": before == [getattr(jax.config, "jax_" + name) for name in settings],
            "backends": len(jax._src.xla_bridge._backends),
        })
    print(json.dumps(seen))
"""

# The top level is lazy, so its public names and every module behind it are imported too.
EVERYTHING = (
    "import importlib, pkgutil, ethogram; exec('from ethogram import *', {}); "
    "[importlib.import_module(m.name) for m in pkgutil.walk_packages(ethogram.__path__, 'ethogram.')]"
)
METHODS_OF_ROLES = (
    "import ethogram; from ethogram.fits.systems import system_of; "
    "model = object.__new__(ethogram.RoleHMM); system_of(model).methods(model, None)"
)
KERNELS = "import ethogram.models.chains"
OFFENDERS = (
    "import h5py, jax.numpy; jax.numpy.ones(2) + 1; "
    "jax.config.update('jax_enable_x64', not jax.config.jax_enable_x64)"
)


@pytest.fixture(scope="module")
def seen(tmp_path_factory) -> list[dict]:
    """What the process saw after imports of what numpyro and optax do, of the top level, of the kernels of chains, of
    the methods of one system, of all of the package, and of offenders.
    """
    statements = json.dumps(
        ["import numpyro, optax", "import ethogram", KERNELS, METHODS_OF_ROLES, EVERYTHING, OFFENDERS]
    )
    command = [sys.executable, "-P", "-W", "error", "-c", textwrap.dedent(PROBE), statements]
    answer = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path_factory.mktemp("imports"))
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.fixture
def theirs(seen) -> dict:
    return seen[0]


@pytest.fixture
def ours(seen) -> dict:
    return seen[4]


def test_no_heavy_package_is_imported(ours, theirs):
    """Packages that numpyro or optax pull in by themselves are not ours to answer for."""
    extra = {name for name in HEAVY if name in ours["modules"]} - set(theirs["modules"])
    assert not extra, f"ethogram imports {sorted(extra)} at once: import them where they are used"
    assert {"ethogram.models.roles.role_hmm", "ethogram.inference.networks.solve_mmap"} <= set(
        ours["modules"]
    )


def test_the_top_level_imports_nothing_and_a_fit_its_own_system(seen):
    top, roles = (
        {name for name in each["modules"] if name.startswith("ethogram")} for each in (seen[1], seen[3])
    )
    assert top == {"ethogram"}
    others = ("choices", "imitation", "intents", "mdps", "networks", "planning", "rewards")
    packages = {f"ethogram.{layer}.{system}" for layer in ("models", "inference") for system in others}
    assert "ethogram.models.roles" in roles and not packages & roles


def test_kernels_of_chains_come_without_models(seen):
    """Users of numpyro or dynamax may take them alone: argument checks and printing come along, no model does."""
    modules = {name for name in seen[2]["modules"] if name.startswith("ethogram.models.")}
    shared = {"arguments", "held_warnings", "hooks", "printing", "quick_jit"}
    others = {name.split(".")[2] for name in modules} - shared
    assert others == {"chains"}


def test_nothing_is_compiled_and_no_device_is_started(ours, theirs):
    assert ours["compiled"] == []
    assert ours["backends"] <= theirs["backends"]


def test_settings_of_jax_are_untouched(ours):
    assert ours["unchanged"]


def test_the_probe_sees_planted_offenders(seen):
    assert "h5py" in seen[5]["modules"] and not seen[5]["unchanged"]
    assert "/jax/core/compile/backend_compile_duration" in seen[5]["compiled"]
