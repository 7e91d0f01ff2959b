r"""Noisy-or networks: binary effects with independent causes.

.. math:: p(\text{no effect} \mid x) = (1 - \lambda) \prod_{k: x_k = 1} (1 - s_k)

with strengths :math:`s_k` and leak :math:`\lambda`. A table of k causes has 2^k rows; a chain of k auxiliary variables,
each the or of the causes so far, has k tables of eight entries and the same distribution.

Pearl (1988), "Probabilistic Reasoning in Intelligent Systems", section 4.3.2; Heckerman, Breese (1996), "Causal
independence for probability assessment and inference using Bayesian networks", for the chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.networks.bayes_net import BayesNet
from ethogram.models.printing import short_repr

__all__ = ["STATES", "Effect", "noisy_or_network"]

STATES = ("no", "yes")


@short_repr
class Effect(NamedTuple):
    """Causes of a noisy-or effect.

    Attributes
    ----------
    strengths : by cause, the probability that it alone causes the effect.
    leak : probability of the effect without any cause.
    """

    strengths: Mapping[str, float]
    leak: float = 0.0


def noisy_or_network(
    causes: Mapping[str, float], effects: Mapping[str, Effect | tuple[Any, ...]]
) -> BayesNet:
    """Noisy-or network of causes and effects, all with the states no and yes.

    Auxiliary variables are called ``effect<cause``: the effect of the leak and of the causes up to this one.

    Parameters
    ----------
    causes : prior probability of every cause, by name.
    effects : by name; the causes of an effect are causes or earlier effects.

    Raises
    ------
    ValueError
        A probability is outside [0, 1], a cause is not defined before its effect, a name is repeated, or an effect has
        no cause.

    Examples
    --------
    >>> sneezing = Effect({"cold": 0.8, "pollen": 0.5}, leak=0.01)
    >>> noisy_or_network({"cold": 0.1, "pollen": 0.2}, {"sneezing": sneezing}).names
    ('cold', 'pollen', 'sneezing<cold', 'sneezing')
    """
    tables: list[np.ndarray] = []
    parents: list[tuple[int, ...]] = []
    number: dict[str, int] = {}

    def add(name: str, table: np.ndarray, above: tuple[int, ...]) -> None:
        if name in number:
            raise ValueError(f"names of causes and effects must be unique; {name!r} appears twice")
        number[name] = len(tables)
        tables.append(table)
        parents.append(above)

    for name, chance in causes.items():
        add(name, _row(f"causes[{name!r}]", chance), ())
    for name, effect in effects.items():
        strengths, leak = Effect(*effect)
        if not strengths:
            raise ValueError(f"effects[{name!r}] has no causes: give at least one, or move it to causes")
        before: tuple[int, ...] = ()
        for i, (cause, strength) in enumerate(strengths.items()):
            if cause not in number:
                raise ValueError(f"effects[{name!r}] has the cause {cause!r}, which is not defined before it")
            fires = _row(f"effects[{name!r}].strengths[{cause!r}]", strength)
            own = name if i == len(strengths) - 1 else f"{name}<{cause}"
            quiet = _row(f"effects[{name!r}].leak", leak)
            alone = np.array([1, fires[0]])
            none = np.stack((alone, np.zeros(2))) if before else quiet[0] * alone
            add(own, np.stack((none, 1 - none), -1), (*before, number[cause]))
            before = (number[own],)
    return BayesNet(tuple(tables), tuple(parents), names=tuple(number), state_names=(STATES,) * len(tables))


def _row(name: str, chance: Any) -> np.ndarray:
    if isinstance(chance, bool) or not isinstance(chance, int | float | np.number) or not 0 <= chance <= 1:
        raise ValueError(f"{name} must be a probability in [0, 1], not {chance!r}")
    return np.array([1 - float(chance), float(chance)])
