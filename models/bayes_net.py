r"""Bayesian networks of discrete variables, and the marginal MAP question asked of them.

.. math:: p(x) = c \prod_i p(x_i \mid x_{\mathrm{pa}(i)}), \qquad
          \max_d \sum_s p(d, s, e)

Joint, not one variable at a time: the most probable setting of all MAP variables together, with everything that is
neither MAP nor evidence summed out.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jaxtyping import Int

from ethogram.models.model_object import model_object, static_field
from ethogram.models.topological_order import topological_order

__all__ = ["BayesNet", "MarginalMAP"]

ROUNDING = 1e-6
"""By how much a row may miss one without a word."""


@model_object
class BayesNet:
    """A Bayesian network; a numpyro model whose discrete sites have the variables' names.

    Variables are numbers 0 to N - 1, or names; so are the states of each. Tables are kept as they are, in double
    precision: rows that do not sum to one are told of, and never made to.

    Parameters
    ----------
    tables : of every variable, p(x | parents), an array with an axis for each parent, in their order, and the
        variable's own last.
    parents : of every variable, numbers of its parents.
    names : of the variables; ``x0``, ``x1`` and so on where None.
    state_names : of every variable, names of its states; None where they have none.
    log_constant : what the product of the tables is multiplied by, its logarithm.

    Raises
    ------
    TypeError, ValueError
        A table has another shape than its parents say, or an entry that is negative or not finite; a parent is no
        variable, or named twice; the arrows go round; names are not one each, or not different.

    Warns
    -----
    UserWarning
        Rows miss one by more than 1e-6.

    Examples
    --------
    >>> rain, wet = np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.2, 0.8]])
    >>> garden = BayesNet((rain, wet), ((), (0,)), names=("rain", "wet"), state_names=(("no", "yes"),) * 2)
    >>> round(float(np.exp(garden.log_joint([1, 1]))), 2)
    0.16
    """

    tables: tuple[Any, ...]
    parents: tuple[tuple[int, ...], ...] = static_field()
    names: Any = static_field(default=None)
    state_names: tuple[tuple[str, ...], ...] | None = static_field(default=None)
    log_constant: float = static_field(default=0.0)

    def __post_init__(self):
        count = len(self.tables)
        if not count:
            raise ValueError("tables are none: a network has a variable at least")
        parents = tuple(tuple(int(parent) for parent in each) for each in self.parents)
        if len(parents) != count:
            raise ValueError(
                f"parents are of {len(parents)} variables, tables of {count}: give both for each"
            )
        tables = tuple(_read_table(number, table) for number, table in enumerate(self.tables))
        names = tuple(f"x{number}" for number in range(count)) if self.names is None else tuple(self.names)
        if len(names) != count or len(set(names)) < count or not all(isinstance(name, str) for name in names):
            twice = next((name for name in names if names.count(name) > 1), None)
            told = f"{twice!r} twice" if twice is not None else f"{len(names)} of {count}"
            raise ValueError(f"names have {told}: give a string to every variable, each its own")
        for name, value in (("parents", parents), ("tables", tables), ("names", names)):
            object.__setattr__(self, name, value)
        sizes = self.sizes
        for number, each in enumerate(parents):
            wrong = [parent for parent in each if not 0 <= parent < count]
            if wrong or len(set(each)) < len(each) or number in each:
                told = (
                    f"has {wrong[0]}, outside 0..{count - 1}" if wrong else "has a variable twice, or itself"
                )
                raise ValueError(f"parents[{number}], of {names[number]}, {told}")
            wanted = (*(sizes[parent] for parent in each), sizes[number])
            if tables[number].shape != wanted:
                raise ValueError(
                    f"tables[{number}], of {names[number]}, has shape {tables[number].shape}, not {wanted}: an axis "
                    "for each parent in their order, and its own last"
                )
        self._read_states()
        topological_order(parents, names)
        self._warn_of_rows()

    def _read_states(self) -> None:
        if self.state_names is None:
            return
        states = tuple(tuple(each) for each in self.state_names)
        object.__setattr__(self, "state_names", states)
        if len(states) != len(self.tables):
            raise ValueError(f"state_names are of {len(states)} variables, tables of {len(self.tables)}")
        for name, each, size in zip(self.names, states, self.sizes, strict=True):
            if len(each) != size or len(set(each)) < size:
                raise ValueError(f"state_names of {name} are {each}: give {size}, each another")

    def _warn_of_rows(self) -> None:
        off = np.array([np.abs(table.sum(-1) - 1).max() for table in self.tables])
        if off.max() > ROUNDING:
            worst = int(off.argmax())
            warnings.warn(
                f"{int((off > ROUNDING).sum())} tables have rows that do not sum to one, the worst of them that of "
                f"{self.names[worst]}, by {off[worst]:.3g}: they are kept as they are",
                stacklevel=4,
            )

    @property
    def num_variables(self) -> int:
        return len(self.tables)

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of states of every variable."""
        return tuple(table.shape[-1] for table in self.tables)

    @property
    def order(self) -> tuple[int, ...]:
        """The variables, parents before children."""
        return topological_order(self.parents, self.names)

    def variable(self, name: Any, argument: str = "variable") -> int:
        """Number of a variable that is given by its number or name.

        Raises
        ------
        ValueError : there is no such variable; `argument` is what the message calls it.
        """
        if isinstance(name, str):
            if name not in self.names:
                raise ValueError(
                    f"{argument} has {name!r}, which is no variable of the network: {_few(self.names)}"
                )
            return self.names.index(name)
        if (
            isinstance(name, bool)
            or not isinstance(name, int | np.integer)
            or not 0 <= name < self.num_variables
        ):
            raise ValueError(f"{argument} has {name!r}: variables are 0..{self.num_variables - 1}, or names")
        return int(name)

    def state(self, variable: int, value: Any, argument: str = "state") -> int:
        """Number of a state of a variable that is given by its number or name.

        Raises
        ------
        ValueError : the variable has no such state; `argument` is what the message calls it.
        """
        size, name = self.sizes[variable], self.names[variable]
        if isinstance(value, str):
            known = () if self.state_names is None else self.state_names[variable]
            if value not in known:
                told = _few(known) if known else f"it has states 0..{size - 1} without names"
                raise ValueError(f"{argument} has {value!r} for {name}: {told}")
            return known.index(value)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < size:
            raise ValueError(f"{argument} has {value!r} for {name}: its states are 0..{size - 1}")
        return int(value)

    def log_joint(self, assignment: Any) -> float:
        """Log probability of all variables together, constant included; -inf where it is impossible.

        Parameters
        ----------
        assignment : (variable,) integers.

        Raises
        ------
        ValueError : it has another shape, or a number that is no state.
        """
        states = np.asarray(assignment)
        if states.shape != (self.num_variables,) or states.dtype.kind not in "iu":
            raise ValueError(
                f"assignment is {states.dtype} {states.shape}: give integers ({self.num_variables},), a state each"
            )
        for number, value in enumerate(states):
            self.state(number, value, "assignment")
        with np.errstate(divide="ignore"):
            logs = [
                np.log(table[(*states[list(each)], states[number])])
                for number, (table, each) in enumerate(zip(self.tables, self.parents, strict=True))
            ]
        return float(self.log_constant + np.sum(logs))

    def __call__(self, evidence: Mapping[Any, Any] | None = None) -> None:
        """Sample all variables from parents to children; those of the evidence are observed.

        Draws are of rows that sum to one; what rows sum to, and the constant, are a site ``mass`` where they are not
        one and zero, so that the log density is :meth:`log_joint`.

        Parameters
        ----------
        evidence : states by variable, each a number or a name.

        Raises
        ------
        ValueError : a variable or state is not there, or a variable is there twice.
        """
        known: dict[int, int] = {}
        for name, value in (evidence or {}).items():
            number = self.variable(name, "evidence")
            if number in known:
                raise ValueError(f"evidence has {self.names[number]} twice, by number and by name")
            known[number] = self.state(number, value, "evidence")
        values: dict[int, Any] = {}
        mass = jnp.asarray(self.log_constant)
        exact = self.log_constant == 0
        for number in self.order:
            table = jnp.asarray(self.tables[number])
            row = table[tuple(values[parent] for parent in self.parents[number])]
            total = row.sum(-1)
            if (np.abs(self.tables[number].sum(-1) - 1) > 1e-12).any():
                exact, mass = False, mass + jnp.log(total)
            law = dist.Categorical(probs=row / jnp.where(total > 0, total, 1), validate_args=False)
            values[number] = numpyro.sample(self.names[number], law, obs=known.get(number))
        if not exact:
            site = "mass"
            while site in self.names:
                site += "_"
            numpyro.sample(site, dist.Unit(mass), obs=jnp.zeros((*jnp.shape(mass), 0)))


