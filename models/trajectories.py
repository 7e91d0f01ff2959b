"""Ragged batches of behaviour: the padded container that models read, its checks, buckets and splits."""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Num

from ethogram.models.ragged.length_buckets import bucket_indices
from ethogram.models.ragged.metadata import SEQUENCE_LABELS, STEP_FIELDS, Metadata

__all__ = ["Metadata", "Trajectories", "bucket_indices", "check", "group_labels", "valid_steps"]

HostOrDevice = np.ndarray | Array
ColumnName = str | int


class Trajectories(NamedTuple):
    """Sequences of behaviour, padded to one width: a pytree whose leaves are the arrays.

    One sequence is one agent in one demonstration; agents that acted together share a ``group``.
    Parts that do not exist are None, missing integers are -1. Models look at ``lengths`` and
    ``observed`` only, so what stands in padding or in a missing frame never matters. The
    constructors return NumPy arrays on the host (models move what they need) and write 0 (or -1 for
    integers) beyond a sequence, NaN (or -1) in a missing frame.

    Parameters
    ----------
    observations : (sequence, time, feature) floats, or integers for counts and symbols.
    states, actions : (sequence, time) integers.
    lengths : (sequence,) integers, frames of each sequence, at most ``time``.
    observed : (sequence, time) booleans, whether the frame was recorded (its observations, or with no
        observations its states and actions); False beyond the length.
    agent, group, subject : (sequence,) integers.
    stay : (sequence, time) integers, 1 where the hidden state is known to stay, 0 where it is known to
        change on the way to the next frame, -1 where nothing is said.
    metadata : names, units, frame rate, vocabularies.

    Examples
    --------
    >>> data = Trajectories.from_list([[[0.0], [1.0], [2.0]], [[5.0]]])
    >>> data.observations.shape, data.lengths.tolist(), data.observed[1].tolist()
    ((2, 3, 1), [3, 1], [True, False, False])
    """

    observations: Num[HostOrDevice, "sequence time feature"] | None
    states: Int[HostOrDevice, "sequence time"] | None
    actions: Int[HostOrDevice, "sequence time"] | None
    lengths: Int[HostOrDevice, "sequence"]
    observed: Bool[HostOrDevice, "sequence time"]
    agent: Int[HostOrDevice, "sequence"] | None = None
    group: Int[HostOrDevice, "sequence"] | None = None
    subject: Int[HostOrDevice, "sequence"] | None = None
    stay: Int[HostOrDevice, "sequence time"] | None = None
    metadata: Metadata = Metadata()

    @property
    def num_sequences(self) -> int:
        """Number of sequences (``len`` counts the fields of the tuple)."""
        return self.lengths.shape[0]

    @classmethod
    def from_list(
        cls,
        observations: Iterable[Any] | None = None,
        *,
        states: Iterable[Any] | None = None,
        actions: Iterable[Any] | None = None,
        stay: Iterable[Any] | None = None,
        observed: Iterable[Any] | None = None,
        agent: Any = None,
        group: Any = None,
        subject: Any = None,
        missing: str = "error",
        metadata: Metadata | None = None,
    ) -> "Trajectories":
        """Trajectories of lists with one array a sequence, as `ragged.sources.from_list` describes."""
        from ethogram.models.ragged.sources import from_list

        steps = {"states": states, "actions": actions, "stay": stay, "observed": observed}
        labels = {"agent": agent, "group": group, "subject": subject}
        return from_list(observations, **steps, **labels, missing=missing, metadata=metadata)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        sequence: ColumnName | Iterable[ColumnName] | None = None,
        time: ColumnName | None = None,
        features: ColumnName | Iterable[ColumnName] | None = None,
        states: ColumnName | None = None,
        actions: ColumnName | None = None,
        stay: ColumnName | None = None,
        agent: ColumnName | None = None,
        group: ColumnName | None = None,
        subject: ColumnName | None = None,
        step: Any = None,
        missing: str = "error",
        metadata: Metadata | None = None,
    ) -> "Trajectories":
        """Trajectories of a table with a row a frame, as `ragged.tables.from_table` describes."""
        from ethogram.models.ragged.tables import from_table

        columns = {"states": states, "actions": actions, "stay": stay}
        labels = {"agent": agent, "group": group, "subject": subject}
        return from_table(
            table, sequence=sequence, time=time, features=features, **columns, **labels,
            step=step, missing=missing, metadata=metadata,
        )  # fmt: skip

    @classmethod
    def from_episodes(
        cls,
        episodes: Iterable[Any],
        *,
        last: str = "keep",
        as_states: bool = False,
        with_actions: bool = True,
        agent: Any = None,
        group: Any = None,
        subject: Any = None,
        missing: str = "error",
        metadata: Metadata | None = None,
    ) -> "Trajectories":
        """Trajectories of Minari- or imitation-like objects, as `ragged.sources.from_episodes` says."""
        from ethogram.models.ragged.sources import from_episodes

        reading: dict[str, Any] = {"last": last, "as_states": as_states, "with_actions": with_actions}
        labels = {"agent": agent, "group": group, "subject": subject}
        return from_episodes(episodes, **reading, **labels, missing=missing, metadata=metadata)

    @classmethod
    def from_xarray(cls, dataset: Any, *, missing: str = "error") -> "Trajectories":
        """Trajectories of an xarray Dataset, as `ragged.xarray_dataset.from_xarray` describes."""
        from ethogram.models.ragged.xarray_dataset import from_xarray

        return from_xarray(dataset, missing=missing)

    def to_xarray(self) -> Any:
        """An xarray Dataset that :meth:`from_xarray` turns back into exactly these arrays and names."""
        from ethogram.models.ragged.xarray_dataset import to_xarray

        return to_xarray(self)

    def take(self, indices: Any) -> "Trajectories":
        """The sequences with these numbers, in this order, at the same width.

        Parameters
        ----------
        indices : (chosen,) integers from ``-sequence`` to ``sequence - 1``, or (sequence,) booleans;
            integers may be traced, and are then not checked.

        Raises
        ------
        TypeError, ValueError
            If concrete indices are empty, out of range, or neither integers nor booleans.
        """
        if isinstance(indices, jax.core.Tracer):
            return jax.tree.map(lambda leaf: jnp.asarray(leaf)[indices], self)
        chosen = _sequence_numbers(indices, self.num_sequences)
        return jax.tree.map(lambda leaf: leaf[chosen], self)

    def trim(self) -> "Trajectories":
        """The same sequences without the padding that all of them share."""
        return _first_steps(self, int(np.max(self.lengths)))

    def buckets(self, max_waste: float | int = 0.25, by: str = "sequence") -> tuple["Trajectories", ...]:
        """Buckets of similar length, shortest first, each trimmed to its longest sequence.

        The fewest buckets whose padding is at most ``max_waste`` of all their cells, by
        :func:`bucket_indices`; sequences keep their order within a bucket. With ``by="group"`` a group
        stays whole: all its sequences count as long as its longest, and a -1 is a group of its own.
        """
        lengths = np.maximum(np.asarray(self.lengths), 1)
        if by == "group":
            _, unit = np.unique(_units(self, "group"), return_inverse=True)
            longest = np.zeros(unit.max() + 1, dtype=lengths.dtype)
            np.maximum.at(longest, unit, lengths)
            lengths = longest[unit]
        elif by != "sequence":
            raise ValueError(f"by is {by!r}: choose 'sequence' or 'group'")
        chosen = bucket_indices(lengths, max_waste)
        return tuple(_first_steps(self, int(lengths[rows].max())).take(rows) for rows in chosen)

    def split(
        self,
        key: Any,
        by: str = "sequence",
        test_fraction: float | int = 0.25,
    ) -> tuple["Trajectories", "Trajectories"]:
        """Training and test sequences, in their old order; a group (or subject) is never on both sides.

        Parameters
        ----------
        key : of ``jax.random``; the same key gives the same split.
        by : what is drawn: ``"sequence"``, ``"group"``, ``"subject"`` or ``"agent"``.
        test_fraction : share of the units drawn (sequences, groups or subjects) that go to the test
            side, rounded; each side gets one at least.

        Raises
        ------
        ValueError
            If the labels are absent or -1, there is a single unit, or the fraction is not in (0, 1).
        """
        if by not in ("sequence", *SEQUENCE_LABELS):
            raise ValueError(f"by is {by!r}: choose 'sequence', 'group', 'subject' or 'agent'")
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction is {test_fraction}: choose a share between 0 and 1")
        labels = np.arange(self.num_sequences) if by == "sequence" else _units(self, by, complete=True)
        _, unit = np.unique(labels, return_inverse=True)
        num_units = int(unit.max()) + 1
        if num_units < 2:
            raise ValueError(f"by={by!r} finds one {by} only: a split needs two")
        num_test = min(max(round(test_fraction * num_units), 1), num_units - 1)
        drawn = np.asarray(jax.random.permutation(key, num_units))[:num_test]
        is_test = np.isin(unit, drawn)
        return self.take(~is_test), self.take(is_test)


