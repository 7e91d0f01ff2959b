"""Decisions with their design, by which utilities are linear in the parameters."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from ethogram.models.choices.checks import namespace
from ethogram.models.choices.decisions import Decisions, HostOrDevice, weights_of
from ethogram.models.data.metadata import Metadata
from ethogram.models.printing import short_repr

__all__ = ["ChoiceProblem", "information", "near_zero", "padded", "padded_count", "utilities_of"]

LEAST_PADDED, PADDING = 64, 2**0.25
"""Numbers of decisions are padded to powers of a ratio, from the least on: at most a fifth of them are padding."""

FAR = 100.0
"""Features are far from zero where they are larger than their differences within decisions by this factor."""


@short_repr
class ChoiceProblem(NamedTuple):
    """Decisions that :meth:`NoisyMDP.check` has found valid, and their design; models take it in place of decisions.

    Attributes
    ----------
    data : the decisions.
    design : (decision, option, parameter); utilities are ``design @ theta``.
    unit : (parameter,) of the sites ``theta_scaled`` and ``loc_scaled``, which are then sampled in place of ``theta``
        without subjects, and of ``loc``; None samples these as they are.
    """

    data: Decisions
    design: Float[HostOrDevice, "decision option parameter"]
    unit: Float[HostOrDevice, "parameter"] | None = None

    def without_names(self, features: bool = False) -> ChoiceProblem:
        """The problem with the number of subjects in place of all names, which would be part of compiled programs.

        Those of the features are left with `features`, for models that name coefficients.
        """
        names = None if self.data.subject is None else tuple(map(str, range(self.data.num_subjects or 0)))
        kept = self.data.metadata.feature_names if features else None
        return self._replace(
            data=self.data._replace(metadata=Metadata(feature_names=kept, subject_names=names))
        )


def padded(problem: ChoiceProblem) -> ChoiceProblem:
    """The problem with decisions of one option and unknown choice added, up to a number that other data share."""
    data, number = problem.data, padded_count(problem.data.num_decisions) - problem.data.num_decisions
    alone = np.arange(data.legal.shape[1]) == 0
    data = data._replace(
        features=_with_rows(data.features, number),
        legal=_with_rows(data.legal, number, alone),
        choice=_with_rows(data.choice, number, -1),
        subject=_with_rows(data.subject, number),
        weight=_with_rows(data.weight, number),
    )
    return problem._replace(data=data, design=_with_rows(np.asarray(problem.design), number))


def _with_rows(array: Any, number: int, fill: Any = 0) -> Any:
    """An array with more first entries, all alike."""
    return (
        None
        if array is None
        else np.concatenate([array, np.full((number, *array.shape[1:]), fill, array.dtype)])
    )


def padded_count(num_decisions: int) -> int:
    """Number of decisions to which so many are padded, so that data of different sizes share compiled programs."""
    power = math.ceil(math.log(max(num_decisions, 1) / LEAST_PADDED, PADDING) - 1e-9)
    return max(LEAST_PADDED, math.ceil(LEAST_PADDED * PADDING**power - 1e-9))


def near_zero(design: np.ndarray, legal: Any) -> np.ndarray:
    """The design less that of the first legal option of each decision, in columns that are far from zero.

    It changes no choice, and single precision would round the differences between options away.
    """
    inside = legal[..., None]
    rest = np.where(inside, design - np.take_along_axis(design, legal.argmax(1)[:, None, None], 1), 0)
    size, apart = (np.abs(np.where(inside, x, 0)).max((0, 1), initial=0) for x in (design, rest))
    return np.where(size > FAR * apart, rest, design)


def information(problem: ChoiceProblem) -> Float[np.ndarray, "decision parameter"]:
    """About the information of each decision on each parameter, zero where its choice is unknown.

    It is that where all values are zero, and all legal options of a decision alike.
    """
    legal = np.asarray(problem.data.legal)
    share = legal / legal.sum(-1, keepdims=True)
    design = np.where(legal[..., None], np.asarray(problem.design, float), 0)
    apart = design - np.einsum("do,dop->dp", share, design)[:, None]
    return weights_of(problem.data, known=True)[:, None] * np.einsum("do,dop->dp", share, apart**2)


def utilities_of(theta: Any, problem: ChoiceProblem) -> Any:
    """Utilities (decision, option) given theta (parameter,), or (subject, parameter); zero where not legal."""
    data = problem.data
    xp = namespace(theta, data.legal, data.subject, problem.design)
    # Entries that are not legal may be NaN, whose gradient is NaN even where it is masked later.
    design = xp.where(data.legal[..., None], problem.design, 0)
    if data.subject is None:
        return design @ theta
    exact = {"precision": "highest"} if xp is jnp else {}
    return xp.einsum("dop,dp->do", design, xp.asarray(theta)[xp.asarray(data.subject)], **exact)
