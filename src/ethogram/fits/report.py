"""A page of HTML about a fit that needs no other file."""

from __future__ import annotations

import base64
import html
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from ethogram.inference import storage
from ethogram.inference.conjugate import ConjugateResult
from ethogram.models.choices import Decisions
from ethogram.models.data import Trajectories

__all__ = ["write_report"]

STYLE = """
body { font-family: system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; }
tbody th { text-align: left; font-weight: normal; }
img { max-width: 100%; } pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; }
.note { color: #8a4b00; }
"""
MOST_ROWS = 60
CITATION = (
    "ethogram: probabilistic models of sequential decision making (see CITATION.cff), version {version}."
)


def write_report(fit: Any, path: Path) -> Path:
    """The page of a fit, written to `path`."""
    import ethogram

    storage.require_folder(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        table = fit.summary()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the notes have them
        picture = _picture(fit)
    notes = [str(each.message) for each in caught if issubclass(each.category, UserWarning)]
    name = type(fit.model).__name__
    shown = table if len(table) <= MOST_ROWS else table.head(MOST_ROWS)
    left = len(table) - len(shown)
    numbers = shown.to_html(border=0, float_format=lambda value: f"{value:.4g}", na_rep="-")
    parts = [
        f"<h1>{name}, by {html.escape(fit.method)}</h1>",
        _paragraph(_about_data(fit.data)),
        _paragraph(_about_fit(fit)),
        *[f'<p class="note">{html.escape(note)}</p>' for note in notes],
        f'<img alt="the fit" src="data:image/png;base64,{picture}">',
        f"<h2>Estimates</h2>{numbers}",
        _paragraph(f"{left} more rows: fit.summary() has them all.") if left else "",
        f"<h2>The same in Python</h2><pre>{html.escape(_code(fit))}</pre>",
        f"<h2>Citation</h2>{_paragraph(CITATION.format(version=ethogram.__version__))}",
    ]
    page = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
    page += f"<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>"
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(page, encoding="utf-8")
    temporary.replace(path)
    return path


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _picture(fit: Any) -> str:
    from matplotlib.figure import Figure

    buffer = io.BytesIO()
    fit.plot(Figure(figsize=(11, 5), layout="constrained")).savefig(buffer, format="png", dpi=110)
    return base64.b64encode(buffer.getvalue()).decode()


def _about_data(data: Any) -> str:
    """What was read, in a sentence."""
    if isinstance(data, Trajectories):
        steps = int(np.asarray(data.lengths).sum())
        seen = int(np.asarray(data.observed).sum())
        text = f"Data: {data.num_sequences} sequences of {steps} steps, of which {seen} are observed"
        names = data.metadata.feature_names
        return text + (f"; features {', '.join(names)}." if names else ".")
    if isinstance(data, Decisions):
        legal = np.asarray(data.legal)
        return f"Data: {len(legal)} decisions between up to {legal.shape[1]} options."
    if data is None:
        return "A query: the evidence is part of it."
    return f"Data: counts of states and actions, {int(np.sum(data))} in all."


def _about_fit(fit: Any) -> str:
    """How it was fitted, and whether that has settled."""
    text = f"Fitted in {fit.seconds:.1f} s by {fit.method}" + (f": {fit.why}." if fit.why else ".")
    found = fit.result
    if isinstance(found, ConjugateResult):
        end = (
            f"converged after {found.step} steps"
            if found.converged
            else f"not converged after {found.step} steps"
        )
        return f"{text} {end}; ELBO {float(found.elbo[-1]):.2f} nats, the best of {len(found.restart_elbos)} starts."
    if hasattr(found, "proved_optimal"):
        proof = "proved optimal" if found.proved_optimal else f"upper bound {found.upper_bound:.3f}"
        return f"{text} Log probability {found.log_probability:.3f} ({found.kind}), {proof}."
    if hasattr(found, "converged"):
        return f"{text} {'Converged' if found.converged else 'Not converged'}."
    return f"{text} Effective samples and r_hat are in the table."


def _code(fit: Any) -> str:
    name = type(fit.model).__name__
    given = "query" if fit.data is None else "model, data"
    return (
        "import jax\nimport ethogram\n\n"
        f"# {given}: a {name}" + ("" if fit.data is None else " and the data, as read") + "\n"
        f"fit = ethogram.fit(jax.random.key(0), {given}, method={fit.method!r})\n"
        "print(fit.summary())\nfit.plot().savefig('fit.png')\nfit.to_arviz()\n"
    )
