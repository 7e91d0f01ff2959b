"""One example of the tour: load, fit, compare with the truth, draw and write."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ethogram.models.whole_files import whole_file

if TYPE_CHECKING:
    from jax import Array
    from matplotlib.figure import Figure

__all__ = ["Example", "TourReport", "run"]

LENGTHS = ("num_steps", "num_warmup", "num_samples")
"""Settings that are increased where a fit has not converged."""

LONGER = (1, 2, 4)
EXPORT = {"num_draws": 100, "log_likelihood": None, "posterior_predictive": False}
"""What a ``.nc`` file has: draws and data."""


class Example(NamedTuple):
    """A system fitted to bundled data.

    Attributes
    ----------
    about : the data, in a few words.
    load : of a key and whether the long form runs: the data, and what `model`, `truth` and `draw` have to know.
    model : of what is known.
    settings, full : of the fit, with its ``method``; those of the long form where they differ.
    truth : of the fit and what is known: rows of a quantity, its estimate, and the truth or a reference.
    draw : the fit, with what is known, into a figure of `size` inches.
    fit : `ethogram.fit`, or what returns an object with ``seconds`` and ``to_arviz()``.
    """

    about: str
    load: Callable[[Array, bool], tuple[Any, Any]]
    model: Callable[[Any], Any]
    settings: Mapping[str, Any]
    full: Mapping[str, Any]
    truth: Callable[[Any, Any], Sequence[tuple[str, str, str]]]
    draw: Callable[[Any, Any, Figure], None]
    size: tuple[float, float]
    fit: Callable[..., Any] | None = None


class TourReport(NamedTuple):
    """Result of one system's tour."""

    rows: Sequence[Mapping[str, str]]  # of the table: quantity, learned, truth, seconds
    files: Sequence[Path]  # that were written; none where the fit has not converged


def run(
    example: Example, name: str, out: Path, say: Callable[[str], None], *, full: bool = False, seed: int = 0
) -> TourReport:
    """Report of an example, whose figure and ArviZ file are written to the folder `out`; `say` takes progress."""
    import jax
    from matplotlib.figure import Figure

    import ethogram

    key_data, key_fit = jax.random.split(jax.random.key(seed))
    data, known = example.load(key_data, full)
    settings = {**example.settings, **(example.full if full else {})}
    for longer in LONGER if settings.keys() & {*LENGTHS} else LONGER[:1]:
        say(f"{example.about}: {settings['method']}" + (f", {longer} times as long" * (longer > 1)))
        chosen = {key: value * longer if key in LENGTHS else value for key, value in settings.items()}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "[0-9]+ features are constant")  # and vary in other worlds
            warnings.filterwarnings("ignore", ".* not converged")  # which is seen here
            fit = (example.fit or ethogram.fit)(key_fit, example.model(known), data, **chosen)
        if converged := has_converged(fit):
            break
    row = {
        "quantity": example.about,
        "learned": f"by {settings['method']}",
        "truth": "-",
        "seconds": f"{fit.seconds:.1f}",
    }
    if not converged:
        return TourReport([row | {"learned": "not converged: nothing is shown"}], [])
    rows = [
        row,
        *(
            dict(zip(("quantity", "learned", "truth"), line, strict=True))
            for line in example.truth(fit, known)
        ),
    ]
    figure = Figure(figsize=example.size, layout="constrained")
    example.draw(fit, known, figure)
    files = [out / f"{name}.png", out / f"{name}.nc"]
    with whole_file(files[0]) as draft:
        figure.savefig(draft, dpi=150)
    say(f"wrote {files[0]}")
    with whole_file(files[1]) as draft:
        fit.to_arviz(**EXPORT).to_netcdf(str(draft), engine="h5netcdf")
    say(f"wrote {files[1]}")
    return TourReport(rows, files)


def has_converged(fit: Any) -> bool:
    """Whether an estimate may be shown: chains have enough effective draws and agree; a search says so itself."""
    from ethogram.inference.convergence import convergence
    from ethogram.inference.sampled_posterior import SampledPosterior

    result = getattr(fit, "result", None)
    if isinstance(result, SampledPosterior):
        return all(convergence(site).enough for site in result.sites.values())
    return bool(getattr(result, "converged", True))