@model_object
class MarginalMAP:
    """The question which states of some variables are most probable together, given others.

    Parameters
    ----------
    network : :class:`BayesNet`.
    evidence : by variable, its state; or likelihoods of its states (state,), which is soft evidence.
    map_variables : variables whose states are asked for.

    Raises
    ------
    TypeError, ValueError
        `network` is no BayesNet; a variable or state is not there, a variable is both evidence and MAP or is asked for
        twice, none is asked for, or likelihoods are negative, all zero, or not one a state.

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

    def __post_init__(self):
        network = self.network
        if not isinstance(network, BayesNet):
            raise TypeError(f"network is {type(network).__name__}: give a BayesNet")
        given: Mapping[Any, Any] = {} if self.evidence is None else self.evidence
        if not isinstance(given, Mapping):
            raise TypeError(f"evidence is {type(given).__name__}: give a dict from variables to states")
        observed: dict[int, int] = {}
        soft: dict[int, tuple[float, ...]] = {}
        for name, value in given.items():
            number = network.variable(name, "evidence")
            if number in observed or number in soft:
                raise ValueError(f"evidence has {network.names[number]} twice, by number and by name")
            if np.ndim(value):
                soft[number] = _read_likelihoods(network, number, value)
            else:
                value = value.item() if hasattr(value, "item") else value
                observed[number] = network.state(number, value, "evidence")
        asked = self.map_variables
        if isinstance(asked, str) or not isinstance(asked, Sequence | np.ndarray):
            raise TypeError(f"map_variables is {type(asked).__name__}: give a list of variables")
        numbers = tuple(network.variable(name, "map_variables") for name in asked)
        if not numbers:
            raise ValueError("map_variables are none: say which variables' states are asked for")
        for number in numbers:
            if numbers.count(number) > 1:
                raise ValueError(f"map_variables have {network.names[number]} twice")
            if number in observed or number in soft:
                raise ValueError(
                    f"{network.names[number]} is both in evidence and in map_variables: take one out"
                )
        object.__setattr__(self, "evidence", (tuple(observed.items()), tuple(soft.items())))
        object.__setattr__(self, "map_variables", numbers)

    @property
    def observed(self) -> tuple[tuple[int, int], ...]:
        """Pairs of a variable and its state."""
        return self.evidence[0]

    @property
    def soft(self) -> tuple[tuple[int, tuple[float, ...]], ...]:
        """Pairs of a variable and the likelihoods of its states."""
        return self.evidence[1]

    @property
    def summed(self) -> tuple[int, ...]:
        """Variables that are neither asked for nor known."""
        known = {number for number, _ in self.observed} | set(self.map_variables)
        return tuple(number for number in range(self.network.num_variables) if number not in known)

    def states(self, assignment: Any, argument: str = "assignment") -> tuple[int, ...]:
        """Numbers of the states of the MAP variables, in the order in which they are asked for.

        Parameters
        ----------
        assignment : a state each, by number or name: a list in that order, or a dict from variables, as :meth:`named`
            makes it.

        Raises
        ------
        ValueError : it is not one state a MAP variable; `argument` is what the message calls it.
        """
        network, asked = self.network, self.map_variables
        if isinstance(assignment, Mapping):
            told = {network.variable(name, argument): state for name, state in assignment.items()}
            if len(told) < len(assignment) or told.keys() != set(asked):
                raise ValueError(
                    f"{argument} is of {len(assignment)} variables: give a state to each that is asked for, once"
                )
            assignment = [told[number] for number in asked]
        if hasattr(assignment, "tolist"):
            assignment = assignment.tolist()
        if len(assignment) != len(asked):
            raise ValueError(f"{argument} has {len(assignment)} states, and {len(asked)} are asked for")
        return tuple(network.state(v, state, argument) for v, state in zip(asked, assignment, strict=True))

    def named(self, states: Int[np.ndarray, "map"]) -> dict[str, Any]:
        """States of the MAP variables by name, as names where they have some."""
        network, told = self.network, {}
        for number, state in zip(self.map_variables, np.asarray(states).tolist(), strict=True):
            known = network.state_names
            told[network.names[number]] = state if known is None else known[number][state]
        return told


def _read_table(number: int, table: Any) -> np.ndarray:
    array = np.asarray(table)
    if array.dtype.kind not in "iuf" or not array.ndim or not array.size:
        raise TypeError(
            f"tables[{number}] is {array.dtype} {array.shape}: give probabilities (parents..., state)"
        )
    array = array.astype(np.float64)
    wrong = np.argwhere(~(np.isfinite(array) & (array >= 0)))
    if len(wrong):
        at = wrong[0].tolist()
        raise ValueError(f"tables[{number}]{at} is {array[tuple(at)]}: give numbers of at least 0")
    return array


def _read_likelihoods(network: BayesNet, number: int, value: Any) -> tuple[float, ...]:
    likelihoods = np.asarray(value)
    size, name = network.sizes[number], network.names[number]
    if likelihoods.dtype.kind not in "iuf" or likelihoods.shape != (size,):
        raise ValueError(
            f"evidence of {name} is {likelihoods.dtype} {likelihoods.shape}: give a state, or likelihoods ({size},)"
        )
    if not (np.isfinite(likelihoods).all() and (likelihoods >= 0).all() and likelihoods.any()):
        raise ValueError(
            f"evidence of {name} is {likelihoods.tolist()}: give likelihoods of at least 0, not all 0"
        )
    return tuple(map(float, likelihoods))


def _few(names: Sequence[str]) -> str:
    return f"it has {', '.join(names[:6])}" + (f" and {len(names) - 6} more" if len(names) > 6 else "")
