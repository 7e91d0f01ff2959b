"""What holds for all tests: public signatures are checked, and compiled programs do not pile up."""

import gc
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

install_import_hook("ethogram", "beartype.beartype")

MAPS = Path("/proc/self/maps")
MANY_MAPS = 25_000
"""Every compiled program takes some memory maps, of which a Linux process has 65530: beyond them it is killed."""


@pytest.fixture(autouse=True, scope="module")
def few_programs():
    """After a file, programs are dropped where they have become many."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
