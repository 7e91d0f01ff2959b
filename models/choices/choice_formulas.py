r"""Features of options by a formula of one to three parts, as mlogit has them.

.. math:: \mu_{tj} = x_{tj}' \beta + \alpha_j + z_t' \gamma_j + w_{tj}' \delta_j, \qquad
          \alpha_{\mathrm{base}} = 0, \quad \gamma_{\mathrm{base}} = 0

for ``"x | z | w"``: attributes of options with one coefficient each, covariates of the decision with one per
alternative but the base, beside alternative-specific constants, and attributes with a coefficient per alternative.
Croissant (2020), "Estimation of random utility models in R: the mlogit package", section 2.2.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ethogram.models.arguments import require_number
from ethogram.models.data.covariates import read_covariates
from ethogram.models.data.formulas import (
    Terms,
    combined_column,
    model_matrix,
    put_together,
    read_terms,
    taken_apart,
)
from ethogram.models.data.metadata import Metadata, read_metadata
from ethogram.models.data.padding import Column
from ethogram.models.printing import short_repr

__all__ = ["ChoiceFormula", "encode_options", "factor_at", "products_of", "read_formula", "require_factors"]

LEVEL = r"(?:C\()?(.+?)\)?\[(?:T\.)?(.*)\]"
"""The name of a column that is a level of a covariate."""
LEAST_SPREAD = 1e-8
"""Of a column's differences between options, against its size: less is rounding."""


@short_repr
class ChoiceFormula(NamedTuple):
    """A formula with its parts, and what it took from the data of a fit: base, levels and states of functions."""

    text: str
    parts: tuple[str, str, str]
    terms: tuple[Terms, Terms, Terms]
    known: dict[str, Any] | None

    @property
    def variables(self) -> tuple[str, ...]:
        """Columns that the formula takes."""
        return tuple(dict.fromkeys(name for terms in self.terms for name in terms.variables))


def read_formula(formula: Any, features: Any, metadata: Metadata | None) -> ChoiceFormula | None:
    """The formula that was given, or that of metadata; None where features are columns. ValueError for another one."""
    record = read_metadata(metadata).formula
    known: Any = None if record is None else json.loads(record)
    if features is not None and (formula is not None or known is not None):
        given = "formula" if known is None else f"metadata with the formula {known['text']!r}"
        raise ValueError(
            f"features and {given} are given: pass features=, or a formula, which names its columns"
        )
    if formula is None and known is None:
        if features is None:
            raise TypeError(
                "features and formula are None: name columns, or pass formula='price + time | income'"
            )
        return None
    if not isinstance(formula, str | None):
        raise TypeError(f"formula is {formula!r}: give a string, such as 'price + time | income'")
    text = known["text"] if formula is None else formula.strip()
    if known is not None and text != known["text"]:
        raise ValueError(f"formula is {text!r}, and that of the metadata {known['text']!r}: leave it out")
    if "~" in text:
        raise ValueError(
            f"formula {text!r} has a left side: give what is right of the ~, and chosen= or choice="
        )
    parts = [part.strip() for part in re.split(r"\|(?=(?:[^`]*`[^`]*`)*[^`]*$)", text)]
    if len(parts) > 3:
        raise ValueError(
            f"formula {text!r} has {len(parts)} parts: give up to three, 'price | income | time'"
        )
    parts += [""] * (3 - len(parts))
    generic, person, own = map(read_terms, parts)
    for terms in (generic, own):
        if terms.variables and not terms.has_constant:
            raise ValueError(
                f"formula {text!r} removes the constant from attributes, which have none: to leave out the constants "
                "of alternatives, write 0 in the second part, as in 'price | 0'"
            )
    return ChoiceFormula(text, (parts[0], parts[1], parts[2]), (generic, person, own), known)


