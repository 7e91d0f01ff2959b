"""What holds for all tests: one precision, one quick compiler, and a cache that outlives the clone.

The fast tier runs by default, the slow one with ``-m slow``; both compile quickly and share their programs. Tests
marked ``optimised`` need XLA's default optimisations and run by themselves (``-m optimised``). Types of public
signatures are checked where ``ETHOGRAM_TYPES=1``, in `.ci/run` for the code of the documentation, which calls them all.
"""

import ctypes
import gc
import os
import sys
import time
from pathlib import Path

# Compiled programs and bytecode, kept from one clone to the next.
os.environ.setdefault(
    "ETHOGRAM_CI_CACHE",
    str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ethogram" / "tests"),
)

if sys.dont_write_bytecode or not sys.pycache_prefix:  # every process would compile all of its imports anew
    sys.dont_write_bytecode = False
    sys.pycache_prefix = os.path.join(os.environ["ETHOGRAM_CI_CACHE"], "bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests fill the cores: threads of the linear algebra of small matrices would only wait for one another.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# numpyro flattens distributions in the order of a set: with another seed, the same program is another entry.
os.environ.setdefault("PYTHONHASHSEED", "0")

import jax
import pytest
from jaxtyping import install_import_hook

STATM = Path("/proc/self/statm")
LARGE, TOO_LARGE = 800 * 2**20, 1500 * 2**20
"""Bytes of a process beyond which compiled programs are dropped: after a folder, and after any test."""

FAST, SLOW, OPTIMISED = "not slow and not optimised", "slow", "optimised"

QUICK_COMPILER = (
    "--xla_cpu_enable_concurrency_optimized_scheduler=false --xla_cpu_parallel_codegen_split_count=1"
)
if jax.__version_info__ < (0, 11):  # a process ends at a flag that XLA does not have
    QUICK_COMPILER += " --xla_cpu_use_fusion_emitters=false"
"""Half the time of compiling, beyond what ``jax_disable_most_optimizations`` saves."""


SETTINGS = {
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
    "jax_traceback_in_locations_limit": 0,
    "jax_disable_most_optimizations": True,
}
"""Of JAX in this process and in those that tests start."""


def pytest_configure(config):
    """Float64 everywhere, a compiler that is quick, and a cache that outlives the run."""
    os.environ.setdefault(
        "JAX_COMPILATION_CACHE_DIR", os.path.join(os.environ["ETHOGRAM_CI_CACHE"], "compiled")
    )
    jax.config.update("jax_compilation_cache_dir", os.environ["JAX_COMPILATION_CACHE_DIR"])
    jax.config.update("jax_enable_x64", True)
    if os.environ.get("ETHOGRAM_TYPES") == "1":  # nearly half of the time that tests take to be collected
        install_import_hook("ethogram", "beartype.beartype")
    quick = config.option.markexpr != OPTIMISED
    for name, value in SETTINGS.items():
        value = value if quick or name != "jax_disable_most_optimizations" else False
        jax.config.update(name, value)
        os.environ[name.upper()] = str(int(value))
    if quick:
        os.environ["XLA_FLAGS"] = with_quick_compiler(os.environ.get("XLA_FLAGS", ""))


def with_quick_compiler(flags):
    """Flags of XLA, with those of the quick compiler where it knows them: others end the process."""
    return f"{flags} {QUICK_COMPILER}" if (0, 9) <= jax.version.__version_info__ < (0, 13) else flags


def pytest_ignore_collect(collection_path, config):
    """A tier of its own leaves out files without its word, which have no such test, and does not import them."""
    tier = config.option.markexpr
    if tier in (SLOW, OPTIMISED) and collection_path.match("test_*.py"):
        return tier not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_xdist_make_scheduler(config, log):
    """All tests of a folder run in one process: they share fitted models and compiled programs."""
    from xdist.scheduler import LoadFileScheduling

    class LoadFolderScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            return nodeid.rpartition("/")[0]

    return LoadFolderScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Where no bytecode is kept, one worker makes it, and the others wait instead of making the same beside it."""
    kept = Path(sys.pycache_prefix) / "collected"
    worker = getattr(session.config, "workerinput", {}).get("workerid", "gw0")
    since = time.monotonic()
    while worker != "gw0" and not kept.exists() and time.monotonic() < since + 120:
        time.sleep(0.2)
    found = yield
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.touch()
    return found


def pytest_collection_finish():
    """Nothing that is imported is garbage: collecting then looks at what tests leave, and seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


def pytest_report_header(config):
    """Which tier runs, and how to run the others."""
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


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item, nextitem):
    """Compiled programs are dropped where the process is too large, and sooner where a folder of tests ends."""
    same = nextitem is not None and nextitem.path.parent == item.path.parent
    drop_programs_beyond(TOO_LARGE if same else LARGE)


def drop_programs_beyond(size):
    """Empties the caches of compiled programs and traces of a process above `size` bytes, and frees their memory."""
    if not STATM.exists() or int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") < size:
        return
    jax.clear_caches()
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc keeps what is freed
    if trim is not None:
        trim(0)
