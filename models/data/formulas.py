"""Formulas of covariates: the names they take, and their columns, of data of a fit and of data encoded alike.

Formulas are those of formulaic, with a list of the functions that they may call.
"""

from __future__ import annotations

import ast
import itertools
import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from ethogram.models.printing import short_repr

__all__ = ["SPLINES", "Terms", "combined_column", "model_matrix", "put_together", "read_terms", "taken_apart"]

SPLINES = ("bs", "cc", "cr", "cs")
"""Functions of a formula whose coefficients share a scale."""
FUNCTIONS = (*SPLINES, "C", "I", "center", "poly", "scale", "standardize")
"""Functions of a formula, beside those of numbers."""
OF_NUMBERS = ("abs", "arctan", "cos", "exp", "log", "log10", "log1p", "log2", "sin", "sqrt", "tanh")
"""Functions of a formula, as ``log(x)`` or ``np.log(x)``."""
BARE = ("exp", "log", "log10", "log2")
"""Those that a formula has without ``np.``."""
COLLINEAR = 1e-6
"""Share of a column's variance that the others leave, below which it is taken to be a combination of them."""


@short_repr
class Terms(NamedTuple):
    """What a formula takes.

    Attributes
    ----------
    variables : names that it takes from data.
    has_constant : False where it says ``0 +`` or ``- 1``.
    """

    variables: tuple[str, ...]
    has_constant: bool


def combined_column(columns: np.ndarray) -> int | None:
    """Number of the first of columns (row, column) of unit variance that is a combination of those before it."""
    root = np.abs(np.diagonal(np.linalg.qr(columns, mode="r")))
    left = root**2 / len(columns) < COLLINEAR
    return int(left.argmax()) if left.any() else None


def read_terms(formula: str) -> Terms:
    """Names that a formula of one side takes; ValueError for one that cannot be read, or calls other functions."""
    from formulaic import Formula

    if not formula.strip():
        return Terms((), True)
    try:
        terms = list(Formula(formula))
        factors = [factor for term in terms for factor in term.factors]
    except Exception as error:
        raise ValueError(
            f"formula {formula!r} cannot be read ({error}): give one side, such as 'temperature + sex'"
        ) from None
    found: dict[str, None] = {}
    for factor in factors:
        is_name = factor.eval_method.name == "LOOKUP"
        found |= dict.fromkeys([factor.expr] if is_name else _names_of(formula, factor.expr))
    return Terms(tuple(found), "1" in map(str, terms))


def _names_of(formula: str, expression: str) -> list[str]:
    """Covariates in a part of a formula; ValueError for anything but sums, products and the known functions."""
    quoted = re.findall("`([^`]+)`", expression)
    plain = itertools.count()
    try:
        tree = ast.parse(re.sub("`[^`]+`", lambda _: f"quoted_{next(plain)}_", expression), mode="eval")
    except SyntaxError:
        raise ValueError(f"formula {formula!r} has the part {expression!r}, which cannot be read") from None
    names, called = [], {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if node in called:
            name = ast.unparse(node)
            if name not in (*FUNCTIONS, *BARE, *(f"np.{function}" for function in OF_NUMBERS)):
                numbers = ", ".join(f"np.{function}" for function in OF_NUMBERS)
                raise ValueError(
                    f"formula {formula!r} calls {name}: it may call {', '.join((*FUNCTIONS, *BARE))} and {numbers}"
                )
        elif isinstance(node, ast.Name) and not any(node is getattr(f, "value", None) for f in called):
            place = re.fullmatch(r"quoted_(\d+)_", node.id)
            names.append(quoted[int(place[1])] if place and int(place[1]) < len(quoted) else node.id)
        elif isinstance(node, ast.Attribute | ast.Subscript | ast.Lambda | ast.comprehension | ast.JoinedStr):
            raise ValueError(
                f"formula {formula!r} has the part {expression!r}: give names of covariates, numbers and functions"
            )
    return names


def model_matrix(
    formula: str, state: dict[str, Any], frame: Any, rows: str = "steps"
) -> tuple[Float[np.ndarray, "row column"], tuple[str, ...], Any]:
    """Columns (row, column) of a formula without the constant, their names, and the specification with its state.

    ValueError where the formula cannot be computed, or is not finite in some `rows`.
    """
    from formulaic import Formula, ModelSpec

    spec = ModelSpec(formula=Formula(formula), transform_state=state)
    try:
        with np.errstate(all="ignore"):
            matrix = spec.get_model_matrix(frame)
    except Exception as error:
        raise ValueError(f"formula {formula!r} cannot be computed from the covariates: {error}") from error
    kept = [name != "Intercept" for name in matrix.columns]
    columns = np.asarray(matrix, float)[:, kept]
    finite = np.isfinite(columns).all(axis=0)
    if len(columns) != len(frame) or not finite.all():
        wrong = "rows are missing" if finite.all() else str(matrix.columns[kept][~finite][0])
        raise ValueError(
            f"formula {formula!r} is not finite in some {rows} ({wrong}): a logarithm of 0, or a missing value?"
        )
    return columns, tuple(map(str, matrix.columns[kept])), matrix.model_spec


def taken_apart(value: Any) -> tuple[str, np.ndarray]:
    """The state of the functions of a formula as JSON, whose numbers are replaced by their place in an array."""
    numbers: list[float] = []

    def walk(part: Any) -> Any:
        if isinstance(part, dict):
            return {"dict": [[walk(key), walk(each)] for key, each in part.items()]}
        if isinstance(part, list | tuple | np.ndarray):
            return {"list": [walk(each) for each in part]}
        if part is None or isinstance(part, bool | str):
            return part
        if isinstance(part, int | np.integer):
            return {"int": int(part)}
        numbers.append(float(part))
        return {"at": len(numbers) - 1}

    return json.dumps(walk(value)), np.asarray(numbers, float)


def put_together(state: str, numbers: Sequence[float] | np.ndarray) -> Any:
    """The state of the functions of a formula, from its two parts."""

    def build(part: Any) -> Any:
        if not isinstance(part, dict):
            return part
        ((kind, content),) = part.items()
        if kind == "dict":
            return {build(key): build(each) for key, each in content}
        if kind == "list":
            return [build(each) for each in content]
        return content if kind == "int" else float(numbers[content])

    return build(json.loads(state))
