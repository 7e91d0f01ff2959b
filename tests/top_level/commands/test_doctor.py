"""The command `ethogram doctor`: what it finds, and what it says of packages that are not there."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import jax

import ethogram
from ethogram.commands import doctor, main


def test_versions_devices_and_settings_are_printed(capsys):
    assert main(["doctor"]) == 0
    found = dict(line.split("  ", 1) for line in capsys.readouterr().out.splitlines())
    found = {name: value.strip() for name, value in found.items()}
    assert found["ethogram"] == ethogram.__version__ and found["jax"] == jax.__version__
    assert int(found["cores"]) >= 1
    assert f"{jax.devices()[0].platform} 0" in found["devices"]


def test_sizes_of_the_cache_and_packages_that_are_missing(tmp_path, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(doctor.metadata, "version", missing)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "program").write_bytes(bytes(3 * 2**20))
    report = doctor.diagnose(tmp_path)
    assert "3.0 MiB in 1 files" in report and report.count("not installed") == len(doctor.REQUIRED) + sum(
        map(len, doctor.EXTRAS.values())
    )
    for double, name in ((False, "float32"), (True, "float64")):
        with jax.enable_x64(double):
            report = doctor.diagnose(None)
        assert name in report and "none: no folder is writable" in report


def test_extras_are_those_of_the_package():
    root = Path(__file__).resolve().parents[3]
    report = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for_users = {
        name: tuple(report[name])
        for name in report
        if name not in ("test", "bench", "bench-planning", "docs")
    }
    assert for_users == doctor.EXTRAS
