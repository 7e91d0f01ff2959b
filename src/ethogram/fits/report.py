"""A page of HTML about a fit that needs no other file."""

from __future__ import annotations

import base64
import html
import io
import os
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ethogram.fits.citations import PAPERS, SOFTWARE
from ethogram.inference import storage
from ethogram.inference.conjugate import ConjugateResult, ScoreCurve
from ethogram.models.choices.decisions import decisions_in_words
from ethogram.models.data import Trajectories, valid_steps
from ethogram.models.data.description import trajectories_in_words
from ethogram.models.data.gaps import lacking
from ethogram.models.data.parts import in_parts
from ethogram.models.held_warnings import held_warnings
from ethogram.models.whole_files import replacing

__all__ = ["about_data", "about_fit", "write_report"]

PAGE = string.Template("""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>$name</title><style>
body { font-family: system-ui, sans-serif; max-width: 62rem; margin: 1rem auto; padding: 0 1rem; color: #222;
  line-height: 1.45; overflow-wrap: anywhere; }
.wide { overflow-x: auto; margin: .6rem 0; overflow-wrap: normal; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
td, th { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap; }
tbody th { text-align: left; font-weight: normal; }
img { max-width: 100%; height: auto; } pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; }
summary { cursor: pointer; } .note { color: #8a4b00; }
@media (max-width: 40rem) { .wide img { width: 44rem; max-width: none; } }
</style></head><body><h1>$name, by $method</h1>
$faults<h2>What was read</h2><p>$data</p>
<h2>How it was fitted</h2><p>$fit</p>$size
<h2>What was found</h2>$found$figure$tables
<h2>Parameters</h2><details$open><summary>$count</summary>$table<p>$rest</p></details>
<h2>The same again</h2>$code
<h2>Citation</h2>$citation</body></html>
""")
NO_CALL = "# fit: put together from its parts, not by a call of ethogram.fit"
MOST_ROWS = 60
MAX_SVG_BYTES = 2_000_000
"""Above it a figure is a PNG."""


def write_report(fit: Any, path: str | os.PathLike, scores: ScoreCurve | None = None) -> Path:
    """The page of a fit, written to `path`.

    Parameters
    ----------
    scores : held-out scores by which the size of the model was picked.
    """
    import ethogram

    storage.require_folder(path)
    with held_warnings():  # findings say what they warn of
        table, found = fit.summary(), fit._system.findings(fit)
        figure = _image("the fit", (11, 5), fit.plot)
    rest, anything = len(table) - MOST_ROWS, bool(found.sentences)
    papers = [PAPERS[kind.__name__] for kind in type(fit.model).__mro__ if kind.__name__ in PAPERS]
    page = PAGE.substitute(
        name=html.escape(type(fit.model).__name__),
        method=html.escape(fit.method),
        data=html.escape(about_data(fit.data)),
        fit=html.escape(about_fit(fit)),
        faults="".join(_tag(str(finding), kind="note") for finding in fit.diagnose()),
        figure=figure,
        size="" if scores is None else _about_size(scores),
        found="".join(map(_tag, found.sentences)),
        tables="".join(_tag(title, "h3") + _table(each) for title, each in found.tables.items()),
        open="" if anything else " open",
        count=f"{len(table)} estimates",
        table=_table(table),
        rest=f"{rest} more rows: fit.summary() has them all." if rest > 0 else "",
        code=_tag(f"{fit.code or NO_CALL}\nprint(fit.summary())", "pre"),
        citation="".join(map(_tag, [SOFTWARE.format(version=ethogram.__version__), *papers])),
    )
    with replacing(path, "w", encoding="utf-8") as file:
        file.write(page)
    return Path(path)


def _tag(text: str, name: str = "p", kind: str = "") -> str:
    """An element of HTML that has a text."""
    return f"<{name}{kind and f' class={kind}'}>{html.escape(text)}</{name}>"


def _table(table: Any) -> str:
    """The first rows of a table, in a box of its own that scrolls on a narrow screen."""
    shown = table.head(MOST_ROWS).dropna(axis=1, how="all")
    times = {name: column.dt.round("s") for name, column in shown.items() if column.dtype.kind == "m"}
    page = shown.assign(**times).to_html(border=0, float_format="{:.4g}".format, na_rep="-")
    return f'<div class="wide">{page}</div>'


