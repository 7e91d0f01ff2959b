"""Matching of estimated to reference labels, and agreement of roles with players and line-ups."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Int
from numpy.typing import ArrayLike

from ethogram.models.arguments import read_array, require_integer
from ethogram.models.data.selection import own_units
from ethogram.models.optimal_assignment import optimal_assignment
from ethogram.models.printing import short_repr

__all__ = [
    "Alignment",
    "align_states",
    "consistency",
    "duplicate_share",
    "lineup_agreement",
    "matched_hamming",
    "relabel",
]


@short_repr
class Alignment(NamedTuple):
    """Best matching of estimated to reference labels.

    Attributes
    ----------
    permutation : (estimated label,), reference label of each estimated label; -1 for none.
    hamming : share of the labelled steps that differ after relabelling, between 0 and 1.
    """

    permutation: Int[np.ndarray, "label"]
    hamming: float


def align_states(reference: ArrayLike, estimate: ArrayLike, *, num_states: int = 0) -> Alignment:
    """Best one-to-one matching of estimated to reference labels, and its normalised Hamming distance.

    The matching maximises the number of steps on which the labels agree: the optimal assignment on the confusion
    matrix. Surplus estimated labels stay unmatched and count as wrong, so that the distance
    can exceed one half. Match on training data, then `relabel` the test data.

    Parameters
    ----------
    reference : integers of any shape, 0 and up; -1 where unknown or padded.
    estimate : integers of the same shape; -1 is ignored here too.
    num_states : number of labels on both sides; 0 counts those that occur.

    Returns
    -------
    Alignment
        ``permutation`` (estimated label,) and ``hamming``, the normalised Hamming distance.

    Raises
    ------
    TypeError
        For labels that are not integers.
    ValueError
        For unequal shapes, labels below -1, or no step that is labelled on both sides.

    References
    ----------
    Kuhn (1955), The Hungarian method for the assignment problem.
    Unhelkar and Shah (2019): the normalised Hamming distance after such a matching.

    Examples
    --------
    >>> align_states([0, 0, 1, 1, -1], [2, 2, 0, 1, 1])
    Alignment(permutation=[1, -1, 0], hamming=0.25)
    """
    require_integer("num_states", num_states, 0)
    true, learned = _labels("reference", reference), _labels("estimate", estimate)
    valid = _both(true, learned)
    shape = (max(num_states, int(learned.max()) + 1), max(num_states, int(true.max()) + 1))
    counts = _confusion(learned[valid], true[valid], shape)
    permutation = _match(counts)
    return Alignment(permutation, float(1 - _matched(counts, permutation) / counts.sum()))


def relabel(labels: ArrayLike, permutation: ArrayLike) -> Int[np.ndarray, "..."]:
    """Reference labels of estimated labels; -1 for missing and unmatched ones.

    Parameters
    ----------
    labels : integers of any shape, -1 where missing.
    permutation : (estimated label,), as `align_states` gives it.

    Raises
    ------
    ValueError
        For a label that the permutation does not have.
    """
    old, new = _labels("labels", labels), _labels("permutation", permutation)
    if new.ndim != 1:
        raise ValueError(f"permutation has shape {new.shape}: give one entry for each estimated label")
    if old.size and old.max() >= len(new):
        raise ValueError(
            f"labels has {old.max()}, permutation ends at {len(new) - 1}: "
            f"align with num_states={old.max() + 1}"
        )
    return np.append(new, -1)[old]


def matched_hamming(reference: ArrayLike, estimate: ArrayLike, permutation: ArrayLike) -> float:
    """Share of the labelled steps that are wrong under a given matching, such as that of the training data.

    Parameters
    ----------
    reference, estimate : integers of one shape, -1 unlabelled, as for :func:`align_states`.
    permutation : (estimated label,) integers, the reference label of each, -1 for none, whose steps are wrong.

    Raises
    ------
    TypeError, ValueError : as :func:`align_states` and :func:`relabel`.
    """
    true, learned = _labels("reference", reference), _labels("estimate", estimate)
    valid = _both(true, learned)
    return float(np.mean(relabel(learned, permutation)[valid] != true[valid]))


def consistency(roles: ArrayLike, agent: ArrayLike) -> float:
    """Share of agent-frames in which a player holds their most frequent role.

    Parameters
    ----------
    roles : (sequence, time) integers, -1 beyond the length of the sequence.
    agent : (sequence,) integers, player of each sequence; -1 is a player of its own.

    Raises
    ------
    ValueError
        For arrays of inconsistent shapes, or without any role.
    """
    held = _roles(roles)
    _, player = np.unique(own_units(_by_sequence("agent", agent, held)), return_inverse=True)
    sequence, time = np.nonzero(held >= 0)
    shape = (int(player.max()) + 1, int(held.max()) + 1)
    counts = _confusion(player[sequence], held[sequence, time], shape)
    return float(counts.max(axis=1).sum() / counts.sum())


def duplicate_share(
    roles: ArrayLike, group: ArrayLike, lengths: ArrayLike, observed: ArrayLike | None = None
) -> float:
    """Share of team-frames in which at least two agents of a group hold the same role.

    A team-frame is a time at which at least one sequence of the group has not ended.

    Parameters
    ----------
    roles : (sequence, time) integers, -1 beyond the length of the sequence.
    group : (sequence,) integers, the demonstration that each sequence belongs to; one with -1 has no team-mates.
    lengths : (sequence,) integers, frames of each sequence.
    observed : (sequence, time) booleans, as ``data.observed``: roles of missing frames, such as those before an agent
        came, then hold no place. None counts every role.

    Raises
    ------
    ValueError
        For arrays of inconsistent shapes, or without any role.
    """
    held = _roles(roles)
    if observed is not None:
        seen = np.asarray(observed)
        if seen.shape != held.shape or seen.dtype != bool:
            raise ValueError(
                f"observed is {seen.dtype} {seen.shape}, roles have shape {held.shape}: give booleans (sequence, time)"
            )
        held = np.where(seen, held, -1)
    length = _by_sequence("lengths", lengths, held)
    if length.max() < 1:
        raise ValueError("lengths are all 0: there is no team-frame to count")
    if length.max() > held.shape[1]:
        raise ValueError(
            f"lengths reaches {length.max()}, roles has {held.shape[1]} frames: give (sequence, time)"
        )
    _, team = np.unique(own_units(_by_sequence("group", group, held)), return_inverse=True)
    present: Bool[np.ndarray, "sequence time"] = np.arange(held.shape[1]) < length[:, None]
    team_frames = np.zeros((int(team.max()) + 1, held.shape[1]), bool)
    np.logical_or.at(team_frames, team, present)
    sequence, time = np.nonzero(present & (held >= 0))
    holders = np.zeros((*team_frames.shape, int(held.max()) + 1), int)
    np.add.at(holders, (team[sequence], time, held[sequence, time]), 1)
    return float((holders > 1).any(axis=2).sum() / team_frames.sum())


def lineup_agreement(roles: ArrayLike, agent: ArrayLike, place: ArrayLike) -> float:
    """Share of agent-frames in the role of the player's place, under the best matching of roles to places.

    Parameters
    ----------
    roles : (sequence, time) integers, -1 beyond the length of the sequence.
    agent : (sequence,) integers, the index into `place` of the player of each sequence.
    place : (player,) integers, each player's place in the line-up; any numbering.

    Raises
    ------
    ValueError
        For arrays of inconsistent shapes, or without any role.
    """
    held = _roles(roles)
    player = _by_sequence("agent", agent, held)
    places = np.asarray(place)
    if player.min() < 0 or player.max() >= len(places):
        raise ValueError(
            f"agent is in {player.min()}..{player.max()}, but place has {len(places)} entries: give one for each player"
        )
    names, slot = np.unique(places[player], return_inverse=True)
    sequence, time = np.nonzero(held >= 0)
    counts = _confusion(held[sequence, time], slot[sequence], (int(held.max()) + 1, len(names)))
    return float(_matched(counts, _match(counts)) / counts.sum())


def _confusion(
    rows: np.ndarray, columns: np.ndarray, shape: tuple[int, int]
) -> Int[np.ndarray, "row column"]:
    return np.bincount(rows * shape[1] + columns, minlength=shape[0] * shape[1]).reshape(shape)


def _match(counts: Int[np.ndarray, "row column"]) -> Int[np.ndarray, "row"]:
    """Column matched to each row so that the sum of matched counts is largest; -1 for none."""
    num_rows, num_columns = counts.shape
    unmatched = np.zeros((num_rows, max(num_rows - num_columns, 0)))
    column = optimal_assignment(np.hstack([-counts, unmatched])).role
    return np.where(column < num_columns, column, -1)


def _matched(counts: Int[np.ndarray, "row column"], columns: Int[np.ndarray, "row"]) -> int:
    rows = np.nonzero(columns >= 0)[0]
    return int(counts[rows, columns[rows]].sum())


def _both(true: np.ndarray, learned: np.ndarray) -> Bool[np.ndarray, "..."]:
    if true.shape != learned.shape:
        raise ValueError(
            f"reference has shape {true.shape}, estimate {learned.shape}: give one label per step in both"
        )
    valid = (true >= 0) & (learned >= 0)
    if not valid.any():
        raise ValueError("no step has a label in both reference and estimate: nothing can be matched")
    return valid


def _labels(name: str, labels: ArrayLike) -> Int[np.ndarray, "..."]:
    array = read_array(name, labels)
    if not np.issubdtype(array.dtype, np.integer):
        raise TypeError(f"{name} has dtype {array.dtype}: give integer labels, -1 where there is none")
    if array.size and array.min() < -1:
        raise ValueError(f"{name} has the label {array.min()}: labels start at 0, -1 means none")
    return array.astype(int)


def _roles(roles: ArrayLike) -> Int[np.ndarray, "sequence time"]:
    held = _labels("roles", roles)
    if held.ndim != 2:
        raise ValueError(f"roles has shape {held.shape}: give (sequence, time)")
    if not (held >= 0).any():
        raise ValueError("roles holds no role: every entry is -1")
    return held


def _by_sequence(
    name: str, values: ArrayLike, held: Int[np.ndarray, "sequence time"]
) -> Int[np.ndarray, "sequence"]:
    array = _labels(name, values)
    if array.shape != held.shape[:1]:
        raise ValueError(
            f"{name} has shape {array.shape}, roles has {len(held)} sequences: give one entry for each"
        )
    return array
