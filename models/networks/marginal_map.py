r"""Marginal MAP queries of Bayesian networks.

.. math:: \max_d \sum_s p(d, s, e)

The answer is a joint assignment: the most probable states of all MAP variables together, with every variable that is
neither MAP nor evidence summed out.

Park and Darwiche (2004), "Complexity results and approximation strategies for MAP explanations".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from ethogram.models.arguments import as_list, read_array, require_one_of
from ethogram.models.model_object import model_object, static_field
from ethogram.models.networks.bayes_net import BayesNet, NumberedStates, NumberedVariables

__all__ = ["Evidence", "MarginalMAP"]


class Evidence(NamedTuple):
    """Evidence of a query, by number.

    Attributes
    ----------
    observed : pairs of variable and state.
    soft : pairs of variable and likelihoods of its states.
    """

    observed: tuple[tuple[int, int], ...]
    soft: tuple[tuple[int, tuple[float, ...]], ...]


@model_object
class MarginalMAP:
    """A marginal MAP query: a network, evidence, and the variables to maximise over.

    Parameters
    ----------
    network : :class:`BayesNet`.
    evidence : by variable, its observed state; or the likelihoods of its states (state,), which is soft evidence.
    map_variables : variables to maximise over, by name or number.
    by_number : whether integers are numbers of variables and states where names are numerals too. Else they are looked
        up by their text there, except in what :func:`read_evidence` and :func:`read_map_variables` return.

    Raises
    ------
    TypeError, ValueError
        `network` is not a BayesNet; a variable or state does not exist; a variable is both evidence and MAP, or is
        repeated; there is no MAP variable; likelihoods are negative, all zero, or not one per state.

    Examples
    --------
    >>> rain, wet = np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> garden = BayesNet((rain, wet), ((), (0,)), names=("rain", "wet"))
    >>> query = MarginalMAP(garden, {"wet": 1}, ["rain"])
    >>> query.map_variables, query.observed
    ((0,), ((1, 1),))
    """

    network: Any
    evidence: Any = static_field(default=None)
    map_variables: Any = static_field(default=())
    by_number: bool = static_field(default=False)

    def __post_init__(self):
        network = self.network
        if not isinstance(network, BayesNet):
            raise TypeError(f"network must be a BayesNet, not {type(network).__name__}")
        given: Any = {} if self.evidence is None else self.evidence
        require_one_of("by_number", self.by_number, (True, False))
        by_number = self.by_number
        if isinstance(given, Evidence):  # of another query
            given, by_number = dict(given.observed) | dict(given.soft), True
        if not isinstance(given, Mapping):
            raise TypeError(f"evidence must be a dict from variables to states, not {type(given).__name__}")
        numbered = by_number or isinstance(given, NumberedStates)
        observed: dict[int, int] = {}
        soft: dict[int, tuple[float, ...]] = {}
        for name, value in given.items():
            number = network.variable(name, "evidence", numbered)
            if number in observed or number in soft:
                raise ValueError(f"evidence has {network.names[number]} twice, by number and by name")
            found = read_array(f"evidence of {network.names[number]}", value)
            if found.ndim:
                soft[number] = _read_likelihoods(network, number, found)
            else:
                observed[number] = network.state(number, found.item(), "evidence", numbered)
        maximised = self.map_variables
        numbered = by_number or isinstance(maximised, NumberedVariables)
        listed = maximised.tolist() if hasattr(maximised, "tolist") else maximised
        numbers = tuple(
            network.variable(name, "map_variables", numbered)
            for name in as_list("map_variables", listed, "the variables to maximise over")
        )
        if not numbers:
            raise ValueError("map_variables is empty: name at least one variable to maximise over")
        for number, count in Counter(numbers).items():
            if count > 1:
                raise ValueError(f"map_variables must be unique; {network.names[number]} appears twice")
            if number in observed or number in soft:
                raise ValueError(f"{network.names[number]} is in both evidence and map_variables: drop one")
        object.__setattr__(self, "evidence", Evidence(tuple(observed.items()), tuple(soft.items())))
        object.__setattr__(self, "map_variables", numbers)
        object.__setattr__(self, "by_number", True)

    @property
    def observed(self) -> tuple[tuple[int, int], ...]:
        """Hard evidence, pairs of variable and state."""
        return self.evidence.observed

    @property
    def soft(self) -> tuple[tuple[int, tuple[float, ...]], ...]:
        """Soft evidence, pairs of variable and likelihoods of its states."""
        return self.evidence.soft

    @property
    def summed(self) -> tuple[int, ...]:
        """Variables to sum out: neither MAP nor observed."""
        others = {number for number, _ in self.observed} | set(self.map_variables)
        return tuple(number for number in range(self.network.num_variables) if number not in others)

    def states(self, assignment: Any, argument: str = "assignment") -> tuple[int, ...]:
        """State numbers of an assignment of the MAP variables, in the order of ``map_variables``.

        Parameters
        ----------
        assignment : one state per MAP variable, by name or number: a list in that order, or a dict by variable, as
            :meth:`named` returns it; or an integer array, which has numbers whatever the names are.

        Raises
        ------
        ValueError : it is not one state per MAP variable; the message starts with `argument`.
        """
        network, maximised = self.network, self.map_variables
        if isinstance(assignment, Mapping):
            by_number = {network.variable(name, argument): state for name, state in assignment.items()}
            if len(by_number) < len(assignment) or by_number.keys() != set(maximised):
                raise ValueError(
                    f"{argument} has {len(assignment)} variables: give each of the {len(maximised)} MAP variables once"
                )
            assignment = [by_number[number] for number in maximised]
        numbered = hasattr(assignment, "dtype") and np.issubdtype(assignment.dtype, np.integer)
        if hasattr(assignment, "tolist"):
            assignment = assignment.tolist()
        assignment = as_list(argument, assignment, "one state per MAP variable")
        if len(assignment) != len(maximised):
            raise ValueError(f"{argument} has {len(assignment)} states for {len(maximised)} MAP variables")
        pairs = zip(maximised, assignment, strict=True)
        return tuple(network.state(variable, state, argument, numbered) for variable, state in pairs)

    def named(self, states: Int[np.ndarray, "map"]) -> dict[str, Any]:
        """An assignment by variable name, with state names where the network has some."""
        names, known = self.network.names, self.network.state_names
        pairs = zip(self.map_variables, np.asarray(states).tolist(), strict=True)
        return {names[number]: state if known is None else known[number][state] for number, state in pairs}


def _read_likelihoods(network: BayesNet, number: int, likelihoods: np.ndarray) -> tuple[float, ...]:
    size, name = network.sizes[number], network.names[number]
    if likelihoods.dtype.kind not in "iuf" or likelihoods.shape != (size,):
        raise ValueError(
            f"evidence of {name} is {likelihoods.dtype} of shape {likelihoods.shape}: give a state, or ({size},) "
            "likelihoods"
        )
    if not (np.isfinite(likelihoods).all() and (likelihoods >= 0).all() and likelihoods.any()):
        raise ValueError(
            f"evidence of {name} is {likelihoods.tolist()}: likelihoods must be nonnegative, finite and not all zero"
        )
    return tuple(map(float, likelihoods))
