"""A journal of the finished calls of a deterministic search, from which the same search goes on where it was stopped.

A search is ordinary Python that makes numbered calls, which may make calls of their own. The journal holds the outcomes
of finished calls, those inside an unfinished one included, and the state of the one that runs. Resuming runs the search
again: finished calls return at once, the last one goes on from its state. When a call is finished, those that it made
are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ethogram.inference.checkpoint import Checkpoint, refuse_longer

__all__ = ["Journal", "Pages"]

Outcome = TypeVar("Outcome")


class Pages(NamedTuple):
    """What a file holds: steps done, evaluations, outcomes of finished calls by depth, and the state that runs."""

    steps: int
    evaluated: list[int]
    traces: list[Any]
    finished: list[list[Any]]
    running: Any


class Journal:
    """Outcomes of calls, kept in a checkpoint.

    Parameters
    ----------
    checkpoint, signature : where they are kept.
    every : steps between two writings.
    num_steps : steps that are asked for; a ValueError if the file has more.
    """

    def __init__(self, checkpoint: Checkpoint, signature: Callable[[], str], every: int, num_steps: int):
        self.path, self.every = checkpoint.path, every
        self.closed = False
        self._checkpoint, self._numbers = checkpoint, [0]
        self.pages = checkpoint.resumed(
            signature,
            Pages,
            lambda _, pages: refuse_longer(pages.steps, num_steps),
            lambda: Pages(0, [], [], [[]], None),
        )
        self._saved = self.pages.steps // every

    def call(self, function: Callable[[], Outcome]) -> Outcome:
        """Outcome of a call: that of the file, or of the function, which is then recorded."""
        depth, number = len(self._numbers) - 1, self._numbers[-1]
        finished = self.pages.finished
        self._numbers[-1] += 1
        if number < len(finished[depth]):
            return finished[depth][number]
        self._numbers.append(0)
        if len(finished) == depth + 1:
            finished.append([])
        outcome = function()
        self._numbers.pop()
        if not self.closed:  # in one assignment, between which and others a search may be interrupted
            finished = [*finished[:depth], [*finished[depth], outcome]]
            self.pages = self.pages._replace(finished=finished, running=None)
            self._checkpoint.save(self.pages, self.pages.steps, due=False)
        return outcome

    def advance(self, running: Any, steps: int, evaluated: list[int], traces: list[Any]) -> None:
        """Record the state of the call that runs, and write it where enough steps were made."""
        pages = self.pages
        self.pages = pages._replace(
            steps=steps,
            evaluated=pages.evaluated + evaluated,
            traces=pages.traces + traces,
            running=running,
        )
        if not self.closed:
            due, self._saved = steps // self.every > self._saved, steps // self.every
            self._checkpoint.save(self.pages, steps, due)

    def close(self) -> None:
        """Keep nothing more: what comes later belongs to this run alone, not to a longer one."""
        if not self.closed:
            self._checkpoint.save(self.pages, self.pages.steps)
        self.closed = True
        self.pages = self.pages._replace(running=None)