def valid_steps(data: Trajectories) -> Bool[HostOrDevice, "... time"]:
    """Whether a frame lies within its sequence (``observed`` is also False where it is missing)."""
    step = np.expand_dims(np.arange(data.observed.shape[-1]), tuple(range(data.lengths.ndim)))
    return data.lengths[..., None] > step


def check(data: Any) -> Trajectories:
    """The data themselves, once their shapes, lengths, labels and numbers have been found in order.

    Arrays under a JAX transformation, or spread over other processes, are let through unseen. Padding
    and missing frames may hold anything, NaN too.

    Raises
    ------
    TypeError
        If the data are no ``Trajectories`` or an array has the wrong kind of number.
    ValueError
        If shapes disagree, a length or label is out of range, an observed frame holds NaN or an
        infinity, or ``observed`` is True beyond a length. The message names the place and the cure.
    """
    if not isinstance(data, Trajectories):
        raise TypeError(
            f"data is {type(data).__name__}, not Trajectories: build it with Trajectories.from_list"
        )
    if any(_is_hidden(leaf) for leaf in jax.tree.leaves(data)):
        return data
    from ethogram.models.ragged.checks import check_arrays

    check_arrays(data)
    return data


def _is_hidden(leaf: Any) -> bool:
    return isinstance(leaf, jax.core.Tracer) or not getattr(leaf, "is_fully_addressable", True)


