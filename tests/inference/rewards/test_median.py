"""Medians of priors, where a package that numpyro imports warns of itself."""

from __future__ import annotations

import warnings

import numpyro.distributions as dist

from ethogram.inference.rewards.hyper_parameters import _median


def test_a_package_that_warns_when_it_is_imported_is_not_noticed(tmp_path, monkeypatch):
    folder = tmp_path / "tensorflow_probability" / "substrates" / "jax"
    folder.mkdir(parents=True)
    for part in (folder.parent.parent, folder.parent, folder):
        (part / "__init__.py").write_text("")
    (folder / "math.py").write_text(
        "import warnings\nwarnings.warn('old', DeprecationWarning)\ndef igammainv(a, y): return 0.75\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("", ".substrates", ".substrates.jax", ".substrates.jax.math"):
        monkeypatch.delitem(__import__("sys").modules, f"tensorflow_probability{name}", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _median(dist.Gamma(2.0, 1.0)) == 0.75
