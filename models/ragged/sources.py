"""Trajectories of Python lists with one array a sequence, and of recorded episodes."""

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from ethogram.models.ragged.metadata import Metadata
from ethogram.models.ragged.rows import Column, FrameRows, pad_rows, read_column
from ethogram.models.trajectories import Trajectories

__all__ = ["from_episodes", "from_list"]


def from_list(
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
) -> Trajectories:
    """Trajectories of lists that hold one array for each sequence.

    Parameters
    ----------
    observations : arrays (time, feature) of floats or integers; an array (time,) is one feature.
    states, actions : arrays (time,) of integers, -1 where missing, or of strings.
    stay : arrays (time,) of 1 (stayed), 0 (changed) and -1, NaN or None (nothing said).
    observed : arrays (time,) of booleans; rows marked False may hold NaN. All rows where not given.
    agent, group, subject : (sequence,) integers or strings; NaN or None becomes -1.
    missing : ``"error"`` refuses NaN (in labels None too); ``"nan"`` makes a frame with NaN in any
        feature a missing one, and a missing state or action -1.
    metadata : names and units; its vocabularies fix the codes of strings, which are otherwise
        numbered in alphabetical order.

    Raises
    ------
    TypeError, ValueError
        If numbers of sequences, frames or features disagree, a value is missing and may not be, or an
        array has the wrong shape or kind; the message names sequence, step and feature.

    Examples
    --------
    >>> data = from_list([[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0]]], agent=["cat", "dog"])
    >>> data.lengths.tolist(), data.agent.tolist(), data.metadata.agent_names
    ([2, 1], [0, 1], ('cat', 'dog'))
    """
    given = {
        "observations": observations,
        "states": states,
        "actions": actions,
        "stay": stay,
        "observed": observed,
    }
    lists = {field: _arrays(part, field) for field, part in given.items() if part is not None}
    if not lists.keys() & {"observations", "states", "actions"}:
        raise ValueError("observations, states and actions are all None: give one of them")
    lengths = _common_lengths(lists)
    steps: dict[str, Column] = {
        field: read_column(_joined(lists[field]), field)
        for field in ("states", "actions", "stay")
        if field in lists
    }
    given_labels = {"agent": agent, "group": group, "subject": subject}
    labels = {
        field: _label_column(part, field, len(lengths))
        for field, part in given_labels.items()
        if part is not None
    }
    rows = FrameRows(
        sequence=np.repeat(np.arange(len(lengths)), lengths),
        frame=np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths),
        lengths=lengths,
        observations=_feature_columns(lists["observations"]) if "observations" in lists else None,
        steps=steps,
        observed=_marks(lists["observed"]) if "observed" in lists else None,
    )
    return pad_rows(rows, labels, missing, metadata)


def from_episodes(
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
) -> Trajectories:
    """Trajectories of episodes, recognised by their attributes; each episode is one sequence.

    Minari's ``EpisodeData`` (``observations``, ``actions``) and imitation's ``Trajectory`` (``obs``,
    ``acts``) hold one observation more than actions: what was seen after the last action. By default
    it stays, as a frame whose action is -1, because it still tells where the last action led.
    Rewards and whatever else an episode records are not read.

    Parameters
    ----------
    episodes : objects with T or T + 1 observations and T actions.
    last : ``"keep"`` or ``"drop"`` the observation after the last action.
    as_states : True reads integer observations (a tabular world) as ``states``; there are then no
        ``observations``.
    with_actions : False leaves actions out, for those that are not integers.
    agent, group, subject, missing, metadata : as in :func:`from_list`.

    Raises
    ------
    TypeError
        If an episode lacks these attributes, its observations are a dictionary, or its actions are
        not integers.
    ValueError
        If the numbers of observations and actions do not fit, and as :func:`from_list`.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> episode = SimpleNamespace(obs=[[0.0], [0.1], [0.3]], acts=[1, 0])
    >>> from_episodes([episode]).actions.tolist()
    [[1, 0, -1]]
    """
    if last not in ("keep", "drop"):
        raise ValueError(f"last is {last!r}: choose 'keep' or 'drop'")
    seen, acted = [], []
    for number, episode in enumerate(episodes):
        observation, action = _episode_arrays(episode, number)
        extra = len(observation) - len(action)
        if extra not in (0, 1):
            raise ValueError(
                f"episode {number} has {len(observation)} observations and {len(action)} actions: "
                "give as many observations as actions, or one more"
            )
        if with_actions:
            action = _discrete(
                action, f"actions of episode {number}", "discretise them or pass with_actions=False"
            )
        if extra and last == "drop":
            observation = observation[:-1]
        elif extra and with_actions:
            action = np.append(action, -1)
        if as_states:
            observation = _discrete(observation, f"observations of episode {number}", "pass as_states=False")
        seen.append(observation)
        acted.append(action)
    return from_list(
        None if as_states else seen,
        states=seen if as_states else None,
        actions=acted if with_actions else None,
        agent=agent,
        group=group,
        subject=subject,
        missing=missing,
        metadata=metadata,
    )


