"""The Python blocks of README and docs run as they stand, those of a page in order, in a folder of its own."""

from __future__ import annotations

import functools
import re
import runpy
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import jax
import jupytext
import nbformat
import pytest
from numpyro.infer import MCMC, NUTS

import ethogram
from ethogram.fits import fit_object, systems
from ethogram.inference.conjugate import ConjugateSVI, gibbs_draws

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLDERS = runpy.run_path(str(ROOT / "docs" / "hooks" / "folders.py"))["folder_pages"]()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *FOLDERS]


def title(page: Path) -> str:
    """How a test names a page."""
    return page.name if page.name != "README.md" else page.relative_to(ROOT).as_posix()


def blocks(page: Path) -> list[str]:
    """Python blocks of a page."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.fixture
def short(monkeypatch):
    """Fits and samplers that stop soon: a page shows how they are called, and the tests of each what they find."""
    run, make, export = ConjugateSVI.run, MCMC.__init__, ethogram.to_arviz

    @functools.wraps(run)
    def run_shortly(self, key, data, num_steps, **settings):
        return run(self, key, data, min(num_steps, 10), **{"restarts": 2, **settings})

    @functools.wraps(make)
    def make_short(self, sampler, *, num_warmup, num_samples, **settings):
        if isinstance(sampler, NUTS):
            sampler._max_tree_depth = 3
        make(self, sampler, num_warmup=min(num_warmup, 10), num_samples=min(num_samples, 20), **settings)

    @functools.wraps(export)
    def export_few(*given, num_draws=50, **options):
        return export(*given, num_draws=min(num_draws, 50), **options)

    monkeypatch.setattr(gibbs_draws, "FIRST", 1)
    monkeypatch.setattr(ConjugateSVI, "run", run_shortly)
    monkeypatch.setattr(MCMC, "__init__", make_short)
    for place in (ethogram, systems, fit_object):
        monkeypatch.setattr(place, "to_arviz", export_few)
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


FITTED = {"README.md", "fitting.md"}
"""Pages whose fits run, if not for long; those of the others only start."""


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=title)
def test_blocks_run(page, tmp_path, request, monkeypatch):
    """In single precision, as users run them, in a folder and with names of their own."""
    request.getfixturevalue("short" if title(page) in FITTED else "starts_only")
    monkeypatch.chdir(tmp_path)
    code = compile("\n".join(blocks(page)), page.name, "exec")
    with jax.enable_x64(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws have not converged
        exec(code, {"__name__": "__main__"})


def test_every_system_has_a_page_with_a_block():
    shown = {title(page) for page in PAGES if blocks(page)}
    assert shown >= {"README.md", "agent_markov.md", "ags.md", "gp_irl.md", "noisy_mdp.md", "role_hmm.md"}


def test_every_page_is_in_the_navigation():
    """A page that is forgotten there cannot be found; the strict build refuses entries without a page."""
    listed = set(re.findall(r"[\w/]+[.]md$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    pages = {page.relative_to(ROOT).as_posix().removeprefix("docs/") for page in PAGES[1:]}
    assert listed == pages


def test_every_folder_has_a_page_that_names_its_files():
    """Twenty to sixty lines, each name of a file that of one that is there."""
    layers = (
        "models/*/__init__.py",
        "inference/*/__init__.py",
        "domains/__init__.py",
        "src/ethogram/*/__init__.py",
    )
    folders = {path.parent for layer in layers for path in ROOT.glob(layer)}
    inside = {f for f in folders if not f.is_symlink() and f.parent.name != "domains"}
    assert {page.parent for page in FOLDERS} == inside
    for page in FOLDERS:
        text = page.read_text(encoding="utf-8")
        assert 20 <= len(text.splitlines()) <= 60, page
        for name in re.findall(r"`(\w+[.]py)`", text):
            assert (page.parent / name).is_file(), f"{title(page)}: {name}"


def anchors(text: str) -> set[str]:
    """Anchors of the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", *PAGES], ids=title)
