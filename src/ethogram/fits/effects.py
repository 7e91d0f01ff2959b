"""What covariates do to the switching of states: effects, curves along a covariate, and budgets of the long run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from ethogram.fits.estimates import exported_entries
from ethogram.inference.diagnostics import Finding, Level
from ethogram.inference.diagnostics.paths import of_rare_states
from ethogram.inference.draws import flat_draws
from ethogram.models.arguments import require_number
from ethogram.models.roles import CovariateRoleHMM
from ethogram.plots.axes import figure_or_new, show_plainly
from ethogram.plots.covariates import covariate_curves

__all__ = ["curves", "effects", "entries", "faults", "long_run", "plot_covariate", "refuse_forecast"]

NUM_POINTS = 50
"""Of a curve along a covariate."""
UNTOLD = 0.9
"""Posterior standard deviation of an effect over that of the prior, from which on the data said nothing of it."""
RUNAWAY = 2.5
"""Mean of an effect in standard deviations of its prior, from which on it is doubtful that the data bound it."""


def entries(fit: Any, **options: Any) -> tuple[list[str], np.ndarray]:
    """Names and draws of the estimates; staying, the reference of all changes of state, has none."""
    names, draws = exported_entries(fit, **options)
    kept = np.flatnonzero((draws != 0).any((0, 1)))
    return [names[at] for at in kept], draws[..., kept]


def faults(fit: Any, thorough: bool) -> Iterator[Finding]:
    """States of few frames, and effects that the prior decides: of changes that were hardly seen, or run away."""
    states = fit.states()
    yield from of_rare_states(states.frames, states.names)
    model, draws = _model_and_draws(fit)
    found, names = model.transition.encoding, fit.state_names
    fixed = np.flatnonzero(~found.is_smooth)
    each = draws["effect"][..., fixed].astype(float) * found.spread[fixed] / model.transition.scale
    off = ~np.eye(len(names), dtype=bool)
    checks = (
        (
            (each.std(0) > UNTOLD) & off[..., None],
            "are as uncertain as their prior",
            "Give fewer states or covariates.",
        ),
        (
            (np.abs(each.mean(0)) > RUNAWAY) & off[..., None],
            f"lie over {RUNAWAY:g} standard deviations of their prior from 0, which alone may bound them",
            "See whether the covariate tells the change perfectly; report what another scale= of Covariates gives.",
        ),
    )
    for wrong, said, advice in checks:
        if wrong.any():
            one, other, column = np.argwhere(wrong)[0]
            example = f"{found.names[fixed[column]]} of {names[one]} to {names[other]}"
            words = f"{int(wrong.sum())} of {int(off.sum()) * len(fixed)} effects, such as {example}, {said}."
            yield Finding("prior", Level.CAUTION, words, advice, float(wrong.mean()))


def refuse_forecast(fit: Any, data: Any) -> Any:
    """Raise TypeError: predictions need covariates of steps that are not there, or how long a state has lasted."""
    raise TypeError(
        "predictions need the covariates of the steps to come, or how long states have lasted: append these steps to "
        "the data as missing frames, and read fit.states(data)"
    )


def effects(fit: Any, probability: float) -> Any:
    """The table that `Fit.effects` describes."""
    import pandas

    model, draws = _model_and_draws(fit)
    tail = _tail(probability)
    names, columns, rows, index = fit.state_names, model.transition.encoding.names, [], []
    if not columns:
        raise TypeError(
            "the model has no covariates: give RoleHMM(..., transition=ethogram.Covariates('temperature'))"
        )
    for one, other in itertools.permutations(range(len(names)), 2):
        for column, name in enumerate(columns):
            each = draws["effect"][:, one, other, column].astype(float)
            lower, upper = np.quantile(each, [tail, 1 - tail])
            odds = np.exp(np.array([each.mean(), lower, upper]))
            rows.append([each.mean(), each.std(ddof=1), lower, upper, *odds, (each > 0).mean()])
            index.append((names[one], names[other], name))
    titles = ["mean", "sd", "lower", "upper", "odds_ratio", "odds_lower", "odds_upper", "positive"]
    places = pandas.MultiIndex.from_tuples(index, names=["state", "next_state", "covariate"])
    return pandas.DataFrame(rows, index=places, columns=titles)


def curves(fit: Any, name: str, at: Mapping[str, Any] | None = None) -> tuple[Any, np.ndarray, np.ndarray]:
    """Values of a covariate, and draws of what transitions and the long run are there.

    Returns
    -------
    values (point,) of the covariate, numbers or levels; probabilities (draw, point, state, next_state) of transitions,
    and shares (draw, point, state) of time.
    """
    model, _ = _model_and_draws(fit)
    others = {other: value for other, value in (at or {}).items() if other != name}
    _require_covariates(model, [name, *others])
    for other, value in others.items():
        if np.ndim(value):
            raise ValueError(f"at has {value!r} for {other!r}: give one value, at which the curve is drawn")
    column = fit.data.covariate_frame()[name]
    if column.dtype == "category":
        values: Any = list(column.cat.remove_unused_categories().cat.categories)
    else:
        values = np.linspace(column.min(), column.max(), NUM_POINTS)
    matrices = _matrices(fit, {**others, name: values})[1]
    return values, matrices, stationary(matrices)


def long_run(fit: Any, at: Mapping[str, Any], probability: float) -> Any:
    """The table of `Fit.time_budget` at settings of the covariates."""
    import pandas

    tail = _tail(probability)
    model, _ = _model_and_draws(fit)
    if not isinstance(at, Mapping) or not at:
        raise TypeError(f"at is {at!r}: give values by covariate, such as {{'temperature': [5, 25]}}")
    _require_covariates(model, at)
    empty = [name for name, values in at.items() if np.ndim(values) and not len(values)]
    if empty:
        raise ValueError(f"at has no values for {empty[0]!r}: give one or more")
    settings, matrices = _matrices(fit, at)
    shares = stationary(matrices)
    rows, index = [], []

    def add(label: Any, each: Float[np.ndarray, "draw state"]) -> None:
        for state, name in enumerate(fit.state_names):
            lower, upper = np.quantile(each[:, state], [tail, 1 - tail])
            rows.append([each[:, state].mean(), lower, upper])
            index.append((*label, name))

    for point, setting in enumerate(settings):
        add(setting, shares[:, point])
    if len(settings) == 2:
        add(["difference"] * len(at), shares[:, 1] - shares[:, 0])
    places = pandas.MultiIndex.from_tuples(index, names=[*map(str, at), "state"])
    return pandas.DataFrame(rows, index=places, columns=["mean", "lower", "upper"])


def stationary(
    matrices: Float[np.ndarray, "... state next_state"],
) -> Float[np.ndarray, "... state"]:
    """Shares of time of the long run under transition matrices: pi P = pi, whose entries sum to 1."""
    count = matrices.shape[-1]
    system = np.swapaxes(np.eye(count) - matrices, -1, -2) + 1.0
    found = np.linalg.solve(system, np.ones((*matrices.shape[:-2], count, 1)))[..., 0]
    return np.clip(found, 0, 1)


def plot_covariate(fit: Any, name: str, figure: Any = None, at: Mapping[str, Any] | None = None) -> Any:
    """The figure of a covariate that `Fit.plot` describes."""
    values, matrices, shares = curves(fit, name, at)
    figure = figure_or_new(figure, (11, 4.5))
    units = dict(
        zip(fit.data.metadata.covariate_names, fit.data.metadata.covariate_units or (), strict=False)
    )
    label = f"{name} ({units[name]})" if units.get(name) else name
    observed = fit.data.covariate_frame()[name]
    covariate_curves(figure, values, matrices, shares, fit.state_names, label, observed)
    show_plainly(figure)
    return figure


def _model_and_draws(fit: Any) -> tuple[Any, dict[str, np.ndarray]]:
    if not isinstance(fit.model, CovariateRoleHMM):
        raise TypeError(
            f"a {type(fit.model).__name__} without Covariates has no effects: give "
            "RoleHMM(..., transition=ethogram.Covariates('temperature'))"
        )
    found = fit.draws()
    return found.model, flat_draws(found.sites)


def _tail(probability: float) -> float:
    require_number("probability", probability, above=0, below=1)
    return (1 - probability) / 2


def _require_covariates(model: Any, names: Iterable[str]) -> None:
    known = model.transition.variables()
    for name in names:
        if name not in known:
            raise ValueError(
                f"{name!r} is no covariate of the formula: it takes {', '.join(known) or 'none'}"
            )


def _matrices(
    fit: Any, at: Mapping[str, Any]
) -> tuple[list[tuple[Any, ...]], Float[np.ndarray, "draw point state next_state"]]:
    """Settings, every combination of the values, and draws of the transition probabilities there.

    Of the population: of a subject whose log odds are those of the mean.
    """
    import pandas

    model, draws = _model_and_draws(fit)
    frame = fit.data.covariate_frame()
    usual = {
        name: column.mode()[0] if column.dtype == "category" else column.median()
        for name, column in frame[list(model.transition.variables())].items()
    }
    lists = [list(each) if np.ndim(each) else [each] for each in at.values()]
    settings = list(itertools.product(*lists))
    rows = pandas.DataFrame([usual | dict(zip(at, setting, strict=True)) for setting in settings])
    columns = model.transition.columns_of(rows)
    moved = np.einsum("nijc,pc->npij", draws["effect"].astype(float), columns)
    eta = draws["log_odds"].astype(float)[:, None] + moved
    return settings, model.per_step(eta, draws)
