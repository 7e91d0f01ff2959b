r"""Noisy-or networks: effects that any of their causes may bring about, each by itself.

.. math:: p(\text{no effect} \mid x) = (1 - \lambda) \prod_{k: x_k = 1} (1 - s_k)

with the strengths :math:`s_k` of causes and the leak :math:`\lambda`. A table of k causes has 2^k rows; a chain of k
variables that says whether any of the first causes has brought the effect about has k tables of eight numbers, and
the same probabilities.

Pearl (1988), "Probabilistic Reasoning in Intelligent Systems", section 4.3.2; Heckerman, Breese (1996), "Causal
independence for probability assessment and inference using Bayesian networks", for the chain.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ethogram.models.bayes_net import BayesNet

__all__ = ["STATES", "Effect", "noisy_or_network"]

STATES = ("no", "yes")


class Effect(NamedTuple):
    """What brings an effect about.

    Attributes
    ----------
    strengths : by cause, the probability that it brings the effect about by itself.
    leak : the probability that the effect comes about without any of them.
    """

    strengths: Mapping[str, float]
    leak: float = 0.0


def noisy_or_network(
    causes: Mapping[str, float], effects: Mapping[str, Effect | tuple[Any, ...]]
) -> BayesNet:
    """A network of causes and effects, all with the states no and yes.

    Variables that stand between are called ``effect<cause``: whether that cause, or one before it, or the leak, has
    brought the effect about.

    Parameters
    ----------
    causes : by name, how probable each is.
    effects : by name; causes of an effect may be effects too, of those before it.

    Raises
    ------
    ValueError
        A probability is outside [0, 1], a cause is none of those before, a name is there twice, or an effect has none.

    Examples
    --------
    >>> sneezing = Effect({"cold": 0.8, "pollen": 0.5}, leak=0.01)
    >>> noisy_or_network({"cold": 0.1, "pollen": 0.2}, {"sneezing": sneezing}).names
    ('cold', 'pollen', 'sneezing<cold', 'sneezing')
    """
    tables: list[np.ndarray] = []
    parents: list[tuple[int, ...]] = []
    number: dict[str, int] = {}

    def add(name: str, table: np.ndarray, above: tuple[int, ...]) -> int:
        if name in number:
            raise ValueError(f"{name!r} is there twice: give every cause and effect a name of its own")
        number[name] = len(tables)
        tables.append(table)
        parents.append(above)
        return number[name]

    for name, chance in causes.items():
        add(name, _row(f"causes[{name!r}]", chance), ())
    for name, told in effects.items():
        strengths, leak = Effect(*told)
        if not strengths:
            raise ValueError(
                f"effects[{name!r}] has no causes: give one at least, or name it among the causes"
            )
        before: int | None = None
        for i, (cause, strength) in enumerate(strengths.items()):
            if cause not in number:
                raise ValueError(f"effects[{name!r}] has the cause {cause!r}, which does not stand before it")
            fires = _row(f"effects[{name!r}].strengths[{cause!r}]", strength)
            own = name if i == len(strengths) - 1 else f"{name}<{cause}"
            quiet = _row(f"effects[{name!r}].leak", leak)
            if before is None:
                none = quiet[0] * np.array([1, fires[0]])
                before = add(own, np.stack((none, 1 - none), -1), (number[cause],))
            else:
                none = np.array([[1, fires[0]], [0, 0]])
                before = add(own, np.stack((none, 1 - none), -1), (before, number[cause]))
    return BayesNet(tuple(tables), tuple(parents), names=tuple(number), state_names=(STATES,) * len(tables))


def _row(name: str, chance: Any) -> np.ndarray:
    if isinstance(chance, bool) or not isinstance(chance, int | float | np.number) or not 0 <= chance <= 1:
        raise ValueError(f"{name} is {chance!r}: give a probability")
    return np.array([1 - float(chance), float(chance)])