def _first_steps(data: Trajectories, num_steps: int) -> Trajectories:
    num_steps = max(num_steps, 1)
    parts = {field: getattr(data, field) for field in STEP_FIELDS}
    return data._replace(**{field: part[:, :num_steps] for field, part in parts.items() if part is not None})


def _sequence_numbers(indices: Any, num_sequences: int) -> np.ndarray:
    chosen = np.asarray(indices)
    if chosen.dtype == np.bool_:
        if chosen.shape != (num_sequences,):
            raise ValueError(
                f"indices has shape {chosen.shape}: booleans need one entry for each of {num_sequences}"
            )
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or chosen.size == 0:
        raise ValueError(
            f"indices has shape {np.shape(indices)} and picks no list of sequences: pick one at least"
        )
    if chosen.dtype.kind not in "iu":
        raise TypeError(f"indices holds {chosen.dtype}: give integers or booleans")
    outside = (chosen < -num_sequences) | (chosen >= num_sequences)
    if outside.any():
        worst = int(outside.argmax())
        raise ValueError(f"indices[{worst}] is {chosen[worst]}, but there are {num_sequences} sequences")
    return chosen


def group_labels(data: Trajectories) -> np.ndarray:
    """Label of each sequence's group; without groups, and where it is -1, one of its own, beyond all others."""
    return np.arange(data.num_sequences) if data.group is None else _units(data, "group")


def _units(data: Trajectories, by: str, complete: bool = False) -> np.ndarray:
    """Label of the unit each sequence belongs to; a -1 is a unit of its own unless all must be known."""
    labels = getattr(data, by)
    if labels is None:
        raise ValueError(
            f"by={by!r} needs data.{by}, which is None: label the sequences or choose by='sequence'"
        )
    labels = np.asarray(labels).astype(np.int64)
    unknown = labels < 0
    if complete and unknown.any():
        worst = int(unknown.argmax())
        raise ValueError(
            f"{by}[{worst}] is -1 (missing), so its {by} could end on both sides: label it or drop it"
        )
    return np.where(unknown, labels.max() + 1 + np.arange(len(labels)), labels)
