"""Ragged batches of behaviour: the padded container that models read, its constructors, buckets and splits."""

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Num

from ethogram.models.arguments import is_concrete, require_key, require_number, require_one_of
from ethogram.models.data.action_numbers import warn_of_numbers_from_one
from ethogram.models.data.buckets import bucket_indices
from ethogram.models.data.checks import check, check_form
from ethogram.models.data.concatenation import concatenated
from ethogram.models.data.covariates import covariate_frame
from ethogram.models.data.description import describe_data, trajectories_in_words
from ethogram.models.data.episodes import read_episodes, read_list
from ethogram.models.data.gaps import lacking
from ethogram.models.data.labels import coded_fields
from ethogram.models.data.metadata import SEQUENCE_LABELS, ColumnName, Metadata, read_metadata
from ethogram.models.data.on_disk import read_folder, write_folder
from ethogram.models.data.outliers import warn_of_unobserved
from ethogram.models.data.scaling import centred, standardised
from ethogram.models.data.selection import (
    counted_lengths,
    drawn_units,
    first_steps,
    group_labels,
    sequence_numbers,
    unit_labels,
    valid_steps,
)
from ethogram.models.data.tables import read_table
from ethogram.models.data.write_table import write_table
from ethogram.models.data.xarray_dataset import read_dataset, write_dataset
from ethogram.models.printing import printed_as

__all__ = [
    "ColumnName",
    "Metadata",
    "Trajectories",
    "bucket_indices",
    "check",
    "group_labels",
    "valid_steps",
]

HostOrDevice = np.ndarray | Array
Label = ColumnName | re.Pattern[str] | Callable[[Path], Any] | None


