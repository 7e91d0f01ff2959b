"""The README's two commands are there, word for word, and .ci/run takes the one that it runs from there."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

INSTALL = "python3 -m venv .venv && .venv/bin/pip install -q --no-compile -c constraints.txt -e "
TOUR = INSTALL + ". && .venv/bin/ethogram tour"
TESTS = INSTALL + '".[test]" && .venv/bin/python -m pytest -q'


def fenced_lines(text: str) -> list[str]:
    """Lines inside the fences of a Markdown text."""
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_both_commands_stand_in_the_readme_once(root):
    lines = fenced_lines((root / "README.md").read_text(encoding="utf-8"))
    assert [line for line in lines if "ethogram tour" in line and "pip install" in line] == [TOUR]
    assert [line for line in lines if "pytest -q" in line] == [TESTS]


@pytest.mark.parametrize(
    ("readme", "expected"),
    [
        (f"pytest -q is run by\n\n```bash\n{TESTS}\n```\n\nand pytest -q again\n", TESTS),
        ("no fence, but pytest -q\n", None),
        (f"```\n{TESTS}\n{TESTS}\n```\n", None),
    ],
)
def test_the_stage_takes_the_one_fenced_line(root, tmp_path, readme, expected):
    script = (root / ".ci" / "run").read_text(encoding="utf-8")
    (function,) = re.findall(r"^readme_test_command\(\) \{.*?^\}", script, re.MULTILINE | re.DOTALL)
    (tmp_path / "README.md").write_text(readme)
    command = f"{function}\nset -euo pipefail\nreadme_test_command"
    answer = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    if expected is None:
        assert answer.returncode != 0
        assert "lines with pytest -q, not 1" in answer.stderr
    else:
        assert answer.stdout == expected + "\n"


def test_the_script_can_be_executed(root):
    assert os.access(root / ".ci" / "run", os.X_OK)
