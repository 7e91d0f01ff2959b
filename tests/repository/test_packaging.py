"""The wheel holds every module once, from any checkout; the clone's folders are no packages of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from pathlib import Path

import pytest

PACKAGES = ("models", "inference", "domains")
BUILD = (
    "import sys; from setuptools import build_meta; "
    "print('wheel: ' + build_meta.build_wheel(sys.argv[1]), file=sys.stderr)"
)


def place_in_wheel(path: Path) -> str | None:
    """Where a file of the repository belongs in the wheel; None where it stays behind."""
    if path.name == "README.md":  # a page of the site
        return None
    if path.parts[0] in PACKAGES:
        return f"ethogram/{path.as_posix()}"
    if path.parts[:2] == ("src", "ethogram"):
        return path.relative_to("src").as_posix()
    return None


def copy_checkout(root: Path, files: list[Path], target: Path, *, symlinks: bool) -> Path:
    """Copy of the repository, with the package's three links or with the text files git makes of them."""
    for path in files:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, target / path)
    for name in PACKAGES:
        link = target / "src" / "ethogram" / name
        if symlinks:
            link.symlink_to(f"../../{name}", target_is_directory=True)
        else:
            link.write_text(f"../../{name}")
    return target


def build_wheel(checkout: Path, folder: Path) -> Path:
    """A wheel, built without any network by the interpreter that runs the tests."""
    folder.mkdir()
    command = [sys.executable, "-P", "-c", BUILD, str(folder)]
    built = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


def contents(wheel: Path) -> Counter[str]:
    """How often each name stands in a wheel, its metadata left out."""
    with zipfile.ZipFile(wheel) as archive:
        return Counter(name for name in archive.namelist() if ".dist-info/" not in name)


@pytest.fixture(scope="module")
def wheel(root, repository_files, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("linked")
    checkout = copy_checkout(root, repository_files, folder / "clone", symlinks=True)
    return build_wheel(checkout, folder / "wheel")


def packages_in(files: list[Path]) -> dict[str, str]:
    """Dotted package name to folder, for every folder with an `__init__.py` that a wheel should hold."""
    found = {}
    for path in files:
        place = place_in_wheel(path)
        if place is not None and path.name == "__init__.py":
            found[place.removesuffix("/__init__.py").replace("/", ".")] = path.parent.as_posix()
    return found


def test_package_list_is_the_tree(root, repository_files):
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    expected = packages_in(repository_files)
    assert sorted(settings["packages"]) == sorted(expected)
    tops = {name: expected[name] for name in ("ethogram", *(f"ethogram.{package}" for package in PACKAGES))}
    assert settings["package-dir"] == tops


SAME_FILES = ({"dynamax", "tfp-nightly"}, {"pyRDDLGym-jax", "tensorflow-probability"})
"""Distributions that bring one `tensorflow_probability`, and those that bring the other: pip lets the last one win."""


def test_no_extra_installs_two_packages_that_write_the_same_files(root):
    """``.[test,bench]`` did, and left a dynamax that does not import."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {name: set(packages) for name, packages in project["optional-dependencies"].items()}
    holding = [{name for name, packages in extras.items() if packages & same} for same in SAME_FILES]
    assert holding == [{"bench"}, {"bench-planning"}]


def test_a_new_folder_is_seen():
    names = ["models/new/__init__.py", "src/ethogram/__init__.py", "tests/__init__.py", "models/new/a.py"]
    assert packages_in([Path(name) for name in names]) == {
        "ethogram.models.new": "models/new",
        "ethogram": "src/ethogram",
    }


def test_links_of_the_top_level_lead_to_the_packages(root):
    for name in PACKAGES:
        link = root / "src" / "ethogram" / name
        if not link.is_symlink():
            assert link.read_text().strip() == f"../../{name}"
            pytest.skip("this checkout has text files in place of the links")
        assert os.readlink(link) == f"../../{name}"


def test_wheel_holds_every_file_once(wheel, repository_files):
    expected = {place for path in repository_files if (place := place_in_wheel(path))}
    assert "ethogram/py.typed" in expected
    assert "ethogram/models/data/trajectories.py" in expected
    found = contents(wheel)
    assert set(found) == expected
    assert set(found.values()) == {1}


def test_wheel_carries_the_licence_and_every_notice(wheel, root, repository_files):
    with zipfile.ZipFile(wheel) as archive:
        licences = {
            name.split("/licenses/")[1]: archive.read(name)
            for name in archive.namelist()
            if "/licenses/" in name
        }
    notices = {path for path in repository_files if path.name.startswith("NOTICE")}
    assert notices
    assert set(licences) == {"LICENSE", *(path.as_posix() for path in notices)}
    assert licences["LICENSE"] == (root / "LICENSE").read_bytes()


def test_data_have_a_notice_beside_them(root, repository_files):
    data = [
        path for path in repository_files if path.parts[:2] == ("domains", "data") and len(path.parts) > 3
    ]
    assert data
    noticed = {path.parts[2] for path in data if path.name.startswith("NOTICE")}
    assert noticed == {path.parts[2] for path in data}


def test_wheel_is_the_same_where_links_degraded_to_text(wheel, root, repository_files, tmp_path):
    checkout = copy_checkout(root, repository_files, tmp_path / "clone", symlinks=False)
    other = build_wheel(checkout, tmp_path / "wheel")
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(other) as two:
        assert {entry.filename: entry.CRC for entry in one.infolist()} == {
            entry.filename: entry.CRC for entry in two.infolist()
        }


def test_the_wheel_alone_can_be_imported(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = (
        "import ethogram, ethogram.models.data.trajectories as t; print(ethogram.__file__); print(t.__file__)"
    )
    printed = run_outside(code, tmp_path, PYTHONPATH=str(tmp_path / "site")).splitlines()
    assert printed == [
        str(tmp_path / "site" / "ethogram" / "__init__.py"),
        str(tmp_path / "site" / "ethogram" / "models" / "data" / "trajectories.py"),
    ]


def run_outside(code: str, folder: Path, **environment: str) -> str:
    """Output of a fresh interpreter, started outside the clone and blind to the folder it runs in."""
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-P", "-c", code]
    answer = subprocess.run(
        command, cwd=folder, env=inherited | environment, capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_packages_are_importable_by_their_full_names_only(tmp_path):
    code = "\n".join(
        [
            "import importlib, importlib.util",
            "for name in ('models', 'inference', 'domains'):",
            "    importlib.import_module('ethogram.' + name)",
            "    print(name, importlib.util.find_spec(name))",
        ]
    )
    assert run_outside(code, tmp_path).splitlines() == [f"{name} None" for name in PACKAGES]
