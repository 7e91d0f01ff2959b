"""The folder in which compiled programs outlive a process."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["use_compilation_cache"]


def use_compilation_cache() -> Path | None:
    """Folder of the compilation cache from now on; None if none can be written.

    It is ``ethogram/jax`` under ``XDG_CACHE_HOME``, or under ``~/.cache``. A folder that is already set, such as by
    ``JAX_COMPILATION_CACHE_DIR``, is kept.
    """
    import jax

    chosen = getattr(jax.config, "jax_compilation_cache_dir", None)
    if chosen is not None:
        return Path(chosen)
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "ethogram" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    if not os.access(folder, os.W_OK):
        return None
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return folder
