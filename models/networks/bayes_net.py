r"""Bayesian networks of discrete variables.

.. math:: p(x) = c \prod_i p(x_i \mid x_{\mathrm{pa}(i)})

Pearl (1988), "Probabilistic Reasoning in Intelligent Systems"; the constant c is one except for networks
made of factors.
"""

from __future__ import annotations

import functools
import graphlib
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.typing import ArrayLike

from ethogram.models.arguments import as_list, read_array, require, require_integer, require_number, warn_user
from ethogram.models.model_object import model_object, static_field
from ethogram.models.printing import few_names, printed_as

__all__ = ["BayesNet", "NumberedStates", "NumberedVariables"]

NUMERAL = re.compile(r"[+-]?[0-9]+\.?[0-9]*")
"""A name that may be mistaken for a number: where one of a vocabulary is, numbers are looked up by their text."""
ROW_SUM_TOLERANCE = 1e-6
"""Deviation of a row's sum from one beyond which there is a warning."""


class NumberedStates(dict[int, int]):
    """States by variable, both by number whatever the names are: evidence that was read from a file."""


class NumberedVariables(tuple[int, ...]):
    """Variables by number whatever the names are: MAP variables that were read from a file."""


def _describe(network: BayesNet) -> str:
    largest = max((getattr(each, "shape", ()) for each in network.tables), key=math.prod)
    return f"BayesNet({len(network.tables)} variables: {few_names(network.names)}; largest table of shape {largest})"


