"""A page of HTML about a fit that needs no other file."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ethogram.inference import storage
from ethogram.inference.conjugate import ConjugateResult, ScoreCurve
from ethogram.inference.conjugate.moves import EMPTY
from ethogram.inference.imitation import ImitationResult
from ethogram.models.choices import Decisions
from ethogram.models.conjugate_model import overrides
from ethogram.models.data import Trajectories
from ethogram.models.data.gaps import lacking
from ethogram.models.held_warnings import held_warnings
from ethogram.models.whole_files import replacing

__all__ = ["about_data", "about_fit", "write_report"]

STYLE = """
body { font-family: system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; }
tbody th { text-align: left; font-weight: normal; }
img { max-width: 100%; } pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; }
.note { color: #8a4b00; }
"""
MOST_ROWS = 60
MOST_BYTES = 2_000_000
"""Of a picture of vectors."""
CITATION = (
    "ethogram: probabilistic models of sequential decision making (see CITATION.cff), version {version}."
)


def write_report(fit: Any, path: Path, scores: ScoreCurve | None = None) -> Path:
    """The page of a fit, written to `path`; with the held-out scores by which its size was picked, where given."""
    import ethogram

    storage.require_folder(path)
    with held_warnings() as notes:
        table = fit.summary()
    with held_warnings():  # the notes have them
        picture = _image("the fit", (11, 5), fit.plot)
    name = type(fit.model).__name__
    shown = table if len(table) <= MOST_ROWS else table.head(MOST_ROWS)
    left = len(table) - len(shown)
    numbers = shown.to_html(border=0, float_format=lambda value: f"{value:.4g}", na_rep="-")
    parts = [
        f"<h1>{name}, by {html.escape(fit.method)}</h1>",
        _paragraph(about_data(fit.data)),
        _paragraph(about_fit(fit)),
        *[f'<p class="note">{html.escape(note)}</p>' for note in dict.fromkeys(notes)],
        picture,
        "" if scores is None else _about_size(scores),
        f"<h2>Estimates</h2>{numbers}",
        _paragraph(f"{left} more rows: fit.summary() has them all.") if left else "",
        f"<h2>The same in Python</h2><pre>{html.escape(_code(fit))}</pre>",
        f"<h2>Citation</h2>{_paragraph(CITATION.format(version=ethogram.__version__))}",
    ]
    page = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
    page += f"<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>"
    with replacing(path, "w", encoding="utf-8") as file:
        file.write(page)
    return path


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>"


def _image(what: str, size: tuple[float | int, float | int], draw: Callable[[Any], Any]) -> str:
    """A picture, inside the page, drawn into a figure of this size: vectors, or dots where those are many."""
    from matplotlib.figure import Figure

    figure, buffer = Figure(figsize=size, layout="constrained"), io.BytesIO()
    draw(figure)
    kind = "svg+xml"
    figure.savefig(buffer, format="svg", dpi=200)
    if buffer.tell() > MOST_BYTES:
        kind, buffer = "png", io.BytesIO()
        figure.savefig(buffer, format="png", dpi=200)
    encoded = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{what}" src="data:image/{kind};base64,{encoded}">'


def _about_size(scores: ScoreCurve) -> str:
    """How the size of the model was picked, with a picture."""
    from ethogram.plots.roles import score_curve

    text = (
        f"{scores.selected_size}, the least of {scores.size.min()} to {scores.size.max()} within one standard error of "
        "the best held-out score."
    )
    caution = f'<p class="note">{html.escape(scores.caution)}.</p>' if scores.caution else ""
    picture = _image("held-out scores", (6, 4), lambda figure: score_curve(scores, figure.subplots()))
    return f"<h2>Number of roles</h2>{_paragraph(text)}{caution}{picture}"


def about_data(data: Any) -> str:
    """What was read, and what is missing in it, in a few sentences."""
    if isinstance(data, Trajectories):
        names, lengths = data.metadata.feature_names, np.asarray(data.lengths)
        text = f"{_source(data)}: {data.num_sequences} sequences of {lengths.sum()} steps in all"
        return (
            text
            + (f"; features {', '.join(names)}." if names else ".")
            + _about_missing(data, lengths)
            + _about_features(data)
        )
    if isinstance(data, Decisions):
        legal, unknown = np.asarray(data.legal), int((np.asarray(data.choice) < 0).sum())
        text = f"{_source(data)}: {len(legal)} decisions between up to {legal.shape[1]} options."
        return text + (f" {unknown} have no chosen option, and are left out." if unknown else "")
    if data is None:
        return "A query: the evidence is part of it."
    return f"Data: counts of states and actions, {int(np.sum(data))} in all."


def _source(data: Any) -> str:
    return "Data" if data.metadata.name is None else f"Data {data.metadata.name}"


def _about_missing(data: Trajectories, lengths: np.ndarray) -> str:
    """Missing frames of trajectories, and the gaps that they make."""
    missing = ~np.asarray(data.observed) & (np.arange(data.observed.shape[1]) < lengths[:, None])
    if not missing.any():
        return " No frame is missing."
    ends = np.diff(np.pad(missing, ((0, 0), (1, 1))).astype(int).ravel())
    gaps = np.flatnonzero(ends == -1) - np.flatnonzero(ends == 1)
    noun = "gaps" if len(gaps) > 1 else "gap"
    text = f" {missing.sum()} frames are missing, in {len(gaps)} {noun}, the longest of {gaps.max()} frames"
    if data.times is None:
        return f"{text}."
    times = np.asarray(data.times)
    without = missing & (np.isnan(times) if times.dtype.kind == "f" else times == -1)
    return f"{text}: {without.sum()} without a row, {missing.sum() - without.sum()} without values."


def _about_features(data: Trajectories) -> str:
    """In how many of the other frames each feature is missing; nothing where none is."""
    if data.observations is None:
        return ""
    gaps = lacking(np.asarray(data.observations), np.asarray(data.observed))
    lack = gaps.sum(axis=(0, 1))
    if data.observations.shape[2] == 1 or not lack.any():
        return ""
    names = data.metadata.feature_names or [f"feature {number}" for number in range(len(lack))]
    each = ", ".join(f"{name} in {count}" for name, count in zip(names, lack, strict=True) if count)
    return f" Of the others {gaps.any(axis=2).sum()} lack some feature: {each}."


def about_fit(fit: Any) -> str:
    """How it was fitted, and whether that has settled."""
    text = f"Fitted in {fit.seconds:.1f} s by {fit.method}" + (f": {fit.why}." if fit.why else ".")
    found = fit.result
    if isinstance(found, ConjugateResult):
        end = (
            f"Converged after {found.step} steps"
            if found.converged
            else f"Not converged after {found.step} steps"
        )
        text = f"{text} {end}; ELBO {float(found.elbo[-1]):.2f} nats, the best of {len(found.restart_elbos)} starts."
        return text + _about_truncation(found.posterior)
    if isinstance(found, ImitationResult):
        told = f"{100 * found.failure[-1]:.0f} % of the fresh games of the last of {len(found.failure)} rounds failed"
        return f"{text} {told}; {found.steps[-1]:.1f} steps a game, loss {found.loss[-1]:.4g}."
    if hasattr(found, "proved_optimal"):
        proof = "proved optimal" if found.proved_optimal else f"upper bound {found.upper_bound:.3f}"
        return f"{text} Log probability {found.log_probability:.3f} ({found.kind}), {proof}."
    if hasattr(found, "converged"):
        return f"{text} {'Converged' if found.converged else 'Not converged'}."
    return f"{text} Effective samples and r_hat are in the table."


def _about_truncation(posterior: Any) -> str:
    """Whether a fit that learns how many states are used has used all that were offered."""
    if not overrides(posterior.model, "state_mass"):
        return ""
    mass = np.asarray(_mass(posterior.model, posterior.blocks))
    if not (mass > EMPTY).all() or len(mass) < 2:
        return ""
    return f" All {len(mass)} intents that the truncation offers are used: offer more."


@jax.jit
def _mass(model: Any, blocks: Any) -> Any:
    """Expected steps (state,) in every state, by one program."""
    return model.state_mass(blocks)


def _code(fit: Any) -> str:
    name = type(fit.model).__name__
    given = "query" if fit.data is None else "model, data"
    return (
        "import jax\nimport ethogram\n\n"
        f"# {given}: a {name}" + ("" if fit.data is None else " and the data, as read") + "\n"
        f"fit = ethogram.fit(jax.random.key(0), {given}, method={fit.method!r})\n"
        "print(fit.summary())\nfit.plot().savefig('fit.png')\nfit.to_arviz()\n"
    )
