"""The model of the "Add a model" guide and its test are taken out of the guide and run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BLOCK = re.compile(
    r"^`(?P<path>(?:models|tests)/[\w/]+[.]py)`[^\n]*\n+```python\n(?P<code>.*?)^```$", re.M | re.S
)
FILES = ("models/habit.py", "tests/models/test_habit.py")

# The new model stands beside the ones that are there, without being copied into the clone.
NEIGHBOUR = """
import pathlib

import ethogram.models

ethogram.models.__path__.append(str(pathlib.Path(__file__).parent / "models"))
"""


def guide_files(text: str) -> dict[str, str]:
    """Path to code for each Python block that follows a line which begins with the path of a file."""
    return {match["path"]: match["code"] for match in BLOCK.finditer(text)}


@pytest.fixture
def guide(root, tmp_path) -> Path:
    """A folder with the guide's files and the clone's settings."""
    for name, code in guide_files((root / "CONTRIBUTING.md").read_text(encoding="utf-8")).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code, encoding="utf-8")
    shutil.copy(root / "pyproject.toml", tmp_path)
    conftest = (root / "tests" / "conftest.py").read_text(encoding="utf-8")
    (tmp_path / "conftest.py").write_text(conftest + NEIGHBOUR, encoding="utf-8")
    return tmp_path


def run(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of a module run by a fresh interpreter in a folder."""
    command = [sys.executable, "-m", *arguments]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    return answer.returncode, answer.stdout + answer.stderr


def test_the_guide_has_a_model_and_its_test(root):
    assert tuple(guide_files((root / "CONTRIBUTING.md").read_text(encoding="utf-8"))) == FILES


def test_the_model_is_in_the_projects_style(guide):
    for action in (("format", "--check"), ("check",)):
        code, output = run(guide, "ruff", *action, "models", "tests")
        assert code == 0, output


@pytest.mark.slow
def test_the_model_passes_its_test_and_a_wrong_model_fails_it(guide):
    """The wrong one stands beside the right one, so that one process runs both."""
    path, test = (guide / name for name in FILES)
    wrong = path.read_text(encoding="utf-8").replace("num_repeats * log_repeat", "num_repeats * log_change")
    assert wrong != path.read_text(encoding="utf-8")
    path.with_name("wrong_habit.py").write_text(wrong, encoding="utf-8")
    asked = test.read_text(encoding="utf-8").replace("ethogram.models.habit", "ethogram.models.wrong_habit")
    test.with_name("test_wrong_habit.py").write_text(asked, encoding="utf-8")
    code, output = run(
        guide, "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-k", "not wrong_habit or sum_to_one"
    )
    assert code == 1, output
    assert re.search(r"^1 failed, [5-9] passed", output, re.MULTILINE), output
    assert re.search(r"^FAILED \S*test_wrong_habit.py::\w*sum_to_one", output, re.MULTILINE), output