@model_object
@printed_as(_describe)
class BayesNet:
    """A discrete Bayesian network, which is a numpyro model with one site per variable.

    Variables and states are given by name, or by number, from 0. Where one of the names is a numeral, such as ``"1"``,
    a number is a name too: it is looked up by its text. Tables are used as given, in double precision: rows that do not
    sum to one raise a warning and are never normalised.

    Parameters
    ----------
    tables : one conditional probability table per variable; one axis per parent, in order, then the variable's own.
    parents : one tuple per variable, the numbers of its parents.
    names : of the variables; ``x0``, ``x1``, ... if None.
    state_names : one tuple per variable, the names of its states; None if states have none.
    log_constant : logarithm of a factor that multiplies the product of the tables.

    Raises
    ------
    TypeError, ValueError
        A table does not have the shape that its parents imply, or has a negative or non-finite entry; a parent does
        not exist or is repeated; the graph has a cycle; names are not unique strings, one per variable.

    Warns
    -----
    UserWarning
        A row's sum differs from one by more than 1e-6.

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
        tables = tuple(
            _read_table(number, table)
            for number, table in enumerate(as_list("tables", self.tables, "one table per variable"))
        )
        count = len(tables)
        if not count:
            raise ValueError("tables is empty: a network needs at least one variable")
        parents = tuple(
            tuple(
                require_integer(f"parents[{number}]", each) for each in as_list(f"parents[{number}]", above)
            )
            for number, above in enumerate(as_list("parents", self.parents, "one tuple per variable"))
        )
        if len(parents) != count:
            raise ValueError(f"parents has {len(parents)} entries, but tables has {count}: give one of each")
        listed = [f"x{number}" for number in range(count)] if self.names is None else self.names
        names = tuple(as_list("names", listed, "one name per variable"))
        if len(names) != count:
            raise ValueError(
                f"names has {len(names)} entries for {count} variables: give one name per variable"
            )
        require_number("log_constant", self.log_constant)
        if not all(isinstance(name, str) for name in names) or len(set(names)) < count:
            odd = [name for name in names if not isinstance(name, str)]
            twice = [] if odd else [name for name, count in Counter(names).items() if count > 1]
            fault = f"{odd[0]!r} is not a string" if odd else f"{twice[0]!r} appears twice"
            raise ValueError(f"names must be unique strings; {fault}")
        for name, value in (("parents", parents), ("tables", tables), ("names", names)):
            object.__setattr__(self, name, value)
        sizes = self.sizes
        for number, each in enumerate(parents):
            wrong = [parent for parent in each if not 0 <= parent < count]
            if wrong or len(set(each)) < len(each) or number in each:
                fault = (
                    f"{wrong[0]} is outside 0..{count - 1}"
                    if wrong
                    else "a parent is repeated, or is its own"
                )
                raise ValueError(f"parents[{number}] (of {names[number]}): {fault}")
            wanted = (*(sizes[parent] for parent in each), sizes[number])
            if tables[number].shape != wanted:
                raise ValueError(
                    f"tables[{number}] (of {names[number]}) has shape {tables[number].shape}, not {wanted}: give one "
                    "axis per parent, in order, and the variable's own last"
                )
        self._read_states()
        _topological_order(parents, names)
        self._warn_of_rows()

    def _read_states(self) -> None:
        if self.state_names is None:
            return
        listed = as_list("state_names", self.state_names, "one tuple per variable")
        states = tuple(
            tuple(as_list(f"state_names[{i}]", each, "one name per state")) for i, each in enumerate(listed)
        )
        object.__setattr__(self, "state_names", states)
        if len(states) != len(self.tables):
            raise ValueError(f"state_names has {len(states)} entries for {len(self.tables)} variables")
        for name, each, size in zip(self.names, states, self.sizes, strict=True):
            if not all(isinstance(state, str) for state in each) or not len(each) == size == len(set(each)):
                raise ValueError(f"state_names of {name} must be {size} unique strings, not {each!r:.200}")

    def _warn_of_rows(self) -> None:
        off = np.array([np.abs(table.sum(-1) - 1).max() for table in self.tables])
        if off.max() > ROW_SUM_TOLERANCE:
            worst = int(off.argmax())
            warn_user(
                f"{int((off > ROW_SUM_TOLERANCE).sum())} tables have rows that do not sum to one (off by up to "
                f"{off[worst]:.3g}, in the table of {self.names[worst]}): they are used as given"
            )

    @property
    def num_variables(self) -> int:
        """Number of variables."""
        return len(self.tables)

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of states of every variable."""
        return tuple(table.shape[-1] for table in self.tables)

    @property
    def order(self) -> tuple[int, ...]:
        """Variables in topological order, parents before children."""
        return _topological_order(self.parents, self.names)

    @functools.cached_property
    def _vocabularies(self) -> tuple[_Vocabulary, ...]:
        """Names of the variables, and of the states of every variable."""
        states = self.state_names or ((),) * self.num_variables
        return (
            _Vocabulary(self.names, self.num_variables),
            *(_Vocabulary(each, size) for each, size in zip(states, self.sizes, strict=True)),
        )

    def variable(self, name: Any, argument: str = "variable", by_number: bool = False) -> int:
        """Number of a variable given by name, or by number where no name is a numeral.

        Parameters
        ----------
        by_number : whether an integer is a number whatever the names are.

        Raises
        ------
        ValueError : there is no such variable; the message starts with `argument`.
        """
        number = self._vocabularies[0].find(name, by_number)
        if number is None:
            raise ValueError(f"{argument}: no variable is named {name!r}; there are {self._vocabularies[0]}")
        return number

    def state(self, variable: int, value: Any, argument: str = "state", by_number: bool = False) -> int:
        """Number of the state of a variable, given by name, or by number where no name is a numeral.

        Parameters
        ----------
        variable : its number.
        by_number : whether an integer is a number whatever the names are.

        Raises
        ------
        ValueError : the variable has no such state; the message starts with `argument`.
        """
        states = self._vocabularies[1 + variable]
        number = states.find(value, by_number)
        if number is None:
            raise ValueError(
                f"{argument}: {self.names[variable]} has no state {value!r}; its states are {states}"
            )
        return number

    def log_joint(self, assignment: ArrayLike | Sequence[int]) -> float:
        """Joint log probability of an assignment of all variables, constant included; -inf if it is impossible.

        Parameters
        ----------
        assignment : (variable,) numbers of states, whatever their names are.

        Raises
        ------
        ValueError : the shape is wrong, or a number is not a state.
        """
        states = np.asarray(assignment)
        if states.shape != (self.num_variables,) or states.dtype.kind not in "iu":
            raise ValueError(
                f"assignment must be integers of shape ({self.num_variables},), not {states.dtype} of {states.shape}"
            )
        for number, value in enumerate(states.tolist()):
            self.state(number, value, "assignment", by_number=True)
        with np.errstate(divide="ignore"):
            families = enumerate(zip(self.tables, self.parents, strict=True))
            logs = [np.log(table[(*states[list(each)], states[i])]) for i, (table, each) in families]
        return float(self.log_constant + np.sum(logs))

    def __call__(self, evidence: Mapping[Any, Any] | None = None) -> None:
        """Ancestral sampling of all variables, those in the evidence observed.

        Samples come from normalised rows. Where rows do not sum to one, or there is a constant, a site ``mass`` makes
        the log density that of :meth:`log_joint`.

        Parameters
        ----------
        evidence : states by variable, each a name or a number.

        Raises
        ------
        ValueError : a variable or state does not exist, or a variable appears twice.
        """
        known: dict[int, int] = {}
        by_number = isinstance(evidence, NumberedStates)
        for name, value in (evidence or {}).items():
            number = self.variable(name, "evidence", by_number)
            if number in known:
                raise ValueError(f"evidence has {self.names[number]} twice, by number and by name")
            known[number] = self.state(number, value, "evidence", by_number)
        values: dict[int, Any] = {}
        mass = jnp.asarray(self.log_constant)
        exact = self.log_constant == 0
        for number in self.order:
            table = jnp.asarray(self.tables[number])
            row = table[tuple(values[parent] for parent in self.parents[number])]
            total = row.sum(-1)
            if (np.abs(self.tables[number].sum(-1) - 1) > 1e-12).any():
                exact, mass = False, mass + jnp.log(total)
            child = dist.Categorical(probs=row / jnp.where(total > 0, total, 1), validate_args=False)
            values[number] = numpyro.sample(self.names[number], child, obs=known.get(number))
        if not exact:
            site = "mass"
            while site in self.names:
                site += "_"
            numpyro.sample(site, dist.Unit(mass), obs=jnp.zeros((*jnp.shape(mass), 0)))


