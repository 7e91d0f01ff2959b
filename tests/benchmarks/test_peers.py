"""A peer that is missing, or does not import, is a row that says so."""

import sys

import pytest

from benchmarks.peers import why_skipped


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import jax.numpy", None),
        ("import no_such_package", "skipped: planted_peer does not import: ModuleNotFoundError: No module named"),
        ("raise ImportError('no symbol\\nin a library')", "does not import: ImportError: no symbol"),
        ("import jax; jax.no_such_name", "does not import: AttributeError: module 'jax' has no attribute"),
        (None, "skipped: planted_peer is not installed"),
    ],
)  # fmt: skip
def test_why_a_peer_is_skipped(code, why, tmp_path, monkeypatch):
    """An installation in which one package overwrote another raises AttributeError."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "planted_peer", raising=False)
    why_skipped.cache_clear()
    if code is not None:
        (tmp_path / "planted_peer.py").write_text(code)
    found = why_skipped("json", "planted_peer")
    why_skipped.cache_clear()
    sys.modules.pop("planted_peer", None)
    assert found is None if why is None else why in found and "\n" not in found, found