def encode_options(
    formula: ChoiceFormula,
    columns: Mapping[str, Any],
    decision: Int[np.ndarray, "row"],
    slot: Int[np.ndarray, "row"],
    available: Bool[np.ndarray, "row"],
    metadata: Metadata,
    base_option: str | None,
    row: Callable[[int], str],
) -> tuple[Float[np.ndarray, "decision option feature"], Metadata]:
    """Features of the options, and the metadata with their names and what the formula took from the data.

    Parameters
    ----------
    columns : by name, values (row,) with their nulls, and levels or None, as `covariate_columns` gives them.
    decision, slot, available : of the rows.
    metadata : with the names of the options, if these have any.
    base_option : whose constant and coefficients of covariates are zero; None for the first.
    row : how messages call a row.
    """
    options = _options(formula, metadata, base_option)
    seen = np.flatnonzero(available)
    legal = np.zeros((decision.max() + 1, max(slot.max() + 1, len(options))), bool)
    decision, slot = decision[seen], slot[seen]
    legal[decision, slot] = True
    frame, levels = _frame(formula, columns, seen, row)
    _require_constant(formula, frame, decision, seen, row)
    parts = [_columns(formula, part, frame) for part in range(3)]
    found, names = [parts[0][0]], [*parts[0][1]]
    base = None if not options else base_option or (formula.known or {}).get("base") or options[0]
    others = [number for number, name in enumerate(options) if name != base]
    is_option = slot[:, None] == np.arange(legal.shape[1])
    if options and formula.terms[1].has_constant:
        found.append(is_option[:, others].astype(float))
        names += [options[number] for number in others]
    for (each, labels, _), of in zip(parts[1:], (others, [*range(len(options))]), strict=True):
        for column, label in enumerate(labels):
            found.append(is_option[:, of] * each[:, column, None])
            names += [f"{options[number]}:{label}" for number in of]
    if not names:
        raise ValueError(f"formula {formula.text!r} has no column: name an attribute, such as 'price'")
    if metadata.feature_names not in (None, tuple(names)):
        raise ValueError(
            f"formula {formula.text!r} has the columns {tuple(names)}, and metadata.feature_names are "
            f"{metadata.feature_names}: leave these out, and make columns of a C() text, whose levels are kept"
        )
    padded = np.zeros((*legal.shape, len(names)))
    padded[decision, slot] = np.concatenate(found, axis=1)
    record = formula.known
    if record is None:
        _check_columns(formula.text, names, padded, legal)
        record = {"text": formula.text, "base": base, "levels": levels, "states": [each[2] for each in parts]}
    return padded, dataclasses.replace(metadata, feature_names=names, formula=json.dumps(record))


def _options(formula: ChoiceFormula, metadata: Metadata, base_option: str | None) -> tuple[str, ...]:
    """Names of the options; a ValueError where the formula needs them and there are none, or the base is no option."""
    options = tuple(metadata.action_names or ())
    wanted = any(terms.variables for terms in formula.terms[1:])
    if not options and (wanted or formula.parts[1] not in ("", "0", "-1") or base_option is not None):
        raise ValueError(
            f"formula {formula.text!r} has coefficients per alternative, and options have no names: pass option= to "
            "from_table, or metadata with action_names; of options without labels give attributes alone, 'price + time'"
        )
    if (wanted or formula.terms[1].has_constant) and (colons := [name for name in options if ":" in name]):
        raise ValueError(
            f"option {colons[0]!r} has a colon, which joins the factors of a product in names of features: rename it"
        )
    if base_option is not None and base_option not in options:
        raise ValueError(f"base_option is {base_option!r}: pass one of the options {options}")
    if formula.known is not None and base_option not in (None, formula.known["base"]):
        raise ValueError(
            f"base_option is {base_option!r}, and that of the metadata {formula.known['base']!r}"
        )
    return options


def _frame(
    formula: ChoiceFormula, columns: Mapping[str, Any], seen: np.ndarray, row: Callable[[int], str]
) -> tuple[Any, dict[str, list[str]]]:
    """Table of the variables in the available rows, and levels of those that have some."""
    import pandas

    names = formula.variables
    if not names:
        return pandas.DataFrame(index=range(len(seen))), {}
    given = {}
    for name in names:
        column, order = columns[name]
        if column.null[seen].any():
            at = int(seen[column.null[seen].argmax()])
            raise ValueError(
                f"column {name!r} is null in {row(at)}: every option that is available needs a value"
            )
        given[name] = Column(column.values[seen], column.null[seen]), order
    known = None if formula.known is None else [formula.known["levels"].get(name) for name in names]
    metadata = Metadata(covariate_names=names, covariate_levels=known)
    read, metadata = read_covariates(given, metadata, (), lambda at: row(int(seen[at])))
    frame = pandas.DataFrame(dict(zip(names, read.values.T, strict=True)))
    levels: dict[str, list[str]] = {}
    for name, each in zip(names, metadata.covariate_levels or (), strict=True):
        if each is not None:
            column = pandas.Categorical.from_codes(frame[name].astype(int), list(each))
            frame[name] = column if known else column.remove_unused_categories()
            levels[name] = list(frame[name].cat.categories)
    return frame, levels