def _episode_arrays(episode: Any, number: int) -> tuple[np.ndarray, np.ndarray]:
    for seen, acted in (("observations", "actions"), ("obs", "acts")):
        if hasattr(episode, seen) and hasattr(episode, acted):
            observation, action = getattr(episode, seen), getattr(episode, acted)
            break
    else:
        raise TypeError(
            f"episode {number} is {type(episode).__name__} without observations and actions (or obs and acts)"
        )
    for name, part in ((seen, observation), (acted, action)):
        if not isinstance(part, np.ndarray | list) and not hasattr(part, "__array__"):
            raise TypeError(
                f"{name} of episode {number} is {type(part).__name__}: flatten it to an array (time, feature)"
            )
    return np.asarray(observation), np.asarray(action)


def _discrete(values: np.ndarray, what: str, cure: str) -> np.ndarray:
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    if values.ndim != 1 or (values.dtype.kind not in "biu" and values.size):
        raise TypeError(
            f"{what} have shape {values.shape} and hold {values.dtype}, not one integer a frame: {cure}"
        )
    return values.astype(np.int64)


def _arrays(part: Iterable[Any], field: str) -> list[np.ndarray]:
    """Arrays of one field, with a feature axis where they are observations."""
    arrays = []
    for number, value in enumerate(part):
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f'{field}[{number}] is a masked array: fill it with NaN and pass missing="nan"')
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(
                f"{field}[{number}] has rows of different lengths: give it as one array"
            ) from error
        if field == "observations" and array.ndim == 1:
            array = array[:, None]
        wanted = ("(time,) or (time, feature)", 2) if field == "observations" else ("(time,)", 1)
        if array.ndim != wanted[1]:
            raise ValueError(f"{field}[{number}] has shape {array.shape}, not {wanted[0]}")
        arrays.append(array)
    if not arrays:
        raise ValueError(f"{field} is empty: give one array for each sequence, and one sequence at least")
    return arrays


def _common_lengths(lists: dict[str, list[np.ndarray]]) -> np.ndarray:
    (first, reference), *others = lists.items()
    for field, arrays in others:
        if len(arrays) != len(reference):
            raise ValueError(f"{field} has {len(arrays)} sequences, but {first} has {len(reference)}")
        for number, (array, model) in enumerate(zip(arrays, reference, strict=True)):
            if len(array) != len(model):
                raise ValueError(
                    f"{field}[{number}] has {len(array)} frames, but {first}[{number}] has {len(model)}: "
                    "mark what is missing with -1"
                )
    return np.array([len(array) for array in reference], dtype=np.int64)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    """All rows; an empty array says nothing about kind or width."""
    return np.concatenate([array for array in arrays if len(array)] or arrays[:1])


def _feature_columns(arrays: list[np.ndarray]) -> Column:
    filled = [number for number, array in enumerate(arrays) if len(array)]
    for number in filled:
        array, model = arrays[number], arrays[filled[0]]
        if array.shape[1] != model.shape[1]:
            raise ValueError(
                f"observations[{number}] has {array.shape[1]} features, but observations[{filled[0]}] has "
                f"{model.shape[1]}: every sequence has the same features"
            )
        if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(f"observations[{number}] holds {array.dtype}: give floats or integers")
    values = _joined(arrays)
    return Column(
        values, np.isnan(values) if values.dtype.kind not in "biu" else np.zeros(values.shape, dtype=bool)
    )


def _marks(arrays: list[np.ndarray]) -> np.ndarray:
    marks = _joined(arrays)
    if marks.dtype != np.bool_ and marks.size:
        raise TypeError(f"observed holds {marks.dtype}: give booleans")
    return marks.astype(bool)


def _label_column(labels: Any, field: str, num_sequences: int) -> Column:
    column = read_column(labels, field)
    if column.null.shape != (num_sequences,):
        raise ValueError(
            f"{field} has shape {column.null.shape}, not ({num_sequences},): give one label a sequence"
        )
    return column
