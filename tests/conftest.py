"""What holds for all tests: types are checked, one precision, one compiler a tier, and a cache of compiled programs.

The fast tier runs by default and compiles quickly; the slow tier (``-m slow``) compiles as users do.
"""

import gc
import os
import sys
from pathlib import Path

if sys.dont_write_bytecode:  # processes that tests start would compile all of their imports anew
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests fill the cores: threads of the linear algebra of small matrices would only wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("ethogram", "beartype.beartype")

MAPS = Path("/proc/self/maps")
MANY_MAPS = 25_000
"""Every compiled program takes some memory maps, of which a Linux process has 65530: beyond them it is killed."""

FAST, SLOW = "not slow", "slow"

QUICK_COMPILER = "--xla_cpu_use_fusion_emitters=false --xla_cpu_enable_concurrency_optimized_scheduler=false"
"""Half the time of compiling, beyond what ``jax_disable_most_optimizations`` saves."""


def pytest_configure(config):
    """Float64 everywhere; in the fast tier a compiler that is quick, and in both a cache that outlives the run."""
    if hasattr(config, "cache"):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("compiled")))
    jax.config.update("jax_compilation_cache_dir", os.environ.get("JAX_COMPILATION_CACHE_DIR"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_enable_x64", True)
    if config.option.markexpr == FAST:
        jax.config.update("jax_disable_most_optimizations", True)
        os.environ["XLA_FLAGS"] = with_quick_compiler(os.environ.get("XLA_FLAGS", ""))


def with_quick_compiler(flags):
    """Flags of XLA, with those of the quick compiler where it knows them: others end the process."""
    return f"{flags} {QUICK_COMPILER}" if (0, 9) <= jax.version.__version_info__ < (0, 13) else flags


def pytest_ignore_collect(collection_path, config):
    """In the slow tier, a file without the word has no slow test, and is not imported."""
    if config.option.markexpr == SLOW and collection_path.match("test_*.py"):
        return SLOW not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_report_header(config):
    """Which tier runs, and how to run the other."""
    if config.option.markexpr == FAST:
        return "ethogram: the fast tier; the slow one runs by: python -m pytest -q -m slow"
    return f"ethogram: tests marked {config.option.markexpr!r}" if config.option.markexpr else None


@pytest.fixture(scope="session")
def stored_file(pytestconfig):
    """Path of a file of the shared data, by its name there; the test is skipped where it is not at hand."""
    folders = (os.environ.get("ETHOGRAM_DATA"), pytestconfig.rootpath.parent / "shared" / "data")

    def find(name):
        for folder in folders:
            if folder is not None and (Path(folder) / name).exists():
                return Path(folder) / name
        pytest.skip(f"no {name}: set ETHOGRAM_DATA to the folder that holds it")

    return find


@pytest.fixture(scope="module")
def quick_compiler():
    """Few optimisations, in the slow tier too: for files whose tests compile longer than they compute."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    if not before:
        jax.config.update("jax_disable_most_optimizations", False)
        jax.clear_caches()


@pytest.fixture(scope="session")
def quick_environment():
    """Environment variables of a process in single precision that compiles quickly, as the fast tier does."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_ENABLE_X64")}
    flags = with_quick_compiler(inherited.get("XLA_FLAGS", ""))
    return inherited | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "true", "XLA_FLAGS": flags}


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """After a file, programs are dropped where they have become many."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
