"""Decisions among choice sets that vary: the padded container that choice models read."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.arguments import (
    as_list,
    is_concrete,
    read_array,
    require_key,
    require_number,
)
from ethogram.models.choices.checks import (
    check_fields,
    read_floats,
    read_indices,
    read_named,
    read_positions,
)
from ethogram.models.choices.choice_formulas import products_of
from ethogram.models.choices.choice_tables import read_long, read_wide
from ethogram.models.data.description import describe_data, features_in_words, with_spaces
from ethogram.models.data.metadata import Metadata, read_metadata
from ethogram.models.data.trajectories import ColumnName
from ethogram.models.mdps.mdp import MDP
from ethogram.models.memory_bound import require_room
from ethogram.models.printing import printed_as

__all__ = ["Decisions", "check_decisions", "decisions_in_words", "weights_of"]

HostOrDevice = np.ndarray | Array


@printed_as(
    lambda data: describe_data(data, decisions_in_words),
    "choose decisions by take([0]), read several files together by from_table, ",
)
class Decisions(NamedTuple):
    """Choices, and the choice sets they were made from: a pytree whose leaves are arrays.

    Each choice set is padded to the number of slots of the largest one; entries in slots that are not legal are
    ignored. Alternative-specific constants need the same option in the same slot of every decision. The constructors
    return NumPy arrays and pad with zeros.

    Parameters
    ----------
    features : (decision, option, feature) floats.
    legal : (decision, option) booleans, which slots hold an option that could be chosen.
    choice : (decision,) integers, the slot of the chosen option; -1 where unknown, or to be predicted.
    subject : (decision,) integers from 0, who decided; None for a single subject.
    weight : (decision,) nonnegative numbers, how often a decision counts; None for once each.
    metadata : names of features (``feature_names``), slots (``action_names``) and subjects (``subject_names``).

    Examples
    --------
    >>> data = Decisions.from_list([[[1.0], [0.5]], [[0.2], [0.1], [0.7]]], choice=[0, 2])
    >>> data.features.shape, data.legal.sum(1).tolist(), data.num_decisions
    ((2, 3, 1), [2, 3], 2)
    """

    features: Float[HostOrDevice, "decision option feature"]
    legal: Bool[HostOrDevice, "decision option"]
    choice: Int[HostOrDevice, "decision"]
    subject: Int[HostOrDevice, "decision"] | None = None
    weight: Float[HostOrDevice, "decision"] | Int[HostOrDevice, "decision"] | None = None
    metadata: Metadata = Metadata()

    @property
    def num_decisions(self) -> int:
        """Number of decisions."""
        return self.choice.shape[0]

    def __len__(self) -> int:
        return self.num_decisions

    @classmethod
    def from_list(
        cls,
        features: Iterable[Any],
        choice: Any = None,
        *,
        subject: Any = None,
        weight: Any = None,
        metadata: Metadata | None = None,
        codes: bool = False,
    ) -> Decisions:
        """Decisions from a list of choice sets of any size.

        Parameters
        ----------
        features : an array (option, feature) a decision.
        choice : (decision,) integers, the row of the chosen option, or names of the metadata's ``action_names``, which
            are those of the rows; -1 where unknown, None where no choice is known.
        subject : (decision,) integers, or names of the metadata's ``subject_names``.
        weight : (decision,) numbers.
        codes : True where integers are numbers although some names are numerals; these are looked up otherwise.
        """
        sets = [read_floats(f"features[{row}]", one) for row, one in enumerate(as_list("features", features))]
        if not sets:
            raise ValueError("features is empty: pass at least one decision")
        for row, one in enumerate(sets):
            if one.ndim != 2 or not len(one) or one.shape[1] != sets[0].shape[-1]:
                raise ValueError(
                    f"features[{row}] has shape {one.shape}: pass (option, "
                    f"{sets[0].shape[-1] if sets[0].ndim == 2 else 'feature'}), at least one option"
                )
        counts = np.array([len(one) for one in sets])
        padded = np.zeros((len(sets), counts.max(), sets[0].shape[1]))
        legal = np.arange(counts.max()) < counts[:, None]
        padded[legal] = np.concatenate(sets)
        chosen = np.full(len(sets), -1)
        if choice is not None:
            names = read_metadata(metadata).action_names
            chosen = read_named("choice", choice, names, codes)
        return cls._checked(padded, legal, chosen, subject, weight, metadata, codes)

    @classmethod
    def from_mdp(
        cls,
        mdp: Any,
        states: Any,
        actions: Any = None,
        *,
        legal: Any = None,
        features: Any = None,
        subject: Any = None,
        weight: Any = None,
        metadata: Metadata | None = None,
        codes: bool = False,
    ) -> Decisions:
        """Decisions of an agent in an MDP: options are actions, with their expected next-state features.

        Parameters
        ----------
        mdp : S states, A actions; its discount is not used, since values are those of the next state.
        states, actions : (decision,) integers or names of the MDP; actions are -1 where unknown, and None where none is
            known.
        legal : (state, action) booleans, a subset of the actions of the MDP; None for all of them (`action_mask`).
        features : phi (state, feature), whose expectation sum_s' P(s' | s, a) phi(s') is taken; None for the
            transition probabilities themselves, one feature per state.
        subject, weight : as in :meth:`from_list`.
        codes : True where integers are numbers although some names are numerals; these are looked up otherwise.
        """
        if not isinstance(mdp, MDP):
            raise TypeError(f"mdp is {type(mdp).__name__}: pass an MDP")
        where = read_indices("states", states, mdp.num_states, 0, mdp.state_names, codes)
        count = mdp.num_states if features is None else np.shape(features)[-1]
        fix = "pass features of the states, or decisions of fewer states"
        for rows in ((mdp.num_states, mdp.num_actions), (len(where), mdp.num_actions)):
            require_room("features of the options", (*rows, count), float, fix)
        basis = np.eye(mdp.num_states) if features is None else read_floats("features", features)
        if basis.ndim != 2 or len(basis) != mdp.num_states:
            raise ValueError(f"features has shape {basis.shape}, not ({mdp.num_states}, feature)")
        allowed = np.asarray(mdp.allowed_actions(legal, where))
        chosen = np.full(len(where), -1)
        if actions is not None:
            chosen = read_indices("actions", actions, mdp.num_actions, -1, mdp.action_names, codes)
            if chosen.shape != where.shape:
                raise ValueError(
                    f"actions has {len(chosen)} entries, states {len(where)}: pass one of each a decision"
                )
            wrong = (chosen >= 0) & ~allowed[where, np.maximum(chosen, 0)]
            if wrong.any():
                worst = int(wrong.argmax())
                raise ValueError(
                    f"actions[{worst}] is {chosen[worst]}, which is not legal in state {where[worst]}: the legal "
                    f"actions are {np.flatnonzero(allowed[where[worst]]).tolist()}"
                )
        centre = 0 if features is None else basis.mean(0)  # far from zero, single precision loses differences
        ahead = np.moveaxis(np.asarray(mdp.expect(jnp.asarray((basis - centre).T))), 0, -1)
        ahead = ahead if features is None else (ahead + centre).astype(basis.dtype)
        names = read_metadata(metadata)
        if features is None and names.feature_names is None and names.state_names is not None:
            names = dataclasses.replace(names, feature_names=names.state_names)
        return cls._checked(ahead[where], allowed[where], chosen, subject, weight, names, codes)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        decision: ColumnName | Iterable[ColumnName],
        features: ColumnName | Iterable[ColumnName] | None = None,
        formula: str | None = None,
        chosen: ColumnName | None = None,
        option: ColumnName | None = None,
        subject: ColumnName | None = None,
        weight: ColumnName | None = None,
        available: ColumnName | None = None,
        base_option: str | None = None,
        metadata: Metadata | None = None,
        sep: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        encoding: str | None = None,
    ) -> Decisions:
        """Decisions from a long table, with one row per option; decisions are in the order of their first rows.

        Parameters
        ----------
        table : of any kind that :meth:`Trajectories.from_table <ethogram.Trajectories.from_table>` takes.
        decision : column, or columns, that identify a decision.
        features : numeric columns, without nulls where the option is available; their names go to the metadata.
        formula : in place of `features`, up to three parts, as mlogit has them: attributes of the options with one
            coefficient each; covariates of the decision, with one per alternative but the base, and the constants of
            these unless it has ``0 +``; attributes with a coefficient per alternative. ``"price + time | income"`` has
            the features ``price``, ``time``, ``car``, ``walk``, ``car:income`` and ``walk:income``, where ``bus`` is
            the base. Text has levels; products and functions are those of :class:`~ethogram.Covariates`. Without names
            of options, which `option` gives, there are attributes alone, and no constants. Other data are encoded
            alike, with the same levels and base, where they are read with ``metadata=data.metadata`` and no formula.
        chosen : column that is true (1) in the row of the chosen option and false (0) elsewhere. The choice of a
            decision without such a row is unknown, -1, of which a warning says how many there are; None where no choice
            is known.
        option : column that names the option: one slot per name, in alphabetical order or that of the metadata's
            ``action_names``. None assigns slots by the order of rows.
        subject, weight : columns that are constant within a decision.
        available : column that is true (1) in the rows of options that could be chosen; all by default.
        base_option : the alternative of the formula whose constant is 0; None for the first one.
        metadata : names that the table does not give.
        sep, decimal, thousands, encoding : how files of text are written, as in ``pandas.read_csv``.

        Raises
        ------
        TypeError, ValueError
            If a column is absent, of the wrong kind or has nulls, a decision repeats an option, has two chosen ones or
            one that is not available, a subject or weight changes within a decision, or a formula cannot be computed
            or has a column that no choice informs. The message names the row, the decision or the column.
        FileNotFoundError, ImportError
            As :meth:`Trajectories.from_table <ethogram.Trajectories.from_table>`.

        Examples
        --------
        >>> table = {"trip": [1, 1, 2, 2], "mode": ["bus", "car", "bus", "walk"], "hours": [2.0, 1.0, 0.5, 3.0],
        ...          "taken": [0, 1, 1, 0]}
        >>> data = Decisions.from_table(table, decision="trip", features="hours", chosen="taken", option="mode")
        >>> data.metadata.action_names, data.legal.tolist(), data.choice.tolist()
        (('bus', 'car', 'walk'), [[True, True, False], [True, False, True]], [1, 0])
        >>> data = Decisions.from_table(table, decision="trip", formula="hours | 1", chosen="taken", option="mode")
        >>> data.metadata.feature_names
        ('hours', 'car', 'walk')
        """
        text = {"sep": sep, "decimal": decimal, "thousands": thousands, "encoding": encoding}
        columns = (chosen, option, subject, weight, available, formula, base_option)
        return cls._checked(*read_long(table, decision, features, metadata, text, *columns))

    @classmethod
    def from_wide(
        cls,
        table: Any,
        *,
        features: dict[str, Sequence[ColumnName | None]],
        formula: str | None = None,
        choice: ColumnName | None = None,
        base: int | None = None,
        legal: Sequence[ColumnName] | None = None,
        subject: ColumnName | None = None,
        weight: ColumnName | None = None,
        base_option: str | None = None,
        metadata: Metadata | None = None,
        sep: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        encoding: str | None = None,
    ) -> Decisions:
        """Decisions from a wide table, with one row per decision and one column per feature of each option.

        Parameters
        ----------
        table : of any kind that :meth:`Trajectories.from_table <ethogram.Trajectories.from_table>` takes.
        features : by name, the column of each option; None where the option does not have the feature (zero).
        formula : of these features, and of columns that hold for the decision, as in :meth:`from_table`, with
            ``base_option``; the names of the alternatives are the metadata's ``action_names``.
        choice : column of the chosen options, integers or the metadata's ``action_names``; null where unknown. Where
            there are names, integers are looked up among them by their text, unless `base` is given.
        base : the integer of the first option in `choice`, usually 0 or 1. None takes 0, where some choice is 0. With
            1, a choice of 0 is unknown, of which a warning says how many there are.
        legal : the column of each option that is true (1) where it could be chosen; None makes an option legal where
            none of its features is null.
        subject, weight : columns of who decided, and how often the decision counts.
        metadata : names that the table does not give; ``action_names`` are those of the options.
        sep, decimal, thousands, encoding : how files of text are written, as in ``pandas.read_csv``.

        Raises
        ------
        TypeError, ValueError
            If features have different numbers of options, a column is absent or of the wrong kind, a choice is not
            among the names, integer choices without a 0 have no `base`, or a legal option has a null. The message
            names the row.
        FileNotFoundError, ImportError
            As :meth:`Trajectories.from_table <ethogram.Trajectories.from_table>`.

        Examples
        --------
        >>> table = {"bus": [2.0, 0.5], "car": [1.0, None], "taken": ["car", "bus"]}
        >>> names = Metadata(action_names=["bus", "car"])
        >>> data = Decisions.from_wide(table, features={"hours": ["bus", "car"]}, choice="taken", metadata=names)
        >>> data.legal.tolist(), data.choice.tolist()
        ([[True, True], [True, False]], [1, 0])
        """
        text = {"sep": sep, "decimal": decimal, "thousands": thousands, "encoding": encoding}
        return cls._checked(
            *read_wide(
                table, features, metadata, text, choice, base, legal, subject, weight, formula, base_option
            )
        )

    @classmethod
    def _checked(
        cls,
        features: Any,
        legal: Any,
        choice: Any,
        subject: Any,
        weight: Any,
        metadata: Metadata | None,
        coded: bool = True,
    ) -> Decisions:
        metadata = read_metadata(metadata)
        who = None if subject is None else read_named("subject", subject, metadata.subject_names, coded)
        often = None if weight is None else read_array("weight", weight)
        return check_decisions(cls(features, legal, choice, who, often, metadata))

    @property
    def num_subjects(self) -> int | None:
        """Number of subjects, by their names or the largest index; None without subjects.

        Raises
        ------
        TypeError
            If the subjects are traced, and the metadata do not name them.
        """
        if self.subject is None:
            return None
        if self.metadata.subject_names is not None:
            return len(self.metadata.subject_names)
        if isinstance(self.subject, jax.core.Tracer):
            raise TypeError(
                "subject is traced: name the subjects by metadata.subject_names, or pass a concrete array"
            )
        return int(np.max(np.asarray(self.subject), initial=-1)) + 1

    def take(self, indices: Any) -> Decisions:
        """The decisions at these positions: integers, booleans or a slice."""
        chosen = indices if isinstance(indices, slice) else read_positions(indices, self.num_decisions)
        return jax.tree.map(lambda leaf: leaf[chosen], self)

    def scale_feature(self, feature: str, factor: float | int, option: str | None = None) -> Decisions:
        """The decisions with a feature, and its products in a formula, times a factor; of one option, or of all.

        ``data.scale_feature("price", 1.1, option="car")`` makes the car a tenth dearer. ValueError for an unknown name,
        or one that a function takes: read a changed table, with ``metadata=data.metadata``, then.
        """
        require_number("factor", factor)
        entering, options = [*products_of(self.metadata, feature)], [*(self.metadata.action_names or ())]
        if not entering:
            raise ValueError(f"feature is {feature!r}: pass one of the names {self.metadata.feature_names}")
        if option is not None and option not in options:
            raise ValueError(f"option is {option!r}: pass one of the names {options}")
        changed, slots = np.array(self.features), slice(None) if option is None else options.index(option)
        changed[:, slots, entering] *= factor
        return self._replace(features=changed)

    def split(self, key: Any, test_fraction: float | int = 0.25) -> tuple[Decisions, Decisions]:
        """A random split into training and test decisions, each in the original order."""
        require_key(key)
        require_number("test_fraction", test_fraction, above=0, below=1)
        count = self.num_decisions
        if count < 2:
            raise ValueError(f"there are {count} decisions: a split needs at least two")
        num_test = min(max(round(test_fraction * count), 1), count - 1)
        tested = np.isin(np.arange(count), np.asarray(jax.random.permutation(key, count))[:num_test])
        return self.take(~tested), self.take(tested)


def decisions_in_words(data: Decisions) -> list[str]:
    """Numbers of decisions, options and subjects, and of decisions whose choice is unknown; features with units."""
    count, options = data.legal.shape
    unknown = int((np.asarray(data.choice) < 0).sum())
    subjects = "" if data.subject is None else f" of {data.num_subjects} subjects"
    missing = f", {with_spaces(unknown)} without a chosen option" if unknown else ""
    sizes = f"{with_spaces(count)} decisions{subjects} between up to {options} options{missing}"
    return [sizes, *features_in_words(data.metadata)]


def check_decisions(data: Any) -> Decisions:
    """The same decisions, after a check of their shapes, dtypes, choices and features; traced arrays are not checked.

    Raises
    ------
    TypeError
        If the data are not ``Decisions``, or an array has the wrong dtype.
    ValueError
        If shapes disagree, a decision has no legal option, its choice is not legal, or a legal option has a feature
        that is NaN or infinite. The message names the decision.
    """
    if not isinstance(data, Decisions):
        raise TypeError(f"data is {type(data).__name__}, not Decisions: build them with Decisions.from_list")
    for name, part in zip(Decisions._fields[:-1], data, strict=False):
        if not hasattr(part, "dtype") and not (part is None and name in ("subject", "weight")):
            raise TypeError(f"{name} is {type(part).__name__}: pass a NumPy or JAX array")
    if is_concrete(*jax.tree.leaves(data)):
        arrays = data.features, data.legal, data.choice, data.subject, data.weight
        check_fields(*arrays, data.metadata.subject_names)
    return data


def weights_of(data: Decisions, *, known: bool = False) -> Float[np.ndarray, "decision"]:
    """Weight of each decision, one without weights; with `known`, zero where the choice is unknown."""
    weight = np.ones(data.num_decisions) if data.weight is None else np.asarray(data.weight, float)
    return np.where(np.asarray(data.choice) >= 0, weight, 0.0) if known else weight
