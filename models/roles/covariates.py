r"""How covariates move the switching of states: a formula, and what it takes from the data of a fit.

Transitions are multinomial logits with staying as the reference,

.. math:: P(z_{t+1} = j \mid z_t = i, u_t) = \frac{e^{\eta_{ij}(t)}}{\sum_k e^{\eta_{ik}(t)}}, \qquad
          \eta_{ii} = 0, \quad \eta_{ij}(t) = b_{ij} + w_{ij}'(u_t - \bar u) + d_{ij,s},

with the covariates of the step that is left, as hmmTMB has them: Michelot (2025), "hmmTMB: hidden Markov models with
flexible covariate effects in R". momentuHMM takes those of the step that is entered, which is ``lag=-1``. Formulas are
those of formulaic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ethogram.models.arguments import require_integer, require_number, require_one_of, warn_user
from ethogram.models.data.covariates import covariate_frame, padded_rows
from ethogram.models.data.formulas import (
    SPLINES,
    combined_column,
    model_matrix,
    put_together,
    read_terms,
    taken_apart,
)
from ethogram.models.data.trajectories import Trajectories
from ethogram.models.model_object import changed, model_object, static_field
from ethogram.models.printing import short_repr

__all__ = ["Covariates", "Encoded", "Encoding"]

LEAST_SPREAD = 1e-8
"""Of a column against its size: less is rounding, and the column is constant."""
LARGEST_LAG = 2**31
"""Either way."""


@short_repr
class Encoded(NamedTuple):
    """Data in the form that the transitions take.

    Attributes
    ----------
    columns : (sequence, time, column), less their means in the data of the fit; zero beyond a length.
    subject : (sequence,), rows of the effects of subjects; the last row is that of subjects not in the fit.
    """

    columns: Float[np.ndarray, "sequence time column"]
    subject: Int[np.ndarray, "sequence"]


@model_object
class Encoding:
    """What a formula took from the data of a fit, so that other data are encoded alike.

    Attributes
    ----------
    names : of the columns.
    smooth : the number of the spline of each column, -1 where it has none.
    terms : names of the splines.
    levels : by categorical covariate of the formula, those of its levels that the data of the fit have.
    subjects : names of the subjects.
    state : structure of what the functions of the formula keep (knots, means), whose numbers are in `numbers`.
    mean, spread : (column,), mean and standard deviation; columns of a spline share their spread.
    """

    names: tuple[str, ...] = static_field()
    smooth: tuple[int, ...] = static_field()
    terms: tuple[str, ...] = static_field()
    levels: tuple[tuple[str, tuple[str, ...]], ...] = static_field()
    subjects: tuple[str, ...] = static_field()
    state: str = static_field()
    numbers: Any = None
    mean: Any = None
    spread: Any = None

    @property
    def is_smooth(self) -> np.ndarray:
        """(column,) booleans: columns of splines."""
        return np.asarray(self.smooth, int) >= 0


@model_object
class Covariates:
    """Covariates of the transitions of a `RoleHMM`: how they, and who the subject is, move switching.

    Parameters
    ----------
    formula : of the covariates of the data, such as ``"temperature + sex"``, ``"temperature * sex"``,
        ``"np.log(distance)"``, ``"cc(hour, df=6, lower_bound=0, upper_bound=24)"`` for a cyclic spline or
        ``"cr(temperature, df=5)"`` for a natural one; names that are no identifiers stand between backticks, as in
        ``"`external-temperature` + sex"``. Empty for none, where subjects vary or the emission has covariates.
    vary : ``"subject"`` gives each subject (`data.subject`) its own log odds of every change of state, normal about
        those of the population; None gives all the same.
    scale : prior standard deviation of the effect of a covariate with standard deviation 1.
    expected_dwell : steps that a state is expected to last; log odds of changes have a prior about it, with standard
        deviation `log_odds_scale`.
    lag : 0 takes the covariates of the step that is left, 1 those of the step before it, -1 those of the step that is
        entered, as momentuHMM; at the ends of a sequence those nearest.
    log_odds_scale : prior standard deviation of log odds of changes, and of those of the first state.

    Examples
    --------
    >>> Covariates("temperature + sex", vary="subject").formula
    'temperature + sex'
    """

    formula: str = static_field(default="")
    vary: str | None = static_field(default=None)
    scale: float = static_field(default=1.0)
    expected_dwell: float = static_field(default=10.0)
    lag: int = static_field(default=0)
    encoding: Encoding | None = None
    log_odds_scale: float = static_field(default=1.5)

    def __post_init__(self) -> None:
        if not isinstance(self.formula, str):
            raise TypeError(f"formula is {self.formula!r}: give a string, such as 'temperature + sex'")
        require_one_of("vary", self.vary, (None, "subject"))
        require_number("scale", self.scale, above=0)
        require_number("expected_dwell", self.expected_dwell, above=1)
        require_integer("lag", self.lag, -LARGEST_LAG)
        require_number("log_odds_scale", self.log_odds_scale, above=0)
        if self.formula.strip() and not self.variables():
            raise ValueError(f"formula {self.formula!r} names no covariate: give one, such as 'temperature'")

    def role_model(self) -> type:
        """The class of role HMMs with these transitions."""
        from ethogram.models.roles.covariate_roles import CovariateRoleHMM

        return CovariateRoleHMM

    def variables(self) -> tuple[str, ...]:
        """Names that the formula takes from data. ValueError for a formula that is none of `Covariates`."""
        found = read_terms(self.formula)
        if not found.has_constant:
            raise ValueError(
                f"formula {self.formula!r} removes the constant: leave '- 1' out, since every state, or change of "
                "state, has a constant of its own"
            )
        return found.variables

    def bind(self, data: Trajectories, like: Encoding | None = None) -> Covariates:
        """The covariates with what the formula takes from the data of a fit, or with that of another one."""
        return changed(self, encoding=_encoding_of(self, data) if like is None else like)

    def check(self, data: Trajectories) -> None:
        """Raise ValueError unless data have the covariates and subjects."""
        known = data.metadata.covariate_names or ()
        missing = [name for name in self.variables() if name not in known]
        if missing:
            has = (
                f"have {', '.join(known)}"
                if known
                else "have no covariates (from_table(..., covariates=[...]))"
            )
            quote = "; write names that are no identifiers between backticks"
            quote = "" if all(map(str.isidentifier, known)) else quote
            raise ValueError(
                f"formula {self.formula!r} takes {', '.join(missing)}, and the data {has}{quote}"
            )
        if self.vary and data.subject is None:
            raise ValueError('vary="subject" needs data.subject: pass subject= when the data are read')

    def encode(self, data: Trajectories) -> Encoded:
        """Columns and subjects of data, as those of the fit were encoded.

        Raises
        ------
        ValueError : a covariate is not in the data, a level is unknown, or a column is not finite, such as the
            logarithm of 0.
        """
        found: Any = self.encoding
        self.check(data)
        columns = np.zeros((*np.shape(data.observed), len(found.names)))
        if found.names:
            each = self.columns_of(covariate_frame(data))
            columns = self._lagged(padded_rows(data, each), np.asarray(data.lengths))
        return Encoded(columns, _subjects(self, data, found.subjects))

    def columns_of(self, frame: Any) -> Float[np.ndarray, "row column"]:
        """Columns of a table of covariates, less their means in the data of the fit."""
        found: Any = self.encoding
        if not found.names:
            return np.zeros((len(frame), 0))
        columns, names, _ = model_matrix(
            self.formula, put_together(found.state, found.numbers), _frame(self, frame, found.levels)
        )
        if names != found.names:  # numbers in C(), and comparisons, have the levels of the table at hand
            raise ValueError(
                f"formula {self.formula!r} has the columns {names} here, and {found.names} in the data of the fit: "
                "make covariates that stand for levels text, whose levels are kept"
            )
        return columns - found.mean

    def _lagged(self, columns: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        if not self.lag:
            return columns
        last = np.maximum(lengths, 1)[:, None] - 1
        steps = np.clip(np.arange(columns.shape[1]) - self.lag, 0, last)
        inside = np.arange(columns.shape[1]) < lengths[:, None]
        return np.where(inside[..., None], np.take_along_axis(columns, steps[..., None], axis=1), 0)


def _frame(covariates: Covariates, frame: Any, levels: Any) -> Any:
    """The covariates of the formula, with the categories of the fit where it has some."""
    import pandas as pd

    frame = frame[list(covariates.variables())]
    for name, known in levels or ():
        if name in frame:
            values = frame[name].astype(str)
            unknown = sorted(set(values) - set(known))
            if unknown:
                raise ValueError(
                    f"covariate {name!r} has the level {unknown[0]!r}, which the fit has not seen: it knows "
                    f"{', '.join(known)}"
                )
            frame = frame.assign(**{name: pd.Categorical(values, categories=list(known))})
    return frame


def _encoding_of(covariates: Covariates, data: Trajectories) -> Encoding:
    """What a formula and the subjects take from the data of a fit."""
    covariates.check(data)
    subjects: tuple[str, ...] = ()
    if covariates.vary:
        each = _subject_names(data)
        if "" in each:
            raise ValueError(
                f'vary="subject", and sequence {each.index("")} has no subject (-1): name it, or leave the sequence out'
            )
        subjects = tuple(sorted(set(each)))
    if not covariates.formula.strip():
        nothing = np.zeros(0)
        return Encoding((), (), (), (), subjects, "", nothing, nothing, nothing)
    frame = covariate_frame(data)[list(covariates.variables())]
    levels = tuple(
        (name, tuple(map(str, column.cat.remove_unused_categories().cat.categories)))
        for name, column in frame.items()
        if column.dtype == "category"
    )
    for name, known in levels:
        if len(known) < 2:
            raise ValueError(
                f"formula {covariates.formula!r} takes {name}, which is {known[0]!r} in all steps: leave it out, its "
                "effect cannot be told from the log odds"
            )
    columns, names, spec = model_matrix(covariates.formula, {}, _frame(covariates, frame, levels))
    splines = [term for term in spec.term_slices if _is_spline(term)]
    smooth = [-1] * len(names)
    for number, term in enumerate(splines):
        for at in range(spec.term_slices[term].start, spec.term_slices[term].stop):
            smooth[names.index(str(spec.column_names[at]))] = number
    mean, spread = columns.mean(axis=0), columns.std(axis=0)
    for number in range(len(splines)):
        own = np.asarray(smooth) == number
        spread[own] = np.sqrt(np.mean(spread[own] ** 2))
    _check_columns(covariates.formula, names, columns, mean, spread, np.asarray(smooth) < 0)
    _warn_of_periods(spec)
    state, numbers = taken_apart(spec.transform_state)
    return Encoding(
        names,
        tuple(smooth),
        tuple(map(str, splines)),
        levels,
        subjects,
        state,
        numbers,
        mean,
        spread,
    )


def _is_spline(term: Any) -> bool:
    return any(str(factor.expr).split("(")[0] in SPLINES for factor in term.factors)


def _check_columns(
    formula: str,
    names: tuple[str, ...],
    columns: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    fixed: np.ndarray,
) -> None:
    """Raise ValueError for a constant column, or for one that is a combination of the others."""
    constant = spread <= LEAST_SPREAD * np.maximum(np.abs(columns).max(axis=0), np.finfo(float).tiny)
    if constant.any():
        raise ValueError(
            f"formula {formula!r} has the column {names[int(np.argmax(constant))]!r}, which is the same in all steps: "
            "leave it out, its effect cannot be told from the log odds"
        )
    standard = (columns[:, fixed] - mean[fixed]) / spread[fixed]
    combined = combined_column(standard) if len(standard) > 1 else None
    if combined is not None or fixed.sum() > len(standard):
        name = str(np.asarray(names)[fixed][combined or 0])
        raise ValueError(
            f"formula {formula!r} has the column {name!r}, which is a combination of those before it: leave one out"
        )


def _warn_of_periods(spec: Any) -> None:
    """Cyclic splines close where the data end, unless the formula says where."""
    for name, kept in spec.transform_state.items():
        if kept.get("cyclic") and "upper_bound" not in name:
            low, high = kept["lower_bound"], kept["upper_bound"]
            warn_user(
                f"{name} closes its circle from {high:.6g} to {low:.6g}, the largest and the least value of the data: "
                "give its period, such as cc(hour, df=6, lower_bound=0, upper_bound=24)"
            )


def _subject_names(data: Trajectories) -> list[str]:
    """The name of the subject of each sequence, else its number; empty where it has none."""
    known = data.metadata.subject_names
    codes = np.asarray(data.subject).tolist()
    return ["" if code < 0 else known[code] if known else str(code) for code in codes]


def _subjects(covariates: Covariates, data: Trajectories, known: tuple[str, ...]) -> np.ndarray:
    """Rows (sequence,) of the subjects of a fit; the last is that of all others."""
    if not covariates.vary or data.subject is None:
        return np.full(data.num_sequences, len(known), np.int32)
    rows = {name: row for row, name in enumerate(known)}
    return np.array([rows.get(name, len(known)) for name in _subject_names(data)], np.int32)
