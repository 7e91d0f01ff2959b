"""Decisions among sets of options that change: the padded container that choice models read, and its checks."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from ethogram.models.legal_actions import legal_actions
from ethogram.models.mdp import MDP
from ethogram.models.ragged.metadata import Metadata
from ethogram.models.trajectories import ColumnName

__all__ = ["Decisions", "check_decisions", "digest", "require_key", "weights_of"]

HostOrDevice = np.ndarray | Array


class Decisions(NamedTuple):
    """What somebody chose, and from which options: a pytree whose leaves are the arrays.

    Options stand in slots, as many as the largest set has; what stands in a slot that is not legal is not looked at.
    Where the same option has the same slot in all decisions, models can give options constants of their own. The
    constructors return NumPy arrays on the host and write zeros where there is no option.

    Parameters
    ----------
    features : (decision, option, feature) floats.
    legal : (decision, option) booleans: which slots hold an option that could be chosen.
    choice : (decision,) integers, the slot of what was chosen; -1 where that is not known, or to be predicted.
    subject : (decision,) integers from 0, who decided; None for one subject.
    weight : (decision,) numbers from 0, how often a decision counts; None for once.
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
        """Number of decisions (``len`` counts the fields of the tuple)."""
        return self.choice.shape[0]

    @classmethod
    def from_list(
        cls,
        features: Iterable[Any],
        choice: Any = None,
        *,
        subject: Any = None,
        weight: Any = None,
        metadata: Metadata | None = None,
    ) -> Decisions:
        """Decisions of option sets of any size.

        Parameters
        ----------
        features : an array (option, feature) a decision.
        choice : (decision,) integers, the row of what was chosen; -1 everywhere where None.
        subject, weight : (decision,) integers, and numbers.

        Raises
        ------
        TypeError, ValueError
            If a set of options is empty, of another number of features or not of numbers, or as for
            :func:`check_decisions`.
        """
        sets = [_floats(f"features[{row}]", one) for row, one in enumerate(features)]
        if not sets:
            raise ValueError("features has no decisions: give one at least")
        for row, one in enumerate(sets):
            if one.ndim != 2 or not len(one) or one.shape[1] != sets[0].shape[1]:
                raise ValueError(
                    f"features[{row}] has shape {one.shape}: give (option, {sets[0].shape[-1]}), one option at least"
                )
        counts = np.array([len(one) for one in sets])
        padded = np.zeros((len(sets), counts.max(), sets[0].shape[1]))
        legal = np.arange(counts.max()) < counts[:, None]
        padded[legal] = np.concatenate(sets)
        chosen = np.full(len(sets), -1) if choice is None else np.asarray(choice)
        who, often = (None if part is None else np.asarray(part) for part in (subject, weight))
        return check_decisions(cls(padded, legal, chosen, who, often, metadata or Metadata()))

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
    ) -> Decisions:
        """Decisions of an agent in a world: an option is an action, its features those expected one step ahead.

        Parameters
        ----------
        mdp : S states, A actions; its discount is not used: values are what the next state is worth.
        states, actions : (decision,) integers; an action is -1 where it is not known, as all are where None.
        legal : (state, action) booleans, of actions that the world has; None for all of these (`action_mask`).
        features : phi (state, feature), expected as sum_s' P(s' | s, a) phi(s'); None for one feature a state, so
            that an option's features are the probabilities of the next states.
        subject, weight : (decision,) integers, and numbers.

        Raises
        ------
        TypeError, ValueError
            If a state or action is outside the world, an action is not legal where it was taken, `legal` or `features`
            have another shape, or as for
            :func:`~ethogram.models.legal_actions.legal_actions` and :func:`check_decisions`.
        """
        if not isinstance(mdp, MDP):
            raise TypeError(f"mdp is {type(mdp).__name__}: give an MDP")
        where = _indices("states", states, mdp.num_states)
        basis = np.eye(mdp.num_states) if features is None else _floats("features", features)
        if basis.ndim != 2 or len(basis) != mdp.num_states:
            raise ValueError(f"features has shape {basis.shape}, not ({mdp.num_states}, feature)")
        allowed = np.asarray(legal_actions(mdp, legal, where))
        chosen = np.full(len(where), -1)
        if actions is not None:
            chosen = _indices("actions", actions, mdp.num_actions, least=-1)
            if chosen.shape != where.shape:
                raise ValueError(
                    f"actions has {len(chosen)} entries, states {len(where)}: give one each a decision"
                )
            wrong = (chosen >= 0) & ~allowed[where, np.maximum(chosen, 0)]
            if wrong.any():
                worst = int(wrong.argmax())
                raise ValueError(
                    f"actions[{worst}] is {chosen[worst]}, which is not legal in state {where[worst]}: the legal ones "
                    f"are {np.flatnonzero(allowed[where[worst]]).tolist()}"
                )
        ahead = np.moveaxis(np.asarray(mdp.expect(jnp.asarray(basis.T))), 0, -1)
        names = metadata or Metadata()
        if features is None and names.feature_names is None and names.state_names is not None:
            names = dataclasses.replace(names, feature_names=names.state_names)
        who, often = (None if part is None else np.asarray(part) for part in (subject, weight))
        return check_decisions(cls(ahead[where], allowed[where], chosen, who, often, names))

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        decision: ColumnName | Iterable[ColumnName],
        features: ColumnName | Iterable[ColumnName],
        chosen: ColumnName | None = None,
        option: ColumnName | None = None,
        subject: ColumnName | None = None,
        weight: ColumnName | None = None,
        metadata: Metadata | None = None,
    ) -> Decisions:
        """Decisions of a long table, one row an option, as `ragged.choice_tables.from_long` describes."""
        from ethogram.models.ragged.choice_tables import from_long

        columns = {"chosen": chosen, "option": option, "subject": subject, "weight": weight}
        return from_long(table, decision=decision, features=features, **columns, metadata=metadata)

    @classmethod
    def from_wide(
        cls,
        table: Any,
        *,
        features: dict[str, Any],
        choice: ColumnName | None = None,
        legal: Any = None,
        subject: ColumnName | None = None,
        weight: ColumnName | None = None,
        metadata: Metadata | None = None,
    ) -> Decisions:
        """Decisions of a wide table, one row a decision, as `ragged.choice_tables.from_wide` describes."""
        from ethogram.models.ragged.choice_tables import from_wide

        columns = {"choice": choice, "legal": legal, "subject": subject, "weight": weight}
        return from_wide(table, features=features, **columns, metadata=metadata)

    @property
    def num_subjects(self) -> int | None:
        """How many subjects there are, by their names or the largest number; None without subjects.

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
                "subject is traced: name the subjects by metadata.subject_names, or leave it concrete"
            )
        return int(np.max(np.asarray(self.subject), initial=-1)) + 1

    def take(self, indices: Any) -> Decisions:
        """The decisions with these numbers, of this slice, or where booleans are true, in this order.

        Raises
        ------
        TypeError, ValueError
            If indices are no list of integers or booleans, or there is no decision of such a number.
        """
        chosen = indices if isinstance(indices, slice) else _numbers(indices, self.num_decisions)
        return jax.tree.map(lambda leaf: leaf[chosen], self)

    def split(self, key: Any, test_fraction: float | int = 0.25) -> tuple[Decisions, Decisions]:
        """Decisions to learn from and others to test on, drawn at random, in their old order.

        Raises
        ------
        TypeError, ValueError
            If the key is not typed, the fraction is not in (0, 1), or there are fewer than two decisions.
        """
        require_key(key)
        count = self.num_decisions
        if not 0 < test_fraction < 1 or count < 2:
            raise ValueError(
                f"test_fraction is {test_fraction}, of {count} decisions: choose a share between 0 and 1 of two or more"
            )
        num_test = min(max(round(test_fraction * count), 1), count - 1)
        tested = np.isin(np.arange(count), np.asarray(jax.random.permutation(key, count))[:num_test])
        return self.take(~tested), self.take(tested)


def check_decisions(data: Any) -> Decisions:
    """The decisions themselves, once their shapes, choices and numbers have been found in order.

    Arrays under a JAX transformation are let through unseen.

    Raises
    ------
    TypeError
        If the data are no ``Decisions``, or an array has the wrong kind of number.
    ValueError
        If shapes disagree, a decision has no legal option, its choice is not legal, or a legal option has a feature
        that is NaN or infinite. The message names the decision.
    """
    if not isinstance(data, Decisions):
        raise TypeError(f"data is {type(data).__name__}, not Decisions: build them with Decisions.from_list")
    for name, part in zip(Decisions._fields[:-1], data, strict=False):
        if not hasattr(part, "dtype") and not (part is None and name in ("subject", "weight")):
            raise TypeError(f"{name} is {type(part).__name__}: give a NumPy or JAX array")
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(data)):
        return data
    features, legal, choice = (np.asarray(x) for x in data[:3])
    kinds = {"features": (features, "f", "floats"), "legal": (legal, "b", "booleans")}
    kinds["choice"] = (choice, "iu", "integers")
    if data.subject is not None:
        kinds["subject"] = (np.asarray(data.subject), "iu", "integers")
    if data.weight is not None:
        kinds["weight"] = (np.asarray(data.weight), "fiu", "numbers")
    for name, (array, kind, what) in kinds.items():
        if array.dtype.kind not in kind:
            raise TypeError(f"{name} holds {array.dtype}: give {what}")
    if features.ndim != 3 or 0 in features.shape[:2] or legal.shape != features.shape[:2]:
        raise ValueError(
            f"features has shape {features.shape}, legal {legal.shape}: give (decision, option, feature) and "
            "(decision, option), one decision and one option at least"
        )
    for name in ("choice", "subject", "weight"):
        if name in kinds and kinds[name][0].shape != legal.shape[:1]:
            raise ValueError(
                f"{name} has shape {kinds[name][0].shape}, not ({len(legal)},), one entry a decision"
            )
    _check_options(features, legal, choice)
    if data.subject is not None:
        who, names = np.asarray(data.subject), data.metadata.subject_names
        wrong = (who < 0) | (who >= (np.inf if names is None else len(names)))
        if wrong.any():
            worst = int(wrong.argmax())
            known = "" if names is None else f", and metadata.subject_names has {len(names)}"
            raise ValueError(f"subject[{worst}] is {who[worst]}: subjects are numbered from 0{known}")
    if data.weight is not None:
        weight = np.asarray(data.weight, float)
        wrong = ~(np.isfinite(weight) & (weight >= 0))
        if wrong.any():
            worst = int(wrong.argmax())
            raise ValueError(f"weight[{worst}] is {weight[worst]}: give finite numbers from 0")
    return data


def _check_options(features: np.ndarray, legal: np.ndarray, choice: np.ndarray) -> None:
    stuck = ~legal.any(-1)
    if stuck.any():
        raise ValueError(f"legal[{int(stuck.argmax())}]: no option is legal; leave such decisions out")
    outside = (choice < -1) | (choice >= legal.shape[1])
    if outside.any():
        worst = int(outside.argmax())
        raise ValueError(
            f"choice[{worst}] is {choice[worst]}, outside 0..{legal.shape[1] - 1} (-1 is not known)"
        )
    illegal = (choice >= 0) & ~np.take_along_axis(legal, np.maximum(choice, 0)[:, None], 1)[:, 0]
    if illegal.any():
        worst = int(illegal.argmax())
        raise ValueError(
            f"choice[{worst}] is option {choice[worst]}, which is not legal there: the legal ones are "
            f"{np.flatnonzero(legal[worst]).tolist()}"
        )
    wrong = np.argwhere(legal[..., None] & ~np.isfinite(features))
    if len(wrong):
        at = tuple(wrong[0].tolist())
        raise ValueError(
            f"features{list(at)} is {features[at]} (decision, option, feature): features of legal options are finite"
        )


def require_key(key: Any) -> None:
    """Raise TypeError unless the key is a typed one."""
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        raise TypeError(f"key must come from jax.random.key, not {type(key).__name__}")


def weights_of(data: Decisions, *, known: bool = False) -> Float[np.ndarray, "decision"]:
    """How often each decision counts, once where there are no weights; never, with `known`, if the choice is not."""
    weight = np.ones(data.num_decisions) if data.weight is None else np.asarray(data.weight, float)
    return np.where(np.asarray(data.choice) >= 0, weight, 0.0) if known else weight


def _floats(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name} has rows of different lengths: give an array (option, feature)") from None
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name} holds {array.dtype}: give numbers")
    return array.astype(float)


def _indices(name: str, values: Any, count: int, least: int = 0) -> np.ndarray:
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"{name} is {array.dtype} {array.shape}: give integers (decision,)")
    outside = (array < least) | (array >= count)
    if outside.any():
        worst = int(outside.argmax())
        unknown = " (-1 is not known)" if least < 0 else ""
        raise ValueError(f"{name}[{worst}] is {array[worst]}, outside 0..{count - 1}{unknown}")
    return array


def _numbers(indices: Any, count: int) -> np.ndarray:
    """Numbers of decisions, of integers or booleans."""
    chosen = np.asarray(indices)
    if chosen.ndim != 1:
        raise ValueError(f"indices has shape {chosen.shape}: give a list of numbers, booleans or a slice")
    if chosen.dtype == bool:
        if len(chosen) != count:
            raise ValueError(f"indices has {len(chosen)} booleans: give one for each of {count} decisions")
        return np.flatnonzero(chosen)
    if not len(chosen):
        return chosen.astype(int)
    if chosen.dtype.kind not in "iu":
        raise TypeError(f"indices holds {chosen.dtype}: give integers or booleans")
    outside = (chosen < -count) | (chosen >= count)
    if outside.any():
        worst = int(outside.argmax())
        raise ValueError(f"indices[{worst}] is {chosen[worst]}, but there are {count} decisions")
    return chosen


def digest(*arrays: Any) -> bytes:
    """What tells arrays of other shapes or numbers apart."""
    found = hashlib.blake2b()
    for array in map(np.asarray, arrays):
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(np.ascontiguousarray(array).tobytes())
    return found.digest()