def _require_constant(
    formula: ChoiceFormula, frame: Any, decision: np.ndarray, seen: np.ndarray, row: Callable[[int], str]
) -> None:
    """Raise unless the covariates of decisions are the same in all rows of each."""
    for name in formula.terms[1].variables:
        changed = frame.groupby(decision)[name].transform("first").to_numpy() != frame[name].to_numpy()
        if changed.any():
            raise ValueError(
                f"column {name!r} changes in {row(int(seen[changed.argmax()]))}, within a decision, and "
                f"the second part of the formula {formula.text!r} has covariates of the decision: attributes of "
                "options stand in the first part, or in the third"
            )


def _columns(formula: ChoiceFormula, part: int, frame: Any) -> tuple[np.ndarray, tuple[str, ...], list[Any]]:
    """Columns of a part, their names, and the state of its functions in two parts."""
    if not formula.terms[part].variables:
        return np.zeros((len(frame), 0)), (), []
    state = {} if formula.known is None else put_together(*formula.known["states"][part])
    columns, names, spec = model_matrix(formula.parts[part], state, frame, "rows")
    form, numbers = taken_apart(spec.transform_state)
    return columns, names, [form, numbers.tolist()]


def _check_columns(text: str, names: list[str], padded: np.ndarray, legal: np.ndarray) -> None:
    """Raise for a column that no decision can tell anything of, or that is a combination of those before it."""
    mean = padded.sum(1) / np.maximum(legal.sum(1), 1)[:, None]
    rest = np.where(legal[..., None], padded - mean[:, None], 0)[legal]
    spread = np.sqrt(np.mean(rest**2, axis=0))
    constant = spread <= LEAST_SPREAD * np.maximum(np.abs(padded).max((0, 1)), np.finfo(float).tiny)
    if constant.any():
        raise ValueError(
            f"formula {text!r} has the column {names[int(constant.argmax())]!r}, in which the options of no decision "
            "differ: covariates of the decision stand in the second part, 'price | income', or in products such as "
            "price:income"
        )
    if len(names) > (legal.sum(1) - 1).sum():
        return  # fewer differences than columns are combinations of any others
    if (combined := combined_column(rest / spread)) is not None:
        raise ValueError(
            f"formula {text!r} has the column {names[combined]!r}, which is a combination of those before "
            "it: leave one out, or the constants of alternatives by writing 0 in the second part"
        )


def products_of(metadata: Metadata, feature: str) -> dict[int, tuple[str, ...]]:
    """Features that are a name, or products with it in a formula, by number, and their other factors.

    ``price`` enters ``price`` and ``price:income``. A ValueError where a function of the formula takes the name, of
    which the features do not tell the derivative.
    """
    names, wanted = metadata.feature_names or (), feature.split(":")
    if metadata.formula is None:
        return {names.index(feature): ()} if feature in names else {}
    found = {}
    for number, name in enumerate(names):
        factors = name.split(":")
        if all(each in factors for each in wanted):
            found[number] = tuple(each for each in factors if each not in wanted)
            continue
        for factor in factors:
            inside = any(re.search(rf"(?<![\w.]){re.escape(each)}(?![\w.(])", factor) for each in wanted)
            if "(" in factor and inside:
                raise ValueError(
                    f"{feature!r} enters as {factor}, of which {name!r} is the feature: read a changed table with "
                    "metadata=data.metadata, and compare the two by share_changes"
                )
    return found


def require_factors(metadata: Metadata, at: Any) -> None:
    """Raise where `at` is no mapping, or has what enters no feature."""
    if not isinstance(at, Mapping):
        raise TypeError(f"at is {type(at).__name__}: give values by covariate, such as {{'income': 3.0}}")
    factors = {factor for name in metadata.feature_names or () for factor in name.split(":")}
    known = {found[1] if (found := re.fullmatch(LEVEL, factor)) else factor for factor in factors}
    for name in at:
        if name != "option" and name not in factors | known:
            raise ValueError(
                f"at has {name!r}, which enters no feature: pass some of {sorted(known)}, or 'option'"
            )


def factor_at(metadata: Metadata, factor: str, at: Mapping[str, Any]) -> float | None:
    """Value of a factor of a formula where covariates, and ``option``, the alternative, are `at`; None if not said."""
    if factor in at:
        return require_number(f"at[{factor!r}]", at[factor])
    names = metadata.action_names or ()
    if "option" in at and at["option"] not in names:
        raise ValueError(f"at has the option {at['option']!r}: pass one of {names}")
    if factor in names:
        return float(at["option"] == factor) if "option" in at else None
    found = re.fullmatch(LEVEL, factor)
    if found is None or found[1] not in at:
        return None
    known, level = json.loads(metadata.formula or "{}").get("levels", {}).get(found[1], ()), str(at[found[1]])
    if level not in known:
        raise ValueError(f"at has {level!r} for {found[1]!r}: its levels are {', '.join(known)}")
    return float(level == found[2])