def _read_table(number: int, table: Any) -> np.ndarray:
    array = read_array(f"tables[{number}]", table)
    if array.dtype.kind not in "iuf" or not array.ndim or not array.size:
        raise TypeError(
            f"tables[{number}] is {array.dtype} of shape {array.shape}: give probabilities of shape (parents..., state)"
        )
    array = array.astype(np.float64)
    wrong = ~(np.isfinite(array) & (array >= 0))
    require(~wrong, f"tables[{number}]", array, ": it must be finite and nonnegative")
    return array


class _Vocabulary:
    """Names of variables or of states, none of which or all have one, and how they are looked up."""

    def __init__(self, names: Sequence[str], size: int):
        self.places, self.size = {name: number for number, name in enumerate(names)}, size
        self.has_numeral = any(map(NUMERAL.fullmatch, names))

    def __str__(self) -> str:
        numbers = f"0..{self.size - 1}"
        if not self.places:
            return f"{numbers}, without names"
        return few_names(tuple(self.places)) + ("" if self.has_numeral else f", or by number {numbers}")

    def find(self, value: Any, by_number: bool) -> int | None:
        """Number of a name, or of a number if no name is a numeral or it is `by_number`; None where there is none."""
        value = value.item() if hasattr(value, "item") and not np.ndim(value) else value
        if isinstance(value, str | int | float) and not by_number:
            whole = isinstance(value, float) and value.is_integer() and str(value) not in self.places
            place = self.places.get(str(int(value)) if whole else str(value))
            if place is not None or self.has_numeral:
                return place
        is_number = isinstance(value, int) and not isinstance(value, bool)
        return value if is_number and 0 <= value < self.size else None


@functools.lru_cache(maxsize=64)
def _topological_order(parents: tuple[tuple[int, ...], ...], names: tuple[str, ...]) -> tuple[int, ...]:
    """Variables with parents before children; ValueError where there is a cycle."""
    sorter = graphlib.TopologicalSorter[int]({number: () for number in range(len(parents))})  # in this order
    for number, each in enumerate(parents):
        sorter.add(number, *each)
    try:
        return tuple(sorter.static_order())
    except graphlib.CycleError as error:
        cycle = " -> ".join(names[number] for number in error.args[1])
        raise ValueError(f"parents contain a cycle: {cycle}") from None