@printed_as(
    lambda data: describe_data(data, trajectories_in_words),
    "choose sequences by take([0]), join them by Trajectories.concatenate([one, other]), ",
)
class Trajectories(NamedTuple):
    """Sequences of behaviour, padded to one width: a pytree whose leaves are the arrays.

    A sequence is one agent in one demonstration; agents that acted together share a ``group``. Absent
    parts are None; missing states, actions and labels are -1. Models read ``lengths`` and ``observed`` only, so the
    values in padding and in missing frames never matter. The constructors return NumPy arrays on the
    host (models move what they need), with observations as floats: 0 in padding, and NaN in a missing frame. NaN in
    some features of an observed frame says that these are missing there; emissions that cannot sum them out refuse it
    (`complete_frames`). In observations -1 is a number as any other.

    Parameters
    ----------
    observations : (sequence, time, feature) floats, those of counts and symbols whole numbers; or integers, of which
        none is missing.
    states, actions : (sequence, time) integers.
    lengths : (sequence,) integers, frames of each sequence, at most ``time``.
    observed : (sequence, time) booleans, whether the frame was recorded (its observations, or without
        observations its states and actions); False beyond the length.
    agent, group, subject : (sequence,) integers.
    stay : (sequence, time) integers, 1 where the hidden state is known to stay until the next frame, 0
        where it is known to change, -1 where unknown.
    times : (sequence, time) numbers, the time of each frame as it was given (NaN, integers: -1, in frames without
        one), for dates and durations nanoseconds (``metadata.time_kind``); no model reads them.
    covariates : (sequence, time, covariate) floats, codes where ``metadata.covariate_levels`` has levels; known in
        every frame within a length, observed or not. A step depends on those of the frame that it leaves.
    metadata : names, units, frame rate, vocabularies.
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
    times: Num[HostOrDevice, "sequence time"] | None = None
    covariates: Num[HostOrDevice, "sequence time covariate"] | None = None
    metadata: Metadata = Metadata()

    @property
    def num_sequences(self) -> int:
        """Number of sequences, as of ``len``."""
        return self.lengths.shape[0]

    def __len__(self) -> int:
        return self.num_sequences

    @classmethod
    def concatenate(cls, items: Iterable["Trajectories"]) -> "Trajectories":
        """The sequences of several trajectories, one after the other, with the padding that the longest needs.

        They need the same parts, features, units and clock (kind and zone of times, frame rate). Labels of one name are
        of one agent, group, ...: vocabularies are merged, and codes follow. Integers without names are labels too.

        Examples
        --------
        >>> parts = [Trajectories.from_list([[0.0, 1.0]], agent=[name]) for name in ("cat", "ape")]
        >>> both = Trajectories.concatenate(parts)
        >>> both.lengths.tolist(), both.agent.tolist(), both.metadata.agent_names
        ([2, 2], [0, 1], ('cat', 'ape'))
        """
        return check(cls(**concatenated(items)))

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> "Trajectories":
        """The trajectories of a folder that :meth:`save` wrote; their arrays stay on disk, and are memory-mapped.

        Names, shapes and dtypes are checked here, values where a model reads them. ``method="svi"`` of `ethogram.fit`,
        hidden states and scores read large data part by part.

        Raises
        ------
        ValueError : the folder is of something else, of another version, or was not written to the end.
        """
        data = cls(**read_folder(path))
        check_form(data)
        return data

    @classmethod
    def save_parts(
        cls, path: str | os.PathLike[str], parts: Iterable["Trajectories"], num_steps: int | None = None
    ) -> "Trajectories":
        """Trajectories written to a folder part by part, so that one part at a time is in memory, and then opened.

        Parameters
        ----------
        path : of the folder, which is replaced where it holds trajectories; it appears once all parts are written.
        parts : such as a generator; of equal dtypes and metadata, so that a label has one number in all.
        num_steps : width of the arrays, at least that of each part; None takes that of the first.

        Examples
        --------
        >>> import tempfile
        >>> folder = tempfile.mkdtemp() + "/walks"
        >>> walks = (Trajectories.from_list([[0.0, 1.0, day]], agent=[day]) for day in range(3))
        >>> Trajectories.save_parts(folder, walks).observations[:, 2, 0].tolist()
        [0.0, 1.0, 2.0]
        """
        if isinstance(parts, cls) or not isinstance(parts, Iterable):
            raise TypeError(f"parts is {type(parts).__name__}: give a list of Trajectories, or a generator")
        write_folder(path, parts, num_steps)
        return cls.open(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a folder of NumPy files, whole or not at all, that :meth:`open` reads.

        Parameters
        ----------
        path : of the folder, which is replaced where it holds trajectories and nothing else.
        """
        write_folder(path, [self], None)

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
        time: Any = None,
        step: Any = None,
        snap: bool | float | int = False,
        missing: str = "error",
        metadata: Metadata | None = None,
        codes: bool | str | Iterable[str] = False,
        covariates: Any = None,
        missing_covariates: str = "error",
    ) -> "Trajectories":
        """Trajectories of lists that hold one array per sequence.

        Parameters
        ----------
        observations : arrays (time, feature) of numbers, which become floats; an array (time,) is one feature.
        states, actions : arrays (time,) of integers, -1 where missing, or of strings.
        stay : arrays (time,) of 1 (stayed), 0 (changed), and -1, NaN or None (unknown).
        observed : arrays (time,) of booleans; rows marked False may be NaN. Default: all rows.
        agent, group, subject : (sequence,) integers or strings; NaN or None becomes -1.
        time, step, snap : an array of times per sequence, and the grid, as in :meth:`from_table`: sequences of a group
            then share one clock. Without times, all sequences of a group begin at the same moment.
        missing, metadata : as in :meth:`from_table`.
        codes : True where integers are numbers of entries of the metadata's vocabularies, from 0; or the fields where
            they are, such as ``["actions"]``. Otherwise labels are looked up by their text where metadata have names:
            with ``state_names=["1", "2"]`` a 1 is the first state. Actions 1, 2, 3 without a 0 or names give a warning.
        covariates, missing_covariates : by name, a list with an array (time,) or a single value per sequence, numbers
            or strings; or arrays (time, covariate), or (covariate,), per sequence. Else as in :meth:`from_table`.

        Examples
        --------
        >>> data = Trajectories.from_list([[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]], agent=["cat", "dog"])
        >>> data.lengths.tolist(), data.agent.tolist(), data.metadata.agent_names
        ([2, 1], [0, 1], ('cat', 'dog'))
        """
        steps = {"observations": observations, "states": states, "actions": actions}
        steps |= {"stay": stay, "observed": observed}
        labels = {"agent": agent, "group": group, "subject": subject}
        rest = codes, covariates, missing_covariates
        read = read_list(steps, labels, missing, metadata, time, step, snap, *rest)
        return warn_of_numbers_from_one(check(cls(**read)), codes)

    @classmethod
    def from_table(
        cls,
        table: Any,
        *,
        sequence: Label | Iterable[ColumnName] = None,
        time: ColumnName | None = None,
        features: ColumnName | Iterable[ColumnName] | None = None,
        states: ColumnName | None = None,
        actions: ColumnName | None = None,
        stay: ColumnName | None = None,
        agent: Label = None,
        group: Label = None,
        subject: Label = None,
        step: Any = None,
        snap: bool | float | int = False,
        missing: str = "error",
        metadata: Metadata | None = None,
        codes: bool | str | Iterable[str] = False,
        day_first: bool | None = None,
        duplicates: str = "error",
        max_speed: float | int | None = None,
        covariates: ColumnName | Iterable[ColumnName] | None = None,
        missing_covariates: str = "error",
        sep: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        encoding: str | None = None,
    ) -> "Trajectories":
        """Trajectories of a table with one row per frame, sequences in the order of their first rows.

        Parameters
        ----------
        table : a DataFrame of pandas or polars, or a LazyFrame; a Table of pyarrow; a relation of duckdb; a mapping
            from names to columns of one length; a list of dictionaries, one per row; or the path of a parquet, CSV or
            TSV file, perhaps with .gz, a pattern such as ``"gps/*.csv"``, or a list of these. In files of text,
            identifiers and labels are text (``007`` is not ``7``, and ``NA`` is a name), or integers where all entries
            of a column are, but for empty ones and words such as NA.
        sequence : column, or columns together, that identify a sequence; None makes the table, or each of several
            files, one sequence. Where agents share a demonstration, name both columns. Rows of different
            sequences may interleave.
        time : column of numbers, dates, durations or strings of dates that increases within each sequence, in which
            rows of several files are sorted; dates may have a time zone. The sequences of a ``group`` share one clock,
            which begins at the earliest time of the group: an agent that comes later has missing frames before, one
            that leaves earlier has padding after. Without a group a sequence begins at its first time. If None, rows
            are consecutive frames.
        features, states, actions, stay : columns of the frames; features are numbers, which become floats, and their
            names go to the metadata.
        agent, group, subject : columns that are constant within a sequence; a null becomes -1. Of files, these and
            `sequence` may be ``"file"``, the name without ending, a compiled regular expression that is searched in
            it (the first group counts, where it has one), or a function of the ``pathlib.Path``.
        step : time from one frame to the next, a number in the units of ``time``; where ``time`` has dates a
            ``timedelta`` or an offset or string of pandas, such as ``"10min"``. Times in between count as missing
            frames, whatever ``missing`` says; a time may be off its frame by a tenth of a step. None needs equally
            spaced times.
        missing : ``"error"`` refuses nulls and NaN in features, states and actions; ``"nan"`` takes them as missing:
            NaN stays where some features of a row are missing, a row without any feature is a missing frame, and a
            missing state or action is -1.
        snap : True moves every time to its nearest frame, a number only those off by at most this share of a step; a
            warning gives how many moved, and the largest distance. Two rows in one frame raise an error.
        metadata : names and units that the table does not have. Its vocabularies fix the codes of labels; strings
            without one are numbered in alphabetical order. ``frame_rate``, where None, becomes
            ``1 / step`` (for dates and durations in seconds, with ``time_unit`` "s").
        codes : as in :meth:`from_list`.
        day_first : whether dates such as 01/05/2024 have the day first, or the month; None refuses them.
        duplicates : rows of a sequence with the same time, or after `snap` in the same frame: ``"error"``; ``"first"``
            takes the first value of each feature that is known; ``"mean"`` averages features, angles on the circle, and
            needs equal labels.
        max_speed : positions are taken as missing where the steps to and from them are faster, up to three in a row, if
            those before and after are within reach of each other; of an end of a sequence one step counts. In units of
            the features (longitude and latitude: metres) per unit of time (dates: second). Features called x and y,
            east and north, or longitude and latitude are positions, else two features that are no angles.
        covariates : columns of numbers, or of text, booleans or categories, whose levels are numbered in the order of
            the categories, else of the alphabet; ``metadata=`` with levels fixes them. Features may be among them.
        missing_covariates : frames without a value of a covariate that varies within the sequence, those without a row
            among them: ``"error"`` refuses them, ``"carry"`` takes the last known one, at the begin the first.
        sep, decimal, thousands, encoding : how files of text are written, as in ``pandas.read_csv``.

        Examples
        --------
        >>> table = {"game": ["a", "a", "b"], "t": [0.0, 0.2, 5.0], "x": [1.0, 2.0, 3.0]}
        >>> data = Trajectories.from_table(table, sequence="game", time="t", features="x", step=0.1)
        >>> data.observed.tolist(), data.metadata.frame_rate
        ([[True, False, True], [True, False, False]], 10.0)
        """
        steps = {"states": states, "actions": actions, "stay": stay}
        labels: dict[str, Any] = {"agent": agent, "group": group, "subject": subject}
        how: dict[str, Any] = {"day_first": day_first, "duplicates": duplicates, "max_speed": max_speed}
        how |= {"missing": missing, "snap": snap, "codes": codes}
        how |= {"covariates": covariates, "missing_covariates": missing_covariates}
        text = {"sep": sep, "decimal": decimal, "thousands": thousands, "encoding": encoding}
        read = read_table(table, sequence, time, features, steps, labels, step, metadata, text=text, **how)
        return warn_of_numbers_from_one(check(cls(**read)), codes)

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
        time: Any = None,
        step: Any = None,
        snap: bool | float | int = False,
        missing: str = "error",
        metadata: Metadata | None = None,
        codes: bool | str | Iterable[str] = False,
        covariates: Any = None,
        missing_covariates: str = "error",
    ) -> "Trajectories":
        """Trajectories of episodes, recognised by the names of their parts; each episode is one sequence.

        Minari's ``EpisodeData`` (``observations``, ``actions``) and imitation's ``Trajectory`` (``obs``,
        ``acts``) have one observation more than actions: the one after the last action. By default it is
        kept, as a frame whose action is -1, because it shows where the last action led. Rewards and
        other records of an episode are not read.

        Parameters
        ----------
        episodes : objects or dictionaries with T or T + 1 observations and T actions; or a mapping of them, whose keys
            become the groups unless `group` is given; or D4RL's flat dictionary, with the ``observations`` and
            ``actions`` of all episodes one after the other, and ``terminals`` or ``timeouts`` (or ``terminations``,
            ``truncations``) that mark last steps; ``next_observations``, if there, give those after last actions.
        last : ``"keep"`` or ``"drop"`` the observation after the last action.
        as_states : True reads integer observations (a tabular environment) as ``states``; there are then
            no ``observations``.
        with_actions : False leaves actions out. Those that are not integers are refused: discretise them, or join them
            to the observations as features.
        agent, group, subject, time, step, snap, missing, metadata, codes, covariates, missing_covariates : as in
            :meth:`from_list`.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> episode = SimpleNamespace(obs=[[0.0], [0.1], [0.3]], acts=[1, 0])
        >>> Trajectories.from_episodes([episode]).actions.tolist()
        [[1, 0, -1]]
        """
        known = None if "actions" in coded_fields(codes) else read_metadata(metadata).action_names
        steps, keys = read_episodes(episodes, last, as_states, with_actions, known or ())
        labels = {"agent": agent, "group": keys if group is None else group, "subject": subject}
        rest = codes, covariates, missing_covariates
        read = read_list(steps, labels, missing, metadata, time, step, snap, *rest)
        return warn_of_numbers_from_one(check(cls(**read)), codes)

    @classmethod
    def from_xarray(
        cls,
        dataset: Any,
        *,
        sequence: str = "sequence",
        agent: str = "agent",
        time: str = "time",
        features: str | Iterable[str] = "feature",
        missing: str = "error",
    ) -> "Trajectories":
        """Trajectories of a Dataset: one that :meth:`to_xarray` made, or any other whose dims are named here.

        Parameters
        ----------
        dataset : ``xarray.Dataset`` with at least one of ``observations (sequence, time, feature)``,
            ``states`` and ``actions (sequence, time)``, in any order of dims; other variables are not
            read. Observations become floats; states, actions and labels are numbers of the names in coordinates such as
            ``state_names``. Without ``lengths`` every sequence fills the time axis, and all share its clock.
        sequence, time : names of these dims.
        agent : variable (sequence,) of the agents; or a dim, whose agents become sequences that share a group.
        features : name of the dim of features; or variables (sequence, time) to be taken as features, with their
            attributes ``units``; or one variable (sequence, time, any), to be taken as observations.
        missing : for a Dataset without ``observed``: ``"nan"`` takes NaN as missing, and a frame without any feature as
            a missing one; ``"error"`` refuses NaN.
        """
        data = check(cls(**read_dataset(dataset, missing, sequence, agent, time, features)))
        warn_of_unobserved(np.asarray(data.observed), data.agent, data.metadata.agent_names)
        return data if "observed" in dataset else warn_of_numbers_from_one(data)

    def to_xarray(self) -> Any:
        """An ``xarray.Dataset`` that :meth:`from_xarray` turns back into exactly these arrays and names.

        One variable per array, with dims ``sequence``, ``time`` and ``feature``. Feature names and units are
        coordinates of ``feature``, vocabularies of dims of their own; name, time unit and frame rate are attributes.
        """
        return write_dataset(check(self))

    def covariate_frame(self) -> Any:
        """A ``pandas.DataFrame`` of the covariates, with one row per step within a length, sequence by sequence."""
        return covariate_frame(check(self))

    def to_table(self) -> Any:
        """A ``pandas.DataFrame`` with one row per observed frame, at the times that were given.

        Columns are ``sequence``, ``time`` (in its time zone; the number of the frame where none was given), labels
        by their names, and one per feature.
        """
        return write_table(check(self))

    def take(self, indices: Any) -> "Trajectories":
        """The sequences with these numbers, in this order, at the same width.

        Parameters
        ----------
        indices : (chosen,) integers from ``-sequence`` to ``sequence - 1``, or (sequence,) booleans;
            integers may be traced, and are then not checked.
        """
        if not is_concrete(indices):
            return jax.tree.map(lambda leaf: jnp.asarray(leaf)[indices], self)
        chosen = sequence_numbers(indices, self.num_sequences)
        return jax.tree.map(lambda leaf: leaf[chosen], self)

    def centred(self, by: str = "group", center: str = "mean") -> "Trajectories":
        """Observations relative to a centre, in their units; ``metadata.feature_names`` say so.

        Parameters
        ----------
        by : ``"group"``: the centre of the agents of a group that are observed in the same frame; ``"sequence"``: that
            of each sequence over time; ``"all"``: one for all data.
        center : ``"mean"`` or ``"median"``.
        """
        return centred(check(self), by, center)

    def standardised(self) -> "Trajectories":
        """Features with mean 0 and standard deviation 1 over all observed frames.

        ``metadata`` has the mean and the unit of each. A feature that never varies is only centred.
        """
        return standardised(check(self))

    def complete_frames(self) -> "Trajectories":
        """The data in which frames that lack a feature (NaN) are missing as a whole."""
        if self.observations is None:
            return self
        observed = np.asarray(self.observed)
        observed = observed & ~lacking(np.asarray(self.observations), observed).any(axis=2)
        warn_of_unobserved(observed, self.agent, self.metadata.agent_names)
        return self._replace(observed=observed)

    def trim(self) -> "Trajectories":
        """The same sequences without the padding that all of them share."""
        return first_steps(self, int(np.max(self.lengths)))

    def buckets(self, max_waste: float | int = 0.25, by: str = "sequence") -> tuple["Trajectories", ...]:
        """Buckets of similar length, shortest first, each trimmed to its longest sequence.

        The fewest buckets whose padding is at most ``max_waste`` of all their cells, by
        :func:`bucket_indices`; sequences keep their order within a bucket. With ``by="group"`` a group
        stays whole: all its sequences count as long as its longest, and a -1 is a group of its own.
        """
        require_one_of("by", by, ("sequence", "group"))
        lengths = counted_lengths(self, by)
        chosen = bucket_indices(lengths, max_waste)
        return tuple(first_steps(self, int(lengths[rows].max())).take(rows) for rows in chosen)

    def split(
        self,
        key: Any,
        by: str = "sequence",
        test_fraction: float | int = 0.25,
    ) -> tuple["Trajectories", "Trajectories"]:
        """Training and test sequences, in their old order; a unit is never on both sides.

        Parameters
        ----------
        key : such as ``jax.random.key(0)``; the same key gives the same split.
        by : the unit: ``"sequence"``, ``"group"``, ``"subject"`` or ``"agent"``.
        test_fraction : share of the units that go to the test side, rounded; each side gets at least one.
        """
        require_one_of("by", by, ("sequence", *SEQUENCE_LABELS))
        require_number("test_fraction", test_fraction, above=0, below=1)
        require_key(key)
        labels = np.arange(self.num_sequences) if by == "sequence" else unit_labels(self, by, complete=True)
        is_test = drawn_units(key, labels, by, test_fraction)
        return self.take(~is_test), self.take(is_test)