def test_links_and_their_anchors_exist(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        place, _, anchor = link.partition("#")
        target = page.parent / place if place else page
        if target.suffix == ".ipynb":  # the site makes it from the text of the notebook
            target = ROOT / "notebooks" / f"{target.stem}.py"
        assert target.is_file(), f"{page.name}: {link}"
        assert not anchor or anchor in anchors(target.read_text(encoding="utf-8")), f"{page.name}: {link}"


CITED = re.compile(r"`(tests/[\w/]+[.]py)::(\w+)`")


def test_every_test_that_a_page_cites_exists():
    cited = {found for page in PAGES for found in CITED.findall(page.read_text(encoding="utf-8"))}
    assert len(cited) > 50
    for path, name in cited:
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"


def test_every_erratum_names_its_tests():
    """By letters of the list below its table, all of which are used; or it says that there is none."""
    for section in (ROOT / "docs" / "errata.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        named = re.findall(rf"^- ([A-Z]): {CITED.pattern}$", section, re.MULTILINE)
        cells = re.findall(r"^\| .* \| ([^|]+) \|$", section, re.MULTILINE)[1:]
        letters = {letter.strip("*") for cell in cells if cell != "none" for letter in cell.split(", ")}
        assert len(cells) > 4 and letters == {letter for letter, *_ in named}, section.splitlines()[0]


@pytest.mark.parametrize(
    ("address", "extra", "colab"),
    [
        (None, {}, None),
        ("https://git.example.org/someone/ethogram", {}, None),
        ("https://github.com/someone/etho.gram/", {}, "someone/etho.gram/blob/gh-pages"),
        ("https://github.com/someone/ethogram.git", {"colab_branch": "site"}, "someone/ethogram/blob/site"),
    ],
)
def test_notebook_pages_link_to_their_notebooks(address, extra, colab, tmp_path):
    hook = runpy.run_path(str(ROOT / "docs" / "hooks" / "notebook_links.py"))
    source = tmp_path / "01_a.ipynb"
    jupytext.write(jupytext.read(ROOT / "notebooks" / "01_roles.py"), source)
    config = SimpleNamespace(repo_url=address, extra=extra, site_dir=str(tmp_path / "site"))
    file = SimpleNamespace(src_uri="notebooks/01_a.ipynb", abs_src_path=str(source))
    page = SimpleNamespace(file=file, url="notebooks/01_a/")
    links = re.findall(r'href="([^"]+)"', hook["on_page_content"]("<h1>A</h1>", page=page, config=config))
    place = f"https://colab.research.google.com/github/{colab}/notebooks/01_a.ipynb"
    assert links == (["../01_a.ipynb"] if colab is None else ["../01_a.ipynb", place])
    assert hook["on_post_page"]("<html>", page=page, config=config) == "<html>"
    cells = nbformat.read(tmp_path / "site" / file.src_uri, as_version=4).cells  # which validates it
    before = nbformat.read(source, as_version=4).cells
    added = cells[: len(cells) - len(before)]
    assert [cell.source for cell in cells[len(added) :]] == [cell.source for cell in before]
    asked = f'%pip install -q "ethogram[imitation,planning] @ git+{(address or "").rstrip("/")}"'
    assert [cell.source for cell in added] == ([asked] if address else [])
    page.file.src_uri = "live.md"
    assert hook["on_page_content"]("<h1>A</h1>", page=page, config=config) == "<h1>A</h1>"


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        ("a\n\n.. math:: x_i\n          + y\n\nb", "a\n\n\n\\[x_i + y\\]\n\n\nb"),
        ("a\n\n    .. math::\n\n        x\n\n        y\n\n    b", "a\n\n\n    \\[x y\\]\n\n\n    b"),
        ("with :math:`\\phi` and :func:`read`", "with \\(\\phi\\) and `read`"),
        (":class:`~ethogram.a.B`, :func:`ethogram.c`", "[`B`][ethogram.a.B], [`ethogram.c`][ethogram.c]"),
        (":meth:`A.b <ethogram.A.b>`", "[`A.b`][ethogram.A.b]"),
        ("``x`` : an array", "``x`` : an array"),
    ],
)
def test_docstrings_become_markdown(docstring, markdown):
    namespace = runpy.run_path(str(ROOT / "docs" / "hooks" / "docstring_markup.py"))
    converted = namespace["to_markdown"](docstring)
    assert re.sub(r"\n+", "\n", converted) == re.sub(r"\n+", "\n", markdown)