def _image(what: str, size: tuple[float | int, float | int], draw: Callable[[Any], Any]) -> str:
    """A figure of this size inside the page: as SVG, or as PNG where that would be large."""
    from matplotlib.figure import Figure

    figure, buffer, kind = Figure(figsize=size, layout="constrained"), io.BytesIO(), "svg+xml"
    draw(figure)
    figure.savefig(buffer, format="svg", dpi=200)
    if buffer.tell() > MAX_SVG_BYTES:
        buffer, kind = io.BytesIO(), "png"
        figure.savefig(buffer, format="png", dpi=200)
    source = f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
    kind = ' class="wide"' if size[0] > 8 else ""  # others fit a phone
    return f'<div{kind}><img alt="{what}" src="{source}"></div>'


def _about_size(scores: ScoreCurve) -> str:
    """How the size of the model was picked, with a figure."""
    from ethogram.plots.roles import score_curve

    text = (
        f"{scores.selected_size}, the least of {scores.size.min()} to {scores.size.max()} within one standard error of "
        "the best held-out score."
    )
    caution = _tag(f"{scores.caution}.", kind="note") if scores.caution else ""
    figure = _image("held-out scores", (6, 4), lambda figure: score_curve(scores, figure.subplots()))
    return f"<h2>Number of roles</h2>{_tag(text)}{caution}{figure}"


def about_data(data: Any) -> str:
    """What was read, and what is missing in it, in one sentence."""
    if data is None:
        return "A query: the evidence is part of it."
    if not hasattr(data, "metadata"):
        return f"Data: counts of states and actions, {int(np.sum(data))} in all."
    parts = _about_trajectories(data) if isinstance(data, Trajectories) else decisions_in_words(data)
    return f"{' '.join(filter(None, ['Data', data.metadata.name]))}: {'; '.join(parts)}."


def _about_trajectories(data: Trajectories) -> list[str]:
    """Size, dates and features, the gaps that missing frames make, and features missing in other frames."""
    names, parts = data.metadata.feature_names, trajectories_in_words(data)
    gaps, without, counts = np.zeros(0, int), 0, np.zeros(1, int)
    for _, part in in_parts(data):
        missing = ~np.asarray(part.observed) & valid_steps(part)
        ends = np.diff(np.pad(missing, ((0, 0), (1, 1))).astype(int).ravel())
        gaps = np.append(gaps, np.flatnonzero(ends == -1) - np.flatnonzero(ends == 1))
        if data.times is not None:
            times = np.asarray(part.times)
            without += (missing & (np.isnan(times) if times.dtype.kind == "f" else times == -1)).sum()
        if data.observations is not None:
            counts = counts + lacking(np.asarray(part.observations), np.asarray(part.observed)).sum(
                axis=(0, 1)
            )
    if len(gaps):
        parts.append(f"gaps: {len(gaps)}, longest: {gaps.max()} frames")
        if data.times is not None:
            parts.append(f"missing frames without a row: {without}")
    if data.observations is not None and np.shape(data.observations)[2] > 1:
        every = names or [f"feature {number}" for number in range(len(counts))]
        each = [f"{count} without {name}" for name, count in zip(every, counts, strict=True) if count]
        parts += [f"frames that lack a feature: {', '.join(each)}"] if each else []
    return parts


def about_fit(fit: Any) -> str:
    """How the model was fitted, and whether the algorithm has converged."""
    reason = f": {fit.method_reason}." if fit.method_reason else "."
    return f"Fitted in {fit.seconds:.1f} s by {fit.method}{reason} {_outcome(fit.result)}"


def _outcome(found: Any) -> str:
    """Where an algorithm ended."""
    if isinstance(found, ConjugateResult):
        end = f"{'Converged' if found.converged else 'Not converged'} after {found.step} steps"
        elbo = f"ELBO {float(found.elbo[-1]):.2f} nats, the best of {len(found.restart_elbos)} starts"
        return f"{end}; {elbo}."
    if hasattr(found, "policies"):
        return found.outcome
    if hasattr(found, "proved_optimal"):
        proof = "proved optimal" if found.proved_optimal else f"upper bound {found.upper_bound:.3f}"
        return f"Log probability {found.log_probability:.3f} ({found.kind}), {proof}."
    if hasattr(found, "converged"):
        return "Converged." if found.converged else "Not converged."
    return "Effective sample sizes and r_hat are in the table."
