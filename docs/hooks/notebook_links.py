"""Links on every notebook page: to the notebook itself, and to Colab where the repository is on GitHub.

The site has each notebook beside its page, as it ran. If `repo_url` of mkdocs.yml is known, the notebook begins with
the command that installs ethogram from there. Colab reads it from the branch that the site is published to,
`extra.colab_branch` of mkdocs.yml, gh-pages by default.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

__all__ = ["on_page_content", "on_post_page"]

GITHUB = re.compile(r"https://github\.com/(?P<name>[\w.-]+/[\w.-]+?)(?:\.git)?/?")
EXTRAS = "imitation,planning"
"""What notebooks import besides."""


def on_page_content(content: str, *, page: Any, config: Any, **others: Any) -> str:
    """The page with its links above; a page that is no notebook as it stands."""
    place = page.file.src_uri
    if not place.endswith(".ipynb"):
        return content
    here = page.url if page.url.endswith("/") else posixpath.dirname(page.url)
    links = [f'<a href="{posixpath.relpath(place, here)}" download>Download this notebook</a>']
    found = GITHUB.fullmatch(config.repo_url or "")
    if found:
        branch = (config.extra or {}).get("colab_branch", "gh-pages")
        address = f"https://colab.research.google.com/github/{found['name']}/blob/{branch}/{place}"
        links.append(f'<a href="{address}">Open in Colab</a>')
    return f"<p>{' | '.join(links)}</p>\n{content}"


def on_post_page(output: str, *, page: Any, config: Any, **others: Any) -> str:
    """The page unchanged; its notebook is written to the site."""
    if page.file.src_uri.endswith(".ipynb"):
        book = json.loads(Path(page.file.abs_src_path).read_text(encoding="utf-8"))
        if config.repo_url:
            book["cells"].insert(0, _installation(config.repo_url))
        target = Path(config.site_dir) / page.file.src_uri
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(json.dumps(book, indent=1), encoding="utf-8")
    return output


def _installation(address: str) -> dict[str, Any]:
    command = f'%pip install -q "ethogram[{EXTRAS}] @ git+{address.rstrip("/")}"'
    cell = {"cell_type": "code", "id": "installation", "metadata": {}, "source": command}
    return {**cell, "execution_count": None, "outputs": []}
