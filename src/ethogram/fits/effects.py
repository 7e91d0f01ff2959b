"""What covariates do to switching and observations: effects, curves along a covariate, and budgets of the long run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from ethogram.fits import latent_classes
from ethogram.fits.estimates import exported_entries
from ethogram.inference.diagnostics import Finding, Level
from ethogram.inference.diagnostics.paths import of_rare_states
from ethogram.inference.draws import flat_draws
from ethogram.models.arguments import require_number
from ethogram.models.quick_jit import quick_jit
from ethogram.models.roles import CovariateRoleHMM
from ethogram.models.roles.dwell_times import SPREAD
from ethogram.plots.axes import figure_or_new, show_plainly
from ethogram.plots.covariates import covariate_curves

__all__ = [
    "curves",
    "effects",
    "entries",
    "faults",
    "long_run",
    "plot_covariate",
    "responses",
]

NUM_POINTS = 50
"""Of a curve along a covariate."""
UNTOLD = 0.9
"""Posterior standard deviation of an effect over that of the prior, from which on the data said nothing of it."""
LEAST_BOUTS = 20
"""Bouts with both ends, below which the data say little of the distribution of dwell times."""
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
    effect = draws["effect"] * (found.spread / model.transition.scale)
    standard = {
        f"{found.names[column]} of {names[one]} to {names[other]}": effect[:, one, other, column]
        for one, other in itertools.permutations(range(len(names)), 2)
        for column in np.flatnonzero(~found.is_smooth)
    }
    yield from _decided_by_prior(standard, "the change", "Covariates")
    if "dwell_size" in draws:
        yield from _of_dwell_times(fit, draws)
    if model.regresses:
        emission = model.emission
        scales = {
            "weight": np.asarray(emission.weight_scale()),
            "intercept": np.full((emission.rows, 1), emission.scale),
        }
        standard = {
            f"{column} on {row} in state {state}": each / scales[site][place]
            for (state, row, column), site, place, each in _slopes(fit, model, draws)
        }
        yield from _decided_by_prior(standard, "the observation", type(emission).__name__)


def _of_dwell_times(fit: Any, draws: Mapping[str, np.ndarray]) -> Iterator[Finding]:
    """States whose dwell times the data hardly tell: of few whole bouts, or of a size as uncertain as its prior."""
    bouts = fit.bouts()
    whole = bouts["state"][bouts["cut"] == ""].value_counts()
    counts = [int(whole.get(name, 0)) for name in fit.state_names]
    spread = np.log(draws["dwell_size"].astype(float)).std(0) / SPREAD
    untold = [at for at, count in enumerate(counts) if count < LEAST_BOUTS or spread[at] > UNTOLD]
    if untold:
        said = ", ".join(f"{fit.state_names[at]} ({counts[at]} whole bouts)" for at in untold)
        yield Finding(
            "dwell times",
            Level.CAUTION,
            f"The prior decides much of how dwell times are distributed in these states: {said}.",
            "Do not read their size; leave dwell= out, or record more.",
            len(untold) / len(counts),
        )


def _decided_by_prior(standard: Mapping[str, np.ndarray], outcome: str, owner: str) -> Iterator[Finding]:
    """Findings on draws of effects by name, in standard deviations of their prior."""
    checks = (
        (
            lambda each: each.std() > UNTOLD,
            "are as uncertain as their prior",
            "Give fewer states or covariates.",
        ),
        (
            lambda each: abs(each.mean()) > RUNAWAY,
            f"lie over {RUNAWAY:g} standard deviations of their prior from 0, which alone may bound them",
            f"See whether the covariate tells {outcome} perfectly; report what another scale= of {owner} gives.",
        ),
    )
    for is_wrong, said, advice in checks:
        wrong = [name for name, each in standard.items() if is_wrong(each.astype(float))]
        if wrong:
            words = f"{len(wrong)} of {len(standard)} effects, such as {wrong[0]}, {said}."
            yield Finding("prior", Level.CAUTION, words, advice, len(wrong) / len(standard))


def _slopes(
    fit: Any, model: Any, draws: Mapping[str, np.ndarray]
) -> Iterator[tuple[tuple[str, str, str], str, tuple[int, int], np.ndarray]]:
    """Names of state, row and column, site, place in its prior, and draws of intercepts and slopes of an emission."""
    emission, rows = model.emission, model.emission.row_names(fit.data.metadata.feature_names)
    for (state, name), (row, said) in itertools.product(enumerate(fit.state_names), enumerate(rows)):
        if emission.has_intercept:
            yield (name, said, "intercept"), "intercept", (row, 0), draws["intercept"][:, state, row]
        for column, covariate in enumerate(emission.encoding.names):
            yield (name, said, covariate), "weight", (row, column), draws["weight"][:, state, row, column]


def effects(fit: Any, probability: float) -> Any:
    """The table that `Fit.effects` describes."""
    import pandas

    if hasattr(fit.model, "num_classes"):
        return latent_classes.effects(fit, probability)

    model, draws = _model_and_draws(fit)
    tail = _tail(probability)
    names, columns = fit.state_names, model.transition.encoding.names
    if not (columns or model.regresses):
        raise TypeError(
            "the model has no covariates: give RoleHMM(..., transition=ethogram.Covariates('temperature'))"
        )
    rows: list[list[float]] = []
    index: list[tuple[str, ...]] = []
    levels = ["state", "next_state", "covariate"]

    titles = ["mean", "sd", "lower", "upper", "odds_ratio", "odds_lower", "odds_upper", "positive"]
    is_log = model.regresses and model.emission.is_log
    if is_log:
        titles += ["mean_ratio", "mean_ratio_lower", "mean_ratio_upper"]

    def add(place: tuple[str, ...], draws: np.ndarray, is_logit: bool) -> None:
        each = draws.astype(float)
        lower, upper = np.quantile(each, [tail, 1 - tail])
        ratios, none = [*np.exp(np.array([each.mean(), lower, upper]))], [np.nan] * 3
        moments = [each.mean(), each.std(ddof=1), lower, upper]
        of_mean = (none if is_logit else ratios) if is_log else []
        rows.append([*moments, *(ratios if is_logit else none), (each > 0).mean(), *of_mean])
        index.append(place)

    if model.regresses:
        levels = ["part", "state", "outcome", "covariate"]
        for place, _, _, each in _slopes(fit, model, draws):
            add(("emission", *place), each, model.emission.is_logit)
    for one, other in itertools.permutations(range(len(names)), 2):
        for column, name in enumerate(columns):
            place = (*["transition"] * model.regresses, names[one], names[other], name)
            add(place, draws["effect"][:, one, other, column], True)
    places = pandas.MultiIndex.from_tuples(index, names=levels)
    return pandas.DataFrame(rows, index=places, columns=titles)


def curves(fit: Any, name: str, at: Mapping[str, Any] | None = None) -> tuple[Any, np.ndarray, np.ndarray]:
    """Values of a covariate, and draws of what transitions and the long run are there.

    Returns
    -------
    values (point,) of the covariate, numbers or levels; probabilities (draw, point, state, next_state) of transitions,
    and shares (draw, point, state) of time.
    """
    model, _ = _model_and_draws(fit)
    values, at = _along(fit, model.transition.variables(), name, at)
    matrices = _matrices(fit, at)[1]
    return values, matrices, stationary(matrices)


def responses(
    fit: Any, name: str, at: Mapping[str, Any] | None = None
) -> tuple[Any, Float[np.ndarray, "draw point state shown"]]:
    """Values of a covariate of the emission, and draws of means there, such as probabilities of options."""
    model, draws = _model_and_draws(fit)
    emission = model.emission
    values, at = _along(fit, emission.covariates.variables(), name, at)
    columns = emission.covariates.columns_of(_settings(fit, emission.covariates, at)[1])
    own = {site: draws[site] for site in emission.site_dims}
    return values, np.asarray(_means(emission, own, columns), float)


@quick_jit
def _means(emission: Any, draws: Any, columns: Any) -> Any:
    return jax.vmap(lambda one: emission.response(one, emission.predictor(one, columns)))(draws)


def _along(
    fit: Any, known: Sequence[str], name: str, at: Mapping[str, Any] | None
) -> tuple[Any, dict[str, Any]]:
    """Values of a covariate along its curve, and the settings of all that are given."""
    others = {other: value for other, value in (at or {}).items() if other != name}
    _require_covariates(known, [name, *others])
    for other, value in others.items():
        if np.ndim(value):
            raise ValueError(f"at has {value!r} for {other!r}: give one value, at which the curve is drawn")
    column = fit.data.covariate_frame()[name]
    if column.dtype == "category":
        values: Any = list(column.cat.remove_unused_categories().cat.categories)
    else:
        values = np.linspace(column.min(), column.max(), NUM_POINTS)
    return values, {**others, name: values}


def long_run(fit: Any, at: Mapping[str, Any], probability: float) -> Any:
    """The table of `Fit.time_budget` at settings of the covariates."""
    import pandas

    tail = _tail(probability)
    model, _ = _model_and_draws(fit)
    if not isinstance(at, Mapping) or not at:
        raise TypeError(f"at is {at!r}: give values by covariate, such as {{'temperature': [5, 25]}}")
    _require_covariates(model.transition.variables(), at, "the formula of transitions")
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
    model, _ = _model_and_draws(fit)
    switching, observed_by = model.transition.variables(), ()
    if model.regresses:
        observed_by = model.emission.covariates.variables()
    _require_covariates([*dict.fromkeys((*observed_by, *switching))], [name, *(at or {})])
    chosen = at or {}
    curves_of, means, titles = None, None, ()
    if name in observed_by:
        own = {other: value for other, value in chosen.items() if other in observed_by}
        values, means = responses(fit, name, own)
        titles = model.emission.response_names(fit.data.metadata.feature_names)
    if name in switching:
        own = {other: value for other, value in chosen.items() if other in switching}
        values, *curves_of = curves(fit, name, own)
    figure = figure_or_new(figure, (11, 4.5))
    units = dict(
        zip(fit.data.metadata.covariate_names, fit.data.metadata.covariate_units or (), strict=False)
    )
    label = f"{name} ({units[name]})" if units.get(name) else name
    observed = fit.data.covariate_frame()[name]
    covariate_curves(figure, values, curves_of, means, titles, fit.state_names, label, observed)
    show_plainly(figure)
    return figure


def _model_and_draws(fit: Any) -> tuple[Any, dict[str, np.ndarray]]:
    if not isinstance(fit.model, CovariateRoleHMM):
        from ethogram.models.choices import NoisyMDP

        if isinstance(fit.model, NoisyMDP):
            raise TypeError(
                "effects of features on choices are those of ethogram.choices.marginal_effects(fit.model, "
                "fit.draws().sites, fit.data, feature), elasticities and willingness_to_pay"
            )
        raise TypeError(
            f"a {type(fit.model).__name__} without Covariates has no effects: give "
            "RoleHMM(..., transition=ethogram.Covariates('temperature')), or an emission with covariates, such as "
            "ethogram.ChoiceEmission('stimulus')"
        )
    found = fit.draws()
    return found.model, flat_draws(found.sites)


def _tail(probability: float) -> float:
    require_number("probability", probability, above=0, below=1)
    return (1 - probability) / 2


def _require_covariates(known: Sequence[str], names: Iterable[str], of: str = "the formula") -> None:
    for name in names:
        if name not in known:
            raise ValueError(f"{name!r} is no covariate of {of}: it takes {', '.join(known) or 'none'}")


def _matrices(
    fit: Any, at: Mapping[str, Any]
) -> tuple[list[tuple[Any, ...]], Float[np.ndarray, "draw point state next_state"]]:
    """Settings, every combination of the values, and draws of the transition probabilities there.

    Of the population: of a subject whose log odds are those of the mean.
    """
    model, draws = _model_and_draws(fit)
    settings, rows = _settings(fit, model.transition, at)
    columns = model.transition.columns_of(rows)
    moved = np.einsum("nijc,pc->npij", draws["effect"].astype(float), columns)
    eta = draws["log_odds"].astype(float)[:, None] + moved
    return settings, model.per_step(eta, draws)


def _settings(fit: Any, covariates: Any, at: Mapping[str, Any]) -> tuple[list[tuple[Any, ...]], Any]:
    """Every combination of the values, and a table of all covariates of a formula there."""
    import pandas

    frame = fit.data.covariate_frame()
    usual = {
        name: column.mode()[0] if column.dtype == "category" else column.median()
        for name, column in frame[list(covariates.variables())].items()
    }
    lists = [list(each) if np.ndim(each) else [each] for each in at.values()]
    settings = list(itertools.product(*lists))
    return settings, pandas.DataFrame([usual | dict(zip(at, setting, strict=True)) for setting in settings])
