"""The journal: nested calls of a search that is stopped anywhere are made once, and give the same."""

from __future__ import annotations

import pytest

from ethogram.inference import checkpoint
from ethogram.inference.checkpoint import Checkpoint
from ethogram.inference.conjugate.journal import Journal


class Stopped(Exception):
    pass


def search(journal, made, stop):
    """Two stages of three calls, each of which advances by three steps; stops at a step."""

    def work(name):
        done = journal.pages.running or 0
        while done < 3:
            if journal.pages.steps == stop:
                raise Stopped
            made.append((name, done))
            done += 1
            journal.advance(done, journal.pages.steps + 1, [journal.pages.steps], [len(made)])
        return f"{name} of {done}"

    def stage(name):
        return [journal.call(lambda n=number: work(f"{name}{n}")) for number in range(3)]

    return [journal.call(lambda n=name: stage(n)) for name in "ab"] + [journal.call(lambda: work("c"))]


@pytest.mark.parametrize("every", [1, 4])
def test_a_stopped_search_makes_the_calls_that_are_left(tmp_path, every):
    whole: list = []
    expected = search(Journal(Checkpoint(None), lambda: "s", 1, 100), whole, None)
    assert len(whole) == 21
    for stop in range(0, 21):
        path, made = tmp_path / f"journal{stop}", []
        with pytest.raises(Stopped), Checkpoint(path) as store:
            search(Journal(store, lambda: "s", every, 100), made, stop)
        later: list = []
        with Checkpoint(path) as store:
            again = Journal(store, lambda: "s", every, 100)
            assert search(again, later, None) == expected
        assert made + later == whole and again.pages.steps == 21
    for signature, num_steps, fault in (
        ("other", 100, "another model, data, key or settings"),
        ("s", 20, "21 steps, more than num_steps=20"),
    ):
        with pytest.raises(ValueError, match=fault), Checkpoint(path) as store:
            Journal(store, lambda: signature, every, num_steps)  # noqa: B023


@pytest.mark.parametrize("every", [1, 4])
def test_a_killed_search_makes_the_calls_since_the_last_write_again(tmp_path, monkeypatch, every):
    """The file as it was when the steps were due: nothing is written when the search ends."""
    monkeypatch.setattr(checkpoint, "SHARE", 0.0)
    whole: list = []
    expected = search(Journal(Checkpoint(None), lambda: "s", 1, 100), whole, None)
    for stop in range(1, 21):
        path, later = tmp_path / f"journal{stop}", []
        with pytest.raises(Stopped), Checkpoint(path) as store:
            try:
                search(Journal(store, lambda: "s", every, 100), [], stop)
            finally:
                store._unsaved = False
        with Checkpoint(path) as store:
            again = Journal(store, lambda: "s", every, 100)
            assert again.pages.steps == stop // every * every
            assert search(again, later, None) == expected
        assert later == whole[stop // every * every :]


def test_steps_that_ran_out_are_not_the_state_of_the_next_call():
    """What a call left behind that was cut off, and inside calls that are made after it."""
    journal = Journal(Checkpoint(None), lambda: "s", 1, 100)
    journal.advance("state", 3, [0], [0.0])
    journal.close()
    assert journal.call(lambda: journal.pages.running) is None
    assert journal.pages.steps == 3 and journal.pages.finished[0] == []
