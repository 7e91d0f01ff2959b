"""The Python blocks of README and docs run as they stand, those of a page in order, in a folder of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    """Python blocks of a page."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_blocks_run(page, tmp_path):
    """In single precision and a fresh process, as users run them."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JAX_ENABLE_X64")}
    command = [sys.executable, "-c", "\n".join(blocks(page))]
    answer = subprocess.run(command, cwd=tmp_path, env=inherited, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr


def test_every_system_has_a_page_with_a_block():
    shown = {page.name for page in PAGES if blocks(page)}
    assert shown >= {"README.md", "agent_markov.md", "ags.md", "gp_irl.md", "noisy_mdp.md", "role_hmm.md"}
